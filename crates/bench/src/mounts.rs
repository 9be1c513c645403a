//! The doors beside the host's filesystem: what a program pays that comes through the kernel, to a mount of BarrierFS,
//! or to the kernel's own ext4 on a volume.
//!
//! Servers run in processes of their own, as they do for users, and the calls are those that any program makes.
//!
//! | noun | what it is |
//! |---|---|
//! | [`MountCalls`] | what a program does on a mount |
//! | [`mounts`] | the benchmark: rounds that give every mode a turn |
//! | `served` | a volume behind a server, for a turn |
//! | `kernel` | the kernel's ext4 on such a volume |
//! | [`MOUNT_RATIOS`] | what is divided by what |

mod bench;
mod calls;
mod kernel;
mod ratios;
mod served;

pub use bench::mounts;
pub use calls::MountCalls;
pub use ratios::MOUNT_RATIOS;
pub(crate) use served::{Door, Served, make_volume};
