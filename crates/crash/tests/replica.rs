//! Replicas while machines crash; and replicas that drop a rule fail.

use weir_crash::{Campaign as _, Plan, ReplicaCampaign, ReplicaTotals, Summary};
use weir_replica::ReplicaMutant;
use weir_storage::Rules;
use weir_volume::VolumeMutant;

fn campaign(
    replica: Option<ReplicaMutant>,
    volume: Option<VolumeMutant>,
    states: u64,
) -> Summary<ReplicaTotals> {
    let rules = (Rules::but(replica), Rules::but(volume));
    ReplicaCampaign { rules, ..ReplicaCampaign::new(Plan::new(states, 3)) }.run_campaign()
}

#[test]
fn a_replica_restores_to_a_prefix_of_the_requests() {
    let summary = campaign(None, None, 4_000);
    assert_eq!(summary.failure, None);
    let ReplicaTotals { takeovers, uploaders_ended, collected, states_catching_up, .. } = summary.totals;
    let seen = [takeovers, uploaders_ended, collected, states_catching_up];
    assert!(seen.iter().all(|count| *count > 0), "{:?}", summary.totals);
}

#[test]
fn a_replica_that_drops_a_rule_is_found_out() {
    for mutant in [
        ReplicaMutant::ObjectsOutOfOrder,
        ReplicaMutant::PartialGroupCounts,
        ReplicaMutant::CatchUpEndsEarly,
        ReplicaMutant::CatchUpForgetsDiscards,
        ReplicaMutant::CatchUpForgetsShares,
        ReplicaMutant::FenceIgnored,
        ReplicaMutant::EpochForgotten,
        ReplicaMutant::RequestTorn,
        ReplicaMutant::SharesInTurn,
        ReplicaMutant::CheckpointKeepsDiscarded,
        ReplicaMutant::CheckpointTooEarly,
        ReplicaMutant::NamedCollected,
        ReplicaMutant::KeepIgnored,
    ] {
        let summary = campaign(Some(mutant), None, 60_000);
        assert!(summary.failure.is_some(), "{mutant:?} was not noticed in {:?}", summary.totals);
    }
}

#[test]
fn a_tap_that_hands_out_what_is_not_durable_is_found_out() {
    let summary = campaign(None, Some(VolumeMutant::TapsVolatile), 60_000);
    assert!(summary.failure.is_some(), "{:?}", summary.totals);
}
