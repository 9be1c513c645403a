//! What is certain to happen later: answers whose time is known.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::rc::Rc;

use weir_runtime::Buffer;
use weir_storage::Completer;

use crate::map::Pair;
use crate::queue::InTurn;

/// Something that happens later.
pub(crate) enum Event {
    /// A read's data has passed the link.
    ReadCarried { buffer: Buffer, completer: Completer },
    /// A flush that came at `since` is done.
    Flushed { since: u64, completer: Completer },
    /// A forced write is durable: its command goes on.
    Persisted(InTurn),
    /// Everything before a share is committed: its record can be written.
    Settled { pairs: Rc<[Pair]>, completer: Completer },
}

/// Events in the order of their times; of those at one time, in the order in which they were scheduled.
#[derive(Default)]
pub(crate) struct Events {
    due: BinaryHeap<Reverse<(u64, u64)>>,
    /// By number, from `first` on; none where it has happened.
    slots: VecDeque<Option<Event>>,
    first: u64,
}

impl Events {
    pub(crate) fn schedule(&mut self, at: u64, what: Event) {
        let number = self.first + self.slots.len() as u64;
        self.slots.push_back(Some(what));
        self.due.push(Reverse((at, number)));
    }

    /// When the next one happens.
    pub(crate) fn next(&self) -> Option<u64> {
        self.due.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes the next one, and its time.
    pub(crate) fn pop(&mut self) -> Option<(u64, Event)> {
        let Reverse((at, number)) = self.due.pop()?;
        let what = self.slots.get_mut((number - self.first) as usize)?.take()?;
        while self.slots.front().is_some_and(Option::is_none) {
            self.slots.pop_front();
            self.first += 1;
        }
        Some((at, what))
    }
}
