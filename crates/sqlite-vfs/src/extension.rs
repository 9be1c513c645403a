//! Loading an extension into the SQLite that is linked in.

use std::path::Path;

use rusqlite::{Connection, LoadExtensionGuard};

/// Loads an extension of SQLite, such as `libweir_sqlite.so`, for the whole process: databases that are opened from now
/// on have it. The library runs as part of the program, and has to be trusted as that is.
///
/// # Errors
/// What SQLite answers if there is no such library, or it does not start.
pub fn load_extension(library: &Path) -> rusqlite::Result<()> {
    let connection = Connection::open_in_memory()?;
    // SAFETY: no SQL is run while extensions may be loaded; and the library is the caller's to answer for, as any
    // program that is started.
    unsafe {
        let _guard = LoadExtensionGuard::new(&connection)?;
        connection.load_extension(library, None::<&str>)
    }
}
