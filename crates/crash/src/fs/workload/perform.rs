//! One operation of a workload, performed on a filesystem and recorded in its history.

use weir_format::FileType;
use weir_vfs::{Fallocate, NewNode, SyncCall};

use super::cut::CutName;
use super::operation::{Allocation, Operation, WorkloadPath};
use crate::content::mix;
use crate::fs::calls::{Calls, Outcome};
use crate::fs::history::Reach;
use crate::fs::tree::{FileId, Kind, Thing, Tree};

/// Permissions of new files, and of new directories.
const FILE: u16 = 0o644;
const DIRECTORY: u16 = 0o755;

/// Why an operation was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlayError {
    /// The workload asks for what cannot be done.
    #[error("{operation}: {why}; {}", what_helps(*.no_space))]
    Impossible {
        /// Its place in the workload, from 1.
        nth: usize,
        /// The operation.
        operation: String,
        /// Why it is impossible.
        why: Impossible,
        /// Operations before it that found no space.
        no_space: usize,
    },
    /// The filesystem failed an operation that is possible.
    #[error("{operation}: the filesystem fails: {what}")]
    Refused {
        /// The operation.
        operation: String,
        /// What it said.
        what: String,
    },
    /// The play has no event or no state of this name.
    #[error(
        "no such power cut: {0}; the workload, the options and the version of Weir have to be those of the failure"
    )]
    NoSuchCut(CutName),
    /// What is below the filesystem, or its mount, failed.
    #[error("the test cannot start: {0}")]
    Ground(String),
}

/// What to do about an operation that cannot be done, when so many before it found no space.
fn what_helps(no_space: usize) -> String {
    match no_space {
        0 => "create what it needs in an earlier operation, or leave it out".to_owned(),
        _ => format!("the filesystem is full, {no_space} operations before it found no space: write less"),
    }
}

/// Why an operation is impossible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Impossible {
    /// Nothing has this name.
    #[error("{0} does not exist")]
    Missing(WorkloadPath),
    /// Something has this name.
    #[error("{0} already exists")]
    Present(WorkloadPath),
    /// It has to be a file.
    #[error("{0} is not a file")]
    NoFile(WorkloadPath),
    /// It has to be a directory.
    #[error("{0} is not a directory")]
    NoDirectory(WorkloadPath),
    /// It must not be a directory.
    #[error("{0} is a directory")]
    IsDirectory(WorkloadPath),
    /// It has to be empty.
    #[error("{0} is not empty")]
    NotEmpty(WorkloadPath),
    /// One cannot take the place of the other.
    #[error("{0} cannot replace {1}")]
    NoRename(WorkloadPath, WorkloadPath),
    /// There is no attribute.
    #[error("{0} has no attribute")]
    NoAttribute(WorkloadPath),
    /// A file would be too large.
    #[error("{0} would have more than 4 MiB")]
    TooLarge(WorkloadPath),
}

/// What a path stands for.
pub(super) fn lookup(tree: &Tree, path: &WorkloadPath) -> Option<FileId> {
    path.names().try_fold(tree.root, |directory, name| tree.lookup(directory, name.as_bytes()))
}

fn resolve(tree: &Tree, path: &WorkloadPath) -> Result<FileId, Impossible> {
    lookup(tree, path).ok_or_else(|| Impossible::Missing(path.clone()))
}

fn file(tree: &Tree, path: &WorkloadPath) -> Result<(FileId, u64), Impossible> {
    let id = resolve(tree, path)?;
    tree.size(id).map(|size| (id, size)).ok_or_else(|| Impossible::NoFile(path.clone()))
}

/// The directory of a path's last name, and that name.
fn place<'a>(tree: &Tree, path: &'a WorkloadPath) -> Result<(FileId, &'a [u8]), Impossible> {
    let (above, name) = path.parent().ok_or_else(|| Impossible::IsDirectory(path.clone()))?;
    let directory = resolve(tree, &above)?;
    match tree.names(directory) {
        Some(_) => Ok((directory, name.as_bytes())),
        None => Err(Impossible::NoDirectory(above)),
    }
}

/// The same for a name that is free.
fn resolve_free<'a>(tree: &Tree, path: &'a WorkloadPath) -> Result<(FileId, &'a [u8]), Impossible> {
    let (directory, name) = place(tree, path)?;
    match tree.lookup(directory, name) {
        Some(_) => Err(Impossible::Present(path.clone())),
        None => Ok((directory, name)),
    }
}

/// An operation that can be done, its paths resolved.
enum Step<'a> {
    Make((FileId, &'a [u8]), NewNode),
    Symlink((FileId, &'a [u8]), &'a str),
    Link(FileId, (FileId, &'a [u8])),
    Remove((FileId, &'a [u8]), FileId),
    Rename((FileId, &'a [u8]), (FileId, &'a [u8])),
    Write(FileId, u64, u64),
    Falloc(FileId, Allocation, u64, u64),
    Truncate(FileId, u64),
    SetAttribute(FileId, Option<u64>),
    Call(SyncCall, FileId),
    Sync,
}

impl Step<'_> {
    /// What an operation comes to on a tree.
    fn resolve<'a>(tree: &Tree, operation: &'a Operation) -> Result<Step<'a>, Impossible> {
        let new = |path: &'a WorkloadPath, kind, permissions| {
            resolve_free(tree, path).map(|place| Step::Make(place, NewNode::new(kind, permissions)))
        };
        match operation {
            Operation::Mkdir(path) => new(path, FileType::Directory, DIRECTORY),
            Operation::Create(path) => new(path, FileType::Regular, FILE),
            Operation::Symlink { target, new } => {
                resolve_free(tree, new).map(|place| Step::Symlink(place, target))
            }
            Operation::Link { old, new } => match resolve(tree, old)? {
                id if tree.names(id).is_some() => Err(Impossible::IsDirectory(old.clone())),
                id => resolve_free(tree, new).map(|place| Step::Link(id, place)),
            },
            Operation::Unlink(path) => match resolve(tree, path)? {
                id if tree.names(id).is_some() => Err(Impossible::IsDirectory(path.clone())),
                id => place(tree, path).map(|place| Step::Remove(place, id)),
            },
            Operation::Rmdir(path) => {
                let id = resolve(tree, path)?;
                match tree.names(id).map(|names| names.is_empty()) {
                    Some(true) => place(tree, path).map(|place| Step::Remove(place, id)),
                    Some(false) => Err(Impossible::NotEmpty(path.clone())),
                    None => Err(Impossible::NoDirectory(path.clone())),
                }
            }
            Operation::Rename { old, new } => {
                resolve(tree, old)?;
                let (from, to) = (place(tree, old)?, place(tree, new)?);
                match tree.can_rename(from, to) {
                    true => Ok(Step::Rename(from, to)),
                    false => Err(Impossible::NoRename(old.clone(), new.clone())),
                }
            }
            Operation::Write { path, offset, length } => {
                file(tree, path).map(|(id, _)| Step::Write(id, *offset, *length))
            }
            Operation::Append { path, length } => {
                let (id, size) = file(tree, path)?;
                match size + length <= super::operation::FILE_BYTES_MAX {
                    true => Ok(Step::Write(id, size, *length)),
                    false => Err(Impossible::TooLarge(path.clone())),
                }
            }
            Operation::Falloc { path, how, offset, length } => {
                file(tree, path).map(|(id, _)| Step::Falloc(id, *how, *offset, *length))
            }
            Operation::Truncate { path, size } => file(tree, path).map(|(id, _)| Step::Truncate(id, *size)),
            Operation::SetAttribute { path, length } => {
                not_a_link(tree, path).map(|id| Step::SetAttribute(id, Some(*length)))
            }
            Operation::RemoveAttribute(path) => {
                let id = not_a_link(tree, path)?;
                match tree.things.get(&id).is_some_and(|thing| thing.attribute.is_some()) {
                    true => Ok(Step::SetAttribute(id, None)),
                    false => Err(Impossible::NoAttribute(path.clone())),
                }
            }
            Operation::Synchronise(call, path) => not_a_link(tree, path).map(|id| Step::Call(*call, id)),
            Operation::Sync => Ok(Step::Sync),
        }
    }
}

/// What an operation makes of a tree, where what it makes anew gets the number `id`.
///
/// # Errors
/// [`Impossible`], and the tree is as it was.
pub(super) fn follow(tree: &mut Tree, operation: &Operation, id: FileId) -> Result<(), Impossible> {
    match Step::resolve(tree, operation)? {
        Step::Make((directory, name), new) => tree.enter(directory, name, id, Thing::new(&new)),
        Step::Symlink((directory, name), target) => {
            tree.enter(directory, name, id, Thing::symlink(target.as_bytes()));
        }
        Step::Link(file, (directory, name)) => tree.link(directory, name, file),
        Step::Remove((directory, name), _) => tree.remove(directory, name),
        Step::Rename(from, to) => tree.rename(from, to),
        Step::Write(file, offset, length) => resize(tree, file, |size| size.max(offset + length)),
        Step::Falloc(file, how, offset, length) => {
            if matches!(how, Allocation::Grow | Allocation::Zero) {
                resize(tree, file, |size| size.max(offset + length));
            }
        }
        Step::Truncate(file, size) => resize(tree, file, |_| size),
        Step::SetAttribute(file, length) => {
            let value = length.map(|length| vec![1; length as usize]);
            tree.things.entry(file).and_modify(|thing| thing.attribute = value);
        }
        Step::Call(..) | Step::Sync => {}
    }
    Ok(())
}

fn resize(tree: &mut Tree, file: FileId, size: impl FnOnce(u64) -> u64) {
    tree.things.entry(file).and_modify(|thing| {
        if let Kind::File { size: now } = &mut thing.kind {
            *now = size(*now);
        }
    });
}

fn not_a_link(tree: &Tree, path: &WorkloadPath) -> Result<FileId, Impossible> {
    let id = resolve(tree, path)?;
    match tree.things.get(&id).map(|thing| &thing.kind) {
        Some(Kind::Symlink { .. }) | None => Err(Impossible::NoFile(path.clone())),
        _ => Ok(id),
    }
}

/// Performs an operation, the `nth` of its workload, and records it in the history. `no_space` operations before it found no
/// space.
pub(super) async fn perform(
    calls: &mut Calls,
    operation: &Operation,
    nth: usize,
    no_space: usize,
) -> Result<Outcome, PlayError> {
    let tree = calls.history.borrow().tree(calls.part).clone();
    let step = Step::resolve(&tree, operation).map_err(|why| PlayError::Impossible {
        nth,
        operation: operation.to_string(),
        why,
        no_space,
    })?;
    let nth = nth as u64;
    // What is written depends on the place in the workload alone.
    calls.written = mix(nth, 1);
    // Boxed, as futures within futures have a limit.
    let done = Box::pin(perform_step(calls, step, nth)).await;
    calls.end();
    done.map_err(|what| PlayError::Refused { operation: operation.to_string(), what })
}

async fn perform_step(calls: &mut Calls, step: Step<'_>, nth: u64) -> Result<Outcome, String> {
    match step {
        Step::Make((directory, name), new) => {
            let made = calls.make(directory, name, &new).await?;
            Ok(if made.is_some() { Outcome::Done } else { Outcome::NoSpace })
        }
        Step::Symlink((directory, name), target) => {
            calls.symlink(directory, name, target.as_bytes().to_vec()).await
        }
        Step::Link(file, (directory, name)) => calls.link(file, directory, name).await,
        Step::Remove((directory, name), id) => calls.remove(directory, name, id).await,
        Step::Rename(from, to) => calls.rename(from, to).await,
        Step::Write(file, offset, length) => calls.write_at(file, offset, length).await,
        Step::Falloc(file, how, offset, length) => {
            calls.fallocate(file, mode(how), offset..offset + length).await
        }
        Step::Truncate(file, size) => calls.truncate(file, size).await,
        Step::SetAttribute(file, length) => {
            let value = length.map(|length| vec![(mix(nth, 2) % 255) as u8 + 1; length as usize]);
            calls.set_attribute(file, value).await
        }
        Step::Call(call, file) => {
            let (reach, durable) = match call {
                SyncCall::Fsync => (Reach::File, true),
                SyncCall::Fdatasync => (Reach::Data, true),
                SyncCall::Fbarrier => (Reach::File, false),
                SyncCall::Fdatabarrier => (Reach::Data, false),
            };
            calls.call(file, reach, durable).await.map(|()| Outcome::Done)
        }
        Step::Sync => calls.sync().await.map(|()| Outcome::Done),
    }
}

fn mode(how: Allocation) -> Fallocate {
    match how {
        Allocation::Grow => Fallocate::Allocate { keep_size: false },
        Allocation::KeepSize => Fallocate::Allocate { keep_size: true },
        Allocation::Zero => Fallocate::ZeroRange { keep_size: false },
        Allocation::ZeroKeepSize => Fallocate::ZeroRange { keep_size: true },
        Allocation::Punch => Fallocate::PunchHole,
    }
}
