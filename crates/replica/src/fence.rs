//! The *fence*: how a writer learns that another one has taken over (R4).

use crate::access::Access;
use crate::error::ReplicaError;
use crate::key::{EPOCHS, epoch_from_key};
use crate::reader::require_newest;
use crate::store::StoreError;

/// The newest epoch that a writer has taken; 0 if there was none.
pub(crate) async fn newest_epoch(access: &Access) -> Result<u64, StoreError> {
    let keys = access.list(EPOCHS, "").await?;
    Ok(keys.iter().filter_map(|key| epoch_from_key(key)).max().unwrap_or(0))
}

/// That no checkpoint is newer than what this writer has: only another writer makes one.
pub(crate) async fn require_no_newer_checkpoint(access: &Access, last: u64) -> Result<(), ReplicaError> {
    match require_newest(access, last).await {
        Err(ReplicaError::Outrun) => Err(ReplicaError::TakenOver(newest_epoch(access).await?)),
        outcome => outcome,
    }
}
