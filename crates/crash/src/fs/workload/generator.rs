//! All workloads of a length, after the definition of the ACE generator (Mohan et al., *Finding Crash-Consistency Bugs
//! with Bounded Black-Box Crash Testing*, OSDI 2018, section 5), in four phases:
//!
//! 1. a sequence of so many operations;
//! 2. their arguments, from a bounded set of files and directories;
//! 3. behind each operation a synchronisation call on what it has changed, or none; behind the last there is one;
//! 4. before them what has to be there: directories, files, their content and attributes.
//!
//! What the fourth phase makes stands at the head, and is durable, so that the sequence changes what is old; only where that
//! would stand in the way of an operation it is made right before the one that needs it. Sequences that need a name free that
//! is taken are left out.

use weir_vfs::SyncCall;

use super::operation::{Allocation, Operation, WorkloadPath};
use super::parse::Workload;
use super::perform::{follow, lookup};
use crate::fs::tree::Tree;

/// The bounded set: three files, two of them in a directory, that directory, and one in it.
const FOO: &str = "/foo";
const A: &str = "/A";
const A_FOO: &str = "/A/foo";
const A_BAR: &str = "/A/bar";
const A_C: &str = "/A/C";
/// What directory `/A` is renamed to.
const B: &str = "/B";
const FILES: [&str; 3] = [FOO, A_FOO, A_BAR];

/// Bytes of a file that has to hold something: two blocks.
const CONTENT_BYTES: u64 = 8192;
/// Bytes of an attribute's value.
const ATTRIBUTE_BYTES: u64 = 40;

/// How many operations a generated workload has, beside calls and what is made before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// One.
    One,
    /// Two.
    Two,
}

/// What has to be there for an operation.
enum Need {
    Directory(WorkloadPath),
    /// A file of at least so many bytes.
    File(WorkloadPath, u64),
    Attribute(WorkloadPath),
}

/// An operation, and the calls that may stand behind it.
struct Choice {
    operation: Operation,
    needs: Vec<Need>,
    calls: Vec<Operation>,
}

/// A path of the bounded set.
fn at(path: &'static str) -> WorkloadPath {
    WorkloadPath::of_known(path)
}

fn parent(path: &WorkloadPath) -> WorkloadPath {
    path.parent().map_or_else(|| path.clone(), |(above, _)| above)
}

impl Choice {
    /// An operation on names: calls are on `target`, where something has a new name, and on its directory.
    fn of_names(operation: Operation, target: Option<&WorkloadPath>, directory: &WorkloadPath) -> Choice {
        let call = |call: SyncCall, on: &WorkloadPath| Operation::Synchronise(call, on.clone());
        let mut calls = match target {
            Some(target) => vec![
                call(SyncCall::Fsync, target),
                call(SyncCall::Fbarrier, target),
                call(SyncCall::Fsync, directory),
            ],
            None => vec![call(SyncCall::Fsync, directory), call(SyncCall::Fbarrier, directory)],
        };
        calls.push(Operation::Sync);
        Choice { needs: needs(&operation), operation, calls }
    }

    /// An operation on what is in a file: each of the four calls, and `sync`.
    fn of_data(operation: Operation, file: &WorkloadPath) -> Choice {
        let calls = SyncCall::ALL.map(|call| Operation::Synchronise(call, file.clone()));
        let calls = calls.into_iter().chain([Operation::Sync]).collect();
        Choice { needs: needs(&operation), operation, calls }
    }
}

/// Phase 2: every operation with every argument of the bounded set.
fn choices() -> Vec<Choice> {
    let mut choices = Vec::new();
    let mut named = |operation: Operation, target: &'static str| {
        let target = at(target);
        choices.push(Choice::of_names(operation, Some(&target), &parent(&target)));
    };
    FILES.iter().for_each(|file| named(Operation::Create(at(file)), file));
    [A, A_C].iter().for_each(|directory| named(Operation::Mkdir(at(directory)), directory));
    for old in FILES {
        for new in FILES.into_iter().filter(|new| *new != old) {
            named(Operation::Link { old: at(old), new: at(new) }, new);
            named(Operation::Rename { old: at(old), new: at(new) }, new);
        }
    }
    named(Operation::Rename { old: at(A), new: at(B) }, B);
    named(Operation::SetAttribute { path: at(FOO), length: ATTRIBUTE_BYTES }, FOO);
    named(Operation::RemoveAttribute(at(FOO)), FOO);
    let mut unnamed = |operation: Operation, path: &'static str| {
        choices.push(Choice::of_names(operation, None, &parent(&at(path))));
    };
    FILES.iter().for_each(|file| unnamed(Operation::Unlink(at(file)), file));
    unnamed(Operation::Rmdir(at(A_C)), A_C);
    unnamed(Operation::Symlink { target: "foo".to_owned(), new: at(A_BAR) }, A_BAR);
    for file in [FOO, A_FOO] {
        let path = at(file);
        let data = [
            Operation::Append { path: path.clone(), length: 6000 },
            Operation::Write { path: path.clone(), offset: 0, length: 4096 },
            Operation::Write { path: path.clone(), offset: 3000, length: 3000 },
        ];
        choices.extend(data.map(|operation| Choice::of_data(operation, &path)));
    }
    let path = at(FOO);
    let ranges = [
        (Allocation::Grow, CONTENT_BYTES, 8192),
        (Allocation::KeepSize, CONTENT_BYTES, 8192),
        (Allocation::Zero, 4096, 8192),
        (Allocation::ZeroKeepSize, 1000, 5000),
        (Allocation::Punch, 0, 4096),
    ];
    let fallocs =
        ranges.map(|(how, offset, length)| Operation::Falloc { path: path.clone(), how, offset, length });
    let sizes = [5000, 16384].map(|size| Operation::Truncate { path: path.clone(), size });
    choices.extend(fallocs.into_iter().chain(sizes).map(|operation| Choice::of_data(operation, &path)));
    choices
}

/// What has to be there for an operation, what is above first.
fn needs(operation: &Operation) -> Vec<Need> {
    let place = |path: &WorkloadPath| Need::Directory(parent(path));
    let file = |path: &WorkloadPath, bytes| Need::File(path.clone(), bytes);
    match operation {
        Operation::Mkdir(path) | Operation::Create(path) | Operation::Symlink { new: path, .. } => {
            vec![place(path)]
        }
        Operation::Rename { old, new } if *old == at(A) => vec![Need::Directory(old.clone()), place(new)],
        Operation::Link { old, new } | Operation::Rename { old, new } => vec![file(old, 0), place(new)],
        Operation::Unlink(path) | Operation::SetAttribute { path, .. } => vec![file(path, 0)],
        Operation::Append { path, .. } => vec![file(path, 0)],
        Operation::Rmdir(path) => vec![Need::Directory(path.clone())],
        Operation::Write { path, .. } | Operation::Falloc { path, .. } | Operation::Truncate { path, .. } => {
            vec![file(path, CONTENT_BYTES)]
        }
        Operation::RemoveAttribute(path) => vec![file(path, 0), Need::Attribute(path.clone())],
        Operation::Synchronise(..) | Operation::Sync => Vec::new(),
    }
}

/// What makes on a tree what is needed there and is absent.
fn made(tree: &Tree, needs: &[Need]) -> Vec<Operation> {
    let mut made: Vec<Operation> = Vec::new();
    let mut add = |operation: Operation| {
        if !made.contains(&operation) {
            made.push(operation);
        }
    };
    for need in needs {
        match need {
            Need::Directory(path) => {
                let above = parent(path);
                for path in [&above, path].into_iter().filter(|path| lookup(tree, path).is_none()) {
                    add(Operation::Mkdir(path.clone()));
                }
            }
            Need::File(path, bytes) => {
                let above = parent(path);
                if lookup(tree, &above).is_none() {
                    add(Operation::Mkdir(above));
                }
                let found = lookup(tree, path);
                if found.is_none() {
                    add(Operation::Create(path.clone()));
                }
                let size = found.and_then(|id| tree.size(id)).unwrap_or(0);
                if size < *bytes {
                    add(Operation::Write { path: path.clone(), offset: 0, length: *bytes });
                }
            }
            Need::Attribute(path) => {
                let has = |id| tree.things.get(&id).is_some_and(|thing| thing.attribute.is_some());
                if !lookup(tree, path).is_some_and(has) {
                    add(Operation::SetAttribute { path: path.clone(), length: ATTRIBUTE_BYTES });
                }
            }
        }
    }
    made
}

/// The tree behind a sequence; none if it cannot be done.
fn after(operations: &[Operation]) -> Option<Tree> {
    let mut tree = Tree::new(1, 0o755);
    for (operation, id) in operations.iter().zip(2..) {
        follow(&mut tree, operation, id).ok()?;
    }
    Some(tree)
}

/// Phase 4, for a sequence of operations with the calls behind them.
fn completed(sequence: &[(&Choice, Option<&Operation>)]) -> Option<Workload> {
    let mut head: Vec<Operation> = Vec::new();
    let mut operations: Vec<Operation> = Vec::new();
    for (choice, call) in sequence {
        let step: Vec<Operation> = [&choice.operation].into_iter().chain(*call).cloned().collect();
        let so_far = [&head[..], &operations].concat();
        let missing = made(&after(&so_far)?, &choice.needs);
        let old = [&head[..], &missing, &operations, &step].concat();
        if after(&old).is_some() {
            head.extend(missing);
        } else {
            operations.extend(missing);
        }
        operations.extend(step);
    }
    if !head.is_empty() {
        head.push(Operation::Sync);
    }
    head.extend(operations);
    after(&head)?;
    Some(Workload { operations: head })
}

/// All workloads of a length, always in the same order; those that begin alike stand together.
pub fn generate(length: Length) -> impl Iterator<Item = Workload> {
    let choices = choices();
    let firsts: Vec<(usize, Option<usize>)> = choices
        .iter()
        .enumerate()
        .flat_map(|(at, choice)| {
            let calls = (0..choice.calls.len()).map(Some);
            calls.chain([None]).map(move |call| (at, call))
        })
        .collect();
    let lasts = firsts.iter().copied().filter(|(_, call)| call.is_some()).collect::<Vec<_>>();
    let pairs: Vec<Vec<(usize, Option<usize>)>> = match length {
        Length::One => lasts.iter().map(|last| vec![*last]).collect(),
        Length::Two => {
            firsts.iter().flat_map(|first| lasts.iter().map(move |last| vec![*first, *last])).collect()
        }
    };
    pairs.into_iter().filter_map(move |pair| {
        let said = pair.iter().map(|(at, call)| (&choices[*at], call.map(|call| &choices[*at].calls[call])));
        completed(&said.collect::<Vec<_>>())
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn workloads_are_different_can_be_done_and_end_with_a_call() {
        for (length, least) in [(Length::One, 150), (Length::Two, 20_000)] {
            let all: Vec<Workload> = generate(length).collect();
            let texts: BTreeSet<String> = all.iter().map(ToString::to_string).collect();
            // Where the one makes what the other needs, two sequences come to the same.
            assert!(
                all.len() > least && texts.len() >= all.len() - all.len() / 400,
                "{} {}",
                all.len(),
                texts.len()
            );
            let is_call =
                |operation: &Operation| matches!(operation, Operation::Sync | Operation::Synchronise(..));
            assert!(all.iter().all(|workload| workload.operations.last().is_some_and(is_call)));
            assert!(texts.iter().step_by(97).all(|text| text.parse::<Workload>().is_ok()));
        }
    }

    #[test]
    fn what_has_to_be_there_is_made_before_and_is_old() {
        let texts: BTreeSet<String> = generate(Length::Two).map(|workload| workload.to_string()).collect();
        let expected =
            "mkdir /A\ncreate /A/foo\nwrite /A/foo 0 8K\nsync\ncreate /foo\nwrite /A/foo 0 4K\nsync\n";
        assert!(texts.contains(expected));
        // The file that is renamed away is made anew where it is needed.
        let between = "create /foo\nmkdir /A\nsync\nrename /foo /A/foo\nfsync /A/foo\ncreate /foo\nwrite /foo 0 8K\n\
                       truncate /foo 5000\nfsync /foo\n";
        assert!(texts.contains(between));
    }
}
