//! The *places* of pages on the disk. A filesystem that writes in place gives a page its place when the page is put in. In a
//! log-structured one a page has none, or an old one, until it is submitted: the filesystem's [`PlacePages`] chooses it
//! then, anew for each version that is written.

use weir_block::Class;
use weir_storage::StorageError;

/// A dirty page that is about to be submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirtyPage {
    /// Which block of the file it is.
    pub index: u32,
    /// The place that it has so far, a block of the disk; `None` if it has none yet.
    pub place: Option<u64>,
}

/// Chooses the places of dirty pages when they are submitted: a log-structured filesystem writes each version of a page to a
/// new place.
pub trait PlacePages {
    /// Places for these dirty pages of a file, one for each, which come in the order of their indexes. They are submitted with
    /// `class`.
    ///
    /// It is called by the caller that has the file's turn to submit, and returns before any other task runs: what it records
    /// in memory agrees with what the cache has. The caller that made a page dirty has reserved its space.
    ///
    /// # Errors
    /// It counts as a failed write of all of them: they are clean, are in memory as long as there is room, and no call
    /// reports the file as durable any more.
    fn place_pages(&self, file: u32, pages: &[DirtyPage], class: Class) -> Result<Vec<u64>, StorageError>;
}

#[cfg(test)]
mod tests;
