//! The *table* of snapshots and clones: one logical block behind the last slot, and the same in memory.
//!
//! A *snapshot* keeps what the volume held at one record of its log. A *clone* begins as a snapshot and takes writes of its own.
//! Each has a *slot*, a range of logical blocks as long as the volume, in which it has the blocks that are its own; where its slot
//! maps nothing, it reads by its *path* ([`Table::path`]). The volume itself is slot 0.

use weir_storage::BLOCK_BYTES;
use zerocopy::{FromBytes, IntoBytes};

use crate::error::Damage;
use crate::geometry::{Format, Geometry};
use crate::layout::{TABLE_MAGIC, TableBlock, TableEntry, checksum_matches, stamp_checksum};

/// Bytes of a name at most.
pub(crate) const NAME_BYTES: usize = 64;

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BranchKind {
    /// What the volume held at a moment. It does not change.
    Snapshot,
    /// What a snapshot held, and what was written there since.
    Clone,
}

/// A snapshot or a clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// Its name: 1 to 64 letters, digits, dots, hyphens and underscores, of which the first is no dot and no hyphen.
    pub name: String,
    /// Snapshot or clone.
    pub kind: BranchKind,
    /// Sequence number of the newest record of the volume's log that it holds; of a clone, that of its snapshot.
    pub sequence: u64,
    /// When it was made, in nanoseconds since 1970, by the clock of the host.
    pub made: u64,
    /// Drawn at random; of a snapshot that was received, that of the one that was sent.
    pub(crate) identity: u64,
    pub(crate) slot: u32,
    /// Of a clone: the slot of its snapshot. Of a snapshot 0.
    pub(crate) parent: u32,
    /// It is being deleted: what other snapshots need of it is being moved, and nothing is added.
    pub(crate) is_leaving: bool,
}

/// All snapshots and clones of a volume, in the order in which they were made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    pub branches: Vec<Branch>,
    /// The slot of the snapshot that the volume is being rolled back to; 0 if it is not.
    pub rolled_back_to: u32,
}

/// Whether a branch may have this name.
pub(crate) fn is_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=NAME_BYTES).contains(&name.len()) && name.bytes().all(is_allowed) && !name.starts_with(['.', '-'])
}

/// A name with zeros behind it.
pub(crate) fn name_bytes(name: &str) -> [u8; NAME_BYTES] {
    let mut bytes = [0; NAME_BYTES];
    bytes.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from);
    bytes
}

/// The name that has zeros behind it, if it is one.
pub(crate) fn name_from_bytes(bytes: &[u8; NAME_BYTES]) -> Option<String> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(NAME_BYTES);
    str::from_utf8(&bytes[..end]).ok().filter(|name| is_name(name)).map(str::to_owned)
}

impl Table {
    pub(crate) fn find(&self, name: &str) -> Option<&Branch> {
        self.branches.iter().find(|branch| branch.name == name)
    }

    /// A slot that no branch has.
    pub(crate) fn free_slot(&self, slots: u32) -> Option<u32> {
        (1..=slots).find(|slot| self.branches.iter().all(|branch| branch.slot != *slot))
    }

    /// The snapshots, oldest first.
    fn snapshots(&self) -> impl DoubleEndedIterator<Item = &Branch> {
        self.branches.iter().filter(|branch| branch.kind == BranchKind::Snapshot)
    }

    /// The snapshot that keeps what the volume is about to change.
    pub(crate) fn newest(&self) -> Option<&Branch> {
        self.snapshots().rev().find(|branch| !branch.is_leaving)
    }

    /// The snapshot before this one.
    pub(crate) fn older_than(&self, slot: u32) -> Option<&Branch> {
        self.snapshots().take_while(|branch| branch.slot != slot).last()
    }

    /// The slots in which a block of a branch is looked for, in turn. A snapshot lacks what has not changed since: the next
    /// snapshot has that, and behind the newest one the volume. A clone lacks what its snapshot has.
    pub(crate) fn path(&self, slot: u32) -> Vec<u32> {
        let clone = self.branches.iter().find(|it| it.slot == slot && it.kind == BranchKind::Clone);
        let first = clone.map_or(slot, |clone| clone.parent);
        let later = self.snapshots().map(|branch| branch.slot).skip_while(|other| *other != first);
        clone.map(|clone| clone.slot).into_iter().chain(later).chain([0]).collect()
    }

    /// The table as a block.
    pub(crate) fn to_block(&self, volume: u64) -> Vec<u8> {
        let mut entries = [TableEntry::default(); Format::SLOTS_MAX as usize];
        for (to, branch) in entries.iter_mut().zip(&self.branches) {
            to.slot = branch.slot.into();
            to.kind = if branch.kind == BranchKind::Snapshot { 1 } else { 2 };
            to.is_leaving = branch.is_leaving.into();
            to.parent = branch.parent.into();
            to.sequence = branch.sequence.into();
            to.made = branch.made.into();
            to.identity = branch.identity.into();
            to.name = name_bytes(&branch.name);
        }
        let table = TableBlock {
            magic: TABLE_MAGIC,
            volume: volume.into(),
            checksum: 0.into(),
            branches: (self.branches.len() as u32).into(),
            rolled_back_to: self.rolled_back_to.into(),
            reserved: 0.into(),
            entries,
        };
        let mut block = vec![0; BLOCK_BYTES];
        block[..size_of::<TableBlock>()].copy_from_slice(table.as_bytes());
        stamp_checksum(&mut block, std::mem::offset_of!(TableBlock, checksum));
        block
    }

    /// Reads a table. A block of zeros is an empty one.
    pub(crate) fn from_block(block: &[u8], geometry: &Geometry) -> Result<Table, Damage> {
        if block.iter().all(|byte| *byte == 0) {
            return Ok(Table::default());
        }
        let (found, _) = TableBlock::ref_from_prefix(block).map_err(|_| Damage::SnapshotTable)?;
        let is_whole = found.magic == TABLE_MAGIC
            && found.volume.get() == geometry.volume
            && checksum_matches(block, std::mem::offset_of!(TableBlock, checksum));
        let entries = found.entries.get(..found.branches.get() as usize).filter(|_| is_whole);
        let branches = entries.ok_or(Damage::SnapshotTable)?.iter().map(branch_from_entry);
        let table = Table {
            branches: branches.collect::<Result<_, _>>()?,
            rolled_back_to: found.rolled_back_to.get(),
        };
        if table.is_consistent(geometry.slots) { Ok(table) } else { Err(Damage::SnapshotTable) }
    }

    /// No two branches have one slot or one name, clones are of snapshots that are there, and so is what is rolled back to.
    fn is_consistent(&self, slots: u32) -> bool {
        let is_snapshot = |slot: u32| self.snapshots().any(|branch| branch.slot == slot);
        let fits = |(i, branch): (usize, &Branch)| {
            let is_other = |other: &Branch| other.slot != branch.slot && other.name != branch.name;
            let has_parent = match branch.kind {
                BranchKind::Snapshot => branch.parent == 0,
                BranchKind::Clone => is_snapshot(branch.parent),
            };
            (1..=slots).contains(&branch.slot) && has_parent && self.branches[..i].iter().all(is_other)
        };
        self.branches.iter().enumerate().all(fits)
            && (self.rolled_back_to == 0 || is_snapshot(self.rolled_back_to))
    }
}

fn branch_from_entry(entry: &TableEntry) -> Result<Branch, Damage> {
    let kind = match entry.kind {
        1 => BranchKind::Snapshot,
        2 => BranchKind::Clone,
        _ => return Err(Damage::SnapshotTable),
    };
    Ok(Branch {
        name: name_from_bytes(&entry.name).ok_or(Damage::SnapshotTable)?,
        kind,
        sequence: entry.sequence.get(),
        made: entry.made.get(),
        identity: entry.identity.get(),
        slot: entry.slot.get(),
        parent: entry.parent.get(),
        is_leaving: entry.is_leaving != 0,
    })
}
