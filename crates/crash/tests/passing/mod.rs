//! Campaigns on filesystems in tests: one that has to pass, and what one with a mutant finds.

use weir_crash::{Campaign as _, FsCampaign, FsGround, Summary};
use weir_flash::Mechanism;
use weir_fs::{Conflicts, Engine, FsMutant, JournalMutant};
use weir_storage::Rules;

pub const DUAL: Engine = Engine::Dual { conflicts: Conflicts::Copy };
pub const LIST: Engine = Engine::Dual { conflicts: Conflicts::List };
pub const JBD2: Engine = Engine::Jbd2 { barrier: true };
pub const NOBARRIER: Engine = Engine::Jbd2 { barrier: false };
pub const ADVERSARY: FsGround = FsGround::Adversary { barriers: true };
pub const LEGACY: FsGround = FsGround::Adversary { barriers: false };
pub const RECOVERY: FsGround = FsGround::Flash(Mechanism::InOrderRecovery);

/// Nothing is wrong in all its states, and checkpoints are among them.
pub fn pass(campaign: FsCampaign) {
    let Summary { totals, failure, .. } = campaign.run_campaign();
    let FsCampaign { engine, mode, ground, plan, .. } = campaign;
    assert_eq!(failure, None, "{engine:?}, {mode:?} on {}", ground.name());
    assert!(totals.states_distinct >= plan.states && totals.checkpoints > 0, "{totals:?}");
}

/// The first failure that a campaign with a mutant finds.
pub fn failure(mut campaign: FsCampaign, mutant: JournalMutant) -> Option<String> {
    campaign.options.rules = Rules::but(Some(FsMutant::Journal(mutant)));
    let Summary { failure, .. } = FsCampaign { outside: 0, ..campaign }.run_campaign();
    failure.map(|failure| failure.what)
}
