//! *Orphans*: inodes that a crash would leave with too much, so that recovery has to look at them: files that are
//! open and have no name any more, and files in the middle of a long truncation. They are chained on disk, from
//! the superblock on, each naming the next where its time of deletion will be. Every change of the chain is part of
//! the transaction that makes it necessary.

use std::cell::RefCell;
use std::mem::offset_of;
use std::rc::Rc;

use weir_ext4::orphan::{OrphanChain, orphans_in};
use weir_ext4::{
    BLOCK_BYTES, Feature, FormatError, Inode, Kind, Place, SUPERBLOCK_OFFSET, Structure, Superblock,
};
use weir_journal::{BufferHead, Buffers, TxHandle};
use weir_runtime::Semaphore;

use crate::error::FsError;
use crate::filesystem::Mounted;
use crate::node::Node;
use crate::space::Space;
use crate::tree::Tree;

/// Journaled blocks that [`Mounted::add_orphan`] and [`Mounted::remove_orphan`] change, beside the inode's own.
pub(crate) const ORPHAN_CREDITS: u32 = 1;

/// The chain, in memory.
pub(crate) struct Orphans {
    /// Last to first: the superblock names the last element, and each names the one before it.
    chain: RefCell<Vec<u32>>,
    /// One change at a time. A caller that waits for it may hold a handle: its holder waits for reads only.
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
/// [`FormatError::Corrupt`] for a chain that does not end, or with an inode that is free.
pub(crate) async fn orphans_on_disk(
    buffers: &Buffers,
    space: &Space,
    superblock: &Superblock,
) -> Result<Vec<u32>, FsError> {
    let mut numbers = Vec::new();
    let mut chain = OrphanChain::new(superblock);
    while let Some(number) = chain.number()? {
        if !space.inode_is_used(number).await? {
            return Err(not_an_orphan(number).into());
        }
        let (block, range) = space.inode_place(number)?;
        let table = buffers.get(block, Kind::InodeTable).await?;
        let inode = table.look(|bytes| Inode::read(&bytes[range], number, buffers.checksums()))?;
        chain.follow(&inode);
        numbers.push(number);
    }
    Ok(numbers)
}

fn not_an_orphan(number: u32) -> FormatError {
    FormatError::corrupt(Structure::Inode, Place::Inode(number), "an orphan that is no file")
}

impl Mounted {
    /// Finishes what a crash has interrupted: inodes without names are deleted, truncations are done to their
    /// end. Each leaves the chain with the transaction that finishes it, so this can be interrupted as well.
    pub(crate) async fn finish_orphans(self: &Rc<Mounted>) -> Result<(), FsError> {
        if self.changes.is_err() {
            return Ok(());
        }
        self.undivided(self.finish_all_orphans()).await
    }

    async fn finish_all_orphans(self: &Rc<Mounted>) -> Result<(), FsError> {
        self.empty_orphan_file().await?;
        while let Some(number) = self.orphans.first() {
            let node = self.nodes.get_orphan(self, number).await?;
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

    /// Moves what is in the orphan file, which others fill, into the chain, one by one.
    async fn empty_orphan_file(&self) -> Result<(), FsError> {
        let superblock = *self.superblock.borrow();
        if !superblock.features().has(Feature::ORPHAN_PRESENT) {
            return Ok(());
        }
        let file = self.nodes.get_orphan(self, superblock.orphan_file_inode.get()).await?;
        let (size, generation) = (file.size(), file.inode.borrow().generation.get());
        let tree = Tree { fs: self, handle: None, node: &file };
        for logical in 0..u32::try_from(size / BLOCK_BYTES as u64).unwrap_or(u32::MAX) {
            let block = tree.place(logical).await?;
            let kind = Kind::OrphanFile { inode: file.number, generation };
            let buffer = self.buffers.get(block, kind).await?;
            for number in buffer.look(|bytes| orphans_in(block, bytes, &superblock))? {
                self.move_to_chain(number, &buffer).await?;
            }
        }
        let features = superblock.features().with(Feature::ORPHAN_PRESENT, false);
        let at = SUPERBLOCK_OFFSET + offset_of!(Superblock, read_only_compatible);
        let handle = self.journal()?.start(1).await?;
        let block = self.buffers.get(0, Kind::Superblock).await?;
        let bits = features.read_only_compatible.to_le_bytes();
        handle.modify(&block, at..at + 4, |bytes| bytes.copy_from_slice(&bits));
        self.superblock.borrow_mut().set_features(features);
        Ok(())
    }

    /// Moves an orphan from a block of the orphan file into the chain.
    async fn move_to_chain(&self, number: u32, file: &Rc<BufferHead>) -> Result<(), FsError> {
        if !self.space.inode_is_used(number).await? {
            return Err(not_an_orphan(number).into());
        }
        let node = self.nodes.get_orphan(self, number).await?;
        let handle = self.journal()?.start(ORPHAN_CREDITS + 2).await?;
        self.add_orphan(&handle, &node).await?;
        node.log(self, &handle).await?;
        let names = |slot: &[u8]| slot == number.to_le_bytes();
        if let Some(slot) = file.look(|bytes| bytes.chunks_exact(4).position(names)) {
            handle.modify(file, slot * 4..slot * 4 + 4, |bytes| bytes.fill(0));
        }
        Ok(())
    }

    /// Makes an inode the first of the chain, if it is not in it. The caller logs the node after that, with the
    /// same handle. Costs [`ORPHAN_CREDITS`].
    pub(crate) async fn add_orphan(&self, handle: &TxHandle, node: &Node) -> Result<(), FsError> {
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
    pub(crate) async fn remove_orphan(&self, handle: &TxHandle, node: &Node) -> Result<(), FsError> {
        let _turn = self.orphans.turn.acquire(1).await;
        let Some(at) = self.orphans.position(node.number) else { return Ok(()) };
        let (before, next) = {
            let chain = self.orphans.chain.borrow();
            (chain.get(at + 1).copied(), at.checked_sub(1).map_or(0, |next| chain[next]))
        };
        match before {
            None => self.set_first_orphan(handle, next).await?,
            Some(before) => {
                let before = self.nodes.get_orphan(self, before).await?;
                before.inode.borrow_mut().deleted = next.into();
                before.log(self, handle).await?;
            }
        }
        node.inode.borrow_mut().deleted = 0.into();
        self.orphans.chain.borrow_mut().remove(at);
        Ok(())
    }

    async fn set_first_orphan(&self, handle: &TxHandle, number: u32) -> Result<(), FsError> {
        let at = SUPERBLOCK_OFFSET + offset_of!(Superblock, last_orphan);
        let block = self.buffers.get(0, Kind::Superblock).await?;
        handle.modify(&block, at..at + 4, |bytes| bytes.copy_from_slice(&number.to_le_bytes()));
        self.superblock.borrow_mut().last_orphan = number.into();
        Ok(())
    }
}
