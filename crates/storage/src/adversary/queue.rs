//! The command queue of the disk: which of the commands in flight may be serviced now (S1).

use std::cell::Cell;
use std::rc::Rc;

use weir_runtime::Instant;

use super::image::Unit;
use crate::address::{Extent, Lba};
use crate::command::{CommandKind, Priority, SharePair, Tag, WriteFlags};
use crate::error::StorageError;
use crate::ticket::Completer;

/// The device's end of a ticket whose command has `parts` writes to make durable.
pub(super) struct Completion {
    pub(super) completer: Completer,
    parts: Cell<usize>,
    /// There are parts, and all of them are durable when they are transferred.
    pub(super) all_fua: bool,
}

impl Completion {
    pub(super) fn new(completer: Completer, changes: &[Change]) -> Completion {
        let all_fua = !changes.is_empty() && changes.iter().all(|change| change.flags.fua);
        Completion { completer, parts: Cell::new(changes.len()), all_fua }
    }

    /// One write of the command is durable.
    pub(super) fn part_durable(&self) {
        self.parts.set(self.parts.get().saturating_sub(1));
        if self.parts.get() == 0 {
            self.completer.durable(Ok(()));
        }
    }

    /// One write of the command never will be.
    pub(super) fn part_lost(&self, error: StorageError) {
        self.completer.durable(Err(error));
    }
}

/// Where the content of a change comes from.
pub(super) enum Source {
    /// The command brought it.
    Units(Vec<(u32, Unit)>),
    /// What the sources of a share hold when it is serviced.
    Pairs(Vec<SharePair>),
    /// Discarded blocks whose content is undefined.
    Anything(Vec<u32>),
}

/// A change of the disk's content: a write, one write of a packed command, a discard, or a share.
pub(super) struct Change {
    pub(super) source: Source,
    pub(super) flags: WriteFlags,
    pub(super) tags: Vec<Tag>,
    /// Survives a power cut as a whole or not at all.
    pub(super) atomic: bool,
    /// Another block of the same reliable write follows.
    pub(super) goes_on: bool,
    /// Its key in the cache, once it is known.
    pub(super) key: Option<u64>,
}

/// What a command asks for.
pub(super) enum Work {
    Read(Extent),
    /// The changes that are still to be made, in turn (S7).
    Change(Vec<Change>),
    Barrier,
    Flush,
}

/// A command in flight.
pub(super) struct Flight {
    pub(super) number: u64,
    pub(super) kind: CommandKind,
    pub(super) at: Lba,
    /// When it may be serviced at the earliest.
    pub(super) ripe: Instant,
    pub(super) priority: Priority,
    /// The newest write that its flush, or pre-flush, covers: everything transferred before submission.
    pub(super) covers: u64,
    pub(super) work: Work,
    /// Some of its changes are made already.
    pub(super) begun: bool,
    pub(super) completion: Rc<Completion>,
}

impl Work {
    pub(super) fn changes(&self) -> &[Change] {
        match self {
            Work::Change(changes) => changes,
            _ => &[],
        }
    }
}

impl Flight {
    pub(super) fn changes(&self) -> &[Change] {
        self.work.changes()
    }

    /// The key before which a prefix device must have transferred everything, if the next change is to be durable, or
    /// this is a flush.
    fn durable_through(&self) -> u64 {
        let next = self.changes().first();
        let own = next.filter(|change| change.flags.fua).and_then(|change| change.key);
        let flushes = matches!(self.work, Work::Flush) || next.is_some_and(|change| change.flags.preflush);
        own.unwrap_or(0).max(if flushes { self.covers } else { 0 })
    }
}

/// What the queue has to know of the device to apply S1 and S2.
pub(super) struct Service<'a> {
    /// Ordered priority is honoured.
    pub(super) ordered: bool,
    /// A flush waits for the writes submitted before it.
    pub(super) ordered_flush: bool,
    /// Prefix devices: whether everything received before a key is transferred.
    pub(super) received_before: &'a dyn Fn(u64) -> bool,
}

/// The places of the flights that may be serviced now, in order of submission. The oldest flight is
/// always among them, so the queue cannot lock up.
pub(super) fn serviceable(flights: &[Flight], service: &Service<'_>) -> Vec<usize> {
    let (mut any_before, mut ordered_before, mut write_before) = (false, false, false);
    let mut places = Vec::new();
    for (place, flight) in flights.iter().enumerate() {
        let ordered = service.ordered && flight.priority == Priority::Ordered;
        let in_turn = match flight.priority {
            Priority::HeadOfQueue => true,
            _ if ordered => !any_before,
            _ => !ordered_before,
        };
        let waits_for_writes = service.ordered_flush && matches!(flight.work, Work::Flush) && write_before;
        if in_turn && !waits_for_writes && (service.received_before)(flight.durable_through()) {
            places.push(place);
        }
        any_before = true;
        ordered_before |= ordered;
        write_before |= !flight.changes().is_empty();
    }
    places
}
