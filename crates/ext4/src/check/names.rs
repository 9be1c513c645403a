//! The names in directories, and what they stand for.

use std::collections::BTreeSet;

use weir_format::{BLOCK_BYTES, FileType, FormatError, ImageReader, Place, Structure};

use super::Problem;
use super::extents::places;
use super::hashed::{Index, Leaf, OpenDirectory, Role};
use super::known::Known;
use super::subject::Subject;
use super::table::InodeState;
use crate::blocks::Kind;
use crate::directory::DirectoryFormat;
use crate::directory::entry::{NO_DOTS, Record, Records, dot_at, is_ordinary};
use crate::{inode::Inode, inode::ROOT_INODE, inode::inode_flags};

/// The bytes behind the names "." and ".." of a directory's first block: others take them for the names' ends.
const BEHIND_DOT: usize = 9;
const BEHIND_DOT_DOT: usize = 22;

/// Looks at every name of every directory.
pub(super) async fn check<R: ImageReader>(
    subject: &Subject<'_, R>,
    known: &mut Known,
) -> Result<(), R::Error> {
    for number in known.directories.keys().copied().collect::<Vec<u32>>() {
        let lost = known.directories.get(&number).is_some_and(|state| state.lost);
        let Some(inode) = subject.read_inode(number).await?.filter(|_| !lost) else { continue };
        if let Err(error) = directory(subject, known, number, &inode).await? {
            known.findings.format_at(Place::Inode(number), &error);
            known.lose_names_of(number);
        }
    }
    Ok(())
}

async fn directory<R: ImageReader>(
    subject: &Subject<'_, R>,
    known: &mut Known,
    number: u32,
    inode: &Inode,
) -> Result<Result<(), FormatError>, R::Error> {
    let format = match DirectoryFormat::new(&subject.superblock, number, inode.generation.get()) {
        Ok(format) => format,
        Err(error) => return Ok(Err(error)),
    };
    let walk = subject.extents(number, inode);
    let places = match places(subject.image, walk, number).await? {
        Ok(places) => places,
        Err(error) => return Ok(Err(error)),
    };
    let indexed = inode.has_flag(inode_flags::INDEXED);
    let directory = OpenDirectory { number, format, places };
    let mut leaves = vec![Leaf::default(); directory.places.len()];
    let hasher = if indexed { directory.index_hasher(subject.image).await? } else { Ok(format.hasher) };
    for (at, leaf) in leaves.iter_mut().enumerate() {
        let place = directory.places[at];
        let bytes = subject.image.block(place).await?;
        let node = indexed && (at == 0 || hides_index(&bytes[..]));
        leaf.role = if node { Role::Node } else { Role::Names };
        if at == 0 && (bytes[BEHIND_DOT] != 0 || bytes[BEHIND_DOT_DOT] != 0) {
            let what = "no zero behind \".\" or \"..\"";
            known.findings.damaged(Place::Block(place), Structure::Directory, what);
        }
        if let Err(error) = subject.layout.checksums().verify(kind(&directory, node), place, &bytes[..]) {
            known.findings.format(&error);
            known.lose_names_of(number);
        } else if node {
            dots(subject, known, &directory, at, &bytes[..]);
        } else {
            let hasher = hasher.as_ref().ok();
            let mut seen = |name: &[u8]| {
                if let Some(hasher) = hasher {
                    leaf.see(hasher.hash(name).major);
                }
            };
            block_of_names(subject, known, &directory, at, &bytes[..], &mut seen);
        }
    }
    match hasher {
        Ok(_) if indexed => {
            let (image, findings) = (subject.image, &mut known.findings);
            Index { image, directory: &directory, findings }.check(&mut leaves).await?;
        }
        Ok(_) => {}
        Err(error) => known.findings.format_at(Place::Inode(number), &error),
    }
    Ok(Ok(()))
}

/// The root of an index starts with "." and "..", like any first block; they hide the rest.
fn dots<R>(subject: &Subject<'_, R>, known: &mut Known, directory: &OpenDirectory, at: usize, bytes: &[u8]) {
    if at == 0 {
        for (index, record) in Records::of(bytes, false).enumerate() {
            match record {
                Ok(record) if index < 2 => name(subject, known, directory, at, index, &record),
                Ok(_) => {
                    let what = "more than two names before the index";
                    known.findings.damaged(Place::Block(directory.places[0]), Structure::Directory, what);
                }
                Err(what) => {
                    known.findings.damaged(Place::Block(directory.places[0]), Structure::Directory, what);
                    known.lose_names_of(directory.number);
                }
            }
        }
    }
}

fn block_of_names<R>(
    subject: &Subject<'_, R>,
    known: &mut Known,
    directory: &OpenDirectory,
    at: usize,
    bytes: &[u8],
    seen: &mut dyn FnMut(&[u8]),
) {
    let place = Place::Block(directory.places[at]);
    let mut names = BTreeSet::new();
    for (index, record) in Records::of(bytes, directory.format.sealed).enumerate() {
        let record = match record {
            Ok(record) => record,
            Err(what) => {
                known.findings.damaged(place, Structure::Directory, what);
                known.lose_names_of(directory.number);
                return;
            }
        };
        name(subject, known, directory, at, index, &record);
        if record.is_live() {
            seen(record.name);
            if !names.insert(record.name) {
                wrong_name(known, place, &record, "is there twice");
            }
        }
    }
}

/// Looks at record `index` of block `at`.
fn name<R>(
    subject: &Subject<'_, R>,
    known: &mut Known,
    directory: &OpenDirectory,
    at: usize,
    index: usize,
    record: &Record<'_>,
) {
    let place = Place::Block(directory.places[at]);
    if let Some(expected) = dot_at(at == 0, index) {
        if !record.is_live() || record.name != expected || (index == 0 && record.length != 12) {
            known.findings.damaged(place, Structure::Directory, NO_DOTS);
        } else {
            dot(known, directory, index, place, record);
        }
        return;
    }
    if !record.is_live() {
        return;
    }
    if !is_ordinary(record.name) {
        wrong_name(known, place, record, "is no name");
    }
    ordinary(subject, known, directory.number, place, record);
}

/// "." or "..".
fn dot(known: &mut Known, directory: &OpenDirectory, index: usize, place: Place, record: &Record<'_>) {
    if record.kind != Some(FileType::Directory) {
        wrong_name(known, place, record, "has another type than what it stands for");
    }
    if index == 1 {
        if let Some(state) = known.directories.get_mut(&directory.number) {
            state.up = record.inode;
        }
    } else if record.inode != directory.number {
        wrong_name(known, place, record, "stands for another directory");
        return;
    }
    known.table.add_name(record.inode);
}

fn ordinary<R>(
    subject: &Subject<'_, R>,
    known: &mut Known,
    directory: u32,
    place: Place,
    record: &Record<'_>,
) {
    let reserved = record.inode < subject.superblock.first_inode.get();
    let state = known.table.state(record.inode).filter(|_| !reserved || record.inode == ROOT_INODE);
    let kind = match state {
        None => return wrong_name(known, place, record, "stands for an inode that cannot be"),
        Some(InodeState::Free) => return wrong_name(known, place, record, "stands for an unused inode"),
        Some(InodeState::Unknown) => return,
        Some(InodeState::Used(kind)) => kind,
    };
    if record.kind != Some(kind) {
        wrong_name(known, place, record, "has another type than what it stands for");
    }
    known.table.add_name(record.inode);
    let Some(state) = known.directories.get_mut(&record.inode).filter(|_| kind == FileType::Directory) else {
        return;
    };
    if record.inode == ROOT_INODE || record.inode == directory || state.parent.is_some() {
        wrong_name(known, place, record, "is one more name of a directory");
    } else {
        state.parent = Some(directory);
    }
}

fn wrong_name(known: &mut Known, place: Place, record: &Record<'_>, what: &'static str) {
    known.findings.push(place, Problem::Name { name: record.name.to_vec(), what });
}

/// Whether a block hides an inner node of an index: it starts with a free record over all of it.
fn hides_index(bytes: &[u8]) -> bool {
    bytes[..4] == [0; 4] && bytes[4..6] == (BLOCK_BYTES as u16).to_le_bytes()
}

fn kind(directory: &OpenDirectory, node: bool) -> Kind {
    let (inode, generation) = (directory.number, directory.format.generation);
    if node { Kind::DirectoryIndex { inode, generation } } else { Kind::Directory { inode, generation } }
}
