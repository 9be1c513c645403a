//! Power cuts under the filesystem: every engine, every journal mode, every ground. And that the judges can fail:
//! what is not kept is noticed.

use crate::passing::{ADVERSARY, DUAL, JBD2, LEGACY, LIST, NOBARRIER, RECOVERY};
use weir_crash::{Campaign as _, FsCampaign, FsGround, FsTotals, Plan, Summary};
use weir_flash::Mechanism;
use weir_fs::{Discards, Engine, FsMutant, JournalMode, JournalMutant};
use weir_storage::Rules;

fn pass(engine: Engine, mode: JournalMode, grounds: &[FsGround], states: u64) {
    for ground in grounds {
        pass_campaign(FsCampaign::new(engine, mode, *ground, Plan::new(states, 20_261_121)));
    }
}

fn pass_campaign(campaign: FsCampaign) {
    let summary = campaign.run_campaign();
    let FsCampaign { engine, mode, ground, plan, .. } = campaign;
    assert_eq!(summary.failure, None, "{engine:?}, {mode:?} on {}", ground.name());
    let FsTotals { states_distinct, states_recovery, states_deep, commits, .. } = summary.totals;
    assert!(states_distinct >= plan.states && states_deep > plan.states / 4, "{:?}", summary.totals);
    assert!(states_recovery > 0 && commits > 0, "{:?}", summary.totals);
    if summary.totals.states_outside == 0 {
        eprintln!("skipped: e2fsck is not installed");
    } else if summary.totals.states_kernel == 0 {
        eprintln!("skipped: the kernel does not mount images here");
    }
}

// Each of these is a test of its own as far as it takes long, so that all processors have something to do until the end.

#[test]
fn dual_mode_keeps_its_promises_on_the_worst_disk() {
    pass(DUAL, JournalMode::Ordered, &[ADVERSARY], 800);
}

#[test]
fn dual_mode_keeps_its_promises_on_a_volume() {
    pass(DUAL, JournalMode::Ordered, &[FsGround::Volume], 300);
}

#[test]
fn dual_mode_keeps_its_promises_on_flash() {
    pass(DUAL, JournalMode::Ordered, &[RECOVERY], 800);
}

#[test]
fn dual_mode_keeps_its_promises_on_every_barrier_mechanism() {
    use Mechanism::{InOrderWriteback, PowerLossProtection, TransactionalWriteback};
    let grounds = [PowerLossProtection, InOrderWriteback, TransactionalWriteback].map(FsGround::Flash);
    pass(DUAL, JournalMode::Ordered, &grounds, 250);
}

#[test]
fn dual_mode_keeps_its_promises_in_mode_data() {
    pass(DUAL, JournalMode::Data, &[ADVERSARY, FsGround::Volume], 250);
}

#[test]
fn dual_mode_keeps_its_promises_in_mode_writeback() {
    pass(DUAL, JournalMode::Writeback, &[ADVERSARY, RECOVERY], 250);
}

#[test]
fn the_conflict_page_list_keeps_them_too() {
    pass(LIST, JournalMode::Ordered, &[ADVERSARY, RECOVERY], 250);
}

#[test]
fn the_legacy_engine_keeps_its_promises() {
    pass(JBD2, JournalMode::Ordered, &[LEGACY, FsGround::Flash(Mechanism::None)], 250);
}

#[test]
fn the_legacy_engine_keeps_its_promises_on_a_volume() {
    pass(JBD2, JournalMode::Ordered, &[FsGround::Volume], 250);
}

#[test]
fn the_legacy_engine_keeps_its_promises_in_the_other_modes() {
    pass(JBD2, JournalMode::Data, &[LEGACY], 250);
    pass(JBD2, JournalMode::Writeback, &[LEGACY], 250);
}

#[test]
fn the_engine_for_prefix_devices_keeps_its_promises_on_a_volume() {
    pass(Engine::Prefix, JournalMode::Ordered, &[FsGround::Volume], 300);
}

#[test]
fn the_engine_for_prefix_devices_keeps_its_promises_on_the_worst_of_them() {
    pass(Engine::Prefix, JournalMode::Ordered, &[FsGround::PrefixDisk], 300);
}

#[test]
fn every_engine_keeps_its_promises_on_order_preserving_flash() {
    for engine in [Engine::Prefix, NOBARRIER, DUAL] {
        let ground = FsGround::Flash(Mechanism::OrderPreservingRecovery);
        pass(engine, JournalMode::Ordered, &[ground], 250);
    }
}

#[test]
fn the_engine_for_prefix_devices_keeps_its_promises_in_the_other_modes() {
    pass(Engine::Prefix, JournalMode::Data, &[FsGround::Volume, FsGround::PrefixDisk], 250);
    pass(Engine::Prefix, JournalMode::Writeback, &[FsGround::PrefixDisk], 250);
}

/// A negative control: without reliable writes a power cut garbles what has no second copy, such as the journal's
/// superblock.
#[test]
fn a_device_that_garbles_without_reliable_writes_is_found_out() {
    let ground = FsGround::Emmc { reliable: false };
    let failure =
        FsCampaign::new(JBD2, JournalMode::Ordered, ground, Plan::new(3_000, 1)).run_campaign().failure;
    assert!(failure.is_some_and(|failure| failure.what.contains("mounting")));
}

/// The OPTR paper's no-barrier mode: consistent, and durable in the end.
#[test]
fn without_barriers_the_legacy_engine_is_consistent_on_prefix_devices() {
    pass(NOBARRIER, JournalMode::Ordered, &[FsGround::Volume, FsGround::PrefixDisk], 250);
}

#[test]
fn checkpoints_in_the_foreground_keep_the_promises() {
    for (engine, mode) in
        [(JBD2, JournalMode::Ordered), (JBD2, JournalMode::Data), (Engine::FlushAhead, JournalMode::Ordered)]
    {
        pass_campaign(on_the_worst_disk(engine, mode, 250).as_linux());
    }
}

/// A campaign with this seed finds a journal out that drops a rule of checkpoints in the foreground.
fn assert_found_in_foreground(mutant: JournalMutant, seed: u64) {
    let mut campaign = on_the_worst_disk(JBD2, JournalMode::Ordered, 30_000).as_linux();
    (campaign.plan.seed, campaign.options.rules) = (seed, Rules::but(Some(FsMutant::Journal(mutant))));
    assert_ne!(failure(campaign), None);
}

#[test]
fn checkpoints_in_the_foreground_that_free_the_log_early_are_found_out() {
    assert_found_in_foreground(JournalMutant::OldestFreedEarly, 7);
}

/// The flusher brings blocks home that the log still holds: without pins nothing revokes them, and replay puts them over what has
/// taken their place.
#[test]
fn blocks_that_are_home_and_not_pinned_are_found_out() {
    assert_found_in_foreground(JournalMutant::HomesUnpinned, 6);
}

#[test]
fn flush_ahead_commit_keeps_its_promises() {
    let grounds = [LEGACY, FsGround::Volume, ADVERSARY, FsGround::PrefixDisk];
    pass(Engine::FlushAhead, JournalMode::Ordered, &grounds, 250);
}

#[test]
fn flush_ahead_commit_keeps_its_promises_in_the_other_modes() {
    pass(Engine::FlushAhead, JournalMode::Data, &[LEGACY], 250);
    pass(Engine::FlushAhead, JournalMode::Writeback, &[LEGACY], 250);
}

/// A campaign on the engine's worst disk.
fn on_the_worst_disk(engine: Engine, mode: JournalMode, states: u64) -> FsCampaign {
    let ground = match engine {
        Engine::Dual { .. } => ADVERSARY,
        Engine::Jbd2 { .. } => LEGACY,
        Engine::Prefix => FsGround::PrefixDisk,
        Engine::AsyncCommit | Engine::OptFs | Engine::FlushAhead | Engine::Unjournaled => LEGACY,
    };
    FsCampaign::new(engine, mode, ground, Plan::new(states, 20_261_121))
}

#[test]
fn a_flush_that_fails_is_the_end_of_all_promises() {
    for engine in [DUAL, JBD2, Engine::Prefix, Engine::FlushAhead] {
        let campaign = on_the_worst_disk(engine, JournalMode::Ordered, 1_500);
        let mut campaign = FsCampaign { flush_faults: true, ..campaign };
        pass_campaign(campaign.clone());
        campaign.options.rules = Rules::but(Some(FsMutant::Journal(JournalMutant::ErrorIgnored)));
        assert_ne!(failure(campaign), None, "{engine:?}: a filesystem that goes on survives");
    }
}

#[test]
fn blocks_that_are_torn_are_mended_from_the_log() {
    for (engine, mode) in [
        (DUAL, JournalMode::Ordered),
        (DUAL, JournalMode::Data),
        (JBD2, JournalMode::Ordered),
        (Engine::FlushAhead, JournalMode::Ordered),
    ] {
        let campaign = on_the_worst_disk(engine, mode, 500);
        pass_campaign(FsCampaign { tear_bytes: 512, ..campaign });
    }
    let mut campaign = on_the_worst_disk(DUAL, JournalMode::Ordered, 30_000);
    campaign.tear_bytes = 512;
    campaign.options.rules = Rules::but(Some(FsMutant::Journal(JournalMutant::TailBeforeHome)));
    assert_ne!(failure(campaign.clone()), None, "a log that forgets too early survives");
    campaign.options.rules = Rules::but(Some(FsMutant::TearsSuperblock));
    assert_ne!(failure(campaign), None, "a superblock in two sectors survives");
}

#[test]
fn what_is_discarded_is_missed_by_nobody() {
    for ground in [ADVERSARY, FsGround::Volume, RECOVERY] {
        let mut campaign = FsCampaign::new(DUAL, JournalMode::Ordered, ground, Plan::new(700, 20_261_121));
        campaign.options.discard = Discards::On;
        pass_campaign(campaign);
    }
    let mut campaign = on_the_worst_disk(DUAL, JournalMode::Ordered, 15_000);
    // Discards that come too early are for weir-fs to notice: a device that keeps epochs keeps them behind the commit.
    (campaign.options.discard, campaign.options.rules) =
        (Discards::On, Rules::but(Some(FsMutant::DiscardsReused)));
    assert_ne!(failure(campaign), None, "a filesystem that discards what is in use survives");
}

/// The first failure that a campaign of so many states finds.
fn failure(campaign: FsCampaign) -> Option<String> {
    let Summary { failure, .. } = FsCampaign { outside: 0, ..campaign }.run_campaign();
    failure.map(|failure| failure.what)
}

#[test]
fn without_flushes_a_legacy_disk_keeps_nothing() {
    for ground in [LEGACY, FsGround::Flash(Mechanism::None)] {
        let campaign = FsCampaign::new(NOBARRIER, JournalMode::Ordered, ground, Plan::new(20_000, 3));
        assert_ne!(failure(campaign), None, "{}", ground.name());
    }
    // The refusal of such a disk is got round by what the disk says of itself.
    let campaign =
        FsCampaign::new(Engine::Prefix, JournalMode::Ordered, FsGround::Claiming, Plan::new(20_000, 3));
    assert_ne!(failure(campaign), None, "an order that is only claimed suffices");
}

/// On the worst prefix device: what waits in the queue is received behind what does not.
#[test]
fn an_engine_for_prefix_devices_that_drops_a_rule_is_found_out() {
    use JournalMutant::{FlushForgotten, OthersDataForgotten, TransferNotAwaited};
    for (mutant, seed) in [(FlushForgotten, 1), (OthersDataForgotten, 1), (TransferNotAwaited, 2)] {
        let mut campaign = on_the_worst_disk(Engine::Prefix, JournalMode::Ordered, 30_000);
        (campaign.plan.seed, campaign.options.rules) = (seed, Rules::but(Some(FsMutant::Journal(mutant))));
        assert_ne!(failure(campaign), None, "{mutant:?} survives");
    }
}

#[test]
fn flush_ahead_commit_that_drops_a_rule_is_found_out() {
    use JournalMutant::{
        CommitBeforeFlush, FlushBeforeData, OthersDataForgotten, TailBeforeDurable, TrustsFlushOfCall,
    };
    let mutants =
        [CommitBeforeFlush, FlushBeforeData, TrustsFlushOfCall, OthersDataForgotten, TailBeforeDurable];
    for mutant in mutants {
        let mut campaign = on_the_worst_disk(Engine::FlushAhead, JournalMode::Ordered, 30_000);
        (campaign.plan.seed, campaign.options.rules) = (7, Rules::but(Some(FsMutant::Journal(mutant))));
        assert_ne!(failure(campaign), None, "{mutant:?} survives");
    }
}

/// The comparator promises nothing, and the judges see that.
#[test]
fn without_a_journal_nothing_is_kept() {
    let campaign = FsCampaign::new(Engine::Unjournaled, JournalMode::Ordered, LEGACY, Plan::new(20_000, 3));
    assert_ne!(failure(campaign), None);
}

/// That a look when the call returns is needed for this is shown beside the looks, in `fs::ground`.
#[test]
fn a_call_that_returns_before_its_flush_is_found_out() {
    let mut campaign = on_the_worst_disk(DUAL, JournalMode::Ordered, 30_000);
    campaign.options.rules = Rules::but(Some(FsMutant::Journal(JournalMutant::FlushNotAwaited)));
    assert_ne!(failure(campaign), None);
}

/// The other mutants are killed where their rule is proved: in weir-fs, with several tasks at once.
#[test]
fn a_filesystem_that_drops_a_rule_is_found_out() {
    use JournalMutant::{
        CheckpointsUncommitted, CommitInEpochOfLog, DataOutsideEpoch, EmptyWithoutFlush, FlushForgotten,
        NoRevoke, OthersDataForgotten, RetiresAtDispatch, TailBeforeHome,
    };
    let journal = [
        FlushForgotten,
        RetiresAtDispatch,
        CommitInEpochOfLog,
        DataOutsideEpoch,
        OthersDataForgotten,
        CheckpointsUncommitted,
        TailBeforeHome,
        NoRevoke,
        EmptyWithoutFlush,
    ];
    let files = [
        FsMutant::DataBarrierForgetsMetadata,
        FsMutant::ReusesFreed,
        FsMutant::NoZeroing,
        FsMutant::ZerosForgotten,
        FsMutant::FreedWhileHeld,
    ];
    for mutant in journal.map(FsMutant::Journal).into_iter().chain(files) {
        let found = |seed| {
            let mut campaign =
                FsCampaign::new(DUAL, JournalMode::Ordered, ADVERSARY, Plan::new(30_000, seed));
            campaign.options.rules = Rules::but(Some(mutant));
            failure(campaign).is_some()
        };
        // How soon a rare one shows is a matter of what is drawn: it begins with a seed that shows it soon.
        let first = match mutant {
            FsMutant::Journal(CheckpointsUncommitted) => 6,
            FsMutant::Journal(DataOutsideEpoch) => 8,
            FsMutant::ZerosForgotten => 9,
            _ => 7,
        };
        assert!((first..first + 5).any(found), "{mutant:?} survives");
    }
}
