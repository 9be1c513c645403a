//! A database, a rollback journal or a write-ahead log: the real file, and what has to be known of it to tell what
//! its syncs become.

use std::ffi::{CStr, CString, c_char, c_int};
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr::null;

use weir::{FBARRIER, FDATABARRIER};
use weir_sqlite_syncs::{
    Batch, Finish, Mode, Pending, Sync, WAL_FRAME_HEADER_BYTES, WAL_HEADER_BYTES, What, at_commit, at_sync,
    leaves_directory,
};

use crate::abi::{
    File, IO_ERROR_DIR_FSYNC, IO_ERROR_FSYNC, IoMethods, OK, OPEN_CREATE, OPEN_DELETE_ON_CLOSE,
    OPEN_EXCLUSIVE, OPEN_MAIN_DB, OPEN_MAIN_JOURNAL, OPEN_READWRITE, OPEN_WAL, SQLITE_ERROR,
};
use crate::held::Held;
use crate::kept::{Kept, Name, Room};
use crate::methods::wrapped;
use crate::mounted_database::{Descriptor, Identity, MountedDatabase};
use crate::real::{self, Real};
use crate::vfs::Weir;

/// An open file. SQLite makes the room and sees the first member.
#[repr(C)]
pub(crate) struct OrderedFile {
    base: File,
    methods: IoMethods,
    pub(crate) weir: &'static Weir,
    pub(crate) role: Role,
    pub(crate) real: Real,
    /// The mount orders each write that leaves the size as it is.
    orders_writes: bool,
    /// The connection has the lock of a writer.
    pub(crate) is_writing: bool,
}

/// What a file is.
pub(crate) enum Role {
    Database(Database),
    Journal(Journal),
    Wal(Wal),
}

/// A connection's database.
pub(crate) struct Database {
    mode: Mode,
    /// `None` if it, or one of its journals, is not on a mount of Weir.
    pub(crate) place: Option<MountedDatabase>,
    path: CString,
    /// The journal that is open and can be ordered.
    pub(crate) journal: Option<*mut OrderedFile>,
    wal: Option<*mut OrderedFile>,
    pub(crate) with_super_journal: bool,
    pending: Pending,
    /// It is an atomic file, so SQLite may write transactions without a journal.
    pub(crate) atomic: bool,
    pub(crate) batch: Batch,
}

/// The rollback journal of a database.
pub(crate) struct Journal {
    of: *mut OrderedFile,
    name: Name,
    /// Where the real file is.
    room: Option<Room>,
    /// It was kept from the transaction before.
    was_kept: bool,
    /// The transaction has ended: the journal is empty, or its header is zeroed.
    pub(crate) ended: bool,
    /// Something was written since it was last ordered.
    pub(crate) unordered: bool,
    /// What it holds is of an earlier transaction and goes before anything is written.
    pub(crate) is_old: bool,
    held: Held,
}

/// The write-ahead log of a database.
pub(crate) struct Wal {
    of: *mut OrderedFile,
    /// Frames were written since it was last synchronised.
    frames: bool,
    /// Where the frames end that were written since the log's lock was last taken or released.
    end: i64,
    /// The header of a frame, whose page is to come.
    held: Held,
}

/// What a file is that is to be opened. `None` if it is none of those that are known here.
///
/// # Safety
/// As of `xOpen`.
pub(crate) unsafe fn role(weir: &Weir, name: *const c_char, flags: c_int) -> Option<Role> {
    if name.is_null() {
        return None;
    }
    // SAFETY: a name ends with a zero.
    let path = unsafe { CStr::from_ptr(name) };
    if flags & OPEN_MAIN_DB != 0 {
        // SAFETY: a database's name has its URI's parameters behind it.
        let parameter = unsafe { (weir.routines.uri_parameter)(name, c"weir".as_ptr()) };
        // SAFETY: a parameter ends with a zero.
        let mode = (!parameter.is_null()).then(|| unsafe { CStr::from_ptr(parameter) });
        let mode = mode.and_then(|name| Mode::of_name(name.to_bytes())).unwrap_or_default();
        return Some(Role::Database(Database::new(mode, path.to_owned())));
    }
    let journal = flags & OPEN_MAIN_JOURNAL != 0;
    // A journal that is only read is not synchronised; and some versions of SQLite read journals of other databases
    // so, with names that no database can be found by.
    if flags & OPEN_READWRITE == 0 || (!journal && flags & OPEN_WAL == 0) {
        return None;
    }
    // SAFETY: it is the very pointer that SQLite has for the name of a journal or write-ahead log.
    let database = unsafe { (weir.routines.database_file_object)(name) };
    // SAFETY: the database of a journal that is being opened is open, or at least its memory is there.
    let of = unsafe { OrderedFile::of_database(database) }?;
    if !journal {
        return Some(Role::Wal(Wal { of, frames: false, end: 0, held: Held::default() }));
    }
    let held = Held::default();
    Some(Role::Journal(Journal {
        of,
        name: Name::new(path),
        room: None,
        was_kept: false,
        ended: false,
        unordered: false,
        is_old: false,
        held,
    }))
}

impl Database {
    fn new(mode: Mode, path: CString) -> Database {
        Database {
            mode,
            place: None,
            path,
            journal: None,
            wal: None,
            with_super_journal: false,
            pending: Pending::Nothing,
            atomic: false,
            batch: Batch::Nothing,
        }
    }

    /// The mode that is in force.
    fn mode(&self) -> Mode {
        if self.place.is_some() { self.mode } else { Mode::Off }
    }

    /// Takes in the journal or log that was opened. Barriers order files of one filesystem only: with a journal that
    /// is somewhere else, nothing is left to them.
    fn joined_by(&mut self, descriptor: Option<Descriptor>) -> Option<RawFd> {
        let with = descriptor
            .filter(|descriptor| self.place.as_ref().is_some_and(|place| place.is_with(*descriptor)));
        if with.is_none() {
            (self.place, self.pending) = (None, Pending::Nothing);
        }
        with.map(|descriptor| descriptor.fd)
    }

    /// Has written what its journal and its log hold back: the database is not changed or unlocked before.
    pub(crate) fn put_journal_down(&mut self) -> Result<(), c_int> {
        // SAFETY: they are open, and tell when they are closed.
        self.journal.into_iter().chain(self.wal).try_for_each(|file| unsafe { (*file).put_down() })
    }

    fn journal_descriptor(&self) -> Option<RawFd> {
        // SAFETY: the journal is open, and tells when it is closed.
        self.journal.and_then(|journal| unsafe { (*journal).real.fd })
    }

    /// Whether its path leads to another file, or to none. `None` if that is not known here.
    pub(crate) fn has_moved(&self) -> Option<bool> {
        let identity = self.place.as_ref()?.descriptor.identity;
        Some(Identity::from_path(&self.path) != Some(identity))
    }
}

impl OrderedFile {
    /// The file that SQLite names as a journal's database, if it is one of these. Another VFS may stand between.
    ///
    /// # Safety
    /// `file` is null, or points to memory of an open file.
    unsafe fn of_database(file: *mut File) -> Option<*mut OrderedFile> {
        let ours = file.cast::<OrderedFile>();
        // SAFETY: a file has at least its methods; only one of these has them in itself, behind that.
        unsafe {
            let is_ours = !ours.is_null() && (*ours).base.methods == &raw const (*ours).methods;
            (is_ours && matches!((*ours).role, Role::Database(_))).then_some(ours)
        }
    }

    /// Opens a file.
    ///
    /// # Safety
    /// As of `xOpen`, of the VFS `weir`; `role` was found out for the same call.
    pub(crate) unsafe fn open(
        weir: &'static Weir,
        mut role: Role,
        name: *const c_char,
        file: *mut File,
        flags: c_int,
        flags_out: *mut c_int,
    ) -> c_int {
        // SAFETY: SQLite gave room for both; nothing of the real file is left uninitialised, as some of it is read.
        unsafe {
            (*file).methods = null();
            let path = CStr::from_ptr(name);
            let (real, kept, name) = match &mut role {
                Role::Journal(journal) => {
                    let (real, kept) = journal.find(weir, flags);
                    (real, kept, journal.name.as_ptr())
                }
                Role::Database(_) | Role::Wal(_) => {
                    let behind = file.byte_add(size_of::<OrderedFile>());
                    behind.cast::<u8>().write_bytes(0, weir.real_bytes());
                    (behind, None, name)
                }
            };
            let orders_writes = kept.is_some_and(|(_, orders_writes)| orders_writes);
            let mut descriptor = kept.map(|(descriptor, _)| descriptor);
            if descriptor.is_none() {
                let opened = weir.open_real(name, real, flags, flags_out);
                if opened != OK {
                    real::close(real);
                    return opened;
                }
                descriptor = Descriptor::from_file(real, weir.real, path);
            } else if !flags_out.is_null() {
                *flags_out = flags;
            }
            let methods = wrapped((*real).methods);
            let size = descriptor.map_or(0, |descriptor| descriptor.size);
            let base = File { methods: null() };
            let ours = file.cast::<OrderedFile>();
            // An empty file may be new.
            let real = Real { file: real, fd: None, resized: size == 0, in_batch: false };
            ours.write(OrderedFile { base, methods, weir, role, real, orders_writes, is_writing: false });
            (*ours).base.methods = &raw const (*ours).methods;
            OrderedFile::joins(ours, descriptor, path);
            OrderedFile::joins_atomic(ours, size, flags);
        }
        OK
    }

    /// Finds out whether the file can be ordered, and tells its database that it is open. The database keeps `this`, and
    /// uses it after SQLite has: so it is SQLite's pointer, and not one that was made of a reference.
    ///
    /// # Safety
    /// `this` is open, in memory that SQLite gave, and no code has a reference to it.
    unsafe fn joins(this: *mut OrderedFile, descriptor: Option<Descriptor>, path: &CStr) {
        // SAFETY: as the caller promises.
        let fd = match unsafe { &mut (*this).role } {
            Role::Database(database) => {
                database.place = descriptor.and_then(|descriptor| MountedDatabase::open(descriptor, path));
                database.place.as_ref().map(|place| place.descriptor.fd)
            }
            Role::Journal(journal) => {
                // SAFETY: SQLite closes a database after its journals.
                let database = unsafe { (*journal.of).database() };
                let fd = database.joined_by(descriptor);
                database.journal = fd.map(|_| this);
                fd
            }
            Role::Wal(Wal { of, .. }) => {
                // SAFETY: as above.
                let database = unsafe { (**of).database() };
                database.wal = Some(this);
                database.joined_by(descriptor)
            }
        };
        // SAFETY: as above; no code uses the reference to its role any more.
        unsafe { (*this).real.fd = fd };
    }

    /// Tells the database that its journal or log is closed. The real file is closed with it, or kept.
    pub(crate) fn leave(mut self) -> c_int {
        self.roll_back_batch();
        let down = self.put_down();
        // SAFETY: no code uses it again.
        let closed = || unsafe { real::close(self.real.file) };
        match self.role {
            Role::Database(_) => closed(),
            Role::Journal(mut journal) => {
                // SAFETY: SQLite closes a database after its journals.
                let database = unsafe { (*journal.of).database() };
                database.journal = None;
                let leaves = leaves_directory(database.mode, database.pending);
                self.weir.leaving.closed(journal.name.path(), leaves);
                match (journal.room.take(), self.real.fd.and_then(Descriptor::from_fd)) {
                    (Some(room), Some(descriptor)) if journal.ended && down.is_ok() => {
                        let of = journal.of.addr();
                        let orders_writes = self.orders_writes;
                        self.weir.kept.put(Kept { name: journal.name, descriptor, room, orders_writes, of });
                        OK
                    }
                    // The room is there until then.
                    (_room, _) => closed(),
                }
            }
            Role::Wal(wal) => {
                // SAFETY: as above.
                unsafe { (*wal.of).database().wal = None };
                closed()
            }
        }
    }

    /// The database that the file is, or belongs to.
    pub(crate) fn database(&mut self) -> &mut Database {
        match &mut self.role {
            Role::Database(database) => database,
            // SAFETY: SQLite closes a database after its journals, and its thread uses one of them at a time.
            Role::Journal(Journal { of, .. }) | Role::Wal(Wal { of, .. }) => unsafe { (**of).database() },
        }
    }

    /// Has written what is held back, of this file or of its journal.
    pub(crate) fn put_down(&mut self) -> Result<(), c_int> {
        let write = |offset, bytes: &[u8]| self.real.write(offset, bytes);
        match &mut self.role {
            Role::Database(database) => database.put_journal_down(),
            Role::Journal(Journal { held, .. }) => held.put_down(write),
            Role::Wal(Wal { held, .. }) => held.put_down_or_drop(write),
        }
    }

    /// The same where a lock is taken or released. Others may have used the log anew, or do so next.
    pub(crate) fn put_down_at_lock(&mut self) -> Result<(), c_int> {
        let down = self.put_down();
        if let Role::Database(Database { wal: Some(wal), .. }) = &self.role {
            // SAFETY: the log is open, and tells when it is closed.
            unsafe { (**wal).forget_end() };
        }
        down
    }

    fn forget_end(&mut self) {
        if let Role::Wal(wal) = &mut self.role {
            wal.end = 0;
        }
    }

    /// Writes, or holds back what is to be written: a journal until it is synchronised or the database is changed, the
    /// header of a frame until its page comes. Until then no reader needs them, and a program that dies leaves what it
    /// would have left a moment before.
    pub(crate) fn write(&mut self, offset: i64, bytes: &[u8]) -> Result<(), c_int> {
        let length = bytes.len() as i64;
        let ordered = self.real.fd.is_some();
        self.order_journal()?;
        let real = &mut self.real;
        match &mut self.role {
            Role::Database(_) => real.write(offset, bytes),
            Role::Journal(journal) => {
                journal.unordered = true;
                if std::mem::take(&mut journal.is_old) {
                    real.truncate(0)?;
                }
                let mut write = |offset, bytes: &[u8]| real.write(offset, bytes);
                journal.ended = offset == 0 && bytes.iter().all(|byte| *byte == 0);
                if ordered && journal.held.take(offset, bytes) {
                    return Ok(());
                }
                journal.held.put_down(&mut write)?;
                if ordered && journal.held.take(offset, bytes) { Ok(()) } else { write(offset, bytes) }
            }
            Role::Wal(wal) => {
                let mut write = |offset, bytes: &[u8]| real.write(offset, bytes);
                wal.frames |= offset.saturating_add(length) > WAL_HEADER_BYTES;
                let follows = !wal.held.range().is_empty() && wal.held.take(offset, bytes);
                // A caller that gets an error writes the frame anew, or another connection writes one there.
                wal.held.put_down_or_drop(&mut write)?;
                // SQLite corrects the checksums of frames that it has written over: no page comes behind that.
                let is_new = offset >= wal.end;
                wal.end = wal.end.max(offset.saturating_add(length));
                let is_header =
                    ordered && is_new && length == WAL_FRAME_HEADER_BYTES && offset >= WAL_HEADER_BYTES;
                if follows || (is_header && wal.held.take(offset, bytes)) {
                    return Ok(());
                }
                write(offset, bytes)
            }
        }
    }

    /// Whether it is a journal that has nothing at `offset`, nor behind that.
    pub(crate) fn ends_before(&self, offset: i64) -> bool {
        let known = self.real.fd.filter(|_| matches!(self.role, Role::Journal(_)));
        known.and_then(Descriptor::from_fd).is_some_and(|found| found.size <= offset)
    }

    /// Reads what is held back; whether all that is wanted was. What is wanted in part is put down.
    pub(crate) fn read_held(&mut self, offset: i64, into: &mut [u8]) -> Result<bool, c_int> {
        let (Role::Journal(Journal { held, .. }) | Role::Wal(Wal { held, .. })) = &self.role else {
            return Ok(false);
        };
        let end = offset.saturating_add(into.len() as i64);
        if end <= held.range().start || offset >= held.range().end {
            return Ok(false);
        }
        let is_held = held.read(offset, into);
        if !is_held {
            self.put_down()?;
        }
        Ok(is_held)
    }

    fn what(&self) -> What {
        match &self.role {
            Role::Database(database) if database.batch == Batch::Complete => What::Batch,
            Role::Database(database) if database.wal.is_some() => What::Checkpointed,
            Role::Database(database) => What::Database { with_super_journal: database.with_super_journal },
            Role::Journal(_) => What::Journal,
            Role::Wal(wal) => What::Wal { frames: wal.frames },
        }
    }

    /// Synchronises the file, or orders it. `synchronise` is the real one.
    pub(crate) fn synchronise(&mut self, synchronise: impl FnOnce() -> c_int) -> c_int {
        let what = self.what();
        if what == What::Batch
            && let Err(error) = self.end_batch()
        {
            return error;
        }
        let barrier = at_sync(self.database().mode(), what) == Sync::Barrier;
        if barrier && let Role::Database(database) = &mut self.role {
            database.pending = match what {
                What::Checkpointed | What::Batch => database.pending,
                _ if database.journal.is_some() => Pending::WithJournal,
                _ => Pending::Alone,
            };
        }
        // What was written to an atomic file waits for a call.
        if barrier && self.orders_writes && !self.real.resized && !self.is_atomic() {
            return OK;
        }
        if barrier {
            self.order_writes();
        }
        let request = if self.real.resized { FBARRIER } else { FDATABARRIER };
        let done = match self.real.fd.filter(|_| barrier).and_then(|fd| weir::order_mounted(fd, request)) {
            Some(0) => OK,
            Some(_) => IO_ERROR_FSYNC,
            None => synchronise(),
        };
        if done == OK {
            self.real.resized = false;
            match &mut self.role {
                Role::Wal(wal) => wal.frames = false,
                Role::Journal(journal) => journal.unordered = false,
                Role::Database(_) => {}
            }
        }
        done
    }

    /// Asks the mount to order each write from now on, which spares most barriers their trip. It is worth one only for
    /// what stays open, and it makes a little slower the writes that no barrier follows.
    fn order_writes(&mut self) {
        let is_worth_it = match &self.role {
            Role::Database(database) => !database.atomic,
            Role::Journal(journal) => journal.was_kept,
            // What is synchronised before a checkpoint are frames of others, too, which may have ordered none of them.
            Role::Wal(_) => false,
        };
        if is_worth_it && !self.orders_writes {
            self.orders_writes = self.real.fd.is_some_and(weir::order_writes);
        }
    }

    /// Makes a transaction durable that was committed, if that is still to be done.
    pub(crate) fn finish(&mut self, synchronise: impl FnOnce() -> c_int) -> c_int {
        // Nothing was synchronised: it is not pending, but has to be there.
        if let Err(error) = self.end_batch() {
            return error;
        }
        let Role::Database(database) = &mut self.role else { return OK };
        let pending = std::mem::take(&mut database.pending);
        match at_commit(database.mode, pending, database.journal.is_some()) {
            Finish::Nothing => OK,
            Finish::Database => synchronise(),
            Finish::Journal => match database.journal_descriptor() {
                // SAFETY: it is the descriptor of the journal, which is open.
                Some(fd) if rustix::fs::fdatasync(unsafe { BorrowedFd::borrow_raw(fd) }).is_ok() => OK,
                _ => IO_ERROR_FSYNC,
            },
            Finish::Directory => match database.place.as_ref().map(MountedDatabase::synchronise_directory) {
                Some(Ok(())) => OK,
                _ => IO_ERROR_DIR_FSYNC,
            },
        }
    }

    /// `PRAGMA weir` tells the mode that is in force, `PRAGMA weir = ...` sets it. `PRAGMA weir_atomic` tells whether the
    /// database is an atomic file, 1 makes it one and 0 an ordinary one. `None` for other pragmas.
    ///
    /// # Safety
    /// `argument` is that of `SQLITE_FCNTL_PRAGMA`.
    pub(crate) unsafe fn pragma(&mut self, argument: *mut *mut c_char) -> Option<c_int> {
        // SAFETY: its strings end with a zero, and the third may be null.
        let (name, value) = unsafe {
            let value = *argument.add(2);
            (CStr::from_ptr(*argument.add(1)), (!value.is_null()).then(|| CStr::from_ptr(value)))
        };
        let print = self.weir.routines.mprintf;
        let (answer, done) = match name.to_bytes() {
            name if name.eq_ignore_ascii_case(b"weir") => self.mode_pragma(value),
            name if name.eq_ignore_ascii_case(b"weir_atomic") => self.atomic_pragma(value),
            _ => return None,
        };
        // SAFETY: SQLite frees what mprintf has allocated.
        unsafe { *argument = print(c"%s".as_ptr(), answer.as_ptr()) };
        Some(done)
    }

    fn mode_pragma(&mut self, value: Option<&CStr>) -> (&'static CStr, c_int) {
        match value.map(|value| Mode::of_name(value.to_bytes())) {
            Some(None) => (c"PRAGMA weir is one of durable, order and off", SQLITE_ERROR),
            wanted => {
                let database = self.database();
                database.mode = wanted.flatten().unwrap_or(database.mode);
                (database.mode().name(), OK)
            }
        }
    }
}

impl Journal {
    /// Finds the real file: one that was kept, with its descriptor and whether its writes are ordered, or room for one
    /// that is to be opened.
    fn find(&mut self, weir: &Weir, flags: c_int) -> (*mut File, Option<(Descriptor, bool)>) {
        // One that is not to be made is to be rolled back. Others have written it, and may have ordered nothing: it is
        // opened anew, so that its sync is none that can be left out.
        let begins = flags & (OPEN_CREATE | OPEN_EXCLUSIVE | OPEN_DELETE_ON_CLOSE) == OPEN_CREATE;
        let kept = if begins { weir.kept.take(self.name.path()) } else { None };
        let found = kept.as_ref().map(|kept| (kept.descriptor, kept.orders_writes));
        self.was_kept = kept.is_some();
        let room = match kept {
            Some(kept) => {
                // The real file goes on by the name that it was opened by.
                self.name = kept.name;
                kept.room
            }
            None => Room::new(weir.real_bytes()),
        };
        let room = self.room.insert(room);
        (room.file(), found)
    }
}
