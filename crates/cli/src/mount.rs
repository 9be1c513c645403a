//! `weir mount` and `weir status`: BarrierFS on a directory of the host, and what it is doing.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;

use clap::{Args, ValueEnum};
use futures_util::{FutureExt as _, select_biased};
use rustix::buffer::spare_capacity;
use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use weir_flash::Profile;
use weir_fs::Filesystem;
use weir_fuse::control::STATUS_ATTRIBUTE;
use weir_fuse::{Server, ServerOptions, SyncMode};
use weir_runtime::Handle;

use crate::error::CliError;
use crate::size::Size;
use crate::stack::Stack;
use crate::{in_wall_time, print};

/// What a mount in the background says when programs may use it.
const READY: &str = "mounted";
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
    /// Stay in the foreground until it is unmounted
    #[arg(long, short)]
    foreground: bool,
    /// Say on standard output that it is mounted, then let go of the terminal
    #[arg(long, hide = true, requires = "foreground")]
    detach: bool,
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
    require_directory(mountpoint)?;
    if arguments.sync == Sync::Order {
        eprintln!(
            "weir: --sync order: on this mount fsync only orders. What programs were told is safe may be lost in a \
             crash, newest first."
        );
    }
    if arguments.foreground {
        return in_wall_time(0, async |handle: Handle| serve(handle, arguments, &source, mountpoint).await);
    }
    in_background(mountpoint)
}

/// Starts this program anew, in the foreground of nobody, and waits until it has mounted or failed.
fn in_background(mountpoint: &Path) -> Result<(), CliError> {
    let failed =
        |source| CliError::File { doing: "mount in the background on", path: mountpoint.to_owned(), source };
    let mut arguments: Vec<_> = std::env::args_os().skip(1).collect();
    // What follows "--" is no option.
    arguments.splice(1..1, ["--foreground".into(), "--detach".into()]);
    let mut child = Command::new("/proc/self/exe")
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output).read_line(&mut line).map_err(failed)?;
    }
    if line.trim_end() == READY {
        return Ok(());
    }
    // It has said on standard error why.
    child.wait().map_err(failed)?;
    Err(CliError::Silent)
}

fn require_directory(mountpoint: &Path) -> Result<(), CliError> {
    let failed = |source| CliError::File { doing: "mount on", path: mountpoint.to_owned(), source };
    std::fs::read_dir(mountpoint).map(drop).map_err(failed)
}

async fn serve(
    handle: Handle,
    arguments: &MountArguments,
    source: &Path,
    mountpoint: &Path,
) -> Result<(), CliError> {
    // Before anything is mounted, so that no signal ends the program between.
    let signals = Signals::new([SIGTERM, SIGINT]);
    let mut signals = signals.map_err(|error| CliError::File {
        doing: "wait for signals to",
        path: mountpoint.to_owned(),
        source: error,
    })?;
    let stack = match &arguments.device {
        Some(name) => Stack::emulate(&handle, &Profile::load(name)?.0, arguments.size).await?,
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
    let mut server = Server::mount(&handle, filesystem.clone(), mountpoint, &options, status).await?;
    if arguments.detach {
        detach()?;
    } else {
        eprintln!("weir: {} is mounted on {}", source.display(), mountpoint.display());
    }
    let stop = handle.blocking(move || signals.forever().next());
    select_biased! {
        ended = server.ended().fuse() => ended?,
        _ = stop.fuse() => server.unmount()?,
    }
    let unmounted = filesystem.unmount().await;
    unmounted.map_err(|error| CliError::Image { path: source.to_owned(), source: error })?;
    stack.close(source).await
}

/// Says that it is mounted, and lets go of the terminal.
fn detach() -> Result<(), CliError> {
    print(READY)?;
    // A session of its own; it fails for who has one already.
    let _ = rustix::process::setsid();
    let null = File::options().read(true).write(true).open("/dev/null").map(OwnedFd::from);
    if let Ok(null) = null {
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
    }
    Ok(())
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
