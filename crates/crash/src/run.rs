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
use weir_volume::Volume;

use crate::bound::{Bound, Bounded};
use crate::content::mix;
use crate::findings::{Findings, Moment, Observer, StateLimits, judge_window, observe_events};
use crate::model::{Model, Verdict};
use crate::options::RunOptions;
use crate::player::{Player, Span, Step, failed, make_volume};
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
        range: Cell::new(Span { blocks: 0, stride: options.stride }),
        warm: Cell::new(options.warm_up == 0),
    });
    let runtime =
        Runtime::simulated(Simulation { seed: options.seed, explore: options.explore, cores: None });
    let round = Round { run: Rc::clone(&run), events: Vec::new() };
    let handle = runtime.handle();
    let bound = Bound::new();
    let outcome = runtime.block_on(bound.within(&handle, run.play_all(&handle, &round, &bound)));
    run.settle(&round.events, outcome);
    run.findings.borrow_mut().fold(handle.trace_hash());
    drop(runtime);
    let mut findings = run.findings.take();
    findings.totals.runs = 1;
    findings
}

/// What all rounds of a run share.
struct Run {
    options: RunOptions,
    findings: RefCell<Findings>,
    range: Cell<Span>,
    /// The warm-up is over.
    warm: Cell<bool>,
}

/// A volume from one power-up to the next power cut.
#[derive(Clone)]
struct Round {
    run: Rc<Run>,
    /// The events of the power cuts that led here.
    events: Vec<u64>,
}

/// What a round is played on.
struct VolumeGround {
    handle: Handle,
    disk: Rc<AdversaryDisk>,
    window: Rc<Window>,
    history: Rc<RefCell<RequestHistory>>,
    bound: Rc<Bound>,
    observer: Observer,
}

impl Run {
    /// Whether the run has found a failure or enough.
    fn is_over(&self) -> bool {
        self.findings.borrow().is_over(self.options.states_max)
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
    async fn play_all(&self, handle: &Handle, round: &Round, bound: &Rc<Bound>) -> Result<(), Verdict> {
        let (disk, range) = make_volume(handle, &self.options).await?;
        self.range.set(range);
        let history = RequestHistory::new(Model::new(range.blocks));
        self.play(&round.on(handle, disk, history, bound), self.options.steps).await
    }

    /// Opens the volume and goes on for `steps` steps.
    async fn play(&self, ground: &VolumeGround, steps: u64) -> Result<(), Verdict> {
        let VolumeGround { handle, history, window, .. } = ground;
        let mut volume = self.open(ground).await?;
        let mut reading = self.start_reader(ground, &volume, steps);
        let random = handle.random("player");
        let mut player = Player {
            options: &self.options,
            handle: handle.clone(),
            random,
            range: self.range.get(),
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
                reading = self.start_reader(ground, &volume, steps - step);
                self.findings.borrow_mut().totals.restarts += 1;
                continue;
            }
            // What the step was promised may hold at the next event only.
            (ground.observer)(&ground.disk);
            let accepted = history.borrow().model.requests() - before;
            self.findings.borrow_mut().totals.requests += accepted;
        }
        match reading {
            Some(reading) => reading.finish().await,
            None => Ok(()),
        }
    }

    /// Starts the second task, if the run has one.
    fn start_reader(
        &self,
        ground: &VolumeGround,
        volume: &Rc<Bounded<Volume>>,
        steps: u64,
    ) -> Option<Reading> {
        let reader = |checkpoints| Reader {
            handle: ground.handle.clone(),
            random: ground.handle.random("reader"),
            range: self.range.get(),
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
    async fn open(&self, ground: &VolumeGround) -> Result<Rc<Bounded<Volume>>, Verdict> {
        let VolumeGround { handle, disk, window, history, bound, .. } = ground;
        let _reading = window.user_reads();
        let volume = Tap::open_volume(handle, &self.options, (disk, window), bound).await;
        let volume = volume.map_err(|error| failed("recovery", &error))?;
        history.borrow_mut().promised();
        let stamps = self.range.get().read_and_count(&volume, || volume.stats().live_blocks).await?;
        let left = history.borrow().judge(&stamps)?;
        history.borrow_mut().forget_lost(left, handle.seed());
        Ok(bound.around(Rc::new(volume)))
    }
}

impl Round {
    /// A disk whose power is cut, on paper, at every event from now on, and whenever the observer is called.
    fn on(
        &self,
        handle: &Handle,
        disk: Rc<AdversaryDisk>,
        history: RequestHistory,
        bound: &Rc<Bound>,
    ) -> VolumeGround {
        let window = Rc::new(Window::new(self.run.options.segments_start()));
        let history = Rc::new(RefCell::new(history));
        let (round, past, seen) = (self.clone(), Rc::clone(&history), Rc::clone(&window));
        let observer = observe_events(handle, &disk, move |event, disk, random| {
            if round.run.warm.get() && !round.run.is_over() {
                let (checkpoint, cleaning) = seen.contents();
                let promised = past.borrow_mut().promised();
                let sharing = past.borrow().model.last_share() > promised;
                let depth = round.events.len() as u32;
                let moment = Moment { event, depth, promised, checkpoint, cleaning, sharing };
                round.cut(moment, &disk.crash_states(), &past, random);
            }
        });
        VolumeGround { handle: handle.clone(), disk, window, history, bound: Rc::clone(bound), observer }
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
        let (exhaustive_max, samples) = match moment.depth {
            0 => (options.exhaustive_max, options.samples),
            _ => (2, u64::from(random.below(2) == 0)),
        };
        let samples = if moment.checkpoint || moment.cleaning { 4 * samples } else { samples };
        let limits = StateLimits { exhaustive_max, samples, states_max: options.states_max };
        let promise = mix(history.borrow().past(), moment.promised);
        judge_window(&self.run.findings, (moment, promise), states, limits, random, |image, random| {
            self.judge(moment, image, history, random);
        });
    }

    /// Recovers from `image` and judges what is left; now and then with the power cut again.
    fn judge(&self, moment: Moment, image: &Image, history: &RefCell<RequestHistory>, random: &mut Random) {
        let run = &self.run;
        let events: Vec<u64> = self.events.iter().copied().chain([moment.event]).collect();
        if moment.depth < DEPTH_MAX && random.below(run.options.deeper) == 0 {
            return self.continue_from(events, image, history);
        }
        let recovered = recover(&run.options, image, run.range.get());
        let verdict = recovered.stamps.and_then(|stamps| history.borrow().judge(&stamps));
        let mut findings = run.findings.borrow_mut();
        findings.fold(recovered.trace_hash);
        if let Err(verdict) = verdict {
            findings.fail(events, verdict);
        }
    }

    /// Recovers from `image` and plays another round, with the power cut at every event of both.
    fn continue_from(&self, events: Vec<u64>, image: &Image, history: &RefCell<RequestHistory>) {
        let run = &self.run;
        let runtime = runtime_for(&run.options, image);
        let handle = runtime.handle();
        let disk = AdversaryDisk::from_image(&handle, run.options.adversary(), image);
        let round = Round { run: Rc::clone(run), events };
        let bound = Bound::new();
        let ground = round.on(&handle, disk, history.borrow().fork(), &bound);
        let outcome = runtime.block_on(bound.within(&handle, run.play(&ground, STEPS_CONTINUED)));
        run.settle(&round.events, outcome);
        let mut findings = run.findings.borrow_mut();
        findings.totals.rounds_continued += 1;
        findings.fold(handle.trace_hash());
    }
}
