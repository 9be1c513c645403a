//! SQLite's side of the interface, played by a test: files are opened, used and closed by pointers, in the order in which
//! SQLite does that, on a VFS in memory. There is no system call in it, so that Miri can look on: what it looks for are
//! references and pointers to one file that get in each other's way.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;

use super::abi::{FCNTL_COMMIT_PHASETWO, FCNTL_HAS_MOVED, FCNTL_SYNC};
use super::abi::{
    File, IO_ERROR_SHORT_READ, IoMethods, OK, OPEN_CREATE, OPEN_MAIN_DB, OPEN_MAIN_JOURNAL, OPEN_READWRITE,
    OPEN_WAL, Routines, Vfs,
};
use super::vfs::Weir;

const NOT_FOUND: c_int = 12;
/// A file without a name of its own, as temporary ones are.
const OPEN_TEMPORARY: c_int = 0x200;

/// A file in memory.
#[repr(C)]
struct InMemory {
    base: File,
    content: *mut Vec<u8>,
    /// It keeps the pointer, as SQLite's own VFS does.
    name: *const c_char,
}

thread_local! {
    /// The database that SQLite names as that of a journal.
    static DATABASE: Cell<*mut File> = const { Cell::new(null_mut()) };
    static SYNCS: Cell<u32> = const { Cell::new(0) };
}

static METHODS: IoMethods = IoMethods {
    version: 1,
    close: Some(close),
    read: Some(read),
    write: Some(write),
    truncate: Some(truncate),
    sync: Some(sync),
    file_size: Some(file_size),
    lock: Some(lock),
    unlock: Some(lock),
    check_reserved_lock: None,
    file_control: Some(file_control),
    sector_size: None,
    device_characteristics: None,
    shm_map: None,
    shm_lock: None,
    shm_barrier: None,
    shm_unmap: None,
    fetch: None,
    unfetch: None,
};

/// What is in a file.
///
/// # Safety
/// It is open, and no other code looks into it meanwhile.
unsafe fn content<'a>(file: *mut File) -> &'a mut Vec<u8> {
    // SAFETY: as the caller promises.
    unsafe { &mut *(*file.cast::<InMemory>()).content }
}

unsafe extern "C" fn open(
    _: *mut Vfs,
    name: *const c_char,
    file: *mut File,
    _: c_int,
    _: *mut c_int,
) -> c_int {
    let open =
        InMemory { base: File { methods: &raw const METHODS }, content: Box::into_raw(Box::default()), name };
    // SAFETY: the caller that opens a file has room for it.
    unsafe { file.cast::<InMemory>().write(open) };
    OK
}

unsafe extern "C" fn close(file: *mut File) -> c_int {
    // SAFETY: the file is open, and is not used again.
    unsafe {
        let InMemory { content, name, .. } = file.cast::<InMemory>().read();
        assert!(CStr::from_ptr(name).to_bytes().len() < 20);
        drop(Box::from_raw(content));
    }
    OK
}

unsafe extern "C" fn read(file: *mut File, into: *mut c_void, length: c_int, offset: i64) -> c_int {
    // SAFETY: the file is open.
    let found = unsafe { content(file) };
    // SAFETY: there is so much room.
    let room = unsafe { std::slice::from_raw_parts_mut(into.cast::<u8>(), length as usize) };
    let Some(found) = found.get(offset as usize..offset as usize + room.len()) else {
        room.fill(0);
        return IO_ERROR_SHORT_READ;
    };
    room.copy_from_slice(found);
    OK
}

unsafe extern "C" fn write(file: *mut File, bytes: *const c_void, length: c_int, offset: i64) -> c_int {
    // SAFETY: the file is open.
    let found = unsafe { content(file) };
    // SAFETY: there are so many bytes.
    let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), length as usize) };
    let end = offset as usize + bytes.len();
    found.resize(found.len().max(end), 0);
    found[offset as usize..end].copy_from_slice(bytes);
    OK
}

unsafe extern "C" fn truncate(file: *mut File, size: i64) -> c_int {
    // SAFETY: the file is open.
    unsafe { content(file).truncate(size as usize) };
    OK
}

unsafe extern "C" fn sync(_: *mut File, _: c_int) -> c_int {
    SYNCS.set(SYNCS.get() + 1);
    OK
}

unsafe extern "C" fn file_size(file: *mut File, size: *mut i64) -> c_int {
    // SAFETY: the file is open, and there is room for a number.
    unsafe { *size = content(file).len() as i64 };
    OK
}

unsafe extern "C" fn lock(_: *mut File, _: c_int) -> c_int {
    OK
}

unsafe extern "C" fn file_control(_: *mut File, _: c_int, _: *mut c_void) -> c_int {
    NOT_FOUND
}

unsafe extern "C" fn version() -> c_int {
    super::VERSION_MIN
}

unsafe extern "C" fn print(_: *const c_char) -> *mut c_char {
    null_mut()
}

unsafe extern "C" fn find(_: *const c_char) -> *mut Vfs {
    null_mut()
}

unsafe extern "C" fn register(_: *mut Vfs, _: c_int) -> c_int {
    OK
}

unsafe extern "C" fn parameter(_: *const c_char, name: *const c_char) -> *const c_char {
    // SAFETY: a parameter's name ends with a zero.
    assert_eq!(unsafe { CStr::from_ptr(name) }, c"weir");
    c"order".as_ptr()
}

unsafe extern "C" fn database(_: *const c_char) -> *mut File {
    DATABASE.get()
}

/// What SQLite has for as long as the process lives.
struct Registered(*mut Vfs);

// SAFETY: no code changes it, and the tests' files are each of one thread.
unsafe impl Send for Registered {}
// SAFETY: as above.
unsafe impl Sync for Registered {}

/// The VFS `weir` before one that has files in memory.
fn registered() -> *mut Vfs {
    static VFS: OnceLock<Registered> = OnceLock::new();
    VFS.get_or_init(|| {
        let real = Vfs {
            version: 1,
            file_bytes: size_of::<InMemory>() as c_int,
            path_max: 100,
            next: null_mut(),
            name: c"memory".as_ptr(),
            data: null_mut(),
            open: Some(open),
            delete: None,
            access: None,
            full_pathname: None,
            dl_open: None,
            dl_error: None,
            dl_sym: None,
            dl_close: None,
            randomness: None,
            sleep: None,
            current_time: None,
            get_last_error: None,
            current_time_int64: None,
            set_system_call: None,
            get_system_call: None,
            next_system_call: None,
        };
        // SAFETY: it is not called here: no pragma is asked for.
        let mprintf = unsafe {
            std::mem::transmute::<
                unsafe extern "C" fn(*const c_char) -> *mut c_char,
                unsafe extern "C" fn(*const c_char, ...) -> *mut c_char,
            >(print)
        };
        let routines = Routines::of_test(version, mprintf, (find, register), parameter, database);
        Registered(Weir::before(Box::leak(Box::new(real)), Box::leak(Box::new(routines))))
    })
    .0
}

/// SQLite's memory for a file, and what it calls of it.
struct Opened(Vec<u64>);

impl Opened {
    fn new(name: &CStr, flags: c_int) -> Opened {
        let vfs = registered();
        // SAFETY: the VFS is there for good; the file has the room that it asks for.
        unsafe {
            let mut room = Opened(vec![0; ((*vfs).file_bytes as usize).div_ceil(8)]);
            let mut flags_out = 0;
            let open = (*vfs).open.expect("it opens files");
            assert_eq!(open(vfs, name.as_ptr(), room.file(), flags, &raw mut flags_out), OK);
            room
        }
    }

    fn file(&mut self) -> *mut File {
        self.0.as_mut_ptr().cast()
    }
}

/// Calls a method of an open file, by SQLite's pointer, which stays the same from the opening on.
macro_rules! call {
    ($file:expr, $name:ident($($argument:expr),*)) => {{
        let file: *mut File = $file;
        // SAFETY: the file is open, and the arguments are those of the method.
        unsafe { ((*(*file).methods).$name.expect("a method"))(file $(, $argument)*) }
    }};
}

fn put(file: *mut File, offset: i64, bytes: &[u8]) {
    assert_eq!(call!(file, write(bytes.as_ptr().cast(), bytes.len() as c_int, offset)), OK);
}

fn get(file: *mut File, offset: i64, length: usize) -> Option<Vec<u8>> {
    let mut room = vec![0xFF; length];
    match call!(file, read(room.as_mut_ptr().cast(), length as c_int, offset)) {
        OK => Some(room),
        error => {
            assert_eq!(error, IO_ERROR_SHORT_READ);
            None
        }
    }
}

fn size(file: *mut File) -> i64 {
    let mut size = 0;
    assert_eq!(call!(file, file_size(&raw mut size)), OK);
    size
}

#[test]
fn a_transaction_with_a_journal() {
    let mut database = Opened::new(c"a.db", OPEN_MAIN_DB | OPEN_READWRITE | OPEN_CREATE);
    let database = database.file();
    DATABASE.set(database);
    put(database, 0, &[1; 4096]);
    for round in 0..2_u8 {
        let mut journal = Opened::new(c"a.db-journal", OPEN_MAIN_JOURNAL | OPEN_READWRITE | OPEN_CREATE);
        let journal = journal.file();
        assert_eq!(call!(database, lock(1)), OK);
        put(journal, 0, &[round; 512]);
        put(journal, 512, &[2; 4]);
        put(journal, 516, &[3; 100]);
        assert_eq!(get(journal, 510, 8), Some([round, round, 2, 2, 2, 2, 3, 3].to_vec()));
        assert_eq!(get(journal, 4000, 8), None);
        let before = SYNCS.get();
        assert_eq!(call!(journal, sync(2)), OK);
        put(database, 4096, &[4 + round; 4096]);
        assert_eq!(call!(database, file_control(FCNTL_SYNC, null_mut())), NOT_FOUND);
        assert_eq!(call!(database, sync(2)), OK);
        // The database is on no mount of Weir: each sync is what it was.
        assert_eq!(SYNCS.get(), before + 2);
        assert_eq!(call!(journal, truncate(0)), OK);
        assert_eq!(size(journal), 0);
        assert_eq!(call!(journal, close()), OK);
        assert_eq!(call!(database, file_control(FCNTL_COMMIT_PHASETWO, null_mut())), NOT_FOUND);
        assert_eq!(call!(database, unlock(0)), OK);
        assert_eq!((get(database, 8000, 3), size(database)), (Some(vec![4 + round; 3]), 8192));
    }
    let mut moved = 0_i32;
    assert_eq!(call!(database, file_control(FCNTL_HAS_MOVED, (&raw mut moved).cast())), NOT_FOUND);
    assert_eq!(call!(database, close()), OK);
}

#[test]
fn a_transaction_with_a_write_ahead_log() {
    let mut database = Opened::new(c"b.db", OPEN_MAIN_DB | OPEN_READWRITE | OPEN_CREATE);
    let database = database.file();
    DATABASE.set(database);
    let mut log = Opened::new(c"b.db-wal", OPEN_WAL | OPEN_READWRITE | OPEN_CREATE);
    let log = log.file();
    put(log, 0, &[1; 32]);
    for frame in 0..3 {
        let at = 32 + frame * (24 + 4096);
        put(log, at, &[2; 24]);
        put(log, at + 24, &[3; 4096]);
        // The lock of the database has its log look what others have done.
        assert_eq!(call!(database, unlock(0)), OK);
        assert_eq!(call!(log, sync(2)), OK);
    }
    assert_eq!(size(log), 32 + 3 * 4120);
    // A checkpoint.
    put(database, 0, &[3; 4096]);
    assert_eq!(call!(database, sync(2)), OK);
    assert_eq!(get(database, 0, 2), Some(vec![3; 2]));
    assert_eq!(call!(log, close()), OK);
    put(database, 0, &[4; 4096]);
    assert_eq!(call!(database, close()), OK);
}

#[test]
fn other_files_are_those_of_the_real_vfs() {
    let mut temporary = Opened::new(c"t", OPEN_TEMPORARY | OPEN_READWRITE | OPEN_CREATE);
    let temporary = temporary.file();
    // SAFETY: an open file has methods.
    assert!(unsafe { std::ptr::eq((*temporary).methods, &raw const METHODS) });
    put(temporary, 3, b"abc");
    assert_eq!(get(temporary, 4, 2), Some(b"bc".to_vec()));
    assert_eq!(call!(temporary, close()), OK);
}
