//! *Findings* of a campaign.

use serde::Serialize;

use crate::explain::Explanation;
use crate::judge::Judgement;
use crate::state::StateName;
use crate::timeline::TimelineEntry;

/// Failures that are made smaller and reported.
pub const REPORTED_MAX: usize = 3;

/// A state that the check calls wrong.
#[derive(Clone, Debug)]
pub struct StateFailure {
    /// The state.
    pub name: StateName,
    /// What the check says of it.
    pub judgement: Judgement,
    /// What it lacks.
    pub explanation: Explanation,
    /// The last calls before the cut.
    pub timeline: Vec<TimelineEntry>,
    /// Units that were missing where it was found, before it was made smaller.
    pub missing_at_first: usize,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct CampaignFindings {
    /// States that were made.
    pub states: u64,
    /// Of these, different ones, which were checked: in their files, or in what was acknowledged.
    pub distinct: u64,
    /// Of these, those that the check calls wrong.
    pub failures: u64,
    /// The first of them, made smaller.
    pub reported: Vec<StateFailure>,
    /// Moments at which the power was cut.
    pub moments: u64,
    /// Of these, those at which a state was checked.
    pub moments_checked: u64,
    /// All states of all moments were checked, tears apart.
    pub is_exhaustive: bool,
    /// It was ended early by the user.
    pub is_interrupted: bool,
    /// What makes the result worth less.
    pub warnings: Vec<String>,
    /// How long it took, without the recording and the checks of what lost nothing.
    pub seconds: f64,
}

/// How far a campaign is.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CampaignProgress {
    /// Different states that were checked.
    pub distinct: u64,
    /// Those that are wrong.
    pub failures: u64,
    /// Since the search began.
    pub seconds: f64,
}
