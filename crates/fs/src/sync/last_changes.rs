//! In which transactions an inode has changed, so that a synchronisation call knows what to commit.

use std::cell::Cell;

use weir_journal::Sequence;

/// The last changes of an inode.
#[derive(Default)]
pub(crate) struct LastChanges {
    /// The last transaction that changed anything of the inode.
    anything_in: Cell<Option<Sequence>>,
    /// The last transaction that changed its size, its allocation, or what is written of it (J3).
    data_in: Cell<Option<Sequence>>,
    /// Something of that kind has changed since the inode was logged.
    data: Cell<bool>,
    /// The directory in which it has got a name since it was synchronised last.
    named_in: Cell<Option<u32>>,
}

impl LastChanges {
    /// The size, the allocation, or what is written has changed: the transaction that the inode is logged in
    /// has to be committed before `fdatasync` and `fdatabarrier` have done their work (J3).
    pub(crate) fn note_data(&self) {
        self.data.set(true);
    }

    /// It has got a name in a directory.
    pub(crate) fn note_name(&self, directory: u32) {
        self.named_in.set(Some(directory));
    }

    /// The directory in which it has got a name since this was asked last.
    pub(crate) fn take_name(&self) -> Option<u32> {
        self.named_in.take()
    }

    /// Whether that is noted, and not logged.
    pub(crate) fn has_data(&self) -> bool {
        self.data.get()
    }

    /// The inode was logged in this transaction.
    pub(crate) fn logged_in(&self, sequence: Sequence) {
        self.anything_in.set(Some(sequence));
        if self.data.take() {
            self.data_in.set(Some(sequence));
        }
    }

    /// Whatever has changed, it was in this transaction at the latest.
    pub(crate) fn changed_until(&self, sequence: Sequence) {
        self.anything_in.set(Some(sequence));
        self.data_in.set(Some(sequence));
    }

    /// The last transaction that changed anything, or what data needs.
    pub(crate) fn last(&self, data_only: bool) -> Option<Sequence> {
        if data_only { self.data_in.get() } else { self.anything_in.get() }
    }
}
