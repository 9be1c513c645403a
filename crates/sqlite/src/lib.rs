//! libweir_sqlite: a loadable extension of SQLite that turns its syncs into barriers, where the database is on a
//! mount of Weir. How to use it, and what it promises, is in `docs/sqlite.md`.
//!
//! Most of SQLite's syncs are there for order: the journal before the database, the database before the journal's
//! end. Only one, after what commits the transaction, is there for durability. The extension is a VFS that stands
//! in front of SQLite's own and passes everything on, but for the syncs of databases, rollback journals and
//! write-ahead logs: [`weir_sqlite_syncs`] says which of them becomes what. Whatever it does not know for certain is left as it
//! is.
//!
//! It is made for the SQLite that loads it: nothing of SQLite is linked, and its interface is declared in `abi`.

#![allow(unsafe_code, reason = "it is called by SQLite, by pointers, and calls it")]

mod abi;
mod batch;
mod file;
mod held;
mod kept;
mod leaving;
mod methods;
mod mounted_database;
mod real;
#[cfg(test)]
mod tests;
mod vfs;

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;

use abi::{OK, OK_LOAD_PERMANENTLY, Routines, SQLITE_ERROR};

/// SQLite 3.32.0, the first that tells the database of a journal.
const VERSION_MIN: c_int = 3_032_000;

/// What SQLite calls when it loads the extension: registers the VFS `weir`, and makes it the default.
///
/// # Safety
/// For SQLite's own use: `message` may be written if it is not null, and `routines` is its table of functions.
// SAFETY: SQLite derives the name from the library's, which is this one's alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_weirsqlite_init(
    _connection: *mut c_void,
    message: *mut *mut c_char,
    routines: *const Routines,
) -> c_int {
    // SAFETY: the table of every version of SQLite since 2008 has this member, which is a function.
    let version = unsafe { ((*routines).libversion_number)() };
    // SAFETY: as above.
    let print = unsafe { (*routines).mprintf };
    let fail = |why: *const c_char| {
        if !message.is_null() {
            // SAFETY: SQLite gave room for a pointer, and frees what mprintf has allocated.
            unsafe { *message = print(c"%s".as_ptr(), why) };
        }
        SQLITE_ERROR
    };
    if version < VERSION_MIN {
        return fail(c"weir: this SQLite is too old, 3.32.0 is needed".as_ptr());
    }
    // SAFETY: the table of a version that is new enough has all members of `Routines`, and stays.
    let routines: &'static Routines = unsafe { &*routines };
    // SAFETY: a name that ends with a zero.
    if !unsafe { (routines.vfs_find)(vfs::NAME.as_ptr()) }.is_null() {
        return OK_LOAD_PERMANENTLY;
    }
    // SAFETY: a null pointer asks for the default.
    let real = unsafe { (routines.vfs_find)(null_mut()) };
    if real.is_null() {
        return fail(c"weir: this SQLite has no VFS".as_ptr());
    }
    // SAFETY: `real` is a registered VFS; the new one stays in memory, as its library does.
    let registered = unsafe { (routines.vfs_register)(vfs::Weir::before(real, routines), 1) };
    if registered == OK { OK_LOAD_PERMANENTLY } else { registered }
}
