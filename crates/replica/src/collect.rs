//! *Collection*: deleting what no kept state needs (R7). Kept are the checkpoints that are young enough, the newest one that is
//! too old, so that every moment of that time has one before it, and the log from there on; and the objects that this oldest
//! checkpoint reads. What a later one reads of the log before is a part of that.

use std::collections::BTreeSet;
use std::time::Duration;

use tracing::{info, warn};
use weir_storage::Rules;

use crate::access::Access;
use crate::checkpoint::Manifest;
use crate::envelope::Envelopes;
use crate::error::ReplicaError;
use crate::key::{LOG, LogPlace, MAPS, checkpoint_key, map_from_key};
use crate::mutants::ReplicaMutant;
use crate::reader::list_checkpoints;

/// Collects, and returns how many objects were deleted. What an older checkpoint keeps stays while the one that would be kept in its
/// place is `unreadable`.
pub(crate) async fn collect(
    access: &Access,
    envelopes: &Envelopes,
    now_ms: u64,
    (keep, unreadable): (Duration, &[u64]),
    rules: Rules<ReplicaMutant>,
) -> Result<u64, ReplicaError> {
    let keep = if rules.drops(ReplicaMutant::KeepIgnored) { Duration::ZERO } else { keep };
    let oldest_ms = now_ms.saturating_sub(u64::try_from(keep.as_millis()).unwrap_or(u64::MAX));
    let checkpoints = list_checkpoints(access).await?;
    let mut oldest_kept = None;
    for sequence in checkpoints.iter().rev().filter(|sequence| !unreadable.contains(sequence)) {
        let manifest = match Manifest::read(access, envelopes, *sequence).await {
            // Another collection has deleted it, and the list does not know yet.
            Err(error) if error.is_missing() => continue,
            Err(ReplicaError::Damaged { key, defect }) => {
                warn!(name: "checkpoint_unreadable", %key, %defect, "an older checkpoint is kept in its place");
                continue;
            }
            manifest => manifest?,
        };
        if manifest.created_ms <= oldest_ms {
            oldest_kept = Some((*sequence, manifest));
            break;
        }
    }
    let Some((kept, manifest)) = oldest_kept else { return Ok(0) };
    let mut deleted = 0;
    // What names objects goes before the objects: what is left is whole at each moment.
    for sequence in checkpoints.into_iter().filter(|sequence| *sequence < kept) {
        access.delete(&checkpoint_key(sequence)).await?;
        deleted += 1;
    }
    for key in access.list(MAPS, "").await? {
        if map_from_key(&key).is_some_and(|sequence| sequence < kept) {
            access.delete(&key).await?;
            deleted += 1;
        }
    }
    let named: BTreeSet<LogPlace> = match rules.drops(ReplicaMutant::NamedCollected) {
        true => BTreeSet::new(),
        false => manifest.read_table(access, envelopes, rules).await?.into_iter().collect(),
    };
    for key in access.list(LOG, "").await? {
        let is_needed = |place: LogPlace| place.first > kept || named.contains(&place);
        if LogPlace::from_key(&key).is_some_and(|place| !is_needed(place)) {
            access.delete(&key).await?;
            deleted += 1;
        }
    }
    if deleted > 0 {
        info!(name: "replica_collected", objects = deleted, kept_from = kept, "collected");
    }
    Ok(deleted)
}
