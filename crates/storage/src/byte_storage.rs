//! A storage that is addressed by bytes, for doors that show it as one file or disk: reads and writes of any bytes, of
//! which a storage takes whole blocks.

use std::ops::Range;
use std::rc::Rc;

use weir_runtime::Semaphore;

use crate::address::{BLOCK_BYTES, Extent, Lba};
use crate::capability::Discard;
use crate::command::{Command, Part, Priority, Write, WriteFlags};
use crate::contract::{Storage, flush, submit_when_free};
use crate::error::{Invalid, Rejected, StorageError};
use crate::ticket::Ticket;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Changes that go on at one time; more than a door has under way.
const CHANGES: usize = 1 << 16;

/// A storage, addressed by bytes.
pub struct ByteStorage {
    storage: Rc<dyn Storage>,
    /// A write of less than a block reads the rest of it first, and must not meet another change of that block: it takes
    /// all permits, other changes one each.
    changes: Semaphore,
}

/// The blocks that bytes lie in.
fn blocks_of(bytes: &Range<u64>) -> Range<u64> {
    bytes.start / BLOCK..bytes.end.div_ceil(BLOCK)
}

/// Whether bytes are whole blocks.
fn is_whole(bytes: &Range<u64>) -> bool {
    bytes.start.is_multiple_of(BLOCK) && bytes.end.is_multiple_of(BLOCK)
}

/// Blocks, cut where a command cannot take more of them.
fn commands(blocks: Range<u64>, most: u32) -> impl Iterator<Item = Extent> {
    let end = blocks.end;
    blocks.step_by(most.max(1) as usize).map(move |first| {
        let count = (end - first).min(most.max(1).into());
        Extent::new(Lba(first), u32::try_from(count).unwrap_or(u32::MAX))
    })
}

async fn all_transferred(tickets: Vec<Ticket>) -> Result<(), Rejected> {
    for ticket in tickets {
        ticket.transferred().await?;
    }
    Ok(())
}

impl ByteStorage {
    /// Shows `storage` as bytes.
    #[must_use]
    pub fn new(storage: Rc<dyn Storage>) -> ByteStorage {
        ByteStorage { storage, changes: Semaphore::new(CHANGES) }
    }

    /// What is below.
    #[must_use]
    pub fn storage(&self) -> &dyn Storage {
        &*self.storage
    }

    /// Capacity in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.storage.blocks() * BLOCK
    }

    fn most(&self) -> u32 {
        self.storage.capabilities().max_transfer_blocks
    }

    /// What lies outside is refused.
    fn require_inside(&self, bytes: &Range<u64>) -> Result<(), Rejected> {
        if bytes.start <= bytes.end && bytes.end <= self.bytes() {
            return Ok(());
        }
        let blocks = u32::try_from(bytes.end.saturating_sub(bytes.start).div_ceil(BLOCK)).unwrap_or(u32::MAX);
        Err(Rejected::Invalid(Invalid::OutOfRange(Extent::new(Lba(bytes.start / BLOCK), blocks))))
    }

    /// Reads bytes, and appends them to `found`.
    ///
    /// # Errors
    /// [`Rejected::Invalid`] for bytes outside; what the storage answered. Then some of the bytes may be appended.
    pub async fn read(&self, bytes: Range<u64>, found: &mut Vec<u8>) -> Result<(), Rejected> {
        self.require_inside(&bytes)?;
        let mut reads = Vec::new();
        for extent in commands(blocks_of(&bytes), self.most()) {
            let ticket = submit_when_free(&*self.storage, Command::read(extent)).await?;
            reads.push((extent.start.0 * BLOCK, ticket));
        }
        for (at, ticket) in reads {
            ticket.transferred().await?;
            let data = ticket.take_data().ok_or(Rejected::Failed(StorageError::Gone))?;
            let end = (bytes.end - at).min(data.len() as u64);
            found.extend_from_slice(&data[bytes.start.saturating_sub(at) as usize..end as usize]);
        }
        Ok(())
    }

    /// Writes bytes from `offset` on, and waits until they are transferred. The flags hold for each of the commands that
    /// this takes. What is a whole number of blocks, and fits one command, is one command.
    ///
    /// # Errors
    /// [`Rejected::Invalid`] for bytes outside, [`Rejected::Unsupported`] for flags that the storage has not; what it
    /// answered.
    pub async fn write(&self, offset: u64, new: &[u8], flags: WriteFlags) -> Result<(), Rejected> {
        let bytes = offset..offset.saturating_add(new.len() as u64);
        self.require_inside(&bytes)?;
        if is_whole(&bytes) {
            let _beside_others = self.changes.acquire(1).await;
            return self.write_blocks(&bytes, new, flags).await;
        }
        let _alone = self.changes.acquire(CHANGES).await;
        let blocks = blocks_of(&bytes);
        let whole = blocks.start * BLOCK..blocks.end * BLOCK;
        let mut content = Vec::with_capacity((whole.end - whole.start) as usize);
        self.read(whole.clone(), &mut content).await?;
        let at = (bytes.start - whole.start) as usize;
        content[at..at + new.len()].copy_from_slice(new);
        self.write_blocks(&whole, &content, flags).await
    }

    async fn write_blocks(
        &self,
        bytes: &Range<u64>,
        content: &[u8],
        flags: WriteFlags,
    ) -> Result<(), Rejected> {
        let mut left = content;
        let mut tickets = Vec::new();
        for extent in commands(blocks_of(bytes), self.most()) {
            let (now, later) = left.split_at(extent.blocks as usize * BLOCK_BYTES);
            left = later;
            let parts = [Part::bytes(extent.start, now)];
            let write = Write { parts: &parts, flags, priority: Priority::Simple, tags: &[] };
            tickets.push(submit_when_free(&*self.storage, Command::Write(write)).await?);
        }
        all_transferred(tickets).await
    }

    /// Makes bytes zero. Whole blocks among them are discarded, if `may_discard` says so and the storage reads zeros there
    /// then; the others are written.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn write_zeros(&self, bytes: Range<u64>, may_discard: bool) -> Result<(), Rejected> {
        self.require_inside(&bytes)?;
        let inner = bytes.start.next_multiple_of(BLOCK)..bytes.end / BLOCK * BLOCK;
        if inner.start >= inner.end {
            let zeros = vec![0; (bytes.end - bytes.start) as usize];
            return self.write(bytes.start, &zeros, WriteFlags::default()).await;
        }
        for edge in [bytes.start..inner.start, inner.end..bytes.end] {
            if !edge.is_empty() {
                let zeros = vec![0; (edge.end - edge.start) as usize];
                self.write(edge.start, &zeros, WriteFlags::default()).await?;
            }
        }
        if may_discard && self.storage.capabilities().discard == Discard::ReadsZero {
            return self.discard(inner).await;
        }
        let _beside_others = self.changes.acquire(1).await;
        let zeros = vec![0; self.most() as usize * BLOCK_BYTES];
        for extent in commands(blocks_of(&inner), self.most()) {
            let start = extent.start.0 * BLOCK;
            let length = extent.blocks as usize * BLOCK_BYTES;
            let blocks = start..start + length as u64;
            self.write_blocks(&blocks, &zeros[..length], WriteFlags::default()).await?;
        }
        Ok(())
    }

    /// Discards the whole blocks among the bytes, in one command where the storage takes so many.
    ///
    /// # Errors
    /// [`Rejected::Invalid`] for bytes outside, [`Rejected::Unsupported`] if the storage has no discard; what it answered.
    pub async fn discard(&self, bytes: Range<u64>) -> Result<(), Rejected> {
        self.require_inside(&bytes)?;
        let blocks = bytes.start.div_ceil(BLOCK)..bytes.end / BLOCK;
        let _beside_others = self.changes.acquire(1).await;
        let mut tickets = Vec::new();
        for extents in
            self.storage.capabilities().split_discard(&commands(blocks, u32::MAX).collect::<Vec<_>>())
        {
            tickets.push(submit_when_free(&*self.storage, Command::Discard(&extents)).await?);
        }
        all_transferred(tickets).await
    }

    /// Flushes (S2).
    ///
    /// # Errors
    /// What the storage answered.
    pub async fn flush(&self) -> Result<(), Rejected> {
        flush(&*self.storage).await
    }
}
