//! What a mount of the filesystem shows: every name, and every byte.

use std::collections::BTreeMap;

use weir_format::{Cookie, FileType};
use weir_storage::BLOCK_BYTES;
use weir_vfs::{FilesystemCalls, FsError};

use super::tree::{FileId, Kind, Thing, Tree};

/// The extended attribute that runs use.
pub(super) const ATTRIBUTE: &[u8] = b"user.run";

/// The directory that every filesystem has from the beginning, and that is never used.
pub(super) const LOST_AND_FOUND: &[u8] = b"lost+found";

/// A file that takes room and is never read.
pub(super) const BALLAST: &[u8] = b"ballast";

/// No operation makes a larger file.
pub(super) const FILE_BYTES_MAX: u64 = 64 << 20;

/// A tree, with the bytes of its files; equal to another with the same names and content, whatever its inodes' numbers.
pub(super) struct Visible {
    pub tree: Tree,
    bytes: BTreeMap<FileId, Vec<u8>>,
}

impl PartialEq for Visible {
    fn eq(&self, other: &Visible) -> bool {
        let (mine, theirs) = (self.tree.shape(), other.tree.shape());
        let mut files = mine.order.iter().zip(&theirs.order);
        mine == theirs && files.all(|(mine, theirs)| self.bytes.get(mine) == other.bytes.get(theirs))
    }
}

impl Visible {
    /// A tree with the bytes of its files, whole pages each.
    pub(super) fn of(tree: Tree, bytes: BTreeMap<FileId, Vec<u8>>) -> Visible {
        Visible { tree, bytes }
    }

    /// Reads everything.
    pub(super) async fn read(fs: &dyn FilesystemCalls) -> Result<Visible, FsError> {
        Visible::read_below(fs, fs.root()).await
    }

    /// Reads what is below a directory, which is the root of it.
    pub(super) async fn read_below(fs: &dyn FilesystemCalls, root: FileId) -> Result<Visible, FsError> {
        let permissions = fs.attributes(root).await?.permissions;
        let mut visible = Visible { tree: Tree::new(root, permissions), bytes: BTreeMap::new() };
        let mut directories = vec![root];
        while let Some(directory) = directories.pop() {
            let mut after = Cookie::START;
            loop {
                let entries = fs.read_directory(directory, after).await?;
                let Some(last) = entries.last() else { break };
                after = last.cookie;
                for entry in &entries {
                    if [&b"."[..], b"..", LOST_AND_FOUND, BALLAST].contains(&&entry.name[..]) {
                        continue;
                    }
                    // A damaged tree may lead back to a directory that is read already.
                    let is_new = !visible.tree.things.contains_key(&entry.target.inode);
                    if visible.meet(fs, entry.target.inode).await? == FileType::Directory && is_new {
                        directories.push(entry.target.inode);
                    }
                    if let Some(names) = visible.tree.names_mut(directory) {
                        names.insert(entry.name.clone(), entry.target.inode);
                    }
                }
            }
        }
        Ok(visible)
    }

    async fn meet(&mut self, fs: &dyn FilesystemCalls, inode: FileId) -> Result<FileType, FsError> {
        let attributes = fs.attributes(inode).await?;
        if self.tree.things.contains_key(&inode) {
            return Ok(attributes.kind);
        }
        let kind = match attributes.kind {
            FileType::Directory => Kind::Directory(BTreeMap::new()),
            FileType::Symlink => Kind::Symlink { target: fs.read_link(inode).await? },
            _ => {
                let mut bytes = vec![0; attributes.size.min(FILE_BYTES_MAX) as usize];
                let mut done = 0;
                while done < bytes.len() {
                    match fs.read(inode, done as u64, &mut bytes[done..]).await? {
                        0 => break,
                        more => done += more,
                    }
                }
                bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES), 0);
                self.bytes.insert(inode, bytes);
                Kind::File { size: attributes.size }
            }
        };
        let attribute = match fs.extended_attribute(inode, ATTRIBUTE).await {
            Ok(value) => Some(value),
            Err(FsError::NoAttribute) => None,
            Err(error) => return Err(error),
        };
        self.tree.things.insert(inode, Thing { kind, permissions: attributes.permissions, attribute });
        Ok(attributes.kind)
    }

    /// All pages that hold something else than zeros.
    pub(super) fn pages(&self) -> impl Iterator<Item = ((FileId, u32), &[u8; BLOCK_BYTES])> {
        self.bytes.iter().flat_map(|(file, bytes)| {
            let (pages, _) = bytes.as_chunks::<BLOCK_BYTES>();
            let written = (0..).zip(pages).filter(|(_, bytes)| bytes.iter().any(|byte| *byte != 0));
            written.map(|(page, bytes)| ((*file, page), bytes))
        })
    }

    /// The bytes of a file, whole pages; none for what is no file.
    pub(super) fn bytes(&self, file: FileId) -> Option<&[u8]> {
        self.bytes.get(&file).map(Vec::as_slice)
    }

    /// A page of a file, with zeros behind the file's end.
    pub(super) fn page(&self, file: FileId, page: u32) -> &[u8] {
        let bytes = self.bytes.get(&file).map_or(&[][..], Vec::as_slice);
        bytes.chunks(BLOCK_BYTES).nth(page as usize).unwrap_or(&[0; BLOCK_BYTES])
    }
}
