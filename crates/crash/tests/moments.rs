//! Mounts with moments under power cuts (J11), on volumes with marks (V13); and those that drop a rule fail.

use weir_crash::{Campaign as _, MomentCampaign, MomentTotals, Plan, Summary};
use weir_fs::{FsMutant, MountOptions};
use weir_storage::Rules;
use weir_volume::VolumeMutant;

fn campaign(fs: Option<FsMutant>, volume: Option<VolumeMutant>, states: u64) -> Summary<MomentTotals> {
    let options = MountOptions { rules: Rules::but(fs), ..MountOptions::default() };
    let campaign = MomentCampaign::new(Plan::new(states, 1));
    MomentCampaign { options, rules: Rules::but(volume), ..campaign }.run_campaign()
}

#[test]
fn a_crash_leaves_the_tree_as_of_one_moment() {
    let summary = campaign(None, None, 2_000);
    assert_eq!(summary.failure, None);
    let MomentTotals { syncs, late_pages, unmounts, checkpoints, cleaned, states_recovery, .. } =
        summary.totals;
    let seen = [syncs, late_pages, unmounts, checkpoints, cleaned, states_recovery];
    assert!(seen.iter().all(|count| *count > 0), "{:?}", summary.totals);
}

/// Requires that a campaign has failed, and that it says these words of what was left.
fn require_failure(summary: &Summary<MomentTotals>, words: &str) {
    let failure = summary.failure.as_ref().map_or("nothing", |failure| &failure.what);
    assert!(failure.contains(words), "{failure} was found, in place of {words:?}, in {:?}", summary.totals);
}

/// J11: what changes while a moment is taken, what is not committed, and what is not written, is seen by half; a tree that
/// is too old is seen, and a call that was durable, or an unmount, and is not there.
#[test]
fn each_mutant_of_moments_is_found() {
    let reasons = [
        (FsMutant::MomentUnheld, "no moment had this tree"),
        (FsMutant::MomentUncommitted, "no moment had this tree"),
        (FsMutant::MomentUnwritten, "no moment had this tree"),
        (FsMutant::MomentLate, " old, and "),
        (FsMutant::MomentUnawaited, "a durable call is lost"),
        (FsMutant::MomentShared, "a durable call is lost"),
        (FsMutant::MomentNotLast, "a durable call is lost"),
    ];
    for (mutant, words) in reasons {
        require_failure(&campaign(Some(mutant), None, 60_000), words);
    }
}

/// V13: below a mount with moments, too. (Tests of `weir-volume` find `ReuseBeforeMark`, for which room is seldom short enough here, and
/// `SnapshotUnmarked`, which takes snapshots.)
#[test]
fn mutants_of_marks_are_found_below_a_mount() {
    for mutant in [VolumeMutant::MarksIgnored, VolumeMutant::CheckpointUnmarked] {
        require_failure(&campaign(None, Some(mutant), 60_000), "no moment had this");
    }
}

/// Without moments files are as old as their own last call, or older: the control.
#[test]
fn without_moments_a_crash_leaves_no_moment() {
    let campaign = MomentCampaign { moments: false, ..MomentCampaign::new(Plan::new(20_000, 1)) };
    require_failure(&campaign.run_campaign(), "no moment had this");
}
