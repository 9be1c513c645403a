//! Storages that break one rule each.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::mem;
use std::rc::Rc;

use weir_runtime::{Event, Handle};
use weir_storage::{
    Capabilities, Command, Extent, Feature, Invalid, Lba, Ordering, Part, Priority, Rejected, Rule, Storage,
    Ticket, Write, WriteFlags,
};

/// What a [`Faulty`] storage does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    DepthZero,
    DirtyWhenFresh,
    ReadsStale,
    LosesLastPart,
    IgnoresRange,
    NamesWrongError,
    WritesThenRefuses,
    LeaksRefusedSlots,
    AcceptsFua,
    NeverBusy,
    ForgetsToNotify,
    CopiesLate,
    NeverAnswersFlush,
    LosesUnheldWrites,
    FuaIsPlain,
    BarrierWritesVanish,
    OrderedIsSimple,
    DiscardsNothing,
    DiscardsNeighbours,
    SharesNothing,
    PacksFirstOnly,
    LosesWritesUnderLoad,
}

impl Fault {
    /// All real faults.
    pub const ALL: [Fault; 22] = [
        Fault::DepthZero,
        Fault::DirtyWhenFresh,
        Fault::ReadsStale,
        Fault::LosesLastPart,
        Fault::IgnoresRange,
        Fault::NamesWrongError,
        Fault::WritesThenRefuses,
        Fault::LeaksRefusedSlots,
        Fault::AcceptsFua,
        Fault::NeverBusy,
        Fault::ForgetsToNotify,
        Fault::CopiesLate,
        Fault::NeverAnswersFlush,
        Fault::LosesUnheldWrites,
        Fault::FuaIsPlain,
        Fault::BarrierWritesVanish,
        Fault::OrderedIsSimple,
        Fault::DiscardsNothing,
        Fault::DiscardsNeighbours,
        Fault::SharesNothing,
        Fault::PacksFirstOnly,
        Fault::LosesWritesUnderLoad,
    ];

    /// The rule it breaks.
    pub fn breaks(self) -> Rule {
        match self {
            Fault::None => panic!("no fault breaks no rule"),
            Fault::DepthZero => Rule::Description,
            Fault::DirtyWhenFresh => Rule::Fresh,
            Fault::ReadsStale => Rule::ReadBack,
            Fault::LosesLastPart => Rule::Parts,
            Fault::IgnoresRange
            | Fault::NamesWrongError
            | Fault::WritesThenRefuses
            | Fault::LeaksRefusedSlots => Rule::Bounds,
            Fault::AcceptsFua => Rule::Features,
            Fault::NeverBusy | Fault::ForgetsToNotify => Rule::Depth,
            Fault::CopiesLate => Rule::AsSubmitted,
            Fault::LosesUnheldWrites => Rule::Tickets,
            Fault::NeverAnswersFlush => Rule::Flush,
            Fault::FuaIsPlain => Rule::Fua,
            Fault::BarrierWritesVanish => Rule::Barrier,
            Fault::OrderedIsSimple => Rule::OrderedService,
            Fault::DiscardsNothing | Fault::DiscardsNeighbours => Rule::Discard,
            Fault::SharesNothing => Rule::Share,
            Fault::PacksFirstOnly => Rule::Packed,
            Fault::LosesWritesUnderLoad => Rule::Concurrency,
        }
    }
}

/// A good storage with a fault in front of it.
pub struct Faulty {
    handle: Handle,
    inner: Rc<dyn Storage>,
    fault: Fault,
    capabilities: Capabilities,
    silent: Event,
    leaked: Cell<u32>,
    seen: Rc<RefCell<BTreeMap<Extent, Vec<u8>>>>,
    /// Writes in flight: where their page lies in memory, where it goes, and the ticket.
    writes: RefCell<Vec<(usize, Lba, Ticket)>>,
}

impl Faulty {
    pub fn new(handle: &Handle, inner: Rc<dyn Storage>, fault: Fault) -> Faulty {
        let able = *inner.capabilities();
        let capabilities = match fault {
            Fault::DepthZero => Capabilities { queue_depth: 0, ..able },
            Fault::NeverBusy => Capabilities { queue_depth: able.queue_depth / 2, ..able },
            Fault::AcceptsFua => Capabilities { fua: false, ..able },
            Fault::BarrierWritesVanish => Capabilities { ordering: Ordering::Barrier, ..able },
            Fault::OrderedIsSimple => Capabilities { ordered_service: true, ..able },
            Fault::SharesNothing => Capabilities { share: true, ..able },
            Fault::PacksFirstOnly => Capabilities { packed: true, ..able },
            _ => able,
        };
        Faulty {
            handle: handle.clone(),
            inner,
            fault,
            capabilities,
            silent: Event::new(),
            leaked: Cell::new(0),
            seen: Rc::default(),
            writes: RefCell::default(),
        }
    }

    /// How the fault receives a write that keeps the contract.
    fn write(&self, write: Write<'_>) -> Result<Ticket, Rejected> {
        let flags = WriteFlags { barrier: false, ..write.flags };
        let plain = Write { flags, priority: Priority::Simple, ..write };
        let pending = self.forget_finished();
        match self.fault {
            Fault::LosesLastPart if write.parts.len() > 2 => {
                self.inner.submit(Command::Write(Write { parts: &write.parts[1..], ..plain }))
            }
            Fault::BarrierWritesVanish if write.flags.barrier => Ok(Ticket::done()),
            Fault::OrderedIsSimple => self.swap_neighbours(plain, write.priority == Priority::Ordered),
            Fault::LosesWritesUnderLoad if pending >= 4 && write.blocks() > 1 => Ok(Ticket::done()),
            Fault::LosesUnheldWrites if self.leaked.get() > 0 => Ok(Ticket::done()),
            Fault::CopiesLate => self.copy_late(plain),
            Fault::FuaIsPlain | Fault::AcceptsFua => {
                self.inner.submit(Command::Write(Write { flags: WriteFlags::default(), ..plain }))
            }
            Fault::BarrierWritesVanish => self.inner.submit(Command::Write(plain)),
            _ => self.noted(&write, self.inner.submit(Command::Write(write))),
        }
    }

    fn forget_finished(&self) -> usize {
        let mut writes = self.writes.borrow_mut();
        writes.retain(|(_, _, ticket)| ticket.poll_transferred().is_none());
        writes.len()
    }

    fn noted(&self, write: &Write<'_>, answer: Result<Ticket, Rejected>) -> Result<Ticket, Rejected> {
        if let (Ok(ticket), Some(part)) = (&answer, write.parts.first()) {
            let page = part.data.bytes().as_ptr().addr();
            self.writes.borrow_mut().push((page, part.start, ticket.clone()));
        }
        answer
    }

    /// Takes the data of an unfinished write from its page only now, when the caller has used it again.
    fn copy_late(&self, write: Write<'_>) -> Result<Ticket, Rejected> {
        if let [part] = write.parts {
            let page = part.data.bytes().as_ptr().addr();
            for (earlier, start, _) in &*self.writes.borrow() {
                if *earlier == page {
                    drop(self.inner.submit(Command::Write(Write::new(&[Part { start: *start, ..*part }]))));
                }
            }
        }
        self.noted(&write, self.inner.submit(Command::Write(write)))
    }

    /// An ordered write is overtaken by nothing but itself: it is dropped when something was before it.
    fn swap_neighbours(&self, write: Write<'_>, ordered: bool) -> Result<Ticket, Rejected> {
        if ordered && self.forget_finished() > 0 {
            return Ok(Ticket::done());
        }
        self.noted(&write, self.inner.submit(Command::Write(write)))
    }

    /// What was read once is read forever.
    fn read_stale(&self, extent: Extent) -> Result<Ticket, Rejected> {
        let inner = self.inner.submit(Command::read(extent))?;
        let (ticket, completer) = Ticket::pending();
        let seen = Rc::clone(&self.seen);
        drop(self.handle.spawn(async move {
            let result = inner.transferred().await;
            if let Some(mut data) = inner.take_data() {
                let first = data.to_vec();
                data.copy_from_slice(seen.borrow_mut().entry(extent).or_insert(first));
                completer.data(data);
            }
            completer.finish(result, Ok(()));
        }));
        Ok(ticket)
    }

    fn refuse(&self, command: &Command<'_>, refused: Rejected) -> Result<Ticket, Rejected> {
        match (self.fault, refused, command) {
            (Fault::IgnoresRange, Rejected::Invalid(Invalid::OutOfRange(_)), _) => Ok(Ticket::done()),
            (Fault::NamesWrongError, Rejected::Invalid(Invalid::Overlap(extent)), _) => {
                Err(Rejected::Invalid(Invalid::OutOfRange(extent)))
            }
            (Fault::WritesThenRefuses, _, Command::Write(write)) if write.parts.len() == 2 => {
                drop(self.inner.submit(Command::Write(Write::new(&write.parts[..1]))));
                Err(refused)
            }
            (Fault::LeaksRefusedSlots, Rejected::Invalid(_), _) => {
                self.leaked.set(self.leaked.get() + 1);
                Err(refused)
            }
            (Fault::AcceptsFua, Rejected::Unsupported(Feature::Fua), Command::Write(write)) => {
                self.write(*write)
            }
            _ => Err(refused),
        }
    }
}

impl Storage for Faulty {
    fn blocks(&self) -> u64 {
        self.inner.blocks()
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn submit(&self, command: Command<'_>) -> Result<Ticket, Rejected> {
        if let Err(refused) = self.capabilities.check(&command, self.blocks()) {
            return self.refuse(&command, refused);
        }
        if self.fault == Fault::LeaksRefusedSlots && self.leaked.get() >= self.capabilities.queue_depth {
            return Err(Rejected::Busy);
        }
        match (self.fault, command) {
            (_, Command::Write(write)) => self.write(write),
            (Fault::ReadsStale, Command::Read { extent, .. }) => self.read_stale(extent),
            (Fault::NeverAnswersFlush, Command::Flush) => {
                let (ticket, completer) = Ticket::pending();
                mem::forget(completer);
                Ok(ticket)
            }
            // Once a flush was asked for while a write was in flight, writes are forgotten.
            (Fault::LosesUnheldWrites, Command::Flush) if self.forget_finished() > 0 => {
                self.leaked.set(1);
                self.inner.submit(command)
            }
            (Fault::DiscardsNothing, Command::Discard(_))
            | (Fault::SharesNothing, Command::Share(_))
            | (Fault::BarrierWritesVanish, Command::Barrier { .. }) => Ok(Ticket::done()),
            (Fault::DiscardsNeighbours, Command::Discard(extents)) => {
                let wider = extents.iter().map(|extent| Extent::new(extent.start, extent.blocks + 1));
                self.inner.submit(Command::Discard(&wider.collect::<Vec<_>>()))
            }
            (Fault::PacksFirstOnly, Command::Packed(writes)) => self.inner.submit(Command::Write(writes[0])),
            _ => self.inner.submit(command),
        }
    }

    fn slots(&self) -> &Event {
        if self.fault == Fault::ForgetsToNotify { &self.silent } else { self.inner.slots() }
    }
}
