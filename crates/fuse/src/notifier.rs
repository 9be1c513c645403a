//! The way to tell the kernel what it has not asked for.

use std::fs::File;
use std::io::{self, IoSlice};
use std::sync::Arc;

use rustix::io::{Errno, retry_on_intr, writev};

use crate::protocol::notice;

/// Sends notices to the kernel, also from other threads.
#[derive(Clone)]
pub(crate) struct Notifier(Arc<File>);

impl Notifier {
    /// On the descriptor of `/dev/fuse` that belongs to a mount.
    pub(crate) fn new(device: Arc<File>) -> Notifier {
        Notifier(device)
    }

    /// Has the kernel forget what it has of a node; see [`notice::invalidate_node`].
    ///
    /// # Errors
    /// As that.
    pub(crate) fn invalidate_node(&self, node: u64, offset: i64, length: i64) -> io::Result<()> {
        notice::invalidate_node(|parts| self.send(parts), (node, offset, length))
    }

    /// Has the kernel take bytes into its pages of a node.
    ///
    /// # Errors
    /// As [`notice::store`].
    pub(crate) fn store(&self, node: u64, offset: u64, content: &[u8]) -> io::Result<()> {
        notice::store(|parts| self.send(parts), (node, offset), content)
    }

    fn send(&self, parts: &[IoSlice<'_>]) -> Result<usize, Errno> {
        retry_on_intr(|| writev(&self.0, parts))
    }
}
