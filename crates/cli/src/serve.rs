//! `weir serve`: a volume for virtual machines and tools, by a socket or as a block device.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use clap::{Args, ValueEnum};
use futures_util::future::OptionFuture;
use futures_util::{FutureExt as _, select_biased};
use tracing::Level;
use weir_export::{Export, ExportOptions, FlushMode};
use weir_fuse::VolumeCall;
use weir_runtime::{Event, Handle};
use weir_storage::flush;
use weir_ublk::UblkError;
use weir_volume::{Completion, VolumeOptions};

use crate::block_server::{Access, ClientArguments, Clients};
use crate::error::CliError;
use crate::log_line::LogLine;
use crate::replica_mount::url_of;
use crate::replication::{ReplicationArguments, Shipping};
use crate::serve_status::{ServedStatus, answer_all, require_room_for_status, status_address};
use crate::service::{self, Service, ServiceArguments};
use crate::stack::Stack;
use crate::sync_promise::SyncPromise;
use crate::{grow, status};

/// Arguments of `weir serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    /// A volume, in a file or on a block device
    volume: PathBuf,
    #[command(flatten)]
    clients: ClientArguments,
    /// What FLUSH and FUA promise, and so a guest's fsync
    #[arg(long, value_enum, default_value_t = SyncPromise::Durable)]
    sync: SyncPromise,
    /// When to answer a write without FUA: a kill of this server loses writes that the disk has not taken
    #[arg(long, value_enum, default_value_t = Answer::Placed)]
    answer: Answer,
    /// Refuse changes
    #[arg(long, conflicts_with = "url")]
    read_only: bool,
    /// Open a copy that was made while the volume was mounted or served, as a crash would have left it
    #[arg(long)]
    after_crash: bool,
    #[command(flatten)]
    replication: ReplicationArguments,
    #[command(flatten)]
    service: ServiceArguments,
}

/// Answers are shorter than this, and their memory is used again: mapped anew for each, it was half of the time of large reads.
const MMAP_THRESHOLD: u32 = 32 << 20;

/// When a change is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Answer {
    /// When it has its place in the volume's log, in memory
    Placed,
    /// When the disk has taken it: a guest then goes on after a server was killed and started again
    Disk,
}

impl Answer {
    /// Its name on the command line and in a status.
    fn name(self) -> &'static str {
        match self {
            Answer::Placed => "placed",
            Answer::Disk => "disk",
        }
    }
}

/// Runs the command.
pub(crate) fn run(arguments: &ServeArguments) -> Result<(), CliError> {
    arguments.service.log_format().set();
    if url_of(&arguments.volume).is_some() {
        return Err(CliError::Usage(
            "a URL cannot be served: restore it first, by `weir restore`, and serve the new volume",
        ));
    }
    let access = arguments.clients.access()?;
    require_room_for_status(access.address())?;
    service::run(&arguments.service, &arguments.volume, MMAP_THRESHOLD, async |handle, service| {
        serve(handle, arguments, service).await
    })?;
    if !arguments.service.is_foreground() {
        let uri = access.uri();
        let message = format!("serving on {access}; {}; SIGTERM ends it", access.invitation());
        LogLine::new(Level::INFO, "serving", message).with("uri", uri).print();
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
    let opened = match arguments.read_only {
        true => Stack::open_volume_to_read(&handle, &path, options).await,
        false => Stack::open_volume(&handle, &path, options).await,
    };
    let stack = Rc::new(opened.map_err(|error| match error {
        CliError::NoVolume { .. } | CliError::Foreign { .. } => {
            CliError::NotServable { source: Box::new(error) }
        }
        error => error,
    })?);
    let served = serve_shipped(&handle, arguments, service, &stack).await;
    let closed = stack.close(&path).await;
    served.and(closed)
}

/// Serves a stack, and ships its volume meanwhile if that was asked for.
async fn serve_shipped(
    handle: &Handle,
    arguments: &ServeArguments,
    mut service: Service,
    stack: &Rc<Stack>,
) -> Result<(), CliError> {
    let waits = arguments.sync.waits_for_store();
    arguments.sync.require_store(arguments.replication.is_given())?;
    let beginning = arguments.replication.begin(handle, stack.volume(), waits);
    let Some(shipping) = service.unless_ended(handle, beginning).await.transpose()? else { return Ok(()) };
    shipping.iter().for_each(|shipping| stack.set_shipping(handle, shipping, waits));
    let served = serve_stack(handle, arguments, service, stack, shipping.as_ref()).await;
    if let (Some(shipping), Some(volume)) = (shipping, stack.volume()) {
        // If it could not begin to serve, nothing has released those who wait for the store.
        shipping.begin_end(handle);
        // Only what is durable is shipped. If that fails, closing says so.
        let _ = flush(&*volume).await;
        shipping.end().await;
    }
    served
}

/// Serves a stack until a signal says to end, then answers what is under way.
async fn serve_stack(
    handle: &Handle,
    arguments: &ServeArguments,
    mut service: Service,
    stack: &Rc<Stack>,
    shipping: Option<&Shipping>,
) -> Result<(), CliError> {
    let flush = arguments.sync.into();
    let options = ExportOptions { read_only: arguments.read_only, flush, ..ExportOptions::default() };
    // A volume keeps order.
    let export = Export::new(stack.storage(), options).map_err(|_| CliError::NoOrder)?;
    let access = arguments.clients.access()?;
    let identity = stack.volume().map_or(0, |volume| volume.identity());
    let listening = access.listen(handle, identity).await?;
    let status_socket = status_address(access.address()).map(|address| address.listen(handle)).transpose()?;
    if flush == FlushMode::Order {
        let message = "--sync order: FLUSH and FUA only order here. Writes for which a guest's fsync has returned may be lost in a \
                       crash, newest first.";
        LogLine::new(Level::WARN, "flush_only_orders", message).print();
    }
    stack.warn_of_readers(handle, &arguments.volume).await;
    stack.tell_of_unused().await;
    let export = Rc::new(export);
    let name = arguments.volume.file_name().unwrap_or_default().to_string_lossy();
    let answers_from_disk = arguments.answer == Answer::Disk;
    let is_ending = || service.end_is_pending();
    let started = listening.start_server(handle, &export, (&name, answers_from_disk), is_ending).await;
    let mut server = match started {
        // As a server that had begun to serve.
        Err(CliError::Ublk(UblkError::StartCancelled { .. })) => {
            service.log_early_end();
            return Ok(());
        }
        started => started?,
    };
    let (status_listener, _status_file) = status_socket.unzip();
    let stop_answers = Event::new();
    let answering = status_listener.map(|listener| {
        let view =
            View { handle: handle.clone(), stack: Rc::clone(stack), export, clients: server.clients() };
        let served = describe(arguments, &access, &view.export);
        let asked = handle.clone();
        let path = arguments.volume.clone();
        let stop = stop_answers.listen();
        handle.spawn(async move {
            let answer = async |request: &str| view.answer(&served, &path, request).await;
            answer_all(&asked, listener, answer, stop).await;
        })
    });
    let started = LogLine::new(Level::INFO, "started", format!("serving on {access}"));
    let stop = service.announce(handle, started)?.until_end();
    let ended = select_biased! {
        () = stop.fuse() => Ok(()),
        source = server.failed().fuse() => {
            Err(CliError::ListenerFailed { address: access.to_string(), source })
        }
    };
    shipping.into_iter().for_each(|shipping| shipping.begin_end(handle));
    let stopped = server.stop().await;
    // A volume that is being made larger cannot be closed.
    stop_answers.notify(usize::MAX);
    OptionFuture::from(answering).await;
    ended.and(stopped)
}

/// What a status is made of.
struct View {
    handle: Handle,
    stack: Rc<Stack>,
    export: Rc<Export>,
    clients: Clients,
}

impl View {
    /// The status, or what comes of a request.
    async fn answer(&self, served: &ServedStatus, path: &Path, request: &str) -> String {
        match VolumeCall::from_value(request.as_bytes()) {
            Some(call) => grow::answer_served(&self.stack, path, &call).await,
            None => self.status(served).await,
        }
    }

    async fn status(&self, served: &ServedStatus) -> String {
        let (clients, bytes) = (self.clients.count(), self.export.bytes());
        let served = ServedStatus { clients, bytes, ..served.clone() };
        status::of_served(&self.handle, &self.stack, self.export.requests_under_way(), served).await
    }
}

fn describe(arguments: &ServeArguments, access: &Access, export: &Export) -> ServedStatus {
    ServedStatus {
        address: access.to_string(),
        bytes: export.bytes(),
        sync: arguments.sync.name().to_owned(),
        answer: arguments.answer.name().to_owned(),
        read_only: arguments.read_only,
        clients: 0,
        clients_max: access.clients_max(),
    }
}
