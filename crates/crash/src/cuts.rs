//! The power cuts of one run, a chain of lives: which states they left, what of them was wrong, and from which one the next
//! life goes on.

use std::collections::BTreeSet;

use weir_runtime::Random;

use crate::campaign::{Counts, Failure, Run, Wrong};
use crate::content::mix;
use crate::fs::ground::Left;

/// Cuts at one event of a storage below a filesystem.
pub(crate) const CUTS_PER_EVENT: u32 = 2;

/// What a power cut has left.
pub(crate) trait CrashState {
    /// Equal states, equal hash.
    fn hash(&self) -> u64;
}

impl CrashState for Left {
    fn hash(&self) -> u64 {
        self.hash()
    }
}

/// Draws what a power cut now would leave.
type Draw<'a, S> = &'a mut dyn FnMut(&mut Random) -> S;

/// What every campaign counts of its cuts.
#[derive(Clone, Copy, Default)]
pub(crate) struct CutCounts {
    pub(crate) lives: u64,
    pub(crate) events: u64,
    pub(crate) cuts: u64,
    pub(crate) states_deep: u64,
}

/// Counts that have those of the cuts among them.
pub(crate) trait CutTotals: Counts {
    fn set_cuts(&mut self, cuts: CutCounts);
}

macro_rules! impl_cut_totals {
    ($($name:ty),*) => {$(
        impl CutTotals for $name {
            fn set_cuts(&mut self, CutCounts { lives, events, cuts, states_deep }: CutCounts) {
                (self.lives, self.events, self.cuts, self.states_deep) = (lives, events, cuts, states_deep);
            }
        }
    )*};
}
impl_cut_totals!(crate::FlashTotals, crate::FsTotals, crate::SqliteTotals, crate::UpdateTotals);

/// See the head of this file. `T` is what a campaign counts besides, `S` what a cut leaves.
pub(crate) struct Cuts<T, S = Left> {
    pub(crate) counts: CutCounts,
    pub(crate) totals: T,
    pub(crate) seen: BTreeSet<u64>,
    pub(crate) failure: Option<Wrong>,
    life: u32,
    event: u64,
    /// States of a life that were judged, and how many are at most: what comes later in it is judged in other lives.
    states_of_life: u64,
    states_max: u64,
    cuts_per_event: u32,
    random: Random,
    next: Option<S>,
}

impl<T: Default, S: CrashState> Cuts<T, S> {
    pub(crate) fn new(random: Random, states_max: u64, cuts_per_event: u32) -> Cuts<T, S> {
        Cuts {
            counts: CutCounts::default(),
            totals: T::default(),
            seen: BTreeSet::new(),
            failure: None,
            life: 0,
            event: 0,
            states_of_life: 0,
            states_max,
            cuts_per_event,
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
    pub(crate) fn take_next(&mut self) -> Option<S> {
        self.next.take().filter(|_| self.failure.is_none())
    }

    /// Cuts the power, on copies, and has each state judged that is new under what is promised now. The judge returns
    /// whether a life may begin with the state.
    pub(crate) fn at_event(
        &mut self,
        draw: Draw<'_, S>,
        promised: u64,
        mut judge: impl FnMut(&S, u64, &mut T) -> Result<bool, String>,
    ) {
        for _ in 0..self.cuts_per_event {
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

    /// What the run has found, which ended by itself or in a deadlock.
    pub(crate) fn end_run(&mut self, is_deadlock: bool, trace_hash: u64) -> Run<T>
    where
        T: CutTotals,
    {
        let mut totals = std::mem::take(&mut self.totals);
        totals.set_cuts(self.counts);
        let deadlock = || (0, 0, "a deadlock: every task waits, and no event is left".to_owned());
        let failure = self.failure.take().or_else(|| is_deadlock.then(deadlock)).map(Failure::new);
        Run { totals, seen: std::mem::take(&mut self.seen), failure, trace_hash }
    }

    /// Cuts the power, on a copy, at an event of a recovery: the state that is left, if it is new.
    pub(crate) fn at_recovery_event(&mut self, draw: Draw<'_, S>) -> Option<(S, u64)> {
        self.event += 1;
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
