//! Virtual stress testing: order-preserving firmware leaves what the golden disk says, and bugs in it are noticed.

use weir_crash::{Campaign as _, Plan, Summary, VstCampaign, VstRequest, VstTotals};
use weir_flash::{FlashMutant, FlashOptions};
use weir_storage::Rules;
use weir_workload::ServerTrace;

/// States of a campaign, those of one run. `weir crash campaign vst` goes on for as long as you like.
const STATES: u64 = 200;

fn campaign(seed: u64) -> VstCampaign {
    VstCampaign::new(Plan::new(STATES, seed))
}

/// The trace of this name.
fn of_server(name: &str, seed: u64) -> VstCampaign {
    let server = ServerTrace::ALL.into_iter().find(|server| server.name == name);
    assert!(server.is_some(), "{name}");
    VstCampaign { server, ..campaign(seed) }
}

fn is_clean(campaign: &VstCampaign) -> VstTotals {
    let Summary { totals, failure, .. } = campaign.run_campaign();
    assert_eq!(failure, None);
    let states = totals.states_distinct;
    assert!(states >= STATES && totals.states_rolled_back > states / 4, "{totals:?}");
    assert!(totals.erases > 0 && totals.checkpoints > 0 && totals.record_pages > 0, "{totals:?}");
    assert!(totals.internal_flushes > 0, "{totals:?}");
    totals
}

#[test]
fn a_prefix_of_whole_requests_is_left() {
    assert_eq!(is_clean(&campaign(1)).flushes, 0);
}

#[test]
fn what_was_flushed_is_left() {
    let totals = is_clean(&VstCampaign { flush_every: Some(100), ..campaign(2) });
    assert!(totals.flushes > 10, "{totals:?}");
}

/// Small writes to a few blocks, as a trace has them: parts of blocks, beyond the device, with flushes and discards.
#[test]
fn a_trace_is_replayed_until_there_are_enough_states() {
    let write = |sector, sectors| VstRequest::Write { sector, sectors };
    let far = u64::MAX - 3;
    let trace = vec![
        write(3, 2),
        write(0, 8),
        write(far, 40),
        VstRequest::Discard { sector: 0, sectors: 9 },
        write(4, 900),
    ];
    let totals = is_clean(&VstCampaign { trace, flush_every: Some(7), ..campaign(3) });
    assert!(totals.requests > 50, "{totals:?}");
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    let run = |seed| campaign(seed).run_campaign();
    assert_eq!(run(5), run(5));
    assert_ne!(run(5).trace_hash, run(6).trace_hash);
}

#[test]
fn a_trace_that_changes_nothing_is_a_failure() {
    let trace = vec![VstRequest::Discard { sector: 0, sectors: 1 }];
    let failure = VstCampaign { trace, ..campaign(1) }.run_campaign().failure;
    assert!(failure.is_some_and(|failure| failure.what.contains("changes nothing")));
}

/// The negative controls. What is left of the trace still fails.
#[test]
fn firmware_that_tears_requests_or_forgets_records_is_noticed() {
    for mutant in [FlashMutant::IncompleteKept, FlashMutant::CoalescingUnrecorded] {
        let options = FlashOptions { rules: Rules::but(Some(mutant)), ..FlashOptions::default() };
        let failure = VstCampaign { options, flush_every: Some(50), ..campaign(1) }.run_campaign().failure;
        let Some(failure) = failure else { panic!("{mutant:?} survives") };
        assert!((1..4000).contains(&failure.story.len()), "{mutant:?}: {} requests", failure.story.len());
    }
}

/// As the paper has it: without a flush a prefix is left, and with them what they cover as well.
#[test]
fn servers_traces_leave_a_prefix_and_what_was_flushed() {
    for (server, flush_every) in [("prxy_0", None), ("proj_0", Some(100)), ("hm_0", Some(100))] {
        let totals = is_clean(&VstCampaign { flush_every, ..of_server(server, 11) });
        assert!(totals.reads > 0, "{server}: {totals:?}");
        assert_eq!(totals.flushes > 0, flush_every.is_some(), "{server}: {totals:?}");
    }
}

/// The negative control: a device that gets no flush is found on each of the traces.
#[test]
fn flushes_that_are_ignored_are_noticed_on_every_servers_trace() {
    for server in ServerTrace::ALL {
        let campaign =
            VstCampaign { flush_every: Some(100), ignores_flushes: true, ..of_server(server.name, 1) };
        // One run, whose failure is not made smaller.
        let failure = campaign.play_run(&(), 0, 1).failure;
        assert!(failure.is_some_and(|failure| failure.what.contains("a flush covers")), "{server}");
    }
}

#[test]
fn without_cuts_everything_is_as_the_golden_disk_has_it() {
    let campaign = VstCampaign { uncut_bytes: Some(256 << 20), ..of_server("usr_0", 1) };
    let Summary { totals, failure, runs, .. } = campaign.run_campaign();
    assert_eq!((failure, runs, totals.comparisons), (None, 1, 1));
    assert!(totals.bytes_written >= 256 << 20 && totals.reads > 1000 && totals.erases > 100, "{totals:?}");
}

/// The control of the one above: what a request does not change of a page comes from flash, though the cache has a newer one.
#[test]
fn firmware_that_loses_data_without_a_cut_is_noticed() {
    let options =
        FlashOptions { rules: Rules::but(Some(FlashMutant::RestFromFlash)), ..FlashOptions::default() };
    let campaign = VstCampaign { uncut_bytes: Some(256 << 20), options, ..of_server("prxy_0", 1) };
    let failure = campaign.run_campaign().failure;
    assert!(failure.is_some_and(|failure| failure.what.contains("without a power cut, sector")));
}
