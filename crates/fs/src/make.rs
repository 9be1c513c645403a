//! Making a filesystem on a storage.

use weir_ext4::Mkfs;
use weir_storage::Storage;
use weir_vfs::{FsError, NewFilesystem, write_filesystem};

use crate::options::Discards;

/// Makes a filesystem; see [`BarrierFs::make`](crate::BarrierFs::make).
pub(crate) async fn make(device: &dyn Storage, options: &Mkfs) -> Result<(), FsError> {
    let image = options.plan()?;
    let new = NewFilesystem {
        blocks: options.blocks,
        superblocks: 0..1,
        writes: image.writes(),
        // Where that is done by default.
        discards: Discards::default().wanted_on(device.capabilities()),
    };
    write_filesystem(device, new).await
}
