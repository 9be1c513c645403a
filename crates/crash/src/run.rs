//! One run: a workload on a volume over the adversary disk, and at every event of the disk the question
//! what would be left if the power were cut now.
//!
//! A state that was not seen before is recovered in a runtime of its own and judged. Some recoveries lose
//! power themselves at every event, and so do some of *their* recoveries (depth 2); afterwards these
//! volumes are written on, with the power cut again at every event: what lay behind the first cut may never
//! come back (V1).

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use weir_runtime::{Handle, Random, Runtime, Simulation};
use weir_storage::{AdversaryDisk, CrashStates, Image};
use weir_volume::{Volume, inspect};

use crate::bound::{Bound, Bounded};
use crate::content::mix;
use crate::findings::Findings;
use crate::model::{Model, Verdict};
use crate::options::RunOptions;
use crate::player::{Player, Span, Step, failed};
use crate::reader::{Reader, Reading};
use crate::recovery::{recover, runtime_for};
use crate::request_history::RequestHistory;
use crate::window::{Tap, Window};

/// Power cuts behind one another at most: of the run, of its recovery, and of the recovery of that.
const DEPTH_MAX: u32 = 2;
/// Steps on a volume that was recovered.
const STEPS_CONTINUED: u64 = 12;

/// Runs one workload and judges its crash states.
#[must_use]
pub fn run(options: &RunOptions) -> Findings {
    let run = Rc::new(Run {
        options: options.clone(),
        findings: RefCell::default(),
        range: RefCell::new(Span { blocks: 0, stride: options.stride }),
        warm: Cell::new(options.warm_up == 0),
    });
    let runtime =
        Runtime::simulated(Simulation { seed: options.seed, explore: options.explore, cores: None });
    let life = Life { run: Rc::clone(&run), depth: 0, events: Vec::new() };
    let handle = runtime.handle();
    let bound = Bound::new();
    let outcome = runtime.block_on(bound.within(&handle, run.whole(&handle, &life, &bound)));
    run.settle(&life.events, outcome);
    run.findings.borrow_mut().fold(handle.trace_hash());
    drop(runtime);
    let mut findings = run.findings.take();
    findings.totals.runs = 1;
    findings
}

/// What all lives of a run share.
struct Run {
    options: RunOptions,
    findings: RefCell<Findings>,
    range: RefCell<Span>,
    /// The warm-up is over.
    warm: Cell<bool>,
}

/// A volume from one opening to the next power cut.
#[derive(Clone)]
struct Life {
    run: Rc<Run>,
    /// Power cuts that led here.
    depth: u32,
    /// The events of those power cuts.
    events: Vec<u64>,
}

/// What a life is lived on.
struct LifeContext {
    handle: Handle,
    disk: Rc<AdversaryDisk>,
    window: Rc<Window>,
    history: Rc<RefCell<RequestHistory>>,
    bound: Rc<Bound>,
    look: Observer,
}

/// Cuts the power of a disk.
type Observer = Rc<dyn Fn(&AdversaryDisk)>;

/// When the power is cut, and what is at stake.
#[derive(Clone, Copy)]
pub(crate) struct Moment {
    /// The event of this life's disk, or the look between two of them, from 1.
    pub event: u64,
    /// Requests acknowledged as durable.
    pub promised: u64,
    /// A checkpoint is in the window.
    pub checkpoint: bool,
    /// Moved blocks are in the window.
    pub cleaning: bool,
    /// A share was submitted that is not acknowledged as durable.
    pub sharing: bool,
}

impl Run {
    fn range(&self) -> Span {
        *self.range.borrow()
    }

    /// Whether the run has found a failure or enough.
    fn is_over(&self) -> bool {
        let findings = self.findings.borrow();
        findings.failure.is_some() || findings.totals.states_distinct >= self.options.states_max
    }

    fn settle<E: std::error::Error>(&self, events: &[u64], outcome: Result<Result<(), Verdict>, E>) {
        let verdict = match outcome {
            Ok(Ok(())) => return,
            Ok(Err(verdict)) => verdict,
            Err(stalled) => failed("waiting", &stalled),
        };
        self.findings.borrow_mut().fail(events.to_vec(), verdict);
    }

    /// Makes a volume and plays the workload, through as many openings as it has restarts.
    async fn whole(&self, handle: &Handle, life: &Life, bound: &Rc<Bound>) -> Result<(), Verdict> {
        let disk = AdversaryDisk::new(handle, self.options.adversary());
        Volume::create(handle, &*disk, self.options.format())
            .await
            .map_err(|error| failed("making the volume", &error))?;
        let info = inspect(&*disk).await.map_err(|error| failed("looking at the volume", &error))?;
        let range = Span::of(&self.options, info.usable_blocks, info.logical_blocks);
        *self.range.borrow_mut() = range;
        let history = Rc::new(RefCell::new(RequestHistory::new(Model::new(range.blocks))));
        let (window, look) = life.watch(handle, &disk, &history);
        let bound = Rc::clone(bound);
        let ground = LifeContext { handle: handle.clone(), disk, window, history, bound, look };
        self.play(&ground, self.options.steps).await
    }

    /// Opens the volume and goes on for `steps` steps.
    async fn play(&self, ground: &LifeContext, steps: u64) -> Result<(), Verdict> {
        let LifeContext { handle, history, window, .. } = ground;
        let mut volume = self.open(ground).await?;
        let mut reading = self.read_beside(ground, &volume, steps);
        let random = handle.random("player");
        let mut player = Player {
            options: &self.options,
            handle: handle.clone(),
            random,
            range: self.range(),
            history: Rc::clone(history),
            window: Rc::clone(window),
        };
        for step in 0..steps {
            self.warm.set(self.warm.get() || step >= self.options.warm_up);
            if self.is_over() {
                break;
            }
            let before = history.borrow().model.requests();
            if player.step(&volume).await? == Step::Restart {
                self.end_process(handle, volume, reading).await?;
                volume = self.open(ground).await?;
                reading = self.read_beside(ground, &volume, steps - step);
                self.findings.borrow_mut().totals.restarts += 1;
                continue;
            }
            // What the step was promised may hold at the next event only.
            (ground.look)(&ground.disk);
            let accepted = history.borrow().model.requests() - before;
            self.findings.borrow_mut().totals.requests += accepted;
        }
        match reading {
            Some(reading) => reading.finish().await,
            None => Ok(()),
        }
    }

    /// Starts the second task, if the run has one.
    fn read_beside(&self, ground: &LifeContext, volume: &Rc<Bounded<Volume>>, steps: u64) -> Option<Reading> {
        let reader = |checkpoints| Reader {
            handle: ground.handle.clone(),
            random: ground.handle.random("reader"),
            range: self.range(),
            volume: Rc::clone(volume),
            history: Rc::clone(&ground.history),
            window: Rc::clone(&ground.window),
            steps,
            pause_ns_max: self.options.pause_ns_max.max(self.options.latency_ns_max),
            checkpoints,
        };
        self.options.reader.map(|checkpoints| reader(checkpoints).start())
    }

    /// The process ends, the disk does not: what is on its way arrives, and nothing is flushed.
    async fn end_process(
        &self,
        handle: &Handle,
        volume: Rc<Bounded<Volume>>,
        reading: Option<Reading>,
    ) -> Result<(), Verdict> {
        if let Some(reading) = reading {
            reading.kill().await?;
        }
        drop(volume);
        handle.sleep(Duration::from_nanos(self.options.latency_ns_max + 1)).await;
        Ok(())
    }

    /// Recovers and judges; what is left is the past from now on.
    async fn open(&self, ground: &LifeContext) -> Result<Rc<Bounded<Volume>>, Verdict> {
        let LifeContext { handle, disk, window, history, bound, .. } = ground;
        let _reading = window.user_reads();
        let tap = Rc::new(Tap {
            disk: Rc::clone(disk),
            window: Rc::clone(window),
            ignores_flushes: self.options.ignores_flushes,
        });
        let volume = Volume::open(handle, bound.around(tap), self.options.volume.clone()).await;
        let volume = volume.map_err(|error| failed("recovery", &error))?;
        history.borrow_mut().promised();
        let stamps = self.range().read_and_count(&volume, || volume.stats().live_blocks).await?;
        let left = history.borrow().judge(&stamps)?;
        history.borrow_mut().decided(left, handle.seed());
        Ok(bound.around(Rc::new(volume)))
    }
}

impl Life {
    /// Cuts the power, on paper, at every event of `disk` from now on, and at every look.
    fn watch(
        &self,
        handle: &Handle,
        disk: &AdversaryDisk,
        history: &Rc<RefCell<RequestHistory>>,
    ) -> (Rc<Window>, Observer) {
        let options = &self.run.options;
        let window = Rc::new(Window::new(options.segments_start()));
        let (life, history, seen) = (self.clone(), Rc::clone(history), Rc::clone(&window));
        let random = RefCell::new(handle.random("crash states"));
        let event = Cell::new(0);
        let look: Observer = Rc::new(move |disk| {
            event.set(event.get() + 1);
            if life.run.warm.get() && !life.run.is_over() {
                let (checkpoint, cleaning) = seen.contents();
                let promised = history.borrow_mut().promised();
                let sharing = history.borrow().model.last_share() > promised;
                let moment = Moment { event: event.get(), promised, checkpoint, cleaning, sharing };
                life.cut(moment, &disk.crash_states(), &history, &mut random.borrow_mut());
            }
        });
        let at_events = Rc::clone(&look);
        disk.observe(Box::new(move |disk| at_events(disk)));
        (window, look)
    }

    /// The power is cut at this moment.
    fn cut(
        &self,
        moment: Moment,
        states: &CrashStates,
        history: &RefCell<RequestHistory>,
        random: &mut Random,
    ) {
        let options = &self.run.options;
        // A recovery has many events, and there are many recoveries: one state of some of their windows.
        let (exhaustive_max, samples) = match self.depth {
            0 => (options.exhaustive_max, options.samples),
            _ => (2, u64::from(random.below(2) == 0)),
        };
        let samples = if moment.checkpoint || moment.cleaning { 4 * samples } else { samples };
        let exhaustive = states.count() <= u128::from(exhaustive_max);
        if self.depth == 0 {
            self.run.findings.borrow_mut().count_window(moment, states.count(), exhaustive);
        }
        let look_at = |image: &Image, random: &mut Random| {
            let life = mix(history.borrow().life(), moment.promised);
            let new = !self.run.is_over() && self.run.findings.borrow_mut().is_new(image.hash(), life);
            if new {
                self.run.findings.borrow_mut().count_state(moment, self.depth);
                self.examine(moment.event, image, history, random);
            }
        };
        if exhaustive {
            states.all().for_each(|image| look_at(&image, random));
        } else {
            (0..samples).for_each(|_| look_at(&states.sample(random), random));
        }
    }

    /// Recovers from `image` and judges what is left; now and then with the power cut again.
    fn examine(&self, event: u64, image: &Image, history: &RefCell<RequestHistory>, random: &mut Random) {
        let run = &self.run;
        let events: Vec<u64> = self.events.iter().copied().chain([event]).collect();
        if self.depth < DEPTH_MAX && random.below(run.options.deeper) == 0 {
            return self.live_on(events, image, history);
        }
        let recovered = recover(&run.options, image, run.range());
        let verdict = recovered.stamps.and_then(|stamps| history.borrow().judge(&stamps));
        let mut findings = run.findings.borrow_mut();
        findings.fold(recovered.trace_hash);
        if let Err(verdict) = verdict {
            findings.fail(events, verdict);
        }
    }

    /// Recovers from `image` with the power cut at every event, then writes on, likewise.
    fn live_on(&self, events: Vec<u64>, image: &Image, history: &RefCell<RequestHistory>) {
        let run = &self.run;
        let runtime = runtime_for(&run.options, image);
        let handle = runtime.handle();
        let disk = AdversaryDisk::from_image(&handle, run.options.adversary(), image);
        let life = Life { run: Rc::clone(run), depth: self.depth + 1, events };
        let fork = Rc::new(RefCell::new(history.borrow().fork()));
        let (window, look) = life.watch(&handle, &disk, &fork);
        let bound = Bound::new();
        let ground = LifeContext {
            handle: handle.clone(),
            disk,
            window,
            history: fork,
            bound: Rc::clone(&bound),
            look,
        };
        let outcome = runtime.block_on(bound.within(&handle, run.play(&ground, STEPS_CONTINUED)));
        run.settle(&life.events, outcome);
        let mut findings = run.findings.borrow_mut();
        findings.totals.lives_continued += 1;
        findings.fold(handle.trace_hash());
    }
}
