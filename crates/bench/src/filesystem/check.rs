//! The filesystem's own check, on a volume.

use weir_ext4::check::check;
use weir_format::ImageReader;
use weir_storage::{BLOCK_BYTES, Extent, Lba, Storage, read};
use weir_vfs::FsError;

use crate::error::BenchError;

/// Blocks in one read.
const READ_BLOCKS: usize = 64;

/// A storage, as the check reads it.
struct Image<'a>(&'a dyn Storage);

impl ImageReader for Image<'_> {
    type Error = FsError;

    fn blocks(&self) -> u64 {
        self.0.blocks()
    }

    async fn read(&self, block: u64, bytes: &mut [u8]) -> Result<(), FsError> {
        let most = READ_BLOCKS.min(self.0.capabilities().max_transfer_blocks.max(1) as usize);
        for (part, start) in bytes.chunks_mut(most * BLOCK_BYTES).zip((block..).step_by(most)) {
            let extent = Extent::new(Lba(start), (part.len() / BLOCK_BYTES) as u32);
            part.copy_from_slice(&read(self.0, extent).await?);
        }
        Ok(())
    }
}

/// Checks the filesystem on a storage.
///
/// # Errors
/// [`BenchError::Damaged`] if anything is wrong with it, or left for the next mount to do.
pub(super) async fn require_clean(storage: &dyn Storage) -> Result<(), BenchError> {
    let report = check(&Image(storage)).await?;
    let left = (report.transactions, report.orphans);
    match report.findings.first() {
        Some(first) => Err(BenchError::Damaged { first: first.to_string(), total: report.total }),
        None if left != (0, 0) => {
            let first = format!("{} transactions to replay, {} orphans", left.0, left.1);
            Err(BenchError::Damaged { first, total: 1 })
        }
        None => Ok(()),
    }
}
