//! A connection to a database in a VFS.

use std::fmt;
use std::ops::Deref;
use std::rc::Rc;

use crate::vfs::Registered;

/// A connection of [`rusqlite`], which keeps its VFS alive. It stays on its thread, so it is only lent: what takes
/// a connection by value or exclusively cannot be had, and for transactions there is
/// [`unchecked_transaction`](rusqlite::Connection::unchecked_transaction).
pub struct Connection {
    // Dropped first.
    connection: rusqlite::Connection,
    _vfs: Rc<Registered>,
}

impl Connection {
    pub(crate) fn new(connection: rusqlite::Connection, vfs: Rc<Registered>) -> Connection {
        Connection { connection, _vfs: vfs }
    }
}

impl Deref for Connection {
    type Target = rusqlite::Connection;

    fn deref(&self) -> &rusqlite::Connection {
        &self.connection
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Connection").field("path", &self.connection.path()).finish_non_exhaustive()
    }
}
