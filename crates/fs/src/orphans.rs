//! *Orphans*: inodes that a crash would leave with too much, so that recovery has to look at them: inodes that are
//! open or held and have no name any more, and files in the middle of a long truncation. They are chained on disk, from
//! the superblock on, each naming the next where its time of deletion will be. Every change of the chain is part of
//! the transaction that makes it necessary.

mod chain;

use std::cell::RefCell;
use std::rc::Rc;

use weir_ext4::orphan::{OrphanChain, orphans_in};
use weir_ext4::{Feature, Inode, Kind, Superblock};
use weir_format::{BLOCK_BYTES, FormatError, Place, Structure};
use weir_journal::{BufferHead, TxHandle};
use weir_runtime::Semaphore;
use weir_vfs::FsError;

use self::chain::Chain;
use crate::changes::Changes;
use crate::inodes::{Metadata, Node, Nodes};
use crate::mapping::Tree;
use crate::superblock::{MountedSuperblock, SUPERBLOCK_CREDITS};

/// Journaled blocks that [`Orphans::add`] and [`Orphans::remove`] change, beside the inode's own.
pub(crate) const ORPHAN_CREDITS: u32 = SUPERBLOCK_CREDITS;

/// The chain, in memory.
pub(crate) struct Orphans {
    chain: RefCell<Chain>,
    /// One change at a time. A caller that waits for it may hold a handle: its holder waits for reads only.
    turn: Semaphore,
    superblock: Rc<MountedSuperblock>,
    nodes: Rc<Nodes>,
}

impl Orphans {
    /// A chain as recovery has found it, first to last.
    pub(crate) fn new(chain: Vec<u32>, superblock: Rc<MountedSuperblock>, nodes: Rc<Nodes>) -> Rc<Orphans> {
        let chain = RefCell::new(chain.into_iter().rev().collect());
        Rc::new(Orphans { chain, turn: Semaphore::new(1), superblock, nodes })
    }

    /// The first inode of the chain.
    pub(crate) fn first(&self) -> Option<u32> {
        self.chain.borrow().first()
    }

    /// All inodes of the chain, first to last.
    pub(crate) fn list(&self) -> Vec<u32> {
        let chain = self.chain.borrow();
        let next = |number: &u32| chain.neighbours(*number).and_then(|(_, next)| next);
        std::iter::successors(chain.first(), next).collect()
    }

    /// Whether an inode is in it.
    pub(crate) fn contains(&self, number: u32) -> bool {
        self.chain.borrow().contains(number)
    }

    /// Moves what is in the orphan file, which others fill, into the chain, one by one.
    pub(crate) async fn empty_orphan_file(&self, changes: &Changes) -> Result<(), FsError> {
        let superblock = *self.superblock.borrow();
        if !superblock.features().has(Feature::ORPHAN_PRESENT) {
            return Ok(());
        }
        let file = self.nodes.get_orphan(superblock.orphan_file_inode.get()).await?;
        let (size, generation) = (file.size(), file.inode.borrow().generation.get());
        let tree = Tree::from_node(&file);
        for logical in 0..u32::try_from(size / BLOCK_BYTES as u64).unwrap_or(u32::MAX) {
            let block = tree.place(logical).await?;
            let kind = Kind::OrphanFile { inode: file.number, generation };
            let buffer = file.metadata().buffers.get(block, kind).await?;
            for number in buffer.read(|bytes| orphans_in(block, bytes, &superblock))? {
                self.move_to_chain(changes, number, &buffer).await?;
            }
        }
        let handle = changes.start(SUPERBLOCK_CREDITS).await?;
        self.superblock.clear_orphan_file(&handle).await
    }

    /// Moves an orphan from a block of the orphan file into the chain.
    async fn move_to_chain(
        &self,
        changes: &Changes,
        number: u32,
        file: &Rc<BufferHead>,
    ) -> Result<(), FsError> {
        if !self.nodes.metadata().space.inode_is_used(number).await? {
            return Err(not_an_orphan(number).into());
        }
        let node = self.nodes.get_orphan(number).await?;
        let handle = changes.start(ORPHAN_CREDITS + 2).await?;
        self.add(&handle, &node).await?;
        node.log(&handle).await?;
        let names = |slot: &[u8]| slot == number.to_le_bytes();
        if let Some(slot) = file.read(|bytes| bytes.chunks_exact(4).position(names)) {
            handle.modify(file, slot * 4..slot * 4 + 4, |bytes| bytes.fill(0));
        }
        Ok(())
    }

    /// Makes an inode the first of the chain, if it is not in it. The caller logs the node after that, with the
    /// same handle. Costs [`ORPHAN_CREDITS`].
    pub(crate) async fn add(&self, handle: &TxHandle, node: &Node) -> Result<(), FsError> {
        let _turn = self.turn.acquire(1).await;
        if self.contains(node.number) {
            return Ok(());
        }
        let next = self.first().unwrap_or(0);
        self.superblock.set_last_orphan(handle, node.number).await?;
        node.inode.borrow_mut().deleted = next.into();
        self.chain.borrow_mut().push_front(node.number);
        Ok(())
    }

    /// Takes an inode out of the chain, if it is in it. The caller logs the node after that, with the same handle,
    /// and with its time of deletion if it is to be freed. Costs [`ORPHAN_CREDITS`].
    pub(crate) async fn remove(&self, handle: &TxHandle, node: &Node) -> Result<(), FsError> {
        let _turn = self.turn.acquire(1).await;
        let Some((before, next)) = self.chain.borrow().neighbours(node.number) else { return Ok(()) };
        let next = next.unwrap_or(0);
        match before {
            None => self.superblock.set_last_orphan(handle, next).await?,
            Some(before) => {
                let before = self.nodes.get_orphan(before).await?;
                before.inode.borrow_mut().deleted = next.into();
                before.log(handle).await?;
            }
        }
        node.inode.borrow_mut().deleted = 0.into();
        self.chain.borrow_mut().remove(node.number);
        Ok(())
    }
}

/// The chain as a crash has left it, first to last.
///
/// # Errors
/// [`FormatError::Corrupt`] for a chain that does not end, or with an inode that is free.
pub(crate) async fn orphans_on_disk(
    metadata: &Metadata,
    superblock: &Superblock,
) -> Result<Vec<u32>, FsError> {
    let Metadata { buffers, space, .. } = metadata;
    let mut numbers = Vec::new();
    let mut chain = OrphanChain::new(superblock);
    while let Some(number) = chain.number()? {
        if !space.inode_is_used(number).await? {
            return Err(not_an_orphan(number).into());
        }
        let (block, range) = space.inode_place(number)?;
        let table = buffers.get(block, Kind::InodeTable).await?;
        let inode = table.read(|bytes| Inode::read(&bytes[range], number, buffers.checksums()))?;
        chain.follow(&inode);
        numbers.push(number);
    }
    Ok(numbers)
}

fn not_an_orphan(number: u32) -> FormatError {
    FormatError::corrupt(Structure::Inode, Place::Inode(number), "an orphan that is no file")
}
