//! Orphans: inodes that a crash may leave behind, since an operation on them spans transactions. A file without
//! a name is still open, and is to be deleted; or a truncation has set the new size, and blocks behind it are
//! still to be freed.
//!
//! Two lists of them exist. The *chain* starts in the superblock, and goes on in the field of each inode that
//! will hold the time of its deletion. The *orphan file* has blocks of inode numbers in no order, zeros between
//! them. Recovery goes through both; this crate's filesystem enters orphans into the chain only.

use weir_format::{BLOCK_BYTES, FormatError, Place, Structure};
use zerocopy::little_endian::U32;

use crate::checksum::{ORPHAN_MAGIC, ORPHAN_TAIL_BYTES};
use crate::inode::Inode;
use crate::superblock::Superblock;

/// Inode numbers in a block of the orphan file.
pub const ORPHANS_PER_BLOCK: usize = (BLOCK_BYTES - ORPHAN_TAIL_BYTES) / 4;

/// What recovery does with an orphan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrphanWork {
    /// Frees the inode and all of its blocks.
    Delete,
    /// Frees the blocks behind its size.
    Truncate,
}

impl OrphanWork {
    /// What is to be done with the orphan `inode`: it has no name, or it has one.
    pub fn of(inode: &Inode) -> Self {
        if inode.links.get() == 0 { Self::Delete } else { Self::Truncate }
    }
}

/// Enters inode `number` at the head of the chain.
pub fn enter(superblock: &mut Superblock, number: u32, inode: &mut Inode) {
    inode.deleted = superblock.last_orphan;
    superblock.last_orphan = number.into();
}

/// Takes an inode out of the chain. `before` is the field that names it: `last_orphan` of the superblock if it is
/// the head, `deleted` of the inode before it otherwise.
pub fn leave(before: &mut U32, inode: &mut Inode) {
    *before = inode.deleted;
    inode.deleted = 0.into();
}

/// A way along the chain: the caller reads the inodes.
///
/// On a damaged disk a chain may lead back into itself. So every inode is compared with one that came before
/// it, and that one is exchanged for a later one at each power of two: whatever the loop, the way ends after
/// about three times as many steps as there are inodes in the chain, without a list of them.
#[derive(Clone, Copy, Debug)]
pub struct OrphanChain {
    next: u32,
    first: u32,
    last: u32,
    remembered: u32,
    steps: u64,
}

impl OrphanChain {
    /// The chain of a checked superblock.
    pub fn new(superblock: &Superblock) -> Self {
        let (first, last) = (superblock.first_inode.get(), superblock.inodes.get());
        Self { next: superblock.last_orphan.get(), first, last, remembered: 0, steps: 0 }
    }

    /// The next orphan; `None` at the end.
    ///
    /// # Errors
    ///
    /// [`FormatError::Corrupt`] where no orphan can have that number, or it came before.
    pub fn number(&self) -> Result<Option<u32>, FormatError> {
        let corrupt = |what| Err(FormatError::corrupt(Structure::Inode, Place::Inode(self.next), what));
        match self.next {
            0 => Ok(None),
            next if !(self.first..=self.last).contains(&next) => corrupt("an orphan that is no file"),
            next if next == self.remembered => corrupt("a chain of orphans without end"),
            next => Ok(Some(next)),
        }
    }

    /// Goes on behind the inode that [`number`](Self::number) named.
    pub fn follow(&mut self, inode: &Inode) {
        self.steps += 1;
        if self.steps.is_power_of_two() {
            self.remembered = self.next;
        }
        self.next = inode.deleted.get();
    }
}

/// The orphans in a block of the orphan file.
///
/// # Errors
///
/// [`FormatError::Corrupt`] if it is no such block, or names an inode that cannot be an orphan.
pub fn orphans_in(block: u64, bytes: &[u8], superblock: &Superblock) -> Result<Vec<u32>, FormatError> {
    let corrupt = |what| FormatError::corrupt(Structure::OrphanFile, Place::Block(block), what);
    let tail = BLOCK_BYTES - ORPHAN_TAIL_BYTES;
    if bytes.len() != BLOCK_BYTES || bytes[tail..tail + 4] != ORPHAN_MAGIC.to_le_bytes() {
        return Err(corrupt("magic number"));
    }
    let files = superblock.first_inode.get()..=superblock.inodes.get();
    let numbers = bytes[..tail].chunks_exact(4).map(|slot| {
        let mut number = [0; 4];
        number.copy_from_slice(slot);
        u32::from_le_bytes(number)
    });
    let orphans: Vec<u32> = numbers.filter(|number| *number != 0).collect();
    match orphans.iter().all(|number| files.contains(number)) {
        true => Ok(orphans),
        false => Err(corrupt("an orphan that is no file")),
    }
}

/// Empties a block of the orphan file; its checksum is the caller's business.
pub fn clear_orphans(bytes: &mut [u8; BLOCK_BYTES]) {
    bytes[..BLOCK_BYTES - ORPHAN_TAIL_BYTES].fill(0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::Features;
    use weir_format::FileType;

    fn superblock() -> Superblock {
        let mut superblock = Superblock::blank(Features::default());
        superblock.first_inode = 11.into();
        superblock.inodes = 1000.into();
        superblock
    }

    /// Walks a chain in which `next` follows each inode.
    fn walk(head: u32, next: impl Fn(u32) -> u32) -> Result<Vec<u32>, FormatError> {
        let mut superblock = superblock();
        superblock.last_orphan = head.into();
        let mut chain = OrphanChain::new(&superblock);
        let mut found = Vec::new();
        while let Some(number) = chain.number()? {
            found.push(number);
            assert!(found.len() < 3_000, "no end");
            let mut inode = Inode::new(FileType::Regular, 0);
            inode.deleted = next(number).into();
            chain.follow(&inode);
        }
        Ok(found)
    }

    #[test]
    fn a_chain_is_followed_to_its_end() {
        assert_eq!(walk(0, |_| 0), Ok(vec![]));
        let all: Vec<u32> = (11..=1000).rev().collect();
        assert_eq!(walk(1000, |number| if number == 11 { 0 } else { number - 1 }), Ok(all));
    }

    #[test]
    fn a_chain_into_itself_or_to_no_file_ends() {
        for (length, lead) in [(1, 0), (1, 5), (2, 0), (7, 3), (64, 64), (700, 250)] {
            let last = 20 + lead + length - 1;
            walk(20, |number| if number == last { 20 + lead } else { number + 1 }).expect_err("a loop");
        }
        for outside in [1, 10, 1001, u32::MAX] {
            walk(30, |_| outside).expect_err("no file");
        }
    }

    #[test]
    fn orphans_enter_and_leave() {
        let mut superblock = superblock();
        let mut files = [12, 15, 13].map(|number| (number, Inode::new(FileType::Regular, 0)));
        for (number, inode) in &mut files {
            enter(&mut superblock, *number, inode);
        }
        let next = files.map(|(_, inode)| inode.deleted.get());
        assert_eq!((superblock.last_orphan.get(), next), (13, [0, 12, 15]));
        let [_, (_, middle), (_, head)] = &mut files;
        leave(&mut head.deleted, middle);
        assert_eq!((head.deleted.get(), middle.deleted.get()), (12, 0));
        leave(&mut superblock.last_orphan, head);
        assert_eq!(superblock.last_orphan.get(), 12);
    }

    #[test]
    fn hostile_blocks_of_the_orphan_file_are_refused() {
        let mut bytes = [0; BLOCK_BYTES];
        orphans_in(1, &bytes, &superblock()).expect_err("no magic number");
        bytes[BLOCK_BYTES - ORPHAN_TAIL_BYTES..][..4].copy_from_slice(&ORPHAN_MAGIC.to_le_bytes());
        assert_eq!(orphans_in(1, &bytes, &superblock()), Ok(vec![]));
        bytes[400..404].copy_from_slice(&77_u32.to_le_bytes());
        assert_eq!(orphans_in(1, &bytes, &superblock()), Ok(vec![77]));
        bytes[800..804].copy_from_slice(&1001_u32.to_le_bytes());
        orphans_in(1, &bytes, &superblock()).expect_err("no such inode");
        orphans_in(1, &bytes[..100], &superblock()).expect_err("too short");
        clear_orphans(&mut bytes);
        assert_eq!(orphans_in(1, &bytes, &superblock()), Ok(vec![]));
    }
}
