//! *Catching up*: bringing the store from an older request to the newest one without the log between, which is gone from the
//! disk or was given up. It is one group of objects, and so one step (R3), while the volume goes on:
//!
//! 1. A tap takes what is written from here on.
//! 2. What may have changed since the newest request in the store is read block by block, each as it is when it is read: that may
//!    be newer than others. What the store has and the volume has not is discarded. A volume on a base has what it does not hold
//!    there, unchanged (R11).
//! 3. The records since step 1 follow, in order, up to a request that is no older than any block that was read. Each block that
//!    changed since was written, moved or discarded by one of these, so all blocks are as of that request in the end.
//! 4. A share among these records may have copied a block that was read when it was newer. So the targets of shares are read
//!    again, and the records since then follow, until there is no share among them.
//!
//! Each object goes when what it has is durable here (R2). So where a crash, or a backlog that was given up, has cut the group, the
//! next catch-up goes on with it: what the group has of a block that was not written since it began is what is there now.

use std::collections::BTreeSet;
use std::rc::Rc;

use tracing::info;
use weir_storage::{BLOCK_BYTES, Extent, Lba, Storage as _, flush, read};
use weir_volume::{Change, LivePage, LogEntry, LogTap, Position, Volume, content_checksum};

use crate::error::ReplicaError;
use crate::map::ReplicaMap;
use crate::mutants::ReplicaMutant;
use crate::options::ReplicaOptions;
use crate::writer::{Payload, Role, Writer};

/// A catch-up that is under way.
pub(crate) struct CatchUp<'a> {
    volume: &'a Rc<Volume>,
    tap: &'a LogTap,
    writer: &'a mut Writer,
    options: &'a ReplicaOptions,
    payload: Payload,
    /// The newest record that is in the payload, or was shipped.
    drained_to: u64,
    /// Blocks that shares have changed and that are to be read again.
    targets: BTreeSet<u32>,
    /// The newest request when it began, before anything was read.
    began_at: u64,
    /// What the store has when it goes on with a group that was cut.
    there: Option<ReplicaMap>,
}

/// Whether the store lacks something of a volume that was here when nothing had been written that no writer has looked for there.
pub(crate) fn require_not_ahead(position: Position, writer: &Writer) -> Result<bool, ReplicaError> {
    let remote = writer.state.end.last();
    if remote > position.durable || writer.state.generation > position.generation {
        return Err(ReplicaError::Ahead { remote, local: position.durable });
    }
    Ok(remote < position.placed)
}

/// Ships a catch-up group, and the tap goes on behind it. Whether it was ended: where the tap has given up what was written
/// meanwhile, it has to begin anew.
pub(crate) async fn catch_up(
    volume: &Rc<Volume>,
    tap: &LogTap,
    writer: &mut Writer,
    options: &ReplicaOptions,
) -> Result<bool, ReplicaError> {
    let cut = writer.begin_catch_up(volume).await?;
    let since = writer.state.end.last();
    tap.begin_catch_up();
    let (payload, targets) = (Payload::default(), BTreeSet::new());
    let began_at = volume.position().placed;
    let there = cut.map(|_| writer.state.map_with_group());
    let unchanged_since = match cut {
        Some(_) if options.rules.drops(ReplicaMutant::CutGroupUnchanged) => began_at,
        Some(cut) => cut,
        None => since,
    };
    if let Some(from) = cut {
        info!(name: "catch_up_continued", since, from, "goes on with a catch-up that was cut");
    }
    let drained_to = since;
    let mut group = CatchUp { volume, tap, writer, options, payload, drained_to, targets, began_at, there };
    let old = volume.find_old_blocks(unchanged_since).await?;
    let mut from = Some(0);
    while let Some(first) = from {
        let page = volume.list_live(first, &old).await?;
        let end = page.next.unwrap_or(u64::from(u32::MAX));
        group.add_discards(first, end, &page).await?;
        let changed = page.live.iter().filter(|block| {
            let there = group.there().get(block.lba);
            block.is_newer || there.object == 0 || there.checksum != block.checksum
        });
        let changed: Vec<u32> = changed.map(|block| block.lba).collect();
        group.add_blocks(&changed).await?;
        group.drain().await?;
        from = page.next;
    }
    let has_ended = group.end().await?;
    if has_ended {
        tap.end_catch_up();
        info!(name: "store_caught_up", since, to = writer.state.end.last(), "caught up");
    }
    Ok(has_ended)
}

impl CatchUp<'_> {
    fn drops(&self, mutant: ReplicaMutant) -> bool {
        self.options.rules.drops(mutant)
    }

    /// What the store has of the volume, with what was sent before in this group.
    fn there(&self) -> &ReplicaMap {
        self.there.as_ref().unwrap_or(&self.writer.state.map)
    }

    /// Blocks from `first` on, below `end`, that only the store has, by what the page of the map there says.
    async fn add_discards(&mut self, first: u64, end: u64, page: &LivePage) -> Result<(), ReplicaError> {
        if self.drops(ReplicaMutant::CatchUpForgetsDiscards) {
            return Ok(());
        }
        let there = self.there().mapped(first, end).map(|(lba, _)| lba);
        let empty = page.empty.as_ref().filter(|_| !self.drops(ReplicaMutant::CatchUpDiscardsBase));
        let is_gone = |lba: &u32| match empty {
            Some(empty) => empty.binary_search(lba).is_ok(),
            None => page.live.binary_search_by_key(lba, |block| block.lba).is_err(),
        };
        let gone: Vec<u32> = there.filter(is_gone).collect();
        for run in gone.chunk_by(|a, b| a + 1 == *b) {
            let change = Change::Discard(run.len() as u32);
            self.payload.push(LogEntry { lba: run[0], change, last: true }, &[]);
            self.ship_if_full().await?;
        }
        Ok(())
    }

    /// Reads blocks as they are now.
    async fn add_blocks(&mut self, blocks: &[u32]) -> Result<(), ReplicaError> {
        let most = self.volume.capabilities().max_transfer_blocks.max(1) as usize;
        for run in blocks.chunk_by(|a, b| a + 1 == *b).flat_map(|run| run.chunks(most)) {
            let extent = Extent::new(Lba(u64::from(run[0])), run.len() as u32);
            let data = read(&**self.volume, extent).await?;
            for (lba, block) in run.iter().zip(data.chunks_exact(BLOCK_BYTES)) {
                let change = Change::Write(content_checksum(block));
                self.payload.push(LogEntry { lba: *lba, change, last: true }, block);
            }
            self.ship_if_full().await?;
        }
        Ok(())
    }

    async fn ship_if_full(&mut self) -> Result<(), ReplicaError> {
        if self.payload.bytes() >= self.options.object_bytes {
            // A crash takes nothing of it back then.
            flush(&**self.volume).await?;
            let is_first = self.writer.state.end.open_group.is_none();
            let request = if is_first { self.began_at } else { self.volume.position().durable };
            self.ship(Role::Part(request)).await?;
        }
        Ok(())
    }

    async fn ship(&mut self, role: Role) -> Result<(), ReplicaError> {
        self.writer.append(std::mem::take(&mut self.payload), role).await?;
        self.tap.release(self.drained_to);
        Ok(())
    }

    /// Adds the records that are durable.
    async fn drain(&mut self) -> Result<(), ReplicaError> {
        while let Some(chunk) = self.tap.take_durable() {
            self.drained_to = chunk.last_sequence;
            for entry in &chunk.entries {
                if matches!(entry.change, Change::Share(_))
                    && !self.drops(ReplicaMutant::CatchUpForgetsShares)
                {
                    self.targets.insert(entry.lba);
                }
            }
            self.payload.entries.extend_from_slice(&chunk.entries);
            self.payload.data.extend_from_slice(&chunk.data);
            self.ship_if_full().await?;
        }
        Ok(())
    }

    /// Adds the records up to one that is newer than all blocks that were read, and ends the group.
    async fn end(&mut self) -> Result<bool, ReplicaError> {
        if self.drops(ReplicaMutant::CatchUpEndsEarly) {
            self.ship(Role::LastPart(self.began_at)).await?;
            return Ok(true);
        }
        loop {
            let newest = self.volume.position().placed;
            flush(&**self.volume).await?;
            self.drain().await?;
            if self.tap.backlog().has_gap && !self.drops(ReplicaMutant::CatchUpGapIgnored) {
                return Ok(false);
            }
            if self.targets.is_empty() {
                let last = newest.max(self.drained_to);
                self.ship(Role::LastPart(last)).await?;
                return Ok(true);
            }
            let targets: Vec<u32> = std::mem::take(&mut self.targets).into_iter().collect();
            self.add_blocks(&targets).await?;
        }
    }
}
