//! The power cuts of one run, a chain of lives: which states they left, what of them was wrong, and from which one the next
//! life goes on.

use std::collections::BTreeSet;

use weir_runtime::Random;

use crate::campaign::Wrong;
use crate::content::mix;
use crate::fs::ground::{Draw, Left};

/// Cuts at one event.
const CUTS_PER_EVENT: u32 = 2;

/// What every campaign counts of its cuts.
#[derive(Clone, Copy, Default)]
pub(crate) struct CutCounts {
    pub(crate) lives: u64,
    pub(crate) events: u64,
    pub(crate) cuts: u64,
    pub(crate) states_deep: u64,
}

/// See the head of this file. `T` is what a campaign counts besides.
pub(crate) struct Cuts<T> {
    pub(crate) counts: CutCounts,
    pub(crate) totals: T,
    pub(crate) seen: BTreeSet<u64>,
    pub(crate) failure: Option<Wrong>,
    life: u32,
    event: u64,
    /// States of a life that were judged, and how many are at most: what comes later in it is judged in other lives.
    states_of_life: u64,
    states_max: u64,
    random: Random,
    next: Option<Left>,
}

impl<T: Default> Cuts<T> {
    pub(crate) fn new(random: Random, states_max: u64) -> Cuts<T> {
        Cuts {
            counts: CutCounts::default(),
            totals: T::default(),
            seen: BTreeSet::new(),
            failure: None,
            life: 0,
            event: 0,
            states_of_life: 0,
            states_max,
            random,
            next: None,
        }
    }

    pub(crate) fn begin_life(&mut self, life: u32) {
        (self.life, self.event, self.states_of_life) = (life, 0, 0);
        self.counts.lives += 1;
    }

    /// The life that runs.
    pub(crate) fn life(&self) -> u32 {
        self.life
    }

    /// The first failure of a run counts.
    pub(crate) fn fail(&mut self, what: impl ToString) {
        let (life, event) = (self.life, self.event);
        self.failure.get_or_insert_with(|| (life, event, what.to_string()));
    }

    /// Nothing more of this life is judged.
    pub(crate) fn is_over(&self) -> bool {
        self.failure.is_some() || self.states_of_life >= self.states_max
    }

    /// The state that the next life begins with, if nothing was wrong.
    pub(crate) fn take_next(&mut self) -> Option<Left> {
        self.next.take().filter(|_| self.failure.is_none())
    }

    /// Cuts the power, on copies, and has each state judged that is new under what is promised now. The judge returns
    /// whether a life may begin with the state.
    pub(crate) fn at_event(
        &mut self,
        draw: Draw<'_>,
        promised: u64,
        mut judge: impl FnMut(&Left, u64, &mut T) -> Result<bool, String>,
    ) {
        for _ in 0..CUTS_PER_EVENT {
            let left = draw(&mut self.random);
            self.counts.cuts += 1;
            let state = mix(left.hash(), promised);
            if !self.seen.insert(state) {
                continue;
            }
            self.counts.states_deep += u64::from(self.life > 0);
            match judge(&left, state, &mut self.totals) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(what) => self.fail(what),
            }
            // Each state of a life is equally likely to be the one to go on from.
            self.states_of_life += 1;
            if self.random.below(self.states_of_life) == 0 {
                self.next = Some(left);
            }
        }
    }

    /// Cuts the power, on a copy, at an event of a recovery: the state that is left, if it is new.
    pub(crate) fn at_recovery_event(&mut self, draw: Draw<'_>) -> Option<(Left, u64)> {
        self.counts.events += 1;
        let left = draw(&mut self.random);
        self.counts.cuts += 1;
        let state = left.hash();
        (self.failure.is_none() && self.seen.insert(state)).then_some((left, state))
    }

    /// An event of the storage; whether it is worth a cut.
    pub(crate) fn sees_event(&mut self) -> bool {
        self.event += 1;
        self.counts.events += 1;
        !self.is_over()
    }
}
