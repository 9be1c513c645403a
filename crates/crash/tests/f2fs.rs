//! Power cuts under F2FS: both cleaners, every kind of ground. And that each judge of the campaign can fail; that every rule of the
//! filesystem has a mutant that is noticed, is shown by its own tests. `weir crash campaign f2fs --states N` looks at as many
//! states as it is told.

use weir_crash::{Campaign as _, F2fsCampaign, F2fsTotals, FsGround, Plan};
use weir_flash::Mechanism;
use weir_lfs::{Cleaner, Flushes, LfsMutant};
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

/// A campaign on a filesystem that drops a rule fails, and says what.
fn is_found_out(mutant: LfsMutant, what: &str) {
    let mut campaign = F2fsCampaign::new(Cleaner::Copy, ADVERSARY, Plan::new(5_000, 7));
    (campaign.outside, campaign.options.rules) = (0, Rules::but(Some(mutant)));
    let failure = campaign.run_campaign().failure.expect("the mutant survives");
    assert!(failure.what.contains(what), "{mutant:?}: {}", failure.what);
}

#[test]
fn a_checkpoint_that_is_not_whole_is_found_out() {
    is_found_out(LfsMutant::FooterNotBehind, "it is another node than the node table says");
}

#[test]
fn pages_that_were_never_written_are_found_out() {
    is_found_out(LfsMutant::NodesWithPages, "no checkpoint and calls behind it leave this");
}

#[test]
fn nodes_of_no_file_are_found_out() {
    is_found_out(LfsMutant::OrphanKept, "it is in use, and no file leads to it");
}

/// The comparator promises nothing, and the judges see that.
#[test]
fn f2fs_without_flushes_loses_what_it_calls_durable() {
    let mut campaign = F2fsCampaign::new(Cleaner::Copy, LEGACY, Plan::new(5_000, 3));
    (campaign.outside, campaign.options.flushes) = (0, Flushes::Never);
    assert_ne!(campaign.run_campaign().failure, None);
}
