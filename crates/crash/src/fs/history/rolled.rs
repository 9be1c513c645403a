//! The judge of a filesystem that rolls forward, as F2FS does. What a power cut leaves is everything as it was after some
//! operation, the *checkpoint*; and beyond it each file as the last call for it left it, of all calls up to some one of them:
//!
//! - calls are there from the oldest on, and what each that returned durable covers of its file;
//! - a call for a directory or for everything, and one for a file that has other names than at the checkpoint, is there by a
//!   later checkpoint alone: no roll-forward brings such things back; but a directory that has not changed since the checkpoint
//!   needs no later one;
//! - of the first call that is not there, pages may be there where it overwrites them in place: as far as the file reaches
//!   without the call.
//!
//! One task does all operations.

use std::collections::BTreeMap;

use weir_storage::BLOCK_BYTES;

use super::{History, Illegal, InPlace, Operation};
use crate::fs::tree::{FileId, Kind, Shape, Tree};
use crate::fs::visible::Visible;

/// A synchronisation call that has begun.
#[derive(Clone)]
pub(super) struct FileCall {
    pub(super) operation: Operation,
    /// What it is for; none for everything.
    pub(super) file: Option<FileId>,
    /// It has returned, and promised durability.
    pub(super) durable: bool,
}

/// What was found, as candidates are compared with it.
struct Found<'a> {
    visible: &'a Visible,
    shape: Shape,
    pages: BTreeMap<(FileId, u32), &'a [u8; BLOCK_BYTES]>,
}

/// What a checkpoint and calls behind it may leave.
struct Candidate {
    checkpoint: Operation,
    tree: Tree,
    /// Files that are as they were at a call behind the checkpoint.
    calls: BTreeMap<FileId, Operation>,
}

impl Candidate {
    /// The operation after which it has a file.
    fn at(&self, file: FileId) -> Operation {
        self.calls.get(&file).copied().unwrap_or(self.checkpoint)
    }
}

impl History {
    /// Whether a checkpoint and calls behind it leave what was found.
    pub(super) fn judge_rolled(&self, found: &Visible, in_place: InPlace) -> Result<(), Illegal> {
        let found = Found { visible: found, shape: found.tree.shape(), pages: found.pages().collect() };
        let durable = || self.calls.iter().filter(|call| call.durable);
        let whole = durable().filter(|call| self.needs_checkpoint(call));
        let oldest = whole.map(|call| self.covered_until(call)).max().unwrap_or(0);
        // A call for a file that has not changed since promises nothing of calls for others before it.
        let changes: BTreeMap<FileId, Operation> =
            durable().filter_map(|call| Some((call.file?, self.covered_until(call)))).collect();
        let needed = changes.values().copied().max().unwrap_or(0).max(oldest);
        let steps = &self.parts[0].steps;
        let mut closest = steps[steps.len() - 1].shape.difference(&found.shape);
        // A checkpoint behind a call, which changes nothing, has all that one before it has.
        let is_before_call =
            |nth: usize| steps.get(nth + 1).is_some_and(|next| self.call_at(next.operation).is_some());
        for (nth, step) in steps.iter().enumerate().rev().take_while(|(_, step)| step.operation >= oldest) {
            if is_before_call(nth) {
                continue;
            }
            let first = self.calls.partition_point(|call| call.operation <= step.operation);
            let mut candidate =
                Candidate { checkpoint: step.operation, tree: (*step.tree).clone(), calls: BTreeMap::new() };
            for next in self.calls[first..].iter().map(Some).chain([None]) {
                if changes.iter().all(|(file, change)| candidate.at(*file) >= *change) {
                    let torn = next.filter(|_| in_place == InPlace::FewPages);
                    match self.compare(&candidate, torn, &found) {
                        Ok(true) => return Ok(()),
                        Ok(false) => {}
                        Err(what) => closest = what,
                    }
                }
                let Some(next) = next else { break };
                if self.needs_checkpoint(next) {
                    // A directory that the checkpoint has as it is.
                    if self.covered_until(next) <= candidate.checkpoint {
                        continue;
                    }
                    break;
                }
                if !self.roll_forward(&mut candidate, next) {
                    break;
                }
            }
        }
        Err(Illegal::Rolled { needed, closest })
    }

    /// The last operation until `until` that changed a file.
    fn last_change(&self, file: FileId, until: Operation) -> Operation {
        let versions = self.pages.range((file, 0)..=(file, u32::MAX)).flat_map(|(_, versions)| versions);
        let pages = versions.map(|version| version.since);
        let others = self.changed.get(&file).into_iter().flat_map(|changed| &changed.anything).copied();
        pages.chain(others).filter(|change| *change <= until).max().unwrap_or(0)
    }

    /// The last operation that a call for a file, or for everything, covers.
    fn covered_until(&self, call: &FileCall) -> Operation {
        call.file.map_or(call.operation, |file| self.last_change(file, call.operation))
    }

    fn call_at(&self, operation: Operation) -> Option<&FileCall> {
        let found = self.calls.binary_search_by_key(&operation, |call| call.operation);
        found.ok().map(|at| &self.calls[at])
    }

    fn tree_at(&self, operation: Operation) -> &Tree {
        let part = &self.parts[0];
        &part.steps[part.until(operation)].tree
    }

    /// Whether a call is for more than one file.
    fn needs_checkpoint(&self, call: &FileCall) -> bool {
        let kind_of = |file| self.tree_at(call.operation).things.get(&file).map(|thing| &thing.kind);
        call.file.is_none_or(|file| !matches!(kind_of(file), Some(Kind::File { .. }) | None))
    }

    /// Takes a file as a call left it; whether that can be rolled forward.
    fn roll_forward(&self, candidate: &mut Candidate, call: &FileCall) -> bool {
        let then = self.tree_at(call.operation);
        let Some((file, thing)) = call.file.and_then(|file| then.things.get_key_value(&file)) else {
            return true;
        };
        let names = names_of(then, *file);
        if candidate.tree.things.contains_key(file) {
            if names != names_of(&candidate.tree, *file) {
                return false;
            }
        } else {
            for (directory, name) in names {
                let is_free = candidate.tree.names(directory).is_some_and(|names| !names.contains_key(name));
                if !is_free {
                    return false;
                }
                candidate.tree.link(directory, name, *file);
            }
        }
        candidate.tree.things.insert(*file, thing.clone());
        candidate.calls.insert(*file, call.operation);
        true
    }

    /// Whether a candidate is what was found; what differs if the trees do not. Pages of `torn` may be as that call leaves them.
    fn compare(
        &self,
        candidate: &Candidate,
        torn: Option<&FileCall>,
        found: &Found<'_>,
    ) -> Result<bool, String> {
        if candidate.tree.things.len() != found.visible.tree.things.len() {
            return Ok(false);
        }
        let shape = candidate.tree.shape();
        if shape != found.shape {
            return Ok(false);
        }
        for (file, inode) in shape.order.iter().zip(&found.shape.order) {
            let at = candidate.at(*file);
            let torn_at = torn.filter(|call| call.file == Some(*file)).map(|call| call.operation);
            let known = self.pages.range((*file, 0)..=(*file, u32::MAX)).map(|((_, page), _)| *page);
            let there = found.pages.range((*inode, 0)..=(*inode, u32::MAX)).map(|((_, page), _)| *page);
            for page in known.chain(there) {
                let read = found.visible.page(*inode, page);
                let inside = bytes_inside(candidate.tree.size(*file).unwrap_or(0), page);
                let is_torn = |at| {
                    let rest = read[inside..].iter().all(|byte| *byte == 0);
                    self.content_at(*file, page, at)[..inside] == read[..inside] && rest
                };
                if self.content_at(*file, page, at) != read && !torn_at.is_some_and(is_torn) {
                    let (checkpoint, begins) = (candidate.checkpoint, &read[..8]);
                    return Err(format!(
                        "with a checkpoint after {checkpoint} all names are right, but page {page} of file {file}, \
                         as after {at}, begins with {begins:x?}"
                    ));
                }
            }
        }
        Ok(true)
    }

    /// What a page held after an operation.
    fn content_at(&self, file: FileId, page: u32, at: Operation) -> &[u8] {
        let mut versions = self.pages.get(&(file, page)).into_iter().flatten();
        versions.rfind(|version| version.since <= at).map_or(&self.zeros[..], |version| &version.bytes[..])
    }
}

/// Bytes of a page that lie before the end of a file.
fn bytes_inside(size: u64, page: u32) -> usize {
    let left = size.saturating_sub(u64::from(page) * BLOCK_BYTES as u64);
    usize::try_from(left).unwrap_or(BLOCK_BYTES).min(BLOCK_BYTES)
}

/// The names that a file has, each with its directory.
fn names_of(tree: &Tree, file: FileId) -> Vec<(FileId, &[u8])> {
    let directories = tree.things.keys().filter_map(|id| Some((*id, tree.names(*id)?)));
    let all =
        directories.flat_map(|(id, names)| names.iter().map(move |(name, target)| (id, &name[..], *target)));
    all.filter(|(_, _, target)| *target == file).map(|(id, name, _)| (id, name)).collect()
}
