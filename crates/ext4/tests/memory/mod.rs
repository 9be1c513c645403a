//! One directory in memory: its blocks are all the blocks there are.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::ops::Range;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use weir_ext4::directory::DirectoryFile;
use weir_ext4::{Blocks, Checksums, Kind};
use weir_format::{BLOCK_BYTES, FormatError};

/// Runs a future that waits for nothing, as everything in memory does.
pub fn now<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("nothing here waits"),
    }
}

/// Blocks of a directory; block n of the directory is at place n + `SHIFT`. Every read verifies the checksum.
pub struct Memory {
    blocks: RefCell<Vec<Box<[u8; BLOCK_BYTES]>>>,
    checksums: Checksums,
    indexed: Cell<bool>,
    limit: Cell<usize>,
}

const SHIFT: u64 = 100;

impl Memory {
    pub fn new(sealed: bool) -> Self {
        let checksums = if sealed { Checksums::of_uuid(&[3; 16]) } else { Checksums::none() };
        Self {
            blocks: RefCell::default(),
            checksums,
            indexed: Cell::new(false),
            limit: Cell::new(usize::MAX),
        }
    }

    /// From now on there are `limit` blocks and no more.
    pub fn allow(&self, limit: usize) {
        self.limit.set(limit);
    }

    pub fn indexed(&self) -> bool {
        self.indexed.get()
    }

    pub fn count(&self) -> usize {
        self.blocks.borrow().len()
    }
}

impl Blocks for Memory {
    type Error = FormatError;

    async fn read<T>(
        &self,
        block: u64,
        kind: Kind,
        look: impl FnOnce(&[u8]) -> Result<T, FormatError>,
    ) -> Result<T, FormatError> {
        let blocks = self.blocks.borrow();
        let bytes = &blocks[(block - SHIFT) as usize][..];
        self.checksums.verify(kind, block, bytes)?;
        look(bytes)
    }

    async fn modify(
        &self,
        block: u64,
        kind: Kind,
        range: Range<usize>,
        change: impl FnOnce(&mut [u8]),
    ) -> Result<(), FormatError> {
        let mut blocks = self.blocks.borrow_mut();
        let bytes = &mut blocks[(block - SHIFT) as usize][..];
        // What is overwritten whole may have been anything.
        if range != (0..BLOCK_BYTES) {
            self.checksums.verify(kind, block, bytes)?;
        }
        change(&mut bytes[range]);
        self.checksums.update_checksum(kind, block, bytes).map(drop)
    }

    async fn allocate(&self, _: Kind, _: u64) -> Result<u64, FormatError> {
        if self.count() >= self.limit.get() {
            return Err(FormatError::Full { what: "the storage" });
        }
        self.blocks.borrow_mut().push(Box::new([0; BLOCK_BYTES]));
        Ok(SHIFT + self.count() as u64 - 1)
    }

    async fn free(&self, _: u64, _: Kind) -> Result<(), FormatError> {
        panic!("a directory gives no block back")
    }
}

impl DirectoryFile for Memory {
    type Error = FormatError;

    fn blocks(&self) -> u32 {
        self.count() as u32
    }

    fn is_indexed(&self) -> bool {
        self.indexed()
    }

    async fn set_indexed(&self) -> Result<(), FormatError> {
        self.indexed.set(true);
        Ok(())
    }

    async fn place(&self, block: u32) -> Result<u64, FormatError> {
        Ok(SHIFT + u64::from(block))
    }

    async fn append(&self, kind: Kind) -> Result<(u32, u64), FormatError> {
        let place = self.allocate(kind, 0).await?;
        Ok((self.blocks() - 1, place))
    }
}
