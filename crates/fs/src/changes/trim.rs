//! Trimming: all free blocks are discarded, as `fstrim` asks for.

use std::ops::Range;

use weir_format::BLOCK_BYTES;
use weir_journal::Disk;
use weir_storage::Discard;
use weir_vfs::FsError;

use super::Changes;

impl Changes {
    /// Discards what is free between two bytes, where at least `minimum` bytes are free in a row: how many bytes.
    pub(crate) async fn trim(&self, disk: &Disk, range: Range<u64>, minimum: u64) -> Result<u64, FsError> {
        self.changing(self.trim_blocks(disk, range, minimum)).await
    }

    async fn trim_blocks(&self, disk: &Disk, range: Range<u64>, minimum: u64) -> Result<u64, FsError> {
        if disk.capabilities().discard == Discard::Unsupported {
            return Err(FsError::Unsupported("a discard, by the storage"));
        }
        let block_bytes = BLOCK_BYTES as u64;
        let layout = self.space.layout();
        let (start, end) =
            (range.start.div_ceil(block_bytes), (range.end / block_bytes).min(layout.blocks()));
        if range.end.saturating_sub(range.start) < block_bytes || start >= layout.blocks() {
            return Err(FsError::Invalid("nothing of the filesystem is in the range"));
        }
        let least = u32::try_from(minimum.div_ceil(block_bytes)).unwrap_or(u32::MAX);
        if least > layout.blocks_per_group() {
            return Err(FsError::Invalid("no group has so many bytes in a row"));
        }
        let journal = self.journal()?;
        journal.give_back().await?;
        journal.flush().await?;
        let Some((first, last)) = layout.group_of(start).zip(layout.group_of(end.saturating_sub(1))) else {
            return Ok(0);
        };
        let mut blocks = 0;
        for group in first..=last {
            // Unmount does not wait for all of it.
            self.check_open()?;
            self.give_way().await;
            let base = layout.first_block(group);
            let bit = |block: u64| block.saturating_sub(base).min(u64::from(layout.blocks_in(group))) as u32;
            blocks += self.space.trim_group(disk, group, bit(start)..bit(end), least).await?;
        }
        Ok(blocks * block_bytes)
    }
}
