//! Writing a new filesystem to a storage.

use std::ops::Range;

use weir_format::{BLOCK_BYTES, FormatError};
use weir_storage::{Command, Extent, Lba, Part, Storage, Write, flush, submit_when_free};

use crate::error::FsError;

/// Blocks that are gathered for one write, at most.
const BLOCKS_AT_ONCE: u32 = 256;
/// Blocks that are discarded with one command, at most: 128 MiB.
const DISCARDED_AT_ONCE: u32 = 1 << 15;

/// A new filesystem, as its blocks.
pub struct NewFilesystem<W> {
    /// Its size in blocks.
    pub blocks: u64,
    /// The blocks at its start that a superblock may be in: they are cleared first, and written last.
    pub superblocks: Range<u64>,
    /// All blocks to write, each with its number, and those of superblocks last.
    pub writes: W,
    /// Whether all of the storage is discarded before.
    pub discards: bool,
}

/// Writes a new filesystem, whatever is on the storage. What were superblocks is cleared first, and new ones come last, with
/// flushes in between, so that a filesystem that was not finished is none.
///
/// # Errors
/// [`FsError::Format`] for a storage that is too small; what the storage answered.
pub async fn write_filesystem<B: AsRef<[u8]>>(
    device: &dyn Storage,
    new: NewFilesystem<impl Iterator<Item = (u64, B)>>,
) -> Result<(), FsError> {
    let NewFilesystem { blocks, superblocks, writes, discards } = new;
    if blocks > device.blocks() {
        let what = "a size that fits on the storage";
        return Err(FormatError::Invalid { what }.into());
    }
    let most = device.capabilities().max_transfer_blocks.clamp(1, BLOCKS_AT_ONCE) as usize * BLOCK_BYTES;
    let cleared = (superblocks.end - superblocks.start) as usize;
    let mut run = Run { start: superblocks.start, bytes: vec![0; cleared * BLOCK_BYTES] };
    run.write(device).await?;
    flush(device).await?;
    if discards {
        discard_all(device).await?;
    }
    let mut has_others = true;
    for (block, bytes) in writes {
        let is_super = superblocks.contains(&block);
        if run.end() != block || run.bytes.len() >= most || is_super {
            run.write(device).await?;
            run.start = block;
        }
        if is_super && std::mem::take(&mut has_others) {
            flush(device).await?;
        }
        run.bytes.extend_from_slice(bytes.as_ref());
    }
    run.write(device).await?;
    Ok(flush(device).await?)
}

/// Discards a whole storage: what was on it takes no space of a volume any more.
async fn discard_all(device: &dyn Storage) -> Result<(), FsError> {
    let blocks = device.blocks();
    for start in (0..blocks).step_by(DISCARDED_AT_ONCE as usize) {
        let extent = Extent::new(Lba(start), (blocks - start).min(u64::from(DISCARDED_AT_ONCE)) as u32);
        submit_when_free(device, Command::Discard(&[extent])).await?.transferred().await?;
    }
    Ok(())
}

/// Consecutive blocks.
struct Run {
    start: u64,
    bytes: Vec<u8>,
}

impl Run {
    fn end(&self) -> u64 {
        self.start + (self.bytes.len() / BLOCK_BYTES) as u64
    }

    async fn write(&mut self, device: &dyn Storage) -> Result<(), FsError> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        let parts = [Part::bytes(Lba(self.start), &self.bytes)];
        let ticket = submit_when_free(device, Command::Write(Write::new(&parts))).await?;
        ticket.transferred().await?;
        self.bytes.clear();
        Ok(())
    }
}
