//! How long recovery takes when a given amount was written since the last checkpoint.

use serde::Serialize;
use weir_runtime::Handle;
use weir_stack::{Disk, Stack};

use crate::caller::WeirCalls;
use crate::chooser::Distribution;
use crate::content::Pages;
use crate::error::BenchError;
use crate::ledger::{Coverage, Ledger};
use crate::measure::Goal;
use crate::plan::{BenchOptions, Plan};
use crate::rounds::{Progress, Rounds};
use crate::target::create_disk;
use crate::volume_writer::VolumeWriter;
use crate::writes::{Span, Writes};

/// What recovery took.
#[derive(Clone, Debug, Serialize)]
pub struct RecoveryTime {
    /// The seed of the workload.
    pub seed: u64,
    /// Bytes that users wrote since the last checkpoint.
    pub written_bytes: u64,
    /// Records that recovery found.
    pub records: u64,
    /// Bytes of log that it read.
    pub read_bytes: u64,
    /// From opening until the checkpoint that ends recovery, in milliseconds, for each round.
    pub recovery_ms: Vec<f64>,
    /// Blocks read back afterwards and found right.
    pub checked_blocks: u64,
}

/// Writes the plan's span once at random, leaves the volume without closing it, and opens it anew; as often as
/// the plan has rounds.
///
/// # Errors
/// [`BenchError`].
pub async fn recovery(
    handle: &Handle,
    plan: &Plan,
    options: &BenchOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<RecoveryTime, BenchError> {
    let disk = create_disk(handle, options, "recovery", plan.fresh_bytes)?;
    let mut pages = Pages::new(&mut handle.random("recovery"));
    let mut result = RecoveryTime {
        seed: options.seed,
        written_bytes: plan.span_bytes,
        records: 0,
        read_bytes: 0,
        recovery_ms: Vec::new(),
        checked_blocks: 0,
    };
    let mut rounds = Rounds::new(vec![()], |()| String::new(), plan.rounds, false, 0, progress);
    for due in &mut rounds {
        let ledger = leave_unclosed(handle, plan, &disk, due.round + 1, &mut pages).await?;
        let stack = Stack::open(handle, disk.clone(), plan.volume_options()).await?;
        let found = stack.volume_stats().recovery;
        result.records = found.records;
        result.read_bytes = found.bytes_read;
        result.recovery_ms.push(found.duration.as_secs_f64() * 1e3);
        let mut random = handle.random("recovery check");
        result.checked_blocks += ledger.verify(&*stack.storage(), &pages, Coverage::All, &mut random).await?;
        stack.close().await?;
    }
    rounds.steps.end();
    Ok(result)
}

/// Writes, flushes, and forgets the volume as a crash would. Returns what it must hold.
async fn leave_unclosed(
    handle: &Handle,
    plan: &Plan,
    disk: &Disk,
    run: u32,
    pages: &mut Pages,
) -> Result<Ledger, BenchError> {
    let blocks = plan.span_blocks();
    let mut volume = plan.volume();
    // No checkpoint before the end: twice as many segments as the writes can fill.
    volume.options.checkpoint_segments = (2 * blocks / u64::from(plan.segment_blocks)) as usize;
    let stack = Stack::make_volume(handle, disk.clone(), &volume).await?;
    let writer = VolumeWriter::new(handle, stack)?;
    let start =
        Writes::new(run, Span::pages(blocks), Distribution::Uniform, 0, 1, handle.random("recovery writes"));
    writer.run(WeirCalls::B, &mut start.clone(), pages, &Goal::writes(blocks)).await?;
    writer.abandon().await;
    let mut ledger = Ledger::new(blocks);
    ledger.enter(start, blocks);
    Ok(ledger)
}
