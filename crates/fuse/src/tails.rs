//! *Tails*: the bytes of a file's last page behind its end.
//!
//! A program can map a file and store behind its end, up to the end of the page. Such bytes are no part of the file: when
//! it grows, they must read as zeros. The server has zeros there; the page in the kernel's cache does not, and FUSE has
//! the kernel clear nothing when a file grows. So, before the answer to a request that makes a file longer, the server
//! stores zeros into that page. This costs no request. It is done only where the file ended inside a page, and where a program has it
//! open so that it can be mapped for writing; without requests for opens, that may be any file.
//!
//! Two kinds of growth are left as they are:
//!
//! - a write through the page cache that begins in the file's last page, with a gap before it. The kernel may hold the lock
//!   of that page until the answer, so waiting for the store would deadlock, and a later one could
//!   overwrite what a program writes next;
//! - all with the writeback cache. The kernel may have a longer file than the server, so the server does not know where
//!   it ends.

use std::ops::Range;

use weir_vfs::InodeNumber;

use crate::calls::Calls;
use crate::protocol::WriteRequest;

impl Calls {
    /// The part of a file's tail that becomes part of the file when it gets `size`, to be looked at before it does. `None`
    /// if there is no such part, or no program can have stored anything there.
    pub(crate) async fn exposed_tail(&self, inode: InodeNumber, size: u64) -> Option<Range<u64>> {
        if self.kernel.is_writeback || size == 0 || !self.files.may_be_mapped(inode) {
            return None;
        }
        let end = self.filesystem.attributes(inode).await.ok()?.size;
        let tail = end..end.next_multiple_of(page_bytes()).min(size);
        (!tail.is_empty()).then_some(tail)
    }

    /// The same for a write: the part that lies before it.
    pub(crate) async fn tail_before_write(
        &self,
        inode: InodeNumber,
        write: &WriteRequest<'_>,
        direct: bool,
    ) -> Option<Range<u64>> {
        if write.from_cache {
            return None;
        }
        let tail = self.exposed_tail(inode, write.offset).await?;
        let is_locked = !direct && write.offset / page_bytes() == tail.start / page_bytes();
        (!is_locked).then_some(tail)
    }

    /// Clears what [`exposed_tail`](Self::exposed_tail) has found, once the file has grown.
    pub(crate) async fn clear_tail(&self, inode: InodeNumber, tail: Option<Range<u64>>) {
        if let Some(tail) = tail {
            self.kernel.store_zeros(inode, tail).await;
        }
    }
}

/// The size of the kernel's pages.
fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}
