//! A *buffer* is a journaled block in memory: metadata, or a page of a file in journal mode data. Its content is
//! shared with the transactions that commit it and copied when it is changed after that (J4), so what a
//! transaction has locked can never change again.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use weir_ext4::journal::Sequence;
use weir_ext4::{Checksums, FormatError, Kind};
use weir_runtime::Buffer as Memory;
use weir_storage::BLOCK_BYTES;

/// What a buffer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A structure of the format, which says how it is sealed.
    Metadata(Kind),
    /// File data.
    Data,
}

/// A journaled block in memory.
pub(crate) struct Buffer {
    pub(crate) block: u64,
    role: Cell<Role>,
    content: RefCell<Rc<Memory>>,
    /// The running transaction that has changed it.
    pub(crate) changed_in: Cell<Option<Sequence>>,
    /// The newest locked transaction that holds it.
    pub(crate) held_by: Cell<Option<Sequence>>,
    /// Transactions that hold it and are not checkpointed, the running one included: as long as there is one,
    /// what is at home on disk is older than this.
    pub(crate) pins: Cell<u32>,
}

impl Buffer {
    pub(crate) fn new(block: u64, role: Role, content: Memory) -> Rc<Buffer> {
        Rc::new(Buffer {
            block,
            role: Cell::new(role),
            content: RefCell::new(Rc::new(content)),
            changed_in: Cell::new(None),
            held_by: Cell::new(None),
            pins: Cell::new(0),
        })
    }

    /// A block that becomes something else: freed, and allocated again.
    pub(crate) fn turn_into(&self, role: Role) {
        self.role.set(role);
        self.content.replace(Rc::new(Memory::new(BLOCK_BYTES)));
    }

    pub(crate) fn role(&self) -> Role {
        self.role.get()
    }

    /// Says what the block holds from now on; its bytes stay.
    pub(crate) fn set_role(&self, role: Role) {
        self.role.set(role);
    }

    /// Runs `look` on the bytes.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&[u8]) -> T) -> T {
        look(&self.content.borrow())
    }

    /// The content as of now; it does not change with the buffer.
    pub(crate) fn snapshot(&self) -> Rc<Memory> {
        Rc::clone(&self.content.borrow())
    }

    /// Changes `range` of the bytes. Only a transaction's handle may.
    pub(crate) fn change<T>(&self, range: Range<usize>, change: impl FnOnce(&mut [u8]) -> T) -> T {
        let mut content = self.content.borrow_mut();
        let bytes = own(&mut content);
        let end = range.end.min(bytes.len());
        change(&mut bytes[range.start.min(end)..end])
    }

    /// Stores the checksum, where the block has one of its own.
    pub(crate) fn seal(&self, checksums: &Checksums) -> Result<(), FormatError> {
        match self.role.get() {
            Role::Metadata(kind) => checksums.seal(kind, self.block, own(&mut self.content.borrow_mut())),
            Role::Data => Ok(()),
        }
    }
}

/// The bytes, copied first if somebody else shares them.
pub(crate) fn own(content: &mut Rc<Memory>) -> &mut Memory {
    if Rc::get_mut(content).is_none() {
        *content = Rc::new(Memory::copy_of(content));
    }
    Rc::get_mut(content).expect("nobody shares it: it is made just now, or was found to be ours")
}
