//! How a device is run: what the profile does not say.

use std::rc::Rc;

use weir_storage::{Recorder, Rules};

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
    /// The rules that this firmware keeps: all of them.
    pub rules: Rules<FlashMutant>,
}
