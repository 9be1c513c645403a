//! A mount, from the mounting to the end of its session.

use std::cell::OnceCell;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use fuser::{Config, MountOption, Notifier, Session, SessionACL, SessionUnmounter};
use rustix::mount::{UnmountFlags, unmount};
use thiserror::Error;
use weir_fs::Filesystem;
use weir_runtime::Handle;
use weir_storage::Storage;

use crate::calls::Calls;
use crate::control::SyncMode;
use crate::disk::{Disk, DiskRequests};
use crate::files::Files;
use crate::jobs::{Load, SharedLoad, jobs};
use crate::requests::Requests;

/// How a filesystem is mounted.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// What `mount` and `df` show as its source.
    pub name: String,
    /// Whether users other than the one who mounts may use it. The kernel checks permissions in either case.
    pub allow_other: bool,
    /// Whether the kernel refuses changes.
    pub read_only: bool,
    /// What `fsync` promises.
    pub sync: SyncMode,
}

/// Why a filesystem could not be mounted, or its session ended.
#[derive(Debug, Error)]
pub enum ServerError {
    /// There is no `/dev/fuse`, or it may not be used.
    #[error("cannot use /dev/fuse: {0}; load the kernel's module fuse, and see that you may open it")]
    Device(io::Error),
    /// The kernel did not mount it.
    #[error("cannot mount on {path}: {source}")]
    Mount {
        /// The mountpoint.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel's requests ended with an error.
    #[error("the kernel's requests ended: {0}")]
    Session(io::Error),
}

/// A mounted filesystem. Its requests are answered as long as its runtime runs; [`Server::ended`] says when the
/// kernel sends no more of them.
pub struct Server {
    mountpoint: PathBuf,
    unmounter: SessionUnmounter,
    session: std::pin::Pin<Box<dyn Future<Output = io::Result<()>>>>,
}

impl Server {
    /// Mounts a filesystem on a directory. `status` is what [`STATUS_ATTRIBUTE`](crate::control::STATUS_ATTRIBUTE)
    /// tells, of the load now: JSON of less than 64 KiB.
    ///
    /// # Errors
    /// [`ServerError::Device`] and [`ServerError::Mount`].
    pub async fn mount(
        handle: &Handle,
        filesystem: Filesystem,
        mountpoint: &Path,
        options: &ServerOptions,
        status: impl Fn(Load) -> String + 'static,
    ) -> Result<Server, ServerError> {
        let (load, told) = shared_load();
        let status = Box::new(move || status(told.get()));
        let notifier = Rc::default();
        let (files, sync) = (Files::default(), options.sync);
        let calls = Calls { filesystem, files, sync, status, notifier: Rc::clone(&notifier) };
        let requests = Requests::new(jobs(handle, calls, &load));
        Server::start(handle, requests, mountpoint, options, &notifier).await
    }

    /// Mounts a storage as one file, [`DISK_NAME`](crate::DISK_NAME), in a directory. `status` is as for
    /// [`Server::mount`].
    ///
    /// # Errors
    /// [`ServerError::Device`] and [`ServerError::Mount`].
    pub async fn mount_disk(
        handle: &Handle,
        storage: Rc<dyn Storage>,
        mountpoint: &Path,
        options: &ServerOptions,
        status: impl Fn(Load) -> String + 'static,
    ) -> Result<Server, ServerError> {
        let (load, told) = shared_load();
        let disk = Disk::new(storage, Box::new(move || status(told.get())));
        let bytes = disk.bytes();
        let requests = DiskRequests::new(jobs(handle, disk, &load), bytes);
        Server::start(handle, requests, mountpoint, options, &OnceCell::new()).await
    }

    async fn start(
        handle: &Handle,
        requests: impl fuser::Filesystem,
        mountpoint: &Path,
        options: &ServerOptions,
        notifier: &OnceCell<Notifier>,
    ) -> Result<Server, ServerError> {
        std::fs::File::options().read(true).write(true).open("/dev/fuse").map_err(ServerError::Device)?;
        let (at, config) = (mountpoint.to_owned(), config(options));
        let mounted = handle.blocking(move || Session::new(requests, at, &config)).await;
        let failed = |source| ServerError::Mount { path: mountpoint.to_owned(), source };
        let mut session =
            mounted.map_err(|cancelled| failed(io::Error::other(cancelled)))?.map_err(failed)?;
        let unmounter = session.unmount_callable();
        let _ = notifier.set(session.notifier());
        let running = handle.blocking(move || session.run());
        let session =
            async move { running.await.unwrap_or_else(|cancelled| Err(io::Error::other(cancelled))) };
        Ok(Server { mountpoint: mountpoint.to_owned(), unmounter, session: Box::pin(session) })
    }

    /// Waits until the filesystem is unmounted, by whomever.
    ///
    /// # Errors
    /// [`ServerError::Session`].
    pub async fn ended(&mut self) -> Result<(), ServerError> {
        self.session.as_mut().await.map_err(ServerError::Session)
    }

    /// Takes the mount away. Programs that have files open on it keep them until the process ends, and what they
    /// do then fails.
    ///
    /// # Errors
    /// [`ServerError::Mount`] if the kernel does not let go of it.
    pub fn unmount(&mut self) -> Result<(), ServerError> {
        if self.unmounter.unmount().is_ok() {
            return Ok(());
        }
        unmount(&self.mountpoint, UnmountFlags::DETACH)
            .map_err(|error| ServerError::Mount { path: self.mountpoint.clone(), source: error.into() })
    }
}

/// A load for those who change it, and for who tells of it.
fn shared_load() -> (SharedLoad, SharedLoad) {
    let load = SharedLoad::default();
    (Rc::clone(&load), load)
}

fn config(options: &ServerOptions) -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(options.name.clone()),
        MountOption::Subtype("weir".to_owned()),
        // The kernel checks permissions, as the filesystem does not.
        MountOption::DefaultPermissions,
        MountOption::NoAtime,
        if options.read_only { MountOption::RO } else { MountOption::RW },
    ];
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    config
}
