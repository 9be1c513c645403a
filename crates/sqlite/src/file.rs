//! A database, a rollback journal or a write-ahead log: the real file, and what has to be known of it to tell what
//! its syncs become.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr::null;

use weir::{FBARRIER, FDATABARRIER};
use weir_sqlite_syncs::{Finish, Mode, Pending, Sync, WAL_HEADER_BYTES, What, at_commit, at_sync};

use crate::abi::{
    FCNTL_COMMIT_PHASETWO, FCNTL_PRAGMA, FCNTL_SYNC, File, IO_ERROR, IO_ERROR_DIR_FSYNC, IO_ERROR_FSYNC,
    IoMethods, OK, OPEN_MAIN_DB, OPEN_MAIN_JOURNAL, OPEN_READWRITE, OPEN_WAL, SQLITE_ERROR, SYNC_NORMAL,
};
use crate::place::{Descriptor, Place};
use crate::vfs::Weir;

/// An open file. SQLite makes the room and sees the first member; the file of the real VFS follows.
#[repr(C)]
pub(crate) struct OrderedFile {
    base: File,
    methods: IoMethods,
    weir: &'static Weir,
    role: Role,
    /// `None` if it is not known for certain.
    fd: Option<RawFd>,
    /// Bytes of the file, as far as it was written here.
    size: i64,
    /// It may have been made, or its size has changed, since it was last synchronised.
    resized: bool,
}

/// What a file is.
pub(crate) enum Role {
    Database(Database),
    /// The rollback journal of a database.
    Journal(*mut OrderedFile),
    /// The write-ahead log of a database.
    Wal {
        of: *mut OrderedFile,
        frames: bool,
    },
}

/// A connection's database.
pub(crate) struct Database {
    mode: Mode,
    /// `None` if it, or one of its journals, is not on a mount of Weir.
    place: Option<Place>,
    journal: Option<RawFd>,
    has_wal: bool,
    with_super_journal: bool,
    pending: Pending,
}

/// What a file is that is to be opened. `None` if it is none of those that are known here.
///
/// # Safety
/// As of `xOpen`.
pub(crate) unsafe fn role(weir: &Weir, name: *const c_char, flags: c_int) -> Option<Role> {
    if name.is_null() {
        return None;
    }
    if flags & OPEN_MAIN_DB != 0 {
        // SAFETY: a database's name has its URI's parameters behind it.
        let parameter = unsafe { (weir.routines.uri_parameter)(name, c"weir".as_ptr()) };
        // SAFETY: a parameter ends with a zero.
        let mode = (!parameter.is_null()).then(|| unsafe { CStr::from_ptr(parameter) });
        let mode = mode.and_then(|name| Mode::of_name(name.to_bytes())).unwrap_or_default();
        return Some(Role::Database(Database::new(mode)));
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
    Some(if journal { Role::Journal(of) } else { Role::Wal { of, frames: false } })
}

impl Database {
    fn new(mode: Mode) -> Database {
        Database {
            mode,
            place: None,
            journal: None,
            has_wal: false,
            with_super_journal: false,
            pending: Pending::Nothing,
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
        role: Role,
        name: *const c_char,
        file: *mut File,
        flags: c_int,
        flags_out: *mut c_int,
    ) -> c_int {
        // SAFETY: SQLite gave room for both; nothing of the real file is left uninitialised, as some of it is read.
        unsafe {
            (*file).methods = null();
            let behind = real(file);
            behind.cast::<u8>().write_bytes(0, usize::try_from((*weir.real).file_bytes).unwrap_or(0));
            let opened = weir.open_real(name, behind, flags, flags_out);
            if opened != OK {
                if let Some(close) = (*behind).methods.as_ref().and_then(|methods| methods.close) {
                    close(behind);
                }
                return opened;
            }
            let path = CStr::from_ptr(name);
            let descriptor = Descriptor::of(behind, weir.real, path);
            let methods = wrapped((*behind).methods);
            let size = descriptor.map_or(0, |descriptor| descriptor.size);
            let base = File { methods: null() };
            let ours = file.cast::<OrderedFile>();
            // An empty file may be new.
            let resized = size == 0;
            ours.write(OrderedFile { base, methods, weir, role, fd: None, size, resized });
            (*ours).base.methods = &raw const (*ours).methods;
            (*ours).joins(descriptor, path);
        }
        OK
    }

    /// Finds out whether the file can be ordered, and tells its database that it is open.
    fn joins(&mut self, descriptor: Option<Descriptor>, path: &CStr) {
        self.fd = match &mut self.role {
            Role::Database(database) => {
                database.place = descriptor.and_then(|descriptor| Place::of(descriptor, path));
                descriptor.map(|descriptor| descriptor.fd)
            }
            Role::Journal(of) => {
                // SAFETY: SQLite closes a database after its journals.
                let database = unsafe { (**of).database() };
                database.journal = database.joined_by(descriptor);
                database.journal
            }
            Role::Wal { of, .. } => {
                // SAFETY: as above.
                let database = unsafe { (**of).database() };
                database.has_wal = true;
                database.joined_by(descriptor)
            }
        };
    }

    /// Tells the database that its journal or log is closed.
    fn leaves(&mut self) {
        match self.role {
            Role::Database(_) => {}
            // SAFETY: SQLite closes a database after its journals.
            Role::Journal(of) => unsafe { (*of).database().journal = None },
            // SAFETY: as above.
            Role::Wal { of, .. } => unsafe { (*of).database().has_wal = false },
        }
    }

    /// The database that the file is, or belongs to.
    fn database(&mut self) -> &mut Database {
        match &mut self.role {
            Role::Database(database) => database,
            // SAFETY: SQLite closes a database after its journals, and its thread uses one of them at a time.
            Role::Journal(of) | Role::Wal { of, .. } => unsafe { (**of).database() },
        }
    }

    fn what(&self) -> What {
        match &self.role {
            Role::Database(database) if database.has_wal => What::Checkpointed,
            Role::Database(database) => What::Database { with_super_journal: database.with_super_journal },
            Role::Journal(_) => What::Journal,
            Role::Wal { frames, .. } => What::Wal { frames: *frames },
        }
    }

    /// Synchronises the file, or orders it. `synchronise` is the real one.
    fn synchronise(&mut self, synchronise: impl FnOnce() -> c_int) -> c_int {
        let what = self.what();
        let barrier = at_sync(self.database().mode(), what) == Sync::Barrier;
        if barrier && let Role::Database(database) = &mut self.role {
            database.pending = match what {
                What::Checkpointed => database.pending,
                _ if database.journal.is_some() => Pending::WithJournal,
                _ => Pending::Alone,
            };
        }
        let request = if self.resized { FBARRIER } else { FDATABARRIER };
        let done = match self.fd.filter(|_| barrier).and_then(|fd| weir::order_mounted(fd, request)) {
            Some(0) => OK,
            Some(_) => IO_ERROR_FSYNC,
            None => synchronise(),
        };
        if done == OK {
            self.resized = false;
            if let Role::Wal { frames, .. } = &mut self.role {
                *frames = false;
            }
        }
        done
    }

    /// Makes a transaction durable that was committed, if that is still to be done.
    fn finish(&mut self, synchronise: impl FnOnce() -> c_int) -> c_int {
        let Role::Database(database) = &mut self.role else { return OK };
        let pending = std::mem::take(&mut database.pending);
        match at_commit(database.mode, pending, database.journal.is_some()) {
            Finish::Nothing => OK,
            Finish::Database => synchronise(),
            Finish::Journal => match database.journal {
                // SAFETY: it is the descriptor of the journal, which is open.
                Some(fd) if rustix::fs::fdatasync(unsafe { BorrowedFd::borrow_raw(fd) }).is_ok() => OK,
                _ => IO_ERROR_FSYNC,
            },
            Finish::Directory => match database.place.as_ref().map(Place::synchronise_directory) {
                Some(Ok(())) => OK,
                _ => IO_ERROR_DIR_FSYNC,
            },
        }
    }

    /// `PRAGMA weir` tells the mode that is in force, `PRAGMA weir = ...` sets it. `None` for other pragmas.
    ///
    /// # Safety
    /// `argument` is that of `SQLITE_FCNTL_PRAGMA`.
    unsafe fn pragma(&mut self, argument: *mut *mut c_char) -> Option<c_int> {
        // SAFETY: its strings end with a zero, and the third may be null.
        let (name, value) = unsafe {
            let value = *argument.add(2);
            (CStr::from_ptr(*argument.add(1)), (!value.is_null()).then(|| CStr::from_ptr(value)))
        };
        if !name.to_bytes().eq_ignore_ascii_case(b"weir") {
            return None;
        }
        let print = self.weir.routines.mprintf;
        let (answer, done) = match value.map(|value| Mode::of_name(value.to_bytes())) {
            Some(None) => (c"PRAGMA weir is one of durable, order and off", SQLITE_ERROR),
            wanted => {
                let database = self.database();
                database.mode = wanted.flatten().unwrap_or(database.mode);
                (database.mode().name(), OK)
            }
        };
        // SAFETY: SQLite frees what mprintf has allocated.
        unsafe { *argument = print(c"%s".as_ptr(), answer.as_ptr()) };
        Some(done)
    }
}

/// The file of the real VFS.
///
/// # Safety
/// `file` has room for a file of the VFS `weir`.
unsafe fn real(file: *mut File) -> *mut File {
    // SAFETY: as the caller promises. What follows is aligned as well as this is.
    unsafe { file.byte_add(size_of::<OrderedFile>()) }
}

/// The methods of a file, before those of the real one: it has what that has.
///
/// # Safety
/// `methods` are those of an open file.
unsafe fn wrapped(methods: *const IoMethods) -> IoMethods {
    // SAFETY: the first version has these, and `since` reads the others only where there are any.
    unsafe {
        let version = (*methods).version.clamp(1, 3);
        macro_rules! since {
            ($first:literal, $name:ident) => {
                (version >= $first && (*methods).$name.is_some()).then_some($name as _)
            };
        }
        IoMethods {
            version,
            close: since!(1, close),
            read: since!(1, read),
            write: since!(1, write),
            truncate: since!(1, truncate),
            sync: since!(1, sync),
            file_size: since!(1, file_size),
            lock: since!(1, lock),
            unlock: since!(1, unlock),
            check_reserved_lock: since!(1, check_reserved_lock),
            file_control: since!(1, file_control),
            sector_size: since!(1, sector_size),
            device_characteristics: since!(1, device_characteristics),
            shm_map: since!(2, shm_map),
            shm_lock: since!(2, shm_lock),
            shm_barrier: since!(2, shm_barrier),
            shm_unmap: since!(2, shm_unmap),
            fetch: since!(3, fetch),
            unfetch: since!(3, unfetch),
        }
    }
}

/// Calls a method of the real file. One that it does not have is not in the table of ours either.
macro_rules! call_real {
    ($file:ident, $name:ident($($argument:expr),*)) => {{
        // SAFETY: SQLite calls with an open file, and with what the real one's method takes.
        unsafe {
            let real = real($file);
            match (*(*real).methods).$name {
                Some(method) => method(real $(, $argument)*),
                None => IO_ERROR,
            }
        }
    }};
}

unsafe extern "C" fn close(file: *mut File) -> c_int {
    let closed = call_real!(file, close());
    // SAFETY: SQLite calls with an open file, and does not use it again.
    unsafe {
        let mut ours = file.cast::<OrderedFile>().read();
        ours.leaves();
        (*file).methods = null();
    }
    closed
}

unsafe extern "C" fn write(file: *mut File, bytes: *const c_void, length: c_int, offset: i64) -> c_int {
    // SAFETY: SQLite calls with an open file.
    let ours = unsafe { &mut *file.cast::<OrderedFile>() };
    let end = offset.saturating_add(length.into());
    if end > ours.size {
        (ours.size, ours.resized) = (end, true);
    }
    if let Role::Wal { frames, .. } = &mut ours.role {
        *frames |= end > WAL_HEADER_BYTES;
    }
    call_real!(file, write(bytes, length, offset))
}

unsafe extern "C" fn truncate(file: *mut File, size: i64) -> c_int {
    // SAFETY: SQLite calls with an open file.
    let ours = unsafe { &mut *file.cast::<OrderedFile>() };
    (ours.size, ours.resized) = (size, true);
    call_real!(file, truncate(size))
}

unsafe extern "C" fn sync(file: *mut File, flags: c_int) -> c_int {
    // SAFETY: SQLite calls with an open file.
    let ours = unsafe { &mut *file.cast::<OrderedFile>() };
    ours.synchronise(|| call_real!(file, sync(flags)))
}

unsafe extern "C" fn file_control(file: *mut File, operation: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: SQLite calls with an open file.
    let ours = unsafe { &mut *file.cast::<OrderedFile>() };
    match (operation, &mut ours.role) {
        (FCNTL_SYNC, Role::Database(database)) => database.with_super_journal = !argument.is_null(),
        (FCNTL_COMMIT_PHASETWO, _) => {
            let finished = ours.finish(|| call_real!(file, sync(SYNC_NORMAL)));
            if finished != OK {
                return finished;
            }
        }
        (FCNTL_PRAGMA, Role::Database(_)) => {
            // SAFETY: this is what the argument of this operation is.
            if let Some(done) = unsafe { ours.pragma(argument.cast()) } {
                return done;
            }
        }
        _ => {}
    }
    call_real!(file, file_control(operation, argument))
}

/// Methods that do nothing but call the real file's.
macro_rules! delegate {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        unsafe extern "C" fn $name(file: *mut File $(, $argument: $type)*) -> c_int {
            call_real!(file, $name($($argument),*))
        }
    )*};
}

delegate! {
    read(into: *mut c_void, length: c_int, offset: i64);
    file_size(size: *mut i64);
    lock(level: c_int);
    unlock(level: c_int);
    check_reserved_lock(answer: *mut c_int);
    sector_size();
    device_characteristics();
    shm_map(region: c_int, bytes: c_int, extend: c_int, at: *mut *mut c_void);
    shm_lock(offset: c_int, count: c_int, flags: c_int);
    shm_unmap(delete: c_int);
    fetch(offset: i64, length: c_int, at: *mut *mut c_void);
    unfetch(offset: i64, at: *mut c_void);
}

unsafe extern "C" fn shm_barrier(file: *mut File) {
    // SAFETY: SQLite calls with an open file, whose real one has this method.
    unsafe {
        let real = real(file);
        if let Some(method) = (*(*real).methods).shm_barrier {
            method(real);
        }
    }
}
