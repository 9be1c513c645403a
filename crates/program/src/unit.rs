//! *Unit*: a piece of a call that a power cut leaves or takes.

use std::ops::Range;

use weir_vfs::InodeNumber;

use crate::operation::Place;
use crate::tree::BLOCK_BYTES;

const BLOCK: u64 = BLOCK_BYTES as u64;
/// A disk writes a sector whole, or not at all.
pub const SECTOR_BYTES: usize = 512;

/// A unit, by its place in the order of the calls.
pub type UnitNumber = usize;

/// What a unit is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnitKind {
    /// Bytes within one block of a file.
    Data {
        /// The file.
        inode: InodeNumber,
        /// Where in the file.
        offset: u64,
        /// Where among the bytes of the record.
        data: Range<u64>,
    },
    /// A size that a write has made.
    Grow {
        /// The file.
        inode: InodeNumber,
        /// The size.
        size: u64,
    },
    /// A size that was set.
    SetSize {
        /// The file.
        inode: InodeNumber,
        /// The size.
        size: u64,
    },
    /// Names that change together.
    Names(Vec<(Place, Option<InodeNumber>)>),
    /// Zeros in the place of data.
    Zero(InodeNumber),
    /// Attributes, as the call has them.
    Attributes(InodeNumber),
}

impl UnitKind {
    /// The inode that it is a part of; none of names.
    #[must_use]
    pub fn inode(&self) -> Option<InodeNumber> {
        match self {
            UnitKind::Data { inode, .. }
            | UnitKind::Grow { inode, .. }
            | UnitKind::SetSize { inode, .. }
            | UnitKind::Zero(inode)
            | UnitKind::Attributes(inode) => Some(*inode),
            UnitKind::Names(_) => None,
        }
    }
}

/// A piece of a call.
#[derive(Clone, Debug)]
pub struct Unit {
    /// The call, by its place in the record.
    pub operation: usize,
    /// What it is.
    pub kind: UnitKind,
    /// Those that are there if this one is: all have lower numbers.
    pub needs: Vec<UnitNumber>,
}

impl Unit {
    /// The sectors that it writes to, as bits; none of what is no data.
    #[must_use]
    pub fn sectors(&self) -> u8 {
        match &self.kind {
            UnitKind::Data { offset, data, .. } => {
                let first = (offset % BLOCK) as usize / SECTOR_BYTES;
                let end =
                    ((offset % BLOCK) as usize + (data.end - data.start) as usize).div_ceil(SECTOR_BYTES);
                (first..end.min(8)).fold(0, |bits, sector| bits | 1 << sector)
            }
            _ => 0,
        }
    }

    /// The block that it is data of: its file, and its place there in blocks.
    #[must_use]
    pub fn block(&self) -> Option<(InodeNumber, u64)> {
        match &self.kind {
            UnitKind::Data { inode, offset, .. } => Some((*inode, offset / BLOCK)),
            _ => None,
        }
    }
}

/// The sectors that any of these writes to, as bits.
pub(crate) fn union_of_sectors<'a>(units: impl Iterator<Item = &'a Unit>) -> u8 {
    units.fold(0, |bits, unit| bits | unit.sectors())
}
