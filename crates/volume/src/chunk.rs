//! A *chunk* is what one write to the disk below carries: a header block with one entry for each data block
//! (or discard), then the data blocks. A *record* is what one request left in it: consecutive entries, the
//! last one marked. Chunks lie behind one another in a segment; a record never spans two.

use std::mem::offset_of;

use weir_runtime::{Buffer, Instant};
use weir_storage::BLOCK_BYTES;
use zerocopy::{FromBytes, IntoBytes};

use crate::layout::{
    CHUNK_MAGIC, CHUNK_MARKED, ChunkHeader, ENTRIES_PER_CHUNK, RecordEntry, RecordKind, checksum_matches,
    content_checksum, stamp_checksum,
};
use crate::map::Entry;
use crate::names::Pairs;

const HEADER_BYTES: usize = size_of::<ChunkHeader>();
const ENTRY_BYTES: usize = size_of::<RecordEntry>();

/// A chunk that is being filled.
pub(crate) struct OpenChunk {
    buffer: Buffer,
    pub segment: u32,
    pub offset: u32,
    /// Physical address of the first data block.
    first_block: u32,
    /// Data blocks that fit.
    capacity: u16,
    entries: u16,
    data_blocks: u16,
    requests: u16,
    pub first_sequence: u64,
    /// When the first record of a user was placed; what cleaning moved is not lost with the chunk (V5).
    pub user_since: Option<Instant>,
}

/// What is the same for all chunks of a volume's present life.
#[derive(Clone, Copy)]
pub(crate) struct ChunkStamp {
    pub volume: u64,
    pub generation: u64,
    /// V2: the last sequence number known durable.
    pub durable: u64,
    /// Number of the newest durable checkpoint.
    pub checkpoint: u64,
    /// V13: its records count only with a mark behind them.
    pub marked: bool,
}

impl OpenChunk {
    /// Opens a chunk at `offset` of `segment` (physical block `block`) with room for `room` blocks, header included.
    pub(crate) fn new(buffer: Buffer, place: (u32, u32, u64), room: u32, first_sequence: u64) -> OpenChunk {
        let (segment, offset, block) = place;
        let in_buffer = (buffer.len() / BLOCK_BYTES) as u32;
        let capacity = (room.min(in_buffer) - 1).min(ENTRIES_PER_CHUNK as u32) as u16;
        let first_block = block as u32 + 1;
        let (entries, data_blocks, requests) = (0, 0, 0);
        OpenChunk {
            buffer,
            segment,
            offset,
            first_block,
            capacity,
            entries,
            data_blocks,
            requests,
            first_sequence,
            user_since: None,
        }
    }

    /// Whether a record of `data` data blocks and `entries` entries fits.
    #[inline]
    pub(crate) fn fits(&self, data: u64, entries: u64) -> bool {
        u64::from(self.data_blocks) + data <= u64::from(self.capacity)
            && u64::from(self.entries) + entries <= ENTRIES_PER_CHUNK as u64
    }

    /// Nothing more of any size fits.
    pub(crate) fn is_full(&self) -> bool {
        self.data_blocks == self.capacity || usize::from(self.entries) == ENTRIES_PER_CHUNK
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Blocks that the chunk takes on the medium, header included.
    pub(crate) fn blocks(&self) -> u32 {
        1 + u32::from(self.data_blocks)
    }

    /// Sequence number of the last request in the chunk.
    pub(crate) fn last_sequence(&self) -> u64 {
        self.first_sequence + u64::from(self.requests) - 1
    }

    /// Copies one block in, with its checksum in the same pass over the copy (S6: what is stored is what
    /// was summed, whatever the caller does to its page meanwhile).
    #[inline]
    pub(crate) fn push_data(&mut self, lba: u32, data: &[u8], last: bool) -> Entry {
        let at = (1 + usize::from(self.data_blocks)) * BLOCK_BYTES;
        let copy = &mut self.buffer[at..at + BLOCK_BYTES];
        copy.copy_from_slice(data);
        let checksum = content_checksum(copy);
        let block = self.first_block + u32::from(self.data_blocks);
        self.data_blocks += 1;
        self.push_entry(RecordEntry::new(RecordKind::Data, lba, checksum, last));
        Entry { block, checksum }
    }

    /// Adds the pairs of a share, the last ones of their record.
    pub(crate) fn push_shares(&mut self, pairs: &Pairs) {
        let last = pairs.last_key_value().map(|(to, _)| *to);
        for (to, from) in pairs {
            self.push_bare(RecordKind::Share, *to, *from, Some(*to) == last);
        }
    }

    /// Adds an entry without data: `count` blocks or segments from `first`; of a share, target and source.
    pub(crate) fn push_bare(&mut self, kind: RecordKind, first: u32, count: u32, last: bool) {
        self.push_entry(RecordEntry::new(kind, first, count, last));
    }

    #[inline]
    fn push_entry(&mut self, entry: RecordEntry) {
        let at = HEADER_BYTES + usize::from(self.entries) * ENTRY_BYTES;
        self.buffer[at..at + ENTRY_BYTES].copy_from_slice(entry.as_bytes());
        self.entries += 1;
        self.requests += u16::from(entry.is_last());
    }

    /// Writes the header and gives the buffer up: the chunk does not change any more.
    pub(crate) fn seal(mut self, stamp: ChunkStamp) -> Buffer {
        let header = ChunkHeader {
            magic: CHUNK_MAGIC,
            checksum: 0.into(),
            volume: stamp.volume.into(),
            generation: stamp.generation.into(),
            sequence: self.first_sequence.into(),
            durable: stamp.durable.into(),
            segment: self.segment.into(),
            offset: self.offset.into(),
            entries: self.entries.into(),
            data_blocks: self.data_blocks.into(),
            requests: self.requests.into(),
            flags: if stamp.marked { CHUNK_MARKED } else { 0 }.into(),
            checkpoint: stamp.checkpoint.into(),
        };
        self.buffer[..HEADER_BYTES].copy_from_slice(header.as_bytes());
        let used = HEADER_BYTES + usize::from(self.entries) * ENTRY_BYTES;
        self.buffer[used..BLOCK_BYTES].fill(0);
        stamp_checksum(&mut self.buffer[..BLOCK_BYTES], offset_of!(ChunkHeader, checksum));
        self.buffer
    }

    /// The data block at physical block `block`, if this chunk holds it.
    pub(crate) fn find(&self, block: u32) -> Option<&[u8]> {
        find(&self.buffer, self.first_block, self.data_blocks, block)
    }

    /// The entries, in order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = RecordEntry> {
        parse_entries(&self.buffer[HEADER_BYTES..HEADER_BYTES + usize::from(self.entries) * ENTRY_BYTES])
    }

    /// The data blocks, in order.
    pub(crate) fn data(&self) -> &[u8] {
        &self.buffer[BLOCK_BYTES..(1 + usize::from(self.data_blocks)) * BLOCK_BYTES]
    }

    /// Gives an unused buffer back.
    pub(crate) fn into_buffer(self) -> Buffer {
        self.buffer
    }

    pub(crate) fn first_block(&self) -> u32 {
        self.first_block
    }

    pub(crate) fn data_blocks(&self) -> u16 {
        self.data_blocks
    }
}

fn parse_entries(bytes: &[u8]) -> impl Iterator<Item = RecordEntry> + use<'_> {
    bytes.chunks_exact(ENTRY_BYTES).filter_map(|bytes| RecordEntry::read_from_bytes(bytes).ok())
}

/// The data block at physical block `block` in a chunk's buffer whose data starts at `first_block`.
pub(crate) fn find(buffer: &[u8], first_block: u32, data_blocks: u16, block: u32) -> Option<&[u8]> {
    let index = block.checked_sub(first_block).filter(|i| *i < u32::from(data_blocks))?;
    let at = (1 + index as usize) * BLOCK_BYTES;
    buffer.get(at..at + BLOCK_BYTES)
}

/// A chunk header read from the medium: it is ours and lies where it says; its entries are in range.
pub(crate) struct ParsedChunk<'a> {
    pub header: ChunkHeader,
    entries: &'a [u8],
}

impl<'a> ParsedChunk<'a> {
    /// Parses the header in `block`, read from `offset` of `segment`; `None` if no chunk of `volume` starts there.
    pub(crate) fn parse(block: &'a [u8], volume: u64, segment: u32, offset: u32) -> Option<ParsedChunk<'a>> {
        let block = block.get(..BLOCK_BYTES)?;
        let (header, _) = ChunkHeader::read_from_prefix(block).ok()?;
        let ours = header.magic == CHUNK_MAGIC
            && header.volume.get() == volume
            && header.segment.get() == segment
            && header.offset.get() == offset;
        if !ours || !checksum_matches(block, offset_of!(ChunkHeader, checksum)) {
            return None;
        }
        let bytes = usize::from(header.entries.get()) * ENTRY_BYTES;
        let entries = block.get(HEADER_BYTES..HEADER_BYTES + bytes)?;
        let chunk = ParsedChunk { header, entries };
        let data = chunk.entries().filter(|e| e.kind() == Some(RecordKind::Data)).count();
        let requests = chunk.entries().filter(RecordEntry::is_last).count();
        let whole = data == usize::from(header.data_blocks.get())
            && requests == usize::from(header.requests.get())
            && requests > 0
            && chunk.entries().last().is_some_and(|e| e.is_last());
        whole.then_some(chunk)
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = RecordEntry> + use<'a> {
        parse_entries(self.entries)
    }

    /// V13: its records count only with a mark behind them.
    pub(crate) fn is_marked(&self) -> bool {
        self.header.flags.get() & CHUNK_MARKED != 0
    }

    /// Sequence number of the last request in the chunk.
    pub(crate) fn last_sequence(&self) -> u64 {
        self.header.sequence.get().saturating_add(u64::from(self.header.requests.get())) - 1
    }

    /// Blocks on the medium, header included.
    pub(crate) fn blocks(&self) -> u32 {
        1 + u32::from(self.header.data_blocks.get())
    }
}
