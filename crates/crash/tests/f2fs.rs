//! Power cuts under F2FS: both cleaners, every kind of ground. And that the judges can fail: a filesystem that drops a rule is
//! noticed. `weir crash campaign f2fs --states N` looks at as many states as it is told.

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
    let found = (7..10).find_map(|seed| failure(cleaner, mutant, seed));
    assert!(found.is_some(), "{mutant:?} survives");
}

#[test]
fn f2fs_with_a_footer_that_is_not_behind_its_checkpoint_is_found_out() {
    is_found_out(Cleaner::Copy, LfsMutant::FooterNotBehind);
}

#[test]
fn f2fs_that_uses_segments_again_too_early_is_found_out() {
    is_found_out(Cleaner::Copy, LfsMutant::SegmentReusedEarly);
}

#[test]
fn f2fs_that_uses_numbers_again_too_early_is_found_out() {
    is_found_out(Cleaner::Copy, LfsMutant::NumberReusedEarly);
}

#[test]
fn f2fs_with_nodes_before_their_pages_is_found_out() {
    is_found_out(Cleaner::Copy, LfsMutant::NodesWithPages);
}

#[test]
fn f2fs_whose_mount_begins_no_chain_is_found_out() {
    is_found_out(Cleaner::Copy, LfsMutant::ChainGoesOn);
}

#[test]
fn f2fs_that_brings_back_a_part_of_a_call_is_found_out() {
    is_found_out(Cleaner::Copy, LfsMutant::AddressNotRolledForward);
    is_found_out(Cleaner::Copy, LfsMutant::InodeWithoutName);
}

#[test]
fn f2fs_that_marks_every_node_is_found_out() {
    is_found_out(Cleaner::Copy, LfsMutant::MarkOnEveryNode);
}

#[test]
fn f2fs_that_lists_no_orphans_is_found_out() {
    is_found_out(Cleaner::Copy, LfsMutant::OrphanKept);
}

#[test]
fn f2fs_with_summaries_that_lie_is_found_out() {
    is_found_out(Cleaner::Copy, LfsMutant::SummaryLies);
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
