//! A mount, from the mounting to the end of its session.

use std::any::Any;
use std::cell::OnceCell;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fuser::{Config, InitFlags, KernelConfig, MountOption, Request, Session, SessionACL};
use futures_util::future::LocalBoxFuture;
use thiserror::Error;
use tracing::{info, warn};
use weir_runtime::{Handle, Task};
use weir_storage::{Rules, Storage};
use weir_vfs::{Filesystem, FsError};

use crate::attachment::{Attachment, MountEnd, read_device_number};
use crate::busy_cpu::BusyCpuGuard;
use crate::calls::{Calls, FileCounts, Hooks, Status, SyncHook, Trim};
use crate::connection::Connection;
use crate::control::SyncMode;
use crate::disk::Disk;
use crate::files::Files;
use crate::gate::Gate;
use crate::handover::{HandoverError, Inherited, MountState};
use crate::intake::Intake;
use crate::kernel::KernelCache;
use crate::notice_threads::NoticeThreads;
use crate::notifier::Notifier;
use crate::protocol::{OLDEST_MINOR, OLDEST_WRITEBACK_MINOR, TRANSFER_BYTES};
use crate::read_ahead::{READ_BYTES, set_read_ahead};
use crate::remote_sync::RemoteSync;
use crate::serve::{Load, Service, SharedLoad, serve};
use crate::volume_call::{VolumeCall, VolumeCalls};

/// Requests that the kernel sends without waiting for their answers: asynchronous reads, and direct I/O.
const BACKGROUND: u16 = 256;

/// How a filesystem is mounted.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// What `mount` and `df` show as its source.
    pub name: String,
    /// Whether users other than the one who mounts may use it. The kernel checks permissions in either case.
    pub allow_other: bool,
    /// Whether the kernel refuses changes.
    pub read_only: bool,
    /// Whether the kernel refuses to run programs that lie on it.
    pub no_exec: bool,
    /// Whether times of access are kept, as `mount` shows it; it is the filesystem that keeps them.
    pub access_times: bool,
    /// What `fsync` promises.
    pub sync: SyncMode,
    /// The object store that the volume is shipped to: `fsync` of files waits for it of which that was said.
    pub store: Option<RemoteSync>,
    /// Whether the kernel keeps what programs write, and hands it over later. It has no say for
    /// [`Server::mount_disk`].
    pub writeback_cache: bool,
    /// Whether the kernel tells of each open and close of a file, which takes two requests more a file. It always does with
    /// `writeback_cache`. It has no say for [`Server::mount_disk`].
    pub open_requests: bool,
    /// Whether file handles stand for what the kernel has forgotten, too. Without them an overlay can have both its layers
    /// on it: the kernel takes a file for gone that it has found by a handle, once it looks at its name again
    /// (`fuse_get_dentry` leaves a dentry that `fuse_dentry_revalidate` refuses: its epoch is 0, that of the mount 1).
    pub file_handles: bool,
    /// Whether processors are kept awake while it is in use: see [`weir_runtime::CpuLatencyGuard`].
    pub awake: bool,
    /// Bytes that requests, their answers and what is read ahead for them take together; from so many on the next waits
    /// with the kernel. [`REQUEST_BYTES_UNDER_WAY_MAX`](crate::REQUEST_BYTES_UNDER_WAY_MAX), or less.
    pub request_bytes_max: u64,
}

/// Why a filesystem could not be mounted, or its session ended.
#[derive(Debug, Error)]
pub enum ServerError {
    /// There is no `/dev/fuse`, or it may not be used.
    #[error("cannot use /dev/fuse: {0}; load the kernel's module fuse, and check that you may open it")]
    Device(io::Error),
    /// The kernel did not mount it.
    #[error("cannot mount on {path}: {source}")]
    Mount {
        /// The mountpoint.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel did not unmount it.
    #[error("cannot unmount {path}: {source}; programs that use it get errors")]
    Unmount {
        /// The mountpoint.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// What the server before has handed over cannot be gone on with.
    #[error("cannot take over the mount on {path}: {source}")]
    TakeOver {
        /// The mountpoint.
        path: PathBuf,
        /// Why.
        source: HandoverError,
    },
    /// The kernel's requests ended with an error.
    #[error("the kernel's requests ended: {0}")]
    Session(io::Error),
}

/// Reads the status of a mount as JSON, as [`STATUS_ATTRIBUTE`](crate::control::STATUS_ATTRIBUTE) has it.
pub type StatusReader = Rc<dyn Fn() -> LocalBoxFuture<'static, String>>;

/// A mounted filesystem. Its requests are answered as long as its runtime runs; [`Server::ended`] says when the
/// kernel sends no more of them.
pub struct Server {
    handle: Handle,
    attachment: Attachment,
    options: ServerOptions,
    device: Arc<File>,
    gate: Rc<Gate>,
    /// Of a filesystem.
    calls: Option<Rc<Calls>>,
    serving: Task<io::Result<()>>,
    /// Has the kernel hand over all that it keeps.
    collect_all_pages: Box<dyn Fn() -> Pin<Box<dyn Future<Output = ()>>>>,
    status: StatusReader,
    sync_hook: Rc<OnceCell<Box<SyncHook>>>,
}

impl Server {
    /// Mounts a filesystem on a directory. `status` is what [`STATUS_ATTRIBUTE`](crate::control::STATUS_ATTRIBUTE)
    /// tells, of the load now and of what is counted of files: JSON of less than 64 KiB. `trim` is what
    /// [`TRIM`](crate::control::TRIM) does, to a range of bytes in runs of a minimum: as
    /// [`trim`](weir_vfs::MountedCalls::trim), and what is to be done below it. `change_volume` does what
    /// [`VOLUME_ATTRIBUTE`](crate::control::VOLUME_ATTRIBUTE) is set to. With something inherited it goes on with the mount of the server
    /// before, which was made on this directory; the filesystem was mounted for that.
    ///
    /// # Errors
    /// [`ServerError::Device`], [`ServerError::Mount`] and [`ServerError::TakeOver`].
    pub fn mount<'a>(
        handle: &'a Handle,
        filesystem: Filesystem,
        (mountpoint, inherited): (&'a Path, Option<Inherited>),
        options: &'a ServerOptions,
        status: impl AsyncFn(Load, FileCounts) -> String + Clone + 'static,
        trim: impl AsyncFn(Range<u64>, u64) -> Result<u64, FsError> + Clone + 'static,
        change_volume: impl AsyncFn(VolumeCall) -> Result<(), FsError> + Clone + 'static,
    ) -> LocalBoxFuture<'a, Result<Server, ServerError>> {
        Box::pin(async move {
            let (load, told) = shared_load();
            let trim: Box<Trim> = Box::new(move |range, minimum| {
                let trim = trim.clone();
                Box::pin(async move { trim(range, minimum).await })
            });
            let change_volume: Box<VolumeCalls> = Box::new(move |call| {
                let change_volume = change_volume.clone();
                Box::pin(async move { change_volume(call).await })
            });
            let (notifier, intake) = (Rc::default(), Rc::<Intake>::default());
            let forgotten = Rc::clone(&intake);
            filesystem.on_reclaim(Box::new(move || {
                let forgotten = Rc::clone(&forgotten);
                Box::pin(async move { forgotten.taken_in().await })
            }));
            let gate = Rc::<Gate>::default();
            let threads = NoticeThreads::new(handle, &gate);
            let (cache, notices) = (options.writeback_cache, Rc::clone(&notifier));
            let kernel = KernelCache::new(&filesystem, cache, notices, threads, Rules::all());
            let sync_hook = Rc::<OnceCell<Box<SyncHook>>>::default();
            let hooks = Hooks {
                status: Box::new(move |files| {
                    let (status, load) = (status.clone(), told.get());
                    Box::pin(async move { status(load, files).await })
                }),
                trim,
                change_volume,
                sync: Rc::clone(&sync_hook),
            };
            let files = Files::new(options.open_requests || options.writeback_cache);
            let promises = (options.sync, options.store.clone());
            let calls = Calls::new(handle, &gate, (filesystem, kernel), files, promises, hooks).await;
            let attachment = match inherited {
                None => attach::<Calls>(handle, mountpoint, options).await?,
                Some(Inherited { device, mut state }) => {
                    let failed = |source| ServerError::TakeOver { path: mountpoint.to_owned(), source };
                    state.check(options).map_err(failed)?;
                    state.restore(&calls).await.map_err(failed)?;
                    gate.restore_parked(state.take_parked());
                    Attachment::from_device(device, &absolute(mountpoint))
                }
            };
            let (shared, service) = ((load, intake, gate), Rc::clone(&calls));
            let server = Server::start(handle, service, shared, attachment, options, &notifier).await?;
            Ok(Server { sync_hook, calls: Some(calls), ..server })
        })
    }

    /// Has `hook` called whenever everything on it is to be made durable for the superuser or the user of the server, as before
    /// an unmount. What it gives lives until that is done.
    pub fn set_sync_hook(&self, hook: impl Fn() -> Box<dyn Any> + 'static) {
        let _ = self.sync_hook.set(Box::new(hook));
    }

    /// Mounts a storage as one file, [`DISK_NAME`](crate::DISK_NAME), in a directory. `status` is as for
    /// [`Server::mount`], but that there are no files to count.
    ///
    /// # Errors
    /// [`ServerError::Device`] and [`ServerError::Mount`].
    pub fn mount_disk<'a>(
        handle: &'a Handle,
        storage: Rc<dyn Storage>,
        mountpoint: &'a Path,
        options: &'a ServerOptions,
        status: impl AsyncFn(Load) -> String + Clone + 'static,
    ) -> LocalBoxFuture<'a, Result<Server, ServerError>> {
        Box::pin(async move {
            let (load, told) = shared_load();
            let options = &ServerOptions { writeback_cache: false, ..options.clone() };
            let status: Box<Status<()>> = Box::new(move |()| {
                let (status, load) = (status.clone(), told.get());
                Box::pin(async move { status(load).await })
            });
            let disk = Disk::new(storage, status);
            let attachment = attach::<Disk>(handle, mountpoint, options).await?;
            let shared = (load, Rc::default(), Rc::default());
            Server::start(handle, Rc::new(disk), shared, attachment, options, &OnceCell::new()).await
        })
    }

    async fn start<S: Service>(
        handle: &Handle,
        service: Rc<S>,
        (load, intake, gate): (SharedLoad, Rc<Intake>, Rc<Gate>),
        mut attachment: Attachment,
        options: &ServerOptions,
        notifier: &OnceCell<Notifier>,
    ) -> Result<Server, ServerError> {
        let (request_bytes_max, awake) = (options.request_bytes_max, options.awake);
        load.set(Load { request_bytes_max, awake, ..load.get() });
        let device = Arc::clone(attachment.device());
        let _ = notifier.set(Notifier::new(Arc::clone(&device)));
        let cpu_guard = options.awake.then(|| BusyCpuGuard::new(handle));
        let connection =
            Connection::new(handle, Arc::clone(&device), cpu_guard).map_err(ServerError::Device)?;
        let shared = (Rc::clone(&load), intake, Rc::clone(&gate));
        let serving = handle.spawn(serve(handle.clone(), connection, Rc::clone(&service), shared));
        let sets_read_ahead = S::IS_FILESYSTEM && !attachment.is_taken_over();
        let mountpoint = attachment.mountpoint().to_owned();
        let number = handle.blocking(move || {
            let number = read_device_number(&mountpoint).ok();
            number.filter(|_| sets_read_ahead).into_iter().for_each(set_read_ahead);
            number
        });
        attachment.set_number(number.await.unwrap_or_default());
        let reporting = Rc::clone(&service);
        let status: StatusReader = Rc::new(move || {
            let service = Rc::clone(&reporting);
            Box::pin(async move { service.report_status().await })
        });
        let collect_all_pages = Box::new(move || {
            let service = Rc::clone(&service);
            Box::pin(async move { service.collect_all_pages().await }) as Pin<Box<dyn Future<Output = ()>>>
        });
        Ok(Server {
            handle: handle.clone(),
            attachment,
            options: options.clone(),
            device,
            gate,
            calls: None,
            serving,
            collect_all_pages,
            status,
            sync_hook: Rc::default(),
        })
    }

    /// Reads the status of the mount, for parts of the same process: a request of their own on the mount would wait for them.
    #[must_use]
    pub fn status_reader(&self) -> StatusReader {
        Rc::clone(&self.status)
    }

    /// Leaves the requests of the kernel with it, and waits until nothing is under way any more; then says what the next server
    /// has to know. From then on the kernel waits, until [`resume`](Self::resume) or the next server. After an error it does not.
    ///
    /// # Errors
    /// Those of [`HandoverError`] but for `State`, `OtherOptions` and `Restore`.
    pub fn pause(&self, within: Duration) -> LocalBoxFuture<'_, Result<MountState, HandoverError>> {
        Box::pin(async move {
            let calls = self.calls.as_ref().ok_or(HandoverError::NoFilesystem)?;
            self.gate.close();
            let state = match self.gate.at_rest(&self.handle, within).await {
                true => MountState::of_calls(calls, &self.options, self.gate.list_parked()).await,
                false => Err(HandoverError::Busy),
            };
            state.inspect_err(|_| self.resume())
        })
    }

    /// Takes requests in again.
    pub fn resume(&self) {
        self.gate.open();
    }

    /// Whether another server has mounted it.
    #[must_use]
    pub fn is_taken_over(&self) -> bool {
        self.attachment.is_taken_over()
    }

    /// The descriptor of `/dev/fuse` that belongs to the mount, for the next server.
    #[must_use]
    pub fn device(&self) -> &File {
        &self.device
    }

    /// Waits until the filesystem is unmounted, here or by another process.
    ///
    /// # Errors
    /// [`ServerError::Session`].
    pub fn ended(&mut self) -> LocalBoxFuture<'_, Result<(), ServerError>> {
        Box::pin(async move {
            let ended =
                (&mut self.serving).await.unwrap_or_else(|cancelled| Err(io::Error::other(cancelled)));
            info!(
                name: "connection_closed",
                mountpoint = %self.attachment.mountpoint().display(), ok = ended.is_ok(),
                "the kernel closed the connection"
            );
            ended.map_err(ServerError::Session)
        })
    }

    /// Unmounts. Programs that have files open on it keep them until the process ends, and what they
    /// do then fails. What they have written by now has come from the kernel when this returns, also after an error. A mount that was
    /// detached (`umount -l`) or moved before stays where it is, and so does what is at its place.
    ///
    /// # Errors
    /// [`ServerError::Unmount`] if the kernel does not unmount it.
    pub fn unmount(&mut self) -> LocalBoxFuture<'_, Result<(), ServerError>> {
        Box::pin(async move {
            // On another thread, since this one has to answer what the kernel asks meanwhile.
            let unmounting = self.handle.blocking(self.attachment.unmounter());
            let unmounted = unmounting.await.unwrap_or_else(|cancelled| Err(io::Error::other(cancelled)));
            // A mount that is only detached ends before the kernel has handed over everything, and `syncfs` does not
            // wait for that. What cannot be written is remembered.
            (self.collect_all_pages)().await;
            let mountpoint = self.attachment.mountpoint();
            match unmounted {
                Ok(MountEnd::Unmounted) => {
                    info!(name: "unmounted", mountpoint = %mountpoint.display(), "unmounted");
                    Ok(())
                }
                Ok(MountEnd::Detached) => {
                    warn!(
                        name: "mount_detached", mountpoint = %mountpoint.display(),
                        "the mount was detached or moved before; programs that use it get errors from now on"
                    );
                    Ok(())
                }
                Err(source) => Err(ServerError::Unmount { path: mountpoint.to_owned(), source }),
            }
        })
    }
}

/// Mounts.
async fn attach<S: Service>(
    handle: &Handle,
    mountpoint: &Path,
    options: &ServerOptions,
) -> Result<Attachment, ServerError> {
    require_device()?;
    let (at, config) = (absolute(mountpoint), config(options));
    let handshake = Handshake {
        writeback_cache: options.writeback_cache,
        file_handles: options.file_handles,
        attributes_of_names: S::IS_FILESYSTEM,
    };
    let place = at.clone();
    let mounted = handle.blocking(move || Session::new(handshake, place, &config)).await;
    let failed = |source| ServerError::Mount { path: mountpoint.to_owned(), source };
    let session = mounted.map_err(|cancelled| failed(io::Error::other(cancelled)))?.map_err(failed)?;
    info!(
        name: "mounted",
        mountpoint = %mountpoint.display(),
        source = options.name,
        sync = ?options.sync,
        read_only = options.read_only,
        "mounted"
    );
    Attachment::from_session(session, &at).map_err(ServerError::Device)
}

/// Agrees with the kernel on how they talk.
pub(crate) struct Handshake {
    /// Without the kernel's writeback cache, writes come in the order in which programs make them.
    writeback_cache: bool,
    /// See [`ServerOptions::file_handles`].
    file_handles: bool,
    /// The kernel may ask for the names of a directory with what they stand for.
    attributes_of_names: bool,
}

impl fuser::Filesystem for Handshake {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let version = config.kernel_abi();
        if (version.0, version.1) < (7, OLDEST_MINOR) {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!(
                    "the kernel's FUSE is version {version}, and 7.{OLDEST_MINOR} is needed (Linux 5.13)"
                ),
            ));
        }
        let mut wanted = InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_HAS_IOCTL_DIR
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_HANDLE_KILLPRIV_V2
            | InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP;
        wanted |= if self.file_handles {
            // They stand for what the kernel has forgotten, too: it looks up "." and ".." of it.
            InitFlags::FUSE_EXPORT_SUPPORT
        } else {
            InitFlags::FUSE_NO_EXPORT_SUPPORT
        };
        // Access control lists are kept here, and the umask does not count where a default list does.
        wanted |= InitFlags::FUSE_POSIX_ACL | InitFlags::FUSE_DONT_MASK | InitFlags::FUSE_SETXATTR_EXT;
        if self.attributes_of_names {
            // Where programs look at what the names stand for; the kernel finds out.
            wanted |= InitFlags::FUSE_DO_READDIRPLUS | InitFlags::FUSE_READDIRPLUS_AUTO;
        }
        if self.writeback_cache {
            // An older kernel copies what it hands over, and does not wait for the copies where it is asked to.
            if (version.0, version.1) < (7, OLDEST_WRITEBACK_MINOR) {
                return Err(io::Error::new(
                    io::ErrorKind::Unsupported,
                    format!(
                        "the kernel's FUSE is version {version}, and the writeback cache takes \
                         7.{OLDEST_WRITEBACK_MINOR} (Linux 6.16): mount without --writeback-cache"
                    ),
                ));
            }
            wanted |= InitFlags::FUSE_WRITEBACK_CACHE;
        }
        // What an older kernel does not have, it does without.
        let have = config.capabilities() & wanted;
        let _ = config.add_capabilities(have);
        let _ = config.set_max_background(BACKGROUND);
        let _ = config.set_max_write(TRANSFER_BYTES);
        if let Err(most) = config.set_max_readahead(TRANSFER_BYTES) {
            let _ = config.set_max_readahead(most);
        }
        Ok(())
    }
}

/// That this process may use the kernel's device, without which it mounts nothing.
///
/// # Errors
/// [`ServerError::Device`].
pub fn require_device() -> Result<(), ServerError> {
    let opened = File::options().read(true).write(true).open("/dev/fuse");
    opened.map(drop).map_err(ServerError::Device)
}

/// A path as it can be found from any directory, links in it not followed. Where there is no current directory it stays
/// what it is.
#[must_use]
pub fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// A load, shared by the code that changes it and the code that reports it.
fn shared_load() -> (SharedLoad, SharedLoad) {
    let load = SharedLoad::default();
    (Rc::clone(&load), load)
}

fn config(options: &ServerOptions) -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(options.name.clone()),
        MountOption::CUSTOM("subtype=weir".to_owned()),
        MountOption::CUSTOM(format!("max_read={READ_BYTES}")),
        // The kernel checks permissions, as the filesystem does not.
        MountOption::DefaultPermissions,
        if options.read_only { MountOption::RO } else { MountOption::RW },
    ];
    if options.no_exec {
        config.mount_options.push(MountOption::NoExec);
    }
    // Without it, the kernel's default is `relatime`.
    config.mount_options.extend((!options.access_times).then_some(MountOption::NoAtime));
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    config
}
