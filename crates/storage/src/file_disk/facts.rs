//! *Facts*: what the system says of the file or device of an open disk now.
//!
//! A filesystem below that does not answer, such as one in user space whose server is stopped, holds up the thread that asks. So
//! a thread of its own asks, one at a time, and the executor goes on meanwhile.

use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::PermissionsExt as _;
use std::rc::Rc;
use std::sync::Arc;

use event_listener::Event;
use weir_runtime::Handle;

use super::open::free_below;

/// Who may read the file or block device of a [`FileDisk`](super::FileDisk), besides its owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readers {
    /// Its group.
    pub group: bool,
    /// All other users.
    pub others: bool,
}

/// What the system says of a disk's file or device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskFacts {
    /// Who may read it, besides its owner, by its permissions: they can read all content. No other user, if the system does not
    /// say.
    pub readers: Readers,
    /// Bytes that the filesystem of a regular file has free for this user: a file with holes takes them when it is written. None
    /// for a block device, and if the system does not say.
    pub free_below: Option<u64>,
    /// Bytes of a regular file. None for a block device, and if the system does not say.
    pub file_bytes: Option<u64>,
}

impl DiskFacts {
    /// Asks the system; this may wait for a filesystem below without a limit.
    pub(super) fn from_file(file: &File) -> DiskFacts {
        let found = file.metadata().ok();
        let mode = found.as_ref().map_or(0, |found| found.permissions().mode());
        DiskFacts {
            readers: Readers { group: mode & 0o040 != 0, others: mode & 0o004 != 0 },
            free_below: free_below(file),
            file_bytes: found.filter(std::fs::Metadata::is_file).map(|found| found.len()),
        }
    }
}

/// Looks at a disk's file, one at a time.
#[derive(Default)]
pub(super) struct FactsLook {
    under_way: Cell<bool>,
    ended: Event,
    found: Cell<Option<DiskFacts>>,
}

impl FactsLook {
    /// What the look at `file` finds that is under way, or else a new one. A caller that waits no longer leaves it to the next one.
    pub(super) async fn facts(self: &Rc<Self>, handle: &Handle, file: &Arc<File>) -> Option<DiskFacts> {
        let ended = self.ended.listen();
        if !self.under_way.replace(true) {
            let (look, file) = (Rc::clone(self), Arc::clone(file));
            let asked = handle.blocking(move || DiskFacts::from_file(&file));
            drop(handle.spawn(async move {
                look.found.set(asked.await.ok());
                look.under_way.set(false);
                look.ended.notify(usize::MAX);
            }));
        }
        ended.await;
        self.found.get()
    }
}
