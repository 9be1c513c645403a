//! SQLite's binary interface, as far as it is used here: <https://sqlite.org/c3ref/intro.html>. It only ever grows
//! at the ends, and the versions in it say how far it reaches.

use std::ffi::{c_char, c_double, c_int, c_void};
use std::mem::offset_of;

pub(crate) const OK: c_int = 0;
pub(crate) const SQLITE_ERROR: c_int = 1;
pub(crate) const IO_ERROR: c_int = 10;
/// There is less to read; the rest of what is read into is zeroed.
pub(crate) const IO_ERROR_SHORT_READ: c_int = IO_ERROR | 2 << 8;
pub(crate) const IO_ERROR_FSYNC: c_int = IO_ERROR | 4 << 8;
pub(crate) const IO_ERROR_DIR_FSYNC: c_int = IO_ERROR | 5 << 8;
pub(crate) const IO_ERROR_BEGIN_ATOMIC: c_int = IO_ERROR | 29 << 8;
pub(crate) const IO_ERROR_COMMIT_ATOMIC: c_int = IO_ERROR | 30 << 8;
/// What an extension's start answers if its library is to stay in memory.
pub(crate) const OK_LOAD_PERMANENTLY: c_int = 256;

/// A flag of `xSync`: as far as the system by itself goes.
pub(crate) const SYNC_NORMAL: c_int = 2;

/// A level of `xLock`, from which on a connection may write.
pub(crate) const LOCK_RESERVED: c_int = 2;

/// A flag of `xAccess`: whether the file is there.
pub(crate) const ACCESS_EXISTS: c_int = 0;

pub(crate) const OPEN_DELETE_ON_CLOSE: c_int = 0x8;
pub(crate) const OPEN_EXCLUSIVE: c_int = 0x10;
pub(crate) const OPEN_READWRITE: c_int = 0x2;
pub(crate) const OPEN_CREATE: c_int = 0x4;
pub(crate) const OPEN_MAIN_DB: c_int = 0x100;
pub(crate) const OPEN_MAIN_JOURNAL: c_int = 0x800;
pub(crate) const OPEN_WAL: c_int = 0x8_0000;

/// Whether all that is written in a batch is there after a crash, or nothing of it.
pub(crate) const BATCH_ATOMIC: c_int = 0x4000;

/// Asks, with a number for the answer, why the last call of the system failed.
pub(crate) const FCNTL_LAST_ERRNO: c_int = 4;
/// The argument is an array of three strings: the answer, the pragma's name, and its value or null.
pub(crate) const FCNTL_PRAGMA: c_int = 14;
/// Asks, with a number for the answer, whether the path leads to another file now.
pub(crate) const FCNTL_HAS_MOVED: c_int = 20;
/// Comes before a transaction's sync of the database. The argument is the super-journal's name, or null.
pub(crate) const FCNTL_SYNC: c_int = 21;
/// A batch of writes begins.
pub(crate) const FCNTL_BEGIN_ATOMIC_WRITE: c_int = 31;
/// All of it is written.
pub(crate) const FCNTL_COMMIT_ATOMIC_WRITE: c_int = 32;
/// It is taken back.
pub(crate) const FCNTL_ROLLBACK_ATOMIC_WRITE: c_int = 33;
/// Comes after a transaction has been committed, and before its lock is released.
pub(crate) const FCNTL_COMMIT_PHASETWO: c_int = 22;

/// `sqlite3_file`, of which a VFS makes more.
#[repr(C)]
pub(crate) struct File {
    pub(crate) methods: *const IoMethods,
}

/// A function that may be missing, with its file.
macro_rules! method {
    ($($argument:ty),* $(; $result:ty)?) => { Option<unsafe extern "C" fn(*mut File $(, $argument)*) $(-> $result)?> };
}

/// A function that may be missing, with its VFS.
macro_rules! function {
    ($($argument:ty),* $(; $result:ty)?) => { Option<unsafe extern "C" fn(*mut Vfs $(, $argument)*) $(-> $result)?> };
}

/// `sqlite3_io_methods`.
#[repr(C)]
pub(crate) struct IoMethods {
    pub(crate) version: c_int,
    pub(crate) close: method!(; c_int),
    pub(crate) read: method!(*mut c_void, c_int, i64; c_int),
    pub(crate) write: method!(*const c_void, c_int, i64; c_int),
    pub(crate) truncate: method!(i64; c_int),
    pub(crate) sync: method!(c_int; c_int),
    pub(crate) file_size: method!(*mut i64; c_int),
    pub(crate) lock: method!(c_int; c_int),
    pub(crate) unlock: method!(c_int; c_int),
    pub(crate) check_reserved_lock: method!(*mut c_int; c_int),
    pub(crate) file_control: method!(c_int, *mut c_void; c_int),
    pub(crate) sector_size: method!(; c_int),
    pub(crate) device_characteristics: method!(; c_int),
    // From version 2.
    pub(crate) shm_map: method!(c_int, c_int, c_int, *mut *mut c_void; c_int),
    pub(crate) shm_lock: method!(c_int, c_int, c_int; c_int),
    pub(crate) shm_barrier: method!(),
    pub(crate) shm_unmap: method!(c_int; c_int),
    // From version 3.
    pub(crate) fetch: method!(i64, c_int, *mut *mut c_void; c_int),
    pub(crate) unfetch: method!(i64, *mut c_void; c_int),
}

/// A function of a library that was loaded, or of the system.
pub(crate) type Symbol = Option<unsafe extern "C" fn()>;

/// `sqlite3_vfs`.
#[repr(C)]
pub(crate) struct Vfs {
    pub(crate) version: c_int,
    /// Bytes of an open file.
    pub(crate) file_bytes: c_int,
    pub(crate) path_max: c_int,
    pub(crate) next: *mut Vfs,
    pub(crate) name: *const c_char,
    pub(crate) data: *mut c_void,
    pub(crate) open: function!(*const c_char, *mut File, c_int, *mut c_int; c_int),
    pub(crate) delete: function!(*const c_char, c_int; c_int),
    pub(crate) access: function!(*const c_char, c_int, *mut c_int; c_int),
    pub(crate) full_pathname: function!(*const c_char, c_int, *mut c_char; c_int),
    pub(crate) dl_open: function!(*const c_char; *mut c_void),
    pub(crate) dl_error: function!(c_int, *mut c_char),
    pub(crate) dl_sym: function!(*mut c_void, *const c_char; Symbol),
    pub(crate) dl_close: function!(*mut c_void),
    pub(crate) randomness: function!(c_int, *mut c_char; c_int),
    pub(crate) sleep: function!(c_int; c_int),
    pub(crate) current_time: function!(*mut c_double; c_int),
    pub(crate) get_last_error: function!(c_int, *mut c_char; c_int),
    // From version 2.
    pub(crate) current_time_int64: function!(*mut i64; c_int),
    // From version 3.
    pub(crate) set_system_call: function!(*const c_char, Symbol; c_int),
    pub(crate) get_system_call: function!(*const c_char; Symbol),
    pub(crate) next_system_call: function!(*const c_char; *const c_char),
}

/// `sqlite3_api_routines`: the functions that SQLite hands to an extension. Most are left out.
#[repr(C)]
#[derive(Debug)]
pub struct Routines {
    unused_0: [*const c_void; 67],
    pub(crate) libversion_number: unsafe extern "C" fn() -> c_int,
    unused_68: [*const c_void; 1],
    pub(crate) mprintf: unsafe extern "C" fn(*const c_char, ...) -> *mut c_char,
    unused_70: [*const c_void; 71],
    pub(crate) vfs_find: unsafe extern "C" fn(*const c_char) -> *mut Vfs,
    pub(crate) vfs_register: unsafe extern "C" fn(*mut Vfs, c_int) -> c_int,
    unused_143: [*const c_void; 46],
    pub(crate) uri_parameter: unsafe extern "C" fn(*const c_char, *const c_char) -> *const c_char,
    unused_190: [*const c_void; 61],
    /// The file of the database that a journal or write-ahead log belongs to. It takes the very pointer that the
    /// VFS was given for the name.
    pub(crate) database_file_object: unsafe extern "C" fn(*const c_char) -> *mut File,
}

#[cfg(test)]
impl Routines {
    /// Those that are used here; the two of a VFS find and register one.
    pub(crate) fn of_test(
        libversion_number: unsafe extern "C" fn() -> c_int,
        mprintf: unsafe extern "C" fn(*const c_char, ...) -> *mut c_char,
        of_vfs: (
            unsafe extern "C" fn(*const c_char) -> *mut Vfs,
            unsafe extern "C" fn(*mut Vfs, c_int) -> c_int,
        ),
        uri_parameter: unsafe extern "C" fn(*const c_char, *const c_char) -> *const c_char,
        database_file_object: unsafe extern "C" fn(*const c_char) -> *mut File,
    ) -> Routines {
        let (vfs_find, vfs_register) = of_vfs;
        let null = std::ptr::null();
        Routines {
            unused_0: [null; 67],
            libversion_number,
            unused_68: [null; 1],
            mprintf,
            unused_70: [null; 71],
            vfs_find,
            vfs_register,
            unused_143: [null; 46],
            uri_parameter,
            unused_190: [null; 61],
            database_file_object,
        }
    }
}

const _: () = {
    const POINTER: usize = size_of::<*const c_void>();
    assert!(offset_of!(Routines, libversion_number) == 67 * POINTER);
    assert!(offset_of!(Routines, mprintf) == 69 * POINTER);
    assert!(offset_of!(Routines, vfs_find) == 141 * POINTER);
    assert!(offset_of!(Routines, vfs_register) == 142 * POINTER);
    assert!(offset_of!(Routines, uri_parameter) == 189 * POINTER);
    assert!(offset_of!(Routines, database_file_object) == 251 * POINTER);
};
