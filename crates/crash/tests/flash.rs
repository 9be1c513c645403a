//! Power cuts on emulated flash: every mechanism keeps what it promises, cleaning or not; and every bug that
//! can be seeded into the firmware is noticed.

use weir_crash::{Campaign as _, FlashCampaign, FlashTotals, Plan, Summary};
use weir_flash::{FlashMutant, FlashOptions, Mechanism};
use weir_storage::Rules;

/// Distinct states of the flash for each mechanism that orders epochs: a sample. `weir crash campaign` runs them at their length.
const STATES: u64 = 5_000;

/// Distinct states of the flash for the mechanism that keeps a prefix of requests.
const PREFIX_STATES: u64 = 20_000;

fn is_clean(mechanism: Mechanism) {
    let _ = is_clean_in(mechanism, STATES);
}

fn is_clean_in(mechanism: Mechanism, states: u64) -> FlashTotals {
    let Summary { totals, failure, .. } = FlashCampaign::new(mechanism, Plan::new(states, 1)).run_campaign();
    assert_eq!(failure, None, "{}", mechanism.name());
    assert!(totals.states_distinct >= states);
    assert!(totals.states_cleaning > states / 5, "cleaning in {} states only", totals.states_cleaning);
    assert!(totals.states_deep > states / 2 && totals.states_recovery > states / 200, "{totals:?}");
    assert!(totals.increments > totals.runs && totals.checkpoints > 2 * totals.runs, "{totals:?}");
    assert!(totals.shares > 2 * totals.runs, "{totals:?}");
    totals
}

#[test]
fn a_legacy_device_keeps_what_was_flushed() {
    // Garbage of a cut is rare: it takes a longer sample.
    let states = 4 * STATES;
    let totals = is_clean_in(Mechanism::None, states);
    assert!(totals.packed > 4 * totals.runs && totals.reliable > 4 * totals.runs, "{totals:?}");
    assert!(totals.states_packing > states / 20 && totals.states_garbled > states / 50, "{totals:?}");
}

#[test]
fn power_loss_protection_keeps_its_promise() {
    is_clean(Mechanism::PowerLossProtection);
}

#[test]
fn in_order_writeback_keeps_its_promise() {
    is_clean(Mechanism::InOrderWriteback);
}

#[test]
fn transactional_writeback_keeps_its_promise() {
    is_clean(Mechanism::TransactionalWriteback);
}

#[test]
fn in_order_recovery_keeps_its_promise() {
    is_clean(Mechanism::InOrderRecovery);
}

#[test]
fn order_preserving_recovery_keeps_its_promise() {
    let totals = is_clean_in(Mechanism::OrderPreservingRecovery, PREFIX_STATES);
    assert!(totals.coalesced_blocks > totals.commands / 50, "{totals:?}");
    assert!(totals.record_pages > totals.rounds && totals.internal_flushes > totals.rounds, "{totals:?}");
}

#[test]
fn a_campaign_is_a_function_of_its_seed() {
    let campaign = |seed| FlashCampaign::new(Mechanism::InOrderRecovery, Plan::new(500, seed)).run_campaign();
    assert_eq!(campaign(7), campaign(7));
    assert_ne!(campaign(7).trace_hash, campaign(8).trace_hash);
}

/// What a failure says about its replay holds.
#[test]
fn a_run_replayed_alone_fails_as_it_did() {
    let campaign = |(mutant, mechanism)| {
        let options = FlashOptions { rules: Rules::but(Some(mutant)), ..FlashOptions::default() };
        FlashCampaign { options, ..FlashCampaign::new(mechanism, Plan::new(200_000, 1)) }
    };
    // The first run replays itself, so a mutant is taken that a later one notices.
    let mutants = [
        (FlashMutant::ErasesBeforeCheckpoint, Mechanism::InOrderRecovery),
        (FlashMutant::CleansUncommitted, Mechanism::TransactionalWriteback),
        (FlashMutant::SharedErased, Mechanism::None),
        (FlashMutant::MoveUnlogged, Mechanism::InOrderRecovery),
        (FlashMutant::ErasesUnsettled, Mechanism::OrderPreservingRecovery),
        (FlashMutant::IncompleteKept, Mechanism::OrderPreservingRecovery),
        (FlashMutant::ShareAhead, Mechanism::PowerLossProtection),
    ];
    let later =
        |mutant| Some((mutant, campaign(mutant).run_campaign().failure.filter(|failure| failure.run > 0)?));
    let Some((mutant, failure)) = mutants.into_iter().find_map(later) else {
        panic!("all fail in the first run")
    };
    let replayed = campaign(mutant);
    let plan = Plan { only: Some(failure.run), ..replayed.plan };
    assert_eq!(FlashCampaign { plan, ..replayed }.run_campaign().failure, Some(failure));
}

/// The negative control: no mechanism, and a device that claims barriers.
#[test]
fn without_a_mechanism_barriers_are_broken() {
    let campaign = FlashCampaign::new(Mechanism::None, Plan::new(20_000, 1));
    let failure = FlashCampaign { claims_barriers: true, ..campaign }.run_campaign().failure;
    assert!(
        failure.as_ref().is_some_and(|failure| failure.what.contains("something of a later epoch is there")),
        "{failure:?}"
    );
}

/// Firmware with this bug, on this mechanism, does not survive.
fn is_killed(mutant: FlashMutant, mechanism: Mechanism) {
    is_killed_by(1, mutant, mechanism);
}

/// The same with another seed, of a bug that few runs notice: one that shows it soon.
fn is_killed_by(seed: u64, mutant: FlashMutant, mechanism: Mechanism) {
    let options = FlashOptions { rules: Rules::but(Some(mutant)), ..FlashOptions::default() };
    let campaign = FlashCampaign { options, ..FlashCampaign::new(mechanism, Plan::new(200_000, seed)) };
    let judged = |what: &str| !what.contains("answers no more");
    let failure = campaign.run_campaign().failure;
    assert!(
        failure.as_ref().is_some_and(|failure| judged(&failure.what)),
        "{mutant:?} survives on {}, or only stops the device: {failure:?}",
        mechanism.name()
    );
}

#[test]
fn ignored_barriers_are_noticed() {
    is_killed(FlashMutant::BarrierIgnored, Mechanism::InOrderWriteback);
    is_killed(FlashMutant::BarrierIgnored, Mechanism::InOrderRecovery);
    is_killed(FlashMutant::CoalescesAcrossEpochs, Mechanism::InOrderRecovery);
    is_killed_by(4, FlashMutant::CoalescesAcrossEpochs, Mechanism::TransactionalWriteback);
    is_killed(FlashMutant::EpochsMixed, Mechanism::InOrderWriteback);
    is_killed(FlashMutant::PriorityIgnored, Mechanism::InOrderRecovery);
}

#[test]
fn recovery_that_keeps_too_much_is_noticed() {
    is_killed(FlashMutant::UnitsTornApart, Mechanism::TransactionalWriteback);
    is_killed(FlashMutant::GapIgnored, Mechanism::InOrderRecovery);
    is_killed(FlashMutant::TornAccepted, Mechanism::None);
    is_killed(FlashMutant::RecoveryUnsealed, Mechanism::InOrderRecovery);
}

#[test]
fn recovery_that_keeps_too_little_or_the_wrong_version_is_noticed() {
    is_killed(FlashMutant::DumpForgotten, Mechanism::PowerLossProtection);
    is_killed(FlashMutant::DiscardForgotten, Mechanism::None);
    is_killed(FlashMutant::ShareForgotten, Mechanism::None);
    is_killed_by(9, FlashMutant::VersionIgnored, Mechanism::None);
    is_killed_by(9, FlashMutant::CopyResurrected, Mechanism::None);
}

#[test]
fn a_log_of_changes_that_lies_is_noticed() {
    is_killed(FlashMutant::TornIncrementTrusted, Mechanism::None);
    is_killed(FlashMutant::MoveUnlogged, Mechanism::InOrderRecovery);
}

#[test]
fn cleaning_that_loses_data_is_noticed() {
    is_killed_by(3, FlashMutant::ErasesBeforeCheckpoint, Mechanism::InOrderRecovery);
    is_killed_by(10, FlashMutant::CleansUncommitted, Mechanism::TransactionalWriteback);
}

#[test]
fn shares_that_lose_names_or_pairs_are_noticed() {
    is_killed(FlashMutant::SharedErased, Mechanism::None);
    is_killed(FlashMutant::ShareAhead, Mechanism::PowerLossProtection);
}

#[test]
fn shares_by_log_that_are_passed_are_noticed() {
    is_killed_by(5, FlashMutant::SharePassed, Mechanism::None);
    is_killed_by(6, FlashMutant::SharePassed, Mechanism::InOrderRecovery);
}

#[test]
fn parts_of_logical_pages_that_go_wrong_are_noticed() {
    is_killed(FlashMutant::RestFromFlash, Mechanism::None);
}

#[test]
fn lies_about_durability_are_noticed() {
    is_killed(FlashMutant::FlushLies, Mechanism::None);
    is_killed(FlashMutant::FuaLies, Mechanism::InOrderRecovery);
}

#[test]
fn packed_writes_out_of_turn_are_noticed() {
    is_killed(FlashMutant::PackedTogether, Mechanism::None);
    is_killed(FlashMutant::PackedTogether, Mechanism::InOrderWriteback);
}

#[test]
fn garbage_in_what_is_reliable_or_durable_is_noticed() {
    is_killed_by(8, FlashMutant::ReliableTorn, Mechanism::None);
}

/// Firmware with this bug does not keep a prefix of whole requests.
fn breaks_the_prefix(mutants: &[FlashMutant]) {
    mutants.iter().for_each(|mutant| is_killed(*mutant, Mechanism::OrderPreservingRecovery));
}

#[test]
fn coalescing_that_is_not_recorded_in_time_is_noticed() {
    breaks_the_prefix(&[FlashMutant::CoalescingUnrecorded, FlashMutant::RecordsLate]);
}

#[test]
fn recovery_points_that_lie_wrong_are_noticed() {
    breaks_the_prefix(&[FlashMutant::IncompleteKept, FlashMutant::RecoveryUnsealed]);
}

#[test]
fn checkpoints_and_cleaning_that_forget_older_versions_are_noticed() {
    breaks_the_prefix(&[
        FlashMutant::ErasesUnsettled,
        FlashMutant::TornIncrementTrusted,
        FlashMutant::FlushLies,
        FlashMutant::FuaLies,
    ]);
}

#[test]
fn erase_blocks_that_recovery_does_not_find_are_noticed() {
    breaks_the_prefix(&[FlashMutant::ChainCutShort]);
}
