//! A page cache: file data in memory, its limits, and its way to the disk and back. It knows no format: files have numbers
//! here, blocks too, and a transaction of the journal has a sequence. The filesystems above it decide which of a file's blocks
//! are read, and where a page belongs on the disk: when it is put in, or when it is submitted ([`PlacePages`]).
//!
//! | part | what it knows |
//! |---|---|
//! | `page_cache` | all files' pages: how many there are, and in which order they leave |
//! | `file` | one file's pages: read, changed, forgotten |
//! | `pages`, `reads`, `in_flight` | its pages in memory, what reads bring of them, and the writes that are on their way |
//! | `place` | where a page is on the disk, and who chooses that when |
//! | `fetch`, `readahead` | reads from the disk, and how far they go ahead |
//! | `submit`, `writeback` | dirty pages on their way to the disk: for a call, or without one |
//! | `staged` | what is to become part of a file as a whole |
//! | [`units`] | what keeps aligned writes whole |
//!
//! The rules that are cited here are stated by the block layer (E), the journal (J) and the filesystems (J3, errors, pages,
//! reads, units). With the feature `mutants`, [`CacheMutant`] drops one of them, to prove that tests notice.

mod fetch;
mod file;
mod in_flight;
mod mutants;
mod options;
mod page_cache;
mod pages;
mod place;
mod read_failures;
mod readahead;
mod reads;
#[cfg(test)]
mod stage;
mod staged;
mod submit;
pub mod units;
mod writeback;

pub use fetch::UnderWay;
pub use file::{BLOCK, CachedFile, index_of, split};
#[cfg(feature = "mutants")]
pub use mutants::CacheMutant;
pub use mutants::CacheRules;
pub use options::CacheOptions;
pub use page_cache::PageCache;
pub use place::{DirtyPage, PlacePages};
pub use read_failures::ReadFailures;
pub use staged::{StagedPages, StagedView};
pub use submit::SubmitTurn;
