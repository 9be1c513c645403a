//! What a volume was asked for: the content after each request, by its sequence number.

use std::collections::BTreeMap;

use weir_runtime::Instant;
use weir_storage::{BLOCK_BYTES, Extent, Lba, Storage, read};

use crate::content::{Stamp, content_of, shared_stamp};

/// Blocks that are used.
pub(super) const BLOCKS: u32 = 40;

/// What each block holds; those of zeros are not in it.
pub(super) type Content = BTreeMap<u32, Stamp>;

/// The requests so far.
#[derive(Clone, Debug)]
pub(super) struct Model {
    content: Content,
    history: BTreeMap<u64, Content>,
    stamps: Stamp,
    /// What the uploader has said to be in the store, and when.
    shipped: Vec<(Instant, u64)>,
    /// The newest request that a flush through the store covers which was acknowledged.
    flushed: u64,
}

impl Model {
    pub(super) fn new() -> Model {
        let history = BTreeMap::from([(0, Content::new())]);
        Model { content: Content::new(), history, stamps: 0, shipped: vec![(Instant::ZERO, 0)], flushed: 0 }
    }

    /// A stamp for the next write.
    pub(super) fn next_stamp(&mut self) -> Stamp {
        self.stamps += 1;
        self.stamps
    }

    pub(super) fn write(&mut self, lba: u32, blocks: u32, stamp: Stamp) {
        self.content.extend((lba..lba + blocks).map(|lba| (lba, stamp)));
    }

    pub(super) fn discard(&mut self, lba: u32, blocks: u32) {
        self.content.retain(|at, _| !(lba..lba + blocks).contains(at));
    }

    pub(super) fn share(&mut self, pairs: &[(u32, u32)]) {
        let stamp = |(to, from): &(u32, u32)| {
            let stamp = self.content.get(from)?;
            Some(shared_stamp(*stamp, u64::from(*from), u64::from(*to)))
        };
        let found: Vec<Option<Stamp>> = pairs.iter().map(stamp).collect();
        for ((to, _), found) in pairs.iter().zip(found) {
            self.content.remove(to);
            self.content.extend(found.map(|found| (*to, found)));
        }
    }

    /// The request that was made last has this number.
    pub(super) fn number(&mut self, sequence: u64) {
        self.history.insert(sequence, self.content.clone());
    }

    /// What was there after a request; after the one before, if that is none of a user.
    pub(super) fn content_at(&self, sequence: u64) -> Option<&Content> {
        self.history.range(..=sequence).next_back().map(|(_, content)| content)
    }

    /// A crash has left the requests up to this one.
    pub(super) fn go_back(&mut self, sequence: u64) {
        self.history.retain(|number, _| *number <= sequence);
        self.content = self.content_at(sequence).cloned().unwrap_or_default();
    }

    /// The uploader says that the store has this request.
    pub(super) fn note_shipped(&mut self, now: Instant, sequence: u64) {
        if sequence > self.newest_shipped() {
            self.shipped.push((now, sequence));
        }
    }

    /// A flush through the store was acknowledged, which covers this request.
    pub(super) fn note_flushed(&mut self, sequence: u64) {
        self.flushed = self.flushed.max(sequence);
    }

    pub(super) fn newest_flushed(&self) -> u64 {
        self.flushed
    }

    pub(super) fn newest_shipped(&self) -> u64 {
        self.shipped.last().map_or(0, |(_, sequence)| *sequence)
    }

    /// Whether the uploader has said that the store has this request, and none behind it.
    pub(super) fn was_newest(&self, sequence: u64) -> bool {
        self.shipped.iter().any(|(_, newest)| *newest == sequence)
    }

    /// What was shipped from this moment on.
    pub(super) fn shipped_since(&self, moment: Instant) -> &[(Instant, u64)] {
        &self.shipped[self.shipped.partition_point(|(at, _)| *at < moment)..]
    }
}

/// Reads all blocks that are used.
pub(super) async fn read_content(storage: &dyn Storage) -> Result<Content, String> {
    let mut content = Content::new();
    for lba in 0..BLOCKS {
        let extent = Extent::new(Lba(u64::from(lba)), 1);
        let block = read(storage, extent).await.map_err(|error| format!("reading block {lba}: {error}"))?;
        let whole = content_of(&block[..BLOCK_BYTES], u64::from(lba));
        let stamp = whole.ok_or_else(|| format!("block {lba} holds what nobody wrote"))?;
        if stamp != 0 {
            content.insert(lba, stamp);
        }
    }
    Ok(content)
}
