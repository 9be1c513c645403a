//! The *witness* stands before a storage, passes every command on, and writes down what it saw: what
//! was submitted, and when each ticket was answered. It knows nothing of the storage's bookkeeping; an
//! [`Expectation`] made from its notes says what a power cut may leave.
//!
//! Time is counted in *looks*: the witness looks at the tickets at each submission and whenever it is
//! asked. Two commands are ordered only if some look tells them apart (one answered, the other not yet)
//! or S1 orders them. Looking at every event of an [`AdversaryDisk`](super::AdversaryDisk) therefore
//! makes the judgement exact; looking less often makes it milder, never wrong. Only what a share, or a
//! discard of undefined outcome, found in blocks that were being written at the time cannot be told from
//! outside: S6 forbids such overlaps, and so does the witness.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use event_listener::Event;
use weir_runtime::Buffer;

use super::image::{Image, content_hash};
use super::judge::{Expectation, Illegal};
use crate::address::{Extent, Lba};
use crate::capability::{Capabilities, Discard, Ordering};
use crate::command::{Command, Priority, SharePair, Write, WriteFlags};
use crate::contract::Storage;
use crate::error::{Rejected, StorageError};
use crate::ticket::Ticket;

/// Looks so late that they never come.
const NEVER: u64 = u64::MAX;

/// When something happened, as far as the witness knows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    /// The command, in order of submission, and the place in it (packed writes).
    pub(super) receipt: (u64, usize),
    /// Commands of a lower fence come before those of a higher one, by ordered priority (S1).
    pub(super) fence: u64,
    /// The look at its submission.
    pub(super) submitted: u64,
    /// The last look that found it in flight.
    pub(super) in_flight: u64,
    /// The first look that found it transferred.
    pub(super) transferred: u64,
}

impl Span {
    /// Whether this one was transferred before the other, without doubt.
    pub(super) fn surely_before(&self, other: &Span) -> bool {
        if self.receipt.0 == other.receipt.0 {
            return self.receipt.1 < other.receipt.1;
        }
        self.fence < other.fence || self.transferred <= other.in_flight
    }

    /// Whether this one is older, in the order that counts: of receipt on a prefix device, else of transfer.
    pub(super) fn precedes(&self, other: &Span, ordering: Ordering) -> bool {
        match ordering {
            Ordering::Prefix => self.receipt < other.receipt,
            Ordering::Legacy | Ordering::Barrier => self.surely_before(other),
        }
    }
}

/// What a change, a flush or a barrier is to the judge.
#[derive(Clone)]
pub(super) struct Deed {
    pub(super) span: Span,
    pub(super) flags: WriteFlags,
    /// Survives as a whole or not at all.
    pub(super) atomic: bool,
    /// A flush, which changes nothing.
    flush: bool,
    /// Must be found, in this version or a later one.
    pub(super) durable: bool,
    /// Failed, or lost by a failed flush: nothing is promised of it.
    pub(super) void: bool,
    /// How many units still list it.
    listed: usize,
    ticket: Option<Ticket>,
}

impl Deed {
    fn is_answered(&self) -> bool {
        self.void || self.span.transferred != NEVER
    }
}

/// Numbers deeds in order of receipt.
pub(super) type DeedId = u64;

/// A content that a unit may have: whose it is (`None`: from before the witness came) and its hash.
pub(super) type Candidate = (Option<DeedId>, Option<u64>);

/// Everything that the witness wrote down.
pub(super) struct Notes {
    pub(super) ordering: Ordering,
    pub(super) deeds: BTreeMap<DeedId, Deed>,
    pub(super) units: BTreeMap<u32, Vec<Candidate>>,
    pub(super) initial: Image,
    pub(super) out_of_turn: Option<Illegal>,
    capabilities: Capabilities,
    look: u64,
    commands: u64,
    next_deed: DeedId,
    fence: u64,
}

/// Watches a storage; itself a storage, so that anything can stand on it.
pub struct Witness {
    inner: Rc<dyn Storage>,
    notes: RefCell<Notes>,
}

impl Witness {
    /// A witness before `storage`, whose content is `initial` at this moment.
    #[must_use]
    pub fn new(storage: Rc<dyn Storage>, initial: &Image) -> Rc<Witness> {
        let capabilities = *storage.capabilities();
        let notes = Notes {
            ordering: capabilities.ordering,
            deeds: BTreeMap::new(),
            units: BTreeMap::new(),
            initial: initial.with_units(capabilities.tear_unit_bytes),
            out_of_turn: None,
            capabilities,
            look: 0,
            commands: 0,
            next_deed: 0,
            fence: 0,
        };
        Rc::new(Witness { inner: storage, notes: RefCell::new(notes) })
    }

    /// What the contract allows a power cut to leave at this moment. Make it once a moment, then judge
    /// as many images by it as you like.
    pub fn expect(&self) -> Expectation {
        let mut notes = self.notes.borrow_mut();
        notes.look();
        Expectation::new(&notes)
    }

    /// Judges one image.
    ///
    /// # Errors
    /// The first thing in it that the contract forbids.
    pub fn judge(&self, image: &Image) -> Result<(), Illegal> {
        self.expect().judge(image)
    }
}

impl Storage for Witness {
    fn blocks(&self) -> u64 {
        self.inner.blocks()
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn submit(&self, command: Command<'_>) -> Result<Ticket, Rejected> {
        // A command that breaks the contract leaves no notes.
        self.inner.capabilities().check(&command, self.inner.blocks())?;
        let (before, deeds) = self.notes.borrow_mut().announce(&command);
        let answer = self.inner.submit(command);
        let mut notes = self.notes.borrow_mut();
        match &answer {
            Ok(ticket) => notes.accepted(&deeds, ticket),
            Err(_) => notes.withdraw(before, &deeds),
        }
        answer
    }

    fn slots(&self) -> &Event {
        self.inner.slots()
    }

    fn allocate(&self, bytes: usize) -> Buffer {
        self.inner.allocate(bytes)
    }
}

impl Notes {
    /// Looks at every ticket that is not answered yet.
    fn look(&mut self) {
        self.look += 1;
        let mut answered = Vec::new();
        for (id, deed) in self.deeds.iter_mut().filter(|(_, deed)| !deed.is_answered()) {
            match deed.ticket.as_ref().and_then(Ticket::poll_transferred) {
                // A device that went away has answered nothing: what was in flight stays so.
                None | Some(Err(StorageError::Gone)) => deed.span.in_flight = self.look,
                Some(Ok(())) => {
                    deed.span.transferred = self.look;
                    answered.push((*id, true));
                }
                Some(Err(_)) => {
                    deed.void = true;
                    answered.push((*id, false));
                }
            }
        }
        for &(id, ok) in &answered {
            self.answered(id, ok);
        }
        if !answered.is_empty() {
            self.check_turns();
            self.prune();
        }
    }

    fn answered(&mut self, id: DeedId, ok: bool) {
        let Some(Deed { span, flags, flush, .. }) = self.deeds.get(&id).cloned() else { return };
        if flush || (flags.preflush && ok) {
            for (other, deed) in &mut self.deeds {
                let received = self.capabilities.ordered_flush && flush && *other < id;
                if deed.span.transferred <= span.submitted || received {
                    // A failed flush may have lost all that was not durable before.
                    deed.durable |= ok && !deed.void;
                    deed.void |= !ok && !deed.durable;
                }
            }
        }
        if flags.fua
            && ok
            && let Some(deed) = self.deeds.get_mut(&id)
        {
            deed.durable = true;
        }
    }

    /// S1: nothing of a higher fence is transferred while something of a lower one is in flight. Flushes
    /// may be head-of-queue.
    fn check_turns(&mut self) {
        let in_flight = self.deeds.values().filter(|deed| !deed.is_answered() && !deed.flush);
        let waiting = in_flight.min_by_key(|deed| deed.span.fence);
        let early = waiting.and_then(|earlier| {
            let overtakes = |deed: &&Deed| {
                deed.span.transferred == self.look && !deed.flush && deed.span.fence > earlier.span.fence
            };
            Some((earlier, self.deeds.values().find(overtakes)?))
        });
        if let Some((earlier, later)) = early {
            let illegal = Illegal::OutOfTurn { earlier: earlier.span.receipt.0, later: later.span.receipt.0 };
            self.out_of_turn.get_or_insert(illegal);
        }
    }

    /// Writes down a command before it is submitted, since events may come while it is.
    fn announce(&mut self, command: &Command<'_>) -> (u64, Vec<DeedId>) {
        self.look();
        self.commands += 1;
        let (before, first) = (self.fence, self.next_deed);
        let ordered = match command {
            Command::Write(write) => write.priority == Priority::Ordered,
            Command::Packed(writes) => writes.iter().any(|write| write.priority == Priority::Ordered),
            Command::Barrier { .. } => true,
            _ => false,
        };
        let ordered = ordered && self.capabilities.ordered_service;
        self.fence += u64::from(ordered);
        match command {
            Command::Read { .. } => {}
            Command::Barrier { .. } => {
                let flags = WriteFlags { barrier: true, ..WriteFlags::default() };
                self.deed(0, flags, false, false, Vec::new());
            }
            Command::Flush => self.deed(0, WriteFlags::default(), false, true, Vec::new()),
            Command::Write(write) => self.write(0, write),
            Command::Packed(writes) => writes.iter().enumerate().for_each(|(i, write)| self.write(i, write)),
            Command::Discard(extents) => {
                let units = extents.iter().flat_map(|extent| self.discarded(*extent)).collect();
                self.deed(0, WriteFlags::default(), false, false, units);
            }
            Command::Share(pairs) => {
                let units = pairs.iter().flat_map(|pair| self.shared(*pair)).collect();
                self.deed(0, WriteFlags::default(), true, false, units);
            }
        }
        self.fence += u64::from(ordered);
        (before, (first..self.next_deed).collect())
    }

    fn write(&mut self, place: usize, write: &Write<'_>) {
        let unit_bytes = self.initial.unit_bytes();
        let mut units = Vec::new();
        for part in write.parts {
            let numbers = part.extent().iter().flat_map(|lba| self.initial.units_of(lba));
            units.extend(numbers.zip(part.data.bytes().chunks_exact(unit_bytes).map(content_hash)));
        }
        let atomic = write.flags.reliable || write.blocks() <= u64::from(self.capabilities.atomic_blocks);
        self.deed(place, write.flags, atomic, false, units);
    }

    fn discarded(&self, extent: Extent) -> Vec<(u32, Option<u64>)> {
        let numbers = extent.iter().flat_map(|lba| self.initial.units_of(lba));
        let undefined = self.capabilities.discard == Discard::Undefined;
        numbers
            .flat_map(|number| {
                let old = if undefined { self.possible(number) } else { Vec::new() };
                old.into_iter().chain([None]).map(move |hash| (number, hash))
            })
            .collect()
    }

    fn shared(&self, pair: SharePair) -> Vec<(u32, Option<u64>)> {
        let units = |start: Lba| {
            let blocks = Extent::new(start, pair.from.blocks);
            blocks.iter().flat_map(|lba| self.initial.units_of(lba)).collect::<Vec<u32>>()
        };
        let pairs = units(pair.from.start).into_iter().zip(units(pair.to));
        pairs.flat_map(|(from, to)| self.possible(from).into_iter().map(move |hash| (to, hash))).collect()
    }

    /// What a unit may read now: all but what something transferred has surely replaced.
    fn possible(&self, number: u32) -> Vec<Option<u64>> {
        let Some(candidates) = self.units.get(&number) else { return vec![self.initial.unit_hash(number)] };
        let replaced = |old: &Candidate| {
            let old_span = old.0.and_then(|id| self.deeds.get(&id)).map(|deed| deed.span);
            candidates.iter().filter_map(|(id, _)| self.deeds.get(id.as_ref()?)).any(|deed| {
                let transferred = deed.span.transferred != NEVER && !deed.void;
                transferred && old_span.is_none_or(|old| old.precedes(&deed.span, self.ordering))
            })
        };
        candidates.iter().filter(|candidate| !replaced(candidate)).map(|(_, hash)| *hash).collect()
    }

    fn deed(
        &mut self,
        place: usize,
        flags: WriteFlags,
        atomic: bool,
        flush: bool,
        units: Vec<(u32, Option<u64>)>,
    ) {
        let (receipt, look) = ((self.commands, place), self.look);
        let span = Span { receipt, fence: self.fence, submitted: look, in_flight: look, transferred: NEVER };
        let atomic = atomic || self.ordering == Ordering::Prefix;
        let id = self.next_deed;
        self.next_deed += 1;
        let listed = units.len();
        for (number, hash) in units {
            let initial = self.initial.unit_hash(number);
            self.units.entry(number).or_insert_with(|| vec![(None, initial)]).push((Some(id), hash));
        }
        let deed = Deed { span, flags, atomic, flush, durable: false, void: false, listed, ticket: None };
        self.deeds.insert(id, deed);
    }

    fn accepted(&mut self, deeds: &[DeedId], ticket: &Ticket) {
        for id in deeds {
            if let Some(deed) = self.deeds.get_mut(id) {
                deed.ticket = Some(ticket.clone());
            }
        }
    }

    /// A refused command was never there.
    fn withdraw(&mut self, fence: u64, deeds: &[DeedId]) {
        self.fence = fence;
        for id in deeds {
            self.deeds.remove(id);
        }
        for candidates in self.units.values_mut() {
            candidates.retain(|(id, _)| id.is_none_or(|id| !deeds.contains(&id)));
        }
    }

    /// Forgets what a durable version has replaced, so that notes do not grow with the run.
    fn prune(&mut self) {
        let mut units = std::mem::take(&mut self.units);
        for candidates in units.values_mut() {
            let durable: Vec<Span> = candidates
                .iter()
                .filter_map(|(id, _)| {
                    self.deeds.get(id.as_ref()?).filter(|deed| deed.durable).map(|deed| deed.span)
                })
                .collect();
            candidates.retain(|(id, _)| {
                let span = id.and_then(|id| self.deeds.get(&id)).map(|deed| deed.span);
                let replaced =
                    durable.iter().any(|later| span.is_none_or(|span| span.precedes(later, self.ordering)));
                if let Some(deed) = id.filter(|_| replaced).and_then(|id| self.deeds.get_mut(&id)) {
                    deed.listed -= 1;
                }
                !replaced
            });
        }
        self.units = units;
        self.forget_deeds();
    }

    /// A deed that no unit lists says nothing more, unless it separates epochs of others.
    fn forget_deeds(&mut self) {
        let spent = |deed: &Deed| deed.listed == 0 && deed.is_answered();
        let live: Vec<Span> = self.deeds.values().filter(|deed| !spent(deed)).map(|deed| deed.span).collect();
        self.deeds.retain(|_, deed| {
            let separates = deed.flags.barrier && !live.iter().all(|span| deed.span.surely_before(span));
            !spent(deed) || separates
        });
    }
}
