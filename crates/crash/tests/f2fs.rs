//! Power cuts under F2FS: both cleaners, every kind of ground. And that the judges can fail: a filesystem that drops a rule is
//! noticed.

use weir_crash::{Campaign as _, F2fsCampaign, F2fsTotals, FsGround, Plan, Summary};
use weir_flash::Mechanism;
use weir_lfs::{Cleaner, LfsMutant, SyncMode};
use weir_storage::Rules;

use crate::passing::{ADVERSARY, LEGACY, RECOVERY};

fn pass(cleaner: Cleaner, grounds: &[FsGround], states: u64) {
    for ground in grounds {
        let summary = F2fsCampaign::new(cleaner, *ground, Plan::new(states, 20_261_126)).run_campaign();
        assert_eq!(summary.failure, None, "{} on {}", cleaner.name(), ground.name());
        let F2fsTotals { states_distinct, states_recovery, pages_moved, .. } = summary.totals;
        assert!(states_distinct >= states && states_recovery > 0 && pages_moved > 0, "{:?}", summary.totals);
    }
}

#[test]
fn f2fs_that_copies_keeps_its_promises_on_the_worst_disks() {
    pass(Cleaner::Copy, &[ADVERSARY, LEGACY], 300);
}

#[test]
fn f2fs_that_copies_keeps_its_promises_on_a_volume_and_on_flash() {
    pass(Cleaner::Copy, &[FsGround::Volume, RECOVERY, FsGround::Flash(Mechanism::None)], 100);
}

#[test]
fn f2fs_that_shares_keeps_its_promises() {
    pass(Cleaner::Share, &[ADVERSARY, FsGround::Volume, RECOVERY], 100);
}

/// The first failure that a campaign of so many states finds.
fn failure(cleaner: Cleaner, mutant: LfsMutant, seed: u64) -> Option<String> {
    let mut campaign = F2fsCampaign::new(cleaner, ADVERSARY, Plan::new(5_000, seed));
    (campaign.outside, campaign.options.rules) = (0, Rules::but(Some(mutant)));
    let Summary { failure, .. } = campaign.run_campaign();
    failure.map(|failure| failure.what)
}

fn is_found_out(cleaner: Cleaner, mutant: LfsMutant) {
    // How soon a rare one shows is a matter of what is drawn.
    assert!((7..10).any(|seed| failure(cleaner, mutant, seed).is_some()), "{mutant:?} survives");
}

#[test]
fn f2fs_that_drops_a_rule_is_found_out() {
    use LfsMutant::{
        AddressNotRolledForward, ChainGoesOn, FooterNotBehind, InodeWithoutName, MarkOnEveryNode,
        NodesWithPages, NumberReusedEarly, OrphanKept, SegmentReusedEarly, SummaryLies,
    };
    for mutant in [
        FooterNotBehind,
        SegmentReusedEarly,
        NumberReusedEarly,
        NodesWithPages,
        ChainGoesOn,
        AddressNotRolledForward,
        InodeWithoutName,
        MarkOnEveryNode,
        OrphanKept,
        SummaryLies,
    ] {
        is_found_out(Cleaner::Copy, mutant);
    }
}

#[test]
fn f2fs_that_does_not_wait_for_shares_is_found_out() {
    is_found_out(Cleaner::Share, LfsMutant::ShareNotAwaited);
}

/// The comparator promises nothing, and the judges see that.
#[test]
fn f2fs_without_flushes_loses_what_it_calls_durable() {
    let mut campaign = F2fsCampaign::new(Cleaner::Copy, LEGACY, Plan::new(5_000, 3));
    (campaign.outside, campaign.options.sync) = (0, SyncMode::NoBarrier);
    assert_ne!(campaign.run_campaign().failure, None);
}
