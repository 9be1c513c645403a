//! Recovery: replay the log behind the newest checkpoint, up to where it breaks.
//!
//! What a crash may leave: any subset of the chunks in flight, each torn anywhere in units of the disk below.
//! Recovery follows the free-segment list, chunk by chunk, as long as each header is whole, of this generation, and
//! next in sequence, and each record's data matches its checksums. The first that does not is the *cut*; nothing
//! behind it counts, however whole it looks (that is what makes the log a prefix). Two checks guard the cut: no chunk
//! behind it may say that a record before it was durable (V2), and everything behind it is of a past generation from
//! now on (V1).

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::rc::Rc;

use tracing::debug;
use weir_runtime::Buffer;
use weir_storage::{BLOCK_BYTES, Extent, Lba, Rejected, Rules, Storage, StorageError};

use crate::blocks::Blocks;
use crate::checkpoint::Checkpoint;
use crate::chunk::ParsedChunk;
use crate::correction::correct_bit;
use crate::error::{Damage, VolumeError};
use crate::geometry::Geometry;
use crate::layout::{ChunkHeader, ENTRIES_PER_PAGE, RecordEntry, RecordKind, content_checksum};
use crate::map::Entry;
use crate::map_page::page_of;
use crate::mutants::VolumeMutant;
use crate::names::Pairs;
use crate::pager::{once_each, read_page};
use crate::scan::scan_beginnings;
use crate::transfer::Reading;

/// Blocks of the log that are on their way from the disk at one time: 16 MiB.
const READ_AHEAD_BLOCKS: u32 = 4096;

/// What a replay may pass by, in a volume that is repaired.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tolerance {
    /// The records up to this one were durable. One whose data fails its checksum is applied, and reading that fails.
    pub durable: u64,
    /// The replay ends before this record, although the log goes on.
    pub end: Option<u64>,
    /// Blocks of which the map on the disk says nothing. A record that says what a block reads takes it away.
    pub unknown: BTreeSet<u32>,
}

/// Where recovery looks for chunks that know a newer checkpoint than the newest that is whole (V1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Search {
    /// Where the log behind one that a recovery took would begin, which is one block at most: opening.
    Beginning,
    /// At the beginning of each segment that may be in such a log: check and repair, and opening if the other slot holds
    /// no whole checkpoint.
    All,
}

/// What a tolerant replay found.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReplayFindings {
    /// Where the log ended.
    pub cut: Lba,
    /// The greatest record behind the cut that a chunk there knows to have been durable, or 0.
    pub durable: u64,
    /// The last record behind the cut.
    pub last: u64,
    /// Number of the newest checkpoint that a chunk knows, if it is newer than the one that the replay began with.
    pub newest: u64,
    /// That checkpoint is lost, though its place holds a whole one, and what it holds is in the log.
    pub is_stale: bool,
    /// Headers of chunks that were corrected.
    pub corrected: u64,
    /// Records with data that fails its checksum.
    pub damaged: u64,
}

/// What recovery found: the newest checkpoint, and the log behind it applied.
pub(crate) struct Recovered {
    pub blocks: Blocks,
    pub checkpoint: Checkpoint,
    /// The segments of that log, in order.
    pub log: Vec<u32>,
    /// Sequence number of the record that comes next.
    pub next_sequence: u64,
    pub records: u64,
    pub bytes_read: u64,
    /// Of a tolerant replay: blocks of which nothing is known.
    pub unknown: BTreeSet<u32>,
    pub met: ReplayFindings,
    /// A checkpoint that is lost names more log.
    pub is_short: bool,
}

impl Recovered {
    /// Recovers in memory, with so many pages of the map at most where the log has not changed more, and changes nothing on
    /// `disk`.
    pub(crate) async fn recover(
        disk: &dyn Storage,
        geometry: &Geometry,
        rules: Rules<VolumeMutant>,
        map_limit: usize,
        search: Search,
    ) -> Result<Recovered, VolumeError> {
        let mut checkpoint = Checkpoint::newest(disk, geometry).await?;
        debug!(
            name: "checkpoint_found",
            number = checkpoint.number,
            generation = checkpoint.generation,
            next_record = checkpoint.next_sequence,
            free_list = checkpoint.free_list.len(),
            alone = checkpoint.alone,
            "checkpoint found"
        );
        let blocks = checkpoint.load_blocks(disk, geometry, rules, map_limit).await?;
        Recovered::behind(disk, geometry, rules, (checkpoint, blocks), None, search).await
    }

    /// Replays the log behind a checkpoint whose map is loaded.
    pub(crate) async fn behind(
        disk: &dyn Storage,
        geometry: &Geometry,
        rules: Rules<VolumeMutant>,
        (checkpoint, mut blocks): (Checkpoint, Blocks),
        tolerance: Option<Tolerance>,
        search: Search,
    ) -> Result<Recovered, VolumeError> {
        let search = if checkpoint.alone { Search::All } else { search };
        let is_tolerant = tolerance.is_some();
        let with_failures = is_tolerant || !checkpoint.alone;
        let is_newest = |known: u64| match known > checkpoint.number && !is_tolerant {
            true => {
                let at = checkpoint.place_of_newer(geometry);
                Err(VolumeError::Damaged { what: Damage::NewestCheckpoint, at })
            }
            false => Ok(known),
        };
        let seeks_newer = !rules.drops(VolumeMutant::StaleCheckpointUnnoticed);
        let mut looked_at = BTreeSet::new();
        let mut known = 0;
        if search == Search::All && seeks_newer {
            looked_at.extend(checkpoint.free_list.iter().copied().chain(blocks.segments.live_segments()));
            let segments = looked_at.iter().copied();
            known = checkpoint.find_newest_known(disk, geometry, segments, with_failures).await?;
            is_newest(known)?;
        }
        let mut replay = Replay::new(disk, geometry, &checkpoint, &mut blocks, rules, search);
        replay.tolerance = tolerance;
        let cut = replay.run().await?;
        let joined = replay.free_list.split_off(checkpoint.free_list.len().min(replay.free_list.len()));
        let Replay { next_sequence, records, bytes_read, mut met, tolerance, .. } = replay;
        let unknown = tolerance.map(|tolerance| tolerance.unknown).unwrap_or_default();
        let log = checkpoint.free_list.iter().chain(&joined).copied().take(cut.index + 1).collect();
        if seeks_newer {
            let (planned, _) = blocks.segments.plan_free_list(None, geometry.free_list_limit());
            let others: Vec<u32> = match search {
                Search::All => joined.into_iter().chain(planned).filter(|s| !looked_at.contains(s)).collect(),
                // The replay has looked there if the log ends at the beginning of that segment.
                Search::Beginning => {
                    let end = (cut.offset == 0).then(|| checkpoint.free_list.get(cut.index)).flatten();
                    planned.first().filter(|first| Some(*first) != end).copied().into_iter().collect()
                }
            };
            let others = others.into_iter();
            known = known.max(checkpoint.find_newest_known(disk, geometry, others, with_failures).await?);
            met.newest = met.newest.max(is_newest(known)?);
        }
        Ok(Recovered {
            blocks,
            checkpoint,
            log,
            next_sequence,
            records,
            bytes_read,
            unknown,
            met,
            is_short: false,
        })
    }
}

/// A replay in progress, and afterwards what it found.
struct Replay<'a> {
    disk: &'a dyn Storage,
    geometry: &'a Geometry,
    checkpoint: &'a Checkpoint,
    blocks: &'a mut Blocks,
    rules: Rules<VolumeMutant>,
    search: Search,
    /// The checkpoint's free-segment list, and what records added to it.
    free_list: Vec<u32>,
    on_free_list: BTreeSet<u32>,
    /// Sequence number of the record that comes next.
    next_sequence: u64,
    /// The pairs of the share that is being applied.
    pairs: Pairs,
    /// Records that no mark covers so far (V13).
    uncovered: Vec<Record>,
    /// The volume is being repaired.
    tolerance: Option<Tolerance>,
    met: ReplayFindings,
    chunks: u64,
    records: u64,
    bytes_read: u64,
    /// Reads of the segments that come next on the free-segment list, the first of them at `ahead_from`.
    ahead: VecDeque<Reading>,
    ahead_from: usize,
    /// The two segments that were read last, by their places on the free-segment list: what is behind the cut begins
    /// in the one that was replayed last, and the next one was looked at by then.
    here: VecDeque<(usize, Rc<Buffer>)>,
}

/// A record of the log, and where its chunk lies: a block of a segment.
struct Record {
    entries: Vec<(RecordEntry, Entry)>,
    sequence: u64,
    chunk: (u32, u32),
}

/// A place on the free-segment list.
#[derive(Clone, Copy)]
struct Position {
    index: usize,
    offset: u32,
}

/// How a segment ended.
enum End {
    /// No further chunk here, and why; the log may go on in the next segment.
    NoChunk(u32, &'static str),
    /// A record that is not whole.
    Cut(u32),
}

impl<'a> Replay<'a> {
    fn new(
        disk: &'a dyn Storage,
        geometry: &'a Geometry,
        checkpoint: &'a Checkpoint,
        blocks: &'a mut Blocks,
        rules: Rules<VolumeMutant>,
        search: Search,
    ) -> Replay<'a> {
        let next_sequence = checkpoint.next_sequence;
        let free_list = checkpoint.free_list.clone();
        let on_free_list = free_list.iter().copied().collect();
        Replay {
            disk,
            geometry,
            checkpoint,
            blocks,
            rules,
            search,
            free_list,
            on_free_list,
            next_sequence,
            pairs: Pairs::new(),
            uncovered: Vec::new(),
            tolerance: None,
            met: ReplayFindings::default(),
            chunks: 0,
            records: 0,
            bytes_read: 0,
            ahead: VecDeque::new(),
            ahead_from: 0,
            here: VecDeque::new(),
        }
    }

    /// Replays the log up to the cut, and returns that.
    async fn run(&mut self) -> Result<Position, VolumeError> {
        let mut at = Position { index: 0, offset: self.checkpoint.log_offset };
        let (cut, why) = loop {
            let Some(segment) = self.free_list.get(at.index).copied() else {
                break (at, "the free-segment list ends");
            };
            match self.replay_segment(at.index, segment, at.offset).await? {
                End::Cut(offset) => break (Position { offset, ..at }, "a record is not whole"),
                End::NoChunk(offset, why) => {
                    if !self.continues_in(at.index + 1).await? {
                        break (Position { offset, ..at }, why);
                    }
                    at = Position { index: at.index + 1, offset: 0 };
                }
            }
        };
        if self.is_at_end() {
            // There a checkpoint holds all that was placed, with a mark behind it or without.
            for record in std::mem::take(&mut self.uncovered) {
                self.apply(&record).await?;
            }
        }
        let segment = self.free_list.get(cut.index);
        debug!(
            name: "log_end_found",
            chunks = self.chunks,
            records = self.records,
            segment,
            offset = cut.offset,
            why,
            "the log ends"
        );
        if let Some(segment) = segment {
            self.met.cut = Lba(self.geometry.block(*segment, cut.offset));
        }
        if !self.rules.drops(VolumeMutant::HoleUnnoticed) && !self.is_at_end() {
            self.look_behind(cut).await?;
        }
        Ok(cut)
    }

    /// The segment at `index` of the free-segment list. Segments are read one behind the other, mostly, so those that
    /// come next are on their way already: a busy disk takes as long for many reads as for one.
    async fn segment(&mut self, index: usize) -> Result<Rc<Buffer>, VolumeError> {
        if let Some((_, buffer)) = self.here.iter().find(|(here, _)| *here == index) {
            return Ok(Rc::clone(buffer));
        }
        if index != self.ahead_from {
            self.ahead.clear();
            self.ahead_from = index;
        }
        let blocks = self.geometry.segment_blocks;
        let at_once = (READ_AHEAD_BLOCKS / blocks).max(1) as usize;
        while self.ahead.len() < at_once {
            let Some(segment) = self.free_list.get(index + self.ahead.len()).copied() else { break };
            let extent = Extent::new(Lba(self.geometry.block(segment, 0)), blocks);
            self.ahead.push_back(Reading::begin(self.disk, extent).await?);
        }
        // The caller has looked that there is such a segment.
        let reading = self.ahead.pop_front().ok_or(Rejected::Failed(StorageError::Gone))?;
        self.ahead_from += 1;
        let buffer = Rc::new(reading.finish().await?);
        self.bytes_read += buffer.len() as u64;
        self.here.truncate(1);
        self.here.push_front((index, Rc::clone(&buffer)));
        Ok(buffer)
    }

    /// The chunk at `block` is the one that comes next.
    fn is_next(&self, chunk: &ParsedChunk<'_>) -> bool {
        chunk.header.generation.get() == self.checkpoint.generation
            && chunk.header.sequence.get() == self.next_sequence
    }

    /// Whether the segment at `index` of the free-segment list starts with the chunk that comes next.
    async fn continues_in(&mut self, index: usize) -> Result<bool, VolumeError> {
        let Some(segment) = self.free_list.get(index).copied() else { return Ok(false) };
        let (bytes, mut spare) = (self.segment(index).await?, Vec::new());
        let chunk = self.chunk_at(&bytes[..BLOCK_BYTES], segment, 0, &mut spare);
        Ok(chunk.is_some_and(|chunk| self.is_next(&chunk)))
    }

    /// The next record was durable: what looks like the end of the log is damage.
    fn was_durable(&self) -> bool {
        self.tolerance.as_ref().is_some_and(|tolerance| self.next_sequence <= tolerance.durable)
    }

    /// The replay is to end here, wherever the log ends.
    fn is_at_end(&self) -> bool {
        let end = self.tolerance.as_ref().and_then(|tolerance| tolerance.end);
        end.is_some_and(|end| self.next_sequence >= end)
    }

    /// The chunk whose header is in `block`. Where it has to be, it may take the correction of one bit.
    fn chunk_at<'b>(
        &self,
        block: &'b [u8],
        segment: u32,
        offset: u32,
        spare: &'b mut Vec<u8>,
    ) -> Option<ParsedChunk<'b>> {
        let found = ParsedChunk::parse(block, self.geometry.volume, segment, offset);
        if found.is_some() || !self.was_durable() {
            return found;
        }
        spare.extend_from_slice(block.get(..BLOCK_BYTES)?);
        if !correct_bit(spare, std::mem::offset_of!(ChunkHeader, checksum)) {
            return None;
        }
        let spare: &'b [u8] = spare;
        ParsedChunk::parse(spare, self.geometry.volume, segment, offset)
    }

    async fn replay_segment(&mut self, index: usize, segment: u32, from: u32) -> Result<End, VolumeError> {
        let bytes = self.segment(index).await?;
        let mut offset = from;
        loop {
            if self.is_at_end() {
                return Ok(End::Cut(offset));
            }
            let rest = &bytes[offset as usize * BLOCK_BYTES..];
            let mut spare = Vec::new();
            let Some(chunk) = self.chunk_at(rest, segment, offset, &mut spare) else {
                return Ok(End::NoChunk(offset, "no whole header follows"));
            };
            if !self.is_next(&chunk) {
                self.note_checkpoint(&chunk, segment, offset)?;
                return Ok(End::NoChunk(offset, "the chunk that follows is not the next one"));
            }
            self.note_checkpoint(&chunk, segment, offset)?;
            if offset + chunk.blocks() > self.geometry.segment_blocks {
                return Err(self.damaged(Damage::Record, segment, offset));
            }
            let data = &rest[BLOCK_BYTES..chunk.blocks() as usize * BLOCK_BYTES];
            let blocks = chunk.blocks();
            if !self.replay_chunk(&chunk, data, segment, offset).await? {
                return Ok(End::Cut(offset));
            }
            self.met.corrected += u64::from(!spare.is_empty());
            self.chunks += 1;
            offset += blocks;
        }
    }

    /// V1: a chunk may know a newer checkpoint than the newest that is whole.
    fn note_checkpoint(
        &mut self,
        chunk: &ParsedChunk<'_>,
        segment: u32,
        offset: u32,
    ) -> Result<(), VolumeError> {
        let known = chunk.header.checkpoint.get();
        if known <= self.checkpoint.number || self.rules.drops(VolumeMutant::StaleCheckpointUnnoticed) {
            return Ok(());
        }
        if self.tolerance.is_none() {
            return Err(self.damaged(Damage::NewestCheckpoint, segment, offset));
        }
        self.met.newest = self.met.newest.max(known);
        Ok(())
    }

    /// Applies the records of a chunk; `false` if one of them is not whole.
    async fn replay_chunk(
        &mut self,
        chunk: &ParsedChunk<'_>,
        data: &[u8],
        segment: u32,
        offset: u32,
    ) -> Result<bool, VolumeError> {
        let mut record: Vec<(RecordEntry, Entry)> = Vec::new();
        let marked = chunk.is_marked() && !self.rules.drops(VolumeMutant::MarksIgnored);
        let mut blocks = data.chunks_exact(BLOCK_BYTES);
        let mut address = self.geometry.block(segment, offset) as u32;
        for entry in chunk.entries() {
            if record.is_empty() && self.is_at_end() {
                return Ok(false);
            }
            let mut place = Entry::default();
            if entry.kind() == Some(RecordKind::Data) {
                address += 1;
                let block = blocks.next().unwrap_or(&[]);
                place = Entry { block: address, checksum: entry.word.get() };
                let is_damaged = content_checksum(block) != place.checksum
                    && !self.rules.drops(VolumeMutant::DataUnchecked);
                self.met.damaged += u64::from(is_damaged && self.was_durable());
                if is_damaged && !self.was_durable() {
                    return Ok(false);
                }
            }
            record.push((entry, place));
            if entry.is_last() {
                let entries = std::mem::take(&mut record);
                let record = Record { entries, sequence: self.next_sequence, chunk: (segment, offset) };
                if marked {
                    self.apply_if_covered(record).await?
                } else {
                    self.apply(&record).await?
                }
                self.next_sequence += 1;
            }
        }
        self.blocks.segments.sealed(segment, self.next_sequence - 1);
        Ok(true)
    }

    /// V13: a record counts when a mark comes behind it. What says where the log goes on does not wait for that.
    async fn apply_if_covered(&mut self, record: Record) -> Result<(), VolumeError> {
        match record.entries.first().and_then(|(entry, _)| entry.kind()) {
            Some(RecordKind::FreeSegments) => self.apply(&record).await,
            Some(RecordKind::Mark) => {
                for covered in std::mem::take(&mut self.uncovered) {
                    self.apply(&covered).await?;
                }
                self.apply(&record).await
            }
            _ => {
                self.uncovered.push(record);
                Ok(())
            }
        }
    }

    /// Applies a record.
    async fn apply(&mut self, record: &Record) -> Result<(), VolumeError> {
        let (segment, offset) = record.chunk;
        for (entry, place) in &record.entries {
            let changed = self.take_entry(entry).map_err(|what| self.damaged(what, segment, offset))?;
            let Some(blocks) = changed else { continue };
            if place.is_mapped() {
                let lba = blocks.start as u32;
                self.load_pages(&[page_of(lba)]).await?;
                self.blocks.set(lba, *place, record.sequence);
            } else {
                self.discard(blocks.start, blocks.end, record.sequence).await?;
            }
        }
        self.records += 1;
        self.share(record.sequence).await
    }

    /// Takes in what an entry says besides the map; the blocks whose map entries it changes, if it is data or a discard.
    fn take_entry(&mut self, entry: &RecordEntry) -> Result<Option<Range<u64>>, Damage> {
        let count = match entry.kind().ok_or(Damage::Record)? {
            RecordKind::Data => 1,
            RecordKind::Discard => u64::from(entry.word.get()),
            RecordKind::FreeSegments => {
                return self.lengthen(entry.lba.get(), entry.word.get()).map(|()| None);
            }
            RecordKind::Share => return self.add_pair(entry).map(|()| None),
            RecordKind::Mark => return Ok(None),
        };
        let first = u64::from(entry.lba.get());
        let blocks = first..first + count;
        if blocks.end > self.geometry.addressable_blocks() {
            return Err(Damage::Record);
        }
        self.is_known(blocks.clone());
        Ok(Some(blocks))
    }

    /// Discards blocks page by page, so that not all pages have to be in memory together.
    async fn discard(&mut self, first: u64, end: u64, sequence: u64) -> Result<(), VolumeError> {
        let mut from = first;
        while from < end {
            let page = from / ENTRIES_PER_PAGE as u64;
            let to = ((page + 1) * ENTRIES_PER_PAGE as u64).min(end);
            self.load_pages(&[page as u32]).await?;
            self.blocks.discard(from, to, sequence);
            from = to;
        }
        Ok(())
    }

    /// Loads pages of the map, which are in order, if they were evicted. Nothing can be written while a log is replayed, so what
    /// the log has changed stays in memory, limit or not.
    async fn load_pages(&mut self, pages: &[u32]) -> Result<(), VolumeError> {
        for page in pages {
            let Some(stored) = self.blocks.map.evicted(*page) else { continue };
            self.blocks.map.make_room(1, pages);
            let read = read_page(self.disk, self.geometry, *page, stored, self.rules).await;
            self.blocks.map.admit(*page, stored, &read.map_err(Rejected::Failed)?);
        }
        Ok(())
    }

    /// A pair of the record's share. The pairs are applied together, behind the record's data: what a record of cleaning
    /// shares is the block that it has moved.
    fn add_pair(&mut self, entry: &RecordEntry) -> Result<(), Damage> {
        let (to, from) = (entry.lba.get(), entry.word.get());
        let logical = |lba: u32| u64::from(lba) < self.geometry.addressable_blocks();
        if !self.geometry.shares || !logical(to) || !logical(from) {
            return Err(Damage::Record);
        }
        self.pairs.insert(to, from);
        Ok(())
    }

    /// From now on it is known what these blocks read.
    fn is_known(&mut self, blocks: Range<u64>) {
        let Some(tolerance) = self.tolerance.as_mut().filter(|tolerance| !tolerance.unknown.is_empty())
        else {
            return;
        };
        let within = blocks.start as u32..blocks.end.min(u64::from(u32::MAX)) as u32;
        let known: Vec<u32> = tolerance.unknown.range(within).copied().collect();
        for lba in known {
            tolerance.unknown.remove(&lba);
        }
    }

    /// What reads the same as an unknown block is unknown, too.
    fn share_unknown(&mut self, pairs: &Pairs) {
        let Some(tolerance) = self.tolerance.as_mut().filter(|tolerance| !tolerance.unknown.is_empty())
        else {
            return;
        };
        let unknown: Vec<bool> = pairs.values().map(|from| tolerance.unknown.contains(from)).collect();
        for (to, is_unknown) in pairs.keys().zip(unknown) {
            match is_unknown {
                true => tolerance.unknown.insert(*to),
                false => tolerance.unknown.remove(to),
            };
        }
    }

    /// Applies the pairs of a share.
    async fn share(&mut self, sequence: u64) -> Result<(), VolumeError> {
        let pairs = std::mem::take(&mut self.pairs);
        let pages = pairs.iter().flat_map(|(to, from)| [page_of(*to), page_of(*from)]).collect();
        self.load_pages(&once_each(pages)).await?;
        self.share_unknown(&pairs);
        if self.rules.drops(VolumeMutant::PairsInTurn) {
            pairs.into_iter().for_each(|pair| self.blocks.share(&[pair].into(), sequence));
        } else if !pairs.is_empty() {
            self.blocks.share(&pairs, sequence);
        }
        Ok(())
    }

    /// V4: segments join the free-segment list. None may be on it already, or it would be read twice.
    fn lengthen(&mut self, first: u32, count: u32) -> Result<(), Damage> {
        let end =
            first.checked_add(count).filter(|end| *end <= self.geometry.segments).ok_or(Damage::Record)?;
        for segment in first..end {
            if !self.on_free_list.insert(segment) {
                return Err(Damage::Record);
            }
            self.free_list.push(segment);
        }
        Ok(())
    }

    /// V2: looks behind the cut, as far as the loss window reaches, for a chunk that knew the record at the
    /// cut to be durable. Then the cut is not where a crash broke the log off, but damage.
    async fn look_behind(&mut self, cut: Position) -> Result<(), VolumeError> {
        let mut left = self.checkpoint.window_blocks;
        let mut unlisted = match self.search {
            Search::Beginning => left.div_ceil(self.geometry.segment_blocks) as usize,
            Search::All => usize::MAX,
        };
        let mut at = cut;
        while left > 0 {
            if at.index == self.free_list.len() {
                self.find_unlisted(&mut unlisted).await?;
            }
            let Some(segment) = self.free_list.get(at.index).copied() else { break };
            let blocks = self.geometry.segment_blocks - at.offset;
            let bytes = self.segment(at.index).await?;
            let behind = bytes[at.offset as usize * BLOCK_BYTES..].chunks_exact(BLOCK_BYTES);
            for (offset, block) in (at.offset..).zip(behind) {
                let Some(chunk) = ParsedChunk::parse(block, self.geometry.volume, segment, offset) else {
                    continue;
                };
                self.note_checkpoint(&chunk, segment, offset)?;
                // The cut may be a record of this chunk.
                let behind = chunk.last_sequence() >= self.next_sequence;
                if chunk.header.generation.get() != self.checkpoint.generation || !behind {
                    continue;
                }
                let durable = chunk.header.durable.get();
                self.met.last = self.met.last.max(chunk.last_sequence());
                if durable >= self.next_sequence && self.tolerance.is_some() {
                    self.met.durable = self.met.durable.max(durable);
                } else if durable >= self.next_sequence {
                    return Err(self.damaged(Damage::LostRecord, self.free_list[cut.index], cut.offset));
                }
                for entry in chunk.entries().filter(|entry| entry.kind() == Some(RecordKind::FreeSegments)) {
                    // Not replayed: it only says where else to look.
                    let _ = self.lengthen(entry.lba.get(), entry.word.get());
                }
            }
            left = left.saturating_sub(blocks.max(1));
            at = Position { index: at.index + 1, offset: 0 };
        }
        Ok(())
    }

    /// A damaged chunk may hold the record that lengthens the list. Then the log goes on in segments that are not on the list. Those
    /// that begin with a chunk from behind the cut join the list, in the order of the log. Empty segments are looked at first, `left`
    /// segments at most.
    async fn find_unlisted(&mut self, left: &mut usize) -> Result<(), VolumeError> {
        let segments = &self.blocks.segments;
        let unlisted = segments.empty(None).chain(segments.live_segments());
        let unlisted: Vec<u32> =
            unlisted.filter(|segment| !self.on_free_list.contains(segment)).take(*left).collect();
        *left -= unlisted.len();
        let (generation, next) = (self.checkpoint.generation, self.next_sequence);
        let mut found = Vec::new();
        scan_beginnings(self.disk, self.geometry, unlisted.into_iter(), true, |segment, chunk| {
            if chunk.header.generation.get() == generation && chunk.last_sequence() >= next {
                found.push((chunk.header.sequence.get(), segment));
            }
        })
        .await?;
        found.sort_unstable();
        for (_, segment) in found {
            self.on_free_list.insert(segment);
            self.free_list.push(segment);
        }
        Ok(())
    }

    fn damaged(&self, what: Damage, segment: u32, offset: u32) -> VolumeError {
        VolumeError::Damaged { what, at: Lba(self.geometry.block(segment, offset)) }
    }
}
