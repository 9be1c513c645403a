//! A storage as a block device of the kernel, `/dev/ublkbN`, by ublk (`ublk_drv`, Linux 6.5 or later).
//!
//! [`UblkServer::start`] shows an [`Export`](weir_export::Export) as a device with a number. The kernel hands each
//! request to one of 64 places, by a completion on the ring of the runtime; a task a place answers it. Data goes by
//! reads and writes of the device's own file (`UBLK_F_USER_COPY`), so the kernel touches no memory of this process.
//!
//! What it promises, N1, N2 and N4, stands at [`weir_export`]; N3 is kept by the number of places, and by 256 KiB a
//! request. And:
//!
//! - **N6, taken up by its own.** A device that a killed server has left is taken up or removed only by a server of a
//!   volume with the identity that it carries, and requests that were not answered come again
//!   (`UBLK_F_USER_RECOVERY_REISSUE`).
//!
//! # A server that is killed
//!
//! The device stays, requests wait, and those that were not answered come again when [`UblkServer::start`] takes it
//! up. The identity tells volumes apart that were made apart, and not the states of one: a copy of the volume's file
//! has it too, and so has the volume after it was written by another way. That the same file is served, and that
//! nothing else has written it in between, is the caller's to see to.
//!
//! [`UblkServer::stop`] removes a device that no program is seen to use, and leaves one that is used to the next
//! server. Since Linux 7.0 the kernel says whether a device is open; before, `users.rs` looks at what claims it, at
//! devices above it, and at the open files and maps of the processes that this one sees. A file that lies in a socket
//! or an io_uring alone, or in another PID namespace, and a part of the kernel that claims nothing (`nvmet`), is not
//! seen.
//!
//! # Why it is our own
//!
//! The crate `libublk` (0.4) has a ring and an executor for each queue, on a thread that waits for that ring alone, and
//! keeps its state in variables of the thread. A server here answers on the one thread of the runtime, whose ring also
//! waits for the disk.
//!
//! | file | what it is |
//! |---|---|
//! | `protocol.rs` | numbers and structures of the kernel's interface |
//! | `requests.rs` | one request, from its description to its answer |
//! | `places.rs` | many requests |
//! | `device.rs` | a device: made or taken up, shown, removed or left |
//! | `turn.rs` | what a server that starts does with the device that it finds |
//! | `end_mark.rs` | whether the last server was killed |
//! | `users.rs` | programs that use a device |
//! | `error.rs` | why there is no device |

mod device;
mod end_mark;
mod error;
mod mutants;
mod places;
mod protocol;
mod requests;
mod turn;
mod users;

pub use device::{Left, UblkServer, path_of};
pub use error::UblkError;
#[cfg(feature = "mutants")]
pub use mutants::UblkMutant;
pub use places::{Places, Serving};
pub use protocol::DATA_BYTES_MAX;
