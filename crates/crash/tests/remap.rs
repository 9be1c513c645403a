//! Power cuts under journals whose checkpoints remap, SOJ and SDJ: every engine that has a journal, every ground that has
//! the share command. And that the judges can fail: the SHARE paper's own SOJ is found out.

use crate::passing::{ADVERSARY, DUAL, JBD2, LEGACY, LIST, NOBARRIER, RECOVERY, failure, pass};
use weir_crash::{FsCampaign, FsGround, Plan};
use weir_flash::Mechanism;
use weir_fs::{CheckpointBy, Engine, JournalMode, JournalMutant};

const SOJ: JournalMode = JournalMode::Ordered;
const SDJ: JournalMode = JournalMode::Data;

fn remapping(engine: Engine, mode: JournalMode, ground: FsGround, states: u64) -> FsCampaign {
    let mut campaign = FsCampaign::new(engine, mode, ground, Plan::new(states, 20_261_123));
    campaign.options.checkpoint = CheckpointBy::Remap;
    campaign
}

#[test]
fn j5_soj_and_sdj_keep_their_promises_on_the_worst_disk() {
    for mode in [SOJ, SDJ] {
        pass(remapping(DUAL, mode, ADVERSARY, 120));
        pass(remapping(JBD2, mode, LEGACY, 120));
    }
    pass(remapping(LIST, SDJ, ADVERSARY, 120));
    pass(remapping(Engine::Prefix, SOJ, FsGround::PrefixDisk, 80));
    pass(remapping(NOBARRIER, SDJ, FsGround::PrefixDisk, 80));
    pass(FsCampaign { tear_bytes: 512, ..remapping(DUAL, SDJ, ADVERSARY, 80) });
    pass(FsCampaign { flush_faults: true, ..remapping(JBD2, SOJ, LEGACY, 80) });
}

#[test]
fn j5_soj_and_sdj_keep_their_promises_on_flash() {
    use Mechanism::{
        InOrderRecovery, InOrderWriteback, OrderPreservingRecovery, PowerLossProtection,
        TransactionalWriteback,
    };
    let mechanisms = [PowerLossProtection, InOrderWriteback, TransactionalWriteback, InOrderRecovery];
    for (nth, mechanism) in mechanisms.into_iter().chain([OrderPreservingRecovery]).enumerate() {
        let mode = if nth.is_multiple_of(2) { SOJ } else { SDJ };
        pass(remapping(DUAL, mode, FsGround::Flash(mechanism), 80));
    }
    for mode in [SOJ, SDJ] {
        pass(remapping(JBD2, mode, FsGround::Flash(Mechanism::None), 80));
    }
    pass(remapping(Engine::Prefix, SDJ, FsGround::Flash(OrderPreservingRecovery), 80));
}

#[test]
fn j5_soj_and_sdj_keep_their_promises_on_a_volume() {
    for (engine, mode) in [(DUAL, SOJ), (DUAL, SDJ), (JBD2, SDJ), (Engine::Prefix, SOJ), (NOBARRIER, SDJ)] {
        pass(remapping(engine, mode, FsGround::Volume, 80));
    }
}

/// The SHARE paper says that its SOJ may lose what was durable, and not why. If its pairs stay until the next checkpoint, that remaps
/// a block of metadata that was freed meanwhile, over the file's page that is there now. With SDJ that page is in the log,
/// and has a pair of its own.
#[test]
fn j5_pairs_that_outlive_revokes_are_found_out() {
    for (engine, ground) in [(DUAL, ADVERSARY), (JBD2, LEGACY), (DUAL, RECOVERY), (DUAL, FsGround::Volume)] {
        let found = failure(remapping(engine, SOJ, ground, 30_000), JournalMutant::PairsOutliveRevokes);
        assert_ne!(found, None, "{engine:?} on {}", ground.name());
    }
}

#[test]
fn j5_a_remap_that_drops_a_rule_is_found_out() {
    use JournalMutant::{NoRevoke, PairsOutOfDate, TailBeforeDurable, TailBeforeHome};
    for (engine, ground) in [(DUAL, ADVERSARY), (JBD2, LEGACY)] {
        for mode in [SOJ, SDJ] {
            let found = failure(remapping(engine, mode, ground, 30_000), PairsOutOfDate);
            assert_ne!(found, None, "{engine:?}, {mode:?}: an older copy goes home, and survives");
        }
        for mutant in [TailBeforeHome, TailBeforeDurable, NoRevoke] {
            let found = failure(remapping(engine, SOJ, ground, 60_000), mutant);
            assert_ne!(found, None, "{engine:?}: {mutant:?} survives");
        }
    }
}
