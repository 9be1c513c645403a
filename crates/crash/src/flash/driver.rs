//! The workload of a round: random commands, none of which overlaps another that is in flight.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use weir_runtime::{Handle, Random};
use weir_storage::{
    BLOCK_BYTES, Capabilities, Command, Extent, Lba, Part, Priority, Rejected, SharePair, Storage, StreamId,
    Ticket, Witness, Write, WriteFlags, submit_when_free,
};

use crate::content::mix;

/// How long the device may rest between two commands.
const REST_NS_MAX: u64 = 3_000_000;

/// Writes in a packed command at most.
const PACKED_MAX: u64 = 4;

/// Blocks that are shared at once at most.
const SHARED_BLOCKS_MAX: u64 = 6;

/// Draws commands that do not overlap what is in flight (S6).
pub(super) struct Driver {
    handle: Handle,
    storage: Rc<Witness>,
    random: Random,
    in_flight: Vec<(Ticket, Vec<Extent>)>,
    written: u64,
    hot_blocks: u64,
    barrier_share: u64,
    discard_share: u64,
    /// Draws shares, so that a run without any is what it was before there were any.
    share_random: Random,
    /// One command in so many is a share.
    share_every: u64,
    shares: u64,
    /// Draws packed writes and reliable ones, so that a run on a device without them is what it was.
    packed_random: Random,
    packed: u64,
    reliable: u64,
    under_way: Rc<UnderWay>,
}

/// Commands that the device has not answered.
#[derive(Default)]
pub(super) struct UnderWay {
    shares: RefCell<Vec<Ticket>>,
    packed: RefCell<Vec<Ticket>>,
}

impl UnderWay {
    /// Whether a share is.
    pub(super) fn is_sharing(&self) -> bool {
        UnderWay::any(&self.shares)
    }

    /// Whether a packed write is.
    pub(super) fn is_packing(&self) -> bool {
        UnderWay::any(&self.packed)
    }

    fn any(tickets: &RefCell<Vec<Ticket>>) -> bool {
        tickets.borrow_mut().retain(|ticket| ticket.poll_transferred().is_none());
        !tickets.borrow().is_empty()
    }
}

impl Driver {
    pub(super) fn new(handle: &Handle, storage: Rc<Witness>) -> Driver {
        let mut random = handle.random("workload");
        let blocks = storage.blocks();
        let hot_blocks = if random.below(2) == 0 { blocks } else { 2 + random.below(8) };
        let barrier_share = [1, 3, 8][random.below(3) as usize];
        let discard_share = [40, 40, 5][random.below(3) as usize];
        let handle = handle.clone();
        let mut share_random = handle.random("shares");
        let share_every = [40, 12, 5][share_random.below(3) as usize];
        let packed_random = handle.random("packed");
        Driver {
            handle,
            storage,
            random,
            in_flight: Vec::new(),
            written: 0,
            hot_blocks,
            barrier_share,
            discard_share,
            share_random,
            share_every,
            shares: 0,
            packed_random,
            packed: 0,
            reliable: 0,
            under_way: Rc::default(),
        }
    }

    /// Draws a number for a caller that drives it.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    /// What the device has not answered.
    pub(super) fn under_way(&self) -> Rc<UnderWay> {
        Rc::clone(&self.under_way)
    }

    /// Packed writes submitted, and reliable writes.
    pub(super) fn packed_and_reliable(&self) -> (u64, u64) {
        (self.packed, self.reliable)
    }

    /// Shares submitted.
    pub(super) fn shares(&self) -> u64 {
        self.shares
    }

    /// One command, before it perhaps a share and a packed write, and a rest.
    pub(super) async fn submit_command(&mut self) -> Result<(), Rejected> {
        self.in_flight.retain(|(ticket, _)| ticket.poll_transferred().is_none());
        if self.storage.capabilities().share && self.share_random.below(self.share_every) == 0 {
            self.share().await?;
        }
        if self.storage.capabilities().packed && self.packed_random.below(8) == 0 {
            self.pack().await?;
        }
        let kind = self.random.below(40);
        let discards = self.random.below(self.discard_share) == 0;
        match kind {
            0 | 1 => drop(submit_when_free(&*self.storage, Command::Flush).await?),
            2 if self.storage.capabilities().barriers() => {
                let mark = Command::Barrier { stream: StreamId::default() };
                drop(submit_when_free(&*self.storage, mark).await?);
            }
            _ if discards => {
                let extent = self.extent(8);
                if self.is_free(extent) {
                    let ticket = submit_when_free(&*self.storage, Command::Discard(&[extent])).await?;
                    self.in_flight.push((ticket, vec![extent]));
                }
            }
            _ => self.write().await?,
        }
        match self.random.below(10) {
            0 => {
                let rest = self.random.below(REST_NS_MAX);
                self.handle.sleep(Duration::from_nanos(rest)).await;
            }
            1..4 => {
                let rest = self.random.below(REST_NS_MAX / 30);
                self.handle.sleep(Duration::from_nanos(rest)).await;
            }
            _ => {}
        }
        Ok(())
    }

    fn extent(&mut self, most: u64) -> Extent {
        let blocks = 1 + self.random.below(most.min(self.hot_blocks));
        let start = self.random.below(self.hot_blocks - blocks + 1);
        Extent::new(Lba(start), blocks as u32)
    }

    fn is_free(&self, extent: Extent) -> bool {
        !self.in_flight.iter().any(|(_, extents)| extents.iter().any(|theirs| theirs.overlaps(extent)))
    }

    async fn write(&mut self) -> Result<(), Rejected> {
        let able: Capabilities = *self.storage.capabilities();
        let most = if self.random.below(3) == 0 { 4 } else { 1 };
        let extent = self.extent(most);
        if !self.is_free(extent) {
            let rest = self.random.below(REST_NS_MAX / 100);
            self.handle.sleep(Duration::from_nanos(rest)).await;
            return Ok(());
        }
        self.written += 1;
        let bytes: Vec<u8> = extent.iter().flat_map(|lba| self.page(lba)).collect();
        let parts = [Part::bytes(extent.start, &bytes)];
        let barrier = able.barriers() && self.random.below(self.barrier_share) == 0;
        let ordered = able.ordered_service && (barrier || self.random.below(8) == 0);
        let fua = self.random.below(12) == 0;
        let reliable = able.reliable && self.packed_random.below(6) == 0;
        self.reliable += u64::from(reliable);
        let flags = WriteFlags { barrier, fua, reliable, ..WriteFlags::default() };
        let priority = if ordered { Priority::Ordered } else { Priority::Simple };
        let write = Write { flags, priority, ..Write::new(&parts) };
        let ticket = submit_when_free(&*self.storage, Command::Write(write)).await?;
        self.in_flight.push((ticket, vec![extent]));
        Ok(())
    }

    /// Several writes in one command, some of them to the same blocks: all with FUA, or each with flags of its own.
    async fn pack(&mut self) -> Result<(), Rejected> {
        let able = *self.storage.capabilities();
        let all_fua = self.packed_random.below(2) == 0;
        let writes = 1 + self.packed_random.below(PACKED_MAX.min(u64::from(able.max_transfer_blocks)));
        let (mut extents, mut flags) = (Vec::new(), Vec::new());
        for _ in 0..writes {
            let random = &mut self.packed_random;
            extents.push(Extent::new(Lba(random.below(self.hot_blocks)), 1));
            flags.push(WriteFlags {
                fua: all_fua || random.below(2) == 0,
                reliable: able.reliable && random.below(3) == 0,
                barrier: able.barriers() && random.below(4) == 0,
                ..WriteFlags::default()
            });
        }
        if !extents.iter().all(|extent| self.is_free(*extent)) {
            return Ok(());
        }
        self.written += 1;
        let pages: Vec<[u8; BLOCK_BYTES]> = extents.iter().map(|extent| self.page(extent.start)).collect();
        let parts: Vec<_> =
            extents.iter().zip(&pages).map(|(extent, page)| [Part::bytes(extent.start, page)]).collect();
        let ordered = able.ordered_service && flags.iter().any(|flags| flags.barrier);
        let priority = if ordered { Priority::Ordered } else { Priority::Simple };
        let writes: Vec<_> = parts
            .iter()
            .zip(&flags)
            .map(|(part, flags)| Write { flags: *flags, priority, ..Write::new(part) })
            .collect();
        let ticket = submit_when_free(&*self.storage, Command::Packed(&writes)).await?;
        self.packed += 1;
        self.reliable += flags.iter().filter(|flags| flags.reliable).count() as u64;
        self.under_way.packed.borrow_mut().push(ticket.clone());
        self.in_flight.push((ticket, extents));
        Ok(())
    }

    /// Shares blocks that are written often with any, among them blocks that other pairs change and that other shares
    /// have changed.
    async fn share(&mut self) -> Result<(), Rejected> {
        let able = *self.storage.capabilities();
        let (hot_blocks, blocks) = (self.hot_blocks, self.storage.blocks());
        let random = &mut self.share_random;
        let mut left = 1 + random.below(SHARED_BLOCKS_MAX.min(u64::from(able.max_share_blocks)));
        let mut pairs = Vec::new();
        while left > 0 {
            let length = 1 + random.below(left.min(2));
            left -= length;
            let targets = if random.below(2) == 0 { blocks } else { hot_blocks };
            let [from, to] = [hot_blocks, targets].map(|among| random.below(among - length + 1));
            pairs.push(SharePair { from: Extent::new(Lba(from), length as u32), to: Lba(to) });
        }
        let target = |pair: &SharePair| Extent::new(pair.to, pair.from.blocks);
        pairs.retain(|pair| !pair.from.overlaps(target(pair)));
        let extents: Vec<Extent> = pairs.iter().flat_map(|pair| [pair.from, target(pair)]).collect();
        if !pairs.is_empty() && extents.iter().all(|extent| self.is_free(*extent)) {
            let ticket = submit_when_free(&*self.storage, Command::Share(&pairs)).await?;
            self.under_way.shares.borrow_mut().push(ticket.clone());
            self.in_flight.push((ticket, extents));
            self.shares += 1;
        }
        Ok(())
    }

    /// The content of a block, which is never written twice.
    fn page(&mut self, lba: Lba) -> [u8; BLOCK_BYTES] {
        let stamp = mix(mix(self.random.below(u64::MAX), lba.0), self.written);
        let mut page = [0; BLOCK_BYTES];
        page.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&(stamp | 1).to_le_bytes()));
        page
    }
}
