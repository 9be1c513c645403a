//! The emulated device as a [`Storage`], in the runtime's time: virtual, or the wall's.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};

use event_listener::Event;
use weir_runtime::{Handle, Instant, Random, Sleep};
use weir_storage::{
    BLOCK_BYTES, Capabilities, Command, CommandKind, Discard, Extent, Lba, Ordering, Priority, Rejected,
    SharePair, Storage, StorageError, Ticket, Write,
};

use crate::geometry::Geometry;
use crate::logical_page::{Discarded, Update};
use crate::machine::Machine;
use crate::map::Pair;
use crate::medium::{Medium, Payload};
use crate::options::FlashOptions;
use crate::profile::{Mechanism, OrderedService, Profile};
use crate::queue::{Blocks, HostWrite, Kind, Queued};
use crate::recovery_point::RecoveryPoint;
use crate::recovery_reads::RecoveryReads;
use crate::stats::Stats;

/// Discarded extents in one command at most.
const DISCARD_EXTENTS_MAX: u32 = 256;

/// Called after every event of a device.
type Observer = Rc<dyn Fn()>;

/// An emulated flash device.
///
/// Its capabilities follow from the profile. A device whose firmware recovers accepts commands at once, and
/// services them when recovery is over.
pub struct FlashDevice {
    handle: Handle,
    capabilities: Capabilities,
    blocks: u64,
    machine: RefCell<Machine>,
    slots: Event,
    /// A command was refused since slots were last announced.
    refused: Cell<bool>,
    /// The driver, and when it looks again.
    waker: RefCell<Option<Waker>>,
    armed: Cell<Option<u64>>,
    observer: RefCell<Option<Observer>>,
    off: Cell<bool>,
}

impl FlashDevice {
    /// A new device: nothing was ever written to it.
    #[must_use]
    pub fn new(handle: &Handle, profile: &Profile, options: FlashOptions) -> Rc<FlashDevice> {
        let medium = Medium::new(Geometry::new(profile));
        FlashDevice::switched_on(handle, profile, &options, medium, true)
    }

    /// A device with what a power cut has left on flash ([`FlashDevice::after_cut`]), by the same profile. Its
    /// firmware recovers first.
    #[must_use]
    pub fn restarted(
        handle: &Handle,
        profile: &Profile,
        options: FlashOptions,
        medium: Medium,
    ) -> Rc<FlashDevice> {
        FlashDevice::switched_on(handle, profile, &options, medium, false)
    }

    fn switched_on(
        handle: &Handle,
        profile: &Profile,
        options: &FlashOptions,
        medium: Medium,
        fresh: bool,
    ) -> Rc<FlashDevice> {
        let now = handle.now().as_nanos();
        let machine = Machine::new(profile, options, medium, fresh, handle.random("flash.service"), now);
        let device = Rc::new(FlashDevice {
            handle: handle.clone(),
            capabilities: capabilities(profile),
            blocks: profile.blocks,
            machine: RefCell::new(machine),
            slots: Event::new(),
            refused: Cell::new(false),
            waker: RefCell::new(None),
            armed: Cell::new(None),
            observer: RefCell::new(None),
            off: Cell::new(false),
        });
        drop(handle.spawn(drive(Rc::downgrade(&device), handle.clone())));
        device
    }

    /// Calls `observer` after every event: a command decoded and carried, a page programmed, a block erased.
    /// Between two events nothing changes but what is torn by a power cut.
    pub fn observe(&self, observer: impl Fn() + 'static) {
        *self.observer.borrow_mut() = Some(Rc::new(observer));
    }

    /// What is on flash if the power goes now, or at a moment that `random` draws before the next event; the
    /// device itself goes on. What was being programmed or erased is left as it was, torn, or done, as `random`
    /// draws.
    #[must_use]
    pub fn after_cut(&self, random: &mut Random) -> Medium {
        self.machine.borrow().cut(self.handle.now().as_nanos(), random)
    }

    /// Cuts the power for good: nothing is answered any more.
    pub fn cut_power(&self) {
        self.off.set(true);
    }

    /// Whether the firmware's recovery is over.
    #[must_use]
    pub fn is_serving(&self) -> bool {
        self.machine.borrow().is_serving()
    }

    /// What order-preserving firmware kept when it was switched on (OPTR paper, section 3.5); none on other devices.
    #[must_use]
    pub fn recovery_point(&self) -> Option<RecoveryPoint> {
        self.machine.borrow().recovery_point()
    }

    /// What the firmware's recovery read when the device was switched on; nothing on a new device.
    #[must_use]
    pub fn recovery_reads(&self) -> RecoveryReads {
        self.machine.borrow().recovery_reads
    }

    /// Full erase blocks that cleaning may not take, since they were programmed after the newest checkpoint
    /// (order-preserving recovery).
    #[must_use]
    pub fn held_back(&self) -> u32 {
        self.machine.borrow().ftl.held_back()
    }

    /// Fills the first `blocks` blocks in no time, as if they had been written in order long ago.
    pub fn precondition(&self, blocks: u64) {
        self.machine.borrow_mut().precondition(blocks.min(self.blocks));
    }

    /// What a read of a block would find, in no time. `bytes` is one block; behind the last block nothing is
    /// found, and neither is what a backing file does not give back.
    pub fn peek(&self, block: Lba, bytes: &mut [u8]) {
        if block.0 < self.blocks && bytes.len() == BLOCK_BYTES {
            let _ = self.machine.borrow().peek(block.0 as u32, bytes);
        }
    }

    /// Whether a die is cleaning, or about to erase what it has cleaned.
    #[must_use]
    pub fn is_cleaning(&self) -> bool {
        self.machine.borrow().ftl.is_cleaning()
    }

    /// Blocks in a page of its flash: what one program operation writes.
    #[must_use]
    pub fn blocks_per_page(&self) -> u32 {
        let Geometry { slots_per_page, blocks_per_slot, .. } = self.machine.borrow().ftl.geometry;
        slots_per_page * blocks_per_slot
    }

    /// What it has counted.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.machine.borrow().stats()
    }

    /// How often erase blocks were erased: least, on average, most.
    #[must_use]
    pub fn wear(&self) -> (u32, f64, u32) {
        self.machine.borrow().ftl.medium.wear()
    }

    /// Lets everything happen that is due.
    fn run(&self) {
        let now = self.handle.now().as_nanos();
        while !self.off.get() {
            let mut machine = self.machine.borrow_mut();
            let happened = machine.step(now);
            let freed = machine.take_freed();
            drop(machine);
            if freed && self.refused.take() {
                self.slots.notify(usize::MAX);
            }
            if !happened {
                break;
            }
            let observer = self.observer.borrow().clone();
            if let Some(observer) = observer {
                observer();
            }
        }
    }

    /// Wakes the driver if something happens sooner than it thinks.
    fn rearm(&self) {
        let next = self.machine.borrow().next_event();
        let sooner = match (next, self.armed.get()) {
            (Some(next), Some(armed)) => next < armed,
            (Some(_), None) => true,
            (None, _) => false,
        };
        if sooner && let Some(waker) = self.waker.borrow().as_ref() {
            waker.wake_by_ref();
        }
    }

    fn kind(&self, command: &Command<'_>) -> Result<Kind, Rejected> {
        let machine = self.machine.borrow();
        let payload = |at: Lba, bytes: &[u8]| {
            let failed = |cause: io::Error| StorageError::Device {
                command: CommandKind::Write,
                at,
                cause: cause.kind(),
            };
            machine.payload(bytes).map_err(failed)
        };
        let geometry = &machine.ftl.geometry;
        let write = |write: &Write<'_>| -> Result<HostWrite, Rejected> {
            let flags = write.flags;
            Ok(HostWrite {
                blocks: blocks_of(write, payload, geometry)?,
                barrier: flags.barrier,
                forced: flags.fua || machine.forces(flags.reliable),
                reliable: flags.reliable,
                tags: if machine.follows_requests() { write.tags.to_vec() } else { Vec::new() },
            })
        };
        Ok(match command {
            Command::Write(one) => Kind::Write(write(one)?),
            Command::Packed(writes) => {
                Kind::Packed(writes.iter().rev().map(write).collect::<Result<_, _>>()?)
            }
            Command::Read { extent, .. } => Kind::Read(*extent),
            Command::Discard(extents) => Kind::Discard(Discarded::new(extents, geometry)),
            Command::Barrier { .. } => Kind::Barrier,
            Command::Flush => Kind::Flush,
            Command::Share(pairs) => Kind::Share(blocks_shared(pairs), machine.share_by),
        })
    }
}

fn blocks_of(
    write: &Write<'_>,
    payload: impl Copy + Fn(Lba, &[u8]) -> Result<Payload, StorageError>,
    geometry: &Geometry,
) -> Result<Blocks, StorageError> {
    if let [part] = write.parts
        && part.extent().blocks == 1
        && geometry.blocks_per_slot == 1
    {
        return Ok(Blocks::One(part.start.0 as u32, payload(part.start, part.data.bytes())?));
    }
    let blocks = write.parts.iter().flat_map(|part| {
        let blocks = part.data.bytes().chunks_exact(BLOCK_BYTES);
        part.extent().iter().zip(blocks).map(|(lba, bytes)| Ok((lba.0 as u32, payload(lba, bytes)?)))
    });
    let blocks: Vec<(u32, Payload)> = blocks.collect::<Result<_, _>>()?;
    if geometry.blocks_per_slot == 1 {
        return Ok(Blocks::Many(blocks));
    }
    Ok(Blocks::Updates(Update::of_write(blocks, geometry)))
}

/// The pairs of a share, block by block, each target once: the last pair counts.
fn blocks_shared(pairs: &[SharePair]) -> Rc<[Pair]> {
    let blocks = pairs.iter().flat_map(|pair| {
        let to = Extent::new(pair.to, pair.from.blocks);
        pair.from.iter().zip(to.iter()).map(|(from, to)| (to.0 as u32, from.0 as u32))
    });
    let by_target: BTreeMap<u32, u32> = blocks.collect();
    by_target.into_iter().map(|(to, from)| Pair { from, to }).collect()
}

/// What a device of this profile can do.
fn capabilities(profile: &Profile) -> Capabilities {
    let host = &profile.host;
    let mut able = Capabilities::legacy(host.queue_depth, host.max_transfer_blocks, BLOCK_BYTES as u32);
    (able.ordering, able.atomic_blocks) = match profile.barrier.mechanism {
        Mechanism::None => (Ordering::Legacy, u32::from(!profile.tears_programs())),
        Mechanism::OrderPreservingRecovery => (Ordering::Prefix, host.max_transfer_blocks),
        Mechanism::PowerLossProtection
        | Mechanism::InOrderWriteback
        | Mechanism::TransactionalWriteback
        | Mechanism::InOrderRecovery => (Ordering::Barrier, 1),
    };
    able.ordered_service = host.ordered_service != OrderedService::None;
    able.fua = host.fua;
    able.packed = host.packed_header_ns.is_some();
    able.reliable = host.reliable_extra_ns.is_some();
    able.corrupts_when_cut = profile.tears_programs();
    able.discard = Discard::ReadsZero;
    // Where a logical page has several blocks, an extent may begin and end within one.
    let places = if profile.ftl.layout.logical_page_blocks == 1 { 1 } else { 3 };
    able.max_discard_extents = DISCARD_EXTENTS_MAX.min((host.max_transfer_blocks / places).max(1));
    able.share = profile.ftl.share > 0;
    able.max_share_blocks = profile.ftl.share;
    able
}

impl Storage for FlashDevice {
    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn submit(&self, command: Command<'_>) -> Result<Ticket, Rejected> {
        self.capabilities.check(&command, self.blocks)?;
        if self.machine.borrow().is_full() {
            self.refused.set(true);
            return Err(Rejected::Busy);
        }
        let (ticket, completer) = Ticket::pending();
        let (ordered, head_of_queue) = match &command {
            Command::Write(write) => (write.priority == Priority::Ordered, false),
            Command::Packed(writes) => {
                (writes.iter().any(|write| write.priority == Priority::Ordered), false)
            }
            Command::Read { priority, .. } => (false, *priority == Priority::HeadOfQueue),
            Command::Barrier { .. } => (self.capabilities.ordered_service, false),
            _ => (false, false),
        };
        let queued = Queued { kind: self.kind(&command)?, ordered, completer };
        self.machine.borrow_mut().accept(queued, head_of_queue, self.handle.now().as_nanos());
        self.rearm();
        Ok(ticket)
    }

    fn slots(&self) -> &Event {
        &self.slots
    }
}

/// Drives a device: sleeps until its next event, or until a submission brings it forward.
async fn drive(device: Weak<FlashDevice>, handle: Handle) {
    let mut sleep = None;
    poll_fn(|context| poll_device(&device, &handle, &mut sleep, context)).await;
}

fn poll_device(
    device: &Weak<FlashDevice>,
    handle: &Handle,
    sleep: &mut Option<Sleep>,
    context: &mut Context<'_>,
) -> Poll<()> {
    loop {
        let Some(device) = device.upgrade().filter(|device| !device.off.get()) else {
            return Poll::Ready(());
        };
        device.run();
        let next = device.machine.borrow().next_event();
        device.armed.set(next);
        if !device.waker.borrow().as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            *device.waker.borrow_mut() = Some(context.waker().clone());
        }
        let Some(next) = next else {
            *sleep = None;
            return Poll::Pending;
        };
        let timer = sleep.insert(handle.sleep_until(Instant::from_nanos(next)));
        if Pin::new(timer).poll(context).is_pending() {
            return Poll::Pending;
        }
    }
}
