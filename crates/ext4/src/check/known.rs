//! The results of a check so far: findings, the user of each block, inodes and directories.
//! Each step adds to it, and judges by what those before have added.

use std::collections::{BTreeMap, BTreeSet};

use weir_format::Place;

use super::Problem;
use super::claims::Claims;
use super::finding::Findings;
use super::table::InodeTable;
use crate::layout::Layout;

/// What is known of a directory.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DirectoryState {
    /// The directory with the first name for this one.
    pub parent: Option<u32>,
    /// What its ".." says; 0 if that was not read.
    pub up: u32,
    /// Its blocks are unknown, so its names are not read.
    pub lost: bool,
}

/// What is known.
pub(super) struct Known {
    pub findings: Findings,
    pub claims: Claims,
    pub table: InodeTable,
    pub directories: BTreeMap<u32, DirectoryState>,
    /// Inodes that the next mount deletes or truncates.
    pub orphans: BTreeSet<u32>,
    /// Something was not looked into, so blocks without a claim may yet be in use.
    pub blocks_unknown: bool,
    /// Some directory was not read whole, so names may be missing.
    pub names_unknown: bool,
}

impl Known {
    pub(super) fn new(layout: &Layout, findings: Findings) -> Self {
        Self {
            findings,
            claims: Claims::new(layout),
            table: InodeTable::new(layout),
            directories: BTreeMap::new(),
            orphans: BTreeSet::new(),
            blocks_unknown: false,
            names_unknown: false,
        }
    }

    /// Claims blocks for `place`, and tells if they are claimed already or beyond the end. False if so.
    pub(super) fn claim(&mut self, place: Place, first: u64, count: u64) -> bool {
        let taken = self.claims.claim(first, count);
        if let Some(block) = taken {
            self.findings.push(place, Problem::BlockTwice { block });
        }
        taken.is_none()
    }

    /// What is behind an inode that cannot be read is not known: blocks, and names if it is a directory.
    pub(super) fn lose_blocks_of(&mut self, number: u32) {
        self.blocks_unknown = true;
        self.names_unknown = true;
        if let Some(state) = self.directories.get_mut(&number) {
            state.lost = true;
        }
    }

    /// Not all names of a directory could be read, perhaps not even its "..".
    pub(super) fn lose_names_of(&mut self, number: u32) {
        self.names_unknown = true;
        if let Some(state) = self.directories.get_mut(&number) {
            state.lost = state.up == 0;
        }
    }
}
