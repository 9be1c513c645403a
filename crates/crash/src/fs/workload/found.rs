//! What is found on a filesystem after a power cut, by its paths.

use std::rc::Rc;

use crate::fs::tree::{FileId, Kind, Tree};
use crate::fs::visible::Visible;

/// Every name and every byte that a mount shows.
#[derive(Clone)]
pub struct Found(pub(in crate::fs) Rc<Visible>);

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundKind {
    /// A directory.
    Directory,
    /// A file of so many bytes.
    File(u64),
    /// A symbolic link that says this.
    Symlink(Vec<u8>),
}

impl Found {
    /// A damaged directory may hold names that no workload has.
    fn id(&self, path: &str) -> Option<FileId> {
        let tree = &self.0.tree;
        match path.strip_prefix('/')? {
            "" => Some(tree.root),
            names => names
                .split('/')
                .try_fold(tree.root, |directory, name| tree.lookup(directory, name.as_bytes())),
        }
    }

    /// What a path stands for; none if nothing.
    #[must_use]
    pub fn kind(&self, path: &str) -> Option<FoundKind> {
        Some(match &self.0.tree.things.get(&self.id(path)?)?.kind {
            Kind::Directory(_) => FoundKind::Directory,
            Kind::File { size } => FoundKind::File(*size),
            Kind::Symlink { target } => FoundKind::Symlink(target.clone()),
        })
    }

    /// Who may do what with what a path stands for; none if nothing.
    #[must_use]
    pub fn permissions(&self, path: &str) -> Option<u16> {
        Some(self.0.tree.things.get(&self.id(path)?)?.permissions)
    }

    /// Whether a path stands for anything.
    #[must_use]
    pub fn is_there(&self, path: &str) -> bool {
        self.kind(path).is_some()
    }

    /// The bytes of a file; none for anything else.
    #[must_use]
    pub fn bytes(&self, path: &str) -> Option<&[u8]> {
        let id = self.id(path)?;
        let size = self.0.tree.size(id)?;
        self.0.bytes(id)?.get(..usize::try_from(size).ok()?)
    }

    /// Whether two paths are names of one file.
    #[must_use]
    pub fn are_links(&self, one: &str, other: &str) -> bool {
        self.id(one).is_some() && self.id(one) == self.id(other)
    }

    /// Every path but the root, in the order of their names, with what it stands for. A directory comes before what is
    /// in it.
    #[must_use]
    pub fn paths(&self) -> Vec<(String, FoundKind)> {
        let mut paths = Vec::new();
        list(&self.0.tree, self.0.tree.root, "", &mut paths);
        paths.into_iter().filter_map(|path| Some((path.clone(), self.kind(&path)?))).collect()
    }
}

/// Levels of directories that are listed, at most: a path names no more.
const LEVELS_MAX: usize = 16;

fn list(tree: &Tree, directory: FileId, above: &str, paths: &mut Vec<String>) {
    for (name, id) in tree.names(directory).into_iter().flatten() {
        let path = format!("{above}/{}", String::from_utf8_lossy(name));
        paths.push(path.clone());
        if path.matches('/').count() < LEVELS_MAX {
            list(tree, *id, &path, paths);
        }
    }
}
