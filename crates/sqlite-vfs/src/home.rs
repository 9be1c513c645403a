//! What a VFS stands on: a filesystem, and the runtime that drives it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::rc::{Rc, Weak};

use rand::Rng as _;
use rusqlite::ffi::{SQLITE_FULL, SQLITE_IOERR_WRITE};
use weir_format::FileType;
use weir_runtime::{Handle, Random, Runtime};
use weir_vfs::{Filesystem, FsError, InodeNumber, NewNode};

use crate::fault::{Call, Fault};
use crate::locks::{ConnectionId, Shared};

/// Who may read and write a database that is made here, before its owner says otherwise.
const PERMISSIONS: u16 = 0o644;

/// Milliseconds from noon of 24 November 4714 BC, where SQLite's time begins, to 1970.
const JULIAN_MILLIS_OF_UNIX: u64 = 210_866_760_000_000;

/// What a call is made of, in tests.
pub(crate) type Interception = Box<dyn Fn(Call) -> Option<Fault>>;

thread_local! {
    /// Its address tells this thread from all others that live.
    static HERE: u8 = const { 0 };
}

fn here() -> usize {
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

/// Why a call of the filesystem failed, as far as SQLite tells it apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    Missing,
    Full,
    /// What is pending of an atomic file has to go into the journal before: there is no more room, or it is in the way.
    Pending,
    Other,
}

impl Failure {
    /// As SQLite says it; `other` is what the call fails by otherwise.
    pub(crate) fn code(self, other: c_int) -> c_int {
        if self == Failure::Full { SQLITE_FULL } else { other }
    }
}

/// See the head of this file.
pub(crate) struct Home {
    runtime: Rc<Runtime>,
    handle: Handle,
    pub(crate) filesystem: Filesystem,
    /// The thread of the runtime.
    thread: usize,
    random: RefCell<Random>,
    files: Cell<ConnectionId>,
    shared: RefCell<BTreeMap<InodeNumber, Weak<Shared>>>,
    /// The journal that was closed last, if its directory is made durable after its deletion.
    leaving: Cell<Option<InodeNumber>>,
    interception: RefCell<Option<Interception>>,
}

impl Home {
    pub(crate) fn new(runtime: Rc<Runtime>, filesystem: Filesystem) -> Home {
        let handle = runtime.handle();
        Home {
            runtime,
            filesystem,
            thread: here(),
            random: RefCell::new(handle.random("sqlite")),
            handle,
            files: Cell::default(),
            shared: RefCell::default(),
            leaving: Cell::default(),
            interception: RefCell::default(),
        }
    }

    /// Whether it is used where it may be.
    pub(crate) fn is_here(&self) -> bool {
        self.thread == here()
    }

    pub(crate) fn intercept(&self, interception: Option<Interception>) {
        self.interception.replace(interception);
    }

    /// What is made of a call.
    pub(crate) fn fault(&self, call: Call) -> Option<Fault> {
        self.interception.borrow().as_ref().and_then(|interception| interception(call))
    }

    /// Fails a call that was to fail: with `code`, or for want of space.
    pub(crate) fn check(&self, call: Call, code: c_int) -> Result<(), c_int> {
        match self.fault(call) {
            Some(Fault::Io | Fault::Short) => Err(code),
            Some(Fault::NoSpace) if matches!(call, Call::Open | Call::Write) => Err(SQLITE_FULL),
            Some(Fault::NoSpace) => Err(code),
            Some(Fault::Dropped) | None => Ok(()),
        }
    }

    /// Runs the runtime until `call` is done.
    pub(crate) fn drive<T>(&self, call: impl Future<Output = Result<T, FsError>>) -> Result<T, Failure> {
        if self.runtime.is_running() {
            return Err(Failure::Other);
        }
        match self.runtime.block_on(call) {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(FsError::NotFound)) => Err(Failure::Missing),
            Ok(Err(FsError::NoSpace | FsError::TooLarge)) => Err(Failure::Full),
            Ok(Err(FsError::UpdateTooLarge { .. } | FsError::UpdateOpen)) => Err(Failure::Pending),
            Ok(Err(_)) | Err(_) => Err(Failure::Other),
        }
    }

    /// The inode of a path, opened, and its directory; made if `create` says so, and new if `exclusive` does.
    pub(crate) async fn open(
        &self,
        path: &[u8],
        create: bool,
        exclusive: bool,
    ) -> Result<(InodeNumber, InodeNumber), FsError> {
        let fs = &self.filesystem;
        let parent = fs.resolve_parent(path).await?;
        let inode = match fs.resolve(path).await {
            Ok(_) if exclusive => return Err(FsError::Exists),
            Err(FsError::NotFound) if create => {
                let new = NewNode::new(FileType::Regular, PERMISSIONS);
                fs.create(parent.directory, parent.name, &new).await?
            }
            found => found?,
        };
        fs.open(inode).await?;
        Ok((inode, parent.directory))
    }

    /// A file without a name, for as long as it is open.
    pub(crate) async fn open_nameless(&self) -> Result<(InodeNumber, InodeNumber), FsError> {
        let name = format!("sqlite-{:016x}", self.handle.entropy());
        let opened = self.open(name.as_bytes(), true, true).await?;
        self.filesystem.unlink(self.filesystem.root(), name.as_bytes()).await?;
        Ok(opened)
    }

    /// A journal is closed; named if its directory is made durable after its deletion, which comes next.
    pub(crate) fn journal_closed(&self, leaving: Option<InodeNumber>) {
        self.leaving.set(leaving);
    }

    /// Whether a path leads to such a journal, so that its deletion need not synchronise the directory.
    pub(crate) fn leaves_directory(&self, path: &[u8]) -> bool {
        self.leaving
            .take()
            .is_some_and(|journal| self.drive(self.filesystem.resolve(path)).ok() == Some(journal))
    }

    /// Deletes a file; its directory.
    pub(crate) async fn unlink(&self, path: &[u8]) -> Result<InodeNumber, FsError> {
        let parent = self.filesystem.resolve_parent(path).await?;
        self.filesystem.unlink(parent.directory, parent.name).await?;
        Ok(parent.directory)
    }

    /// A name for one more that has a file open.
    pub(crate) fn next(&self) -> ConnectionId {
        self.files.set(self.files.get() + 1);
        self.files.get()
    }

    /// What the connections share of a file that is open.
    pub(crate) fn shared(&self, inode: InodeNumber) -> Rc<Shared> {
        let mut shared = self.shared.borrow_mut();
        shared.retain(|_, shared| shared.strong_count() > 0);
        if let Some(known) = shared.get(&inode).and_then(Weak::upgrade) {
            return known;
        }
        let new = Rc::<Shared>::default();
        shared.insert(inode, Rc::downgrade(&new));
        new
    }

    pub(crate) fn randomness(&self, bytes: &mut [u8]) {
        self.random.borrow_mut().fill_bytes(bytes);
    }

    pub(crate) fn sleep(&self, duration: std::time::Duration) {
        // In virtual time a sleep always ends; a caller that is refused has slept long enough.
        let _ = self.drive(async {
            self.handle.sleep(duration).await;
            Ok(())
        });
    }

    /// Milliseconds of SQLite's time.
    pub(crate) fn julian_millis(&self) -> u64 {
        JULIAN_MILLIS_OF_UNIX + self.handle.wall_clock_millis()
    }
}

/// A write that was cut short is one that found no space, as everywhere in SQLite.
pub(crate) fn of_write(failure: Failure) -> c_int {
    failure.code(SQLITE_IOERR_WRITE)
}
