//! *Shrinking*: a state that is wrong, made smaller, so that what is missing of it is a cause.

use weir_crash::leave_out;

use crate::campaign::ProgramCampaign;
use crate::judge::Judgement;
use crate::plan::CampaignError;
use crate::state::StateName;
use crate::unit::{UnitNumber, union_of_sectors};

/// Checks that are run to make one failure smaller.
const TRIALS_MAX: u32 = 300;

impl ProgramCampaign<'_> {
    /// Puts back as much as can be while the check still fails.
    pub(crate) fn shrink(
        &self,
        name: StateName,
        judgement: Judgement,
    ) -> Result<(StateName, Judgement), CampaignError> {
        let moments = self.moment(name.moment)?;
        let acknowledged = self.units.moments[name.moment].acknowledged;
        let mut smallest = (name.clone(), judgement);
        let (mut trials, mut has_failed) = (0, false);
        let mut fails = |candidate: StateName| {
            if !moments.allows(&candidate) {
                return Some(false);
            }
            if trials == TRIALS_MAX || has_failed {
                return None;
            }
            trials += 1;
            let tree = moments.tree(&candidate).map_err(CampaignError::from);
            match tree.and_then(|tree| self.judge_tree(&tree, acknowledged)) {
                Ok(judgement) if judgement.is_right => Some(false),
                Ok(judgement) => {
                    smallest = (candidate, judgement);
                    Some(true)
                }
                Err(_) => {
                    has_failed = true;
                    None
                }
            }
        };
        // What is torn may as well be missing, or there.
        let mut torn = name.torn.clone();
        let is_torn = |unit: &UnitNumber| name.torn.iter().any(|(torn, _)| torn == unit);
        if !torn.is_empty() && fails(StateName { torn: Vec::new(), ..name.clone() }) == Some(true) {
            torn.clear();
        }
        let keeps: Vec<UnitNumber> =
            name.missing.iter().copied().filter(|unit| !torn.is_empty() && is_torn(unit)).collect();
        let mut items: Vec<UnitNumber> =
            name.missing.iter().copied().filter(|unit| !keeps.contains(unit)).collect();
        let state_of = |missing: &[UnitNumber]| {
            let mut missing = [missing, &keeps[..]].concat();
            missing.sort_unstable();
            let mut torn = torn.clone();
            for (last, sectors) in &mut torn {
                *sectors &= union_of_sectors(self.units.parts_of_tear(&missing, *last));
            }
            StateName { moment: name.moment, missing, torn }
        };
        while leave_out(&mut items, |fewer| fails(state_of(fewer))) {}
        // Where a check fails to be run, it is as small as it was made until then.
        Ok(smallest)
    }
}
