//! The judges of what a power cut left: recovery itself, our check of the format, the model, the promises of a test, and the
//! outside judges.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use weir_runtime::Handle;

use super::found::Found;
use super::operation::Operation;
use super::setup::Setup;
use crate::bound::in_new_runtime;
use crate::content::mix;
use crate::fs::ground::{Ground, Left};
use crate::fs::history::{History, Illegal};
use crate::fs::outside;
use crate::fs::run::{images_of, mount};
use crate::fs::visible::Visible;
use crate::named::named;

/// Recoveries that are remembered, at most.
const RECOVERIES_MAX: usize = 8192;

named! {
    /// The judge that found a defect.
    #[derive(PartialOrd, Ord)]
    JudgedBy {
        /// The filesystem, or what is below it, fails without any power cut.
        Filesystem = "the filesystem",
        /// Nothing can be mounted, or read.
        Recovery = "recovery",
        /// Our own check of the format.
        Check = "weir fsck",
        /// The model: no operation up to which everything was done explains what was found.
        Model = "the model",
        /// A promise of the test.
        Promise = "a promise of the test",
        /// A power cut during recovery: the next recovery finds something else.
        SecondRecovery = "a second recovery",
        /// e2fsck, or the kernel.
        Outside = "e2fsck or the kernel",
    }
}

/// A defect of a crash state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {what}", by.name())]
pub struct Defect {
    /// The judge.
    pub by: JudgedBy,
    /// The defect, in words.
    pub what: String,
}

impl Defect {
    pub(super) fn new(by: JudgedBy, what: impl ToString) -> Defect {
        Defect { by, what: what.to_string() }
    }
}

/// What was found on states, so that none is recovered twice, in whatever play it comes up again.
pub(super) struct Recoveries {
    setup: Setup,
    known: RefCell<BTreeMap<u64, Result<Found, Defect>>>,
    plays: Cell<u64>,
}

impl Recoveries {
    pub(super) fn new(setup: Setup) -> Recoveries {
        Recoveries { setup, known: RefCell::default(), plays: Cell::new(0) }
    }

    /// A number for a play of which nothing is known, so that nothing of it is taken for something else.
    fn another_play(&self) -> u64 {
        self.plays.set(self.plays.get() + 1);
        self.plays.get()
    }

    /// Powers up, mounts, reads everything, and checks the format of some. `origin` stands for what was done before.
    pub(super) fn find(&self, left: &Left, origin: u64) -> Result<Found, Defect> {
        let state = left.hash();
        // A medium's hash distinguishes the writes of one play, and not their content; an image's hash is of its content.
        let key = if left.is_of_device() { mix(state, origin) } else { state };
        if let Some(known) = self.known.borrow().get(&key) {
            return known.clone();
        }
        let found =
            in_new_runtime(state, async |handle| Ok::<_, Failed>(self.recover(handle, left, key).await))
                .unwrap_or_else(|Failed(what)| Err(Defect::new(JudgedBy::Recovery, what)));
        let known = &mut *self.known.borrow_mut();
        if known.len() >= RECOVERIES_MAX {
            known.clear();
        }
        known.insert(key, found.clone());
        found
    }

    async fn recover(&self, handle: &Handle, left: &Left, key: u64) -> Result<Found, Defect> {
        let failed = |what: String| Defect::new(JudgedBy::Recovery, what);
        let ground =
            Ground::from_left(left, handle, None).await.map_err(|error| failed(error.to_string()))?;
        let fs =
            mount(handle, &ground, self.setup.options, None).await.map_err(|error| failed(error.into()))?;
        let visible = Visible::read(&fs).await.map_err(|error| failed(format!("reading: {error}")))?;
        if self.setup.check > 0 && mix(key, 3).is_multiple_of(self.setup.check) {
            // What recovery has begun with files without a name is in the log then, and the check looks behind that.
            fs.sync().await.map_err(|error| failed(format!("syncing: {error}")))?;
            let report = ground.check().await.map_err(|error| Defect::new(JudgedBy::Check, error))?;
            if let Some(finding) = report.findings.first() {
                let what = format!("{} findings, the first: {finding}", report.total);
                return Err(Defect::new(JudgedBy::Check, what));
            }
        }
        Ok(Found(Rc::new(visible)))
    }
}

/// A recovery that did not end.
pub(super) struct Failed(String);

impl From<String> for Failed {
    fn from(what: String) -> Failed {
        Failed(what)
    }
}

/// The bytes of the filesystem's blocks: as they are when the power is back, when our replay is done, and when we have
/// recovered and unmounted.
pub struct Images {
    /// What the power cut left.
    pub crashed: Vec<u8>,
    /// After the replay of the journal, and nothing else.
    pub replayed: Vec<u8>,
    /// After a mount and an unmount.
    pub recovered: Vec<u8>,
}

impl Images {
    pub(super) fn from_left(left: &Left, setup: &Setup) -> Result<Images, Defect> {
        let made = images_of(left, setup.options, left.hash());
        let [crashed, replayed, recovered] = made.map_err(|unfit| Defect::new(JudgedBy::Recovery, unfit))?;
        Ok(Images { crashed, replayed, recovered })
    }

    /// Shows the images to e2fsck and the kernel. Returns whether the kernel judged. What is torn is shown when we have recovered it, and to
    /// e2fsck alone: others may make of a torn commit block what they like.
    pub(super) fn show(&self, found: &Found, is_torn: bool) -> Result<bool, Defect> {
        let judged = match is_torn {
            true => outside::judge_recovered(&self.recovered).map(|()| false),
            false => outside::judge(&self.crashed, &self.recovered, &self.replayed, &found.0),
        };
        judged.map_err(|complaint| Defect::new(JudgedBy::Outside, complaint))
    }
}

/// A promise of a test: what it says, and whether it holds.
type Promise = (String, Box<dyn Fn(&Found) -> bool>);

/// The judges of one play.
pub(super) struct Judge {
    pub(super) setup: Setup,
    /// Power cuts tear blocks here.
    pub(super) tears: bool,
    pub(super) history: Rc<RefCell<History>>,
    pub(super) recoveries: Rc<Recoveries>,
    /// Not once something was done that the model was not told of.
    modelled: Cell<bool>,
    /// Stands for what was done.
    origin: Cell<u64>,
    promises: RefCell<Vec<Promise>>,
    /// The model's newest operation at the end of each operation of the workload.
    ended: RefCell<Vec<u64>>,
}

impl Judge {
    pub(super) fn new(
        setup: Setup,
        tears: bool,
        history: Rc<RefCell<History>>,
        recoveries: Rc<Recoveries>,
    ) -> Judge {
        let (promises, ended) = (RefCell::default(), RefCell::default());
        let (modelled, origin) = (Cell::new(true), Cell::new(0));
        Judge { setup, tears, history, recoveries, modelled, origin, promises, ended }
    }

    /// An operation of the workload begins.
    pub(super) fn begins(&self, operation: &Operation) {
        let text = operation.to_string();
        self.origin
            .set(text.bytes().fold(mix(self.origin.get(), 1), |hash, byte| mix(hash, u64::from(byte))));
    }

    /// From now on operations are done that the model does not follow.
    pub(super) fn stop_judging(&self) {
        if self.modelled.replace(false) {
            self.origin.set(mix(self.recoveries.another_play(), 2));
        }
    }

    pub(super) fn is_modelled(&self) -> bool {
        self.modelled.get()
    }

    pub(super) fn origin(&self) -> u64 {
        self.origin.get()
    }

    pub(super) fn promise(&self, what: &str, holds: impl Fn(&Found) -> bool + 'static) {
        self.promises.borrow_mut().push((what.to_owned(), Box::new(holds)));
    }

    /// An operation of the workload is over.
    pub(super) fn has_ended(&self) {
        self.ended.borrow_mut().push(self.history.borrow().now());
    }

    /// A finding of the model, with paths and operations of the workload for its numbers.
    pub(super) fn describe(&self, illegal: &Illegal) -> String {
        let ended = self.ended.borrow();
        // The model counts more operations than a workload has lines.
        let line = |operation: u64| 1 + ended.partition_point(|end| *end < operation);
        let path =
            |file| self.history.borrow().path(0, file).unwrap_or_else(|| "a file that is gone".to_owned());
        match illegal {
            Illegal::Tree(what) => format!("no operation leaves such names: {what}"),
            Illegal::TreeTooOld { at: 0, needed } => {
                format!("the names are those of the beginning, but operation {} is promised", line(*needed))
            }
            Illegal::TreeTooOld { at, needed } => format!(
                "the names are those after operation {}, but operation {} is promised",
                line(*at),
                line(*needed)
            ),
            Illegal::Foreign { file, page, .. } => {
                format!("page {page} of {} holds data that was never written there", path(*file))
            }
            Illegal::PageTooOld { file, page, needed } => {
                format!(
                    "page {page} of {} is older than operation {}, which is promised",
                    path(*file),
                    line(*needed)
                )
            }
            Illegal::Rolled { .. } => illegal.to_string(),
        }
    }

    /// A number that changes whenever something is promised.
    pub(super) fn promised(&self) -> u64 {
        mix(self.history.borrow().promises(), self.promises.borrow().len() as u64)
    }

    /// Whether a power cut now may leave what was found.
    pub(super) fn judge(&self, found: &Found) -> Result<(), Defect> {
        if self.modelled.get() {
            let judged = self.history.borrow().judge(&found.0);
            judged.map_err(|illegal| Defect::new(JudgedBy::Model, self.describe(&illegal)))?;
        }
        let promises = self.promises.borrow();
        let broken = promises.iter().find(|(_, holds)| !holds(found));
        broken
            .map_or(Ok(()), |(what, _)| Err(Defect::new(JudgedBy::Promise, format!("{what}: does not hold"))))
    }
}
