//! How a device is run: what the profile does not say.

use std::rc::Rc;

use weir_storage::Recorder;

use crate::backing::Backing;
use crate::mutants::FlashMutant;
use crate::probe::Probe;

/// What the device keeps of the data written to it.
#[derive(Clone, Debug, Default)]
pub enum Keep {
    /// The bytes, in memory.
    #[default]
    Bytes,
    /// The bytes, in a file. A write that the file does not take, and a read that it does not answer, fail.
    File(Rc<Backing>),
    /// Versions only, so that large devices fit into memory: a block that was written reads its logical block
    /// number and its version, 8 bytes each and little-endian, and zeroes behind them.
    Versions,
}

/// How a device is run.
#[derive(Clone, Default)]
pub struct FlashOptions {
    /// What is kept of the data. Default: the bytes.
    pub keep: Keep,
    /// Told of every request transferred and persisted.
    pub recorder: Option<Rc<Recorder>>,
    /// Told of everything that takes time.
    pub probe: Option<Rc<dyn Probe>>,
    /// The run never cuts the power: checkpoints take their time but no memory. Default: it may.
    pub never_cut: bool,
    /// The rule that this firmware drops, to prove that tests notice.
    #[cfg(feature = "mutants")]
    pub mutant: Option<FlashMutant>,
}

/// Which rule is dropped: none, outside tests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mutants {
    #[cfg(feature = "mutants")]
    dropped: Option<FlashMutant>,
}

impl Mutants {
    #[cfg(feature = "mutants")]
    pub(crate) fn of(options: &FlashOptions) -> Mutants {
        Mutants { dropped: options.mutant }
    }

    #[cfg(not(feature = "mutants"))]
    pub(crate) fn of(_: &FlashOptions) -> Mutants {
        Mutants::default()
    }

    /// Whether the firmware drops the rule that `mutant` names.
    #[cfg(feature = "mutants")]
    pub(crate) fn has(self, mutant: FlashMutant) -> bool {
        self.dropped == Some(mutant)
    }

    #[cfg(not(feature = "mutants"))]
    pub(crate) const fn has(self, _: FlashMutant) -> bool {
        false
    }
}
