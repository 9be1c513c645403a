//! *Closing*: what the server of a mount makes durable and closes, at its end or before the next server takes its place; once.

use std::cell::Cell;
use std::path::Path;

use weir_vfs::{Filesystem, FsError};

use crate::error::CliError;
use crate::replication::Shipping;
use crate::stack::Stack;

/// The filesystem of a mount, and what is below it.
pub(crate) struct Closing<'a> {
    filesystem: &'a Filesystem,
    stack: &'a Stack,
    /// What is mounted.
    source: &'a Path,
    has_begun: Cell<bool>,
}

impl<'a> Closing<'a> {
    pub(crate) fn new(filesystem: &'a Filesystem, stack: &'a Stack, source: &'a Path) -> Closing<'a> {
        Closing { filesystem, stack, source, has_begun: Cell::new(false) }
    }

    pub(crate) fn filesystem(&self) -> &'a Filesystem {
        self.filesystem
    }

    pub(crate) fn stack(&self) -> &'a Stack {
        self.stack
    }

    /// Closes at the end of a mount, and ships what is left. It does nothing after [`close_for_handover`](Self::close_for_handover),
    /// whatever came of that.
    ///
    /// # Errors
    /// The first one; the rest is closed all the same.
    pub(crate) async fn close_at_end(&self, shipping: Option<Shipping>) -> Result<(), CliError> {
        if self.has_begun.replace(true) {
            return Ok(());
        }
        let unmounted = self.filesystem.unmount().await;
        if let Some(shipping) = shipping {
            shipping.end().await;
        }
        self.close_below(unmounted).await
    }

    /// Closes what the next server opens. Afterwards no request can be answered, whether this succeeds or not.
    ///
    /// # Errors
    /// The first one; the rest is closed all the same.
    pub(crate) async fn close_for_handover(&self) -> Result<(), CliError> {
        self.has_begun.set(true);
        let unmounted = self.filesystem.unmount_for_handover().await;
        self.close_below(unmounted).await
    }

    async fn close_below(&self, unmounted: Result<(), FsError>) -> Result<(), CliError> {
        let path = self.source.to_owned();
        let unmounted = unmounted.map_err(|source| CliError::Image { path, source });
        if unmounted.is_err() && self.stack.storage().marks().is_some() {
            // Closing would keep what is behind the last moment. Without that the next mount goes back to it.
            return unmounted;
        }
        // Of a store that took nothing more the volume knows nothing: it is closed as it should be.
        let closed = self.stack.close(self.source).await;
        unmounted.and(closed)
    }
}
