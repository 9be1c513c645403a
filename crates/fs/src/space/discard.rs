//! Discarding free blocks: what was freed, in the background, and all that is free, when a caller asks
//! (`BarrierFs::trim`). Not before the transaction that freed them is durable (J7). While a discard is on its way its
//! blocks count as taken, so that no call allocates them meanwhile; and no two discards are on their way at one time.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::{Rc, Weak};

use event_listener::Event;
use weir_ext4::bitmap;
use weir_format::BLOCK_BYTES;
use weir_journal::Disk;
use weir_runtime::Semaphore;
use weir_storage::{Capabilities, Discard, Extent, Lba, Ordering};
use weir_vfs::FsError;

use crate::mutants::FsMutant;
use crate::options::Discards;
use crate::space::Space;
use crate::space::freed::Freed;
use crate::space::group::clear_runs;

/// Blocks of one command of the background, at most: 256 MiB. So long as it takes, no file can have them.
const BLOCKS_MAX: u64 = 1 << 16;

/// Groups with blocks that are ready: those of 2 TiB. What is freed beyond that before its turn has come is left to a trim.
pub(crate) const READY_GROUPS_MAX: usize = 1 << 14;

/// What was discarded, and what waits for that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiscardStats {
    /// Commands.
    pub commands: u64,
    /// Extents in them.
    pub extents: u64,
    /// Blocks in them.
    pub blocks: u64,
    /// Blocks that are free and not discarded yet: those whose transaction is not durable, and those whose turn has
    /// not come. Without discards, none of the latter.
    pub waiting: u64,
    /// Bytes of memory that these take.
    pub waiting_bytes: u64,
}

impl Discards {
    /// Whether blocks that were freed are discarded on a storage with these capabilities.
    pub(crate) fn wanted_on(self, capabilities: &Capabilities) -> bool {
        capabilities.discard != Discard::Unsupported
            && match self {
                Discards::Auto => capabilities.ordering == Ordering::Prefix,
                Discards::On => true,
                Discards::Off => false,
            }
    }
}

/// What is to be discarded.
pub(super) struct Discarding {
    pub(super) freed: RefCell<Freed>,
    /// There is a task that discards what is ready.
    started: Cell<bool>,
    wanted: Event,
    /// Who discards, one at a time.
    turn: Semaphore,
    /// Operations that look for space once more, while no discard begins.
    retries: Cell<u32>,
    /// A discard has given its blocks back, or an operation has looked.
    changed: Event,
    /// Free blocks that are taken for a discard.
    taken: Cell<u64>,
    stats: Cell<DiscardStats>,
}

impl Default for Discarding {
    fn default() -> Discarding {
        Discarding {
            freed: RefCell::default(),
            started: Cell::new(false),
            wanted: Event::new(),
            turn: Semaphore::new(1),
            retries: Cell::new(0),
            changed: Event::new(),
            taken: Cell::new(0),
            stats: Cell::default(),
        }
    }
}

impl Discarding {
    /// Free blocks that are taken for a discard.
    pub(super) fn under_way(&self) -> u64 {
        self.taken.get()
    }

    /// Some of the blocks that were freed are ready.
    pub(super) fn are_ready(&self) {
        if self.started.get() {
            self.freed.borrow_mut().limit_ready(READY_GROUPS_MAX);
            self.wanted.notify(1);
        } else {
            self.freed.borrow_mut().ready = Default::default();
        }
    }
}

/// An operation that looks for space once more: no discard begins until it is dropped.
pub(crate) struct Retry<'a> {
    discarding: &'a Discarding,
}

impl<'a> Retry<'a> {
    fn new(discarding: &'a Discarding) -> Retry<'a> {
        discarding.retries.set(discarding.retries.get() + 1);
        Retry { discarding }
    }
}

impl Drop for Retry<'_> {
    fn drop(&mut self) {
        self.discarding.retries.set(self.discarding.retries.get() - 1);
        self.discarding.changed.notify(usize::MAX);
    }
}

/// Free blocks that are taken for a discard, until dropped.
struct Taken<'a> {
    space: &'a Space,
    extents: Vec<Extent>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.space.discarding.taken.set(0);
        self.extents.iter().for_each(|extent| self.space.release(*extent));
        self.space.discarding.changed.notify(usize::MAX);
    }
}

impl Space {
    pub(super) fn start_discarding(self: &Rc<Space>, disk: &Rc<Disk>) {
        self.discarding.started.set(true);
        drop(disk.handle().spawn(discard_task(Rc::downgrade(self), Rc::downgrade(disk))));
    }

    /// Whether an operation that found no space may find some now, of which so much was `given_back` when it began:
    /// blocks wait for their commit or are taken for a discard, or were when it looked.
    pub(crate) fn may_have_more(&self, given_back: u64) -> bool {
        self.has_waiting() || self.discarding.under_way() > 0 || self.given_back() != given_back
    }

    /// Waits until no blocks are taken for a discard; none are until the answer is dropped. Any number of operations may
    /// have that at a time, as they wait for the locks of each other's nodes.
    pub(crate) async fn none_discarding(&self) -> Retry<'_> {
        if self.options.rules.drops(FsMutant::RetriesTakeTurns) {
            self.no_retries().await;
        }
        let retry = Retry::new(&self.discarding);
        loop {
            let changed = self.discarding.changed.listen();
            if self.discarding.under_way() == 0 {
                return retry;
            }
            changed.await;
        }
    }

    /// Waits until no operation looks for space once more. The caller has the turn.
    async fn no_retries(&self) {
        loop {
            let changed = self.discarding.changed.listen();
            if self.discarding.retries.get() == 0 {
                return;
            }
            changed.await;
        }
    }

    /// What was discarded, and what waits for that.
    pub(crate) fn discard_stats(&self) -> DiscardStats {
        let freed = self.discarding.freed.borrow();
        DiscardStats {
            waiting: freed.awaited() + freed.ready.blocks(),
            waiting_bytes: (freed.bitmaps() * BLOCK_BYTES) as u64,
            ..self.discarding.stats.get()
        }
    }

    /// Discards blocks that are free. The caller has the turn, and nothing has waited since the blocks were chosen.
    async fn discard(&self, disk: &Disk, extents: Vec<Extent>) -> Result<(), FsError> {
        let mut taken = Taken { space: self, extents: Vec::new() };
        if !self.options.rules.drops(FsMutant::TrimTakesNothing) {
            extents.iter().for_each(|extent| self.take_extent(*extent));
            taken.extents.clone_from(&extents);
            self.discarding.taken.set(extents.iter().map(|extent| u64::from(extent.blocks)).sum());
        }
        let commands = disk.discard(&extents).await?;
        let mut stats = self.discarding.stats.get();
        stats.commands += commands;
        stats.extents += extents.len() as u64;
        stats.blocks += extents.iter().map(|extent| u64::from(extent.blocks)).sum::<u64>();
        self.discarding.stats.set(stats);
        Ok(())
    }

    /// Lets no call allocate blocks that are free.
    fn take_extent(&self, extent: Extent) {
        for (group, bits) in self.parts(extent) {
            self.groups.borrow_mut()[group as usize].hold_free(bits);
        }
    }

    fn extent_of(&self, group: u32, run: &Range<u32>) -> Extent {
        Extent::new(Lba(self.layout().first_block(group) + u64::from(run.start)), run.end - run.start)
    }

    /// What is ready of groups whose free blocks are known, as much as one command takes; in order, up to the first other group.
    fn take_ready(&self, extents_max: usize) -> Vec<Extent> {
        let mut ready = Vec::new();
        let mut blocks = 0;
        let mut freed = self.discarding.freed.borrow_mut();
        let is_loaded = |group: &u32| self.groups.borrow()[*group as usize].is_loaded();
        while let Some(group) = freed.ready.first_group().filter(is_loaded) {
            for run in freed.ready.runs(group) {
                if ready.len() == extents_max || blocks >= BLOCKS_MAX {
                    return ready;
                }
                freed.ready.remove(group, run.clone());
                blocks += u64::from(run.end - run.start);
                let reused = self.options.rules.drops(FsMutant::DiscardsReused);
                let free = match reused {
                    true => vec![run],
                    false => self.groups.borrow()[group as usize].runs(run),
                };
                ready.extend(free.iter().map(|run| self.extent_of(group, run)));
            }
        }
        ready
    }

    /// Discards all that is ready.
    async fn discard_ready(&self, disk: &Disk) -> Result<(), FsError> {
        let most = disk.capabilities().max_discard_extents.max(1) as usize;
        loop {
            let _turn = self.discarding.turn.acquire(1).await;
            let Some(first) = self.discarding.freed.borrow().ready.first_group() else { return Ok(()) };
            self.load_group(first).await?;
            self.no_retries().await;
            // None is ready of a group that was evicted meanwhile: it has its turn again.
            let ready = self.take_ready(most);
            if !ready.is_empty() {
                self.discard(disk, ready).await?;
            }
        }
    }

    /// Discards what is left to discard, before the filesystem is unmounted: no task would ever do so again.
    pub(crate) async fn discard_the_rest(&self, disk: &Disk) {
        if self.discarding.started.get() {
            // Nothing depends on it.
            let _ = self.discard_ready(disk).await;
        }
    }

    /// Discards what is free in a group between two of its blocks, in runs of at least so many: how many blocks that
    /// were. What a transaction has freed that is not durable stays as it is (J7).
    pub(crate) async fn trim_group(
        &self,
        disk: &Disk,
        group: u32,
        within: Range<u32>,
        least: u32,
    ) -> Result<u64, FsError> {
        let _turn = self.discarding.turn.acquire(1).await;
        self.load_group(group).await?;
        while self.discarding.retries.get() > 0 {
            self.no_retries().await;
            self.load_group(group).await?;
        }
        let free = self.durably_free(group, within);
        let runs = free.iter().filter(|run| run.end - run.start >= least);
        let extents: Vec<Extent> = runs.map(|run| self.extent_of(group, run)).collect();
        if extents.is_empty() {
            return Ok(0);
        }
        for (_, run) in extents.iter().flat_map(|extent| self.parts(*extent)) {
            self.discarding.freed.borrow_mut().ready.remove(group, run);
        }
        let blocks = extents.iter().map(|extent| u64::from(extent.blocks)).sum();
        self.discard(disk, extents).await?;
        Ok(blocks)
    }

    /// Runs of blocks in a group that can be allocated, and that no power cut brings back.
    fn durably_free(&self, group: u32, within: Range<u32>) -> Vec<Range<u32>> {
        let free = self.groups.borrow()[group as usize].runs(within.clone());
        if self.options.rules.drops(FsMutant::TrimsUndurable) {
            return free;
        }
        let mut taken = [0xFF; BLOCK_BYTES];
        free.into_iter().for_each(|run| bitmap::clear(&mut taken, run));
        self.discarding.freed.borrow().mark_awaited(group, &mut taken);
        clear_runs(&taken, within)
    }
}

/// Discards what is ready, some time after it is: by then some of it is allocated again, and some more has come.
async fn discard_task(space: Weak<Space>, disk: Weak<Disk>) {
    loop {
        let (Some(now), Some(device)) = (space.upgrade(), disk.upgrade()) else { return };
        let wanted = now.discarding.wanted.listen();
        let none = now.discarding.freed.borrow().ready.is_empty();
        let (clock, delay) = (device.handle().clone(), now.options.discard_delay);
        drop((now, device));
        if none {
            wanted.await;
        }
        clock.sleep(delay).await;
        let (Some(now), Some(device)) = (space.upgrade(), disk.upgrade()) else { return };
        if now.discard_ready(&device).await.is_err() {
            // The journal reports a storage that fails, and calls that allocate report a bitmap that is wrong; nothing depends on
            // a discard.
            now.discarding.started.set(false);
            now.discarding.are_ready();
            return;
        }
    }
}
