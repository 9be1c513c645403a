//! A *buffer* is a journaled block in memory: metadata, or a page of a file in journal mode data. Its content is
//! shared with the transactions that commit it and copied when it is changed after that (J4), so what a
//! transaction has locked can never change again.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use weir_ext4::journal::Sequence;
use weir_ext4::{Checksums, Kind};
use weir_format::FormatError;
use weir_runtime::Buffer as Memory;
use weir_storage::BLOCK_BYTES;

use crate::ranges::ChangedRanges;

/// What a buffer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A structure of the format, which says how it is sealed.
    Metadata(Kind),
    /// File data.
    Data,
}

/// A journaled block in memory.
pub struct BufferHead {
    block: u64,
    role: Cell<Role>,
    content: RefCell<Rc<Memory>>,
    /// What the running transaction has changed of it (J8).
    changed: RefCell<ChangedRanges>,
    /// The running transaction that has changed it.
    pub(crate) changed_in: Cell<Option<Sequence>>,
    /// The newest locked transaction that holds it.
    pub(crate) held_by: Cell<Option<Sequence>>,
    /// How many checkpoints had begun when the log took all of it the last time, and one; 0 if it never did.
    pub(crate) logged_whole: Cell<u64>,
    /// Transactions that hold it and are not checkpointed, the running one included: as long as there is one,
    /// what is at home on disk is older than this.
    pub(crate) pins: Cell<u32>,
}

impl BufferHead {
    pub(crate) fn new(block: u64, role: Role, content: Memory) -> Rc<BufferHead> {
        Rc::new(BufferHead {
            block,
            role: Cell::new(role),
            content: RefCell::new(Rc::new(content)),
            changed: RefCell::default(),
            changed_in: Cell::new(None),
            held_by: Cell::new(None),
            logged_whole: Cell::new(0),
            pins: Cell::new(0),
        })
    }

    /// Where it is on disk.
    pub fn block(&self) -> u64 {
        self.block
    }

    /// Whether a transaction holds it that has not left the log, the running one included: a caller that frees its block revokes
    /// it (J5 d), and what is at home on disk may be older than this.
    pub fn is_pinned(&self) -> bool {
        self.pins.get() > 0
    }

    /// A transaction that has held it does so no longer.
    pub(crate) fn unpin(&self) {
        self.pins.set(self.pins.get().saturating_sub(1));
    }

    /// The newest transaction that holds it, running or locked, of those behind `transferred`: its content there is newer than in
    /// the log.
    pub(crate) fn holder_behind(&self, transferred: Sequence) -> Option<Sequence> {
        self.changed_in.get().or(self.held_by.get()).filter(|holder| holder.is_after(transferred))
    }

    /// A block that becomes something else: freed, and allocated again.
    pub(crate) fn turn_into(&self, role: Role) {
        self.role.set(role);
        self.content.replace(Rc::new(Memory::new(BLOCK_BYTES)));
        self.mark_all_changed();
    }

    /// All of its bytes count as changed: what the log or its home holds of them is no base for a part.
    pub(crate) fn mark_all_changed(&self) {
        self.changed.borrow_mut().add(0..BLOCK_BYTES);
    }

    /// What it holds.
    pub fn role(&self) -> Role {
        self.role.get()
    }

    /// Says what the block holds from now on; its bytes stay.
    pub fn set_role(&self, role: Role) {
        self.role.set(role);
    }

    /// Runs `look` on the bytes.
    pub fn read<T>(&self, look: impl FnOnce(&[u8]) -> T) -> T {
        look(&self.content.borrow())
    }

    /// The content as of now; it does not change with the buffer.
    pub fn snapshot(&self) -> Rc<Memory> {
        Rc::clone(&self.content.borrow())
    }

    /// Changes `range` of the bytes. Only a transaction's handle may.
    pub(crate) fn change<T>(&self, range: Range<usize>, change: impl FnOnce(&mut [u8]) -> T) -> T {
        let mut content = self.content.borrow_mut();
        let bytes = Rc::make_mut(&mut content);
        let end = range.end.min(bytes.len());
        let range = range.start.min(end)..end;
        self.changed.borrow_mut().add(range.clone());
        change(&mut bytes[range])
    }

    /// Takes other content, of a block. Only a transaction's handle may give it.
    pub(crate) fn replace(&self, content: Rc<Memory>) {
        self.changed.borrow_mut().add(0..content.len());
        self.content.replace(content);
    }

    /// What was changed since this was asked last: a transaction that is locked takes it with it.
    pub(crate) fn take_changed(&self) -> ChangedRanges {
        self.changed.take()
    }

    /// Stores the checksum, where the block has one of its own.
    pub(crate) fn update_checksum(&self, checksums: &Checksums) -> Result<(), FormatError> {
        match self.role.get() {
            Role::Metadata(kind) => {
                let mut content = self.content.borrow_mut();
                let bytes = Rc::make_mut(&mut content);
                self.changed.borrow_mut().add(checksums.update_checksum(kind, self.block, bytes)?);
            }
            Role::Data => {}
        }
        Ok(())
    }
}
