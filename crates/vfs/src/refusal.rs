//! What a filesystem answers that takes no changes.

use futures_util::future::LocalBoxFuture;

use crate::error::{FsError, ReadOnlyReason};

/// A change that is refused: what calls do that a format does not implement.
pub(crate) fn refuse<'a, T: 'a>() -> LocalBoxFuture<'a, Result<T, FsError>> {
    Box::pin(async { Err(FsError::ReadOnly(ReadOnlyReason::Mounted)) })
}
