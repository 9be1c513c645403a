//! What a run, or a campaign of runs, has found.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt;
use std::rc::Rc;

use weir_runtime::{Handle, Random};
use weir_storage::{AdversaryDisk, CrashStates, Image};

use crate::campaign::{Failure, Run, counts};
use crate::content::mix;
use crate::model::Verdict;
use crate::options::EXHAUSTIVE_MAX;

counts! {
    /// Counts of a run, or of many. A *window* is what the disk may still lose at one event.
    pub struct Totals {
        /// Runs.
        pub runs: u64,
        /// Requests that were accepted.
        pub requests: u64,
        /// Events at which states were judged, those of recoveries not among them.
        pub events: u64,
        /// Of these, with at most [`EXHAUSTIVE_MAX`](crate::EXHAUSTIVE_MAX) states in the window.
        pub events_small: u64,
        /// Events at which all states were judged.
        pub events_exhaustive: u64,
        /// Events with a checkpoint in the window.
        pub events_checkpoint: u64,
        /// Events with moved blocks in the window.
        pub events_cleaning: u64,
        /// Power cuts, some of which left the same.
        pub cuts: u64,
        /// Different crash states, recovered and judged. The same image under a stronger promise is another.
        pub states_distinct: u64,
        /// Those with a checkpoint in the window.
        pub states_checkpoint: u64,
        /// Those with moved blocks in the window.
        pub states_cleaning: u64,
        /// Those with a share under way: submitted, and not acknowledged as durable.
        pub states_sharing: u64,
        /// Those left by a power cut during or after a first recovery.
        pub states_depth_1: u64,
        /// Those left by a power cut during or after the recovery of such a state.
        pub states_depth_2: u64,
        /// Recoveries with the power cut again at every event, and volumes that were then written on.
        pub rounds_continued: u64,
        /// Processes that ended without a power cut.
        pub restarts: u64,
    }
}

/// A state that is not allowed, and the cuts that led to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFailure {
    /// The event of the run at which the power was cut, from 1; then that of its recovery, and so on.
    pub events: Vec<u64>,
    /// What is wrong.
    pub verdict: Verdict,
}

impl fmt::Display for RunFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.events[..] {
            [] => write!(f, "without a power cut: {}", self.verdict),
            [event] => write!(f, "power cut at event {event}: {}", self.verdict),
            [first, later @ ..] => {
                write!(f, "power cut at event {first}")?;
                later.iter().try_for_each(|event| write!(f, ", then at event {event} of the next round"))?;
                write!(f, ": {}", self.verdict)
            }
        }
    }
}

/// When the power is cut, and what the window holds then.
#[derive(Clone, Copy)]
pub(crate) struct Moment {
    /// The event of this round's disk, or the end of a step between two of them, from 1.
    pub event: u64,
    /// Power cuts before this one.
    pub depth: u32,
    /// Requests acknowledged as durable.
    pub promised: u64,
    /// A checkpoint is in the window.
    pub checkpoint: bool,
    /// Moved blocks are in the window.
    pub cleaning: bool,
    /// A share was submitted that is not acknowledged as durable.
    pub sharing: bool,
}

/// How many states of a window are judged.
#[derive(Clone, Copy)]
pub(crate) struct StateLimits {
    /// All, of a window with so many at most.
    pub exhaustive_max: u64,
    /// So many, of any other one.
    pub samples: u64,
    /// Different states of the run, at most.
    pub states_max: u64,
}

/// Cuts the power of a disk, on paper.
pub(crate) type Observer = Rc<dyn Fn(&AdversaryDisk)>;

/// Calls `cut_power` at every event of a disk, and whenever what is returned is called. The events are numbered from 1.
pub(crate) fn observe_events(
    handle: &Handle,
    disk: &AdversaryDisk,
    cut_power: impl Fn(u64, &AdversaryDisk, &mut Random) + 'static,
) -> Observer {
    let random = RefCell::new(handle.random("crash states"));
    let event = Cell::new(0);
    let observer: Observer = Rc::new(move |disk| {
        event.set(event.get() + 1);
        cut_power(event.get(), disk, &mut random.borrow_mut());
    });
    let at_events = Rc::clone(&observer);
    disk.observe(Box::new(move |disk| at_events(disk)));
    observer
}

/// Judges states of a window: each once under what `promise` stands for, until the run is over.
pub(crate) fn judge_window(
    findings: &RefCell<Findings>,
    (moment, promise): (Moment, u64),
    states: &CrashStates,
    limits: StateLimits,
    random: &mut Random,
    mut judge: impl FnMut(&Image, &mut Random),
) {
    let exhaustive = states.count() <= u128::from(limits.exhaustive_max);
    if moment.depth == 0 {
        findings.borrow_mut().count_window(moment, states.count(), exhaustive);
    }
    let mut judge_new = |image: &Image, random: &mut Random| {
        let is_over = findings.borrow().is_over(limits.states_max);
        if !is_over && findings.borrow_mut().is_new(image.hash(), promise) {
            findings.borrow_mut().count_state(moment);
            judge(image, random);
        }
    };
    if exhaustive {
        states.all().for_each(|image| judge_new(&image, random));
    } else {
        (0..limits.samples).for_each(|_| judge_new(&states.sample(random), random));
    }
}

/// What one run has found.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// The counts.
    pub totals: Totals,
    /// The first failure; the run ends there.
    pub failure: Option<RunFailure>,
    /// Stands for everything that happened: equal runs, equal hash.
    pub trace_hash: u64,
    seen: BTreeSet<u64>,
}

impl Findings {
    /// What a campaign takes of a run with these options.
    pub(crate) fn into_run(self, options: &impl fmt::Debug) -> Run<Totals> {
        let Findings { totals, failure, trace_hash, seen } = self;
        let failure = failure.map(|failure| {
            let round = failure.events.len().saturating_sub(1) as u32;
            let event = failure.events.last().copied().unwrap_or(0);
            let story = format!("{options:#?}").lines().map(str::to_owned).collect();
            // A failure has the number of its round and of its event beside the text.
            let what = match failure.events[..] {
                [_] => failure.verdict.to_string(),
                _ => failure.to_string(),
            };
            Failure { story, ..Failure::new(round, event, what) }
        });
        Run { totals, seen, failure, trace_hash }
    }

    /// Whether the run has failed, or has judged so many states.
    pub(crate) fn is_over(&self, states_max: u64) -> bool {
        self.failure.is_some() || self.totals.states_distinct >= states_max
    }

    /// Whether this image was not yet seen under this promise.
    fn is_new(&mut self, image: u64, promise: u64) -> bool {
        self.totals.cuts += 1;
        self.seen.insert(mix(image, promise))
    }

    /// Counts a window with so many states.
    fn count_window(&mut self, moment: Moment, states: u128, exhaustive: bool) {
        self.totals.events += 1;
        self.totals.events_small += u64::from(states <= u128::from(EXHAUSTIVE_MAX));
        self.totals.events_exhaustive += u64::from(exhaustive);
        self.totals.events_checkpoint += u64::from(moment.checkpoint);
        self.totals.events_cleaning += u64::from(moment.cleaning);
    }

    /// Counts a distinct state.
    fn count_state(&mut self, moment: Moment) {
        self.totals.states_distinct += 1;
        self.totals.states_checkpoint += u64::from(moment.checkpoint);
        self.totals.states_cleaning += u64::from(moment.cleaning);
        self.totals.states_sharing += u64::from(moment.sharing);
        self.totals.states_depth_1 += u64::from(moment.depth == 1);
        self.totals.states_depth_2 += u64::from(moment.depth == 2);
    }

    pub(crate) fn fold(&mut self, word: u64) {
        self.trace_hash = mix(self.trace_hash, word);
    }

    pub(crate) fn fail(&mut self, events: Vec<u64>, verdict: Verdict) {
        self.failure.get_or_insert(RunFailure { events, verdict });
    }
}
