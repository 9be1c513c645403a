//! Images in files, sparse ones.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use weir_f2fs::{BLOCK_BYTES, BlockAddress, CheckpointPack, FormatError, Layout, NewImage, Superblock};
use weir_format::ImageReader;

use crate::judge;

/// Blocks of a mebibyte.
pub const MEBIBYTE: u64 = 256;

pub type Block = [u8; BLOCK_BYTES];

pub struct ImageFile {
    directory: TempDir,
    file: File,
}

impl ImageFile {
    /// A sparse file of `blocks` blocks.
    pub fn new(blocks: u64) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("image");
        let file = File::options().read(true).write(true).create_new(true).open(path).expect("a file");
        file.set_len(blocks * BLOCK_BYTES as u64).expect("a sparse file");
        Self { directory, file }
    }

    /// A new image that this crate makes.
    pub fn from_new(image: &NewImage) -> Self {
        let file = Self::new(image.superblock().blocks.get());
        image.writes().for_each(|(block, bytes)| file.write(block, &bytes));
        file
    }

    /// An image that mkfs.f2fs makes. `None` where it is not installed.
    pub fn from_mkfs(blocks: u64, options: &[&str]) -> Option<Self> {
        let file = Self::new(blocks);
        let arguments = [&["-f", "-T", "1700000000"], options].concat();
        let (text, success) = judge::run("mkfs.f2fs", &arguments, &file.path())?;
        assert!(success, "{text}");
        Some(file)
    }

    /// A copy of another image.
    pub fn from_copy(image: &Self) -> Self {
        let copy = Self::new(image.blocks());
        let written = (0..image.blocks()).map(|block| (block, image.read(block)));
        written
            .filter(|(_, bytes)| *bytes != [0; BLOCK_BYTES])
            .for_each(|(block, bytes)| copy.write(block, &bytes));
        copy
    }

    /// Copies a tree of directories, files and symbolic links into the image. `None` without sload.f2fs.
    pub fn fill(&self) -> Option<()> {
        let tree = self.directory.path().join("tree");
        make_tree(&tree);
        self.fill_from(&tree)
    }

    /// Copies a directory of the host into the image. `None` without sload.f2fs.
    pub fn fill_from(&self, tree: &Path) -> Option<()> {
        let tree = tree.to_str().expect("plain");
        let (text, success) = judge::run("sload.f2fs", &["-f", tree], &self.path())?;
        assert!(success, "{text}");
        Some(())
    }

    pub fn path(&self) -> PathBuf {
        self.directory.path().join("image")
    }

    pub fn blocks(&self) -> u64 {
        self.file.metadata().expect("a file").len() / BLOCK_BYTES as u64
    }

    pub fn read(&self, block: u64) -> Block {
        let mut bytes = [0; BLOCK_BYTES];
        self.file.read_exact_at(&mut bytes, block * BLOCK_BYTES as u64).expect("a block");
        bytes
    }

    pub fn read_at(&self, address: BlockAddress) -> Block {
        self.read(u64::from(address.0))
    }

    pub fn write(&self, block: u64, bytes: &Block) {
        self.file.write_all_at(bytes, block * BLOCK_BYTES as u64).expect("a block");
    }

    pub fn superblock(&self) -> Superblock {
        Superblock::choose(&self.read(0), &self.read(1), self.blocks()).expect("a superblock").superblock
    }

    pub fn layout(&self) -> Layout {
        Layout::new(&self.superblock()).expect("a layout")
    }

    /// The bytes of a pack's segment.
    pub fn pack_bytes(&self, pack: usize) -> Vec<u8> {
        let start = u64::from(self.layout().pack_start(pack).0);
        (start..start + 512).flat_map(|block| self.read(block)).collect()
    }

    pub fn pack(&self, pack: usize) -> Result<CheckpointPack, FormatError> {
        let layout = self.layout();
        CheckpointPack::read(&self.pack_bytes(pack), layout.pack_start(pack).0, &layout)
    }

    pub fn checkpoint(&self) -> CheckpointPack {
        CheckpointPack::choose([self.pack(0), self.pack(1)]).expect("a checkpoint").0
    }
}

/// Enough names for a directory of several blocks, enough data for indirect nodes.
fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("a/b/c")).expect("directories");
    for index in 0..700 {
        fs::write(root.join(format!("a/file-{index}")), vec![index as u8; index * 13]).expect("a file");
    }
    for index in 0..40 {
        fs::create_dir(root.join(format!("a/b/directory-{index}"))).expect("a directory");
    }
    fs::write(root.join("large"), vec![7; 9 << 20]).expect("a large file");
    fs::write(root.join("empty"), []).expect("an empty file");
    symlink("a/file-1", root.join("link")).expect("a link");
}

impl ImageReader for ImageFile {
    type Error = FormatError;

    fn blocks(&self) -> u64 {
        ImageFile::blocks(self)
    }

    async fn read(&self, block: u64, bytes: &mut [u8]) -> Result<(), FormatError> {
        let beyond = FormatError::Invalid { what: "a read beyond the end of the image" };
        self.file.read_exact_at(bytes, block * BLOCK_BYTES as u64).map_err(|_| beyond)
    }
}
