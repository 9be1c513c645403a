//! *Plan* of a campaign, and why it cannot be carried out.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use thiserror::Error;
use weir_flash::Profile;
use weir_storage::Rules;

use crate::drive::DriveError;
use crate::mutants::ProgramMutant;
use crate::promises::Promises;
use crate::state::StateNameError;

/// What is looked for, and how.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What the filesystem promises.
    pub promises: Promises,
    /// Of a disk, only states are drawn that an emulated drive with this profile leaves; without one, those of the worst legal disk.
    pub drive: Option<Profile>,
    /// The command that checks a state.
    pub check: String,
    /// How long it may take for one.
    pub check_limit: Duration,
    /// Different states that are checked at most.
    pub states: u64,
    /// How long to look for failures at most, once the check has accepted what lost nothing.
    pub time: Option<Duration>,
    /// Decides which states are drawn.
    pub seed: u64,
    /// Checks that run at one time.
    pub jobs: u64,
    /// A directory for states.
    pub scratch: PathBuf,
    /// The directory that the check finds as `WEIR_HERE`.
    pub here: PathBuf,
    /// The program `weir`, for disks with its filesystems.
    pub weir: PathBuf,
    /// Becomes true when the checks are to be ended.
    pub stops: Arc<AtomicBool>,
    /// The rules that are kept: all, outside tests.
    pub rules: Rules<ProgramMutant>,
}

/// Why no state can be judged.
#[derive(Debug, Error)]
pub enum CampaignError {
    /// The record or the scratch directory fails.
    #[error("cannot write or check a state: {0}{hint}", hint = hint_for_io_error(.0))]
    Io(#[from] io::Error),
    /// There is nothing to lose.
    #[error("the run changed nothing in WEIR_DIR, so a power cut takes nothing: have it work there")]
    NothingRecorded,
    /// The check fails where nothing is lost.
    #[error("the check fails before any power cut, {when}: {ending}\n{output}")]
    FailsUncut {
        /// On which tree.
        when: &'static str,
        /// How it ended.
        ending: String,
        /// What it printed.
        output: String,
    },
    /// The check's command is not there, or may not be run.
    #[error("the check could not be run: {ending}: look for its command, also in WEIR_HERE\n{output}")]
    CheckNotRun {
        /// How the shell ended.
        ending: String,
        /// What it printed.
        output: String,
    },
    /// The limits leave room for no state.
    #[error("no state was checked, so nothing is known: allow more by --states or --time")]
    NothingChecked,
    /// It was ended before a failure was found.
    #[error("interrupted: nothing was found so far")]
    Interrupted,
    /// The drive cannot be used.
    #[error(transparent)]
    Drive(#[from] DriveError),
    /// A state's name.
    #[error(transparent)]
    Name(#[from] StateNameError),
}

/// What to do if a state cannot be written.
fn hint_for_io_error(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull => {
            ": states are written to /dev/shm: name another place by --scratch; give a container more by --shm-size"
        }
        _ => "",
    }
}
