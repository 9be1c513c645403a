//! Images in memory, for tests: made by mkfs.ext4, changed through this crate, given to a judge.

#![allow(dead_code, reason = "each test uses a part of the shared helpers")]

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use weir_ext4::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET, Superblock};
use weir_format::BLOCK_BYTES;

use crate::judge;

pub mod filesystem;

/// Runs a future that waits for nothing, as everything over an image in memory does.
pub fn now<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("nothing here waits"),
    }
}

/// A whole filesystem in memory.
#[derive(Clone)]
pub struct Image {
    pub bytes: Vec<u8>,
}

impl Image {
    /// An image made by mkfs.ext4 with these options and a size; `None` where it is not installed.
    pub fn make(options: &[&str], size: &str) -> Option<Self> {
        let file = Scratch::new("made");
        let path = file.path().to_str().expect("a plain path").to_owned();
        let arguments: Vec<&str> =
            ["-q", "-F", "-b", "4096"].iter().chain(options).copied().chain([path.as_str(), size]).collect();
        let output = judge::run("mkfs.ext4", &arguments, b"")?;
        assert!(output.status.success(), "mkfs.ext4: {}", String::from_utf8_lossy(&output.stderr));
        Some(Self::load(file.path()))
    }

    pub fn load(path: &Path) -> Self {
        Self { bytes: std::fs::read(path).expect("an image") }
    }

    /// Writes the image to a scratch file.
    pub fn store(&self, name: &str) -> Scratch {
        let file = Scratch::new(name);
        std::fs::write(file.path(), &self.bytes).expect("room in the temporary directory");
        file
    }

    pub fn block(&self, block: u64) -> &[u8; BLOCK_BYTES] {
        let at = block as usize * BLOCK_BYTES;
        self.bytes[at..at + BLOCK_BYTES].try_into().expect("a whole block")
    }

    pub fn block_mut(&mut self, block: u64) -> &mut [u8; BLOCK_BYTES] {
        let at = block as usize * BLOCK_BYTES;
        (&mut self.bytes[at..at + BLOCK_BYTES]).try_into().expect("a whole block")
    }

    pub fn blocks(&self) -> u64 {
        (self.bytes.len() / BLOCK_BYTES) as u64
    }

    pub fn superblock(&self) -> Superblock {
        Superblock::read(&self.bytes[SUPERBLOCK_OFFSET..]).expect("a superblock")
    }

    pub fn set_superblock(&mut self, mut superblock: Superblock) {
        use zerocopy::IntoBytes;
        superblock.update_checksum();
        self.bytes[SUPERBLOCK_OFFSET..SUPERBLOCK_OFFSET + SUPERBLOCK_BYTES]
            .copy_from_slice(superblock.as_bytes());
    }

    /// The blocks of an inode in order, as debugfs tells them.
    pub fn blocks_of(&self, file: &str) -> Option<Vec<u64>> {
        let scratch = self.store("blocks");
        let output = judge::debugfs_script(Some(scratch.path()), format!("blocks {file}\n").as_bytes())?;
        let line = output.lines().last().expect("a line of blocks");
        Some(line.split_whitespace().map(|block| block.parse().expect("a block number")).collect())
    }
}

/// A file in the temporary directory, gone at the end of the test.
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    pub fn new(name: &str) -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let unique = NEXT.fetch_add(1, Ordering::Relaxed);
        let file = format!("weir-ext4-{}-{unique}-{name}", std::process::id());
        Self { path: std::env::temp_dir().join(file) }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A test that failed before it made the file has nothing to remove.
        let _ = std::fs::remove_file(&self.path);
    }
}
