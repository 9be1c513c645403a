//! Campaigns on filesystems in tests: one that has to pass, and what one with a mutant finds.

use weir_crash::{FsCampaign, FsSummary};
use weir_fs::{FsMutant, JournalMutant};
use weir_storage::Rules;

/// Nothing is wrong in all its states, and checkpoints are among them.
pub fn pass(campaign: FsCampaign) {
    let FsSummary { totals, failure, .. } = campaign.go();
    let FsCampaign { engine, mode, ground, states, .. } = campaign;
    assert_eq!(failure, None, "{engine:?}, {mode:?} on {}", ground.name());
    assert!(totals.states_distinct >= states && totals.checkpoints > 0, "{totals:?}");
}

/// The first failure that a campaign with a mutant finds.
pub fn failure(mut campaign: FsCampaign, mutant: JournalMutant) -> Option<String> {
    campaign.options.rules = Rules::but(Some(FsMutant::Journal(mutant)));
    let FsSummary { failure, .. } = FsCampaign { outside: 0, ..campaign }.go();
    failure.map(|failure| failure.what)
}
