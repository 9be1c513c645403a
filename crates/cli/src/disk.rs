//! `weir disk`: a volume or an emulated device as one file, to put a loop device on.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use clap::Args;
use weir_flash::Profile;
use weir_fuse::{DISK_NAME, Server, ServerOptions, SyncMode};
use weir_runtime::Handle;

use crate::error::CliError;
use crate::service::{self, Service, ServiceArguments};
use crate::size::Size;
use crate::stack::Stack;
use crate::status;

/// Arguments of `weir disk`.
#[derive(Debug, Args)]
#[group(id = "ground", required = true, args = ["device", "volume"])]
pub(crate) struct DiskArguments {
    /// The directory in which the file `disk` appears
    mountpoint: PathBuf,
    /// An emulated device, by name or by a profile that ends in .toml. Its bytes lie in memory, and are gone with
    /// the mount
    #[arg(long, value_name = "NAME|FILE")]
    device: Option<String>,
    /// With --device: its size [default: the device's own]
    #[arg(long, requires = "device")]
    size: Option<Size>,
    /// A volume, in a file or on a block device
    #[arg(long, value_name = "PATH")]
    volume: Option<PathBuf>,
    #[command(flatten)]
    service: ServiceArguments,
}

/// Runs the command.
pub(crate) fn run(arguments: &DiskArguments) -> Result<(), CliError> {
    let mountpoint = &arguments.mountpoint;
    service::run(&arguments.service, mountpoint, async |handle, service| {
        serve(handle, arguments, service).await
    })?;
    if !arguments.service.is_foreground() {
        eprintln!(
            "weir: the disk is {}; losetup --find --show --direct-io=on {} makes a block device of it",
            mountpoint.join(DISK_NAME).display(),
            mountpoint.join(DISK_NAME).display()
        );
    }
    Ok(())
}

async fn serve(handle: Handle, arguments: &DiskArguments, service: Service<'_>) -> Result<(), CliError> {
    let (stack, name) = match (&arguments.device, &arguments.volume) {
        (Some(name), _) => {
            (Stack::emulate(&handle, &Profile::load(name)?.0, arguments.size), PathBuf::from(name))
        }
        (None, Some(path)) => (Stack::open_volume(&handle, path).await?, path.clone()),
        (None, None) => return Err(CliError::Usage("name a device or a volume")),
    };
    let options = ServerOptions {
        name: name.display().to_string(),
        allow_other: false,
        read_only: false,
        sync: SyncMode::Durable,
    };
    let stack = Rc::new(stack);
    let status = {
        let (handle, stack) = (handle.clone(), Rc::clone(&stack));
        move |load| status::of_disk(&handle, &stack, load)
    };
    let server =
        Server::mount_disk(&handle, stack.storage(), &arguments.mountpoint, &options, status).await?;
    service.until_unmounted(&handle, server).await?;
    let flushed = weir_storage::flush(&*stack.storage()).await;
    flushed.map_err(|error| CliError::Image { path: name.clone(), source: error.into() })?;
    stack.close(Path::new(&name)).await
}
