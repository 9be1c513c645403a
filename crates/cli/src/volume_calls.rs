//! What the server of a mount does when it is asked to change its volume.

use std::rc::Rc;

use weir_fuse::{SnapshotCall, VolumeCall};
use weir_storage::place_mark;
use weir_vfs::{Filesystem, FsError, ReadOnlyReason};

use crate::grow::GrowthAsked;
use crate::memory::Limit;
use crate::size::Size;
use crate::stack::Stack;
use crate::{grow, snapshot};

/// Changes the volume of a mount. Its errors are ones that the kernel can pass on.
pub(crate) fn serving(
    stack: Rc<Stack>,
    filesystem: Filesystem,
    limit: Limit,
) -> impl AsyncFn(VolumeCall) -> Result<(), FsError> + Clone {
    async move |call| match call {
        VolumeCall::Snapshot(call) => change_snapshots(&stack, &filesystem, call).await,
        VolumeCall::Grow { bytes, logical } => {
            let size = GrowthAsked { bytes: bytes.map(Size), logical: logical.map(Size) };
            grow::grow_mounted(&stack, &filesystem, size, limit).await
        }
    }
}

async fn change_snapshots(stack: &Stack, filesystem: &Filesystem, call: SnapshotCall) -> Result<(), FsError> {
    let storage = stack.storage();
    if storage.marks().is_none() {
        return snapshot::change_served(stack, call).await;
    }
    // A snapshot is of a moment that begins now, or of a later one.
    match filesystem.read_only() {
        Some(ReadOnlyReason::Mounted) => {}
        _ => filesystem.sync().await?,
    }
    let changed = snapshot::change_served(stack, call).await;
    // It waits for a moment, which a filesystem that has stopped does not take.
    changed.map_err(|error| filesystem.read_only().map_or(error, FsError::ReadOnly))?;
    // It would be gone after a crash, until a moment is taken.
    filesystem.sync().await?;
    // Nothing changes a tree that was mounted without changes, so each mark is one of it.
    if filesystem.read_only().is_some() {
        place_mark(&*storage).await?.transferred().await?;
    }
    Ok(())
}
