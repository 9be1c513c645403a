//! BarrierFS on a volume beside the host's filesystem: what the synchronisation calls cost.
//!
//! | noun | what it is |
//! |---|---|
//! | [`FsMode`] | what is written, and which call follows each write |
//! | [`FsPlan`] | sizes, rounds, times |
//! | [`filesystems`] | the benchmark: rounds that give every mode a turn |
//! | `ground` | what the turns share, with those of mounts |
//! | `mounted` | a volume and a filesystem on it, made for a turn |
//! | `check` | whether the filesystem is whole afterwards |
//! | [`FileReport`] | medians, rates and ratios |
//! | [`trace_files`] | D, JD and JC on an emulated device, for a timeline |

mod bench;
mod check;
mod ground;
mod mode;
mod mounted;
mod plan;
mod report;
mod timeline;

pub use bench::filesystems;
pub(crate) use ground::FileGround;
pub use mode::{FsMode, FsWrite};
pub(crate) use mounted::{MountedFile, NAME, make, verify};
pub use plan::FsPlan;
pub use report::{FS_RATIOS, FileModeReport, FileReport, RATES, ServerReport};
pub use timeline::{FileCall, JournalProbe, JournalWrite, trace_files};
pub use weir_fs::Promise;
