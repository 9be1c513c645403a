//! Blocks that are written, with their places.

use std::rc::Rc;

use weir_runtime::Buffer;

/// A block to be written.
pub(crate) struct BlockWrite {
    /// Its place on the device.
    pub(crate) place: u64,
    /// What is written there.
    pub(crate) content: Rc<Buffer>,
}
