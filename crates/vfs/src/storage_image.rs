//! A storage as an image that a check or a format reads.

use std::rc::Rc;

use weir_format::ImageReader;
use weir_storage::{BLOCK_BYTES, Extent, Lba, Storage, read};

use crate::error::FsError;

/// Blocks in one read at most.
const READ_BLOCKS_MAX: u32 = 64;

/// The image on a storage.
pub struct StorageImage(pub Rc<dyn Storage>);

impl ImageReader for StorageImage {
    type Error = FsError;

    fn blocks(&self) -> u64 {
        self.0.blocks()
    }

    async fn read(&self, block: u64, bytes: &mut [u8]) -> Result<(), FsError> {
        let most = self.0.capabilities().max_transfer_blocks.clamp(1, READ_BLOCKS_MAX) as usize;
        for (part, start) in bytes.chunks_mut(most * BLOCK_BYTES).zip((block..).step_by(most)) {
            let extent = Extent::new(Lba(start), (part.len() / BLOCK_BYTES) as u32);
            part.copy_from_slice(&read(&*self.0, extent).await?);
        }
        Ok(())
    }
}
