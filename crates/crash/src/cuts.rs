//! The power cuts of one run, which is a sequence of rounds: which states they left, what of them was wrong, and from which
//! state the next round goes on.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use weir_flash::Medium;
use weir_runtime::{Handle, Random};

use crate::campaign::{Counts, Failure, Run};
use crate::content::mix;
use crate::fs::ground::{Ground, Left};

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

impl CrashState for Medium {
    fn hash(&self) -> u64 {
        self.hash()
    }
}

/// Draws what a power cut now would leave.
type Draw<'a, S> = &'a mut dyn FnMut(&mut Random) -> S;

/// See the head of this file. `T` is what a campaign counts besides, `S` what a cut leaves.
pub(crate) struct Cuts<T, S = Left> {
    pub(crate) totals: T,
    pub(crate) failure: Option<Failure>,
    seen: BTreeSet<u64>,
    rounds: u64,
    events: u64,
    cuts: u64,
    /// States of a second round or a later one.
    pub(crate) states_deep: u64,
    /// Different states that were left by a cut during recovery.
    states_recovery: u64,
    round: u32,
    event: u64,
    /// States of a round that were judged, and how many are at most: what comes later in it is judged in other rounds.
    states_of_round: u64,
    states_max: u64,
    cuts_per_event: u32,
    random: Random,
    next: Option<S>,
}

impl<T: Counts, S: CrashState> Cuts<T, S> {
    pub(crate) fn new(random: Random, states_max: u64, cuts_per_event: u32) -> Cuts<T, S> {
        Cuts {
            totals: T::default(),
            failure: None,
            seen: BTreeSet::new(),
            rounds: 0,
            events: 0,
            cuts: 0,
            states_deep: 0,
            states_recovery: 0,
            round: 0,
            event: 0,
            states_of_round: 0,
            states_max,
            cuts_per_event,
            random,
            next: None,
        }
    }

    /// Plays rounds until something is wrong: the first on `ground`, each other one on what `recover` makes of a state that
    /// a power cut of the round before has left.
    pub(crate) async fn play_rounds<G>(
        cuts: &RefCell<Cuts<T, S>>,
        rounds: u32,
        mut ground: G,
        mut play_round: impl AsyncFnMut(&G, u32) -> Result<(), String>,
        mut recover: impl AsyncFnMut(S) -> Result<G, String>,
    ) -> Result<(), String> {
        for round in 0..rounds {
            cuts.borrow_mut().begin_round(round);
            play_round(&ground, round).await?;
            let next = cuts.borrow_mut().take_next();
            let Some(left) = next else { break };
            ground = recover(left).await?;
        }
        Ok(())
    }

    fn begin_round(&mut self, round: u32) {
        (self.round, self.event, self.states_of_round) = (round, 0, 0);
        self.rounds += 1;
    }

    /// The first failure of a run counts.
    pub(crate) fn fail(&mut self, what: impl ToString) {
        let (round, event) = (self.round, self.event);
        self.failure.get_or_insert_with(|| Failure::new(round, event, what.to_string()));
    }

    /// Nothing more of this round is judged.
    pub(crate) fn is_over(&self) -> bool {
        self.failure.is_some() || self.states_of_round >= self.states_max
    }

    /// The state that the next round begins with, if nothing was wrong.
    fn take_next(&mut self) -> Option<S> {
        self.next.take().filter(|_| self.failure.is_none())
    }

    /// Cuts the power, on copies, and has each state judged that is new under what is promised now. The judge returns
    /// whether a round may begin with the state.
    pub(crate) fn at_event(
        &mut self,
        draw: Draw<'_, S>,
        promised: u64,
        mut judge: impl FnMut(&S, u64, &mut T) -> Result<bool, String>,
    ) {
        for _ in 0..self.cuts_per_event {
            let left = draw(&mut self.random);
            self.cuts += 1;
            let state = mix(left.hash(), promised);
            if !self.seen.insert(state) {
                continue;
            }
            self.states_deep += u64::from(self.round > 0);
            match judge(&left, state, &mut self.totals) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(what) => self.fail(what),
            }
            // Each state of a round is equally likely to be the one to go on from.
            self.states_of_round += 1;
            if self.random.below(self.states_of_round) == 0 {
                self.next = Some(left);
            }
        }
    }

    /// What the run has found. `ended` says whether it ended by itself or in a deadlock.
    pub(crate) fn end_run<E>(&mut self, ended: Result<Result<(), String>, E>, trace_hash: u64) -> Run<T> {
        match ended {
            Ok(Ok(())) => {}
            Ok(Err(what)) => self.fail(what),
            Err(_) => {
                let deadlock = "a deadlock: every task waits, and no event is left".to_owned();
                self.failure.get_or_insert_with(|| Failure::new(0, 0, deadlock));
            }
        }
        let mut totals = std::mem::take(&mut self.totals);
        let counts = [("runs", 1), ("rounds", self.rounds), ("events", self.events), ("cuts", self.cuts)];
        counts.into_iter().for_each(|(name, count)| totals.set(name, count));
        totals.set("states_deep", self.states_deep);
        totals.set("states_recovery", self.states_recovery);
        Run { totals, seen: std::mem::take(&mut self.seen), failure: self.failure.take(), trace_hash }
    }

    /// Cuts the power, on a copy, at an event of a recovery: the state that is left, if it is new.
    pub(crate) fn at_recovery_event(&mut self, draw: Draw<'_, S>) -> Option<(S, u64)> {
        self.event += 1;
        self.events += 1;
        let left = draw(&mut self.random);
        self.cuts += 1;
        let state = left.hash();
        let is_new = self.failure.is_none() && self.seen.insert(state);
        self.states_recovery += u64::from(is_new);
        is_new.then_some((left, state))
    }

    /// An event of the storage; whether it is worth a cut.
    pub(crate) fn sees_event(&mut self) -> bool {
        self.event += 1;
        self.events += 1;
        !self.is_over()
    }
}

impl<T: Counts + 'static> Cuts<T> {
    /// Powers up what is left, with the power cut again at events of the recovery: what is found is the same every time.
    /// `find` recovers a state in a runtime of its own, with this seed, and reads it; `mount` recovers and reads in this one.
    pub(crate) async fn recover<F, V: PartialEq + 'static>(
        cuts: &Rc<RefCell<Cuts<T>>>,
        handle: &Handle,
        left: &Left,
        find: impl Fn(&Left, u64) -> Result<V, String> + 'static,
        mount: impl AsyncFnOnce(&Ground) -> Result<(F, V), String>,
    ) -> Result<(Ground, F), String> {
        let expected = Rc::new(find(left, mix(left.hash(), 1))?);
        let ground = Ground::from_left(left, handle, None).await.map_err(|error| error.to_string())?;
        let (observed, same) = (Rc::clone(cuts), Rc::clone(&expected));
        let states_end = cuts.borrow().states_recovery + cuts.borrow().states_max;
        ground.observe(move |draw| {
            let cuts = &mut *observed.borrow_mut();
            if cuts.states_recovery >= states_end {
                return;
            }
            let Some((left, state)) = cuts.at_recovery_event(draw) else { return };
            match find(&left, state) {
                Ok(found) if found == *same => {}
                Ok(_) => cuts.fail("a second recovery found other content"),
                Err(what) => cuts.fail(format!("a second recovery: {what}")),
            }
        });
        let (fs, found) = mount(&ground).await?;
        ground.rest();
        match found == *expected {
            true => Ok((ground, fs)),
            false => Err("two recoveries of one state found different content".to_owned()),
        }
    }
}
