//! The tree of directories, and how often each inode has a name.

use std::collections::BTreeSet;

use super::Problem;
use super::known::Known;
use super::subject::Subject;
use super::table::InodeState;
use crate::error::{Place, Structure};
use crate::features::Feature;
use crate::inode::{FileType, ROOT_INODE};

/// Above this many links a directory says that it has one, with the feature `dir_nlink`.
const LINKS_MAX: u32 = 65_000;

/// The tree of directories, and the links of inodes.
struct Links<'a, R> {
    subject: &'a Subject<'a, R>,
    known: &'a mut Known,
}

/// Compares the names that were found with what inodes and directories say.
pub(super) fn check<R>(subject: &Subject<'_, R>, known: &mut Known) {
    Links { subject, known }.all();
}

impl<R> Links<'_, R> {
    fn all(&mut self) {
        if !self.known.directories.contains_key(&ROOT_INODE) {
            // What cannot be read has been told.
            let read = self.known.table.group(0).and_then(|records| records.get(ROOT_INODE as usize - 1));
            if read.is_some_and(|record| record.state != InodeState::Unknown) {
                self.known.findings.damaged(
                    Place::Inode(ROOT_INODE),
                    Structure::Inode,
                    "the root is no directory",
                );
            }
            return;
        }
        self.tree();
        for group in 0..self.subject.layout.groups() {
            let records = self.known.table.group(group).map(<[_]>::to_vec).unwrap_or_default();
            for (index, record) in (0..).zip(records) {
                if let InodeState::Used(kind) = record.state {
                    self.count_names(
                        self.subject.layout.inode_at(group, index),
                        kind,
                        record.links,
                        record.names,
                    );
                }
            }
        }
    }

    /// Every directory is below the root, and its ".." stands for the one above.
    fn tree(&mut self) {
        let mut below = BTreeSet::from([ROOT_INODE]);
        for number in self.known.directories.keys().copied().collect::<Vec<u32>>() {
            let mut way = BTreeSet::new();
            let mut at = Some(number);
            while let Some(directory) = at.filter(|at| !below.contains(at)) {
                // A way that comes back to itself never reaches the root.
                at = if way.insert(directory) { self.parent(directory) } else { None };
            }
            if at.is_some() {
                below.append(&mut way);
            } else if !self.known.names_unknown {
                self.known.findings.push(Place::Inode(number), Problem::Unreachable);
            }
            let Some(state) = self.known.directories.get(&number).copied() else { continue };
            let parent = if number == ROOT_INODE { Some(ROOT_INODE) } else { state.parent };
            if let Some(parent) = parent.filter(|parent| !state.lost && state.up != *parent) {
                self.known.findings.push(Place::Inode(number), Problem::Parent { stored: state.up, parent });
            }
        }
    }

    fn parent(&self, directory: u32) -> Option<u32> {
        self.known.directories.get(&directory).and_then(|state| state.parent)
    }

    fn count_names(&mut self, number: u32, kind: FileType, links: u16, names: u32) {
        let nameless = number == self.subject.superblock.orphan_file_inode.get()
            && self.subject.superblock.features().has(Feature::ORPHAN_FILE);
        if nameless || self.known.names_unknown {
            return;
        }
        let directory = kind == FileType::Directory;
        if names == 0 && links > 0 && !directory {
            self.known.findings.push(Place::Inode(number), Problem::Unreachable);
            return;
        }
        let most = self.subject.superblock.features().has(Feature::DIR_NLINK);
        let counted = if directory && most && names > LINKS_MAX { 1 } else { names };
        // Beyond the limit a directory keeps saying 1, also when names go again.
        let many = directory && most && links == 1 && names > 2;
        if !many {
            self.known.findings.count(Place::Inode(number), "links", links.into(), counted.into());
        }
    }
}
