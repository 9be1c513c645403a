//! A storage as a block device of the kernel, `/dev/ublkbN`, by ublk (`ublk_drv`, Linux 6.5 or later).
//!
//! [`UblkServer::start`] shows an [`Export`](weir_export::Export) as a device with a number. The kernel hands each
//! request to one of 64 places, by a completion on the ring of the runtime; a task a place answers it. Data goes by
//! reads and writes of the device's own file (`UBLK_F_USER_COPY`), so the kernel touches no memory of this process.
//!
//! What it promises, N1, N2 and N4, stands at [`weir_export`]; N3 is kept by the number of places, and by 256 KiB a
//! request.
//!
//! # A server that is killed
//!
//! The device stays (`UBLK_F_USER_RECOVERY_REISSUE`), requests wait, and those that were not answered come again when
//! [`UblkServer::start`] takes it up. The device carries the identity of its volume, so no other is put below a
//! filesystem that is mounted on it, and no device of another server is touched. [`UblkServer::stop`] removes a device
//! that no program uses, and leaves one that is used to the next server.
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
//! | `users.rs` | programs that use a device |
//! | `error.rs` | why there is no device |

mod device;
mod error;
mod places;
mod protocol;
mod requests;
mod users;

pub use device::{Left, UblkServer, path_of};
pub use error::UblkError;
pub use places::{Places, Serving};
pub use protocol::DATA_BYTES_MAX;
