//! *Crash tests*: a number of power cuts in plays of a workload, what is left of each shown to four judges and counted as
//! clean, fixed or failed, as CrashMonkey counts.
//!
//! Which cuts: the workload is played with one seed after the other, and ends with an unmount, until there were as many
//! events of the storage as tests are wanted. An event is a command that is accepted, serviced or written back, or a call
//! that has returned. Of all these events so many are taken, evenly, and at each one state is drawn of those that a power
//! cut then may leave. The worst disk draws half of its states from the newest epoch, the others from an epoch of those
//! that may be cut, each as likely, and then what of the epoch is kept, with strong biases. (CrashMonkey's permuter draws
//! the epoch, each as likely, of all that the workload has had, how many requests of it are kept, and which.)

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::crashmonkey_check::CrashMonkeyCheck;
use super::cut::Cut;
use super::found::Found;
use super::parse::Workload;
use super::perform::PlayError;
use super::permuted_tests::log_play;
use super::session::Session;
use super::setup::Bench;
use crate::bound::in_new_runtime;
use crate::content::mix;
use crate::fs::ground::{Ground, Left, bytes_of};
use crate::fs::judges::{Condition, Judgement, Judges};
use crate::permuter::Overlaps;

/// Judgements of power cuts, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    judgements: Vec<Judgement>,
    states: BTreeSet<u64>,
}

impl Tally {
    /// Counts a test: what the judges say of a state, and its hash.
    pub fn add(&mut self, judgement: Judgement, state: u64) {
        self.judgements.push(judgement);
        self.states.insert(state);
    }

    /// Tests.
    #[must_use]
    pub fn tests(&self) -> u64 {
        self.judgements.len() as u64
    }

    /// Different states among them.
    #[must_use]
    pub fn states(&self) -> u64 {
        self.states.len() as u64
    }

    /// Tests of which all judges together say this.
    #[must_use]
    pub fn all(&self, condition: Condition) -> u64 {
        self.count(|judgement| judgement.all() == condition)
    }

    /// Tests of which CrashMonkey would say this; none where it was not asked.
    #[must_use]
    pub fn tested(&self, condition: Condition) -> u64 {
        self.count(|judgement| judgement.tested == Some(condition))
    }

    /// Tests of which each judge by itself says this; none for one who was not asked.
    #[must_use]
    pub fn by_judge(&self, condition: Condition) -> ByJudge {
        let asked = |judge: fn(&Judgement) -> Option<Condition>| {
            let is_there = self.judgements.iter().any(|judgement| judge(judgement).is_some());
            is_there.then(|| self.count(|judgement| judge(judgement) == Some(condition)))
        };
        ByJudge {
            model: self.count(|judgement| judgement.model == condition),
            check: self.count(|judgement| judgement.check == condition),
            e2fsck: asked(|judgement| judgement.e2fsck),
            kernel: asked(|judgement| judgement.kernel),
        }
    }

    fn count(&self, is: impl Fn(&Judgement) -> bool) -> u64 {
        self.judgements.iter().filter(|judgement| is(judgement)).count() as u64
    }
}

/// Tests that each judge says the same of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct ByJudge {
    /// Our model.
    pub model: u64,
    /// Our check of the format.
    pub check: u64,
    /// e2fsck; none where it was not asked.
    pub e2fsck: Option<u64>,
    /// The kernel; none where it was not asked.
    pub kernel: Option<u64>,
}

impl Bench {
    /// The same, on which `workload` has been done, and an unmount made all of it durable.
    ///
    /// # Errors
    /// [`PlayError`] if that cannot be done.
    pub fn after(mut self, workload: &Workload) -> Result<Bench, PlayError> {
        let left = self.play(async |session| {
            for operation in &workload.operations {
                session.perform(operation).await?;
            }
            session.unmount().await?;
            Ok::<_, PlayError>(session.at_rest())
        })??;
        self.base =
            left.ok_or_else(|| PlayError::Ground("the state of the ground cannot be read".to_owned()))?;
        Ok(self)
    }

    /// Makes so many crash tests of `workload`, or fewer if the log has fewer permutations, of which none comes twice. `check` is
    /// what CrashMonkey asks of what e2fsck has left. They are a function of the setup's seed, but for what outside judges say.
    ///
    /// # Errors
    /// [`PlayError`] if the workload cannot be done, or if something keeps a judge from judging.
    pub fn permuted_tests(
        &self,
        workload: &Workload,
        tests: u64,
        overlaps: Overlaps,
        judges: Judges,
        check: CrashMonkeyCheck,
    ) -> Result<Tally, PlayError> {
        log_play(self, workload)?.test(tests, overlaps, judges, check).map_err(PlayError::Ground)
    }

    /// Makes so many crash tests of `workload`. They are a function of the setup's seed, but for what outside judges say.
    ///
    /// # Errors
    /// [`PlayError`] if the workload cannot be done, or if something keeps a judge from judging.
    pub fn crash_tests(
        mut self,
        workload: &Workload,
        tests: u64,
        judges: Judges,
    ) -> Result<Tally, PlayError> {
        (self.setup.exhaustive_max, self.setup.samples) = (0, 1);
        let first = self.setup.seed;
        let mut plays: Vec<u64> = Vec::new();
        while plays.iter().sum::<u64>() < tests {
            self.setup.seed = mix(first, plays.len() as u64);
            plays.push(self.visit(workload, |_| {})?);
        }
        let events: u64 = plays.iter().sum();
        let drawn = Rc::new(RefCell::new(Drawn { judges, ..Drawn::default() }));
        for nth in 0..plays.len() as u64 {
            self.setup.seed = mix(first, nth);
            let drawn = Rc::clone(&drawn);
            self.visit(workload, move |cut| drawn.borrow_mut().meet(cut, tests, events))?;
        }
        let drawn = drawn.take();
        match drawn.failed {
            Some(what) => Err(PlayError::Ground(what)),
            None => Ok(drawn.tally),
        }
    }

    /// Plays once, and calls `visit` with a state at every event; how many there were.
    fn visit(&self, workload: &Workload, visit: impl Fn(&Cut) + 'static) -> Result<u64, PlayError> {
        let events = Rc::new(RefCell::new(0));
        let counted = Rc::clone(&events);
        self.play(async |session: &Session| {
            session.at_every_cut(move |cut| {
                *counted.borrow_mut() += 1;
                visit(cut);
            });
            for operation in &workload.operations {
                session.perform(operation).await?;
            }
            session.unmount().await
        })??;
        Ok(events.take())
    }
}

/// The tests so far.
#[derive(Default)]
struct Drawn {
    judges: Judges,
    /// Events that were met.
    met: u64,
    tally: Tally,
    /// What was said of states, with what was done and promised then.
    known: BTreeMap<(u64, usize), Judgement>,
    failed: Option<String>,
}

impl Drawn {
    /// Takes `tests` of `events` cuts, evenly.
    fn meet(&mut self, cut: &Cut, tests: u64, events: u64) {
        self.met += 1;
        let is_taken = self.met * tests / events > (self.met - 1) * tests / events;
        if !is_taken || self.failed.is_some() {
            return;
        }
        match self.judgement(cut) {
            Ok(judgement) => self.tally.add(judgement, cut.hash()),
            Err(what) => self.failed = Some(what),
        }
    }

    fn judgement(&mut self, cut: &Cut) -> Result<Judgement, String> {
        let key = (cut.identity(), cut.operations());
        if let Some(known) = self.known.get(&key) {
            return Ok(*known);
        }
        let is_allowed = |found: &Found| cut.judge.judge(found).is_ok();
        let judgement = self.judges.judge(&bytes_left(&cut.left)?, &is_allowed)?;
        self.known.insert(key, judgement);
        Ok(judgement)
    }
}

/// The filesystem's blocks when the power is back, of which nothing is recovered.
fn bytes_left(left: &Left) -> Result<Vec<u8>, String> {
    in_new_runtime(left.hash(), async |handle| {
        let ground = Ground::from_left(left, handle, None).await.map_err(|error| error.to_string())?;
        bytes_of(&*ground.storage()).await.map_err(|error| error.to_string())
    })
}
