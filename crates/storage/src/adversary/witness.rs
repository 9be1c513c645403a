//! The *witness* stands before a storage, passes every command on, and writes down what it saw: what
//! was submitted, and when each ticket was answered. It knows nothing of the storage's bookkeeping; an
//! [`Expectation`] made from its history says what a power cut may leave.
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

use super::image::{Image, content_hash};
use super::judge::{Expectation, Illegal};
use crate::address::{BLOCK_BYTES, Extent, Lba};
use crate::capability::{Capabilities, Discard, Ordering};
use crate::command::{Command, Priority, SharePair, Write, WriteFlags};
use crate::contract::Storage;
use crate::error::{Rejected, StorageError};
use crate::interposed::Interposed;
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
pub(super) struct OpRecord {
    pub(super) span: Span,
    pub(super) flags: WriteFlags,
    /// Survives as a whole or not at all.
    pub(super) atomic: bool,
    /// A power cut may leave garbage in its place until it is durable (S4).
    pub(super) garbles: bool,
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

impl OpRecord {
    fn is_answered(&self) -> bool {
        self.void || self.span.transferred != NEVER
    }
}

/// Numbers operations in order of receipt.
pub(super) type OpId = u64;

/// A content that a unit may have: whose it is (`None`: from before the witness came) and its hash.
pub(super) type Candidate = (Option<OpId>, Option<u64>);

/// Everything that the witness wrote down.
pub(super) struct History {
    pub(super) ordering: Ordering,
    pub(super) records: BTreeMap<OpId, OpRecord>,
    pub(super) units: BTreeMap<u32, Vec<Candidate>>,
    pub(super) initial: Image,
    pub(super) out_of_turn: Option<Illegal>,
    capabilities: Capabilities,
    look: u64,
    commands: u64,
    next_op: OpId,
    fence: u64,
}

/// Watches a storage; itself a storage, so that anything can stand on it.
pub struct Witness {
    inner: Rc<dyn Storage>,
    history: RefCell<History>,
}

impl Witness {
    /// A witness before `storage`, whose content is `initial` at this moment.
    #[must_use]
    pub fn new(storage: Rc<dyn Storage>, initial: &Image) -> Rc<Witness> {
        let capabilities = *storage.capabilities();
        let history = History {
            ordering: capabilities.ordering,
            records: BTreeMap::new(),
            units: BTreeMap::new(),
            initial: initial.with_units(capabilities.tear_unit_bytes),
            out_of_turn: None,
            capabilities,
            look: 0,
            commands: 0,
            next_op: 0,
            fence: 0,
        };
        Rc::new(Witness { inner: storage, history: RefCell::new(history) })
    }

    /// What the contract allows a power cut to leave at this moment. Make it once a moment, then judge
    /// as many images by it as you like.
    pub fn expect(&self) -> Expectation {
        let mut history = self.history.borrow_mut();
        history.poll_tickets();
        Expectation::new(&history)
    }

    /// Judges one image.
    ///
    /// # Errors
    /// The first thing in it that the contract forbids.
    pub fn judge(&self, image: &Image) -> Result<(), Illegal> {
        self.expect().judge(image)
    }
}

impl Interposed for Witness {
    fn below(&self) -> &dyn Storage {
        &*self.inner
    }

    fn take(&self, command: Command<'_>) -> Result<Ticket, Rejected> {
        // A command that breaks the contract leaves no record.
        self.inner.capabilities().check(&command, self.inner.blocks())?;
        let (before, records) = self.history.borrow_mut().announce(&command);
        let answer = self.inner.submit(command);
        let mut history = self.history.borrow_mut();
        match &answer {
            Ok(ticket) => history.accepted(&records, ticket),
            Err(_) => history.withdraw(before, &records),
        }
        answer
    }
}

impl History {
    /// Looks at every ticket that is not answered yet.
    fn poll_tickets(&mut self) {
        self.look += 1;
        let mut answered = Vec::new();
        for (id, record) in self.records.iter_mut().filter(|(_, record)| !record.is_answered()) {
            match record.ticket.as_ref().and_then(Ticket::poll_transferred) {
                // A device that went away has answered nothing: what was in flight stays so.
                None | Some(Err(StorageError::Gone)) => record.span.in_flight = self.look,
                Some(Ok(())) => {
                    record.span.transferred = self.look;
                    answered.push((*id, true));
                }
                Some(Err(_)) => {
                    record.void = true;
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

    fn answered(&mut self, id: OpId, ok: bool) {
        let Some(OpRecord { span, flags, flush, .. }) = self.records.get(&id).cloned() else { return };
        if flush || (flags.preflush && ok) {
            for (other, record) in &mut self.records {
                let received = self.capabilities.ordered_flush && flush && *other < id;
                if record.span.transferred <= span.submitted || received {
                    // A failed flush may have lost all that was not durable before.
                    record.durable |= ok && !record.void;
                    record.void |= !ok && !record.durable;
                }
            }
        }
        if flags.fua
            && ok
            && let Some(record) = self.records.get_mut(&id)
        {
            record.durable = true;
        }
    }

    /// S1: nothing of a higher fence is transferred while something of a lower one is in flight. Flushes
    /// may be head-of-queue.
    fn check_turns(&mut self) {
        let in_flight = self.records.values().filter(|record| !record.is_answered() && !record.flush);
        let waiting = in_flight.min_by_key(|record| record.span.fence);
        let early = waiting.and_then(|earlier| {
            let overtakes = |record: &&OpRecord| {
                record.span.transferred == self.look
                    && !record.flush
                    && record.span.fence > earlier.span.fence
            };
            Some((earlier, self.records.values().find(overtakes)?))
        });
        if let Some((earlier, later)) = early {
            let illegal = Illegal::OutOfTurn { earlier: earlier.span.receipt.0, later: later.span.receipt.0 };
            self.out_of_turn.get_or_insert(illegal);
        }
    }

    /// Writes down a command before it is submitted, since events may come while it is.
    fn announce(&mut self, command: &Command<'_>) -> (u64, Vec<OpId>) {
        self.poll_tickets();
        self.commands += 1;
        let (before, first) = (self.fence, self.next_op);
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
                self.record(0, flags, false, false, Vec::new());
            }
            Command::Flush => self.record(0, WriteFlags::default(), false, true, Vec::new()),
            Command::Write(write) => self.write(0, write),
            Command::Packed(writes) => writes.iter().enumerate().for_each(|(i, write)| self.write(i, write)),
            Command::Discard(extents) => {
                let units = extents.iter().flat_map(|extent| self.discarded(*extent)).collect();
                self.record(0, WriteFlags::default(), false, false, units);
            }
            Command::Share(pairs) => {
                let units = pairs.iter().flat_map(|pair| self.shared(*pair)).collect();
                self.record(0, WriteFlags::default(), true, false, units);
            }
        }
        self.fence += u64::from(ordered);
        (before, (first..self.next_op).collect())
    }

    fn write(&mut self, place: usize, write: &Write<'_>) {
        let unit_bytes = self.initial.unit_bytes();
        let mut units = Vec::new();
        for part in write.parts {
            let numbers = part.extent().iter().flat_map(|lba| self.initial.units_of(lba));
            units.extend(numbers.zip(part.data.bytes().chunks_exact(unit_bytes).map(content_hash)));
        }
        let whole = write.blocks() <= u64::from(self.capabilities.atomic_blocks);
        if whole || !write.flags.reliable || self.ordering == Ordering::Prefix {
            return self.record(place, write.flags, whole, false, units);
        }
        // S4: each block of a reliable write is whole.
        for block in units.chunks(BLOCK_BYTES / unit_bytes) {
            self.record(place, write.flags, true, false, block.to_vec());
        }
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
            let old_span = old.0.and_then(|id| self.records.get(&id)).map(|record| record.span);
            candidates.iter().filter_map(|(id, _)| self.records.get(id.as_ref()?)).any(|record| {
                let transferred = record.span.transferred != NEVER && !record.void;
                transferred && old_span.is_none_or(|old| old.precedes(&record.span, self.ordering))
            })
        };
        candidates.iter().filter(|candidate| !replaced(candidate)).map(|(_, hash)| *hash).collect()
    }

    fn record(
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
        let garbles = self.capabilities.corrupts_when_cut && !atomic && !flush;
        let id = self.next_op;
        self.next_op += 1;
        let listed = units.len();
        for (number, hash) in units {
            let initial = self.initial.unit_hash(number);
            self.units.entry(number).or_insert_with(|| vec![(None, initial)]).push((Some(id), hash));
        }
        let record = OpRecord {
            span,
            flags,
            atomic,
            garbles,
            flush,
            durable: false,
            void: false,
            listed,
            ticket: None,
        };
        self.records.insert(id, record);
    }

    fn accepted(&mut self, records: &[OpId], ticket: &Ticket) {
        for id in records {
            if let Some(record) = self.records.get_mut(id) {
                record.ticket = Some(ticket.clone());
            }
        }
    }

    /// A refused command was never there.
    fn withdraw(&mut self, fence: u64, records: &[OpId]) {
        self.fence = fence;
        for id in records {
            self.records.remove(id);
        }
        for candidates in self.units.values_mut() {
            candidates.retain(|(id, _)| id.is_none_or(|id| !records.contains(&id)));
        }
    }

    /// Forgets what a durable version has replaced, so that the history does not grow with the run.
    fn prune(&mut self) {
        let mut units = std::mem::take(&mut self.units);
        for candidates in units.values_mut() {
            let durable: Vec<Span> = candidates
                .iter()
                .filter_map(|(id, _)| {
                    self.records.get(id.as_ref()?).filter(|record| record.durable).map(|record| record.span)
                })
                .collect();
            candidates.retain(|(id, _)| {
                let span = id.and_then(|id| self.records.get(&id)).map(|record| record.span);
                let replaced =
                    durable.iter().any(|later| span.is_none_or(|span| span.precedes(later, self.ordering)));
                if let Some(record) = id.filter(|_| replaced).and_then(|id| self.records.get_mut(&id)) {
                    record.listed -= 1;
                }
                !replaced
            });
        }
        self.units = units;
        self.forget_deeds();
    }

    /// A record that no unit lists says nothing more, unless it separates epochs of others.
    fn forget_deeds(&mut self) {
        let spent = |record: &OpRecord| record.listed == 0 && record.is_answered();
        let live: Vec<Span> =
            self.records.values().filter(|record| !spent(record)).map(|record| record.span).collect();
        self.records.retain(|_, record| {
            let separates = record.flags.barrier && !live.iter().all(|span| record.span.surely_before(span));
            !spent(record) || separates
        });
    }
}
