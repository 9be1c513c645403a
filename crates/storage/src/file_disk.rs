//! A *file disk*: a regular file or a block device of yours as a [`Storage`], through io_uring.
//!
//! What it is: a legacy disk (S4) with flush and, with direct I/O, FUA. What it promises and why:
//!
//! - A write is *transferred* when the kernel reports it complete: it is in the drive's cache (with direct
//!   I/O) or in the page cache (without). It is durable after a flush, which is one `fdatasync`.
//! - FUA is one operation, a write with `RWF_DSYNC`. Only with direct I/O: see *errors* below.
//! - Borrowed bytes are copied at submission (S6); frozen, block-aligned buffers are shared with the kernel.
//! - Errors: the kernel reports a failed writeback to *one* `fdatasync` of an open file and then forgets it,
//!   and may have dropped the pages. So only one runs at a time, and callers that ask meanwhile share the next:
//!   no success can overtake the failure that it hides. And the first flush or FUA write that fails poisons
//!   the disk: nothing more is accepted but reads, since nothing more could be acknowledged honestly.
//! - Bounds: `queue_depth` commands in flight, each of at most [`MAX_TRANSFER_BLOCKS`] blocks. Where the
//!   ring is too small for their operations these wait in a backlog.

mod below;
mod error;
mod facts;
mod loops;
mod mutants;
mod open;
mod opener;
mod orders;
mod pool;
mod transfer;
mod unnamed;

use std::cell::Cell;
use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use event_listener::Event;
use weir_runtime::{Buffer, Handle};

use crate::address::{BLOCK_BYTES, Lba};
use crate::capability::{Capabilities, Discard};
use crate::command::Command;
use crate::contract::Storage;
use crate::error::{Rejected, StorageError};
use crate::opener::{Opener, Standing};
use crate::recorder::Recorder;
use crate::rules::Rules;
use crate::ticket::Ticket;

pub use error::FileDiskError;
use facts::FactsLook;
pub use facts::{DiskFacts, Readers};
pub use mutants::FileDiskMutant;
use open::Opened;
use transfer::Engine;

/// Blocks in one command at most: 4 MiB, far beyond where larger transfers stop paying.
const MAX_TRANSFER_BLOCKS: u32 = 1024;

/// How to open a [`FileDisk`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDiskOptions {
    /// Refuse writes and discards; readers share a disk, a writer has exclusive use. Default: false.
    pub read_only: bool,
    /// Commands in flight at most, 1 to 1,024. Default: 64.
    pub queue_depth: u32,
    /// Bytes that the drive never tears (S4): 512 or 4,096. No kernel call tells; the default is 512,
    /// which every drive keeps.
    pub tear_unit_bytes: u32,
    /// Go through the page cache even where direct I/O works. Default: false.
    pub buffered: bool,
    /// Reserve no space for a new file: it takes what is written. Default: false.
    pub sparse: bool,
    /// Bytes that an empty file gets once it is locked: of two who open one only one makes something of it. Default: none.
    pub size_if_empty: Option<u64>,
    /// The rules that this disk keeps: all of them.
    pub rules: Rules<FileDiskMutant>,
}

impl Default for FileDiskOptions {
    fn default() -> FileDiskOptions {
        FileDiskOptions {
            read_only: false,
            queue_depth: 64,
            tear_unit_bytes: 512,
            buffered: false,
            sparse: false,
            size_if_empty: None,
            rules: Rules::all(),
        }
    }
}

/// A regular file or block device as a [`Storage`]. Dropping it lets commands in flight finish; the lock
/// goes with the last of them.
pub struct FileDisk {
    engine: Rc<Engine>,
    path: PathBuf,
    capabilities: Capabilities,
    /// Of its file or device, as it was measured last.
    bytes: Cell<u64>,
    direct: bool,
    read_only: bool,
    /// This process.
    opener: Opener,
    facts: Rc<FactsLook>,
    /// The file has no name yet.
    unnamed: Cell<bool>,
}

impl FileDisk {
    /// Opens an existing file or block device and locks it against other writers.
    ///
    /// # Errors
    /// [`FileDiskError`] names the path, the cause and what to do.
    pub fn open(
        handle: &Handle,
        path: &Path,
        options: FileDiskOptions,
    ) -> Result<Rc<FileDisk>, FileDiskError> {
        check(&options)?;
        handle.ring().ok_or(FileDiskError::NoRing)?;
        FileDisk::from_opened(handle, open::open(path, &options)?, &options)
    }

    /// A disk on what was opened.
    fn from_opened(
        handle: &Handle,
        opened: Opened,
        options: &FileDiskOptions,
    ) -> Result<Rc<FileDisk>, FileDiskError> {
        let ring = handle.ring().ok_or(FileDiskError::NoRing)?;
        let Opened { path, file, below, bytes, direct, punch } = opened;
        let legacy = Capabilities::legacy(options.queue_depth, MAX_TRANSFER_BLOCKS, options.tear_unit_bytes);
        let unknown = u128::from(handle.entropy()) << 64 | u128::from(handle.entropy());
        let discard = if punch { Discard::ReadsZero } else { Discard::Unsupported };
        Ok(Rc::new(FileDisk {
            opener: opener::this_process(below.place, unknown),
            facts: Rc::default(),
            engine: Engine::new(handle, ring, (file, below.files), options),
            path,
            capabilities: Capabilities { fua: direct, discard, ..legacy },
            bytes: Cell::new(bytes),
            direct,
            read_only: options.read_only,
            unnamed: Cell::new(false),
        }))
    }

    /// Creates a regular file of `bytes` bytes that reads zero, with its space reserved unless it is to be sparse, and opens it.
    /// Only its owner may read it. An existing file is never overwritten.
    ///
    /// # Errors
    /// [`FileDiskError`] names the path, the cause and what to do.
    pub fn create(
        handle: &Handle,
        path: &Path,
        bytes: u64,
        options: FileDiskOptions,
    ) -> Result<Rc<FileDisk>, FileDiskError> {
        check(&options)?;
        handle.ring().ok_or(FileDiskError::NoRing)?;
        open::create(path, bytes, &options)?;
        FileDisk::open(handle, path, options)
    }

    /// As [`create`](FileDisk::create), but the file gets its name by [`FileDisk::name`] and not before: until then it is gone
    /// when the disk is dropped, or the process ends. Where the filesystem has no files without a name, it has one at once.
    ///
    /// # Errors
    /// [`FileDiskError`] names the path, the cause and what to do.
    pub fn create_unnamed(
        handle: &Handle,
        path: &Path,
        bytes: u64,
        options: FileDiskOptions,
    ) -> Result<Rc<FileDisk>, FileDiskError> {
        check(&options)?;
        handle.ring().ok_or(FileDiskError::NoRing)?;
        let Some(file) = unnamed::create(path, bytes, &options)? else {
            return FileDisk::create(handle, path, bytes, options);
        };
        let opened = open::open(&unnamed::path_of(&file), &options)?;
        let disk = FileDisk::from_opened(handle, Opened { path: path.to_owned(), ..opened }, &options)?;
        disk.unnamed.set(true);
        Ok(disk)
    }

    /// Gives the file its name, if it has none, and makes that durable. Not before its content is: flush first.
    ///
    /// # Errors
    /// [`FileDiskError::Exists`] if something has the name by now; [`FileDiskError::Io`].
    pub fn name(&self) -> Result<(), FileDiskError> {
        if self.unnamed.get() {
            unnamed::name(self.engine.file(), &self.path)?;
            self.unnamed.set(false);
        }
        Ok(())
    }

    /// Whether the file has a name, and so stays when the process ends.
    #[must_use]
    pub fn has_name(&self) -> bool {
        !self.unnamed.get()
    }

    /// Whether I/O goes past the page cache. False where the filesystem refuses direct I/O (tmpfs), and
    /// where the options asked for that: then the page cache stands for the drive's write cache, and there
    /// is no FUA.
    #[must_use]
    pub fn direct(&self) -> bool {
        self.direct
    }

    /// Bytes behind the last whole block, which the disk never touches.
    #[must_use]
    pub fn unused_bytes(&self) -> u64 {
        self.bytes.get() % BLOCK_BYTES as u64
    }

    /// Whether it was opened to be read only.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Bytes of its file or device.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// Gives a regular file so many bytes, if that is asked for, and takes in the size that the file or device has then. What is
    /// added to a file reads zero, is durable after a flush, and is not reserved. Nothing may be under way behind the new end.
    ///
    /// # Errors
    /// [`FileDiskError::Io`] and its like; [`FileDiskError::TooSmall`].
    pub fn resize(&self, bytes: Option<u64>) -> Result<(), FileDiskError> {
        self.bytes.set(open::resize(self.engine.file(), &self.path, bytes)?);
        Ok(())
    }

    /// What the system says of its file or device now; none if no thread can be started for that. A filesystem below that does
    /// not answer keeps this waiting, and nothing else.
    pub async fn facts(&self) -> Option<DiskFacts> {
        self.facts.facts(self.engine.handle(), self.engine.file()).await
    }

    /// Whether a path leads to its file or device.
    #[must_use]
    pub fn is_at(&self, path: &Path) -> bool {
        let identity = |found: std::io::Result<Metadata>| {
            found.ok().map(|found| match found.file_type().is_block_device() {
                true => (u64::MAX, found.rdev()),
                false => (found.dev(), found.ino()),
            })
        };
        let own = identity(self.engine.file().metadata());
        own.is_some() && own == identity(path.metadata())
    }

    /// The path it was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reports transfers and persists to `recorder` from now on: X at a write's completion, P at the flush
    /// that covers it. Plain destaging goes unseen.
    pub fn set_recorder(&self, recorder: Rc<Recorder>) {
        self.engine.orders().set_recorder(recorder);
    }

    /// Refuses what may change nothing (a read-only disk) or could not be acknowledged (a poisoned one).
    fn accepts(&self, command: &Command<'_>) -> Result<(), StorageError> {
        if matches!(command, Command::Read { .. }) {
            return Ok(());
        }
        if self.engine.poisoned() {
            return Err(StorageError::Poisoned);
        }
        if self.read_only && !matches!(command, Command::Flush) {
            let cause = ErrorKind::ReadOnlyFilesystem;
            return Err(StorageError::Device {
                command: command.kind(),
                at: transfer::address(command),
                cause,
            });
        }
        Ok(())
    }
}

impl Storage for FileDisk {
    fn blocks(&self) -> u64 {
        self.bytes.get() / BLOCK_BYTES as u64
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn submit(&self, command: Command<'_>) -> Result<Ticket, Rejected> {
        self.capabilities.check(&command, self.blocks())?;
        self.accepts(&command)?;
        self.engine.submit(command)
    }

    fn slots(&self) -> &Event {
        self.engine.slots()
    }

    fn next_data(&self, from: Lba) -> Option<Lba> {
        if from.0 >= self.blocks() {
            return None;
        }
        let at = match self.engine.next_data(from.0 * BLOCK_BYTES as u64) {
            Ok(None) => return None,
            Ok(Some(byte)) => Lba(byte / BLOCK_BYTES as u64),
            // Nothing is known of holes here.
            Err(_) => from,
        };
        (at.0 < self.blocks()).then_some(at)
    }

    fn allocate(&self, bytes: usize) -> Buffer {
        self.engine.allocate(bytes)
    }

    fn opener(&self) -> Option<Opener> {
        (!self.read_only).then_some(self.opener)
    }

    fn standing(&self, other: &Opener) -> Standing {
        opener::standing(&self.opener, other)
    }
}

fn check(options: &FileDiskOptions) -> Result<(), FileDiskError> {
    let &FileDiskOptions { queue_depth, tear_unit_bytes, .. } = options;
    if !(1..=1024).contains(&queue_depth) {
        let value = u64::from(queue_depth);
        return Err(FileDiskError::Option { option: "queue_depth", value, range: "1 to 1024" });
    }
    if ![512, 4096].contains(&tear_unit_bytes) {
        let value = u64::from(tear_unit_bytes);
        return Err(FileDiskError::Option { option: "tear_unit_bytes", value, range: "512 or 4096" });
    }
    Ok(())
}
