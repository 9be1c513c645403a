//! What cleaning costs: write amplification at several utilisations, in counts, not in speed.

use std::pin::pin;
use std::rc::Rc;

use futures_util::future::{Either, select};
use serde::Serialize;
use weir_runtime::{Handle, Random};
use weir_stack::{Disk, Stack, VolumeSpec};
use weir_storage::{Extent, Lba, Storage, read};
use weir_volume::CleaningPolicy;

use crate::caller::WeirCalls;
use crate::chooser::Distribution;
use crate::content::Pages;
use crate::error::BenchError;
use crate::measure::{Goal, Measured, Meter};
use crate::plan::{BenchOptions, Plan};
use crate::rounds::{Progress, Steps};
use crate::target::create_disk;
use crate::volume_writer::{VolumeWriter, Work};
use crate::writes::{Span, Writes};

/// What cleaning cost in all cases.
#[derive(Clone, Debug, Serialize)]
pub struct CleaningReport {
    /// The seed of the workload.
    pub seed: u64,
    /// Size of the volume's file.
    pub file_bytes: u64,
    /// One for each case.
    pub cases: Vec<CleaningCase>,
}

/// What cleaning cost in one case.
#[derive(Clone, Debug, Serialize)]
pub struct CleaningCase {
    /// How segments were chosen: `greedy` or `cost_benefit`.
    pub policy: &'static str,
    /// How the writes were spread.
    pub distribution: Distribution,
    /// Live share of what the segments hold, in percent.
    pub utilisation_percent: u64,
    /// Blocks to the disk per block of the user: data, moved data, headers and checkpoints.
    pub write_amplification: f64,
    /// Live blocks moved per block of the user.
    pub moved_per_write: f64,
    /// What a write waited that a writer issued as soon as the one before it was taken, in microseconds: the 99th percentile.
    pub stall_p99_us: f64,
    /// The longest such wait.
    pub stall_max_us: f64,
    /// The 99th percentile of reads of one block, one at a time, beside such a writer, in microseconds.
    pub read_p99_us: f64,
}

/// The cases, as the issue of cleaning is usually put.
const UTILISATIONS: [u64; 3] = [50, 80, 90];

/// How often the file's size is written, before the count begins and while it runs.
const TIMES: u64 = 2;

/// Measures all cases on a file of a quarter of the plan's span.
///
/// # Errors
/// [`BenchError`].
pub async fn cleaning(
    handle: &Handle,
    plan: &Plan,
    options: &BenchOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<CleaningReport, BenchError> {
    let file_bytes = plan.cleaning_bytes();
    let disk = create_disk(handle, options, "cleaning", file_bytes)?;
    let mut pages = Pages::new(&mut handle.random("cleaning"));
    let policies = [("greedy", CleaningPolicy::Greedy), ("cost_benefit", CleaningPolicy::CostBenefit)];
    let mut steps = Steps::new((policies.len() * 2 * UTILISATIONS.len()) as u64, progress);
    let mut cases = Vec::new();
    for (policy, cleaning) in policies {
        for distribution in [Distribution::Uniform, Distribution::Zipf] {
            for utilisation_percent in UTILISATIONS {
                let stage = format!("{policy}, {distribution:?}, {utilisation_percent} % full");
                steps.begin(stage, "");
                let mut bed = Bed { handle, disk: &disk, volume: plan.volume() };
                bed.volume.options.cleaning = cleaning;
                let Seen { work, writes, reads } =
                    bed.measure(distribution, utilisation_percent, &mut pages).await?;
                cases.push(CleaningCase {
                    policy,
                    distribution,
                    utilisation_percent,
                    write_amplification: work.write_amplification(),
                    moved_per_write: work.cleaned_blocks as f64 / work.user_blocks.max(1) as f64,
                    stall_p99_us: us(writes.latency.value_at_quantile(0.99)),
                    stall_max_us: us(writes.latency.max()),
                    read_p99_us: us(reads.latency.value_at_quantile(0.99)),
                });
            }
        }
    }
    steps.end();
    Ok(CleaningReport { seed: options.seed, file_bytes, cases })
}

fn us(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1000.0
}

/// What was seen in a case.
struct Seen {
    /// What the volume did.
    work: Work,
    /// The writes meanwhile.
    writes: Measured,
    /// Reads, beside further writes that nothing is counted of.
    reads: Measured,
}

/// Where a case is measured.
struct Bed<'a> {
    handle: &'a Handle,
    disk: &'a Disk,
    volume: VolumeSpec,
}

impl Bed<'_> {
    /// Fills a volume to the utilisation, ages it, then counts, and then reads beside the same writes.
    async fn measure(
        &mut self,
        distribution: Distribution,
        utilisation_percent: u64,
        pages: &mut Pages,
    ) -> Result<Seen, BenchError> {
        let capacity = self.open(0).await?;
        let blocks = capacity.volume_stats().data_capacity_blocks * utilisation_percent / 100;
        capacity.close().await?;
        let writer = self.open(blocks).await?;
        let times = TIMES * self.disk.storage().blocks();
        let mut run = async |run: u32, distribution: Distribution, count: u64| {
            let random = self.handle.random("cleaning writes");
            let mut writes = Writes::new(run, Span::pages(blocks), distribution, 0, 1, random);
            writer.run(WeirCalls::P, &mut writes, pages, &Goal::writes(count)).await
        };
        run(1, Distribution::Sequential, blocks).await?;
        run(2, distribution, times).await?;
        let (writes, work) = run(3, distribution, times).await?;
        let mut meter = Meter::start(self.handle);
        {
            let written = pin!(run(4, distribution, times / TIMES));
            let read =
                pin!(read_on(writer.storage(), blocks, self.handle.random("cleaning reads"), &mut meter));
            match select(written, read).await {
                Either::Left((written, _)) => drop(written?),
                Either::Right((failed, _)) => return Err(failed),
            }
        }
        writer.close().await?;
        Ok(Seen { work, writes, reads: meter.stop() })
    }

    async fn open(&mut self, logical_blocks: u64) -> Result<VolumeWriter, BenchError> {
        self.volume.format.logical_blocks = logical_blocks;
        let stack = Stack::make_volume(self.handle, self.disk.clone(), &self.volume).await?;
        VolumeWriter::new(self.handle, stack)
    }
}

/// Reads blocks by chance, one at a time, until it is dropped. What it returns is why it cannot go on.
async fn read_on(storage: Rc<dyn Storage>, blocks: u64, mut random: Random, meter: &mut Meter) -> BenchError {
    loop {
        match read(&*storage, Extent::new(Lba(random.below(blocks)), 1)).await {
            Ok(_) => meter.lap(),
            Err(error) => return error.into(),
        }
    }
}
