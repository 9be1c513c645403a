//! What the server of a mount does when it is asked to change its volume.

use std::rc::Rc;

use weir_fuse::VolumeCall;
use weir_storage::place_mark;
use weir_vfs::{Filesystem, FsError};

use crate::stack::Stack;
use crate::{grow, snapshot};

/// Changes the volume of a mount. Its errors are ones that the kernel can pass on.
pub(crate) fn serving(
    stack: Rc<Stack>,
    filesystem: Filesystem,
) -> impl AsyncFn(VolumeCall) -> Result<(), FsError> + Clone {
    async move |call| {
        match call {
            VolumeCall::Snapshot(call) => snapshot::change_served(&stack, call).await?,
            VolumeCall::Grow { bytes, logical } => {
                return grow::grow_mounted(&stack, &filesystem, bytes, logical).await;
            }
        }
        // On a volume with marks it would be gone after a crash, until a moment is taken.
        let storage = stack.storage();
        if storage.marks().is_none() {
            return Ok(());
        }
        filesystem.sync().await?;
        // Nothing changes a tree that was mounted without changes, so each mark is one of it.
        if filesystem.read_only().is_some() {
            place_mark(&*storage).await?.transferred().await?;
        }
        Ok(())
    }
}
