//! `weir serve`: a volume for virtual machines and tools, by a socket.

use std::path::PathBuf;
use std::rc::Rc;

use clap::{Args, ValueEnum};
use futures_util::{FutureExt as _, select_biased};
use weir_nbd::{Export, ExportOptions, FlushMode, NbdServer};
use weir_runtime::Handle;
use weir_volume::{Completion, VolumeOptions};

use crate::error::CliError;
use crate::messages;
use crate::service::{self, Service, ServiceArguments};
use crate::socket_address::SocketAddress;
use crate::stack::Stack;

/// Arguments of `weir serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    /// A volume, in a file or on a block device
    volume: PathBuf,
    /// Where NBD clients connect: unix:PATH, a socket that only this user can use; or tcp:PORT on 127.0.0.1, which every
    /// user of this machine can use
    #[arg(long, value_name = "unix:PATH|tcp:PORT")]
    nbd: SocketAddress,
    /// What FLUSH and FUA promise, and so a guest's fsync
    #[arg(long, value_enum, default_value_t = Sync::Durable)]
    sync: Sync,
    /// When a change is answered that asks for no more: only what the disk has taken is still there when this server was killed
    #[arg(long, value_enum, default_value_t = Answer::Placed)]
    answer: Answer,
    /// Refuse changes
    #[arg(long)]
    read_only: bool,
    /// Open a copy that was made while the volume was mounted or served, as a crash would have left it
    #[arg(long)]
    after_crash: bool,
    #[command(flatten)]
    service: ServiceArguments,
}

/// What FLUSH and FUA promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sync {
    /// When it is answered, the data is durable
    Durable,
    /// It only orders: when it is answered, nothing is durable yet, and the newest writes may be lost in a crash
    Order,
}

/// When a change is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Answer {
    /// When it has its place in the volume's log, in memory
    Placed,
    /// When the disk has taken it: a guest then goes on behind a server that was killed and started again
    Disk,
}

/// Runs the command.
pub(crate) fn run(arguments: &ServeArguments) -> Result<(), CliError> {
    service::run(&arguments.service, &arguments.volume, async |handle, service| {
        serve(handle, arguments, service).await
    })?;
    if !arguments.service.is_foreground() {
        let (address, uri) = (&arguments.nbd, arguments.nbd.uri());
        messages::print_message(&format!("serving on {address}; clients connect to {uri}; SIGTERM ends it"));
    }
    Ok(())
}

async fn serve(handle: Handle, arguments: &ServeArguments, service: Service) -> Result<(), CliError> {
    // The process may change its directory before it ends.
    let path = weir_fuse::absolute(&arguments.volume);
    let completion = match arguments.answer {
        Answer::Placed => Completion::Placed,
        Answer::Disk => Completion::Disk,
    };
    let options =
        VolumeOptions { after_crash: arguments.after_crash, completion, ..VolumeOptions::default() };
    let stack = match arguments.read_only {
        true => Stack::open_volume_to_read(&handle, &path, options).await?,
        false => Stack::open_volume(&handle, &path, options).await?,
    };
    let served = serve_stack(&handle, arguments, service, &stack).await;
    let closed = stack.close(&path).await;
    served.and(closed)
}

/// Serves a stack until a signal says to end, then answers what is under way.
async fn serve_stack(
    handle: &Handle,
    arguments: &ServeArguments,
    service: Service,
    stack: &Stack,
) -> Result<(), CliError> {
    let flush = match arguments.sync {
        Sync::Durable => FlushMode::Durable,
        Sync::Order => FlushMode::Order,
    };
    let options = ExportOptions { read_only: arguments.read_only, flush, ..ExportOptions::default() };
    // A volume keeps order.
    let export = Export::new(stack.storage(), options).map_err(|_| CliError::NoOrder)?;
    let (listener, _socket_file) = arguments.nbd.listen(handle)?;
    if flush == FlushMode::Order {
        messages::print_message(
            "--sync order: FLUSH and FUA only order here. Writes for which a guest's fsync has returned may be lost in a \
             crash, newest first.",
        );
    }
    stack.warn_of_readers(handle, &arguments.volume).await;
    stack.tell_of_unused().await;
    let mut server = NbdServer::start(handle, listener, Rc::new(export));
    let stop = service.announce(handle, &format!("serving on {}", arguments.nbd))?;
    let ended = select_biased! {
        () = stop.fuse() => Ok(()),
        source = server.failed().fuse() => {
            Err(CliError::ListenerFailed { address: arguments.nbd.to_string(), source })
        }
    };
    server.stop().await;
    ended
}
