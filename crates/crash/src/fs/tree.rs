//! Names and what they stand for: as the model has them, and as they are found on a disk.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};

use weir_format::FileType;
use weir_storage::BLOCK_BYTES;
use weir_vfs::NewNode;

/// Stands for a file, a directory or a link: a number that the model gave, or the number of an inode.
pub(super) type FileId = u32;

/// What a name can stand for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Directory(BTreeMap<Vec<u8>, FileId>),
    File { size: u64 },
    Symlink { target: Vec<u8> },
}

/// A file, a directory or a link, without what is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Thing {
    pub kind: Kind,
    pub permissions: u16,
    /// The value of the only extended attribute that is used.
    pub attribute: Option<Vec<u8>>,
}

/// All of them, from the root down.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    pub root: FileId,
    pub things: BTreeMap<FileId, Thing>,
}

/// What two trees have in common that differ in numbers only.
#[derive(Clone, Debug, Default)]
pub(super) struct Shape {
    lines: Vec<Line>,
    /// The numbers, in the order in which they were met.
    pub order: Vec<FileId>,
}

/// A name, what it stands for, and where that was met first: two names with the same place are links.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Line {
    depth: u32,
    name: Vec<u8>,
    place: usize,
    what: (u8, u64, Vec<u8>, u16, Option<Vec<u8>>),
}

impl PartialEq for Shape {
    fn eq(&self, other: &Shape) -> bool {
        self.lines == other.lines
    }
}

impl Hash for Shape {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.lines.hash(state);
    }
}

impl Shape {
    /// Where another shape begins to differ, for people.
    pub(super) fn difference(&self, other: &Shape) -> String {
        let line =
            |shape: &Shape, at: usize| shape.lines.get(at).map_or("nothing".to_owned(), ToString::to_string);
        let differs = (0..self.lines.len().max(other.lines.len()))
            .find(|at| self.lines.get(*at) != other.lines.get(*at));
        differs.map_or_else(String::new, |at| {
            format!("the newest has {}, this {}", line(self, at), line(other, at))
        })
    }
}

impl std::fmt::Display for Line {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (kind, size, _, permissions, attribute) = &self.what;
        let kind = ["a directory", "a file", "a link"][usize::from(*kind)];
        let attribute = attribute.as_ref().map_or(0, Vec::len);
        let (depth, name, place) = (self.depth, self.name.escape_ascii(), self.place);
        write!(
            to,
            "{name} at depth {depth}: {kind}, the {place}th met, {size} bytes, {permissions:o}, attribute {attribute}"
        )
    }
}

impl Thing {
    /// A new file or directory.
    pub(super) fn new(new: &NewNode) -> Thing {
        let kind = match new.kind {
            FileType::Directory => Kind::Directory(BTreeMap::new()),
            _ => Kind::File { size: 0 },
        };
        Thing { kind, permissions: new.permissions, attribute: None }
    }

    /// A symbolic link.
    pub(super) fn symlink(target: &[u8]) -> Thing {
        Thing { kind: Kind::Symlink { target: target.to_vec() }, permissions: 0o777, attribute: None }
    }
}

impl Tree {
    /// An empty root.
    pub(super) fn new(root: FileId, permissions: u16) -> Tree {
        let thing = Thing { kind: Kind::Directory(BTreeMap::new()), permissions, attribute: None };
        Tree { root, things: BTreeMap::from([(root, thing)]) }
    }

    /// The names of a directory; none for what is not one.
    pub(super) fn names(&self, directory: FileId) -> Option<&BTreeMap<Vec<u8>, FileId>> {
        match &self.things.get(&directory)?.kind {
            Kind::Directory(names) => Some(names),
            _ => None,
        }
    }

    pub(super) fn names_mut(&mut self, directory: FileId) -> Option<&mut BTreeMap<Vec<u8>, FileId>> {
        match &mut self.things.get_mut(&directory)?.kind {
            Kind::Directory(names) => Some(names),
            _ => None,
        }
    }

    /// The size of a file; none for what is not one.
    pub(super) fn size(&self, file: FileId) -> Option<u64> {
        match self.things.get(&file)?.kind {
            Kind::File { size } => Some(size),
            _ => None,
        }
    }

    /// How many names stand for something that is no directory.
    pub(super) fn links(&self, file: FileId) -> usize {
        let names = self.things.keys().filter_map(|id| self.names(*id));
        names.flat_map(|names| names.values()).filter(|id| **id == file).count()
    }

    /// Adds a new entry.
    pub(super) fn enter(&mut self, directory: FileId, name: &[u8], id: FileId, thing: Thing) {
        self.things.insert(id, thing);
        self.link(directory, name, id);
    }

    /// Adds a name.
    pub(super) fn link(&mut self, directory: FileId, name: &[u8], id: FileId) {
        if let Some(names) = self.names_mut(directory) {
            names.insert(name.to_vec(), id);
        }
    }

    /// Removes a name, and what it stands for if that has no other name.
    pub(super) fn remove(&mut self, directory: FileId, name: &[u8]) {
        let Some(id) = self.names_mut(directory).and_then(|names| names.remove(name)) else { return };
        if self.names(id).is_some() || self.links(id) == 0 {
            self.things.remove(&id);
        }
    }

    /// What a name in a directory stands for.
    pub(super) fn lookup(&self, directory: FileId, name: &[u8]) -> Option<FileId> {
        self.names(directory)?.get(name).copied()
    }

    /// Whether what one name stands for, which is there, may have another name in place of what that stands for. One
    /// thing under both names may not: nothing would change.
    pub(super) fn can_rename(&self, (from, old): (FileId, &[u8]), (to, new): (FileId, &[u8])) -> bool {
        let Some(id) = self.lookup(from, old) else { return false };
        let replaced = self.lookup(to, new);
        let is_directory = self.names(id).is_some();
        let gives_way = replaced.is_none_or(|other| match self.names(other) {
            Some(names) => is_directory && names.is_empty(),
            None => !is_directory,
        });
        gives_way && replaced != Some(id) && !self.is_below(id, to)
    }

    /// Renames; an entry with the new name is replaced.
    pub(super) fn rename(&mut self, (from, old): (FileId, &[u8]), (to, new): (FileId, &[u8])) {
        self.remove(to, new);
        let Some(id) = self.names_mut(from).and_then(|names| names.remove(old)) else { return };
        self.link(to, new, id);
    }

    /// The first path from a directory to what is below it; `met` are directories that were visited.
    pub(super) fn path(&self, directory: FileId, to: FileId, met: &mut BTreeSet<FileId>) -> Option<String> {
        if directory == to {
            return Some(String::new());
        }
        if !met.insert(directory) {
            return None;
        }
        self.names(directory)?.iter().find_map(|(name, id)| {
            let rest = self.path(*id, to, met)?;
            Some(format!("/{}{rest}", name.escape_ascii()))
        })
    }

    /// Whether `below` is `directory`, or somewhere in it.
    fn is_below(&self, directory: FileId, below: FileId) -> bool {
        let mut seen = BTreeSet::from([directory]);
        let mut pending = vec![directory];
        while let Some(next) = pending.pop() {
            pending.extend(
                self.names(next).into_iter().flat_map(|names| names.values()).filter(|id| seen.insert(**id)),
            );
        }
        seen.contains(&below)
    }

    /// What is below a directory, which is the root of it.
    pub(super) fn below(&self, directory: FileId) -> Tree {
        let mut things = BTreeMap::new();
        let mut pending = vec![directory];
        while let Some(id) = pending.pop() {
            let Some(thing) = self.things.get(&id) else { continue };
            if things.insert(id, thing.clone()).is_none() {
                pending.extend(self.names(id).into_iter().flat_map(|names| names.values()));
            }
        }
        Tree { root: directory, things }
    }

    /// The shape of the tree from its root.
    pub(super) fn shape(&self) -> Shape {
        let mut shape = Shape::default();
        shape.order.push(self.root);
        self.describe(self.root, 0, &mut shape, &mut BTreeSet::from([self.root]));
        shape
    }

    fn describe(&self, directory: FileId, depth: u32, shape: &mut Shape, above: &mut BTreeSet<FileId>) {
        for (name, id) in self.names(directory).into_iter().flatten() {
            let place = shape.order.iter().position(|met| met == id).unwrap_or_else(|| {
                shape.order.push(*id);
                shape.order.len() - 1
            });
            let Some(thing) = self.things.get(id) else { continue };
            let (kind, size, target) = match &thing.kind {
                Kind::Directory(_) => (0, 0, Vec::new()),
                Kind::File { size } => (1, *size, Vec::new()),
                Kind::Symlink { target } => (2, 0, target.clone()),
            };
            let what = (kind, size, target, thing.permissions, thing.attribute.clone());
            shape.lines.push(Line { depth, name: name.clone(), place, what });
            if kind == 0 && above.insert(*id) {
                self.describe(*id, depth + 1, shape, above);
            }
        }
    }
}

/// Pages that a file of `size` bytes has.
pub(super) fn pages_of(size: u64) -> u32 {
    size.div_ceil(BLOCK_BYTES as u64) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(names: &[(&str, FileId)]) -> Tree {
        let mut tree = Tree::new(1, 0o755);
        for (name, id) in names {
            let thing = Thing { kind: Kind::File { size: 7 }, permissions: 0o644, attribute: None };
            tree.things.insert(*id, thing);
            if let Some(names) = tree.names_mut(1) {
                names.insert(name.as_bytes().to_vec(), *id);
            }
        }
        tree
    }

    #[test]
    fn trees_that_differ_in_numbers_only_look_alike() {
        let a = with(&[("a", 5), ("b", 9)]).shape();
        let b = with(&[("a", 12), ("b", 3)]).shape();
        assert_eq!(a, b);
        assert_eq!((a.order, b.order), (vec![1, 5, 9], vec![1, 12, 3]));
    }

    #[test]
    fn two_names_of_one_file_are_no_two_files() {
        assert_ne!(with(&[("a", 5), ("b", 5)]).shape(), with(&[("a", 5), ("b", 6)]).shape());
        assert_ne!(with(&[("a", 5)]).shape(), with(&[("b", 5)]).shape());
        let mut longer = with(&[("a", 5)]);
        longer.things.entry(5).and_modify(|thing| thing.kind = Kind::File { size: 8 });
        assert_ne!(longer.shape(), with(&[("a", 5)]).shape());
    }
}
