//! Stacks of storages: what a filesystem, a block layer or a loop device stands on.
//!
//! A *stack* is a disk, and on it a volume or none. A [`StackSpec`] describes it, [`Stack`] is what is put together:
//! [`Stack::make`] begins with nothing, [`Stack::open`] with what a disk holds, and [`Left::power_up`] with what a power cut has
//! left, recovered as a device or a volume recovers. The description has one text form, [`StackName`]:
//!
//! ```
//! use weir_stack::StackName;
//!
//! for text in ["legacy", "volume+adversary", "nvme", "volume+/var/lib/data.img"] {
//!     assert_eq!(text.parse::<StackName>()?.to_string(), text);
//! }
//! # Ok::<(), weir_stack::StackError>(())
//! ```
//!
//! Some callers need more than a description: a command waits for the lock of a file and names the process that has it, a crash
//! campaign draws the parameters of its disks from a seed, and a figure measures between the disk and the volume. They make the
//! [`Disk`] themselves, and put a volume on it by [`Stack::make_volume`] or [`Stack::open_through`].

mod cut;
mod error;
mod false_order;
mod name;
mod spec;
mod stack;

pub use cut::{Left, MayLeave};
pub use error::StackError;
pub use false_order::FalseOrder;
pub use name::{Base, StackName};
pub use spec::{DiskSpec, StackSpec, VolumeSpec};
pub use stack::{Disk, Stack};
