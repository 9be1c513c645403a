//! The VFS: a table of functions that SQLite has under a name.

use std::ffi::{CStr, CString, c_char, c_double, c_int, c_void};
use std::fmt;
use std::ptr::null_mut;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rusqlite::OpenFlags;
use rusqlite::ffi::{self, sqlite3_file, sqlite3_vfs};
use weir_runtime::Runtime;
use weir_sqlite_syncs::Mode;
use weir_vfs::Filesystem;

use crate::connection::Connection;
use crate::fault::{Call, Fault};
use crate::file::{Answer, OpenFile, Role};
use crate::home::{Failure, Home};
use crate::methods::RawFile;

/// Bytes of a path: those that the filesystem takes.
const PATH_MAX: c_int = 4096;

const MILLIS_A_DAY: f64 = 86_400_000.0;

/// Gives each VFS of the process a name of its own.
static REGISTERED: AtomicU64 = AtomicU64::new(0);

/// A VFS of SQLite whose files are those of a filesystem; see the crate's documentation. It stays registered until
/// the last connection that was opened in it is gone.
#[derive(Clone)]
pub struct Vfs(Rc<Registered>);

/// A VFS as SQLite has it.
pub(crate) struct Registered {
    table: *mut sqlite3_vfs,
    name: CString,
    home: Rc<Home>,
}

impl fmt::Debug for Vfs {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Vfs").field("name", &self.0.name).finish_non_exhaustive()
    }
}

impl Vfs {
    /// A VFS for a filesystem that `runtime` drives, registered under a name of its own. SQLite's default VFS
    /// stays what it is.
    ///
    /// # Errors
    /// What SQLite answers when it has no memory.
    pub fn new(runtime: Rc<Runtime>, filesystem: Filesystem) -> rusqlite::Result<Vfs> {
        let home = Rc::new(Home::new(runtime, filesystem));
        let number = REGISTERED.fetch_add(1, Ordering::Relaxed);
        let name = CString::new(format!("weir-{number}")).unwrap_or_default();
        let table = Box::into_raw(Box::new(table(&name, &home)));
        let registered = Registered { table, name, home };
        // SAFETY: the table, its name and what it stands on are there until it is unregistered.
        match unsafe { ffi::sqlite3_vfs_register(table, 0) } {
            ffi::SQLITE_OK => Ok(Vfs(Rc::new(registered))),
            code => Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)),
        }
    }

    /// Opens a database by its path in the filesystem, and makes it if it is not there.
    ///
    /// # Errors
    /// What SQLite answers: `SQLITE_CANTOPEN` for a path that is none, an I/O error from inside a task of the
    /// runtime.
    pub fn open(&self, path: &str, mode: Mode) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = rusqlite::Connection::open_with_flags_and_vfs(path, flags, self.0.name.as_c_str())?;
        let pragma = format!("PRAGMA weir = '{}'", mode.name().to_string_lossy());
        connection.query_row(&pragma, [], |_| Ok(()))?;
        Ok(Connection::new(connection, Rc::clone(&self.0)))
    }

    /// The name under which SQLite has it.
    #[must_use]
    pub fn name(&self) -> &CStr {
        &self.0.name
    }

    /// Asks `interception` before every call of SQLite what is to be made of it: `None` for what SQLite wants. It
    /// may run the runtime meanwhile, and replaces the one before. For tests and measurements.
    pub fn intercept(&self, interception: impl Fn(Call) -> Option<Fault> + 'static) {
        self.0.home.intercept(Some(Box::new(interception)));
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: it was registered or never came to be, which unregistering takes; and no connection has it any
        // more, since each keeps it alive.
        unsafe {
            ffi::sqlite3_vfs_unregister(self.table);
            drop(Box::from_raw(self.table));
        }
    }
}

fn table(name: &CStr, home: &Rc<Home>) -> sqlite3_vfs {
    sqlite3_vfs {
        iVersion: 2,
        szOsFile: size_of::<RawFile>() as c_int,
        mxPathname: PATH_MAX,
        pNext: null_mut(),
        zName: name.as_ptr(),
        pAppData: Rc::as_ptr(home).cast_mut().cast(),
        xOpen: Some(open),
        xDelete: Some(delete),
        xAccess: Some(access),
        xFullPathname: Some(full_pathname),
        xDlOpen: Some(dl_open),
        xDlError: Some(dl_error),
        xDlSym: Some(dl_sym),
        xDlClose: Some(dl_close),
        xRandomness: Some(randomness),
        xSleep: Some(sleep),
        xCurrentTime: Some(current_time),
        xGetLastError: Some(get_last_error),
        xCurrentTimeInt64: Some(current_time_int64),
        xSetSystemCall: None,
        xGetSystemCall: None,
        xNextSystemCall: None,
    }
}

/// What a VFS stands on; `None` on another thread than its own, where it may not be touched.
///
/// # Safety
/// `vfs` is registered, or was when an open connection found it.
unsafe fn home(vfs: *mut sqlite3_vfs) -> Option<Rc<Home>> {
    // SAFETY: the table is there, and what it stands on is as long as it is. The count is touched on its own
    // thread only.
    unsafe {
        let home = (*vfs).pAppData.cast_const().cast::<Home>();
        (*home).is_here().then(|| {
            Rc::increment_strong_count(home);
            Rc::from_raw(home)
        })
    }
}

/// A name that SQLite has given.
///
/// # Safety
/// It ends with a zero, and outlives the call.
unsafe fn bytes<'a>(name: *const c_char) -> &'a [u8] {
    // SAFETY: as the caller promises.
    unsafe { CStr::from_ptr(name) }.to_bytes()
}

unsafe extern "C" fn open(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    flags_out: *mut c_int,
) -> c_int {
    // SAFETY: SQLite calls with a VFS that it has, with room for one of its files, and a name that it has for a
    // file of this kind; the room for flags may be missing.
    unsafe {
        RawFile::fill(file, None);
        let Some(home) = home(vfs) else { return ffi::SQLITE_CANTOPEN };
        let opened = open_file(&home, name, flags);
        if let Some(flags_out) = flags_out.as_mut() {
            *flags_out = flags;
        }
        match opened {
            Ok(opened) => {
                RawFile::fill(file, Some(opened));
                ffi::SQLITE_OK
            }
            Err(code) => code,
        }
    }
}

/// # Safety
/// `name` is null or what SQLite has for a file that is opened with these flags.
unsafe fn open_file(home: &Rc<Home>, name: *const c_char, flags: c_int) -> Answer<OpenFile> {
    home.check(Call::Open, ffi::SQLITE_CANTOPEN)?;
    let has = |flag| flags & flag != 0;
    let failed = |failure: Failure| failure.code(ffi::SQLITE_CANTOPEN);
    if name.is_null() {
        return OpenFile::new(home, Role::Other, home.drive(home.open_nameless()).map_err(failed)?);
    }
    // SAFETY: as the caller promises; and the role is found by the very pointer that SQLite has for the name.
    let (path, role) = unsafe { (bytes(name), role(name, flags)) };
    let (create, exclusive) = (has(ffi::SQLITE_OPEN_CREATE), has(ffi::SQLITE_OPEN_EXCLUSIVE));
    let opened = home.drive(home.open(path, create, exclusive)).map_err(failed)?;
    if has(ffi::SQLITE_OPEN_DELETEONCLOSE) {
        // It is there until it is closed.
        home.drive(home.unlink(path)).map_err(failed)?;
    }
    if create && matches!(&role, Role::Journal(database) if database.atomic.get()) {
        // SQLite may write it without a sync between its pages and the header that counts them. Where they are new to
        // the file they are there together; in the place of older ones they would not be.
        home.drive(home.filesystem.truncate(opened.0, 0)).map_err(failed)?;
    }
    OpenFile::new(home, role, opened)
}

/// What a file is that is to be opened.
///
/// # Safety
/// As of `open_file`; `name` is not null.
unsafe fn role(name: *const c_char, flags: c_int) -> Role {
    if flags & ffi::SQLITE_OPEN_MAIN_DB != 0 {
        return Role::Database(Rc::default());
    }
    let journal = flags & ffi::SQLITE_OPEN_MAIN_JOURNAL != 0;
    // A journal that is only read is not synchronised; and it may be another database's.
    if flags & ffi::SQLITE_OPEN_READWRITE == 0 || (!journal && flags & ffi::SQLITE_OPEN_WAL == 0) {
        return Role::Other;
    }
    // SAFETY: it is the very pointer that SQLite has for the name of a journal or log, whose database is open.
    let database = unsafe { RawFile::database(ffi::sqlite3_database_file_object(name)) };
    match database {
        Some(database) if journal => Role::Journal(database),
        Some(database) => Role::Wal(database),
        None => Role::Other,
    }
}

unsafe extern "C" fn delete(vfs: *mut sqlite3_vfs, name: *const c_char, sync_directory: c_int) -> c_int {
    // SAFETY: SQLite calls with a VFS that it has, and a name.
    let (home, path) = unsafe { (home(vfs), bytes(name)) };
    let Some(home) = home else { return ffi::SQLITE_IOERR_DELETE };
    if let Err(code) = home.check(Call::Delete, ffi::SQLITE_IOERR_DELETE) {
        return code;
    }
    let synchronises = sync_directory != 0 && !home.leaves_directory(path);
    match home.drive(home.unlink(path)) {
        Ok(_) if !synchronises => ffi::SQLITE_OK,
        Ok(directory) => match home.drive(home.filesystem.fsync(directory)) {
            Ok(()) => ffi::SQLITE_OK,
            Err(_) => ffi::SQLITE_IOERR_DIR_FSYNC,
        },
        Err(Failure::Missing) => ffi::SQLITE_IOERR_DELETE_NOENT,
        Err(_) => ffi::SQLITE_IOERR_DELETE,
    }
}

unsafe extern "C" fn access(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    flags: c_int,
    answer: *mut c_int,
) -> c_int {
    // SAFETY: SQLite calls with a VFS that it has, and a name.
    let (home, path) = unsafe { (home(vfs), bytes(name)) };
    let Some(home) = home else { return ffi::SQLITE_IOERR_ACCESS };
    if let Err(code) = home.check(Call::Access, ffi::SQLITE_IOERR_ACCESS) {
        return code;
    }
    let found = home.drive(async {
        let inode = home.filesystem.resolve(path).await?;
        home.filesystem.attributes(inode).await
    });
    let there = match found {
        // As on Unix: an empty file, which SQLite may have left behind, holds no journal.
        Ok(attributes) => flags != ffi::SQLITE_ACCESS_EXISTS || attributes.size > 0,
        Err(Failure::Missing) => false,
        Err(_) => return ffi::SQLITE_IOERR_ACCESS,
    };
    // SAFETY: SQLite gives room for a number.
    unsafe { *answer = there.into() };
    ffi::SQLITE_OK
}

/// Paths begin at the root of the filesystem.
unsafe extern "C" fn full_pathname(
    _: *mut sqlite3_vfs,
    name: *const c_char,
    room: c_int,
    path: *mut c_char,
) -> c_int {
    // SAFETY: SQLite calls with a name.
    let name = unsafe { bytes(name) };
    let slash: &[u8] = if name.starts_with(b"/") { b"" } else { b"/" };
    let full = [slash, name, &[0]].concat();
    if full.len() > usize::try_from(room).unwrap_or(0) {
        return ffi::SQLITE_CANTOPEN;
    }
    // SAFETY: there is room for so many bytes.
    unsafe { path.cast::<u8>().copy_from_nonoverlapping(full.as_ptr(), full.len()) };
    ffi::SQLITE_OK
}

/// A symbol of a library.
type Symbol = Option<unsafe extern "C" fn(*mut sqlite3_vfs, *mut c_void, *const c_char)>;

/// Nothing is loaded from a filesystem of Weir.
unsafe extern "C" fn dl_open(_: *mut sqlite3_vfs, _: *const c_char) -> *mut c_void {
    null_mut()
}

unsafe extern "C" fn dl_error(_: *mut sqlite3_vfs, room: c_int, message: *mut c_char) {
    let text = c"there are no libraries here".to_bytes_with_nul();
    if text.len() <= usize::try_from(room).unwrap_or(0) {
        // SAFETY: there is room for so many bytes.
        unsafe { message.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len()) };
    }
}

unsafe extern "C" fn dl_sym(_: *mut sqlite3_vfs, _: *mut c_void, _: *const c_char) -> Symbol {
    None
}

unsafe extern "C" fn dl_close(_: *mut sqlite3_vfs, _: *mut c_void) {}

unsafe extern "C" fn randomness(vfs: *mut sqlite3_vfs, length: c_int, into: *mut c_char) -> c_int {
    // SAFETY: SQLite calls with a VFS that it has.
    let Some(home) = (unsafe { home(vfs) }) else { return 0 };
    let mut random = vec![0; usize::try_from(length).unwrap_or(0)];
    home.randomness(&mut random);
    // SAFETY: there is room for so many bytes.
    unsafe { into.cast::<u8>().copy_from_nonoverlapping(random.as_ptr(), random.len()) };
    length
}

unsafe extern "C" fn sleep(vfs: *mut sqlite3_vfs, microseconds: c_int) -> c_int {
    // SAFETY: SQLite calls with a VFS that it has.
    let Some(home) = (unsafe { home(vfs) }) else { return 0 };
    home.sleep(Duration::from_micros(u64::try_from(microseconds).unwrap_or(0)));
    microseconds
}

unsafe extern "C" fn current_time(vfs: *mut sqlite3_vfs, days: *mut c_double) -> c_int {
    // SAFETY: SQLite calls with a VFS that it has, and room for a number.
    unsafe {
        let Some(home) = home(vfs) else { return ffi::SQLITE_ERROR };
        *days = home.julian_millis() as f64 / MILLIS_A_DAY;
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn current_time_int64(vfs: *mut sqlite3_vfs, milliseconds: *mut i64) -> c_int {
    // SAFETY: SQLite calls with a VFS that it has, and room for a number.
    unsafe {
        let Some(home) = home(vfs) else { return ffi::SQLITE_ERROR };
        *milliseconds = i64::try_from(home.julian_millis()).unwrap_or(i64::MAX);
    }
    ffi::SQLITE_OK
}

/// The last error of the system: none is recorded.
unsafe extern "C" fn get_last_error(_: *mut sqlite3_vfs, _: c_int, _: *mut c_char) -> c_int {
    0
}
