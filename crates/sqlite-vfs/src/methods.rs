//! What SQLite sees of an open file: a table of functions in C's way, each a line to a method of [`OpenFile`].

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::rc::Rc;

use rusqlite::ffi::{self, sqlite3_file, sqlite3_io_methods};
use weir_sqlite_syncs::Mode;

use crate::file::{Answer, Database, OpenFile};

/// Bytes that a write needs not share with another one: those of a block.
const SECTOR_BYTES: c_int = 4096;

/// A file in SQLite's memory. SQLite sees the first member.
#[repr(C)]
pub(crate) struct RawFile {
    base: sqlite3_file,
    open: *mut OpenFile,
}

impl RawFile {
    /// Fills SQLite's memory: with an open file, or with none.
    ///
    /// # Safety
    /// `file` points to as much memory as a `RawFile` has.
    pub(crate) unsafe fn fill(file: *mut sqlite3_file, open: Option<OpenFile>) {
        let methods = if open.is_some() { &raw const METHODS } else { std::ptr::null() };
        let open = open.map_or(null_mut(), |open| Box::into_raw(Box::new(open)));
        // SAFETY: as the caller promises.
        unsafe { file.cast::<RawFile>().write(RawFile { base: sqlite3_file { pMethods: methods }, open }) };
    }

    /// The database that an open file is, if it is one of this VFS.
    ///
    /// # Safety
    /// `file` is null, or points to an open file of some VFS.
    pub(crate) unsafe fn database(file: *mut sqlite3_file) -> Option<Rc<Database>> {
        // SAFETY: every open file begins with its methods; with these methods it is one of ours.
        unsafe {
            let ours = !file.is_null() && std::ptr::eq((*file).pMethods, &raw const METHODS);
            ours.then(|| open_file(file).as_database().cloned()).flatten()
        }
    }
}

/// The open file behind SQLite's.
///
/// # Safety
/// `file` is an open file of this VFS, and no other call closes it meanwhile.
unsafe fn open_file<'a>(file: *mut sqlite3_file) -> &'a OpenFile {
    // SAFETY: an open file has one, until it is closed.
    unsafe { &*(*file.cast::<RawFile>()).open }
}

fn code(answer: Answer) -> c_int {
    answer.err().unwrap_or(ffi::SQLITE_OK)
}

static METHODS: sqlite3_io_methods = sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    // SAFETY: SQLite calls with an open file, and does not use it again.
    unsafe {
        let open = Box::from_raw((*file.cast::<RawFile>()).open);
        RawFile::fill(file, None);
        open.close();
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn read(file: *mut sqlite3_file, into: *mut c_void, length: c_int, offset: i64) -> c_int {
    // SAFETY: SQLite calls with an open file, and room for as many bytes, which may not be initialised: they are
    // numbers, and every one of them is written.
    unsafe {
        let length = usize::try_from(length).unwrap_or(0);
        into.cast::<u8>().write_bytes(0, length);
        code(open_file(file).read(std::slice::from_raw_parts_mut(into.cast(), length), offset))
    }
}

unsafe extern "C" fn write(
    file: *mut sqlite3_file,
    bytes: *const c_void,
    length: c_int,
    offset: i64,
) -> c_int {
    // SAFETY: SQLite calls with an open file, and so many bytes.
    unsafe {
        let bytes = std::slice::from_raw_parts(bytes.cast(), usize::try_from(length).unwrap_or(0));
        code(open_file(file).write(bytes, offset))
    }
}

unsafe extern "C" fn truncate(file: *mut sqlite3_file, size: i64) -> c_int {
    // SAFETY: SQLite calls with an open file.
    code(unsafe { open_file(file) }.truncate(size))
}

unsafe extern "C" fn sync(file: *mut sqlite3_file, _: c_int) -> c_int {
    // SAFETY: SQLite calls with an open file.
    code(unsafe { open_file(file) }.synchronise())
}

unsafe extern "C" fn file_size(file: *mut sqlite3_file, size: *mut i64) -> c_int {
    // SAFETY: SQLite calls with an open file, and room for a number.
    unsafe { code(open_file(file).size().map(|found| *size = found)) }
}

unsafe extern "C" fn lock(file: *mut sqlite3_file, level: c_int) -> c_int {
    // SAFETY: SQLite calls with an open file.
    code(unsafe { open_file(file) }.lock(level))
}

unsafe extern "C" fn unlock(file: *mut sqlite3_file, level: c_int) -> c_int {
    // SAFETY: SQLite calls with an open file.
    unsafe { open_file(file) }.unlock(level);
    ffi::SQLITE_OK
}

unsafe extern "C" fn check_reserved_lock(file: *mut sqlite3_file, answer: *mut c_int) -> c_int {
    // SAFETY: SQLite calls with an open file, and room for a number.
    unsafe { *answer = open_file(file).is_reserved().into() };
    ffi::SQLITE_OK
}

unsafe extern "C" fn file_control(file: *mut sqlite3_file, operation: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: SQLite calls with an open file.
    let open = unsafe { open_file(file) };
    match (operation, open.as_database()) {
        (ffi::SQLITE_FCNTL_SYNC, Some(database)) => {
            database.with_super_journal.set(!argument.is_null());
            ffi::SQLITE_OK
        }
        (ffi::SQLITE_FCNTL_COMMIT_PHASETWO, Some(_)) => code(open.finish()),
        (ffi::SQLITE_FCNTL_BEGIN_ATOMIC_WRITE, Some(_)) => code(open.begin_batch()),
        (ffi::SQLITE_FCNTL_COMMIT_ATOMIC_WRITE, Some(_)) => code(open.commit_batch()),
        (ffi::SQLITE_FCNTL_ROLLBACK_ATOMIC_WRITE, Some(_)) => {
            open.roll_back_batch();
            ffi::SQLITE_OK
        }
        // SAFETY: this is what the argument of this operation is.
        (ffi::SQLITE_FCNTL_PRAGMA, Some(database)) => unsafe { pragma(open, database, argument.cast()) },
        _ => ffi::SQLITE_NOTFOUND,
    }
}

/// `PRAGMA weir` tells the mode that is in force, `PRAGMA weir = ...` sets it. `PRAGMA weir_atomic` tells whether the
/// database is an atomic file, `PRAGMA weir_atomic = 1` makes it one, 0 an ordinary one.
///
/// # Safety
/// `argument` is that of `SQLITE_FCNTL_PRAGMA`: an answer, a name, and a value that may be null.
unsafe fn pragma(open: &OpenFile, database: &Database, argument: *mut *mut c_char) -> c_int {
    // SAFETY: the strings end with a zero, and the third may be null.
    let (name, value) = unsafe {
        let value = *argument.add(2);
        (CStr::from_ptr(*argument.add(1)), (!value.is_null()).then(|| CStr::from_ptr(value)))
    };
    let (answer, done) = match name.to_bytes() {
        name if name.eq_ignore_ascii_case(b"weir") => mode_pragma(database, value),
        name if name.eq_ignore_ascii_case(b"weir_atomic") => atomic_pragma(open, database, value),
        _ => return ffi::SQLITE_NOTFOUND,
    };
    // SAFETY: SQLite frees what mprintf has allocated.
    unsafe { *argument = ffi::sqlite3_mprintf(c"%s".as_ptr(), answer.as_ptr()) };
    done
}

fn mode_pragma(database: &Database, value: Option<&CStr>) -> (&'static CStr, c_int) {
    match value.map(|value| Mode::of_name(value.to_bytes())) {
        Some(None) => (c"PRAGMA weir is one of durable, order and off", ffi::SQLITE_ERROR),
        wanted => {
            database.mode.set(wanted.flatten().unwrap_or(database.mode.get()));
            (database.mode.get().name(), ffi::SQLITE_OK)
        }
    }
}

fn atomic_pragma(open: &OpenFile, database: &Database, value: Option<&CStr>) -> (&'static CStr, c_int) {
    let set = match value.map(CStr::to_bytes) {
        None => Ok(()),
        Some(b"1") => open.set_atomic(true),
        Some(b"0") => open.set_atomic(false),
        Some(_) => Err(c"PRAGMA weir_atomic is 0 or 1"),
    };
    match set {
        Ok(()) => (if database.atomic.get() { c"1" } else { c"0" }, ffi::SQLITE_OK),
        Err(why) => (why, ffi::SQLITE_ERROR),
    }
}

unsafe extern "C" fn sector_size(_: *mut sqlite3_file) -> c_int {
    SECTOR_BYTES
}

/// As for any file on Linux. A block is written as a whole or not at all, so what is beside the bytes of a write is
/// never damaged. To an atomic file many can be written as one.
unsafe extern "C" fn device_characteristics(file: *mut sqlite3_file) -> c_int {
    let always = ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE | ffi::SQLITE_IOCAP_SUBPAGE_READ;
    // SAFETY: SQLite calls with an open file.
    let database = unsafe { open_file(file) }.as_database();
    let atomic = database.is_some_and(|database| database.atomic.get());
    if atomic { always | ffi::SQLITE_IOCAP_BATCH_ATOMIC } else { always }
}

unsafe extern "C" fn shm_map(
    file: *mut sqlite3_file,
    region: c_int,
    bytes: c_int,
    extend: c_int,
    at: *mut *mut c_void,
) -> c_int {
    let (Ok(region), Ok(bytes)) = (usize::try_from(region), usize::try_from(bytes)) else {
        return ffi::SQLITE_IOERR_SHMMAP;
    };
    // SAFETY: SQLite calls with an open file, and room for a pointer.
    unsafe {
        *at = null_mut();
        code(open_file(file).map(region, bytes, extend != 0).map(|found| *at = found))
    }
}

unsafe extern "C" fn shm_lock(file: *mut sqlite3_file, first: c_int, count: c_int, flags: c_int) -> c_int {
    let (Ok(first), Ok(count)) = (usize::try_from(first), usize::try_from(count)) else {
        return ffi::SQLITE_IOERR_SHMLOCK;
    };
    // SAFETY: SQLite calls with an open file.
    let open = unsafe { open_file(file) };
    if flags & ffi::SQLITE_SHM_UNLOCK != 0 {
        open.unlock_index(first..first + count);
        return ffi::SQLITE_OK;
    }
    code(open.lock_index(first..first + count, flags & ffi::SQLITE_SHM_EXCLUSIVE != 0))
}

/// All connections are on one thread, which sees its own writes in order.
unsafe extern "C" fn shm_barrier(_: *mut sqlite3_file) {}

unsafe extern "C" fn shm_unmap(file: *mut sqlite3_file, _: c_int) -> c_int {
    // SAFETY: SQLite calls with an open file.
    unsafe { open_file(file) }.unmap();
    ffi::SQLITE_OK
}
