//! One play: a filesystem on a ground, what is done there, and the power cuts.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use weir_fs::{BarrierFs, Engine};
use weir_runtime::{Handle, Runtime, Simulation};
use weir_storage::{BLOCK_BYTES, Recorder};

use super::cut::{Cut, CutName, StateName};
use super::found::Found;
use super::judge::{Defect, Judge, JudgedBy};
use super::operation::Operation;
use super::perform::{PlayError, perform};
use super::setup::{Bench, Setup};
use crate::bound::Bound;
use crate::fs::calls::{Calls, Outcome};
use crate::fs::ground::{Ground, Left, MayLeave};
use crate::fs::history::{Guarantees, History};
use crate::fs::run::{corrupts, mount, observe_zeros};
use crate::fs::visible::Visible;
use crate::model::Verdict;
use crate::request_log::LoggedStorage;

/// A filesystem that is being played on. See [`Bench::play`].
pub struct Session {
    pub(super) handle: Handle,
    setup: Setup,
    pub(super) ground: Ground,
    /// Stands below the filesystem, where its requests are logged.
    pub(super) logged: Option<Rc<LoggedStorage>>,
    fs: BarrierFs,
    calls: RefCell<Option<Calls>>,
    pub(super) judge: Rc<Judge>,
    cuts: Rc<Counts>,
    recorder: Option<Rc<Recorder>>,
}

/// Where a play is.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) event: Cell<u64>,
    pub(super) operations: Cell<usize>,
    /// Operations that found no space.
    no_space: Cell<usize>,
}

impl Bench {
    /// What decides its tests.
    #[must_use]
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Plays `work` on a filesystem of its own, which is new, in virtual time. A play is a function of the setup's seed.
    ///
    /// # Errors
    /// [`PlayError::Ground`] if the filesystem cannot be mounted there, if the play does not end, or if the storage has
    /// broken the order that it was asked for.
    pub fn play<T>(&self, work: impl AsyncFnOnce(&Session) -> T) -> Result<T, PlayError> {
        self.play_logged(false, work)
    }

    /// The same, where the requests of the filesystem can be logged.
    pub(super) fn play_logged<T>(
        &self,
        is_logged: bool,
        work: impl AsyncFnOnce(&Session) -> T,
    ) -> Result<T, PlayError> {
        let seed = self.setup.seed;
        let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
        let handle = runtime.handle();
        let bound = Bound::new();
        let played =
            bound.within(&handle, async { Ok::<_, Verdict>(self.play_on(&handle, is_logged, work).await) });
        match runtime.block_on(played) {
            Ok(Ok(played)) => played,
            Ok(Err(verdict)) => Err(PlayError::Ground(verdict.to_string())),
            Err(stalled) => Err(PlayError::Ground(format!("a deadlock: {stalled}"))),
        }
    }

    async fn play_on<T>(
        &self,
        handle: &Handle,
        is_logged: bool,
        work: impl AsyncFnOnce(&Session) -> T,
    ) -> Result<T, PlayError> {
        let failed = |what: String| PlayError::Ground(what);
        let recorder =
            matches!(self.setup.engine(), Engine::Dual { .. }).then(|| self.setup.ground.recorder());
        let ground = Ground::from_left(&self.base, handle, recorder.as_ref()).await;
        let mut ground = ground.map_err(|error| failed(error.to_string()))?;
        let logged = is_logged.then(|| ground.log_requests());
        let mounted = mount(handle, &ground, self.setup.options, recorder.clone()).await;
        let fs = mounted.map_err(|unfit| failed(unfit.into()))?;
        let session = self.session(handle, ground, fs, recorder).await.map_err(failed)?;
        let session = Session { logged, ..session };
        // Boxed, as futures within futures have a limit.
        let done = Box::pin(work(&session)).await;
        session.ground.rest();
        match session.recorder.as_ref().map(|recorder| recorder.check()) {
            Some(Err(violation)) => Err(failed(violation.to_string())),
            _ => Ok(done),
        }
    }

    async fn session(
        &self,
        handle: &Handle,
        ground: Ground,
        fs: BarrierFs,
        recorder: Option<Rc<Recorder>>,
    ) -> Result<Session, String> {
        let visible = Visible::read(&fs).await.map_err(|error| format!("reading: {error}"))?;
        let corrupts = corrupts(&ground);
        let tear_bytes = if corrupts { 512 } else { self.setup.tear_bytes as usize };
        let promised = Guarantees::from_engine(self.setup.engine(), self.setup.options.mode);
        let guarantees = Guarantees { tear_bytes, corrupts, ..promised };
        let history =
            History::from_visible(guarantees, &visible, &[]).map_err(|illegal| illegal.to_string())?;
        let (history, inodes) = (Rc::new(RefCell::new(history)), Rc::default());
        observe_zeros(&fs, &history, &inodes);
        let (tears, known) = (tear_bytes < BLOCK_BYTES, Rc::clone(&self.recoveries));
        let judge = Rc::new(Judge::new(self.setup, tears, Rc::clone(&history), known));
        let flushes = self.setup.engine().facts().flushes;
        let calls = Calls::new(fs.clone().into(), history, 0, inodes, Rc::default(), (flushes, 0));
        Ok(Session {
            handle: handle.clone(),
            setup: self.setup,
            ground,
            logged: None,
            fs,
            calls: RefCell::new(Some(calls)),
            judge,
            cuts: Rc::default(),
            recorder,
        })
    }
}

impl Session {
    /// Performs an operation, and has the model follow it; if it finds no space, as far as it was done.
    ///
    /// # Errors
    /// [`PlayError::Impossible`] if it cannot be done here, [`PlayError::Refused`] if the filesystem fails.
    pub async fn perform(&self, operation: &Operation) -> Result<Outcome, PlayError> {
        let busy = || PlayError::Ground("another operation is under way".to_owned());
        let mut calls = self.calls.borrow_mut().take().ok_or_else(busy)?;
        let nth = self.cuts.operations.get() + 1;
        self.cuts.operations.set(nth);
        self.judge.begins(operation);
        let done = perform(&mut calls, operation, nth, self.cuts.no_space.get()).await;
        if done == Ok(Outcome::NoSpace) {
            self.cuts.no_space.update(|operations| operations + 1);
        }
        *self.calls.borrow_mut() = Some(calls);
        self.judge.has_ended();
        // The storage may have no event before the one that keeps what the call has promised.
        self.ground.visit_now();
        done
    }

    /// Unmounts, which makes everything durable and ends the play.
    pub(super) async fn unmount(&self) -> Result<(), PlayError> {
        let busy = || PlayError::Ground("another operation is under way".to_owned());
        let mut calls = self.calls.borrow_mut().take().ok_or_else(busy)?;
        calls.unmount().await.map_err(PlayError::Ground)?;
        self.ground.visit_now();
        Ok(())
    }

    /// What a power cut leaves when everything is durable.
    pub(super) fn at_rest(&self) -> Option<Left> {
        let mut left = None;
        let mut random = self.handle.random("rest");
        self.ground.visit_states(&mut |may_leave| left = Some(may_leave.draw(&mut random)));
        left
    }

    /// The filesystem, for other calls. The model does not follow them and judges no more; state what they promise by
    /// [`promise`](Self::promise).
    #[must_use]
    pub fn filesystem(&self) -> &BarrierFs {
        self.judge.stop_judging();
        &self.fs
    }

    /// From now on, and at once, every power cut has to leave what `holds`; `what` says it.
    pub fn promise(&self, what: &str, holds: impl Fn(&Found) -> bool + 'static) {
        self.judge.promise(what, holds);
        self.ground.visit_now();
    }

    /// Lets virtual time pass: for commits, writeback and checkpoints in the background.
    pub async fn sleep(&self, time: Duration) {
        self.handle.sleep(time).await;
    }

    /// What a power cut now may leave: all of it if that are few states, otherwise some that are drawn. The play goes on
    /// as if nothing had happened.
    #[must_use]
    pub fn cut_now(&self) -> Vec<Cut> {
        let mut cuts = Vec::new();
        self.ground.visit_states(&mut |may_leave| cuts = self.cutter().cuts(may_leave));
        cuts
    }

    /// Calls `visit` with what a power cut may leave, as [`cut_now`](Self::cut_now) has it, at every event of the storage
    /// from now on, and whenever an operation or promise has been made. Those of one event may be equal.
    pub fn at_every_cut(&self, visit: impl FnMut(&Cut) + 'static) {
        let (cutter, visit) = (self.cutter(), RefCell::new(visit));
        self.ground.observe_states(move |may_leave| {
            for cut in cutter.cuts(may_leave) {
                (visit.borrow_mut())(&cut);
            }
        });
    }

    /// Calls `visit` at one event, if there is such an event.
    pub(super) fn at_event(&self, event: u64, visit: impl Fn(&Cutter, &MayLeave<'_>) + 'static) {
        let cutter = self.cutter();
        self.ground.observe_states(move |may_leave| {
            let now = cutter.counts.event.get() + 1;
            cutter.counts.event.set(now);
            if now == event {
                visit(&cutter, may_leave);
            }
        });
    }

    /// Reads the content as it is now.
    pub(super) async fn read_content(&self) -> Result<Found, Defect> {
        let visible = Visible::read(&self.fs).await;
        let visible =
            visible.map_err(|error| Defect::new(JudgedBy::Recovery, format!("reading: {error}")))?;
        Ok(Found(Rc::new(visible)))
    }

    /// Blocks of the filesystem that hold its journal.
    pub(super) fn journal(&self) -> Vec<Range<u64>> {
        self.fs.journal_area()
    }

    /// Whether what is read now, without any power cut, is what was written.
    ///
    /// # Errors
    /// What is [`Defect`].
    pub async fn judge_now(&self) -> Result<(), Defect> {
        let found = self.read_content().await?;
        if !self.judge.is_modelled() {
            return self.judge.judge(&found);
        }
        let judged = self.judge.history.borrow_mut().judge_now(&found.0);
        judged.map_err(|illegal| {
            let told = self.judge.describe(&illegal);
            Defect::new(JudgedBy::Model, format!("before any power cut: {told}"))
        })
    }

    /// A hash of all that has happened.
    pub(super) fn trace_hash(&self) -> u64 {
        self.handle.trace_hash()
    }

    fn cutter(&self) -> Cutter {
        Cutter {
            handle: self.handle.clone(),
            setup: self.setup,
            judge: Rc::clone(&self.judge),
            counts: Rc::clone(&self.cuts),
        }
    }
}

/// Makes cuts of what may be left.
pub(super) struct Cutter {
    handle: Handle,
    setup: Setup,
    judge: Rc<Judge>,
    counts: Rc<Counts>,
}

impl Cutter {
    /// The cuts of the next event.
    fn cuts(&self, may_leave: &MayLeave<'_>) -> Vec<Cut> {
        let event = self.counts.event.get() + 1;
        self.counts.event.set(event);
        let cut = |state| self.named(may_leave, &state);
        match may_leave.states() {
            None => (0..self.setup.samples).filter_map(|n| cut(StateName::Drawn(n))).collect(),
            Some(states) if states.count() <= u128::from(self.setup.exhaustive_max) => {
                let all = states.names().filter_map(|kept| cut(StateName::Kept(kept)));
                all.map(|cut| Cut { is_exhaustive: true, ..cut }).collect()
            }
            Some(states) => {
                let mut random = self.handle.random(&format!("cut {event}"));
                (0..self.setup.samples)
                    .filter_map(|_| cut(StateName::Kept(states.draw(&mut random))))
                    .collect()
            }
        }
    }

    /// The cut of this name at this event.
    pub(super) fn named(&self, may_leave: &MayLeave<'_>, state: &StateName) -> Option<Cut> {
        let event = self.counts.event.get();
        let (left, lost) = match state {
            StateName::Kept(kept) => (may_leave.named(kept)?, may_leave.states()?.lost(kept)),
            StateName::Drawn(_) if may_leave.states().is_some() => return None,
            StateName::Drawn(number) => {
                let mut random = self.handle.random(&format!("cut {event}, {number}"));
                (may_leave.draw(&mut random), Vec::new())
            }
        };
        let name = CutName { event, state: state.clone() };
        let (operations, judge) = (self.counts.operations.get(), Rc::clone(&self.judge));
        let (promised, origin) = (judge.promised(), judge.origin());
        let (lost, is_exhaustive) = (lost.into(), false);
        Some(Cut { name, left, lost, operations, is_exhaustive, promised, origin, judge })
    }
}
