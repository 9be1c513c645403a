//! `weir mount` and `weir status`: BarrierFS on a directory of the host, and what it is doing.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use clap::{Args, ValueEnum};
use rustix::buffer::spare_capacity;
use serde_json::{Value, json};
use weir_flash::Profile;
use weir_fs::Filesystem;
use weir_fuse::control::STATUS_ATTRIBUTE;
use weir_fuse::{Server, ServerOptions, SyncMode};
use weir_runtime::Handle;

use crate::error::CliError;
use crate::print;
use crate::service::{self, Service, ServiceArguments};
use crate::size::Size;
use crate::stack::Stack;

/// Bytes of a status at most.
const STATUS_MAX: usize = 1 << 16;

/// Arguments of `weir mount`.
#[derive(Debug, Args)]
pub(crate) struct MountArguments {
    /// A volume or a filesystem image, in a file or on a block device; left out with --device
    #[arg(value_name = "IMAGE|VOLUME|DISK")]
    path: PathBuf,
    /// The directory to mount on
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
    /// Take no changes
    #[arg(long, conflicts_with = "device")]
    read_only: bool,
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

/// Arguments of `weir status`.
#[derive(Debug, Args)]
pub(crate) struct StatusArguments {
    /// The directory that a filesystem is mounted on, or anything in it
    mountpoint: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Runs `weir mount`.
pub(crate) fn run(arguments: &MountArguments) -> Result<(), CliError> {
    let (source, mountpoint) = match (&arguments.device, &arguments.mountpoint) {
        (None, Some(mountpoint)) => (arguments.path.clone(), mountpoint),
        (Some(device), None) => (PathBuf::from(device), &arguments.path),
        (None, None) => return Err(CliError::Usage("name the directory to mount on, behind the image")),
        (Some(_), Some(_)) => return Err(CliError::Usage("with --device there is no image: leave it out")),
    };
    if arguments.sync == Sync::Order {
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
        None => Stack::open(&handle, source, arguments.read_only).await?,
    };
    let stack = Rc::new(stack);
    let filesystem = stack.filesystem(&handle, source, arguments.read_only).await?;
    let options = ServerOptions {
        name: source.display().to_string(),
        allow_other: arguments.allow_other,
        read_only: arguments.read_only,
        sync: match arguments.sync {
            Sync::Durable => SyncMode::Durable,
            Sync::Order => SyncMode::Order,
        },
    };
    let status = {
        let (stack, filesystem, sync) = (Rc::clone(&stack), filesystem.clone(), options.sync);
        move || status(&stack, &filesystem, sync).to_string()
    };
    let server = Server::mount(&handle, filesystem.clone(), mountpoint, &options, status).await?;
    service.until_unmounted(&handle, server).await?;
    let unmounted = filesystem.unmount().await;
    unmounted.map_err(|error| CliError::Image { path: source.to_owned(), source: error })?;
    stack.close(source).await
}

fn status(stack: &Stack, filesystem: &Filesystem, sync: SyncMode) -> Value {
    let found = filesystem.statistics();
    json!({
        "sync": if sync == SyncMode::Order { "order" } else { "durable" },
        "engine": found.engine.map(|engine| format!("{engine:?}").to_lowercase()),
        "read_only": filesystem.read_only().map(|reason| reason.to_string()),
        "commits": found.journal.commits,
        "checkpoints": found.journal.checkpoints,
        "log_blocks_used": found.journal.log_blocks_used,
        "waits_for_transfer": found.waits.transfers,
        "flushes": found.waits.flushes + found.waits.durable_commits,
        "pages": found.pages,
        "pages_dirty": found.pages_dirty,
        "storage": stack.status(),
    })
}

/// Runs `weir status`.
pub(crate) fn tell(arguments: &StatusArguments) -> Result<(), CliError> {
    let path = &arguments.mountpoint;
    let mut value = Vec::with_capacity(STATUS_MAX);
    rustix::fs::getxattr(path, STATUS_ATTRIBUTE, spare_capacity(&mut value))
        .map_err(|_| CliError::NotMounted { path: path.clone() })?;
    let failed = |error| CliError::File { doing: "read the status of", path: path.clone(), source: error };
    let mut status: Value = serde_json::from_slice(&value).map_err(|error| failed(error.into()))?;
    let space = rustix::fs::statvfs(path).map_err(|error| failed(error.into()))?;
    status["block_bytes"] = space.f_frsize.into();
    status["blocks"] = space.f_blocks.into();
    status["blocks_free"] = space.f_bfree.into();
    if arguments.json {
        return print(&status.to_string());
    }
    print(&lines(&status, "").join("\n"))
}

/// One line a value.
fn lines(value: &Value, before: &str) -> Vec<String> {
    let Some(object) = value.as_object() else { return vec![format!("{before:<24} {value}")] };
    object
        .iter()
        .flat_map(|(name, value)| lines(value, format!("{before} {}", name.replace('_', " ")).trim_start()))
        .collect()
}
