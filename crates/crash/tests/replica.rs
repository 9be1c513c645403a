//! Replicas while machines crash; and replicas that drop a rule fail.

use weir_crash::{Campaign as _, Plan, ReplicaCampaign, ReplicaTotals, Summary};
use weir_replica::ReplicaMutant;
use weir_storage::Rules;
use weir_volume::VolumeMutant;

/// The seed of campaigns, but for mutants that few runs show.
const SEED: u64 = 4;

fn campaign(
    replica: Option<ReplicaMutant>,
    volume: Option<VolumeMutant>,
    plan: Plan,
) -> Summary<ReplicaTotals> {
    let rules = (Rules::but(replica), Rules::but(volume));
    ReplicaCampaign { rules, ..ReplicaCampaign::new(plan) }.run_campaign()
}

/// What is wrong with how a mutant is found out: not at all, or for another reason than the words of one that it breaks.
fn wrong_reason(summary: &Summary<ReplicaTotals>, words: &[&str]) -> Option<String> {
    let Some(failure) = &summary.failure else { return Some(format!("not noticed in {:?}", summary.totals)) };
    let is_reason = words.iter().all(|word| failure.what.contains(word));
    (!is_reason).then(|| format!("{words:?} are not in {failure:?}"))
}

#[test]
fn a_replica_restores_to_a_prefix_of_the_requests() {
    let summary = campaign(None, None, Plan::new(4_000, SEED));
    assert_eq!(summary.failure, None);
    let totals = summary.totals;
    let seen = [
        totals.takeovers,
        totals.returned,
        totals.restorers_ended,
        totals.uploaders_ended,
        totals.collected,
        totals.remote_flushes,
        totals.states_catching_up,
    ];
    assert!(seen.iter().all(|count| *count > 0), "{totals:?}");
}

/// Each is found out by what it does, in the words of the judge.
#[test]
fn a_replica_that_drops_a_rule_is_found_out() {
    let reasons: [(ReplicaMutant, &[&str]); 16] = [
        (ReplicaMutant::ObjectsOutOfOrder, &["log/", "is missing, and the log goes on behind it"]),
        (ReplicaMutant::PartialGroupCounts, &["the newest state, request", "and should be"]),
        (ReplicaMutant::CatchUpEndsEarly, &["the newest state, request", "and should be"]),
        (
            ReplicaMutant::CatchUpForgetsDiscards,
            &["the store has caught up, and has not what the volume has"],
        ),
        (ReplicaMutant::CatchUpForgetsShares, &["the newest state, request", "and should be"]),
        (ReplicaMutant::AbsenceUnchecked, &["a machine that was taken for dead says that request"]),
        (ReplicaMutant::FenceIgnored, &["a machine that was taken for dead says that request"]),
        (ReplicaMutant::EpochForgotten, &["the newest writer has stopped", "writer number 0"]),
        (ReplicaMutant::GenerationIgnored, &["the newest writer has stopped: another writer has taken over"]),
        (ReplicaMutant::RequestTorn, &["state, request", "and should be"]),
        (ReplicaMutant::SharesInTurn, &["state, request", "and should be"]),
        (
            ReplicaMutant::CheckpointKeepsDiscarded,
            &["the store has caught up, and has not what the volume has"],
        ),
        (ReplicaMutant::CheckpointTooEarly, &["map/", "is missing"]),
        (ReplicaMutant::NamedCollected, &["log/", "is missing"]),
        (ReplicaMutant::KeepIgnored, &["cannot be restored, but states from position"]),
        (ReplicaMutant::RemoteUnawaited, &["a flush to the store was acknowledged with request"]),
    ];
    let wrong = reasons.iter().filter_map(|(mutant, words)| {
        let seed = match mutant {
            ReplicaMutant::AbsenceUnchecked => 202,
            ReplicaMutant::FenceIgnored => 6,
            _ => SEED,
        };
        let found = wrong_reason(&campaign(Some(*mutant), None, Plan::new(60_000, seed)), words);
        found.map(|what| format!("{mutant:?}: {what}"))
    });
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_tap_that_hands_out_what_is_not_durable_is_found_out() {
    let summary = campaign(None, Some(VolumeMutant::TapsVolatile), Plan::new(60_000, SEED));
    assert_eq!(wrong_reason(&summary, &["the store has request", "and a power cut leaves the disk"]), None);
}
