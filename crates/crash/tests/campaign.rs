//! The crash campaign on the volume, as much of it as a test run has time for. The example `volume_crash` goes on for as
//! long as you like.

#![allow(clippy::print_stdout, reason = "counts belong in the log of a test run")]

use weir_crash::{Campaign, RunOptions, Summary, Totals, run};

/// Distinct crash states of each of these seeds: a sample. `volume_crash` runs campaigns at their length.
const STATES: u64 = 10_000;
const SEEDS: std::ops::Range<u64> = 101..105;

fn expect_no_failure(summary: &Summary) {
    for failed in &summary.failed {
        println!("run {}: {}\n{:#?}\nreplay: {}", failed.run, failed.failure, failed.options, failed.replay);
    }
    assert_eq!(summary.failed.len(), 0, "see above");
}

#[test]
fn a_volume_keeps_its_promises_in_every_crash_state() {
    let mut totals = Totals::default();
    for seed in SEEDS {
        let campaign = Campaign { seed, states: STATES, only: None, disk_blocks: 0, shares: false };
        let summary = campaign.go(|_, _| {});
        expect_no_failure(&summary);
        assert!(summary.totals.states_distinct >= STATES, "seed {seed}: {:?}", summary.totals);
        totals.add(&summary.totals);
    }
    println!("{totals:#?}");
    // A campaign that never meets a checkpoint, cleaning, or a second power cut shows little.
    assert!(totals.windows_checkpoint > totals.windows / 20, "{totals:?}");
    assert!(totals.windows_cleaning > totals.windows / 20, "{totals:?}");
    assert!(totals.states_depth_1 > 1_000 && totals.states_depth_2 > 500, "{totals:?}");
    assert!(totals.windows_exhaustive > totals.windows / 10, "{totals:?}");
}

/// Distinct crash states with a share under way.
const STATES_SHARING: u64 = 5_000;

#[test]
fn crash_states_with_shares_under_way() {
    let campaign = Campaign { seed: 105, states: STATES_SHARING, only: None, disk_blocks: 0, shares: true };
    let summary = campaign.go(|_, _| {});
    expect_no_failure(&summary);
    let totals = summary.totals;
    println!("{totals:#?}");
    assert!(totals.states_sharing >= STATES_SHARING && totals.states_sharing > totals.states_distinct / 3);
    assert!(totals.windows_checkpoint > totals.windows / 20, "{totals:?}");
    assert!(totals.windows_cleaning > totals.windows / 20, "{totals:?}");
    assert!(
        totals.states_depth_1 > STATES_SHARING / 40 && totals.states_depth_2 > STATES_SHARING / 80,
        "{totals:?}"
    );
}

/// Small cases: every window of at most 2^16 states is looked at whole, however many that makes.
#[test]
fn small_windows_are_looked_at_whole() {
    let mut totals = Totals::default();
    for seed in 0..14 {
        let mut options = RunOptions::draw_small(seed);
        (options.warm_up, options.steps, options.states_max) = (0, 16, u64::MAX);
        let findings = run(&options);
        assert_eq!(findings.failure, None, "{options:#?}");
        totals.add(&findings.totals);
    }
    println!("{totals:#?}");
    assert_eq!(totals.windows_exhaustive, totals.windows_small);
    assert!(totals.windows_small > 200 && totals.states_distinct > 10_000, "{totals:?}");
}

/// A campaign is a function of its seed.
#[test]
fn campaigns_replay() {
    let campaign = Campaign { seed: 7, states: 3_000, only: None, disk_blocks: 0, shares: false };
    let (first, second) = (campaign.go(|_, _| {}), campaign.go(|_, _| {}));
    assert_eq!((first.trace_hash, first.totals), (second.trace_hash, second.totals));
    let other = Campaign { seed: 8, ..campaign }.go(|_, _| {});
    assert_ne!(first.trace_hash, other.trace_hash);
}

/// One run of a campaign, alone, is the same run.
#[test]
fn a_single_run_replays_what_the_campaign_saw() {
    let mut seen = Vec::new();
    Campaign { seed: 9, states: 5_000, only: None, disk_blocks: 0, shares: false }
        .go(|_, findings| seen.push(findings.totals));
    let alone = Campaign { seed: 9, states: 0, only: Some(1), disk_blocks: 0, shares: false }.go(|_, _| {});
    assert_eq!(alone.totals, seen[1]);
}

/// Discards took the cleaner's reserve, and with the free-segment list at its end nothing could be cleaned any more.
#[test]
fn discards_leave_the_cleaner_its_reserve() {
    let summary =
        Campaign { seed: 202, states: 0, only: Some(24), disk_blocks: 0, shares: false }.go(|_, _| {});
    assert!(
        summary.failed.is_empty(),
        "replay: {}",
        Campaign { seed: 202, states: 0, only: None, disk_blocks: 0, shares: false }.replay(24)
    );
}
