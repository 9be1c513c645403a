//! `weir mount`: BarrierFS on a directory of the host.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use weir_flash::Profile;
use weir_fs::{AccessTimes, Discards, Filesystem, MountOptions, ReadOnlyReason};
use weir_fuse::{Server, ServerOptions, SyncMode};
use weir_runtime::Handle;
use weir_volume::VolumeOptions;

use crate::error::CliError;
use crate::service::{self, Service, ServiceArguments};
use crate::size::Size;
use crate::stack::Stack;
use crate::status;

/// How often a server looks whether its filesystem has failed: whoever reads its log is no faster.
const LOOKED_AT: Duration = Duration::from_secs(1);

/// Arguments of `weir mount`.
#[derive(Debug, Args)]
pub(crate) struct MountArguments {
    /// A volume or a filesystem image, in a file or on a block device; left out with --device
    #[arg(value_name = "IMAGE|VOLUME|DISK", required_unless_present = "device")]
    path: Option<PathBuf>,
    /// The directory to mount on
    #[arg(value_name = "DIRECTORY")]
    mountpoint: Option<PathBuf>,
    /// Mount an emulated device with an empty filesystem, by name or by a profile that ends in .toml. Its bytes
    /// lie in memory, and are gone with the mount
    #[arg(long, value_name = "NAME|FILE")]
    device: Option<String>,
    /// With --device: its size [default: the device's own]
    #[arg(long, requires = "device")]
    size: Option<Size>,
    /// What fsync and its like promise
    #[arg(long, value_enum, default_value_t = Sync::Durable)]
    sync: Sync,
    /// Let other users in; the kernel checks their permissions
    #[arg(long)]
    allow_other: bool,
    /// Let the kernel keep what programs write, and hand it over later: many small writes become few, and a write that finds
    /// no room is told by close and fsync, not by the write. What was closed or synchronised is with Weir as without it
    #[arg(long)]
    writeback_cache: bool,
    /// Take no changes
    #[arg(long, conflicts_with = "device")]
    read_only: bool,
    /// Let nobody run programs that lie on it
    #[arg(long)]
    no_exec: bool,
    /// Keep no times of access
    #[arg(long, conflicts_with = "relatime")]
    noatime: bool,
    /// Keep a file's time of access if the file has changed since the last, or if that is a day old, as ext4 does
    /// [default]
    #[arg(long)]
    relatime: bool,
    /// Tell the storage of space that files have left, wherever it can take that [default: on a volume, where nothing
    /// else would ever use that space again]
    #[arg(long, conflicts_with = "read_only")]
    discard: bool,
    /// Never tell the storage of it: fstrim does, when it is run
    #[arg(long, conflicts_with = "discard")]
    no_discard: bool,
    /// A volume discards what is free on the disk below: its file becomes sparse, and what was reserved for it may be
    /// taken by others, so that it may find its disk full later
    #[arg(long, conflicts_with_all = ["device", "read_only"])]
    discard_below: bool,
    #[command(flatten)]
    service: ServiceArguments,
}

/// What `fsync` promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sync {
    /// When it returns, it is durable
    Durable,
    /// It only orders: nothing is durable when it returns, and the newest writes may be lost in a crash
    Order,
}

impl MountArguments {
    fn discards(&self) -> Discards {
        match (self.discard, self.no_discard) {
            (true, _) => Discards::On,
            (_, true) => Discards::Off,
            _ => Discards::Auto,
        }
    }
}

/// Runs `weir mount`.
pub(crate) fn run(arguments: &MountArguments) -> Result<(), CliError> {
    let (source, mountpoint) = match (&arguments.device, &arguments.path, &arguments.mountpoint) {
        (None, Some(image), Some(mountpoint)) => (image.clone(), mountpoint),
        // There is no image, so what comes first is the directory.
        (Some(device), Some(mountpoint), None) => (PathBuf::from(device), mountpoint),
        (None, ..) => return Err(CliError::Usage("name the directory to mount on, behind the image")),
        (Some(_), None, _) => return Err(CliError::Usage("name the directory to mount on")),
        (Some(_), _, Some(_)) => {
            return Err(CliError::Usage("with --device there is no image: leave it out"));
        }
    };
    if arguments.sync == Sync::Order && !arguments.service.is_detached() {
        eprintln!(
            "weir: --sync order: on this mount fsync only orders. What programs were told is safe may be lost in a \
             crash, newest first."
        );
    }
    service::run(&arguments.service, mountpoint, async |handle, service| {
        serve(handle, arguments, service, &source, mountpoint).await
    })
}

async fn serve(
    handle: Handle,
    arguments: &MountArguments,
    service: Service<'_>,
    source: &Path,
    mountpoint: &Path,
) -> Result<(), CliError> {
    let stack = match &arguments.device {
        Some(name) => {
            let stack = Stack::emulate(&handle, &Profile::load(name)?.0, arguments.size);
            stack.make_filesystem(&handle, source).await?;
            stack
        }
        None => {
            let volume = VolumeOptions { discard_below: arguments.discard_below, ..VolumeOptions::default() };
            Stack::open_with(&handle, source, arguments.read_only, volume).await?
        }
    };
    let stack = Rc::new(stack);
    let options = MountOptions {
        read_only: arguments.read_only,
        discard: arguments.discards(),
        access_times: if arguments.noatime { AccessTimes::Never } else { AccessTimes::Relative },
        ..MountOptions::default()
    };
    let filesystem = stack.filesystem(&handle, source, options).await?;
    let options = ServerOptions {
        // `mount` and `df` take what is no path from the root for one from where they are.
        name: source.canonicalize().as_deref().unwrap_or(source).display().to_string(),
        allow_other: arguments.allow_other,
        read_only: arguments.read_only,
        no_exec: arguments.no_exec,
        access_times: !arguments.noatime,
        writeback_cache: arguments.writeback_cache,
        awake: arguments.service.awake(),
        sync: match arguments.sync {
            Sync::Durable => SyncMode::Durable,
            Sync::Order => SyncMode::Order,
        },
    };
    let status = {
        let (handle, stack, filesystem) = (handle.clone(), Rc::clone(&stack), filesystem.clone());
        let promises = (options.sync, options.writeback_cache);
        let by_mounting = status::flushes(&filesystem);
        move |load, files| {
            status::of_filesystem(&handle, &stack, &filesystem, promises, (load, files), by_mounting)
        }
    };
    let trim = {
        let (stack, filesystem, below) = (Rc::clone(&stack), filesystem.clone(), arguments.discard_below);
        async move |range, minimum| {
            let trimmed = filesystem.trim(range, minimum).await?;
            if below {
                stack.trim_below().await?;
            }
            Ok(trimmed)
        }
    };
    drop(handle.spawn(tell_of_failure(handle.clone(), filesystem.clone(), source.to_owned())));
    let server = Server::mount(&handle, filesystem.clone(), mountpoint, &options, status, trim).await?;
    stack.warn_of_readers(source);
    service.until_unmounted(&handle, server).await?;
    let unmounted = filesystem.unmount().await;
    unmounted.map_err(|error| CliError::Image { path: source.to_owned(), source: error })?;
    stack.close(source).await
}

/// Says on standard error when the filesystem takes no changes any more, though nobody asked for that.
async fn tell_of_failure(handle: Handle, filesystem: Filesystem, source: PathBuf) {
    loop {
        handle.sleep(LOOKED_AT).await;
        match filesystem.read_only() {
            None => {}
            Some(ReadOnlyReason::Mounted | ReadOnlyReason::Unmounted) => return,
            Some(reason) => {
                eprintln!(
                    "weir: {}: it takes no changes any more: {reason}. What was durable is safe, and nothing more is \
                     acknowledged.",
                    source.display()
                );
                return;
            }
        }
    }
}
