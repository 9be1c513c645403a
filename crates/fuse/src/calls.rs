//! The kernel's calls, as the filesystem's: what a request means here.

use std::any::Any;
use std::cell::OnceCell;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;

use rustix::fs::{FallocateFlags, OFlags, RenameFlags, XattrFlags};
use rustix::io::Errno;
use rustix::process::geteuid;
use weir_format::{FileTime, acl::Acl};
use weir_runtime::{Buffer, Handle};
use weir_vfs::{
    AclKind, AttributeChanges, Expect, Fallocate, Filesystem, FsError, Hold, InodeNumber, NewNode, Promise,
    SyncCall, is_own_attribute,
};
use zerocopy::{FromBytes as _, IntoBytes as _};

use crate::claims::Claims;
use crate::control::{
    ABANDON_UPDATE, ATOMIC_ATTRIBUTE, BEGIN_UPDATE, END_UPDATE, F2FS_ABORT_ATOMIC_WRITE,
    F2FS_COMMIT_ATOMIC_WRITE, F2FS_GET_FEATURES, F2FS_START_ATOMIC_WRITE, FBARRIER, FBARRIER_AFTER_PAGES,
    FDATABARRIER, FDATABARRIER_AFTER_PAGES, ORDER_ALL, ORDER_WRITES, SET_SYNC, STATUS_ATTRIBUTE, SYNC_ALL,
    SYNC_ATTRIBUTE, SYNC_GROUP, SyncMode, TRIM, TrimRange, VOLUME_ATTRIBUTE,
};
use crate::convert;
use crate::directories::Directories;
use crate::errno::{errno, errno_of_sync};
use crate::files::{Files, OpenFile};
use crate::gate::Gate;
use crate::kernel::KernelCache;
use crate::lost::{Lost, LostWrites};
use crate::mutants::FuseMutant;
use crate::privileges::{Caller, Removal, drop_capabilities, drop_privileges, left_without_privileges};
use crate::protocol::{NodeAttributes, WriteRequest};
use crate::remote_sync::RemoteSync;
use crate::sync_modes::SyncModes;
use crate::volume_call::{SnapshotCall, VolumeCall, VolumeCalls};

/// Discards what is free in a range of bytes, in runs of at least so many: how many bytes that were.
pub(crate) type Trim = dyn Fn(Range<u64>, u64) -> Pin<Box<dyn Future<Output = Result<u64, FsError>>>>;

/// Called before everything is made durable; what it gives lives until that is done.
pub(crate) type SyncHook = dyn Fn() -> Box<dyn Any>;

/// The status of a mount: its counters.
pub(crate) type Status<T> = dyn Fn(T) -> Pin<Box<dyn Future<Output = String>>>;

/// The handle of a file of which nothing is kept. Those of others are greater.
const NO_HANDLE: u64 = 0;

/// A mounted filesystem and its users.
pub(crate) struct Calls {
    pub(crate) filesystem: Filesystem,
    pub(crate) files: Files,
    pub(crate) claims: Claims,
    /// What `fsync` promises where nothing else was said of a file.
    pub(crate) sync: SyncMode,
    pub(crate) sync_modes: SyncModes,
    pub(crate) lost: LostWrites,
    hooks: Hooks,
    pub(crate) kernel: KernelCache,
    pub(crate) directories: Directories,
}

/// What the program that has mounted it does for a mount.
pub(crate) struct Hooks {
    /// The status as JSON.
    pub(crate) status: Box<Status<FileCounts>>,
    /// Discards what is free.
    pub(crate) trim: Box<Trim>,
    pub(crate) change_volume: Box<VolumeCalls>,
    pub(crate) sync: Rc<OnceCell<Box<SyncHook>>>,
}

/// What is counted of the files on a mount, for its status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileCounts {
    /// Files whose `fsync` orders only, as their owners have said by
    /// [`SYNC_ATTRIBUTE`](crate::control::SYNC_ATTRIBUTE); none as long as they are being counted, after a mount.
    pub order_files: Option<u64>,
    /// The same of those whose `fsync` waits for an object store.
    pub remote_files: Option<u64>,
    /// Files that lack what a program had written through a mapping.
    pub lost: Lost,
}

/// What the kernel gets to know of an inode, and its generation.
pub(crate) type Entry = (NodeAttributes, u32);

/// A file that was opened: its handle, and whether the kernel is to leave it out of its page cache.
#[derive(Clone, Copy)]
pub(crate) struct Opened {
    pub(crate) handle: u64,
    pub(crate) direct: bool,
}

impl Calls {
    /// Those of a filesystem. `sync` is what `fsync` promises where nothing else was said of a file, and `store` is waited for where
    /// that was.
    pub(crate) async fn new(
        handle: &Handle,
        gate: &Rc<Gate>,
        (filesystem, kernel): (Filesystem, KernelCache),
        files: Files,
        (sync, store): (SyncMode, Option<RemoteSync>),
        hooks: Hooks,
    ) -> Rc<Calls> {
        let sync_modes = SyncModes::of(handle, &filesystem, store).await;
        Rc::new_cyclic(|calls| Calls {
            filesystem,
            files,
            claims: Claims::new(handle, gate, calls.clone()),
            sync,
            sync_modes,
            lost: LostWrites::default(),
            hooks,
            kernel,
            directories: Directories::default(),
        })
    }

    /// What the kernel gets to know of an inode.
    async fn entry(&self, inode: InodeNumber) -> Result<Entry, Errno> {
        let found = self.filesystem.attributes(inode).await.map_err(|error| errno(&error))?;
        Ok((convert::attributes(&found, self.filesystem.root()), found.generation))
    }

    /// What the kernel gets to know of what a call has found or made. It stays held until the kernel has forgotten it.
    pub(crate) async fn entry_of(&self, hold: Result<Hold, FsError>) -> Result<Entry, Errno> {
        let hold = hold.map_err(|error| errno(&error))?;
        let entry = self.entry(hold.inode()).await?;
        hold.keep();
        Ok(entry)
    }

    /// The kernel drops so many references to an inode.
    pub(crate) fn forget_inode(&self, inode: InodeNumber, count: u64) {
        self.files.forget_direct_writes(inode);
        self.filesystem.let_go(inode, count);
        if !self.files.are_told && !self.filesystem.is_held(inode) {
            self.close_claims_on(inode);
        }
    }

    /// What a name stands for. The kernel asks for the name "." of what a file handle stands for and it has forgotten,
    /// whatever that is.
    pub(crate) async fn lookup(&self, parent: InodeNumber, name: &[u8]) -> Result<Entry, Errno> {
        if name == b"." {
            // The number may be anything.
            return if self.filesystem.is_file_number(parent) {
                self.entry_of(self.filesystem.hold(parent).await).await
            } else {
                Err(Errno::NOENT)
            };
        }
        self.entry_of(self.filesystem.lookup_held(parent, name).await).await
    }

    pub(crate) async fn attributes(&self, inode: InodeNumber) -> Result<NodeAttributes, Errno> {
        Ok(self.entry(inode).await?.0)
    }

    /// The attributes, and when the inode was made, where it has room for that.
    pub(crate) async fn attributes_with_birth(
        &self,
        inode: InodeNumber,
    ) -> Result<(NodeAttributes, Option<FileTime>), Errno> {
        let found = self.filesystem.attributes(inode).await.map_err(|error| errno(&error))?;
        let born = (found.created != FileTime::default()).then_some(found.created);
        Ok((convert::attributes(&found, self.filesystem.root()), born))
    }

    /// Changes attributes. Another owner, and another size set by a caller that may not keep privileges, remove these. The caller has the
    /// file open where `is_open`.
    pub(crate) async fn set_attributes(
        &self,
        inode: InodeNumber,
        mut changes: AttributeChanges,
        caller: Caller,
        is_open: bool,
    ) -> Result<NodeAttributes, Errno> {
        let owner = changes.uid.is_some() || changes.gid.is_some();
        // A request that sets nothing, or the time of change alone, comes before a write to a file with privileges, as an
        // overlay sends it: the kernel asks for the removal (`file_remove_privs`), and leaves out the server's part.
        let asks_removal = AttributeChanges { changed: None, ..changes } == AttributeChanges::default();
        if (owner || changes.size.is_some() || asks_removal) && changes.permissions.is_none() {
            let removal = if owner { Removal::Required } else { Removal::UnlessKept };
            changes.permissions = left_without_privileges(&self.filesystem, inode, caller, removal).await?;
        }
        if let Some(owner) = changes.uid {
            self.drop_sync_mode_of_other(inode, owner).await?;
        }
        // A size that is set by path begins the update of an atomic file that no program has open: it ends here.
        let resizes = changes.size.is_some();
        if resizes && is_open {
            self.claim_atomic(inode, caller).await;
        }
        if resizes {
            self.filesystem.open(inode).await.map_err(|error| errno(&error))?;
        }
        let tail = match changes.size {
            Some(size) => self.exposed_tail(inode, size).await,
            None => None,
        };
        let set = self.filesystem.set_attributes(inode, &changes).await;
        let released = if resizes { self.filesystem.release(inode).await } else { Ok(()) };
        set.and(released).map_err(|error| errno(&error))?;
        if changes.uid.is_some() {
            // The owner before may have said it again while this waited.
            self.clear_promise(inode);
        }
        if let Some(size) = changes.size {
            self.clear_tail(inode, tail).await;
            self.lost.cut(inode, size);
        }
        self.attributes(inode).await
    }

    pub(crate) async fn make_node(
        &self,
        parent: InodeNumber,
        name: &[u8],
        new: &NewNode,
        caller: Caller,
    ) -> Result<Entry, Errno> {
        self.entry_of(caller.view_of(&self.filesystem).create_held(parent, name, new).await).await
    }

    pub(crate) async fn symlink(
        &self,
        parent: InodeNumber,
        name: &[u8],
        target: &[u8],
        caller: Caller,
    ) -> Result<Entry, Errno> {
        let owner = (caller.uid, caller.gid);
        self.entry_of(caller.view_of(&self.filesystem).symlink_held(parent, name, target, owner).await).await
    }

    pub(crate) async fn link(
        &self,
        inode: InodeNumber,
        parent: InodeNumber,
        name: &[u8],
        caller: Caller,
    ) -> Result<Entry, Errno> {
        // A file that gets its name when it is complete must not be empty after a crash.
        self.take_over_before_name(inode).await?;
        self.entry_of(caller.view_of(&self.filesystem).link_held(inode, parent, name).await).await
    }

    pub(crate) async fn rename(
        &self,
        from: (InodeNumber, &[u8]),
        to: (InodeNumber, &[u8]),
        flags: u32,
        caller: Caller,
    ) -> Result<(), Errno> {
        // A file that takes another one's place without `fsync` must not be empty after a crash, as on ext4.
        let flags = RenameFlags::from_bits_retain(flags);
        let names: &[_] = if flags.contains(RenameFlags::EXCHANGE) { &[from, to] } else { &[from] };
        for (directory, name) in names {
            if let Ok(inode) = self.filesystem.lookup(*directory, name).await {
                self.take_over_before_name(inode).await?;
            }
        }
        if !(RenameFlags::NOREPLACE | RenameFlags::EXCHANGE | RenameFlags::WHITEOUT).contains(flags) {
            return Err(Errno::INVAL);
        }
        let flags = weir_vfs::RenameFlags {
            no_replace: flags.contains(RenameFlags::NOREPLACE),
            exchange: flags.contains(RenameFlags::EXCHANGE),
            whiteout: flags.contains(RenameFlags::WHITEOUT),
        };
        caller.view_of(&self.filesystem).rename(from, to, flags).await.map_err(|error| errno(&error))
    }

    /// Opens a file.
    pub(crate) async fn open(&self, inode: InodeNumber, flags: i32) -> Result<Opened, Errno> {
        self.filesystem.open(inode).await.map_err(|error| errno(&error))?;
        Ok(self.opened(inode, flags))
    }

    /// Takes in a file that is open with the filesystem.
    fn opened(&self, inode: InodeNumber, flags: i32) -> Opened {
        // `OFlags::DSYNC` has the bits of O_SYNC.
        let is_synchronous = flags & libc::O_DSYNC != 0;
        let flags = OFlags::from_bits_retain(flags.cast_unsigned());
        let direct = flags.contains(OFlags::DIRECT);
        let writable = flags.intersects(OFlags::WRONLY | OFlags::RDWR);
        let mut file = OpenFile::new(inode, direct, writable);
        file.mappable = flags.contains(OFlags::RDWR);
        file.quiet = flags.contains(OFlags::NOATIME);
        file.is_synchronous = is_synchronous;
        Opened { handle: self.files.insert(file), direct }
    }

    /// Makes a file and opens it.
    pub(crate) async fn create(
        &self,
        parent: InodeNumber,
        name: &[u8],
        new: &NewNode,
        flags: i32,
        caller: Caller,
    ) -> Result<(Entry, Opened), Errno> {
        let made = caller.view_of(&self.filesystem).create_held(parent, name, new).await;
        let made = made.map_err(|error| errno(&error))?;
        let entry = self.entry(made.inode()).await?;
        let opened = self.open(made.inode(), flags).await?;
        made.keep();
        Ok((entry, opened))
    }

    /// Makes a file without a name and opens it.
    pub(crate) async fn create_unnamed(
        &self,
        directory: InodeNumber,
        new: &NewNode,
        flags: i32,
        caller: Caller,
    ) -> Result<(Entry, Opened), Errno> {
        let made = caller.view_of(&self.filesystem).create_unnamed_held(directory, new).await;
        let made = made.map_err(|error| errno(&error))?;
        if !self.files.are_told {
            // The file is made open, and the hold keeps it as well. The kernel sends RELEASE for this file, which changes nothing.
            let released = self.filesystem.release(made.inode()).await;
            released.map_err(|error| errno(&error))?;
            let opened = Opened { handle: NO_HANDLE, direct: false };
            return Ok((self.entry_of(Ok(made)).await?, opened));
        }
        let opened = self.opened(made.inode(), flags);
        Ok((self.entry_of(Ok(made)).await?, opened))
    }

    pub(crate) async fn release(&self, handle: u64) -> Result<(), Errno> {
        if handle == NO_HANDLE {
            return Ok(());
        }
        let file = self.files.remove(handle).ok_or(Errno::BADF)?;
        self.filesystem.release(file.inode).await.map_err(|error| errno(&error))
    }

    /// Closes a regular file. Reads that the kernel's cache has served were not seen: who had the file open for reading
    /// only has read it.
    pub(crate) async fn close(&self, handle: u64) -> Result<(), Errno> {
        let file = self.files.get(handle).filter(|file| !file.writable && !file.quiet);
        if let Some(inode) = file.map(|file| file.inode)
            && self.note_access(inode, 0).await
        {
            self.kernel.forget_attributes(inode).await;
        }
        self.abandon_with(handle).await;
        self.release(handle).await
    }

    /// Notes that an inode was read by a program that has opened it with these flags; whether its access time has
    /// changed. After a request for what it holds the kernel asks for that by itself.
    pub(crate) async fn note_access(&self, inode: InodeNumber, flags: i32) -> bool {
        // A failure does not matter to the reader.
        flags & libc::O_NOATIME == 0 && self.filesystem.accessed(inode).await.unwrap_or(false)
    }

    /// Reads up to `length` bytes: a buffer, and how many.
    pub(crate) async fn read(
        &self,
        inode: InodeNumber,
        offset: u64,
        length: u32,
    ) -> Result<(Buffer, usize), Errno> {
        // Long pieces of the heap come from the system, which clears each of their pages at the first touch.
        let mut buffer = Buffer::new(length as usize);
        let read = self.filesystem.read(inode, offset, &mut buffer).await.map_err(|error| errno(&error))?;
        Ok((buffer, read))
    }

    pub(crate) async fn read_link(&self, inode: InodeNumber) -> Result<Vec<u8>, Errno> {
        let target = self.filesystem.read_link(inode).await.map_err(|error| errno(&error))?;
        self.note_access(inode, 0).await;
        Ok(target)
    }

    /// Writes, and keeps what O_DSYNC and O_SYNC promise: of what goes through the page cache the kernel asks for
    /// `fsync` afterwards, of direct writes it does not.
    pub(crate) async fn write(
        &self,
        inode: InodeNumber,
        write: &WriteRequest<'_>,
        caller: Caller,
    ) -> Result<u32, Errno> {
        let WriteRequest { handle, offset, bytes, flags, .. } = *write;
        let is_direct_file = || self.files.get(handle).is_some_and(|file| file.direct);
        let direct = !write.from_cache && (flags & libc::O_DIRECT != 0 || is_direct_file());
        if write.takes_privileges {
            self.drop_privileges(inode, caller, Removal::Required).await?;
        }
        if direct {
            drop_capabilities(&self.filesystem, inode).await?;
        }
        self.claim_atomic(inode, caller).await;
        let tail = self.tail_before_write(inode, write, direct).await;
        // An update that was begun is ordered and synchronised when it has ended.
        let (mut updates, mut orders) = (false, false);
        for file in self.open_files(inode, handle) {
            updates |= file.has_begun_update.get();
            orders |= file.orders_writes.get();
        }
        let orders = orders && !updates;
        let done = async {
            if write.from_cache {
                return self.write_back(inode, offset, bytes).await;
            }
            let written = caller.view_of(&self.filesystem).write(inode, offset, bytes).await;
            let written = written.map_err(|error| errno(&error))?;
            self.lost.written(inode, &(offset..offset + written as u64));
            Ok(written)
        };
        let written = if orders {
            let end = offset.saturating_add(bytes.len() as u64);
            self.filesystem.in_order(inode, end, done).await.map_err(|error| errno_of_sync(&error))??
        } else {
            done.await?
        };
        self.clear_tail(inode, tail).await;
        if direct && self.may_be_overwritten(inode) {
            self.kernel.forget_overwritten(inode, offset, written as u64).await;
        }
        // O_SYNC is two bits, one of them O_DSYNC.
        if direct && flags & libc::O_DSYNC != 0 && !updates {
            let data_only = flags & libc::O_SYNC != libc::O_SYNC;
            self.synchronise(inode, SyncCall::from_promise(Promise::Durable, data_only), caller).await?;
        }
        Ok(u32::try_from(written).unwrap_or(u32::MAX))
    }

    /// Whether the kernel may have pages of a file that a direct write has just made old: it does not forget them by itself
    /// where it was not told, when the file was opened, to leave its cache out.
    fn may_be_overwritten(&self, inode: InodeNumber) -> bool {
        let is_first = self.files.note_direct_write(inode);
        let uses_cache = self.kernel.is_writeback || !self.files.are_told;
        uses_cache && (is_first || self.files.may_be_cached(inode))
    }

    /// Writes pages of the kernel's cache: all of them, or it is an error, as the kernel takes less for all. Who has
    /// changed them is not known, and was told of no error: so they may take what is reserved for the superuser. What
    /// fails all the same is remembered, since the kernel tells of it once, and takes the pages for written. With its
    /// writeback cache, the kernel keeps the times, and says them by itself.
    async fn write_back(&self, inode: InodeNumber, offset: u64, bytes: &[u8]) -> Result<usize, Errno> {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let written = match self.kernel.is_writeback {
                true => self.filesystem.write_back(inode, at, &bytes[done..]).await,
                false => self.filesystem.write(inode, at, &bytes[done..]).await,
            };
            match written {
                Ok(more) => {
                    self.lost.written(inode, &(at..at + more as u64));
                    done += more;
                }
                Err(error) => {
                    let cause = errno(&error);
                    if let Ok(found) = self.filesystem.attributes(inode).await {
                        self.lost.add(inode, found.generation, at..offset + bytes.len() as u64, cause);
                        self.kernel.have_it_ask(inode, found.generation);
                    }
                    return Err(cause);
                }
            }
        }
        Ok(done)
    }

    /// `fsync` and `fdatasync`, with the promise that holds for the file. They fail for as long as the file lacks
    /// something of what the kernel was to write back.
    pub(crate) async fn synchronise(
        &self,
        inode: InodeNumber,
        call: SyncCall,
        caller: Caller,
    ) -> Result<(), Errno> {
        self.keep_promise(inode, call, caller).await?;
        self.fails_sync(inode).await
    }

    /// Fails if a file lacks something of what the kernel was to write back.
    ///
    /// # Errors
    /// Why that was not written.
    pub(crate) async fn fails_sync(&self, inode: InodeNumber) -> Result<(), Errno> {
        self.lost.forget_earlier(&self.filesystem, inode).await;
        self.lost.fails_sync(inode)
    }

    async fn keep_promise(&self, inode: InodeNumber, call: SyncCall, caller: Caller) -> Result<(), Errno> {
        match self.find_sync_mode(inode, caller).await {
            SyncMode::Order => self.synchronise_with(inode, call.with_promise(Promise::Ordered)).await,
            SyncMode::Durable => self.synchronise_with(inode, call).await,
            SyncMode::Remote => {
                self.synchronise_with(inode, call).await?;
                self.sync_modes.wait_for_store().await
            }
        }
    }

    async fn synchronise_with(&self, inode: InodeNumber, call: SyncCall) -> Result<(), Errno> {
        self.filesystem.synchronise(inode, call).await.map_err(|error| errno_of_sync(&error))
    }

    /// What `fsync` of a file promises: what a program has said that has it open, or else its sync mode, or else the mount.
    pub(crate) async fn find_sync_mode(&self, inode: InodeNumber, caller: Caller) -> SyncMode {
        if let Some(mode) = self.said_promise(inode, caller) {
            return mode;
        }
        match self.sync_modes.get(inode).await {
            Ok(mode) => mode.unwrap_or(self.sync),
            // Whether less would do is not known.
            Err(_) => SyncMode::Remote,
        }
    }

    /// What the owner before has said of a file does not hold for the next.
    async fn drop_sync_mode_of_other(&self, inode: InodeNumber, owner: u32) -> Result<(), Errno> {
        let found = self.filesystem.attributes(inode).await.map_err(|error| errno(&error))?;
        if found.uid == owner {
            return Ok(());
        }
        self.clear_promise(inode);
        match self.sync_modes.remove(inode).await {
            Err(FsError::NoAttribute) => Ok(()),
            done => done.map_err(|error| errno(&error)),
        }
    }

    /// Only the owner and the superuser may change what `fsync` of a file promises, since others rely on it.
    pub(crate) async fn require_owner(&self, inode: InodeNumber, caller: Caller) -> Result<(), Errno> {
        let found = self.filesystem.attributes(inode).await.map_err(|error| errno(&error))?;
        if caller.may_speak_for(found.uid) { Ok(()) } else { Err(Errno::PERM) }
    }

    /// Makes everything durable as before an unmount, for which nothing is waited for but this.
    async fn hand_over(&self, caller: Caller) -> Result<(), Errno> {
        let is_server = caller.may_speak_for(geteuid().as_raw());
        let _until_done = self.hooks.sync.get().filter(|_| is_server).map(|hook| hook());
        self.synchronise_all().await
    }

    /// Makes everything durable, whatever `fsync` promises; fails also if files lack what could not be written.
    async fn synchronise_all(&self) -> Result<(), Errno> {
        self.filesystem.sync().await.map_err(|error| errno_of_sync(&error))?;
        self.lost.check(&self.filesystem).await
    }

    /// Does what an ioctl asks; the bytes that it gives.
    pub(crate) async fn ioctl(
        &self,
        inode: InodeNumber,
        handle: u64,
        command: u32,
        argument: &[u8],
        caller: Caller,
    ) -> Result<Vec<u8>, Errno> {
        match command {
            FBARRIER | FDATABARRIER | FBARRIER_AFTER_PAGES | FDATABARRIER_AFTER_PAGES => {
                if matches!(command, FBARRIER | FDATABARRIER) {
                    self.take_over(inode).await?;
                }
                let data_only = matches!(command, FDATABARRIER | FDATABARRIER_AFTER_PAGES);
                self.synchronise_with(inode, SyncCall::from_promise(Promise::Ordered, data_only)).await?;
                self.fails_sync(inode).await?;
            }
            ORDER_ALL => {
                self.collect_dirty_pages().await?;
                self.filesystem.order_all().await.map_err(|error| errno_of_sync(&error))?;
                self.lost.check(&self.filesystem).await?;
            }
            TRIM => {
                let asked = TrimRange::read_from_bytes(argument).map_err(|_| Errno::INVAL)?;
                return Ok(self.trim(asked, caller).await?.as_bytes().to_vec());
            }
            SET_SYNC => {
                let file = self.writable_file(inode, handle, caller).await?;
                let mode = SyncMode::of_argument(argument).ok_or(Errno::INVAL)?;
                let waits_for_store = self.find_sync_mode(inode, caller).await == SyncMode::Remote;
                if mode != SyncMode::Durable || waits_for_store {
                    self.require_owner(inode, caller).await?;
                }
                self.sync_modes.require_kept(mode)?;
                self.say_promise(inode, &file, mode);
            }
            ORDER_WRITES => {
                let file = self.writable_file(inode, handle, caller).await?;
                if self.kernel.is_writeback && !file.direct {
                    // They would not come one by one.
                    return Err(Errno::OPNOTSUPP);
                }
                file.orders_writes.set(true);
            }
            BEGIN_UPDATE | END_UPDATE | ABANDON_UPDATE => self.update(inode, handle, command, caller).await?,
            F2FS_GET_FEATURES
            | F2FS_START_ATOMIC_WRITE
            | F2FS_COMMIT_ATOMIC_WRITE
            | F2FS_ABORT_ATOMIC_WRITE => return self.write_atomically(inode, handle, command, caller).await,
            SYNC_GROUP => self.sync_group(inode, argument, caller).await?,
            _ => return Err(Errno::NOTTY),
        }
        Ok(Vec::new())
    }

    /// Has the kernel hand over what programs have written to a file. What of it fails is remembered with the lost
    /// writes.
    ///
    /// # Errors
    /// EAGAIN if too many wait for that.
    pub(crate) async fn take_over(&self, inode: InodeNumber) -> Result<(), Errno> {
        if !self.kernel.is_writeback || !self.files.may_be_dirty(inode) {
            return Ok(());
        }
        self.kernel.take_pages(inode).await
    }

    /// The same before a file gets a name, also of what mappings have changed (K1). Without requests for opens any file
    /// may be mapped, so none is asked for: each rename would cost the kernel's pages of the file.
    ///
    /// # Errors
    /// As [`take_over`](Self::take_over).
    async fn take_over_before_name(&self, inode: InodeNumber) -> Result<(), Errno> {
        let may_be_kept = match self.kernel.is_writeback {
            true => self.files.may_be_dirty(inode),
            false => self.files.are_told && self.files.may_be_mapped(inode),
        };
        if !may_be_kept || self.kernel.rules.drops(FuseMutant::NamedBeforePages) {
            return Ok(());
        }
        self.kernel.take_pages(inode).await
    }

    /// Has the kernel hand over what it has of files that programs still have open for writing: what mappings have
    /// changed, too, and so also without a writeback cache. Without requests for opens, these may be all files in its cache.
    ///
    /// # Errors
    /// The first of [`take_over`](Self::take_over)'s, once all were asked for.
    pub(crate) async fn collect_dirty_pages(&self) -> Result<(), Errno> {
        let inodes = match self.files.are_told {
            true => self.files.that_may_be_dirty(),
            false => self.filesystem.list_held(),
        };
        let mut collected = Ok(());
        for inode in inodes {
            collected = collected.and(self.kernel.take_pages(inode).await);
        }
        collected
    }

    /// Whether the next write through an open file shall fail, which the kernel would keep and say nothing: a write to it
    /// was lost for want of room, and there is still none. Otherwise a program that writes until the filesystem is full
    /// would never end.
    pub(crate) async fn refuses_writes(&self, inode: InodeNumber, handle: u64) -> bool {
        self.kernel.is_writeback
            && self.fails_sync(inode).await == Err(Errno::NOSPC)
            && self.files.get(handle).is_some_and(|file| file.writable)
            && self.filesystem.statfs().await.available_blocks == 0
    }

    /// Before a write by a caller that may not keep privileges: removes them, and has the kernel look again.
    async fn drop_privileges(
        &self,
        inode: InodeNumber,
        caller: Caller,
        removal: Removal,
    ) -> Result<(), Errno> {
        if drop_privileges(&self.filesystem, inode, caller, removal).await? {
            self.kernel.forget_attributes(inode).await;
        }
        Ok(())
    }

    async fn trim(&self, asked: TrimRange, caller: Caller) -> Result<TrimRange, Errno> {
        if !caller.is_superuser() {
            return Err(Errno::PERM);
        }
        let range = asked.start..asked.start.saturating_add(asked.length);
        let length = (self.hooks.trim)(range, asked.minimum).await.map_err(|error| errno(&error))?;
        Ok(TrimRange { length, ..asked })
    }

    pub(crate) async fn attribute(&self, inode: InodeNumber, name: &[u8]) -> Result<Vec<u8>, Errno> {
        if name == STATUS_ATTRIBUTE {
            return Ok(self.report_status().await.into_bytes());
        }
        if name == SYNC_ATTRIBUTE {
            let mode = self.sync_modes.get(inode).await.map_err(|error| errno(&error))?;
            return mode.map(|mode| mode.name().to_vec()).ok_or(Errno::NODATA);
        }
        if name == ATOMIC_ATTRIBUTE {
            return self.atomic_attribute(inode).await;
        }
        if is_own_attribute(name) {
            return Err(Errno::NODATA);
        }
        self.filesystem.extended_attribute(inode, name).await.map_err(|error| errno(&error))
    }

    /// The status of the mount as JSON.
    pub(crate) async fn report_status(&self) -> String {
        (self.hooks.status)(self.file_counts().await).await
    }

    /// What is counted of files for the status.
    async fn file_counts(&self) -> FileCounts {
        let [order_files, remote_files] = self.sync_modes.count().await;
        FileCounts { order_files, remote_files, lost: self.lost.found(&self.filesystem).await }
    }

    pub(crate) async fn set_attribute(
        &self,
        inode: InodeNumber,
        name: &[u8],
        value: &[u8],
        flags: i32,
        caller: Caller,
    ) -> Result<(), Errno> {
        if name == STATUS_ATTRIBUTE {
            return if value == SYNC_ALL { self.hand_over(caller).await } else { Err(Errno::PERM) };
        }
        if name == VOLUME_ATTRIBUTE {
            return self.change_volume_for(value, caller).await;
        }
        let expect = match XattrFlags::from_bits_retain(flags.cast_unsigned()) {
            flags if flags.contains(XattrFlags::CREATE | XattrFlags::REPLACE) => Expect::AbsentAndPresent,
            flags if flags.contains(XattrFlags::CREATE) => Expect::Absent,
            flags if flags.contains(XattrFlags::REPLACE) => Expect::Present,
            _ => Expect::Anything,
        };
        if name == SYNC_ATTRIBUTE {
            self.require_owner(inode, caller).await?;
            let mode = SyncMode::of_name(value).ok_or(Errno::INVAL)?;
            self.sync_modes.require_kept(mode)?;
            self.sync_modes.set(inode, mode, expect, caller).await.map_err(|error| errno(&error))?;
            self.clear_promise(inode);
            return Ok(());
        }
        if name == ATOMIC_ATTRIBUTE {
            return self.set_atomic(inode, Some(value), expect, caller).await;
        }
        if is_own_attribute(name) {
            return Err(Errno::PERM);
        }
        let set = caller.view_of(&self.filesystem).set_extended_attribute(inode, name, value, expect).await;
        set.map_err(|error| errno(&error))
    }

    /// Does what the superuser, or the user of the server, asks of the volume.
    async fn change_volume_for(&self, value: &[u8], caller: Caller) -> Result<(), Errno> {
        if !caller.may_speak_for(geteuid().as_raw()) {
            return Err(Errno::PERM);
        }
        let call = VolumeCall::from_value(value).ok_or(Errno::INVAL)?;
        if matches!(call, VolumeCall::Snapshot(SnapshotCall::Create(_))) {
            self.collect_dirty_pages().await?;
            self.synchronise_all().await?;
        }
        (self.hooks.change_volume)(call).await.map_err(|error| errno(&error))
    }

    /// Sets an access control list for a caller outside the file's group, which has no right to its set-group-ID bit.
    pub(crate) async fn set_list_by_stranger(
        &self,
        inode: InodeNumber,
        name: &[u8],
        value: &[u8],
        caller: Caller,
    ) -> Result<(), Errno> {
        let kind = AclKind::of_attribute(name).ok_or(Errno::INVAL)?;
        let acl = Acl::of_interface(value).map_err(|_| Errno::INVAL)?;
        let set = caller.view_of(&self.filesystem).set_acl(inode, kind, Some(&acl), true).await;
        set.map_err(|error| errno(&error))
    }

    pub(crate) async fn remove_attribute(
        &self,
        inode: InodeNumber,
        name: &[u8],
        caller: Caller,
    ) -> Result<(), Errno> {
        if name == SYNC_ATTRIBUTE {
            self.require_owner(inode, caller).await?;
            self.sync_modes.remove(inode).await.map_err(|error| errno(&error))?;
            self.clear_promise(inode);
            return Ok(());
        }
        if name == ATOMIC_ATTRIBUTE {
            return self.set_atomic(inode, None, Expect::Present, caller).await;
        }
        if is_own_attribute(name) {
            return Err(Errno::NODATA);
        }
        let removed = caller.view_of(&self.filesystem).remove_extended_attribute(inode, name).await;
        removed.map_err(|error| errno(&error))
    }

    /// The names of a file's attributes, each with a zero behind it, without Weir's own: a program that lists them copies
    /// them. Those of `trusted.*` are for the superuser, as on the kernel's own filesystems.
    pub(crate) async fn attribute_names(&self, inode: InodeNumber, caller: Caller) -> Result<Vec<u8>, Errno> {
        let found = self.filesystem.extended_attributes(inode).await.map_err(|error| errno(&error))?;
        Ok(found
            .into_iter()
            .filter(|name| !is_own_attribute(name))
            .filter(|name| caller.is_superuser() || !name.starts_with(b"trusted."))
            .flat_map(|mut name| {
                name.push(0);
                name
            })
            .collect())
    }

    pub(crate) async fn allocate(
        &self,
        inode: InodeNumber,
        offset: u64,
        length: u64,
        mode: i32,
        caller: Caller,
    ) -> Result<(), Errno> {
        let flags = FallocateFlags::from_bits_retain(mode.cast_unsigned());
        let keep_size = flags.contains(FallocateFlags::KEEP_SIZE);
        let mode = match flags - FallocateFlags::KEEP_SIZE {
            none if none.is_empty() => Fallocate::Allocate { keep_size },
            FallocateFlags::PUNCH_HOLE if keep_size => Fallocate::PunchHole,
            FallocateFlags::ZERO_RANGE => Fallocate::ZeroRange { keep_size },
            _ => return Err(Errno::OPNOTSUPP),
        };
        self.drop_privileges(inode, caller, Removal::UnlessKept).await?;
        self.claim_atomic(inode, caller).await;
        // Where an allocation fails, the kernel leaves its page cache as it is, and would append at the end that it knows:
        // so the file must not be longer by then.
        let end = if keep_size { 0 } else { offset.saturating_add(length) };
        let tail = self.exposed_tail(inode, end).await;
        let done = caller.view_of(&self.filesystem).fallocate(inode, mode, offset, length).await;
        if done.is_err() {
            // What was allocated stays, as ext4 has it.
            self.kernel.forget_attributes(inode).await;
        }
        done.map_err(|error| errno(&error))?;
        self.clear_tail(inode, tail).await;
        if !matches!(mode, Fallocate::Allocate { .. }) {
            self.lost.written(inode, &(offset..offset.saturating_add(length)));
        }
        Ok(())
    }

    /// `lseek` with SEEK_DATA (3) and SEEK_HOLE (4); the kernel does the others.
    pub(crate) async fn seek(&self, inode: InodeNumber, offset: i64, whence: u32) -> Result<i64, Errno> {
        let offset = u64::try_from(offset).map_err(|_| Errno::NXIO)?;
        self.take_over(inode).await?;
        let found = match whence {
            3 => self.filesystem.seek_data(inode, offset).await,
            4 => self.filesystem.seek_hole(inode, offset).await,
            _ => return Err(Errno::INVAL),
        };
        let found = found.map_err(|error| errno(&error))?.ok_or(Errno::NXIO)?;
        i64::try_from(found).map_err(|_| Errno::OVERFLOW)
    }
}
