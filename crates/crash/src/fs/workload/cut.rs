//! One state that a power cut may leave, and what can be done with it.

use std::fmt::{self, Display};
use std::rc::Rc;
use std::str::FromStr;

use weir_storage::{Kept, Lba, NoState};

use super::found::Found;
use super::judge::{Defect, Images, Judge, JudgedBy};
use crate::content::mix;
use crate::fs::ground::Left;

/// Where a power cut fell, and what it left, as a name that replays it. As text it is `EVENT/kept/KEPT` or
/// `EVENT/drawn/N`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CutName {
    /// The event of the storage, counted from 1 when the filesystem is mounted.
    pub event: u64,
    /// Which of the states that may be left there.
    pub state: StateName,
}

/// The name of a state.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StateName {
    /// What is kept on the worst disk, or on that below a volume.
    Kept(Kept),
    /// What chance leaves of an emulated device: the number of the draw.
    Drawn(u32),
}

/// Text that names no power cut.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoCut {
    /// It has other parts.
    #[error(
        "{0:?} is not the name of a power cut: write EVENT/kept/STATE or EVENT/drawn/NUMBER, as a failure prints it"
    )]
    Parts(String),
    /// The state has another name.
    #[error(transparent)]
    State(#[from] NoState),
}

impl Display for CutName {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.state {
            StateName::Kept(kept) => write!(to, "{}/kept/{kept}", self.event),
            StateName::Drawn(number) => write!(to, "{}/drawn/{number}", self.event),
        }
    }
}

impl FromStr for CutName {
    type Err = NoCut;

    fn from_str(text: &str) -> Result<CutName, NoCut> {
        let wrong = || NoCut::Parts(text.chars().take(40).collect());
        let mut parts = text.splitn(3, '/');
        let mut next = || parts.next().ok_or_else(wrong);
        let event = next()?.parse().map_err(|_| wrong())?;
        let state = match (next()?, next()?) {
            ("kept", kept) => StateName::Kept(kept.parse()?),
            ("drawn", number) => StateName::Drawn(number.parse().map_err(|_| wrong())?),
            _ => return Err(wrong()),
        };
        Ok(CutName { event, state })
    }
}

/// A state that a power cut left. It is judged by what was done and promised up to now, so before the play goes on.
#[derive(Clone)]
pub struct Cut {
    pub(super) name: CutName,
    pub(super) left: Left,
    pub(super) lost: Rc<[Lba]>,
    pub(super) operations: usize,
    pub(super) is_exhaustive: bool,
    pub(super) promised: u64,
    /// Stands for what was done until then.
    pub(super) origin: u64,
    pub(super) judge: Rc<Judge>,
}

impl Cut {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &CutName {
        &self.name
    }

    /// Operations of the workload that had begun.
    #[must_use]
    pub fn operations(&self) -> usize {
        self.operations
    }

    /// Whether it is one of all states that a power cut at its event may leave; otherwise of some that were drawn.
    #[must_use]
    pub fn is_exhaustive(&self) -> bool {
        self.is_exhaustive
    }

    /// The blocks of which a pending write is lost, on the disk: that below the volume, where there is one. On an
    /// emulated device they are not known.
    #[must_use]
    pub fn lost(&self) -> &[Lba] {
        &self.lost
    }

    /// Stands for the state: in one play, equal content has an equal hash.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.left.hash()
    }

    /// Tells the state from others that keep other promises, too.
    pub(super) fn identity(&self) -> u64 {
        mix(self.hash(), self.promised)
    }

    /// Powers up, recovers, mounts, and reads everything.
    ///
    /// # Errors
    /// [`Defect`] if that cannot be done, or if our check of the format was asked ([`Setup::check`](super::Setup)) and
    /// finds something.
    pub fn recover(&self) -> Result<Found, Defect> {
        self.judge.recoveries.find(&self.left, self.origin)
    }

    /// Recovers, and judges what is found: by the model, if it knows all that was done, and by the promises of the test.
    ///
    /// # Errors
    /// What is [`Defect`].
    pub fn judge(&self) -> Result<(), Defect> {
        let found = self.recover()?;
        if self.promised != self.judge.promised() {
            let what = "a promise was made after the cut: judge a cut before the play continues";
            return Err(Defect::new(JudgedBy::Promise, what));
        }
        self.judge.judge(&found)
    }

    /// Shows the state to e2fsck and the kernel. Returns whether the kernel judged, which takes root.
    ///
    /// # Errors
    /// What is [`Defect`].
    pub fn show_outside(&self) -> Result<bool, Defect> {
        self.images()?.show(&self.recover()?, self.judge.tears)
    }

    /// The bytes of the filesystem, for other judges.
    ///
    /// # Errors
    /// [`Defect`] if it cannot be recovered.
    pub fn images(&self) -> Result<Images, Defect> {
        Images::from_left(&self.left, &self.judge.setup)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_is_named_as_it_is_read() {
        for text in ["17/kept/0:1.0.2", "1/kept/3:", "4/drawn/2"] {
            assert_eq!(text.parse::<CutName>().map(|name| name.to_string()), Ok(text.to_owned()));
        }
        for text in ["", "17", "17/kept", "x/drawn/1", "1/drawn/x", "1/lost/0:1", "1/kept/0"] {
            assert!(text.parse::<CutName>().is_err(), "{text}");
        }
    }
}
