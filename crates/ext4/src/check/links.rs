//! The tree of directories, and how often each inode has a name.

use std::collections::BTreeSet;

use weir_format::{FileType, Place, Structure};

use super::Problem;
use super::known::Known;
use super::subject::Subject;
use super::table::{InodeRecord, InodeState};
use crate::features::Feature;
use crate::inode::ROOT_INODE;

/// Above this many links a directory says that it has one, with the feature `dir_nlink`.
const LINKS_MAX: u32 = 65_000;

/// Compares the names that were found with what inodes and directories say.
pub(super) fn check<R>(subject: &Subject<'_, R>, known: &mut Known) {
    if !known.directories.contains_key(&ROOT_INODE) {
        // Unreadable inodes were reported before.
        let read = known.table.group(0).and_then(|records| records.get(ROOT_INODE as usize - 1));
        if read.is_some_and(|record| record.state != InodeState::Unknown) {
            known.findings.damaged(Place::Inode(ROOT_INODE), Structure::Inode, "the root is no directory");
        }
        return;
    }
    tree(known);
    for group in 0..subject.layout.groups() {
        let records = known.table.group(group).map(<[_]>::to_vec).unwrap_or_default();
        for (index, record) in (0..).zip(records) {
            if let InodeState::Used(kind) = record.state {
                count_names(subject, known, subject.layout.inode_at(group, index), kind, record);
            }
        }
    }
}

/// Every directory is below the root, and its ".." stands for the one above.
fn tree(known: &mut Known) {
    let mut below = BTreeSet::from([ROOT_INODE]);
    for number in known.directories.keys().copied().collect::<Vec<u32>>() {
        let mut way = BTreeSet::new();
        let mut at = Some(number);
        while let Some(directory) = at.filter(|at| !below.contains(at)) {
            // A way that comes back to itself never reaches the root.
            let above = known.directories.get(&directory).and_then(|state| state.parent);
            at = if way.insert(directory) { above } else { None };
        }
        if at.is_some() {
            below.append(&mut way);
        } else if !known.names_unknown {
            known.findings.push(Place::Inode(number), Problem::Unreachable);
        }
        let Some(state) = known.directories.get(&number).copied() else { continue };
        let parent = if number == ROOT_INODE { Some(ROOT_INODE) } else { state.parent };
        if let Some(parent) = parent.filter(|parent| !state.lost && state.up != *parent) {
            known.findings.push(Place::Inode(number), Problem::Parent { stored: state.up, parent });
        }
    }
}

fn count_names<R>(
    subject: &Subject<'_, R>,
    known: &mut Known,
    number: u32,
    kind: FileType,
    record: InodeRecord,
) {
    let InodeRecord { links, names, .. } = record;
    let nameless = number == subject.superblock.orphan_file_inode.get()
        && subject.superblock.features().has(Feature::ORPHAN_FILE);
    if nameless || known.names_unknown {
        return;
    }
    let directory = kind == FileType::Directory;
    if names == 0 && links > 0 && !directory {
        known.findings.push(Place::Inode(number), Problem::Unreachable);
        return;
    }
    let most = subject.superblock.features().has(Feature::DIR_NLINK);
    let counted = if directory && most && names > LINKS_MAX { 1 } else { names };
    // Beyond the limit a directory keeps saying 1, also when names go again.
    let many = directory && most && links == 1 && names > 2;
    if !many {
        known.findings.count(Place::Inode(number), "links", links.into(), counted.into());
    }
}
