//! *The kernel's cache*: what the kernel knows of a file and the server does not, or not yet.
//!
//! With the writeback cache, what programs write stays with the kernel as dirty pages, which it hands over when it likes,
//! when a program closes or synchronises the file, and before it cuts it. Before an ioctl, an `lseek` that looks for holes,
//! and a rename it does not. Where such a request means what was written before it, the server asks for the pages: it
//! tells the kernel to forget what it has of the file, and the kernel hands over first what is dirty.
//!
//! Which pages are dirty the server is not told. So it asks where a program has the file open for writing.

use std::cell::OnceCell;
use std::rc::Rc;

use fuser::{INodeNo, Notifier};
use rustix::io::Errno;
use weir_fs::{Filesystem, InodeNumber};
use weir_runtime::{Handle, Semaphore};

use crate::convert;
use crate::protocol::node_id;

/// The kernel is asked for the pages of so many files at one time: each takes a thread, which waits for them.
const ASKED_MAX: usize = 4;
/// So many requests wait for pages, at most. Those in which the pages come must find room beside them.
const WAITING_MAX: usize = 128;

/// What the kernel keeps, and how it is asked for it.
#[derive(Clone)]
pub(crate) struct KernelCache {
    handle: Handle,
    filesystem: Filesystem,
    /// It keeps what programs write.
    pub(crate) is_writeback: bool,
    /// Set as soon as it is mounted.
    notifier: Rc<OnceCell<Notifier>>,
    asked: Rc<Semaphore>,
}

impl KernelCache {
    pub(crate) fn new(
        handle: &Handle,
        filesystem: &Filesystem,
        is_writeback: bool,
        notifier: Rc<OnceCell<Notifier>>,
    ) -> KernelCache {
        let asked = Rc::new(Semaphore::new(ASKED_MAX));
        KernelCache { handle: handle.clone(), filesystem: filesystem.clone(), is_writeback, notifier, asked }
    }

    /// Has the kernel forget the attributes of a node, and from which byte on its pages, if from any. Those that are dirty
    /// are handed over before this ends.
    ///
    /// # Errors
    /// EAGAIN if too many wait for that.
    async fn forget(&self, node: u64, from: Option<i64>) -> Result<(), Errno> {
        let Some(notifier) = self.notifier.get().cloned() else { return Ok(()) };
        if self.asked.waiting() >= WAITING_MAX {
            return Err(Errno::AGAIN);
        }
        let _asked = self.asked.acquire(1).await;
        // On another thread: this one takes in the pages meanwhile. It fails for what is not cached.
        let job = move || drop(notifier.inval_inode(INodeNo(node), from.unwrap_or(-1), 0));
        // Where no thread can be had, nothing was handed over.
        self.handle.blocking(job).await.map_err(|_| Errno::AGAIN)
    }

    /// Has the kernel hand over what programs have written to a file. What of it fails is remembered with the lost
    /// writes.
    ///
    /// # Errors
    /// EAGAIN if too many wait for that.
    pub(crate) async fn take_pages(&self, inode: InodeNumber) -> Result<(), Errno> {
        let Ok(found) = self.filesystem.attributes(inode).await else { return Ok(()) };
        self.forget(node_id(convert::number(inode), found.generation), Some(0)).await
    }

    /// Has the kernel ask for a file's attributes before it next uses them.
    pub(crate) async fn forget_attributes(&self, inode: InodeNumber) {
        let Ok(found) = self.filesystem.attributes(inode).await else { return };
        if let Some(notifier) = self.notifier.get() {
            // From before its first byte on: its attributes alone. It fails for what is not cached.
            let node = node_id(convert::number(inode), found.generation);
            let _ = notifier.inval_inode(INodeNo(node), -1, 0);
        }
    }

    /// Has a kernel that keeps what programs write ask before the next write to a file that has just lost one. It is not
    /// waited for, as the kernel may wait for the answer to the write that was lost.
    pub(crate) fn have_it_ask(&self, inode: InodeNumber, generation: u32) {
        if self.is_writeback {
            let (kernel, node) = (self.clone(), node_id(convert::number(inode), generation));
            drop(self.handle.spawn(async move {
                // If too many wait, the next lost write says it.
                let _ = kernel.forget(node, None).await;
            }));
        }
    }
}
