//! Power cuts under the engines that have checksums in the place of flushes: async commit and OptFS. What they promise, what
//! they do not, and that each rule that is dropped is found out.

use crate::passing::LEGACY;
use weir_crash::{Campaign as _, FsCampaign, FsGround, Plan};
use weir_flash::Mechanism;
use weir_fs::{Engine, FsMutant, JournalMode, JournalMutant, ReplayMutant};
use weir_storage::Rules;

const FLASH: FsGround = FsGround::Flash(Mechanism::None);

fn campaign(engine: Engine, ground: FsGround, states: u64) -> FsCampaign {
    FsCampaign::new(engine, JournalMode::Ordered, ground, Plan::new(states, 20_261_123))
}

fn pass(campaign: FsCampaign) {
    let summary = campaign.run_campaign();
    assert_eq!(summary.failure, None, "{:?} on {}", campaign.engine, campaign.ground.name());
    assert!(summary.totals.states_distinct >= campaign.plan.states, "{:?}", summary.totals);
    assert!(summary.totals.checkpoints > 0 && summary.totals.states_recovery > 0, "{:?}", summary.totals);
}

/// Whether one of some seeds shows what is wrong, where there is nothing wrong without the mutant: with the seed that shows
/// it, for as many states.
fn is_found_out(engine: Engine, mutant: JournalMutant) -> bool {
    (7..12).any(|seed| {
        let plan = Plan::new(30_000, seed);
        let control = FsCampaign { plan, outside: 0, ..campaign(engine, LEGACY, 30_000) };
        let mut wrong = control.clone();
        wrong.options.rules = Rules::but(Some(FsMutant::Journal(mutant)));
        let found = wrong.run_campaign();
        let plan = Plan { states: found.totals.states_distinct + 1, ..plan };
        found.failure.is_some() && FsCampaign { plan, ..control }.run_campaign().failure.is_none()
    })
}

#[test]
fn async_commit_keeps_its_promises() {
    for ground in [LEGACY, FsGround::Volume, FLASH] {
        pass(campaign(Engine::AsyncCommit, ground, 100));
    }
    pass(FsCampaign { mode: JournalMode::Data, ..campaign(Engine::AsyncCommit, LEGACY, 100) });
    let torn = campaign(Engine::AsyncCommit, LEGACY, 100);
    pass(FsCampaign { mode: JournalMode::Data, tear_bytes: 512, ..torn });
}

/// ext4 refuses its option in mode ordered for this: no flush is between D and JC.
#[test]
fn async_commit_shows_old_content_in_mode_ordered() {
    let strict = campaign(Engine::AsyncCommit, LEGACY, 60_000);
    let failure =
        FsCampaign { judged_as: Some(JournalMode::Ordered), outside: 0, ..strict }.run_campaign().failure;
    assert!(failure.is_some_and(|failure| failure.what.contains("page")), "nothing is uncovered");
}

#[test]
fn async_commit_without_its_flush_is_found_out() {
    assert!(is_found_out(Engine::AsyncCommit, JournalMutant::CommitNotFlushed));
}

#[test]
fn async_commit_with_a_recovery_that_drops_a_rule_is_found_out() {
    use ReplayMutant::{RefusesTornCommit, TakesOwnCommitForLater, TrustsCommitBlock};
    for mutant in [RefusesTornCommit, TakesOwnCommitForLater, TrustsCommitBlock] {
        assert!(is_found_out(Engine::AsyncCommit, JournalMutant::Replay(mutant)), "{mutant:?} survives");
    }
}

#[test]
fn j10_optfs_keeps_its_promises() {
    for ground in [LEGACY, FsGround::Volume, FLASH] {
        pass(campaign(Engine::OptFs, ground, 250));
    }
}

#[test]
fn j10_optfs_keeps_its_promises_with_all_data_in_the_log() {
    pass(FsCampaign { mode: JournalMode::Data, ..campaign(Engine::OptFs, LEGACY, 250) });
}

#[test]
fn j10_a_rule_that_is_dropped_is_found_out() {
    use JournalMutant::{
        CheckedNotRevoked, CheckpointsUnnoticed, DataUnchecked, FlushForgotten, Replay, ReusesUnnoticed,
    };
    let mutants = [
        DataUnchecked,
        CheckpointsUnnoticed,
        ReusesUnnoticed,
        CheckedNotRevoked,
        Replay(ReplayMutant::ReplaysPastHole),
        FlushForgotten,
    ];
    let survivors = mutants.map(|mutant| (!is_found_out(Engine::OptFs, mutant)).then_some(mutant));
    assert!(survivors.iter().all(Option::is_none), "{survivors:?}");
}
