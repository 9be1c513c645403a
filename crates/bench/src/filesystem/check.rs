//! The filesystem's own check, on a volume.

use std::rc::Rc;

use weir_ext4::check::check;
use weir_storage::Storage;
use weir_vfs::StorageImage;

use crate::error::BenchError;

/// Checks the filesystem on a storage.
///
/// # Errors
/// [`BenchError::Damaged`] if anything is wrong with it, or left for the next mount to do.
pub(super) async fn require_clean(storage: Rc<dyn Storage>) -> Result<(), BenchError> {
    let report = check(&StorageImage(storage)).await?;
    let left = (report.transactions, report.orphans);
    match report.findings.first() {
        Some(first) => Err(BenchError::Damaged { first: first.to_string(), total: report.total }),
        None if left != (0, 0) => {
            let first = format!("{} transactions to replay, {} orphans", left.0, left.1);
            Err(BenchError::Damaged { first, total: 1 })
        }
        None => Ok(()),
    }
}
