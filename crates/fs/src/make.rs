//! Making a filesystem on a storage.

use weir_ext4::Mkfs;
use weir_format::{BLOCK_BYTES, FormatError};
use weir_storage::{Command, Extent, Lba, Part, Storage, Write, flush, submit_when_free};
use weir_vfs::FsError;

use crate::options::Discards;

/// Blocks that are gathered for one write, at most.
const BLOCKS_AT_ONCE: u32 = 256;
/// Blocks that are discarded with one command, at most: 128 MiB.
const DISCARDED_AT_ONCE: u32 = 1 << 15;

/// Makes a filesystem; see [`BarrierFs::make`](crate::Filesystem::make).
pub(crate) async fn make(device: &dyn Storage, options: &Mkfs) -> Result<(), FsError> {
    if options.blocks > device.blocks() {
        let what = "a size that fits on the storage";
        return Err(FormatError::Invalid { what }.into());
    }
    let image = options.plan()?;
    let most = device.capabilities().max_transfer_blocks.clamp(1, BLOCKS_AT_ONCE) as usize * BLOCK_BYTES;
    let mut run = Run { start: 0, bytes: vec![0; BLOCK_BYTES] };
    run.write(device).await?;
    flush(device).await?;
    discard_all(device).await?;
    for (block, bytes) in image.writes() {
        let continues = run.end() == block && run.bytes.len() < most && block != 0;
        if !continues {
            run.write(device).await?;
            run.start = block;
        }
        if block == 0 {
            flush(device).await?;
        }
        run.bytes.extend_from_slice(&bytes);
    }
    run.write(device).await?;
    Ok(flush(device).await?)
}

/// Discards a whole storage, where that is done by default: what was on it takes no space of a volume any more.
async fn discard_all(device: &dyn Storage) -> Result<(), FsError> {
    if !Discards::default().wanted_on(device.capabilities()) {
        return Ok(());
    }
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
