//! What is known of each inode.

use weir_format::FileType;

use crate::inode::ROOT_INODE;
use crate::layout::Layout;

/// What is known of an inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum InodeState {
    /// It is not used.
    #[default]
    Free,
    /// It is in use, as this kind of file.
    Used(FileType),
    /// It cannot be read.
    Unknown,
}

/// An inode, and how many names there are for it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InodeRecord {
    pub state: InodeState,
    pub links: u16,
    pub names: u32,
}

/// The inodes of a group.
#[derive(Clone, Debug)]
pub(super) enum GroupState {
    /// None is in use.
    Free,
    /// They cannot be read.
    Unknown,
    Known(Box<[InodeRecord]>),
}

/// All inodes, by group.
pub(super) struct InodeTable {
    layout: Layout,
    groups: Vec<GroupState>,
}

impl InodeTable {
    pub(super) fn new(layout: &Layout) -> Self {
        Self { layout: *layout, groups: vec![GroupState::Free; layout.groups() as usize] }
    }

    pub(super) fn set_group(&mut self, group: u32, state: GroupState) {
        self.groups[group as usize] = state;
    }

    /// The inodes of a group that was read and has any in use.
    pub(super) fn group(&self, group: u32) -> Option<&[InodeRecord]> {
        match &self.groups[group as usize] {
            GroupState::Known(records) => Some(records),
            GroupState::Free | GroupState::Unknown => None,
        }
    }

    /// An inode's state; `None` if there is no such number.
    pub(super) fn state(&self, inode: u32) -> Option<InodeState> {
        let (group, index) = self.layout.inode_group(inode).ok()?;
        Some(match &self.groups[group as usize] {
            GroupState::Free => InodeState::Free,
            GroupState::Unknown => InodeState::Unknown,
            GroupState::Known(records) => records[index as usize].state,
        })
    }

    fn record(&mut self, inode: u32) -> Option<&mut InodeRecord> {
        let (group, index) = self.layout.inode_group(inode).ok()?;
        match &mut self.groups[group as usize] {
            GroupState::Known(records) => records.get_mut(index as usize),
            GroupState::Free | GroupState::Unknown => None,
        }
    }

    /// Counts a name of an inode.
    pub(super) fn add_name(&mut self, inode: u32) {
        if let Some(record) = self.record(inode) {
            record.names += 1;
        }
    }

    pub(super) fn set(&mut self, inode: u32, state: InodeState, links: u16) {
        if let Some(record) = self.record(inode) {
            *record = InodeRecord { state, links, names: 0 };
        }
    }

    /// How many inodes are in use: those from `first` on, and the root.
    pub(super) fn used(&self, first: u32) -> u32 {
        let all = (0..self.layout.groups()).filter_map(|group| Some((group, self.group(group)?)));
        let used = |(group, records): (u32, &[InodeRecord])| {
            let numbered = (0..).zip(records).filter(|(_, record)| record.state != InodeState::Free);
            let numbers = numbered.map(|(index, _)| self.layout.inode_at(group, index));
            numbers.filter(|&number| number >= first || number == ROOT_INODE).count() as u32
        };
        all.map(used).sum()
    }
}
