//! What order-preserving recovery adds to the machine (OPTR paper, section 3): requests get numbers, what coalesces is
//! recorded, and the firmware flushes by itself.
//!
//! A request is *settled* when recovery keeps it whatever happens: a flush covers it, so that all requests up to it and
//! all records of what coalesced among them are on flash. For that a flush *closes* what waits in the cache: versions
//! that come later get entries of their own and coalesce with none of these, so no later request is needed to complete one
//! that the flush covers. Flushes, FUA writes,
//! discards and shares are answered when their requests are settled.
//!
//! The firmware flushes by itself before each checkpoint, before each batch of cleaning, and some time after a write at
//! the latest. Before a checkpoint no command is serviced meanwhile, so that its map is the state after one request.
//! Otherwise commands go on, unless the profile has them stopped: only what was received before the flush is settled by it, and
//! nothing else is erased.

use std::collections::BTreeMap;

use super::Machine;
use crate::geometry::Geometry;
use crate::mutants::FlashRules;
use crate::profile::{InternalFlush, Profile};
use crate::record_buffer::RecordBuffer;
use crate::recovery_point::{Receipt, RecoveryPoint, Wid};
use crate::waiters::{Settled, Wait};

/// How far an internal flush has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// There is none.
    Idle,
    /// Commands that are being decoded and carried come to their end.
    Quieting,
    /// The cache is written back.
    Flushing {
        /// No command is serviced.
        quiet: bool,
        /// A checkpoint comes next.
        checkpoint: bool,
    },
}

pub(super) struct Prefix {
    recovered: RecoveryPoint,
    records: RecordBuffer,
    next_wid: Wid,
    internal: InternalFlush,
    phase: Phase,
    /// A moment before the oldest write that is not settled.
    unsettled_since: Option<u64>,
    /// Requests that are followed, whose blocks are on flash and not settled, by version.
    owners: BTreeMap<u64, Vec<u32>>,
}

impl Prefix {
    /// Goes on behind the recovery point; what is received next is numbered from `next_wid`.
    pub(super) fn new(profile: &Profile, (point, next_wid): (Wid, Wid), rules: FlashRules) -> Prefix {
        Prefix {
            recovered: RecoveryPoint { kept: point.saturating_sub(1), found: next_wid.saturating_sub(1) },
            records: RecordBuffer::new(Geometry::new(profile).page_bytes(), rules),
            next_wid,
            internal: profile.barrier.internal,
            phase: Phase::Idle,
            unsettled_since: None,
            owners: BTreeMap::new(),
        }
    }

    /// When the firmware flushes by itself at the latest.
    pub(super) fn next_event(&self) -> Option<u64> {
        let since = self.unsettled_since.filter(|_| self.phase == Phase::Idle)?;
        Some(since.saturating_add(self.internal.every_ns))
    }

    /// A block is on flash; the requests that wait for that hear of it when it is settled.
    pub(super) fn hold_back(&mut self, version: u64, owners: impl Iterator<Item = u32>) {
        for owner in owners {
            self.owners.entry(version).or_default().push(owner);
        }
    }
}

impl Machine {
    /// Where recovery ended, where the mechanism numbers requests.
    pub(crate) fn recovery_point(&self) -> Option<RecoveryPoint> {
        self.prefix.as_ref().map(|prefix| prefix.recovered)
    }

    /// A request of so many blocks enters the cache: its number and size, where the mechanism wants to know.
    pub(super) fn receive(&mut self, blocks: usize, now: u64) -> Receipt {
        let Some(prefix) = &mut self.prefix else { return Receipt::default() };
        let wid = prefix.next_wid;
        prefix.next_wid += 1;
        prefix.unsettled_since.get_or_insert(now);
        Receipt { wid, size: blocks as u32 }
    }

    /// Begins a checkpoint of everything received so far.
    pub(super) fn checkpoint(&mut self, now: u64) {
        let next_wid = self.prefix.as_ref().map_or(0, |prefix| prefix.next_wid);
        self.ftl.checkpoint(self.next_version, next_wid, now);
    }

    /// A block of a request took the place of one of an earlier request in the cache.
    pub(super) fn coalesced(&mut self, earlier: Receipt, later: Receipt) {
        if let Some(prefix) = &mut self.prefix {
            prefix.records.add(earlier, later);
        }
    }

    /// Writes records to flash, page by page: those that fill one, or all.
    fn write_records(&mut self, all: bool, now: u64) {
        let Some(prefix) = &mut self.prefix else { return };
        while let Some(page) = prefix.records.take(all) {
            self.ftl.write_records(page, now);
        }
    }

    /// A flush begins: closes what waits in the cache, and writes the records. The last page of these.
    pub(super) fn close_requests(&mut self, now: u64) -> u64 {
        if self.prefix.is_none() {
            return 0;
        }
        self.cache.close_to(self.next_version - 1);
        self.write_records(true, now);
        self.prefix.as_ref().map_or(0, |prefix| prefix.records.last())
    }

    /// Pages of records are on flash.
    pub(super) fn records_written(&mut self, pages: &mut Vec<u64>, now: u64) {
        let Some(prefix) = &mut self.prefix else { return };
        pages.drain(..).for_each(|page| prefix.records.written(page));
        self.waiters.records_written(prefix.records.written_to());
        self.waiters.release(now, &mut self.events);
        self.settle(now);
    }

    /// Limits the cache to the room that an internal flush has, and keeps cleaning out of that room.
    pub(super) fn limit_waiting(&mut self) {
        if self.prefix.is_none() {
            return;
        }
        self.ftl.promised_pages = self.cache.limit(self.ftl.room_pages() as usize) as u32;
    }

    /// Takes in which flushes are over.
    pub(super) fn settle(&mut self, now: u64) {
        if self.prefix.is_none() {
            return;
        }
        for settled in self.waiters.take_settled() {
            self.settled(settled, now);
        }
    }

    fn settled(&mut self, Settled { version, since, internal }: Settled, now: u64) {
        let Some(prefix) = &mut self.prefix else { return };
        let later = prefix.owners.split_off(&(version + 1));
        let owners = std::mem::replace(&mut prefix.owners, later);
        prefix.unsettled_since = (version + 1 < self.next_version).then_some(since);
        owners.into_values().flatten().for_each(|owner| self.requests.block_committed(owner));
        self.answer_committed(now);
        self.ftl.settle(version, now);
        if internal {
            self.internal_flush_over(now);
        }
    }

    /// Everything received before the flush is settled; where it is for a checkpoint, no command is under way.
    fn internal_flush_over(&mut self, now: u64) {
        let Some(prefix) = &mut self.prefix else { return };
        let phase = std::mem::replace(&mut prefix.phase, Phase::Idle);
        let batch = prefix.internal.cleaning_batch;
        self.stats.internal_flushes += 1;
        if let Phase::Flushing { quiet: true, checkpoint } = phase {
            self.service.pause(false);
            if checkpoint {
                self.checkpoint(now);
            }
        }
        self.limit_waiting();
        self.ftl.begin_batch(batch, now);
    }

    /// Goes on with an internal flush, or begins one.
    pub(super) fn flush_internally(&mut self, now: u64) {
        if self.prefix.is_none() || !self.is_serving() {
            return;
        }
        self.write_records(false, now);
        self.begin_internal_flush(now);
        // Where nothing had to be written it is over, and cleaning has found out that it lacks a checkpoint.
        if self.ftl.wants_checkpoint() {
            self.begin_internal_flush(now);
        }
    }

    /// Begins an internal flush, if one is wanted and none is under way.
    fn begin_internal_flush(&mut self, now: u64) {
        let Some(prefix) = &mut self.prefix else { return };
        let due = prefix.next_event().is_some_and(|at| at <= now);
        let checkpoint = self.ftl.wants_checkpoint();
        let wanted = due || checkpoint || self.ftl.wants_flush();
        if prefix.phase == Phase::Idle && wanted && (checkpoint || prefix.internal.stops_commands) {
            prefix.phase = Phase::Quieting;
            self.service.pause(true);
        }
        let quiet = prefix.phase == Phase::Quieting;
        let begins = if quiet { self.service.is_quiet() } else { prefix.phase == Phase::Idle && wanted };
        if begins {
            prefix.phase = Phase::Flushing { quiet, checkpoint };
            self.wait(Wait::Internal, now);
        }
    }
}
