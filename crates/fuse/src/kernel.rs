//! *The kernel's cache*: what the kernel knows of a file and the server does not, or not yet.
//!
//! With the writeback cache, what programs write stays with the kernel as dirty pages, which it hands over when it likes,
//! when a program closes or synchronises the file, and before it cuts it. Before an ioctl, an `lseek` that looks for holes,
//! a rename and a link it does not; and so it treats what mappings have changed, with that cache and without. Where
//! such a request means what was written before it (K1), the server asks for the pages: it tells the kernel to forget
//! what it has of the file, and the kernel hands over first what is dirty.
//!
//! The kernel does not say which pages are dirty. So the server asks where a program has the file open for writing.

use std::cell::{Cell, OnceCell};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use rustix::io::Errno;
use weir_storage::Rules;
use weir_vfs::{Filesystem, InodeNumber};

use crate::convert;
use crate::mutants::FuseMutant;
use crate::notice_threads::NoticeThreads;
use crate::notifier::Notifier;
use crate::protocol::node_id;
use crate::serve::REQUEST_BYTES_UNDER_WAY_MAX;

/// Direct writes of so many bytes wait for that, at most: a quarter of what all requests may take.
const DIRECT_BYTES_MAX: u64 = REQUEST_BYTES_UNDER_WAY_MAX / 4;

/// How long a request waits for zeros to be stored.
const STORE_WAIT: Duration = Duration::from_secs(1);

/// The offset from which on the kernel forgets no page, but the attributes.
const ATTRIBUTES: i64 = -1;

/// What the kernel keeps, and how it is asked for it.
#[derive(Clone)]
pub(crate) struct KernelCache {
    filesystem: Filesystem,
    /// It keeps what programs write.
    pub(crate) is_writeback: bool,
    /// Set as soon as it is mounted.
    notifier: Rc<OnceCell<Notifier>>,
    threads: NoticeThreads,
    /// The bytes of the direct writes that wait.
    direct_bytes: Rc<Cell<u64>>,
    /// The rules that the mount keeps.
    pub(crate) rules: Rules<FuseMutant>,
}

impl KernelCache {
    pub(crate) fn new(
        filesystem: &Filesystem,
        is_writeback: bool,
        notifier: Rc<OnceCell<Notifier>>,
        threads: NoticeThreads,
        rules: Rules<FuseMutant>,
    ) -> KernelCache {
        KernelCache {
            filesystem: filesystem.clone(),
            is_writeback,
            notifier,
            threads,
            direct_bytes: Rc::default(),
            rules,
        }
    }

    /// Has the kernel forget the attributes of a node, and so many bytes of its pages from an offset on: all behind it for 0
    /// bytes, and none of them from a negative offset on. Those that are dirty are handed over before this ends.
    ///
    /// # Errors
    /// EAGAIN if too many wait for that.
    async fn forget(&self, node: u64, offset: i64, bytes: i64) -> Result<(), Errno> {
        let Some(notifier) = self.notifier.get().cloned() else { return Ok(()) };
        if self.threads.are_full() {
            return Err(Errno::AGAIN);
        }
        // It fails for what is not cached.
        let notice = move || drop(notifier.invalidate_node(node, offset, bytes));
        // Where no thread can be had, nothing was handed over.
        self.threads.send(notice).await.map_err(|_| Errno::AGAIN)
    }

    /// Has the kernel hand over what programs have written to a file. What of it fails is remembered with the lost
    /// writes.
    ///
    /// # Errors
    /// EAGAIN if too many wait for that.
    pub(crate) async fn take_pages(&self, inode: InodeNumber) -> Result<(), Errno> {
        let Ok(found) = self.filesystem.attributes(inode).await else { return Ok(()) };
        self.forget(node_id(convert::number(inode, self.filesystem.root()), found.generation), 0, 0).await
    }

    /// Has the kernel forget the pages of a file that a direct write has made old, before that is answered. The kernel does so
    /// by itself for a program that waits for its write, and not for asynchronous writes. Where too much waits already, the
    /// kernel keeps its pages: the reads that bring pages must find room beside these writes.
    pub(crate) async fn forget_overwritten(&self, inode: InodeNumber, offset: u64, bytes: u64) {
        let (Ok(from), Ok(length)) = (i64::try_from(offset), i64::try_from(bytes)) else { return };
        let Ok(found) = self.filesystem.attributes(inode).await else { return };
        let waiting = self.direct_bytes.get() + bytes;
        if bytes == 0 || waiting > DIRECT_BYTES_MAX {
            return;
        }
        self.direct_bytes.set(waiting);
        let _ = self
            .forget(node_id(convert::number(inode, self.filesystem.root()), found.generation), from, length)
            .await;
        self.direct_bytes.set(self.direct_bytes.get() - bytes);
    }

    /// Puts zeros into the kernel's pages of a file, whether they are dirty or not. A file that is shorter than that has the
    /// end of the range as its size with the kernel then. This ends when it is done; if too many wait, nothing is done.
    ///
    /// The kernel takes the lock of each page, so the request that is being answered must not hold one of them. While a size
    /// is set, the kernel holds back the pages that it is to write; a page fault may hold a lock and wait for them, so
    /// this waits for a limited time.
    pub(crate) async fn store_zeros(&self, inode: InodeNumber, range: Range<u64>) {
        let Some(notifier) = self.notifier.get().cloned() else { return };
        let Ok(found) = self.filesystem.attributes(inode).await else { return };
        if self.threads.are_full() {
            return;
        }
        let node = node_id(convert::number(inode, self.filesystem.root()), found.generation);
        let zeros = vec![0; usize::try_from(range.end - range.start).unwrap_or(0)];
        let notice = move || drop(notifier.store(node, range.start, &zeros));
        self.threads.send_within(STORE_WAIT, notice).await;
    }

    /// Has the kernel ask for a file's attributes before it next uses them.
    pub(crate) async fn forget_attributes(&self, inode: InodeNumber) {
        let Ok(found) = self.filesystem.attributes(inode).await else { return };
        if let Some(notifier) = self.notifier.get() {
            // It fails for what is not cached.
            let node = node_id(convert::number(inode, self.filesystem.root()), found.generation);
            let _ = notifier.invalidate_node(node, ATTRIBUTES, 0);
        }
    }

    /// Has a kernel that keeps what programs write ask before the next write to a file that has just lost one. It is not
    /// waited for, as the kernel may wait for the answer to the write that was lost.
    pub(crate) fn have_it_ask(&self, inode: InodeNumber, generation: u32) {
        // If too many wait, the next lost write says it.
        let asks = self.is_writeback && !self.threads.are_full();
        if let Some(notifier) = self.notifier.get().filter(|_| asks).cloned() {
            let node = node_id(convert::number(inode, self.filesystem.root()), generation);
            self.threads.send_later(move || drop(notifier.invalidate_node(node, ATTRIBUTES, 0)));
        }
    }
}
