//! How a run's filesystem is made and mounted: its journal's engine, mode and size.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use weir_fs::{CheckpointBy, Checkpoints, JournalMode};

use crate::calls::On;

/// A filesystem that a run makes and mounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mounting {
    /// The journal's engine.
    #[serde(default = "ext4")]
    pub on: On,
    /// What the journal holds, and how it brings blocks home.
    pub mode: Mode,
    /// The journal's size in MiB; by the size of the filesystem if it is left out.
    #[serde(default)]
    pub journal_mib: Option<u32>,
    /// Seconds between two rounds of the kernel's flusher, which writes home what is in the journal. A figure that shortens
    /// everything else shortens this, too.
    #[serde(default = "flusher_of_linux")]
    pub flusher_s: u32,
    /// A what-if: on ext4's engines a task in the background empties the journal, and not those that want room in it.
    #[serde(default)]
    pub in_background: bool,
}

fn ext4() -> On {
    On::Ext4
}

/// `vm.dirty_expire_centisecs`.
fn flusher_of_linux() -> u32 {
    30
}

/// What the journal holds, and how it brings blocks home: the modes of the SHARE paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub enum Mode {
    /// Ordered journaling: metadata alone, and data is written before it.
    OJ,
    /// Data journaling: data too.
    DJ,
    /// Ordered journaling, with checkpoints by remap.
    SOJ,
    /// Data journaling, with checkpoints by remap.
    SDJ,
}

impl Mode {
    pub(crate) fn journal_mode(self) -> JournalMode {
        match self {
            Mode::OJ | Mode::SOJ => JournalMode::Ordered,
            Mode::DJ | Mode::SDJ => JournalMode::Data,
        }
    }

    pub(crate) fn checkpoint(self) -> CheckpointBy {
        match self {
            Mode::OJ | Mode::DJ => CheckpointBy::Copy,
            Mode::SOJ | Mode::SDJ => CheckpointBy::Remap,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl Mounting {
    /// With this engine, and otherwise by default.
    pub(crate) fn of(on: On) -> Mounting {
        let flusher_s = flusher_of_linux();
        Mounting { on, mode: Mode::OJ, journal_mib: None, flusher_s, in_background: false }
    }

    /// Which task empties the journal: as in Linux, unless the figure asks for a task in the background.
    pub(crate) fn checkpoints(&self) -> Checkpoints {
        if self.in_background {
            Checkpoints::Background
        } else {
            Checkpoints::Foreground { flusher: Duration::from_secs(self.flusher_s.into()) }
        }
    }
}

impl fmt::Display for Mounting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.on {
            On::Ext4 => self.mode.fmt(f),
            on => write!(f, "{} on {on}", self.mode),
        }
    }
}
