//! The image as the check sees it: as it is after recovery, without writing to it.

use std::collections::BTreeMap;

use super::ImageReader;
use crate::blocks::BLOCK_BYTES;
use crate::journal::HomeWrite;

/// An image, and what its journal's recovery would write. The copies stay in the journal: only where they are
/// is kept.
pub(super) struct Overlay<'a, R> {
    image: &'a R,
    /// For a home block, the block of the image that holds its newest copy.
    copies: BTreeMap<u64, (u64, HomeWrite)>,
}

impl<'a, R: ImageReader> Overlay<'a, R> {
    pub(super) fn new(image: &'a R) -> Self {
        Self { image, copies: BTreeMap::new() }
    }

    pub(super) fn blocks(&self) -> u64 {
        self.image.blocks()
    }

    /// Lays the copy in block `copy` of the image over its home.
    pub(super) fn lay(&mut self, copy: u64, write: HomeWrite) {
        self.copies.insert(write.home, (copy, write));
    }

    /// Reads whole blocks from `block` on; beyond the image they are zeros.
    pub(super) async fn read(&self, block: u64, bytes: &mut [u8]) -> Result<(), R::Error> {
        let asked = (bytes.len() / BLOCK_BYTES) as u64;
        let there = self.image.blocks().saturating_sub(block).min(asked);
        let (inside, beyond) = bytes.split_at_mut(there as usize * BLOCK_BYTES);
        beyond.fill(0);
        if inside.is_empty() {
            return Ok(());
        }
        self.image.read(block, inside).await?;
        for (home, (copy, write)) in self.copies.range(block..block + there) {
            let mut bytes = Box::new([0; BLOCK_BYTES]);
            self.image.read(*copy, &mut bytes[..]).await?;
            write.restore(&mut bytes);
            let at = (home - block) as usize * BLOCK_BYTES;
            inside[at..at + BLOCK_BYTES].copy_from_slice(&bytes[..]);
        }
        Ok(())
    }

    pub(super) async fn block(&self, block: u64) -> Result<Box<[u8; BLOCK_BYTES]>, R::Error> {
        let mut bytes = Box::new([0; BLOCK_BYTES]);
        self.read(block, &mut bytes[..]).await?;
        Ok(bytes)
    }
}
