//! Mutants that the crash campaign kills.

use weir_crash::{Mix, RunFailure, RunOptions, run};
use weir_storage::Rules;
use weir_volume::VolumeMutant;

/// Runs until one of them notices that the rule is broken; more would be too late for a test.
const RUNS_MAX: u64 = 60;

/// Runs seeds until one fails, and shows that the same run passes where the rule is kept.
fn killed_by_campaign(mutant: VolumeMutant, furnish: impl Fn(&mut RunOptions)) -> RunFailure {
    killed_by_campaign_from(0, mutant, furnish)
}

/// The same from a seed on: that before the one which is known to fail, of mutants that few runs notice.
fn killed_by_campaign_from(
    first: u64,
    mutant: VolumeMutant,
    furnish: impl Fn(&mut RunOptions),
) -> RunFailure {
    for seed in first..first + RUNS_MAX {
        let mut options = RunOptions::draw(seed);
        furnish(&mut options);
        let kept = options.clone();
        options.volume.rules = Rules::but(Some(mutant));
        if let Some(failure) = run(&options).failure {
            println!("{mutant:?}: seed {seed}, {failure}");
            assert_eq!(run(&kept).failure, None, "the rule is kept, and all the same: {kept:#?}");
            return failure;
        }
    }
    panic!("{mutant:?} was not noticed in {RUNS_MAX} runs");
}

fn as_drawn(_: &mut RunOptions) {}

fn with_shares(options: &mut RunOptions) {
    options.add_shares();
}

#[test]
fn v7_pairs_that_read_what_other_pairs_changed() {
    killed_by_campaign(VolumeMutant::PairsInTurn, with_shares);
}

#[test]
fn v1_records_behind_the_cut_of_the_same_generation() {
    killed_by_campaign(VolumeMutant::SameGeneration, as_drawn);
}

#[test]
fn v1_recovery_that_builds_on_what_is_not_durable() {
    // The process has to end between the write of a checkpoint and the flush behind it.
    killed_by_campaign_from(142, VolumeMutant::RecoveryUnflushed, |options| {
        options.mix = Mix { restart: 8, checkpoint: 0, flush: 0, ..options.mix };
        options.volume.checkpoint_segments = 2;
        options.latency_ns_max = 5_000;
        options.pause_ns_max = 1_000;
    });
}

#[test]
fn v3_segments_reused_before_a_flush() {
    killed_by_campaign(VolumeMutant::ReuseBeforeFlush, as_drawn);
}

#[test]
fn v3_a_checkpoint_written_too_early() {
    killed_by_campaign(VolumeMutant::CheckpointTooEarly, as_drawn);
}

#[test]
fn v4_segments_out_of_the_order_of_the_checkpoint() {
    killed_by_campaign(VolumeMutant::SegmentsOutOfOrder, as_drawn);
}

#[test]
fn s3_records_replayed_without_a_look_at_their_data() {
    killed_by_campaign(VolumeMutant::DataUnchecked, as_drawn);
}

#[test]
fn s2_a_flush_of_the_volume_that_lies() {
    killed_by_campaign(VolumeMutant::FlushLies, as_drawn);
}

#[test]
fn s2_a_flush_of_the_volume_that_is_not_awaited() {
    killed_by_campaign(VolumeMutant::FlushNotAwaited, as_drawn);
}
