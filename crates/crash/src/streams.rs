//! The block layer above a volume: streams of orderless, order-preserving and barrier writes through an
//! elevator, the power cut at every event, and S3 judged on what was *issued*.
//!
//! The judge knows the requests as they were issued and what was acknowledged, and nothing of elevators,
//! queues or logs: a write of an epoch may be left only if everything of its stream's earlier epochs is,
//! each in its own or a later version; what was flushed is left; and requests are left whole or not at all.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use weir_block::{BlockLayer, BlockOptions, Class, Dispatch, ElevatorKind, Refused, Request};
use weir_runtime::{Handle, Random, Runtime, Simulation};
use weir_storage::{CrashStates, Lba, Part, Recorder, Storage, StreamId, Ticket};

use crate::bound::Bound;
use crate::campaign::{Campaign, Plan, Run};
use crate::content::{Stamp, mix, push_page};
use crate::findings::{Findings, Moment, StateLimits, Totals, judge_window, observe_events};
use crate::model::{Verdict, Why};
use crate::options::{RunOptions, pick};
use crate::player::{Span, failed, make_volume};
use crate::recovery::recover;
use crate::window::{Tap, Window};

/// Blocks that all streams write to, at most: few, so that writes overlap.
const HOT_BLOCKS: u64 = 24;

/// Epochs of a stream are numbered from 0.
type StreamEpoch = (StreamId, u64);

/// Everything that decides a run through the block layer.
#[derive(Clone, Debug)]
pub struct StreamOptions {
    /// The volume and the disk below; its mix of steps is not used.
    pub below: RunOptions,
    /// The block layer.
    pub block: BlockOptions,
    /// Streams, 1 and more.
    pub streams: u64,
}

impl StreamOptions {
    /// Draws the options of a run from its seed.
    #[must_use]
    pub fn draw(seed: u64, elevator: ElevatorKind) -> StreamOptions {
        let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
        let random = &mut runtime.handle().random("stream swarm");
        let below =
            RunOptions { stride: 1, warm_up: 0, steps: 300, states_max: 400, ..RunOptions::draw(seed) };
        let block = BlockOptions {
            elevator,
            dispatch: pick(random, &[Dispatch::OrderPreserving, Dispatch::OrderPreserving, Dispatch::Legacy]),
            queue_requests: pick(random, &[1, 4, 64]),
            closed_wait: Duration::from_nanos(pick(random, &[0, 1_000, 1_000_000])),
            merge: random.below(2) == 0,
            busy_retry: Duration::from_micros(3),
            ..BlockOptions::default()
        };
        StreamOptions { below, block, streams: 1 + random.below(3) }
    }
}

/// A campaign of runs through the block layer, with each elevator in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamCampaign {
    /// How long it is.
    pub plan: Plan,
    /// The disk acknowledges flushes and does nothing: the negative control.
    pub ignores_flushes: bool,
}

impl Campaign for StreamCampaign {
    type Totals = Totals;
    type Beginning = ();

    fn plan(&self) -> Plan {
        self.plan
    }

    fn prepare(&self) -> Result<(), String> {
        Ok(())
    }

    fn play_run(&self, (): &(), number: u64, seed: u64) -> Run<Totals> {
        let elevators = [ElevatorKind::Noop, ElevatorKind::Deadline, ElevatorKind::Fair];
        let mut options = StreamOptions::draw(seed, elevators[(number % 3) as usize]);
        options.below.ignores_flushes = self.ignores_flushes;
        run_streams(&options).into_run(&options)
    }
}

/// One write as it was issued; its stamp is its place in the log plus one.
struct Issued {
    blocks: Range<u64>,
    /// Its epoch, if it is order-preserving.
    place: Option<StreamEpoch>,
    ticket: Option<Ticket>,
    fua: bool,
    durable: bool,
}

/// What was issued and what was acknowledged.
#[derive(Default)]
struct Log {
    writes: Vec<Issued>,
    epochs: BTreeMap<StreamId, u64>,
    /// Flushes in flight, and the writes that were transferred when they were issued.
    flushes: Vec<(Vec<usize>, Ticket)>,
    /// Counts promises: equal images under different promises are different states.
    promises: u64,
}

impl Log {
    fn epoch(&mut self, stream: StreamId) -> &mut u64 {
        self.epochs.entry(stream).or_default()
    }

    /// Takes note of what is promised at this moment.
    fn refresh(&mut self) {
        for write in self.writes.iter_mut().filter(|write| write.fua && !write.durable) {
            write.durable = write.ticket.as_ref().and_then(Ticket::poll_transferred) == Some(Ok(()));
            self.promises += u64::from(write.durable);
        }
        let (writes, promises) = (&mut self.writes, &mut self.promises);
        self.flushes.retain(|(covered, ticket)| {
            let answer = ticket.poll_transferred();
            if answer == Some(Ok(())) {
                covered.iter().for_each(|index| writes[*index].durable = true);
                *promises += 1;
            }
            answer.is_none()
        });
    }

    fn judge(&self, found: &[Stamp]) -> Result<(), Verdict> {
        let mut reached: BTreeMap<StreamId, u64> = BTreeMap::new();
        for (block, stamp) in (0..).zip(found).filter(|(_, stamp)| **stamp > 0) {
            let write = self.writes.get(*stamp as usize - 1).filter(|write| write.blocks.contains(&block));
            let write = write.ok_or(Verdict::Foreign(block))?;
            if let Some((stream, epoch)) = write.place {
                let reached = reached.entry(stream).or_default();
                *reached = epoch.max(*reached);
            }
        }
        (1..).zip(&self.writes).try_for_each(|(stamp, write)| {
            let lost = write.blocks.clone().find(|block| found[*block as usize] < stamp);
            let earlier =
                write.place.is_some_and(|(stream, epoch)| reached.get(&stream).is_some_and(|r| epoch < *r));
            let torn = write.blocks.clone().any(|block| found[block as usize] == stamp);
            let why = match (write.durable, earlier, torn) {
                (true, _, _) => Why::Durable,
                (_, true, _) => Why::EarlierEpoch,
                (_, _, true) => Why::Torn,
                _ => return Ok(()),
            };
            lost.map_or(Ok(()), |block| Err(Verdict::Missing { write: stamp, block, why }))
        })
    }
}

/// Runs one workload through the block layer and judges its crash states.
#[must_use]
pub fn run_streams(options: &StreamOptions) -> Findings {
    let findings = Rc::new(RefCell::new(Findings::default()));
    let below = &options.below;
    let runtime = Runtime::simulated(Simulation { seed: below.seed, explore: below.explore, cores: None });
    let handle = runtime.handle();
    let recorder = Recorder::prefix();
    let bound = Bound::new();
    let work = play(options, &handle, &recorder, &findings, &bound);
    let outcome = runtime.block_on(bound.within(&handle, work));
    let verdict = match outcome {
        Ok(Ok(())) => recorder.check().err().map(|violation| Verdict::Order(violation.to_string())),
        Ok(Err(verdict)) => Some(verdict),
        Err(stalled) => Some(failed("waiting", &stalled)),
    };
    drop(runtime);
    let mut findings = findings.take();
    if let Some(verdict) = verdict {
        findings.fail(Vec::new(), verdict);
    }
    findings.fold(handle.trace_hash());
    findings.totals.runs = 1;
    findings
}

async fn play(
    options: &StreamOptions,
    handle: &Handle,
    recorder: &Rc<Recorder>,
    findings: &Rc<RefCell<Findings>>,
    bound: &Rc<Bound>,
) -> Result<(), Verdict> {
    let below = &options.below;
    let (disk, range) = make_volume(handle, below).await?;
    let window = Rc::new(Window::new(below.segments_start()));
    let reading = window.user_reads();
    let volume = Tap::open_volume(handle, below, (&disk, &window), bound).await;
    let volume = Rc::new(volume.map_err(|error| failed("opening the volume", &error))?);
    volume.set_recorder(Rc::clone(recorder));
    let storage = bound.around(volume) as Rc<dyn Storage>;
    let layer = BlockLayer::recorded(handle, storage, options.block, Some(Rc::clone(recorder)));
    let layer = layer.map_err(|error| failed("making the block layer", &error))?;
    let log = Rc::new(RefCell::new(Log::default()));
    drop(reading);
    let judge =
        Judge { below: below.clone(), range, window, log: Rc::clone(&log), findings: Rc::clone(findings) };
    let observer = observe_events(handle, &disk, move |event, disk, random| {
        if !judge.findings.borrow().is_over(judge.below.states_max) {
            judge.cut(event, &disk.crash_states(), random);
        }
    });
    let random = handle.random("streams");
    let mut issuer = Issuer { options, handle: handle.clone(), random, range, layer, log };
    for _ in 0..below.steps {
        if findings.borrow().is_over(below.states_max) {
            break;
        }
        issuer.step().await?;
        // What the step was promised may hold at the next event only.
        observer(&disk);
    }
    issuer.finish().await?;
    findings.borrow_mut().totals.requests = issuer.log.borrow().writes.len() as u64;
    Ok(())
}

/// Judges what is left at every event.
struct Judge {
    below: RunOptions,
    range: Span,
    window: Rc<Window>,
    log: Rc<RefCell<Log>>,
    findings: Rc<RefCell<Findings>>,
}

impl Judge {
    fn cut(&self, event: u64, states: &CrashStates, random: &mut Random) {
        self.log.borrow_mut().refresh();
        let promised = self.log.borrow().promises;
        let (checkpoint, cleaning) = self.window.contents();
        let moment = Moment { event, depth: 0, promised, checkpoint, cleaning, sharing: false };
        let RunOptions { exhaustive_max, samples, states_max, .. } = self.below;
        let limits = StateLimits { exhaustive_max, samples, states_max };
        let promise = mix(0, promised);
        judge_window(&self.findings, (moment, promise), states, limits, random, |image, _| {
            let recovered = recover(&self.below, image, self.range);
            let verdict = recovered.stamps.and_then(|stamps| self.log.borrow().judge(&stamps));
            let mut findings = self.findings.borrow_mut();
            findings.fold(recovered.trace_hash);
            if let Err(verdict) = verdict {
                findings.fail(vec![event], verdict);
            }
        });
    }
}

/// Issues requests.
struct Issuer<'a> {
    options: &'a StreamOptions,
    handle: Handle,
    random: Random,
    range: Span,
    layer: Rc<BlockLayer>,
    log: Rc<RefCell<Log>>,
}

impl Issuer<'_> {
    fn any_stream(&mut self) -> StreamId {
        StreamId(self.random.below(self.options.streams) as u32)
    }

    async fn step(&mut self) -> Result<(), Verdict> {
        match self.random.below(20) {
            0..=3 => self.write(Class::Orderless).await,
            4..=8 => self.write(Class::Ordered).await,
            9..=13 => self.write(Class::Barrier).await,
            14 => self.put_barrier().await,
            15 => self.flush().await,
            _ => {
                let nanos = self.random.below(self.options.below.pause_ns_max + 1);
                self.handle.sleep(Duration::from_nanos(nanos)).await;
                Ok(())
            }
        }
    }

    async fn write(&mut self, class: Class) -> Result<(), Verdict> {
        let stream = self.any_stream();
        let count = 1 + self.random.below(self.options.below.request_blocks.min(4));
        let first = self.random.below(self.range.blocks.min(HOT_BLOCKS) - count + 1);
        let fua = self.random.below(64) < self.options.below.fua;
        while !self.try_write(stream, class, first..first + count, fua)? {
            self.layer.space().listen().await;
        }
        Ok(())
    }

    /// Issues a write unless the queue is full. The log is told first: what a crash leaves may hold it before
    /// the call returns.
    fn try_write(
        &self,
        stream: StreamId,
        class: Class,
        blocks: Range<u64>,
        fua: bool,
    ) -> Result<bool, Verdict> {
        let closes = u64::from(class == Class::Barrier);
        let first = Lba(blocks.start);
        let mut pages = Vec::new();
        {
            let mut log = self.log.borrow_mut();
            let stamp = log.writes.len() as Stamp + 1;
            blocks.clone().for_each(|block| push_page(&mut pages, block, stamp));
            let epoch = *log.epoch(stream);
            let place = (class != Class::Orderless).then_some((stream, epoch));
            log.writes.push(Issued { blocks, place, ticket: None, fua, durable: false });
            *log.epoch(stream) += closes;
        }
        let parts = [Part::bytes(first, &pages)];
        let answer = self.layer.try_submit(&Request { fua, ..Request::new(stream, class, &parts) });
        let mut log = self.log.borrow_mut();
        match answer {
            Ok(ticket) => {
                if let Some(write) = log.writes.last_mut() {
                    write.ticket = Some(ticket);
                }
                Ok(true)
            }
            Err(Refused::Full) => {
                log.writes.pop();
                *log.epoch(stream) -= closes;
                Ok(false)
            }
            Err(refused) => Err(failed("a request", &refused)),
        }
    }

    async fn put_barrier(&mut self) -> Result<(), Verdict> {
        let stream = self.any_stream();
        *self.log.borrow_mut().epoch(stream) += 1;
        let put = self.layer.when_space(|layer| layer.barrier(stream)).await;
        put.map(drop).map_err(|error| failed("a barrier", &error))
    }

    async fn flush(&mut self) -> Result<(), Verdict> {
        let transferred =
            |write: &Issued| write.ticket.as_ref().and_then(Ticket::poll_transferred) == Some(Ok(()));
        let covered = {
            let writes = &self.log.borrow().writes;
            (0..writes.len()).filter(|index| transferred(&writes[*index])).collect()
        };
        let ticket = self.layer.when_space(BlockLayer::flush).await;
        let ticket = ticket.map_err(|error| failed("a flush", &error))?;
        self.log.borrow_mut().flushes.push((covered, ticket));
        Ok(())
    }

    /// Everything issued is transferred, then flushed.
    async fn finish(&mut self) -> Result<(), Verdict> {
        let tickets: Vec<Ticket> =
            self.log.borrow().writes.iter().filter_map(|write| write.ticket.clone()).collect();
        for stream in 0..self.options.streams {
            let stream = StreamId(stream as u32);
            let put = self.layer.when_space(|layer| layer.barrier(stream)).await;
            put.map_err(|error| failed("the last barrier", &error))?;
        }
        for ticket in tickets {
            ticket.transferred().await.map_err(|error| failed("the last transfers", &error))?;
        }
        self.flush().await?;
        let last = self.log.borrow().flushes.last().map(|(_, ticket)| ticket.clone());
        if let Some(ticket) = last {
            ticket.transferred().await.map_err(|error| failed("the last flush", &error))?;
        }
        Ok(())
    }
}
