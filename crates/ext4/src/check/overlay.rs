//! The image as the check sees it: as it is after recovery, without writing to it.

use std::collections::BTreeMap;

use weir_format::{BLOCK_BYTES, ImageReader};

use crate::journal::{HomeWrite, LogReader};

/// An image, and what its journal's recovery would write. The copies stay in the journal: only where they are
/// is kept.
pub(super) struct Overlay<'a, R> {
    image: &'a R,
    /// The blocks of the image that are the journal's.
    journal: Vec<u64>,
    /// By home.
    writes: BTreeMap<u64, HomeWrite>,
}

impl<R: ImageReader> LogReader for Overlay<'_, R> {
    type Error = R::Error;

    async fn read(&self, block: u32, bytes: &mut [u8; BLOCK_BYTES]) -> Result<(), R::Error> {
        self.image.read(self.journal[block as usize], &mut bytes[..]).await
    }

    async fn read_home(&self, home: u64, bytes: &mut [u8; BLOCK_BYTES]) -> Result<(), R::Error> {
        self.image.read(home, &mut bytes[..]).await
    }
}

impl<'a, R: ImageReader> Overlay<'a, R> {
    pub(super) fn new(image: &'a R) -> Self {
        Self { image, journal: Vec::new(), writes: BTreeMap::new() }
    }

    pub(super) fn blocks(&self) -> u64 {
        self.image.blocks()
    }

    /// Lays what the journal, whose blocks are at these places of the image, holds of some blocks over their homes.
    pub(super) fn lay(&mut self, journal: Vec<u64>, writes: Vec<HomeWrite>) {
        self.journal = journal;
        self.writes = writes.into_iter().map(|write| (write.home, write)).collect();
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
        for (home, write) in self.writes.range(block..block + there) {
            let at = (home - block) as usize * BLOCK_BYTES;
            if let Some(bytes) = inside[at..].first_chunk_mut() {
                write.restore(self, bytes).await?;
            }
        }
        Ok(())
    }

    pub(super) async fn block(&self, block: u64) -> Result<Box<[u8; BLOCK_BYTES]>, R::Error> {
        let mut bytes = Box::new([0; BLOCK_BYTES]);
        self.read(block, &mut bytes[..]).await?;
        Ok(bytes)
    }
}
