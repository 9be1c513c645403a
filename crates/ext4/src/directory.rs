//! Directories: names and the inodes that they stand for.
//!
//! A directory is a file whose blocks hold entries (`entry`). A small one is one block, searched from its
//! start. When that is full it becomes *hashed*: block 0 turns into the root of an index (`index`) over the
//! hashes of names, and the entries move into *leaves*, each with a range of hashes. A leaf that is full is
//! split in two by hash. Directories of several blocks without an index, as other programs make them, are
//! read and extended as they are.
//!
//! [`Directory`] works over two traits: [`Blocks`] reads and changes blocks; [`DirectoryFile`] says where
//! they are, and gives new ones. Every operation leaves the directory whole after each change that it makes
//! through them, so that an error from below (no space) in the middle of an insertion does no harm.

mod change;
pub(crate) mod entry;
pub(crate) mod index;
mod probe;
mod read;

pub use entry::{NAME_MAX, empty_block, first_block};

use weir_format::{BLOCK_BYTES, Cookie, FileType, FormatError, Place, Structure, Target};

use crate::dirhash::{HashVersion, NameHasher};
use crate::features::Feature;
use crate::superblock::Superblock;
use crate::{blocks::Blocks, blocks::Kind};
use entry::{NO_DOTS, Record, Records, is_ordinary};

/// Where the blocks of one directory are.
#[allow(async_fn_in_trait, reason = "everything runs on one thread, so no future needs to be Send")]
pub trait DirectoryFile {
    /// What a caller gets when the storage fails, there is no space, or the format is broken.
    type Error: From<FormatError>;

    /// How many blocks the directory has, by its size.
    fn blocks(&self) -> u32;

    /// Whether the inode says that the directory is hashed.
    fn is_indexed(&self) -> bool;

    /// Notes in the inode that the directory is hashed from now on.
    async fn set_indexed(&self) -> Result<(), Self::Error>;

    /// Where block `block` of the directory is in the filesystem. A hole is damage.
    async fn place(&self, block: u32) -> Result<u64, Self::Error>;

    /// Gives the directory a block more, all zeros, and grows its size. Returns the block's number in the
    /// directory and its place. The caller overwrites it whole before it does anything else.
    async fn append(&self, kind: Kind) -> Result<(u32, u64), Self::Error>;
}

/// What the superblock and the inode say about how a directory's blocks are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryFormat {
    /// The directory's inode number.
    pub inode: u32,
    /// The inode's generation.
    pub generation: u32,
    /// Whether blocks end with a checksum.
    pub sealed: bool,
    /// Whether directories may become hashed.
    pub may_index: bool,
    /// The hash function of new indexes, and of the order in which names are read.
    pub hasher: NameHasher,
    /// Whether a name that no path can have is damage. Only a test that proves this has it otherwise.
    pub checks_names: bool,
}

impl DirectoryFormat {
    /// The format of the directory with this inode in this filesystem.
    ///
    /// # Errors
    ///
    /// [`FormatError::Feature`] for a hash function outside the subset.
    pub fn new(superblock: &Superblock, inode: u32, generation: u32) -> Result<Self, FormatError> {
        let features = superblock.features();
        let version = HashVersion::from_disk(superblock.hash_version, !superblock.signed_hash())?;
        Ok(Self {
            inode,
            generation,
            sealed: features.has(Feature::METADATA_CSUM),
            may_index: features.has(Feature::DIR_INDEX),
            hasher: NameHasher { version, seed: superblock.hash_seed.map(|word| word.get()) },
            checks_names: true,
        })
    }

    fn leaf(&self) -> Kind {
        Kind::Directory { inode: self.inode, generation: self.generation }
    }

    fn node(&self) -> Kind {
        Kind::DirectoryIndex { inode: self.inode, generation: self.generation }
    }
}

/// One directory, to be searched and changed. Its caller keeps others from changing it meanwhile.
pub struct Directory<'a, B, F> {
    blocks: &'a B,
    file: &'a F,
    format: DirectoryFormat,
}

impl<'a, B: Blocks, F: DirectoryFile<Error = B::Error>> Directory<'a, B, F> {
    /// The directory in the blocks of `file`.
    pub fn new(blocks: &'a B, file: &'a F, format: DirectoryFormat) -> Self {
        Self { blocks, file, format }
    }

    /// Makes the first block of a new directory.
    ///
    /// # Errors
    ///
    /// Those from below.
    pub async fn create(&self, parent: u32, file_types: bool) -> Result<(), B::Error> {
        let first = first_block(self.format.inode, parent, file_types, self.format.sealed);
        let (_, place) = self.file.append(self.format.leaf()).await?;
        self.overwrite(place, self.format.leaf(), &first).await
    }

    /// What `name` stands for; "." and ".." too.
    ///
    /// # Errors
    ///
    /// [`FormatError::Invalid`] for an empty name or one longer than 255 bytes, [`FormatError::Corrupt`] for
    /// damage, and those from below.
    pub async fn lookup(&self, name: &[u8]) -> Result<Option<Target>, B::Error> {
        check_length(name)?;
        let dot = match name {
            b"." => 0,
            b".." => 1,
            _ => return Ok(self.find(name).await?.map(|found| found.target)),
        };
        let inode = self.dots().await?[dot];
        Ok(Some(Target { inode, kind: Some(FileType::Directory) }))
    }

    /// The directory's parent.
    ///
    /// # Errors
    ///
    /// [`FormatError::Corrupt`] for damage, and those from below.
    pub async fn parent(&self) -> Result<u32, B::Error> {
        let [_, parent] = self.dots().await?;
        Ok(parent)
    }

    /// Lets ".." stand for another inode.
    ///
    /// # Errors
    ///
    /// [`FormatError::Corrupt`] for damage, and those from below.
    pub async fn set_parent(&self, parent: u32) -> Result<(), B::Error> {
        self.dots().await?;
        let place = self.file.place(0).await?;
        let change = |bytes: &mut [u8]| bytes.copy_from_slice(&parent.to_le_bytes());
        self.blocks.modify(place, self.first_kind(), 12..16, change).await
    }

    /// Whether there are no names but "." and "..".
    ///
    /// # Errors
    ///
    /// [`FormatError::Corrupt`] for damage, and those from below.
    pub async fn is_empty(&self) -> Result<bool, B::Error> {
        let after = Cookie::DOT_DOT;
        Ok(self.read(after, 1).await?.is_empty())
    }

    /// The inodes that "." and ".." stand for.
    async fn dots(&self) -> Result<[u32; 2], B::Error> {
        let place = self.file.place(0).await?;
        // An index hides behind "..", so that both kinds of first block start alike.
        let look = |bytes: &[u8]| {
            let mut records = Records::of(bytes, false);
            let mut expect = |name: &[u8]| match records.next() {
                Some(Ok(record)) if record.name == name && record.is_live() => Ok(record),
                _ => Err(corrupt(place, NO_DOTS)),
            };
            let (own, parent) = (expect(b".")?, expect(b"..")?);
            if parent.at == entry::RECORD_MIN {
                Ok([own.inode, parent.inode])
            } else {
                Err(corrupt(place, "room between \".\" and \"..\""))
            }
        };
        if self.file.is_indexed() {
            return self.blocks.read(place, self.format.node(), look).await;
        }
        self.blocks.read(place, self.format.leaf(), look).await
    }

    fn first_kind(&self) -> Kind {
        if self.file.is_indexed() { self.format.node() } else { self.format.leaf() }
    }

    async fn overwrite(&self, place: u64, kind: Kind, bytes: &[u8; BLOCK_BYTES]) -> Result<(), B::Error> {
        self.blocks.modify(place, kind, 0..BLOCK_BYTES, |block| block.copy_from_slice(bytes)).await
    }

    /// Runs `look` on the records of a block of entries, or fails if one is damaged or has a name that cannot be.
    /// All reading of live records goes this way, but for "." and ".." before an index.
    async fn records<T>(
        &self,
        place: u64,
        is_first_block: bool,
        look: impl FnOnce(&[Record<'_>]) -> Result<T, FormatError>,
    ) -> Result<T, B::Error> {
        let DirectoryFormat { sealed, checks_names, .. } = self.format;
        let parse = |bytes: &[u8]| {
            let records: Result<Vec<_>, _> = Records::of(bytes, sealed)
                .enumerate()
                .map(|(index, record)| match checks_names {
                    true => record?.checked(is_first_block, index),
                    false => record,
                })
                .collect();
            look(&records.map_err(|what| corrupt(place, what))?)
        };
        self.blocks.read(place, self.format.leaf(), parse).await
    }
}

fn check_length(name: &[u8]) -> Result<(), FormatError> {
    if name.is_empty() || name.len() > NAME_MAX {
        return Err(FormatError::Invalid { what: "a name has 1 to 255 bytes" });
    }
    Ok(())
}

/// Names that are changed are whole ones, and not those that every directory has.
fn check_ordinary(name: &[u8]) -> Result<(), FormatError> {
    check_length(name)?;
    if !is_ordinary(name) {
        return Err(FormatError::Invalid {
            what: "a name is not \".\" or \"..\", and has no zero byte and no slash",
        });
    }
    Ok(())
}

fn corrupt(place: u64, what: &'static str) -> FormatError {
    FormatError::corrupt(Structure::Directory, Place::Block(place), what)
}

fn corrupt_index(place: u64, what: &'static str) -> FormatError {
    FormatError::corrupt(Structure::DirectoryIndex, Place::Block(place), what)
}
