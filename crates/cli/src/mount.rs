//! `weir mount`: a filesystem on a directory of the host. What is BarrierFS's own is here, what is F2FS's in [`mount_f2fs`].

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use clap::Args;
use tracing::Level;
use weir_fs::{AccessTimes, BarrierFs, Discards, MountOptions};
use weir_fuse::{
    Inherited, REQUEST_BYTES_UNDER_WAY_MAX, RemoteSync, Server, ServerError, ServerOptions, require_device,
};
use weir_lfs::{Cleaner, F2fs};
use weir_runtime::Handle;
use weir_stack::{Base, StackName};
use weir_vfs::{Filesystem, ReadOnlyReason};
use weir_volume::VolumeOptions;

use crate::cache::Opening;
use crate::closing::Closing;
use crate::error::CliError;
use crate::handover::{Handover, HandoverError, TakenOver};
use crate::helper;
use crate::journal_engine::JournalEngine;
use crate::journal_mode::JournalName;
use crate::log_line::LogLine;
use crate::memory::Limit;
use crate::moment::parse_moment;
use crate::replica::At;
use crate::replication::{ReplicationArguments, Shipping};
use crate::service::{self, Instructions, MountServiceArguments, Service};
use crate::size::Size;
use crate::stack::{Stack, describe};
use crate::successor::Successor;
use crate::sync_promise::SyncPromise;
use crate::{cache, handover, mount_f2fs, replica_mount, status, volume_calls};

/// Bytes of dirty data and of the journal that a moment writes at most: of a large volume that is the room that is kept for it.
const MOMENT_BYTES: u64 = 64 << 20;

/// How often a server checks whether its filesystem has failed.
const LOOKED_AT: Duration = Duration::from_secs(1);

/// Arguments of `weir mount`.
#[derive(Clone, Debug, Args)]
pub(crate) struct MountArguments {
    /// A volume or a filesystem image, in a file or on a block device; or, with --read-only or --cache, the URL of a replica, see
    /// docs/replicate.md; left out with --device
    #[arg(value_name = "IMAGE|VOLUME|DISK|URL", required_unless_present = "device")]
    path: Option<PathBuf>,
    /// The directory to mount on
    #[arg(value_name = "DIRECTORY")]
    mountpoint: Option<PathBuf>,
    /// Mount an emulated device with an empty filesystem, by name or by a profile that ends in .toml: weir mount
    /// --device NAME DIRECTORY. Its bytes are in memory, and are gone with the mount
    #[arg(long, value_name = "NAME|FILE", conflicts_with = "url")]
    device: Option<String>,
    /// With --device: its size [default: the device's own]
    #[arg(long, requires = "device")]
    size: Option<Size>,
    /// What fsync and its like promise
    #[arg(long, value_enum, default_value_t = SyncPromise::Durable)]
    pub(crate) sync: SyncPromise,
    /// On ext4: how the journal commits, see docs/mount.md [default: dual where the storage keeps barriers, otherwise jbd2]
    #[arg(long, value_enum, conflicts_with = "read_only")]
    engine: Option<JournalEngine>,
    /// On ext4: what the journal holds of file data, and how it brings blocks home, see docs/mount.md
    #[arg(long, value_enum, value_name = "MODE", default_value_t, conflicts_with = "read_only")]
    journal: JournalName,
    /// On ext4: log the bytes that have changed, and not whole blocks, see docs/mount.md. Until it is unmounted, or weir fsck --replay
    /// is run on it, no other program can replay the journal
    #[arg(long, conflicts_with = "read_only")]
    journal_coalition: bool,
    /// On ext4, with an engine dual or dual-list: fsync and fbarrier that find nothing to write commit all the same, as the paper
    /// has it, and do not only mark the end of an epoch. To compare
    #[arg(long, conflicts_with = "read_only")]
    forced_commits: bool,
    /// On F2FS: how its cleaner moves blocks, copy or share [default: share where the storage has the command]
    #[arg(long, value_name = "CLEANER", conflicts_with = "read_only")]
    cleaner: Option<Cleaner>,
    /// On ext4 on a volume: whatever a crash leaves is the whole tree as it was at one moment, so long ago at the most and a transfer,
    /// such as 100ms. What is written to an open file and not passed on by the kernel may be older, see docs/moments.md
    #[arg(long, value_name = "TIME", value_parser = parse_moment, conflicts_with_all = ["device", "read_only", "snapshot", "url", "cache"])]
    moment: Option<Duration>,
    /// Allow other users on the mount; the kernel checks their permissions
    #[arg(long)]
    allow_other: bool,
    /// Let the kernel keep what programs write, and hand it to the server later: many small writes become few. If there is no room
    /// for a write, close and fsync fail, not the write itself. Everything is passed on by close and fsync at the
    /// latest
    #[arg(long)]
    writeback_cache: bool,
    /// Have the kernel open and close files in its cache without requests to the server: two fewer for each file. What a program says of an
    /// open file then holds for its process, see docs/mount.md. Do not use it with atomic files
    #[arg(long, conflicts_with = "writeback_cache")]
    no_open_requests: bool,
    /// Give out no file handles, which NFS needs. An overlay (a container) with its lower and upper directories on this mount
    /// takes files for gone otherwise, see docs/users/unmodified.md
    #[arg(long)]
    no_file_handles: bool,
    /// Allow no changes. What a crash has left in the journal is replayed in memory, and rolled forward on F2FS
    #[arg(long, conflicts_with_all = ["device", "url"])]
    read_only: bool,
    /// Mount a snapshot, which is read-only, or a clone
    #[arg(long, value_name = "NAME", conflicts_with_all = ["device", "url"])]
    snapshot: Option<String>,
    /// With the URL of a replica: the state at a time, such as "2026-11-28 17:35:00" in UTC, or at a position
    /// [default: the newest]
    #[arg(long, value_name = "TIME|POSITION", conflicts_with_all = ["device", "snapshot", "url"])]
    at: Option<At>,
    /// Refuse to run programs that are on it
    #[arg(long)]
    no_exec: bool,
    /// Keep no access times
    #[arg(long, conflicts_with = "relatime")]
    noatime: bool,
    /// Update a file's access time if the file has changed since then, or if it is a day old, as ext4 does [default on ext4]
    #[arg(long)]
    relatime: bool,
    /// On ext4: discard the space of deleted files on the storage [default: on a volume]
    #[arg(long, conflicts_with = "read_only")]
    discard: bool,
    /// Do not discard the space of deleted files; fstrim does when it is run
    #[arg(long, conflicts_with = "discard")]
    no_discard: bool,
    /// On ext4: give the free space of a volume back to the host. Other files may take it then, and the volume may find its disk
    /// full later
    #[arg(long, conflicts_with_all = ["device", "read_only"])]
    discard_below: bool,
    /// On ext4: memory that the server takes at most, such as 256M [default: 1G; less, if the
    /// group of this process, such as a container, has a limit: three quarters of that]
    #[arg(long, value_name = "LIMIT")]
    memory: Option<Size>,
    /// Mount a copy that was made while the volume was mounted, as a crash would have left it
    #[arg(long, conflicts_with = "device")]
    after_crash: bool,
    /// Options of mount(8), which are refused here with a hint
    #[arg(short = 'o', value_name = "OPTIONS", hide = true)]
    options: Vec<String>,
    /// With the URL of a replica: mount its newest state to be changed, as the writer that the replica has from here on. What is
    /// written goes to this file, which is made if there is none, and to the URL; what was not written is read from there
    #[arg(long, value_name = "FILE", group = "shipped", conflicts_with_all = ["device", "read_only", "at", "snapshot"])]
    cache: Option<PathBuf>,
    #[command(flatten)]
    replication: ReplicationArguments,
    #[command(flatten)]
    service: MountServiceArguments,
    /// Go on with the mount that the server before hands over at standard input
    #[arg(long, hide = true)]
    take_over: bool,
    /// Only say whether this program could
    #[arg(long, hide = true)]
    check_take_over: bool,
}

impl MountArguments {
    fn discards(&self) -> Discards {
        match (self.discard, self.no_discard) {
            (true, _) => Discards::On,
            (_, true) => Discards::Off,
            _ => Discards::Auto,
        }
    }

    /// The options that only an ext4 filesystem has, those of them that were given.
    pub(crate) fn journal_options(&self) -> Vec<&'static str> {
        let given = [
            (self.engine.is_some(), "--engine"),
            (self.journal != JournalName::default(), "--journal"),
            (self.journal_coalition, "--journal-coalition"),
            (self.forced_commits, "--forced-commits"),
            (self.discard, "--discard"),
            (self.discard_below, "--discard-below"),
            (self.relatime, "--relatime"),
            (self.memory.is_some(), "--memory"),
            (self.moment.is_some(), "--moment"),
        ];
        given.into_iter().filter_map(|(given, name)| given.then_some(name)).collect()
    }

    /// How the cleaner of F2FS moves blocks, if that was given.
    pub(crate) fn cleaner(&self) -> Option<Cleaner> {
        self.cleaner
    }

    /// Whether nothing may be changed.
    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// What takes the server's place when it is restarted.
    pub(crate) fn successor(
        &self,
        places: (&Path, &Path),
        taken_over: Option<&Handover>,
        is_shipped: bool,
    ) -> Successor {
        let is_replica = |path: &PathBuf| replica_mount::url_of(path).is_some();
        let refusal = if self.device.is_some() {
            Some("an emulated device is in the memory of this server")
        } else if is_shipped || self.path.as_ref().is_some_and(is_replica) {
            Some(
                "it is connected to an object store, which may take long to answer: unmount it, and mount it again",
            )
        } else {
            None
        };
        Successor::new(places, &self.service, taken_over, refusal)
    }

    /// A replica is mounted to be read, and has no snapshots.
    fn require_read_only(&self) -> Result<(), CliError> {
        if self.snapshot.is_some() {
            return Err(CliError::Usage(
                "--snapshot names a snapshot of a volume in a file: restore the replica first",
            ));
        }
        if !self.read_only {
            return Err(CliError::Usage(
                "a replica is mounted by --read-only; or to be changed, with a file for what is written: --cache FILE",
            ));
        }
        Ok(())
    }

    /// What the server of the mount is told.
    pub(crate) fn server_options(
        &self,
        source: &Path,
        request_bytes_max: u64,
        store: Option<RemoteSync>,
    ) -> ServerOptions {
        ServerOptions {
            // `mount` and `df` take a path that does not begin at the root for one from their own directory.
            name: source.canonicalize().as_deref().unwrap_or(source).display().to_string(),
            allow_other: self.allow_other,
            read_only: self.read_only,
            no_exec: self.no_exec,
            access_times: !self.noatime,
            writeback_cache: self.writeback_cache,
            open_requests: !self.no_open_requests,
            file_handles: !self.no_file_handles,
            awake: self.service.awake(),
            request_bytes_max,
            sync: self.sync.into(),
            store,
        }
    }
}

/// Runs `weir mount`.
pub(crate) fn run(arguments: &MountArguments) -> Result<(), CliError> {
    if !arguments.check_take_over {
        arguments.service.log_format().set();
    }
    if !arguments.options.is_empty() {
        return Err(options_of_mount(&arguments.options.join(",")));
    }
    if arguments.take_over || arguments.check_take_over {
        return go_on(arguments);
    }
    let (source, mountpoint) = match (&arguments.device, &arguments.path, &arguments.mountpoint) {
        (None, Some(image), Some(mountpoint)) => (image.clone(), mountpoint),
        // There is no image, so the first argument is the directory.
        (Some(device), Some(mountpoint), None) => (PathBuf::from(device), mountpoint),
        (None, ..) => return Err(CliError::Usage("name the directory to mount on, behind the image")),
        (Some(_), None, _) => return Err(CliError::Usage("name the directory to mount on")),
        (Some(_), _, Some(_)) => {
            return Err(CliError::Usage("with --device there is no image: leave it out"));
        }
    };
    service::run_mount(&arguments.service, mountpoint, async |handle, service| {
        serve(handle, arguments, service, &source, mountpoint).await
    })
}

/// Goes on with what the server before hands over, or says whether that could be done.
fn go_on(arguments: &MountArguments) -> Result<(), CliError> {
    let (handover, device) = handover::receive().map_err(CliError::Handover)?;
    let service = arguments.service.clone().within(&handover.directory);
    let arguments = MountArguments { service, ..arguments.clone() };
    if arguments.check_take_over {
        arguments.service.check_log()?;
        let options = arguments.server_options(&handover.source, REQUEST_BYTES_UNDER_WAY_MAX, None);
        let (path, checked) = (handover.mountpoint, handover.mount.check(&options));
        return checked.map_err(|source| CliError::Server(ServerError::TakeOver { path, source }));
    }
    let device = device.ok_or(CliError::Handover(HandoverError::Nothing))?;
    let (source, mountpoint) = (handover.source.clone(), handover.mountpoint.clone());
    service::run_taken_over(&arguments.service, TakenOver { handover, device }, async |handle, service| {
        serve(handle, &arguments, service, &source, &mountpoint).await
    })
}

/// The hint for options of `mount` and fstab: the flags that stand for them here.
fn options_of_mount(given: &str) -> CliError {
    let instead = match helper::mount_arguments(given.split(','), false) {
        Ok(flags) if flags.is_empty() => "write nothing".to_owned(),
        Ok(flags) => format!("write `{}`", flags.join(" ")),
        Err(refused) => format!("see `weir mount --help`: {refused}"),
    };
    CliError::MountOptions { given: given.to_owned(), instead }
}

async fn serve(
    handle: Handle,
    arguments: &MountArguments,
    service: Service,
    source: &Path,
    mountpoint: &Path,
) -> Result<(), CliError> {
    if arguments.moment.is_some() && arguments.replication.is_given() {
        return Err(CliError::Usage(
            "--replicate ships each request, so --moment does not hold in the store",
        ));
    }
    let limit = Limit::from_option(arguments.memory);
    let mut arguments = arguments.clone();
    let volume = VolumeOptions {
        discard_below: arguments.discard_below,
        after_crash: arguments.after_crash,
        marks: arguments.moment.map(|_| MOMENT_BYTES),
        ..limit.apply_to_volume(VolumeOptions::default())
    };
    let stops = arguments.sync.waits_for_store();
    let mut shipping = None;
    let stack = match (&arguments.device, replica_mount::url_of(source)) {
        (Some(name), _) => {
            let name = StackName { volume: false, base: Base::Device(name.clone()) };
            let spec = describe(&handle, &name, arguments.size, false)?;
            let stack = Stack::make(&handle, &spec).await?;
            stack.make_filesystem(&handle, source).await?;
            stack
        }
        (None, None) if arguments.cache.is_some() => {
            return Err(CliError::Usage("--cache is for a replica: name its URL in the place of the image"));
        }
        (None, Some(url)) => match &arguments.cache {
            Some(file) => {
                let shipped = &arguments.replication;
                let (handle, path) = (&handle, file.as_path());
                let opening = Opening { handle, url, path, arguments: shipped, limit, stops, volume };
                let try_out = async |stack| try_out(handle, &arguments, path, stack).await;
                let opened = cache::open(opening, try_out).await?;
                shipping = Some(opened.1);
                opened.0
            }
            None => {
                arguments.require_read_only()?;
                replica_mount::open(&handle, url, arguments.at, arguments.replication.read(), limit).await?
            }
        },
        (None, None) if arguments.at.is_some() => {
            return Err(CliError::Usage("--at chooses a state of a replica: name its URL"));
        }
        (None, None) => match &arguments.snapshot {
            Some(name) => {
                let read_only = arguments.read_only;
                let opened = Stack::open_branch(&handle, source, name, read_only, volume).await?;
                arguments.read_only = opened.1;
                opened.0
            }
            None => Stack::open_with(&handle, source, arguments.read_only, volume).await?,
        },
    };
    let stack = Rc::new(stack);
    let begun = (Rc::clone(&stack), shipping);
    let served = serve_opened(handle, &arguments, service, (source, mountpoint), begun).await;
    if served.is_err() && !stack.is_served() {
        // It was not mounted, so it is left as it was found, and not as by a crash. What is told is why it was not.
        let _ = stack.close(arguments.cache.as_deref().unwrap_or(source)).await;
    }
    served
}

/// Mounts what was opened, which is shipped with a cache already, and serves it.
async fn serve_opened(
    handle: Handle,
    arguments: &MountArguments,
    mut service: Service,
    (source, mountpoint): (&Path, &Path),
    (stack, mut shipping): (Rc<Stack>, Option<Shipping>),
) -> Result<(), CliError> {
    let stops = arguments.sync.waits_for_store();
    arguments.sync.require_store(arguments.replication.is_given() || arguments.cache.is_some())?;
    if shipping.is_none() {
        let beginning = arguments.replication.begin(&handle, stack.volume(), stops);
        match service.unless_ended(&handle, beginning).await.transpose()? {
            Some(begun) => shipping = begun,
            None => return Ok(()),
        }
    }
    // What lies here is the file.
    let source = arguments.cache.as_deref().unwrap_or(source);
    if let Some(shipping) = &shipping {
        stack.set_shipping(&handle, shipping, stops);
    }
    let served = serve_filesystem(handle, arguments, service, (source, mountpoint), stack, shipping);
    served.await
}

/// Mounts the filesystem on a stack; and the bytes that requests may take.
async fn mount_ext4(
    handle: &Handle,
    arguments: &MountArguments,
    source: &Path,
    stack: &Stack,
) -> Result<(BarrierFs, u64), CliError> {
    if arguments.cleaner.is_some() {
        return Err(CliError::Usage("only F2FS has a cleaner: leave --cleaner out"));
    }
    let engine = arguments.engine.map(|engine| engine.engine_on(&*stack.storage())).transpose()?;
    let (mode, checkpoint) = arguments.journal.options();
    let options = MountOptions {
        engine,
        mode,
        checkpoint,
        coalition: arguments.journal_coalition,
        forces_commits: arguments.forced_commits,
        read_only: arguments.read_only,
        discard: arguments.discards(),
        access_times: if arguments.noatime { AccessTimes::Never } else { AccessTimes::Relative },
        moments: arguments.moment,
        keeps_orphans: arguments.take_over,
        ..MountOptions::default()
    };
    let (options, request_bytes_max) = Limit::from_option(arguments.memory).apply(stack, options)?;
    Ok((stack.filesystem(handle, source, options).await?, request_bytes_max))
}

/// Mounts what is on a stack, and ends that: what can be refused is refused here.
async fn try_out(
    handle: &Handle,
    arguments: &MountArguments,
    source: &Path,
    stack: Stack,
) -> Result<(), CliError> {
    require_device()?;
    let filesystem: Filesystem = match F2fs::is_on(&stack.storage()).await {
        true => mount_f2fs::mount(handle, arguments, source, &stack).await?.into(),
        false => mount_ext4(handle, arguments, source, &stack).await?.0.into(),
    };
    let unmounted = filesystem.unmount().await;
    unmounted.map_err(|error| CliError::Image { path: source.to_owned(), source: error })?;
    stack.close(source).await
}

/// The server of a mount; where the kernel refused that, the filesystem is unmounted.
pub(crate) async fn require_mounted(
    mounted: Result<Server, ServerError>,
    filesystem: &Filesystem,
) -> Result<Server, CliError> {
    if mounted.is_err() {
        // What is told is why it was refused.
        let _ = filesystem.unmount().await;
    }
    Ok(mounted?)
}

async fn serve_filesystem(
    handle: Handle,
    arguments: &MountArguments,
    mut service: Service,
    (source, mountpoint): (&Path, &Path),
    stack: Rc<Stack>,
    shipping: Option<Shipping>,
) -> Result<(), CliError> {
    if F2fs::is_on(&stack.storage()).await {
        return mount_f2fs::serve(handle, arguments, service, (source, mountpoint), (stack, shipping)).await;
    }
    let (filesystem, request_bytes_max) = mount_ext4(&handle, arguments, source, &stack).await?;
    let engine = filesystem.statistics().engine;
    let store = shipping.as_ref().and_then(|shipping| shipping.remote_sync(stack.volume()));
    let options = arguments.server_options(source, request_bytes_max, store);
    let (taken_over, inherited) = match service.taken_over.take() {
        Some(TakenOver { mut handover, device }) => {
            let state = std::mem::take(&mut handover.mount);
            (Some(handover), Some(Inherited { device, state }))
        }
        None => (None, None),
    };
    let successor = arguments.successor((source, mountpoint), taken_over.as_ref(), shipping.is_some());
    let status = {
        let (handle, stack, filesystem) = (handle.clone(), Rc::clone(&stack), filesystem.clone());
        let promises = (arguments.sync, options.writeback_cache);
        let (by_mounting, restarts) = (status::flushes(&filesystem), successor.restarts());
        async move |load, files| {
            let since = (by_mounting, restarts.borrow().clone());
            status::of_filesystem(&handle, &stack, &filesystem, promises, (load, files), since).await
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
    let filesystem = Filesystem::from(filesystem);
    let change_volume =
        volume_calls::serving(Rc::clone(&stack), filesystem.clone(), Limit::from_option(arguments.memory));
    let at = (mountpoint, inherited);
    let server = Server::mount(&handle, filesystem.clone(), at, &options, status, trim, change_volume).await;
    let server = require_mounted(server, &filesystem).await?;
    if engine.is_some_and(|engine| !engine.facts().flushes) {
        let message = "--engine jbd2-nobarrier: on this mount fsync only orders, and what it covers is durable later. Writes \
                       for which fsync has returned may be lost in a crash, newest first.";
        LogLine::new(Level::WARN, "fsync_only_orders", message).print();
    }
    let mounted = (filesystem, server, successor);
    serve_until_unmounted(handle, arguments, service, (source, &stack), mounted, shipping).await
}

/// Serves a mount until it is unmounted, and closes what is below it, also after an error.
pub(crate) async fn serve_until_unmounted(
    handle: Handle,
    arguments: &MountArguments,
    service: Service,
    (source, stack): (&Path, &Stack),
    (filesystem, server, successor): (Filesystem, Server, Successor),
    shipping: Option<Shipping>,
) -> Result<(), CliError> {
    drop(handle.spawn(tell_of_failure(handle.clone(), filesystem.clone(), source.to_owned())));
    if arguments.sync == SyncPromise::Order {
        let message = "--sync order: on this mount fsync only orders. Writes for which fsync has returned may be lost in a \
                       crash, newest first.";
        LogLine::new(Level::WARN, "fsync_only_orders", message).print();
    }
    stack.warn_of_readers(&handle, source).await;
    stack.begin_serving();
    stack.tell_of_unused().await;
    if let Some(shipping) = &shipping {
        shipping.begin_serving();
        server.set_sync_hook(shipping.release_writers_hook(&handle));
    }
    let begin_end = || shipping.iter().for_each(|shipping| shipping.begin_end(&handle));
    let closing = Closing::new(&filesystem, stack, source);
    let restart = async |server: &Server, instructions: &mut Instructions| {
        successor.take_place(&handle, server, instructions, &closing).await
    };
    let served = service.until_unmounted(&handle, server, restart, begin_end).await;
    let closed = closing.close_at_end(shipping).await;
    served.and(closed)
}

/// Says on standard error when the filesystem takes no changes any more, although no user asked for that.
async fn tell_of_failure(handle: Handle, filesystem: Filesystem, source: PathBuf) {
    loop {
        handle.sleep(LOOKED_AT).await;
        match filesystem.read_only() {
            None => {}
            Some(ReadOnlyReason::Mounted | ReadOnlyReason::Unmounted) => return,
            Some(reason) => {
                let message = format!(
                    "{}: it takes no changes any more: {reason}. What was durable is safe; no further write is acknowledged.",
                    source.display()
                );
                return LogLine::new(Level::ERROR, "filesystem_failed", message)
                    .with_path(&source)
                    .with("reason", reason.to_string())
                    .print();
            }
        }
    }
}
