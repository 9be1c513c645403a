//! *Orphans*: inodes that a crash would leave with too much, so that recovery has to look at them: files that are
//! open and have no name any more, and files in the middle of a long truncation. They are chained on disk, from
//! the superblock on, each naming the next where its time of deletion will be. Every change of the chain is part of
//! the transaction that makes it necessary.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::mem::offset_of;
use std::rc::Rc;

use weir_ext4::{
    FormatError, Inode, Kind, Layout, Place, SUPERBLOCK_OFFSET, Structure, Superblock,
};
use weir_runtime::Semaphore;

use crate::buffers::Buffers;
use crate::error::FsError;
use crate::filesystem::Mounted;
use crate::journal::Handle;
use crate::node::Node;
use crate::space::Space;

/// Journaled blocks that [`Mounted::add_orphan`] and [`Mounted::remove_orphan`] change, beside the inode's own.
pub(crate) const ORPHAN_CREDITS: u32 = 1;

/// The chain, in memory.
pub(crate) struct Orphans {
    /// Last to first: the superblock names the last element, and each names the one before it.
    chain: RefCell<Vec<u32>>,
    /// One change at a time. Who waits for it may hold a handle: who has it waits for reads only.
    turn: Semaphore,
}

impl Orphans {
    /// A chain as recovery has found it, first to last.
    pub(crate) fn new(mut chain: Vec<u32>) -> Orphans {
        chain.reverse();
        Orphans { chain: RefCell::new(chain), turn: Semaphore::new(1) }
    }

    /// The first inode of the chain.
    pub(crate) fn first(&self) -> Option<u32> {
        self.chain.borrow().last().copied()
    }

    fn position(&self, number: u32) -> Option<usize> {
        self.chain.borrow().iter().rposition(|&other| other == number)
    }
}

/// The chain as a crash has left it, first to last.
///
/// # Errors
/// [`FormatError::Corrupt`] for a chain that does not end, or with an inode that nobody can have opened.
pub(crate) async fn orphans_on_disk(
    buffers: &Buffers,
    space: &Space,
    layout: &Layout,
    superblock: &Superblock,
) -> Result<Vec<u32>, FsError> {
    let mut chain = Vec::new();
    let mut seen = BTreeSet::new();
    let mut number = superblock.last_orphan.get();
    while number != 0 {
        let corrupt = |what| FormatError::corrupt(Structure::Inode, Place::Inode(number), what);
        if !seen.insert(number) {
            return Err(corrupt("it is twice in the list of orphans").into());
        }
        if number < superblock.first_inode.get() || !space.inode_is_used(number).await? {
            return Err(corrupt("it cannot be an orphan").into());
        }
        chain.push(number);
        let (block, range) = space.inode_place(number)?;
        let table = buffers.get(block, Kind::InodeTable).await?;
        let inode = table.look(|bytes| Inode::read(&bytes[range], number, &layout.checksums()))?;
        number = inode.deleted.get();
    }
    Ok(chain)
}

impl Mounted {
    /// Finishes what a crash has interrupted: inodes without names are deleted, truncations are done to their
    /// end. Each leaves the chain with the transaction that finishes it, so this can be interrupted as well.
    pub(crate) async fn finish_orphans(self: &Rc<Mounted>) -> Result<(), FsError> {
        if self.changes.is_err() {
            return Ok(());
        }
        while let Some(number) = self.orphans.first() {
            let node = self.nodes.get(self, number).await?;
            if node.links() == 0 {
                self.delete(&node).await?;
            } else {
                self.finish_truncation(&node).await?;
            }
            if self.orphans.position(number).is_some() {
                let what = "it cannot be taken out of the list of orphans";
                return Err(FormatError::corrupt(Structure::Inode, Place::Inode(number), what).into());
            }
        }
        Ok(())
    }

    /// Makes an inode the first of the chain, if it is not in it. The caller logs the node after that, with the
    /// same handle. Costs [`ORPHAN_CREDITS`].
    pub(crate) async fn add_orphan(&self, handle: &Handle, node: &Node) -> Result<(), FsError> {
        let _turn = self.orphans.turn.acquire(1).await;
        if self.orphans.position(node.number).is_some() {
            return Ok(());
        }
        let next = self.orphans.first().unwrap_or(0);
        self.set_first_orphan(handle, node.number).await?;
        node.inode.borrow_mut().deleted = next.into();
        self.orphans.chain.borrow_mut().push(node.number);
        Ok(())
    }

    /// Takes an inode out of the chain, if it is in it. The caller logs the node after that, with the same handle,
    /// and with its time of deletion if it is to be freed. Costs [`ORPHAN_CREDITS`].
    pub(crate) async fn remove_orphan(&self, handle: &Handle, node: &Node) -> Result<(), FsError> {
        let _turn = self.orphans.turn.acquire(1).await;
        let Some(at) = self.orphans.position(node.number) else { return Ok(()) };
        let (before, next) = {
            let chain = self.orphans.chain.borrow();
            (chain.get(at + 1).copied(), at.checked_sub(1).map_or(0, |next| chain[next]))
        };
        match before {
            None => self.set_first_orphan(handle, next).await?,
            Some(before) => {
                let before = self.nodes.get(self, before).await?;
                before.inode.borrow_mut().deleted = next.into();
                before.log(self, handle).await?;
            }
        }
        node.inode.borrow_mut().deleted = 0.into();
        self.orphans.chain.borrow_mut().remove(at);
        Ok(())
    }

    async fn set_first_orphan(&self, handle: &Handle, number: u32) -> Result<(), FsError> {
        let at = SUPERBLOCK_OFFSET + offset_of!(Superblock, last_orphan);
        let block = self.buffers.get(0, Kind::Superblock).await?;
        handle.modify(&block, at..at + 4, |bytes| bytes.copy_from_slice(&number.to_le_bytes()));
        self.superblock.borrow_mut().last_orphan = number.into();
        Ok(())
    }
}
