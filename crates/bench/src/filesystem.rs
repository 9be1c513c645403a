//! Filesystems on a volume beside the host's filesystem: what the synchronisation calls cost.
//!
//! | noun | what it is |
//! |---|---|
//! | [`FsKind`] | a filesystem: made, mounted, checked |
//! | [`FsMode`] | what is written, and which call follows each write |
//! | [`FsPlan`] | sizes, rounds, times |
//! | [`filesystems`] | the benchmark: rounds that give every mode a turn |
//! | `ground` | what the turns share, with those of mounts |
//! | `mounted` | a volume and a filesystem on it, made for a turn |
//! | [`FileReport`] | medians, rates and ratios |
//! | [`trace_files`] | D, JD and JC on an emulated device, for a timeline |

mod bench;
mod ground;
mod kind;
mod mode;
mod mounted;
mod plan;
mod report;
mod timeline;

pub use bench::filesystems;
pub(crate) use ground::FileGround;
pub use kind::FsKind;
pub use mode::{FsMode, FsWrite};
pub(crate) use mounted::{MountedFile, NAME, make, verify};
pub use plan::FsPlan;
pub use report::{FS_RATIOS, FileModeReport, FileReport, RATES, ServerReport};
pub use timeline::{FileCall, JournalProbe, JournalWrite, trace_files};
pub use weir_vfs::Promise;
