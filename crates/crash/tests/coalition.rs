//! Power cuts under journals that log changed bytes (journal coalition): every engine, the grounds that it is for, and every
//! rule of J9 dropped once. What such a log holds is judged by e2fsck and the kernel after our replay, and refused by
//! e2fsck before.

use crate::passing::{ADVERSARY, DUAL, JBD2, LEGACY, LIST, NOBARRIER, failure, pass};
use weir_crash::{FsCampaign, FsGround, Plan};
use weir_flash::Mechanism;
use weir_fs::{CheckpointBy, Engine, JournalMode, JournalMutant};

const EMMC: FsGround = FsGround::Emmc { reliable: true };

fn coalition(engine: Engine, ground: FsGround, states: u64) -> FsCampaign {
    let mut campaign = FsCampaign::new(engine, JournalMode::Ordered, ground, Plan::new(states, 20_261_123));
    campaign.options.coalition = true;
    campaign
}

#[test]
fn j9_changes_keep_all_promises_on_the_worst_disk() {
    for engine in [DUAL, LIST] {
        pass(coalition(engine, ADVERSARY, 120));
        pass(FsCampaign { tear_bytes: 512, ..coalition(engine, ADVERSARY, 120) });
    }
    pass(FsCampaign { tear_bytes: 512, ..coalition(JBD2, LEGACY, 120) });
    pass(FsCampaign { mode: JournalMode::Data, ..coalition(JBD2, LEGACY, 80) });
    pass(FsCampaign { flush_faults: true, ..coalition(DUAL, ADVERSARY, 80) });
    for engine in [Engine::Prefix, NOBARRIER] {
        pass(coalition(engine, FsGround::PrefixDisk, 80));
    }
}

#[test]
fn j9_changes_keep_all_promises_on_flash_and_on_a_volume() {
    for mechanism in [Mechanism::InOrderRecovery, Mechanism::TransactionalWriteback] {
        pass(coalition(DUAL, FsGround::Flash(mechanism), 80));
    }
    pass(coalition(JBD2, FsGround::Flash(Mechanism::None), 80));
    for engine in [DUAL, JBD2, Engine::Prefix, Engine::FlushAhead] {
        pass(coalition(engine, FsGround::Volume, 80));
    }
    let mut remaps = coalition(DUAL, FsGround::Volume, 600);
    remaps.options.checkpoint = CheckpointBy::Remap;
    pass(remaps);
}

#[test]
fn j9_a_rule_that_is_dropped_is_found_out() {
    use JournalMutant::{HomeNotRead, NewBlockMerged, NoRevoke, RangeForgotten};
    for (engine, ground) in [(DUAL, ADVERSARY), (JBD2, LEGACY), (DUAL, FsGround::Volume)] {
        for mutant in [RangeForgotten, NewBlockMerged, HomeNotRead, NoRevoke] {
            let found = failure(coalition(engine, ground, 60_000), mutant);
            assert_ne!(found, None, "{engine:?} on {}: {mutant:?} survives", ground.name());
        }
    }
}

/// A drive that corrupts what it writes, as eMMC without a volume: homes, and what leads to the log, by reliable writes.
#[test]
fn j9_homes_are_whole_on_emmc() {
    for engine in [JBD2, Engine::FlushAhead] {
        pass(coalition(engine, EMMC, 80));
        pass(FsCampaign::new(engine, JournalMode::Ordered, EMMC, Plan::new(200, 20_261_123)));
    }
    for mutant in [JournalMutant::HomesUnreliable, JournalMutant::SuperblocksUnreliable] {
        let found = failure(coalition(JBD2, EMMC, 60_000), mutant);
        assert_ne!(found, None, "{mutant:?} survives");
    }
}

/// JD and JC are one block then, and D has to be an epoch of its own before it.
#[test]
fn j2_a_commit_that_is_alone_stays_behind_its_data() {
    for engine in [DUAL, LIST] {
        let found = failure(coalition(engine, ADVERSARY, 60_000), JournalMutant::DataInEpochOfCommit);
        assert_ne!(found, None, "{engine:?}: JC overtakes D, and nobody notices");
    }
}
