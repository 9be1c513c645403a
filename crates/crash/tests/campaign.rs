//! The crash campaign on the volume, as much of it as a test run has time for. `weir crash campaign volume` goes on for
//! as long as you like.

#![allow(clippy::print_stdout, reason = "counts belong in the log of a test run")]

use weir_crash::{Campaign as _, Counts as _, Plan, RunOptions, Summary, Totals, VolumeCampaign, run};

/// Distinct crash states of each of these seeds: a sample. `weir crash campaign` runs them at their length.
const STATES: u64 = 5_000;
const SEEDS: std::ops::Range<u64> = 101..103;

fn expect_no_failure(summary: &Summary<Totals>) {
    if let Some(failure) = &summary.failure {
        println!("{}", failure.story.join("\n"));
    }
    assert_eq!(summary.failure, None, "its options are above");
}

#[test]
fn a_volume_keeps_its_promises_in_every_crash_state() {
    let mut totals = Totals::default();
    for seed in SEEDS {
        let campaign = VolumeCampaign::new(Plan::new(STATES, seed));
        let summary = campaign.run_campaign();
        expect_no_failure(&summary);
        assert!(summary.totals.states_distinct >= STATES, "seed {seed}: {:?}", summary.totals);
        totals.add(&summary.totals);
    }
    println!("{totals:#?}");
    // A campaign that never meets a checkpoint, cleaning, or a second power cut shows little.
    assert!(totals.events_checkpoint > totals.events / 20, "{totals:?}");
    assert!(totals.events_cleaning > totals.events / 20, "{totals:?}");
    assert!(totals.states_depth_1 > 500 && totals.states_depth_2 > 250, "{totals:?}");
    assert!(totals.events_exhaustive > totals.events / 10, "{totals:?}");
}

/// Distinct crash states with a share under way.
const STATES_SHARING: u64 = 5_000;

#[test]
fn crash_states_with_shares_under_way() {
    let campaign = VolumeCampaign { shares: true, ..VolumeCampaign::new(Plan::new(STATES_SHARING, 105)) };
    let summary = campaign.run_campaign();
    expect_no_failure(&summary);
    let totals = summary.totals;
    println!("{totals:#?}");
    assert!(totals.states_sharing >= STATES_SHARING && totals.states_sharing > totals.states_distinct / 3);
    assert!(totals.events_checkpoint > totals.events / 20, "{totals:?}");
    assert!(totals.events_cleaning > totals.events / 20, "{totals:?}");
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
    assert_eq!(totals.events_exhaustive, totals.events_small);
    assert!(totals.events_small > 200 && totals.states_distinct > 10_000, "{totals:?}");
}

/// A campaign is a function of its seed.
#[test]
fn campaigns_replay() {
    let campaign = VolumeCampaign::new(Plan::new(3_000, 7));
    let (first, second) = (campaign.run_campaign(), campaign.run_campaign());
    assert_eq!((first.trace_hash, first.totals), (second.trace_hash, second.totals));
    let other = VolumeCampaign::new(Plan::new(3_000, 8)).run_campaign();
    assert_ne!(first.trace_hash, other.trace_hash);
}

/// One run of a campaign, alone, is the same run.
#[test]
fn a_single_run_replays_what_the_campaign_saw() {
    let plan = Plan::new(0, 9);
    let only = |run| VolumeCampaign::new(Plan { only: Some(run), ..plan }).run_campaign();
    let summaries = [0, 1].map(only);
    let mut both = summaries[0].totals;
    both.add(&summaries[1].totals);
    let states = both.states_distinct;
    let campaign = VolumeCampaign::new(Plan { states, ..plan }).run_campaign();
    assert_eq!((campaign.totals.runs, campaign.totals.requests), (2, both.requests));
}

/// Discards took the cleaner's reserve, and with the free-segment list at its end nothing could be cleaned any more.
#[test]
fn discards_leave_the_cleaner_its_reserve() {
    let campaign = VolumeCampaign::new(Plan { only: Some(24), ..Plan::new(0, 202) });
    expect_no_failure(&campaign.run_campaign());
}

/// The negative control: a disk that ignores flushes cannot keep what was promised.
#[test]
fn a_disk_that_ignores_flushes_is_found_out() {
    let control = VolumeCampaign { ignores_flushes: true, ..VolumeCampaign::new(Plan::new(20_000, 1)) };
    assert!(control.run_campaign().failure.is_some());
}
