//! Atomic files and units under power cuts, on every kind of ground; and filesystems that drop a rule fail.

use crate::passing::DUAL;
use weir_crash::{Campaign as _, FsGround, Plan, Summary, UpdateCampaign, UpdateTotals, UpdatedFs};
use weir_fs::{CacheMutant, CheckpointBy, Engine, FsMutant, JournalMode, MountOptions};
use weir_lfs::{F2fsOptions, LfsMutant};
use weir_storage::Rules;

fn campaign(
    ground: &str,
    engine: Engine,
    (mode, checkpoint): (JournalMode, CheckpointBy),
    mutant: Option<FsMutant>,
    states: u64,
) -> Summary<UpdateTotals> {
    let options = MountOptions {
        engine: Some(engine),
        mode,
        checkpoint,
        rules: Rules::but(mutant),
        ..MountOptions::default()
    };
    let ground = FsGround::from_name(ground).expect("a ground");
    let filesystem = UpdatedFs::BarrierFs(options);
    UpdateCampaign { plan: Plan::new(states, 17), ground, filesystem }.run_campaign()
}

#[test]
fn updates_are_whole_on_every_ground() {
    let grounds = [
        ("adversary", DUAL),
        ("legacy", Engine::Jbd2 { barrier: true }),
        ("prefix", Engine::Prefix),
        ("volume", DUAL),
        ("in-order-recovery", DUAL),
        ("order-preserving-recovery", Engine::Prefix),
    ];
    let hows = [
        (JournalMode::Ordered, CheckpointBy::Copy),
        (JournalMode::Data, CheckpointBy::Copy),
        (JournalMode::Ordered, CheckpointBy::Remap),
    ];
    // Every way of the journal on the worst disk; on each other ground one of them.
    for (nth, (ground, engine)) in grounds.into_iter().enumerate() {
        let of_ground = if nth == 0 { &hows[..] } else { &hows[nth % hows.len()..][..1] };
        for &how in of_ground {
            let summary = campaign(ground, engine, how, None, 150);
            assert_eq!(summary.failure, None, "{ground}, {how:?}");
            assert!(summary.totals.updates > 20 && summary.totals.abandoned > 0, "{:?}", summary.totals);
            let keeps_requests = matches!(ground, "volume" | "order-preserving-recovery");
            assert_eq!(summary.totals.states_units > 0, keeps_requests, "{ground}: {:?}", summary.totals);
        }
    }
}

fn f2fs_campaign(ground: FsGround, mutant: Option<LfsMutant>, states: u64) -> Summary<UpdateTotals> {
    let filesystem = UpdatedFs::F2fs(F2fsOptions { rules: Rules::but(mutant), ..F2fsOptions::default() });
    UpdateCampaign { plan: Plan::new(states, 17), ground, filesystem }.run_campaign()
}

#[test]
fn atomic_writes_of_f2fs_are_whole_on_every_ground() {
    for name in ["adversary", "legacy", "none", "volume", "in-order-recovery"] {
        let summary = f2fs_campaign(FsGround::from_name(name).expect("a ground"), None, 300);
        assert_eq!(summary.failure, None, "{name}");
        assert!(summary.totals.updates > 20 && summary.totals.abandoned > 0, "{:?}", summary.totals);
    }
}

/// One node leads to all pages of these files: what marks do of several is tested with the rules of F2FS.
#[test]
fn an_f2fs_that_overwrites_updates_in_place_fails() {
    let summary =
        f2fs_campaign(FsGround::Adversary { barriers: true }, Some(LfsMutant::UpdateInPlace), 15_000);
    assert!(summary.failure.is_some(), "not noticed in {:?}", summary.totals);
}

#[test]
fn a_filesystem_that_drops_a_rule_fails() {
    let ordered = (JournalMode::Ordered, CheckpointBy::Copy);
    for (mutant, ground) in [
        (FsMutant::UpdateSplit, "adversary"),
        (FsMutant::UpdateNotDeferred, "adversary"),
        (FsMutant::Cache(CacheMutant::UnitInTwoRequests), "volume"),
        (FsMutant::Journal(weir_fs::JournalMutant::NoRevoke), "adversary"),
    ] {
        let summary = campaign(ground, DUAL, ordered, Some(mutant), 15_000);
        assert!(summary.failure.is_some(), "{mutant:?} was not noticed in {:?}", summary.totals);
    }
}
