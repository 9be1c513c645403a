//! *Campaign*: the states that power cuts may leave of a recorded run, each checked once, and failures made smaller.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;

use weir_runtime::{Handle, Random, Runtime, Simulation, share_among_threads};

use crate::candidates::Candidates;
use crate::drive::{Drive, LeftByDrive};
use crate::explain::{counted, describe_calls, explain};
use crate::explain_disk::{describe_request, explain_disk};
use crate::findings::{CampaignFindings, CampaignProgress, REPORTED_MAX, StateFailure};
use crate::judge::{Judge, Judgement, Privileges, write_tree};
use crate::mutants::ProgramMutant;
use crate::plan::{CampaignError, Plan};
use crate::record::Record;
use crate::run_plan::RunDisk;
use crate::state::{Moments, StateName, StateNameError};
use crate::stop::StopCondition;
use crate::timeline::make_timeline;
use crate::tree::{BLOCK_BYTES, Tree};
use crate::unit::UnitNumber;
use crate::units::{Moment, MomentKind, Units};

/// States that are built before they are judged.
const BATCH: usize = 256;
/// Candidates of each moment that the first pass looks at; each pass looks at more.
const FIRST_PASS: usize = 4;
/// Of the time for the search, one part in so many is added to make a failure smaller.
const SHRINKING_SHARE: u32 = 2;
/// Failures that are made smaller: some are the same then.
const SHRUNK_MAX: usize = 2 * REPORTED_MAX;
/// So many states that fail end the search: more of them say nothing new.
pub const FAILING_MAX: u64 = 64;
/// Of the states that are checked, one in so many may be one before an acknowledgement.
const ANNOUNCEMENTS_SHARE: u64 = 4;
/// Of so many candidates one is drawn: those that come first are preferred.
const DRAWN_OF: u64 = 64;
/// Cuts of a drive in a moment and a pass: each pass is another run of it.
const DRIVE_CUTS_MAX: usize = 64;
/// Cuts of a drive in a pass, likely so many: all are made before one is checked.
const DRIVE_CUTS_A_PASS: u64 = 512;
/// So many passes that find no new state end the search.
const IDLE_PASSES_MAX: u32 = 3;

/// Where nothing is lost.
const BEGINNING: &str = "on what --setup has made, with nothing acknowledged";
const WHOLE: &str = "on what the run has left";

/// A campaign on one record.
pub struct ProgramCampaign<'a> {
    record: &'a Record,
    plan: &'a Plan,
    pub(crate) units: Arc<Units>,
    judge: Judge,
    /// Ends checks.
    search: StopCondition,
    /// Ends the checks that make a failure smaller.
    shrinking: StopCondition,
    chance: Handle,
    /// The chance of each moment, the same in each pass.
    chances: BTreeMap<usize, Random>,
    /// What was chosen: the most that was acknowledged, for each tree.
    chosen: BTreeMap<u64, usize>,
    /// What was judged: the tree, and what was acknowledged.
    judged: BTreeSet<(u64, usize)>,
    /// At which moments.
    judged_moments: BTreeSet<usize>,
    findings: CampaignFindings,
    /// Failures that were made smaller.
    shrunk: usize,
    /// The check has given two answers for one state, and there is a warning that says so.
    is_unsteady: bool,
    /// States that are wrong by what the filesystem takes a torn block of its own for.
    own_tears: u64,
}

/// Refuses the judgement of a check whose command could not be run.
fn require_check_run(judgement: Judgement) -> Result<Judgement, CampaignError> {
    match judgement.is_not_run {
        false => Ok(judgement),
        true => {
            let output = String::from_utf8_lossy(&judgement.output).into_owned();
            Err(CampaignError::CheckNotRun { ending: judgement.ending, output })
        }
    }
}

/// Whether one of so many is among those that are drawn, likely so many.
fn is_chosen(random: &mut Random, likely: u64, all: u64) -> bool {
    likely >= all || random.below(all) < likely
}

/// A state that is to be judged.
struct Candidate {
    name: StateName,
    tree: Tree,
    hash: u64,
    acknowledged: usize,
    kind: MomentKind,
}

impl<'a> ProgramCampaign<'a> {
    /// A campaign that has checked nothing yet.
    #[must_use]
    pub fn new(record: &'a Record, plan: &'a Plan) -> ProgramCampaign<'a> {
        let units = Arc::new(Units::from_record(record, plan.promises, plan.rules));
        let judge = Judge::new(&plan.scratch, &plan.here, &plan.check, plan.check_limit);
        let judge = judge.on_disk(
            record.disk.as_ref().map(|disk| RunDisk { ground: disk.ground.clone(), weir: plan.weir.clone() }),
        );
        let stop = StopCondition::from_flag(&plan.stops);
        let chance = Runtime::simulated(Simulation { seed: plan.seed, ..Simulation::default() }).handle();
        let findings =
            CampaignFindings { moments: units.moments.len() as u64, ..CampaignFindings::default() };
        ProgramCampaign {
            record,
            plan,
            units,
            judge,
            search: stop.clone(),
            shrinking: stop,
            chance,
            chances: BTreeMap::new(),
            chosen: BTreeMap::new(),
            judged: BTreeSet::new(),
            judged_moments: BTreeSet::new(),
            findings,
            shrunk: 0,
            is_unsteady: false,
            own_tears: 0,
        }
    }

    /// Checks states until so many were, or the time is over, or there are no more. `report` gets to know how far it is, and
    /// says whether it goes on.
    ///
    /// # Errors
    /// All of [`CampaignError`].
    pub fn run(
        mut self,
        clock: &Handle,
        mut report: impl FnMut(CampaignProgress) -> bool,
    ) -> Result<CampaignFindings, CampaignError> {
        if self.units.all.is_empty() {
            return Err(CampaignError::NothingRecorded);
        }
        self.check_controls()?;
        let began = clock.now();
        let seconds = || clock.now().since(began).as_secs_f64();
        if let Some(time) = self.plan.time {
            self.search = self.search.after(time)?;
            self.shrinking = self.shrinking.after(time + time / SHRINKING_SHARE)?;
        }
        let mut report =
            |progress: CampaignProgress| report(CampaignProgress { seconds: seconds(), ..progress });
        match self.run_passes(&mut report) {
            Ok(is_exhausted) => self.findings.is_exhaustive = is_exhausted,
            // What was found so far is worth as much.
            Err(error) if self.findings.failures > 0 => {
                self.findings.is_interrupted = true;
                self.findings.warnings.push(format!("the search ended early: {error}"));
            }
            Err(error) => return Err(error),
        }
        self.findings.seconds = seconds();
        self.findings.moments_checked = self.judged_moments.len() as u64;
        if self.own_tears > 0 {
            let states = counted(self.own_tears, "state", "states");
            self.findings.warnings.push(format!(
                "{states} failed only with a torn block of the filesystem's own, which is no failure of the program"
            ));
        }
        match self.findings {
            CampaignFindings { is_interrupted: true, failures: 0, .. } => Err(CampaignError::Interrupted),
            CampaignFindings { distinct: 0, .. } => Err(CampaignError::NothingChecked),
            findings => Ok(findings),
        }
    }

    /// Looks at more and more candidates of each moment: whether all were judged.
    fn run_passes(
        &mut self,
        report: &mut impl FnMut(CampaignProgress) -> bool,
    ) -> Result<bool, CampaignError> {
        let (mut from, mut to, mut idle) = (0, FIRST_PASS, 0);
        let mut is_exhausted = false;
        while !is_exhausted && idle < IDLE_PASSES_MAX && !self.is_over() {
            let before = self.findings.distinct;
            is_exhausted = self.run_pass(from..to, report)?;
            idle = if self.findings.distinct == before { idle + 1 } else { 0 };
            (from, to) = (to, 2 * to);
        }
        Ok(is_exhausted && !self.is_over())
    }

    /// Judges one state.
    ///
    /// # Errors
    /// All of [`CampaignError`].
    pub fn judge_state(&self, name: &StateName) -> Result<StateFailure, CampaignError> {
        let tree = self.tree(name)?;
        // A check that does not work here would fail for any state.
        let whole = self.record.tree_after(self.record.operations.len())?;
        self.check_uncut(&whole, self.record.lines.len(), WHOLE)?;
        let judgement = self.judge_tree(&tree, self.units.moments[name.moment].acknowledged)?;
        let mut judgement = require_check_run(judgement)?;
        if !judgement.is_right && self.is_own_tear(name, &judgement)? {
            judgement.ending.push_str(", but only with a torn block of the filesystem's own");
        }
        self.failure(name.clone(), judgement, name.missing.len())
    }

    /// A state of a cut at the end of the record, by the seed and a label.
    pub(crate) fn draw_last_state(&self, label: &str) -> Result<(StateName, Tree), CampaignError> {
        let mut moments = Moments::new(self.record, &self.units)?;
        let mut last = 0;
        while let Some(moment) = moments.advance()? {
            last = moment;
        }
        let name = match self.cut_drive(&BTreeSet::from([last]), 1, label)? {
            Some(left) => left.names_at(&self.units, last, moments.pending()).pop(),
            None => {
                let mut random = self.chance.random(label);
                let nth = random.below(DRAWN_OF);
                let candidates = Candidates::new(&self.units, last, moments.pending(), random);
                candidates.zip(0..=nth).last().map(|(name, _)| name)
            }
        };
        let name = name.ok_or(StateNameError::NotThere)?;
        let tree = moments.tree(&name)?;
        Ok((name, tree))
    }

    /// That the check takes what the run began with, and so can say yes.
    pub(crate) fn check_beginning(&self) -> Result<(), CampaignError> {
        let first = self.record.tree_after(self.record.setup)?;
        self.check_uncut(&first, 0, BEGINNING)
    }

    /// Judges a state that was drawn, once more if it is wrong: the failure, made smaller; or the tree to go on with, which is not
    /// torn where only the filesystem fails by that.
    pub(crate) fn judge_drawn(
        &mut self,
        name: &StateName,
        tree: Tree,
    ) -> Result<Result<Tree, Box<StateFailure>>, CampaignError> {
        let acknowledged = self.units.moments[name.moment].acknowledged;
        let judgement = require_check_run(self.judge_tree(&tree, acknowledged)?)?;
        if judgement.is_right {
            return Ok(Ok(tree));
        }
        let judgement = require_check_run(self.judge_tree(&tree, acknowledged)?)?;
        if judgement.is_right {
            self.warn_of_unsteady_check(name);
            return Ok(Ok(tree));
        }
        if self.is_own_tear(name, &judgement)? {
            let whole = StateName { torn: Vec::new(), ..name.clone() };
            return Ok(Ok(self.tree(&whole)?));
        }
        let missing_at_first = name.missing.len();
        let (name, judgement) = match self.plan.drive {
            // What is smaller, the drive may not leave.
            Some(_) => (name.clone(), judgement),
            None => self.shrink(name.clone(), judgement)?,
        };
        Ok(Err(Box::new(self.failure(name, judgement, missing_at_first)?)))
    }

    /// What was found that makes the result worth less.
    pub(crate) fn into_warnings(self) -> Vec<String> {
        self.findings.warnings
    }

    /// Writes one state as a directory, which must not be there, to be looked at; files get no rights of their own.
    ///
    /// # Errors
    /// [`CampaignError::Io`] and [`CampaignError::Name`].
    pub fn write_state(&self, name: &StateName, directory: &std::path::Path) -> Result<(), CampaignError> {
        Ok(write_tree(&self.tree(name)?, directory, Privileges::Dropped)?)
    }

    pub(crate) fn judge_tree(&self, tree: &Tree, acknowledged: usize) -> Result<Judgement, CampaignError> {
        let judgement = self.judge.judge(tree, &self.record.lines[..acknowledged], &self.shrinking)?;
        judgement.ok_or(CampaignError::Interrupted)
    }

    /// That the check can be run, and takes a tree of which nothing is missing.
    fn check_uncut(&self, tree: &Tree, acknowledged: usize, when: &'static str) -> Result<(), CampaignError> {
        let Judgement { is_right, ending, output, .. } =
            require_check_run(self.judge_tree(tree, acknowledged)?)?;
        match is_right {
            true => Ok(()),
            false => {
                let output = String::from_utf8_lossy(&output).into_owned();
                Err(CampaignError::FailsUncut { when, ending, output })
            }
        }
    }

    /// That the check takes what nothing is missing of, and whether it can fail.
    fn check_controls(&mut self) -> Result<(), CampaignError> {
        let (lines, end) = (self.record.lines.len(), self.record.operations.len());
        let (first, last) = (self.record.tree_after(self.record.setup)?, self.record.tree_after(end)?);
        let controls = [(&first, 0, BEGINNING), (&last, lines, WHOLE)];
        for (tree, acknowledged, when) in controls {
            self.check_uncut(tree, acknowledged, when)?;
        }
        let (empty, emptied) = (Tree::new(self.record.owner), last.with_empty_files());
        let losses = match self.record.disk {
            None => vec![(&empty, "an empty directory"), (&emptied, "files without content")],
            Some(_) => vec![(&first, "what --setup has made")],
        };
        let mut accepted = Vec::new();
        for (tree, what) in losses {
            if tree.hash() != last.hash() && self.judge_tree(tree, lines)?.is_right {
                accepted.push(what);
            }
        }
        let warnings = &mut self.findings.warnings;
        if !accepted.is_empty() && !self.plan.rules.drops(ProgramMutant::TrustsChecks) {
            warnings.push(format!(
                "the check accepts {} with all {lines} lines acknowledged: it may not be able to fail",
                accepted.join(", and ")
            ));
        }
        if lines == 0 {
            warnings.push("nothing was acknowledged, so the check cannot know what must be there".to_owned());
        }
        let (ended, what) = match &self.record.disk {
            None => (end, "the run never synchronised anything (sync and syncfs are not seen)"),
            Some(disk) => (disk.ended, "the kernel never flushed the disk while the program ran"),
        };
        if !self.record.operations[self.record.setup..ended].iter().any(|operation| operation.call.is_sync())
        {
            warnings.push(format!("{what}: all of it may be missing"));
        }
        Ok(())
    }

    /// Whether the search ends.
    fn is_over(&self) -> bool {
        let CampaignFindings { distinct, failures, is_interrupted, .. } = self.findings;
        self.search.is_met() || is_interrupted || distinct >= self.plan.states || failures >= FAILING_MAX
    }

    /// Looks at these candidates of each moment: whether no moment has more.
    fn run_pass(
        &mut self,
        nth: std::ops::Range<usize>,
        report: &mut impl FnMut(CampaignProgress) -> bool,
    ) -> Result<bool, CampaignError> {
        let is_announcement = |moment: &Moment| moment.kind == MomentKind::Acknowledgement;
        let announcements = self.units.moments.iter().filter(|moment| is_announcement(moment)).count() as u64;
        let wanted = (self.units.moments.len() as u64 - announcements) * (nth.end - nth.start) as u64;
        // More than are left, since some are the same.
        let likely = 2 * self.plan.states.saturating_sub(self.findings.distinct).clamp(32, u64::MAX / 2);
        let likely = if self.plan.drive.is_some() { likely.min(DRIVE_CUTS_A_PASS) } else { likely };
        let mut drawn = self.chance.random(&format!("moments of pass {}", nth.start));
        // Where not all moments of a kind can have their turn, each has the same chance.
        let mut is_drawn = |moment: &Moment| match is_announcement(moment) {
            true => is_chosen(&mut drawn, likely / ANNOUNCEMENTS_SHARE, announcements),
            false => is_chosen(&mut drawn, likely, wanted),
        };
        let units = Arc::clone(&self.units);
        let has_turn = |moment: &Moment| {
            moment.kind == MomentKind::Durability || nth.start == 0 || self.plan.drive.is_some()
        };
        let mut is_exhausted = true;
        let mut drawn_moments = BTreeSet::new();
        for (number, moment) in units.moments.iter().enumerate().filter(|(_, moment)| has_turn(moment)) {
            match is_drawn(moment) {
                true => drop(drawn_moments.insert(number)),
                false => is_exhausted = false,
            }
        }
        let left = self.cut_drive(&drawn_moments, nth.len(), &format!("drive of pass {}", nth.start))?;
        let mut batch = Vec::new();
        let mut moments = Moments::new(self.record, &units)?;
        while let Some(moment) = moments.advance()? {
            if !drawn_moments.contains(&moment) {
                continue;
            }
            let names = match &left {
                Some(left) => {
                    is_exhausted = false;
                    left.names_at(&units, moment, moments.pending())
                }
                None => {
                    let (chance, label) = (&self.chance, format!("moment {moment}"));
                    let random = self.chances.entry(moment).or_insert_with(|| chance.random(&label)).clone();
                    let candidates = Candidates::new(&units, moment, moments.pending(), random);
                    let mut candidates = candidates.skip(nth.start);
                    let names = candidates.by_ref().take(nth.len()).collect();
                    is_exhausted &= candidates.next().is_none();
                    names
                }
            };
            let kind = units.moments[moment].kind;
            for name in names {
                self.findings.states += 1;
                let (tree, acknowledged) = (moments.tree(&name)?, units.moments[moment].acknowledged);
                let hash = tree.hash();
                let is_new = match kind {
                    MomentKind::Durability => self.chosen.get(&hash).is_none_or(|most| *most < acknowledged),
                    MomentKind::Acknowledgement => true,
                };
                if is_new {
                    if kind == MomentKind::Durability {
                        self.chosen.insert(hash, acknowledged);
                    }
                    batch.push(Candidate { name, tree, hash, acknowledged, kind });
                }
            }
            if batch.len() >= BATCH {
                self.judge_batch(std::mem::take(&mut batch), report)?;
                if self.is_over() {
                    return Ok(false);
                }
            }
        }
        self.judge_batch(batch, report)?;
        Ok(is_exhausted)
    }

    /// What cuts leave in these moments of the drive that is to be below the disk; none without one.
    fn cut_drive(
        &self,
        moments: &BTreeSet<usize>,
        cuts: usize,
        label: &str,
    ) -> Result<Option<LeftByDrive>, CampaignError> {
        let Some(profile) = &self.plan.drive else { return Ok(None) };
        let drive = Drive::new(self.record, &self.units, profile)?;
        let seed = self.chance.random(label).below(u64::MAX);
        Ok(Some(drive.cut_power(moments, cuts.min(DRIVE_CUTS_MAX), seed, &self.search)?))
    }

    /// Checks that run at one time.
    fn jobs(&self) -> u64 {
        match &self.record.disk {
            Some(disk) if !disk.ground.filesystem.mounts_copies() => 1,
            _ => self.plan.jobs.max(1),
        }
    }

    /// Judges states side by side, a few at a time, and takes in what was found in their order.
    fn judge_batch(
        &mut self,
        mut batch: Vec<Candidate>,
        report: &mut impl FnMut(CampaignProgress) -> bool,
    ) -> Result<(), CampaignError> {
        // Of one tree at several moments, only the last is judged, at which most was acknowledged, and those before an
        // acknowledgement.
        batch.retain(|candidate| {
            let of_tree = (candidate.hash, candidate.acknowledged);
            let is_last = self.chosen.get(&candidate.hash) == Some(&candidate.acknowledged);
            (is_last || candidate.kind == MomentKind::Acknowledgement) && self.judged.insert(of_tree)
        });
        // Where the time is short: what lacks nothing is wrong seldom, and more was promised at a later moment.
        batch.sort_by_key(|candidate| (candidate.name.missing.is_empty(), Reverse(candidate.name.moment)));
        let jobs = self.jobs();
        let at_once = 8 * jobs as usize;
        let mut batch = batch.into_iter().peekable();
        while batch.peek().is_some() && !self.is_over() {
            let left = self.plan.states.saturating_sub(self.findings.distinct) as usize;
            let some: Vec<Candidate> = batch.by_ref().take(at_once.min(left)).collect();
            let (judge, lines, stop) = (&self.judge, &self.record.lines, &self.search);
            let judged = share_among_threads(jobs, some.len() as u64, |nth| {
                let candidate = &some[nth as usize];
                // One that fails to be judged does not take away what others say.
                Ok::<_, Infallible>(judge.judge(&candidate.tree, &lines[..candidate.acknowledged], stop))
            });
            let judged = judged.unwrap_or_else(|never| match never {});
            // What was not judged to its end is no state that was checked.
            for (candidate, judgement) in some.into_iter().zip(judged) {
                let Some(judgement) = judgement? else { continue };
                let judgement = match judgement.is_right {
                    true => judgement,
                    false => match self.judge_alone(&candidate)? {
                        Some(judgement) => judgement,
                        None => continue,
                    },
                };
                self.findings.distinct += 1;
                self.judged_moments.insert(candidate.name.moment);
                if !judgement.is_right && self.is_own_tear(&candidate.name, &judgement)? {
                    self.own_tears += 1;
                } else if !judgement.is_right {
                    self.findings.failures += 1;
                    self.take_failure(candidate, judgement)?;
                }
            }
            let CampaignFindings { distinct, failures, .. } = self.findings;
            if !report(CampaignProgress { distinct, failures, seconds: 0.0 }) {
                self.findings.is_interrupted = true;
                return Ok(());
            }
        }
        Ok(())
    }

    /// Judges a state that has failed beside others once more, by itself; none if the check was ended.
    fn judge_alone(&mut self, candidate: &Candidate) -> Result<Option<Judgement>, CampaignError> {
        let lines = &self.record.lines[..candidate.acknowledged];
        let judgement = self.judge.judge(&candidate.tree, lines, &self.shrinking)?;
        if judgement.as_ref().is_some_and(|judgement| judgement.is_right) {
            self.warn_of_unsteady_check(&candidate.name);
        }
        Ok(judgement)
    }

    fn warn_of_unsteady_check(&mut self, name: &StateName) {
        if !std::mem::replace(&mut self.is_unsteady, true) {
            self.findings.warnings.push(format!(
                "the check gives different answers for the same state: it failed for {name}, and then it did not; \
                 use --jobs 1 if checks disturb each other"
            ));
        }
    }

    /// Whether a state that is wrong is so for a torn block of the filesystem on a disk: the same is right with its torn blocks
    /// whole, old or new, and the filesystem is not mounted, or no file has these blocks.
    fn is_own_tear(&self, name: &StateName, judgement: &Judgement) -> Result<bool, CampaignError> {
        let Some(disk) = self.record.disk.as_ref().filter(|_| !name.torn.is_empty()) else {
            return Ok(false);
        };
        if !judgement.is_refused && !disk.ground.filesystem.tells_places() {
            return Ok(false);
        }
        let blocks: Vec<_> = name.torn.iter().map(|(last, _)| self.units.all[*last].block()).collect();
        let is_torn = |unit: UnitNumber| {
            let of_block = |(last, _): &(UnitNumber, u8)| {
                unit <= *last && self.units.all[unit].block() == self.units.all[*last].block()
            };
            name.torn.iter().any(of_block)
        };
        let old = StateName { torn: Vec::new(), ..name.clone() };
        let is_old = |unit: &UnitNumber| !is_torn(*unit);
        let missing = name.missing.iter().copied().filter(is_old).collect();
        let new = StateName { missing, ..old.clone() };
        let (moments, acknowledged) =
            (self.moment(name.moment)?, self.units.moments[name.moment].acknowledged);
        for whole in [&old, &new].into_iter().filter(|whole| moments.allows(whole)) {
            if !self.judge_tree(&moments.tree(whole)?, acknowledged)?.is_right {
                return Ok(false);
            }
        }
        if judgement.is_refused {
            return Ok(true);
        }
        let owners = self.judge.find_owners(&moments.tree(&new)?)?;
        Ok(!blocks.iter().flatten().any(|(_, block)| owners.has_data(block * BLOCK_BYTES as u64)))
    }

    fn failure(
        &self,
        name: StateName,
        judgement: Judgement,
        missing_at_first: usize,
    ) -> Result<StateFailure, CampaignError> {
        let (record, units, moments) = (self.record, &*self.units, self.moment(name.moment)?);
        let (explanation, timeline) = match &record.disk {
            None => {
                let describe = describe_calls(record, units.moments[name.moment].operations);
                let explanation = explain(record, units, self.plan.promises, &name);
                (explanation, make_timeline(record, units, &moments, &name, describe))
            }
            Some(disk) => {
                // Files come and go: those of this moment count, and then those of the end.
                let whole = StateName { moment: name.moment, ..StateName::default() };
                let now = self.judge.find_owners(&self.tree(&whole)?)?;
                let end = record.tree_after(record.operations.len())?;
                let owners = now.or(self.judge.find_owners(&end)?);
                let describe = |nth: usize| describe_request(&record.operations[nth].call, &owners);
                let timeline = make_timeline(record, units, &moments, &name, describe);
                (explain_disk(record, disk, units, &name, &owners), timeline)
            }
        };
        Ok(StateFailure { name, judgement, explanation, timeline, missing_at_first })
    }

    /// Makes a failure smaller and keeps it, if there are few so far and none of them is a part of it.
    fn take_failure(&mut self, candidate: Candidate, judgement: Judgement) -> Result<(), CampaignError> {
        let Candidate { name, .. } = candidate;
        let is_part = |reported: &StateFailure| {
            let of_moment = !reported.name.missing.is_empty() || reported.name.moment == name.moment;
            of_moment && reported.name.missing.iter().all(|unit| name.missing.binary_search(unit).is_ok())
        };
        let CampaignFindings { reported, .. } = &self.findings;
        if self.plan.drive.is_some() {
            return match reported.iter().any(is_part) {
                true => Ok(()),
                false => self.take_failure_of_drive(name, judgement),
            };
        }
        if reported.len() >= REPORTED_MAX || self.shrunk >= SHRUNK_MAX || reported.iter().any(is_part) {
            return Ok(());
        }
        self.shrunk += 1;
        let missing_at_first = name.missing.len();
        let (name, judgement) = self.shrink(name, judgement)?;
        let failure = self.failure(name, judgement, missing_at_first)?;
        // Two may be one when they are small: of one call, the size is missing here and the data there.
        let calls_of = |failure: &StateFailure| -> BTreeSet<usize> {
            failure.name.missing.iter().map(|unit| self.units.all[*unit].operation).collect()
        };
        let is_same = |reported: &StateFailure| calls_of(reported) == calls_of(&failure);
        if !self.findings.reported.iter().any(is_same) {
            self.findings.reported.push(failure);
        }
        Ok(())
    }

    /// Keeps a failure that a drive has left: of all of them, those that lack least.
    fn take_failure_of_drive(&mut self, name: StateName, judgement: Judgement) -> Result<(), CampaignError> {
        let missing = name.missing.len();
        let is_least =
            |reported: &[StateFailure]| reported.last().is_none_or(|last| missing < last.name.missing.len());
        if self.findings.reported.len() < REPORTED_MAX || is_least(&self.findings.reported) {
            let failure = self.failure(name, judgement, missing)?;
            let reported = &mut self.findings.reported;
            reported.push(failure);
            reported.sort_by_key(|failure| failure.name.missing.len());
            reported.truncate(REPORTED_MAX);
        }
        Ok(())
    }

    /// The files of a state that there can be.
    fn tree(&self, name: &StateName) -> Result<Tree, CampaignError> {
        let moments = self.moment(name.moment)?;
        match moments.allows(name) {
            true => Ok(moments.tree(name)?),
            false => Err(StateNameError::NotThere.into()),
        }
    }

    pub(crate) fn moment(&self, moment: usize) -> Result<Moments<'_>, CampaignError> {
        let mut moments = Moments::new(self.record, &self.units)?;
        while let Some(at) = moments.advance()? {
            if at == moment {
                return Ok(moments);
            }
        }
        Err(StateNameError::NotThere.into())
    }
}
