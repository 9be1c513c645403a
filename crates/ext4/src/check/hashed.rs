//! The index of a hashed directory: it is in order, and leads to every block of names once.

use weir_format::{FormatError, ImageReader, Place, Structure};

use super::finding::Findings;
use super::overlay::Overlay;
use crate::directory::DirectoryFormat;
use crate::directory::index::{Node, Root};
use crate::dirhash::{HashVersion, NameHasher};

/// What a block of a directory holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Role {
    #[default]
    Names,
    Node,
}

/// A block of a directory: the hashes of its names, and whether the index led there.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Leaf {
    pub role: Role,
    hashes: Option<(u32, u32)>,
    found: bool,
}

impl Leaf {
    /// Notes the hash of a name.
    pub(super) fn see(&mut self, hash: u32) {
        let (low, high) = self.hashes.unwrap_or((hash, hash));
        self.hashes = Some((low.min(hash), high.max(hash)));
    }
}

/// A node that is to be looked at: its place, and between which hashes its names are.
struct Range {
    low: u32,
    /// Where the next one begins; its lowest bit says that this one's last hash goes on there.
    next: Option<u32>,
}

impl Range {
    fn has(&self, low: u32, high: u32) -> bool {
        let goes_on = |next: u32| next & 1 == 1 && high == next & !1;
        low >= self.low & !1 && self.next.is_none_or(|next| high < next & !1 || goes_on(next))
    }
}

/// A directory whose blocks are read.
pub(super) struct OpenDirectory {
    pub number: u32,
    pub format: DirectoryFormat,
    pub places: Vec<u64>,
}

impl OpenDirectory {
    /// The hash function of a directory's index.
    pub(super) async fn index_hasher<R: ImageReader>(
        &self,
        image: &Overlay<'_, R>,
    ) -> Result<Result<NameHasher, FormatError>, R::Error> {
        let hasher = self.format.hasher;
        let root = match self.root(image).await? {
            Ok((root, _)) => root,
            Err(error) => return Ok(Err(error)),
        };
        let version = HashVersion::from_disk(root.version, hasher.version.is_unsigned());
        Ok(version.map(|version| NameHasher { version, ..hasher }))
    }

    async fn root<R: ImageReader>(
        &self,
        image: &Overlay<'_, R>,
    ) -> Result<Result<(Root, Box<[u8; 4096]>), FormatError>, R::Error> {
        let Some(place) = self.places.first().copied() else {
            let place = Place::Inode(self.number);
            return Ok(Err(FormatError::corrupt(Structure::DirectoryIndex, place, "no blocks")));
        };
        let bytes = image.block(place).await?;
        let corrupt = |what| FormatError::corrupt(Structure::DirectoryIndex, Place::Block(place), what);
        Ok(Root::read(&bytes[..], self.format.sealed).map(|root| (root, bytes)).map_err(corrupt))
    }
}

/// The index of a directory.
pub(super) struct Index<'a, R> {
    pub image: &'a Overlay<'a, R>,
    pub directory: &'a OpenDirectory,
    pub findings: &'a mut Findings,
}

impl<R: ImageReader> Index<'_, R> {
    /// Goes through the index; `leaves` are all blocks of the directory.
    pub(super) async fn check(mut self, leaves: &mut [Leaf]) -> Result<(), R::Error> {
        let Ok((root, bytes)) = self.directory.root(self.image).await? else { return Ok(()) };
        leaves[0].found = true;
        let whole = Range { low: 0, next: None };
        let children = self.node(0, &root.node, &bytes[..], &whole, leaves);
        for (child, range) in children {
            if root.levels == 0 {
                self.leaf(child, &range, leaves);
                continue;
            }
            let place = self.directory.places[child];
            let bytes = self.image.block(place).await?;
            match Node::read_inner(&bytes[..], self.directory.format.sealed) {
                Ok(node) if leaves[child].role == Role::Node => {
                    for (child, range) in self.node(child, &node, &bytes[..], &range, leaves) {
                        self.leaf(child, &range, leaves);
                    }
                }
                Ok(_) => self.wrong_index(place, "names where there should be a node"),
                Err(what) => self.wrong_index(place, what),
            }
        }
        for (leaf, place) in leaves.iter().zip(&self.directory.places) {
            if !leaf.found {
                self.wrong_index(*place, "the index does not lead here");
            }
        }
        Ok(())
    }

    /// The children of a node that exist and that no node led to before.
    fn node(
        &mut self,
        at: usize,
        node: &Node,
        bytes: &[u8],
        range: &Range,
        leaves: &mut [Leaf],
    ) -> Vec<(usize, Range)> {
        let place = self.directory.places[at];
        let mut children = Vec::with_capacity(node.count);
        let mut low = range.low;
        for index in 0..node.count {
            let next = if index + 1 < node.count { Some(node.hash(bytes, index + 1)) } else { range.next };
            if next.is_some_and(|next| next & !1 < low & !1) {
                self.wrong_index(place, "order of the hashes");
            }
            let child = node.child(bytes, index) as usize;
            match leaves.get_mut(child) {
                Some(leaf) if !leaf.found => {
                    leaf.found = true;
                    children.push((child, Range { low, next }));
                }
                Some(_) => self.wrong_index(place, "a block twice"),
                None => self.wrong_index(place, "a block beyond the directory"),
            }
            low = next.unwrap_or(low);
        }
        children
    }

    fn leaf(&mut self, at: usize, range: &Range, leaves: &[Leaf]) {
        let place = self.directory.places[at];
        if leaves[at].role == Role::Node && self.directory.format.sealed {
            self.wrong_index(place, "a node where there should be names");
        }
        if leaves[at].hashes.is_some_and(|(low, high)| !range.has(low, high)) {
            self.wrong_index(place, "a name with a hash that the index does not seek here");
        }
    }

    fn wrong_index(&mut self, place: u64, what: &'static str) {
        self.findings.damaged(Place::Block(place), Structure::DirectoryIndex, what);
    }
}
