//! Blocks that are written, with their places.

use std::rc::Rc;

use weir_f2fs::BlockAddress;
use weir_runtime::Buffer;

/// A block to be written.
pub(crate) struct BlockWrite {
    /// Its place on the device.
    pub(crate) place: u64,
    /// What is written there.
    pub(crate) content: Rc<Buffer>,
}

impl BlockWrite {
    /// A block with these bytes.
    pub(crate) fn new(place: BlockAddress, bytes: &[u8]) -> BlockWrite {
        BlockWrite { place: place.0.into(), content: Rc::new(Buffer::copy_of(bytes)) }
    }
}
