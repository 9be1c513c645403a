//! *Recorded filesystem*: a tree in memory as a door of Weir uses it, which records each call.
//!
//! No call waits for anything, but for a synchronisation that is slow by a fault and is recorded when it returns; so the order of
//! the calls is that of the record.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use weir_format::acl::Acl;
use weir_format::{Cookie, DirectoryEntry, FileTime, FileType, Target};
use weir_runtime::Handle;
use weir_vfs::{
    AclKind, AttributeCalls, AttributeChanges, Attributes, Caller, Expect, Fallocate, FileCalls, Filesystem,
    FsError, HandoverCalls, Hold, InodeNumber, LetGo, MountedCalls, NameCalls, NewNode, ReadOnlyReason,
    RenameFlags, Statfs, SyncCall, SyncCalls, Timer, check_attribute_of, is_kept_attribute,
};

use crate::cut_point::CutTrigger;
use crate::fault::{Fault, Faults};
use crate::record::Record;
use crate::recorded_tree::RecordedTree;
use crate::run_plan::RunCut;
use crate::tree::{BLOCK_BYTES, Content, ROOT, Tree};

/// Blocks that it claims to have: 2 GiB.
const BLOCKS: u64 = (2 << 30) / BLOCK_BYTES as u64;
/// Names that are read at one time.
const NAMES_AT_ONCE: usize = 512;

/// How often a delay looks whether it ends early.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Ticks of the clock of changes: each nanosecond.
const TICKS_A_SECOND: u32 = 1_000_000_000;

/// A filesystem that records.
#[derive(Clone)]
pub struct RecordedFilesystem(Rc<Inner>);

struct Inner {
    handle: Handle,
    timer: Timer,
    recorded: RefCell<RecordedTree>,
    /// Each becomes true when nothing is waited for any more.
    stops: RefCell<Vec<Arc<AtomicBool>>>,
}

/// A call that is done when it is made.
fn done<'a, T: 'a>(result: Result<T, FsError>) -> LocalBoxFuture<'a, Result<T, FsError>> {
    Box::pin(std::future::ready(result))
}

impl RecordedFilesystem {
    /// An empty one of this owner and group, for a run that may write so many bytes.
    #[must_use]
    pub fn new(handle: &Handle, owner: (u32, u32), data_max: u64) -> RecordedFilesystem {
        let timer = Timer::new(handle, TICKS_A_SECOND);
        let recorded = RefCell::new(RecordedTree::new(Record::new(owner, data_max), timer.now()));
        let inner = Inner { handle: handle.clone(), timer, recorded, stops: RefCell::default() };
        RecordedFilesystem(Rc::new(inner))
    }

    /// As a door has it.
    #[must_use]
    pub fn to_filesystem(&self) -> Filesystem {
        Filesystem::new(Rc::new(self.clone()))
    }

    /// Makes what a tree has, before anything else is done.
    ///
    /// # Errors
    /// What the calls for that fail by.
    pub fn restore(&self, tree: &Tree) -> Result<(), FsError> {
        self.0.recorded.borrow_mut().restore(tree, self.now())
    }

    /// What was done so far is what the run begins with. From now on, calls go wrong as `faults` say, and the power is cut at
    /// `cut`; both by the seed of `handle` where they say nothing. `lines` are acknowledged by now.
    pub fn end_setup(
        &self,
        handle: &Handle,
        faults: &[Fault],
        cut: Option<&RunCut>,
        round: u64,
        lines: &[Vec<u8>],
    ) {
        let faults = Faults::new(faults, handle.random(&format!("faults {round}")));
        let (point, is_cut) =
            cut.map_or_else(Default::default, |cut| (cut.point.clone(), Arc::clone(&cut.is_cut)));
        let cut = CutTrigger::new(point, handle.random(&format!("cut {round}")), is_cut);
        self.0.recorded.borrow_mut().end_setup(faults, cut, lines);
    }

    /// Ends what takes longer by a fault when a flag becomes true.
    pub(crate) fn stop_delays_by(&self, flag: &Arc<AtomicBool>) {
        self.0.stops.borrow_mut().push(Arc::clone(flag));
    }

    async fn wait_for_delay(&self, delay: Duration) {
        let mut left = delay;
        let is_stopped = || self.0.stops.borrow().iter().any(|flag| flag.load(Ordering::Relaxed));
        while !left.is_zero() && !is_stopped() {
            let part = left.min(STOP_CHECK_INTERVAL);
            self.0.handle.sleep(part).await;
            left -= part;
        }
    }

    /// The faults that were met, in words, and those that were not.
    #[must_use]
    pub fn take_met(&self) -> (Vec<String>, Vec<String>) {
        self.0.recorded.borrow_mut().take_met()
    }

    /// Adds a line that was acknowledged by another way than the file.
    pub fn acknowledge(&self, line: Vec<u8>) {
        self.0.recorded.borrow_mut().acknowledge(line);
    }

    /// How many operations are recorded by now.
    pub(crate) fn operations(&self) -> usize {
        self.0.recorded.borrow().record.operations.len()
    }

    /// The record. The filesystem has an empty one from now on.
    #[must_use]
    pub fn take_record(&self) -> Record {
        let mut recorded = self.0.recorded.borrow_mut();
        recorded.end_lines();
        let empty = Record::new(recorded.record.owner, 0);
        std::mem::replace(&mut recorded.record, empty)
    }

    fn hold_of(&self, result: Result<InodeNumber, FsError>) -> Result<Hold, FsError> {
        let inode = result?;
        self.0.recorded.borrow().holds.add(inode);
        Ok(Hold::new(inode, Rc::<Inner>::clone(&self.0)))
    }
}

impl LetGo for Inner {
    fn let_go(self: Rc<Self>, inode: InodeNumber, count: u64) {
        self.recorded.borrow_mut().let_go(inode, count);
    }
}

impl HandoverCalls for RecordedFilesystem {}

impl MountedCalls for RecordedFilesystem {
    fn root(&self) -> InodeNumber {
        ROOT
    }

    fn unmount(&self) -> LocalBoxFuture<'_, Result<(), FsError>> {
        done(Ok(()))
    }

    fn for_caller(&self, _: Caller) -> Filesystem {
        self.to_filesystem()
    }

    fn note_thread(&self, thread: u32) {
        self.0.recorded.borrow_mut().set_caller(thread);
    }

    fn now(&self) -> FileTime {
        self.0.timer.now()
    }

    fn read_only(&self) -> Option<ReadOnlyReason> {
        None
    }

    fn statfs(&self) -> LocalBoxFuture<'_, Statfs> {
        let used = self.0.recorded.borrow().record.data.bytes().div_ceil(BLOCK_BYTES as u64);
        let free_blocks = BLOCKS.saturating_sub(used);
        let inodes = 1 << 20;
        Box::pin(std::future::ready(Statfs {
            block_bytes: BLOCK_BYTES as u32,
            blocks: BLOCKS,
            free_blocks,
            available_blocks: free_blocks,
            inodes,
            free_inodes: inodes,
            name_bytes_max: 255,
        }))
    }
}

impl AttributeCalls for RecordedFilesystem {
    fn next_inode(&self, last: InodeNumber) -> LocalBoxFuture<'_, Result<Option<InodeNumber>, FsError>> {
        done(Ok(self.0.recorded.borrow().tree.inodes().find(|inode| *inode > last)))
    }

    fn is_file_number(&self, inode: InodeNumber) -> bool {
        inode >= ROOT
    }

    fn attributes(&self, inode: InodeNumber) -> LocalBoxFuture<'_, Result<Attributes, FsError>> {
        done(self.0.recorded.borrow().attributes(inode))
    }

    fn set_attributes<'a>(
        &'a self,
        inode: InodeNumber,
        changes: &'a AttributeChanges,
    ) -> LocalBoxFuture<'a, Result<(), FsError>> {
        done(self.0.recorded.borrow_mut().set_attributes(inode, changes, self.now()))
    }

    fn extended_attribute<'a>(
        &'a self,
        inode: InodeNumber,
        name: &'a [u8],
    ) -> LocalBoxFuture<'a, Result<Vec<u8>, FsError>> {
        let extended = self.0.recorded.borrow().extended(inode);
        done(extended.and_then(|mut extended| extended.remove(name).ok_or(FsError::NoAttribute)))
    }

    fn extended_attributes(&self, inode: InodeNumber) -> LocalBoxFuture<'_, Result<Vec<Vec<u8>>, FsError>> {
        done(self.0.recorded.borrow().extended(inode).map(|extended| extended.into_keys().collect()))
    }

    fn set_extended_attribute<'a>(
        &'a self,
        inode: InodeNumber,
        name: &'a [u8],
        value: &'a [u8],
        expect: Expect,
    ) -> LocalBoxFuture<'a, Result<(), FsError>> {
        let mut recorded = self.0.recorded.borrow_mut();
        let result = (|| {
            if AclKind::of_attribute(name).is_some() || !is_kept_attribute(name) {
                return Err(FsError::Unsupported("access control lists, and attributes of other kinds"));
            }
            check_attribute_of(Some(recorded.attributes(inode)?.kind), name)?;
            expect.check(recorded.extended(inode)?.contains_key(name))?;
            recorded.set_extended(inode, name, Some(value), self.now())
        })();
        done(result)
    }

    fn remove_extended_attribute<'a>(
        &'a self,
        inode: InodeNumber,
        name: &'a [u8],
    ) -> LocalBoxFuture<'a, Result<(), FsError>> {
        let mut recorded = self.0.recorded.borrow_mut();
        let result = recorded.extended(inode).and_then(|extended| {
            Expect::Present.check(extended.contains_key(name))?;
            recorded.set_extended(inode, name, None, self.now())
        });
        done(result)
    }

    fn acl(&self, _: InodeNumber, _: AclKind) -> LocalBoxFuture<'_, Result<Option<Acl>, FsError>> {
        done(Ok(None))
    }

    fn set_acl<'a>(
        &'a self,
        _: InodeNumber,
        _: AclKind,
        _: Option<&'a Acl>,
        _: bool,
    ) -> LocalBoxFuture<'a, Result<(), FsError>> {
        done(Err(FsError::Unsupported("access control lists")))
    }
}

impl FileCalls for RecordedFilesystem {
    fn read<'a>(
        &'a self,
        inode: InodeNumber,
        offset: u64,
        bytes: &'a mut [u8],
    ) -> LocalBoxFuture<'a, Result<usize, FsError>> {
        done(self.0.recorded.borrow_mut().read(inode, offset, bytes))
    }

    fn accessed(&self, _: InodeNumber) -> LocalBoxFuture<'_, Result<bool, FsError>> {
        done(Ok(false))
    }

    fn write<'a>(
        &'a self,
        inode: InodeNumber,
        offset: u64,
        bytes: &'a [u8],
    ) -> LocalBoxFuture<'a, Result<usize, FsError>> {
        done(self.0.recorded.borrow_mut().write(inode, offset, bytes, self.now()))
    }

    fn truncate(&self, inode: InodeNumber, size: u64) -> LocalBoxFuture<'_, Result<(), FsError>> {
        done(self.0.recorded.borrow_mut().set_size(inode, size, self.now()))
    }

    fn fallocate(
        &self,
        inode: InodeNumber,
        mode: Fallocate,
        offset: u64,
        length: u64,
    ) -> LocalBoxFuture<'_, Result<(), FsError>> {
        let mut recorded = self.0.recorded.borrow_mut();
        let result = (|| {
            let end = offset.checked_add(length).ok_or(FsError::TooLarge)?;
            if length == 0 {
                return Err(FsError::Invalid("an empty range"));
            }
            if !matches!(mode, Fallocate::Allocate { .. }) {
                recorded.zero(inode, offset, length, self.now())?;
            }
            let size = recorded.attributes(inode)?.size;
            match mode {
                Fallocate::Allocate { keep_size: false } | Fallocate::ZeroRange { keep_size: false }
                    if end > size =>
                {
                    recorded.set_size(inode, end, self.now())
                }
                _ => Ok(()),
            }
        })();
        done(result)
    }

    fn seek_data(&self, inode: InodeNumber, offset: u64) -> LocalBoxFuture<'_, Result<Option<u64>, FsError>> {
        done(self.seek(inode, offset, false))
    }

    fn seek_hole(&self, inode: InodeNumber, offset: u64) -> LocalBoxFuture<'_, Result<Option<u64>, FsError>> {
        done(self.seek(inode, offset, true))
    }

    fn mapped_blocks(&self, inode: InodeNumber, _: u64) -> LocalBoxFuture<'_, Result<u64, FsError>> {
        done(self.0.recorded.borrow().attributes(inode).map(|attributes| attributes.sectors / 8))
    }
}

impl RecordedFilesystem {
    fn seek(&self, inode: InodeNumber, offset: u64, in_hole: bool) -> Result<Option<u64>, FsError> {
        match self.0.recorded.borrow().tree.node(inode).map(|node| &node.content) {
            Some(Content::File(file)) => Ok(file.seek(offset, in_hole)),
            Some(_) => Err(FsError::Invalid("it has no content")),
            None => Err(FsError::NotFound),
        }
    }
}

impl NameCalls for RecordedFilesystem {
    fn lookup<'a>(
        &'a self,
        directory: InodeNumber,
        name: &'a [u8],
    ) -> LocalBoxFuture<'a, Result<InodeNumber, FsError>> {
        done(self.0.recorded.borrow().lookup(directory, name))
    }

    /// The cookie of a name is the number of its inode, which is never another one's, and a checksum of the name.
    fn read_directory(
        &self,
        directory: InodeNumber,
        after: Cookie,
    ) -> LocalBoxFuture<'_, Result<Vec<DirectoryEntry>, FsError>> {
        let recorded = self.0.recorded.borrow();
        let result = recorded.names(directory).map(|names| {
            let dots =
                [(Cookie::DOT, &b"."[..], directory), (Cookie::DOT_DOT, b"..", recorded.parent(directory))];
            let entry = |cookie, name: &[u8], inode| {
                let kind = recorded.attributes(inode).map_or(FileType::Regular, |found| found.kind);
                DirectoryEntry { cookie, name: name.to_vec(), target: Target { inode, kind: Some(kind) } }
            };
            let mut placed: Vec<(Cookie, &[u8], InodeNumber)> = dots.to_vec();
            placed.extend(names.iter().map(|(name, inode)| {
                let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, name);
                (Cookie(u64::from(*inode) << 32 | sum), name.as_slice(), *inode)
            }));
            placed.sort_unstable_by_key(|(cookie, ..)| *cookie);
            let behind = placed.into_iter().filter(|(cookie, ..)| *cookie > after);
            behind.take(NAMES_AT_ONCE).map(|(cookie, name, inode)| entry(cookie, name, inode)).collect()
        });
        done(result)
    }

    fn read_link(&self, inode: InodeNumber) -> LocalBoxFuture<'_, Result<Vec<u8>, FsError>> {
        let recorded = self.0.recorded.borrow();
        let result = match recorded.tree.node(inode).map(|node| &node.content) {
            Some(Content::Symlink(target)) => Ok(target.clone()),
            Some(_) => Err(FsError::Invalid("it is no symbolic link")),
            None => Err(FsError::NotFound),
        };
        done(result)
    }

    fn unlink<'a>(
        &'a self,
        directory: InodeNumber,
        name: &'a [u8],
    ) -> LocalBoxFuture<'a, Result<(), FsError>> {
        done(self.0.recorded.borrow_mut().remove(directory, name, false, self.now()))
    }

    fn rmdir<'a>(
        &'a self,
        directory: InodeNumber,
        name: &'a [u8],
    ) -> LocalBoxFuture<'a, Result<(), FsError>> {
        done(self.0.recorded.borrow_mut().remove(directory, name, true, self.now()))
    }

    fn rename<'a>(
        &'a self,
        from: (InodeNumber, &'a [u8]),
        to: (InodeNumber, &'a [u8]),
        flags: RenameFlags,
    ) -> LocalBoxFuture<'a, Result<(), FsError>> {
        done(self.0.recorded.borrow_mut().rename(from, to, flags, self.now()))
    }

    fn open(&self, inode: InodeNumber) -> LocalBoxFuture<'_, Result<(), FsError>> {
        done(self.0.recorded.borrow_mut().open(inode))
    }

    fn release(&self, inode: InodeNumber) -> LocalBoxFuture<'_, Result<(), FsError>> {
        self.0.recorded.borrow_mut().release(inode);
        done(Ok(()))
    }

    fn hold(&self, inode: InodeNumber) -> LocalBoxFuture<'_, Result<Hold, FsError>> {
        let is_there = self.0.recorded.borrow().is_there(inode);
        done(self.hold_of(is_there.then_some(inode).ok_or(FsError::NotFound)))
    }

    fn let_go(&self, inode: InodeNumber, count: u64) {
        self.0.recorded.borrow_mut().let_go(inode, count);
    }

    fn on_reclaim(&self, _: Box<dyn Fn() -> Pin<Box<dyn Future<Output = ()>>>>) {}

    fn held_inodes(&self) -> u64 {
        self.0.recorded.borrow().holds.inodes() as u64
    }

    fn is_held(&self, inode: InodeNumber) -> bool {
        self.0.recorded.borrow().holds.contains(inode)
    }

    fn list_held(&self) -> Vec<InodeNumber> {
        self.0.recorded.borrow().holds.list()
    }

    fn lookup_held<'a>(
        &'a self,
        directory: InodeNumber,
        name: &'a [u8],
    ) -> LocalBoxFuture<'a, Result<Hold, FsError>> {
        let found = self.0.recorded.borrow().lookup(directory, name);
        done(self.hold_of(found))
    }

    fn create_held<'a>(
        &'a self,
        directory: InodeNumber,
        name: &'a [u8],
        new: &'a NewNode,
    ) -> LocalBoxFuture<'a, Result<Hold, FsError>> {
        let made = self.0.recorded.borrow_mut().make(directory, Some(name), new, b"", self.now());
        done(self.hold_of(made))
    }

    fn create_unnamed_held<'a>(
        &'a self,
        directory: InodeNumber,
        new: &'a NewNode,
    ) -> LocalBoxFuture<'a, Result<Hold, FsError>> {
        let made = self.0.recorded.borrow_mut().make(directory, None, new, b"", self.now());
        let made = made.and_then(|inode| self.0.recorded.borrow_mut().open(inode).map(|()| inode));
        done(self.hold_of(made))
    }

    fn symlink_held<'a>(
        &'a self,
        directory: InodeNumber,
        name: &'a [u8],
        target: &'a [u8],
        (uid, gid): (u32, u32),
    ) -> LocalBoxFuture<'a, Result<Hold, FsError>> {
        let new = NewNode { uid, gid, ..NewNode::new(FileType::Symlink, 0o777) };
        let made = self.0.recorded.borrow_mut().make(directory, Some(name), &new, target, self.now());
        done(self.hold_of(made))
    }

    fn link_held<'a>(
        &'a self,
        inode: InodeNumber,
        directory: InodeNumber,
        name: &'a [u8],
    ) -> LocalBoxFuture<'a, Result<Hold, FsError>> {
        let linked = self.0.recorded.borrow_mut().link(inode, directory, name, self.now());
        done(self.hold_of(linked.map(|()| inode)))
    }
}

impl SyncCalls for RecordedFilesystem {
    fn sync(&self) -> LocalBoxFuture<'_, Result<(), FsError>> {
        done(self.0.recorded.borrow_mut().synchronise_all())
    }

    /// Barriers promise no durability, so they are no part of what POSIX promises.
    fn synchronise(&self, inode: InodeNumber, call: SyncCall) -> LocalBoxFuture<'_, Result<(), FsError>> {
        match call {
            SyncCall::Fsync | SyncCall::Fdatasync => {
                let delay = self.0.recorded.borrow_mut().delay_of_sync(inode);
                let Some(delay) = delay else {
                    return done(self.0.recorded.borrow_mut().synchronise(inode, call.is_data_only()));
                };
                Box::pin(async move {
                    self.wait_for_delay(delay).await;
                    self.0.recorded.borrow_mut().synchronise(inode, call.is_data_only())
                })
            }
            SyncCall::Fbarrier | SyncCall::Fdatabarrier => done(Err(FsError::Unsupported("barriers"))),
        }
    }

    fn is_atomic(&self, _: InodeNumber) -> LocalBoxFuture<'_, Result<bool, FsError>> {
        done(Ok(false))
    }
}
