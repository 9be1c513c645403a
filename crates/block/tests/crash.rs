//! Random streams over the worst legal device, the power cut at every event, and S3 judged on what was
//! *issued*: I = P. The judge works from the test's own log and knows nothing of the layer or the device.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use weir_block::{BlockLayer, BlockMutant, BlockOptions, Class, Dispatch, ElevatorKind, Refused, Request};
use weir_runtime::{Handle, Random, Runtime, Simulation};
use weir_storage::{
    AdversaryDisk, AdversaryOptions, BLOCK_BYTES, Capabilities, Discard, Extent, Fault, Faults, Image, Lba,
    Ordering, Part, Recorder, Rejected, Rules, StreamId, Ticket,
};

const BLOCKS: u64 = 10;
const STREAMS: u64 = 2;
/// Runs of each device and elevator.
const SEEDS: u64 = 40;
const UNIT: usize = 512;

/// A stream's epoch, counted by the test.
type StreamEpoch = (StreamId, u64);

/// One write as it was issued. Its number is its place in the log plus one, and its content.
struct Issued {
    extent: Extent,
    stream: StreamId,
    /// Left only if all earlier epochs are: order-preserving writes.
    after_earlier: Option<StreamEpoch>,
    /// Left if anything of a later epoch is: order-preserving and promoted writes.
    before_later: Option<StreamEpoch>,
    ticket: Option<Ticket>,
    /// A flush was acknowledged that was issued after this was transferred.
    durable: bool,
}

#[derive(Default)]
struct Log {
    /// The device fails writes: order is no longer promised (S5), what was flushed still is.
    faulty: bool,
    writes: Vec<Issued>,
    epochs: BTreeMap<StreamId, u64>,
    states: u64,
    distinct: BTreeSet<u64>,
    verdict: Option<String>,
}

impl Log {
    fn epoch(&mut self, stream: StreamId) -> &mut u64 {
        self.epochs.entry(stream).or_default()
    }

    /// A barrier call covered `page`: what was orderless goes no later than the current epoch (E7).
    fn promoted(&mut self, stream: StreamId, page: Extent) {
        let epoch = *self.epoch(stream);
        for write in &mut self.writes {
            if write.stream == stream && write.before_later.is_none() && write.extent.overlaps(page) {
                write.before_later = Some((stream, epoch));
            }
        }
    }

    /// The newest version of a block.
    fn newest(&self, block: u64) -> u64 {
        let covers = |write: &Issued| write.extent.iter().any(|lba| lba.0 == block);
        self.writes.iter().rposition(covers).map_or(0, |index| index as u64 + 1)
    }

    /// S3 on what was issued: if anything of an epoch is left, everything of earlier epochs is applied, that
    /// is, this version or a later one; and what was acknowledged as durable is applied.
    fn judge(&mut self, image: &Image) {
        self.states += 1;
        self.distinct.insert(image.hash());
        let versions: Vec<Vec<u64>> = (0..BLOCKS).map(|block| versions(&image.read(Lba(block)))).collect();
        let mut reached: BTreeMap<StreamId, u64> = BTreeMap::new();
        for version in versions.iter().flatten().filter(|version| **version > 0) {
            let Some(write) = self.writes.get(*version as usize - 1) else {
                self.verdict.get_or_insert(format!("version {version} was never issued"));
                return;
            };
            if let Some((stream, epoch)) = write.after_earlier {
                let reached = reached.entry(stream).or_default();
                *reached = epoch.max(*reached);
            }
        }
        for (index, write) in self.writes.iter().enumerate() {
            let passed = |(stream, epoch)| reached.get(&stream).is_some_and(|reached| epoch < *reached);
            let earlier = !self.faulty && write.before_later.is_some_and(passed);
            if !earlier && !write.durable {
                continue;
            }
            let number = index as u64 + 1;
            let lost = |lba: &Lba| versions[lba.0 as usize].iter().any(|version| *version < number);
            if let Some(lba) = write.extent.iter().find(lost) {
                let why = if write.durable { "was flushed" } else { "is of an earlier epoch" };
                self.verdict.get_or_insert(format!("write {number} to {lba} {why}, and is lost"));
                return;
            }
        }
    }
}

/// The version in each tear unit of a block.
fn versions(block: &[u8]) -> Vec<u64> {
    let first = |unit: &[u8]| u64::from_le_bytes(unit[..8].try_into().expect("8 bytes"));
    let mut versions: Vec<u64> = block.chunks(UNIT).map(first).collect();
    versions.dedup();
    versions
}

fn content(number: u64, blocks: u32) -> Vec<u8> {
    number.to_le_bytes().repeat(blocks as usize * BLOCK_BYTES / 8)
}

/// One run's configuration.
#[derive(Clone, Copy, Debug)]
struct Run {
    seed: u64,
    ordering: Ordering,
    ordered_service: bool,
    elevator: ElevatorKind,
    mutant: Option<BlockMutant>,
    /// The device fails writes and flushes.
    faulty: bool,
}

struct Player {
    run: Run,
    handle: Handle,
    random: Random,
    layer: Rc<BlockLayer>,
    log: Rc<RefCell<Log>>,
}

impl Player {
    fn any_extent(&mut self) -> Extent {
        let blocks = 1 + self.random.below(2) as u32;
        Extent::new(Lba(self.random.below(BLOCKS - u64::from(blocks) + 1)), blocks)
    }

    fn any_stream(&mut self) -> StreamId {
        StreamId(self.random.below(STREAMS) as u32)
    }

    async fn step(&mut self) {
        match self.random.below(20) {
            0..=4 => self.write(Class::Orderless).await,
            5..=9 => self.write(Class::Ordered).await,
            10..=13 => self.write(Class::Barrier).await,
            14 => self.put_barrier().await,
            15 => self.read(),
            16 => self.flush(),
            17 => self.promote().await,
            18 if self.run.faulty => {
                let stream = self.any_stream();
                self.layer.reset(stream);
            }
            _ => {
                let pause = [0, 300, 3_000, 20_000][self.random.below(4) as usize];
                self.handle.sleep(Duration::from_nanos(pause)).await;
            }
        }
    }

    /// Issues a write somewhere, waiting for queue space only.
    async fn write(&mut self, class: Class) {
        let (extent, stream) = (self.any_extent(), self.any_stream());
        let (fua, preflush) = (self.random.below(16) == 0, self.random.below(16) == 0);
        while self.try_write(class, extent, stream, fua, preflush) == Err(Refused::Full) {
            self.layer.space().listen().await;
        }
    }

    /// Logs the write, then issues it: the device may show it before the layer has returned.
    fn try_write(
        &mut self,
        class: Class,
        extent: Extent,
        stream: StreamId,
        fua: bool,
        preflush: bool,
    ) -> Result<(), Refused> {
        let closes = u64::from(class == Class::Barrier);
        let number = {
            let mut log = self.log.borrow_mut();
            let epoch = *log.epoch(stream);
            *log.epoch(stream) += closes;
            let place = (class != Class::Orderless).then_some((stream, epoch));
            let ticket = None;
            let write =
                Issued { extent, stream, after_earlier: place, before_later: place, ticket, durable: false };
            log.writes.push(write);
            log.writes.len() as u64
        };
        let page = content(number, extent.blocks);
        let parts = [Part::bytes(extent.start, &page)];
        let request = Request { fua, preflush, ..Request::new(stream, class, &parts) };
        let answer = self.layer.try_submit(&request);
        let mut log = self.log.borrow_mut();
        match answer {
            Ok(ticket) => {
                log.writes[number as usize - 1].ticket = Some(ticket.clone());
                if fua {
                    self.acknowledge_fua(ticket, number);
                }
                Ok(())
            }
            Err(refused) => {
                assert!(refused == Refused::Full || self.run.faulty, "{refused}");
                log.writes.pop();
                *log.epoch(stream) -= closes;
                Err(refused)
            }
        }
    }

    fn acknowledge_fua(&self, ticket: Ticket, number: u64) {
        let log = Rc::clone(&self.log);
        drop(self.handle.spawn(async move {
            if ticket.transferred().await.is_ok() {
                log.borrow_mut().writes[number as usize - 1].durable = true;
            }
        }));
    }

    async fn put_barrier(&mut self) {
        let stream = self.any_stream();
        *self.log.borrow_mut().epoch(stream) += 1;
        let barrier = self.layer.when_space(|layer| layer.barrier(stream)).await;
        assert!(barrier.is_ok() || self.run.faulty, "{:?}", barrier.err());
    }

    /// A read finds exactly what was issued last before it (S6).
    fn read(&mut self) {
        let block = self.random.below(BLOCKS);
        let Ok(ticket) = self.layer.read(Extent::new(Lba(block), 1)) else { return };
        let log = Rc::clone(&self.log);
        let newest = log.borrow().newest(block);
        let faulty = self.run.faulty;
        drop(self.handle.spawn(async move {
            if ticket.transferred().await.is_ok() {
                let found = versions(&ticket.take_data().expect("data"));
                if found != [newest] && !faulty {
                    let verdict = format!("a read of block {block} found {found:?} instead of {newest}");
                    log.borrow_mut().verdict.get_or_insert(verdict);
                }
            }
        }));
    }

    fn flush(&mut self) {
        let transferred = |write: &Issued| {
            write.ticket.as_ref().is_some_and(|ticket| ticket.poll_transferred() == Some(Ok(())))
        };
        let covered: Vec<usize> = {
            let writes = &self.log.borrow().writes;
            (0..writes.len()).filter(|index| transferred(&writes[*index])).collect()
        };
        let Ok(ticket) = self.layer.flush() else { return };
        let log = Rc::clone(&self.log);
        drop(self.handle.spawn(async move {
            if ticket.transferred().await.is_ok() {
                let writes = &mut log.borrow_mut().writes;
                covered.into_iter().for_each(|index| writes[index].durable = true);
            }
        }));
    }

    /// A barrier call that covers a page under orderless writeback (E7).
    async fn promote(&mut self) {
        let (stream, page) = (self.any_stream(), self.any_extent());
        self.layer.promote(stream, &[page]);
        self.log.borrow_mut().promoted(stream, page);
        self.write(Class::Barrier).await;
    }
}

struct Outcome {
    states: u64,
    distinct: BTreeSet<u64>,
    verdict: Option<String>,
    trace: u64,
}

fn capabilities(run: &Run, random: &mut Random) -> Capabilities {
    Capabilities {
        ordering: run.ordering,
        ordered_service: run.ordered_service,
        fua: random.below(2) == 0,
        preflush: random.below(2) == 0,
        durable_tickets: random.below(2) == 0,
        discard: Discard::ReadsZero,
        ..Capabilities::legacy(
            [1, 2, 4, 32][random.below(4) as usize],
            16,
            [512, 4096][random.below(2) as usize],
        )
    }
}

fn play(run: Run) -> Outcome {
    let runtime = Runtime::simulated(Simulation { seed: run.seed, explore: true, ..Simulation::default() });
    let handle = runtime.handle();
    let mut random = handle.random("configuration");
    let busy = if random.below(3) == 0 { Fault::PerMillion(200_000) } else { Fault::Never };
    let error = if run.faulty { Fault::PerMillion(20_000) } else { Fault::Never };
    let disk = AdversaryDisk::new(
        &handle,
        AdversaryOptions {
            blocks: BLOCKS,
            capabilities: capabilities(&run, &mut random),
            latency_ns_max: [0, 100, 5_000][random.below(3) as usize],
            faults: Faults {
                busy,
                write_error: error,
                flush_error: error,
                read_error: error,
                ..Faults::default()
            },
            ..AdversaryOptions::default()
        },
    );
    let recorder = Recorder::new();
    if run.ordering != Ordering::Prefix {
        // A prefix device promises order by receipt: D = P, whatever the order of transfers.
        disk.set_recorder(Rc::clone(&recorder));
    }
    let legacy = run.ordering == Ordering::Legacy;
    let options = BlockOptions {
        elevator: run.elevator,
        dispatch: if legacy { Dispatch::Legacy } else { Dispatch::OrderPreserving },
        queue_requests: [1, 4, 64][random.below(3) as usize],
        closed_wait: Duration::from_nanos([0, 1_000, 1_000_000][random.below(3) as usize]),
        merge: random.below(2) == 0,
        busy_retry: Duration::from_micros(3),
        rules: Rules::but(run.mutant),
    };
    let storage = Rc::clone(&disk) as Rc<dyn weir_storage::Storage>;
    let layer = BlockLayer::recorded(&handle, storage, options, Some(Rc::clone(&recorder)))
        .expect("a fitting device");
    let log = Rc::new(RefCell::new(Log { faulty: run.faulty, ..Log::default() }));
    let cutter = RefCell::new(handle.random("cutter"));
    let judged = Rc::clone(&log);
    disk.observe(Box::new(move |disk| {
        let states = disk.crash_states();
        let mut log = judged.borrow_mut();
        if states.count() <= 16 {
            states.all().for_each(|image| log.judge(&image));
        } else {
            (0..12).for_each(|_| log.judge(&states.sample(&mut cutter.borrow_mut())));
        }
    }));
    let random = handle.random("player");
    let mut player =
        Player { run, handle: handle.clone(), random, layer: Rc::clone(&layer), log: Rc::clone(&log) };
    let end = runtime.block_on(async {
        for _ in 0..80 {
            player.step().await;
        }
        finish(&layer, &log, run.faulty).await;
        disk.crash_states().all().take(16).for_each(|image| log.borrow_mut().judge(&image));
    });
    let mut log = log.take();
    if let Err(stalled) = end {
        log.verdict.get_or_insert(stalled.to_string());
    }
    if let Err(violation) = recorder.check() {
        log.verdict.get_or_insert(violation.to_string());
    }
    Outcome {
        states: log.states,
        distinct: log.distinct,
        verdict: log.verdict,
        trace: runtime.handle().trace_hash(),
    }
}

/// Every ticket is answered in the end, and a last flush makes everything durable.
async fn finish(layer: &BlockLayer, log: &RefCell<Log>, faulty: bool) {
    let mut last: Vec<Ticket> = log.borrow().writes.iter().filter_map(|write| write.ticket.clone()).collect();
    for stream in 0..STREAMS {
        let stream = StreamId(stream as u32);
        layer.reset(stream);
        last.push(layer.when_space(|layer| layer.barrier(stream)).await.expect("a barrier"));
    }
    for ticket in last {
        let result = ticket.transferred().await;
        assert!(result.is_ok() || faulty, "{result:?}");
    }
    let flushed = match layer.when_space(|layer| layer.flush()).await {
        Ok(ticket) => ticket.transferred().await.map_err(Rejected::Failed),
        Err(rejected) => Err(rejected),
    };
    assert!(flushed.is_ok() || faulty, "{flushed:?}");
    if !faulty {
        log.borrow_mut().writes.iter_mut().for_each(|write| write.durable = true);
    }
}

const DEVICES: [(Ordering, bool); 4] = [
    (Ordering::Barrier, true),
    (Ordering::Barrier, false),
    (Ordering::Prefix, false),
    (Ordering::Legacy, false),
];
const ELEVATORS: [ElevatorKind; 3] = [ElevatorKind::Noop, ElevatorKind::Deadline, ElevatorKind::Fair];

/// All devices and elevators, `seeds` runs each.
fn runs(mutant: Option<BlockMutant>, seeds: u64) -> impl Iterator<Item = Run> {
    let kinds = DEVICES.into_iter().flat_map(|device| ELEVATORS.map(|elevator| (device, elevator)));
    (0..seeds).flat_map(move |seed| {
        kinds.clone().map(move |((ordering, ordered_service), elevator)| Run {
            seed,
            ordering,
            ordered_service,
            elevator,
            mutant,
            faulty: false,
        })
    })
}

/// I = P for every device, elevator and seed, whenever the power is cut.
#[test]
fn issue_order_survives_power_cuts() {
    let mut states = 0;
    let mut distinct = BTreeSet::new();
    for run in runs(None, SEEDS) {
        let outcome = play(run);
        assert_eq!(outcome.verdict, None, "{run:?}");
        states += outcome.states;
        distinct.extend(outcome.distinct);
    }
    assert!(distinct.len() > 50_000, "{} distinct crash states of {states}: too few", distinct.len());
}

/// The same campaign notices each layer that drops a rule which order depends on.
#[test]
fn the_campaign_kills_mutants() {
    for mutant in [
        BlockMutant::EpochsMixed,
        BlockMutant::FlagStays,
        BlockMutant::MergeDropsOrder,
        BlockMutant::SimplePriority,
        BlockMutant::BarrierRunsAhead,
        BlockMutant::FlushForgotten,
        BlockMutant::NoPromotion,
        BlockMutant::OverlapsReordered,
    ] {
        let killed = runs(Some(mutant), SEEDS).any(|run| play(run).verdict.is_some());
        assert!(killed, "{mutant:?} was not noticed");
    }
}

/// The campaign notices flushes that are acknowledged although what they cover is lost.
#[test]
fn a_lying_flush_is_noticed() {
    let mutant = Some(BlockMutant::FlushLies);
    let killed = runs(mutant, SEEDS).any(|run| play(Run { faulty: true, ..run }).verdict.is_some());
    assert!(killed);
}

/// A device that fails: every ticket is answered all the same, and nothing that was flushed is lost.
#[test]
fn a_failing_device_hangs_nobody_and_makes_no_flush_lie() {
    for run in runs(None, SEEDS) {
        let outcome = play(Run { faulty: true, ..run });
        assert_eq!(outcome.verdict, None, "{run:?}");
    }
}

/// A run is a function of its seed.
#[test]
fn runs_replay() {
    for run in runs(None, 2) {
        let (first, second) = (play(run), play(run));
        assert_eq!((first.trace, first.states), (second.trace, second.states), "{run:?}");
    }
}
