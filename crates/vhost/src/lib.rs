//! A [`Storage`](weir_storage::Storage) as the disk of a virtual machine, by vhost-user-blk: the guest's requests lie
//! in memory that the virtual machine monitor (the *frontend*: QEMU, cloud-hypervisor) shares with this server, and
//! pass through no socket.
//!
//! [`VhostServer::start`] serves an [`Export`](weir_export::Export) to the frontend that connects to a
//! [`Listener`](weir_runtime::Listener); others wait until it has gone. The protocol is that of QEMU
//! (<https://www.qemu.org/docs/master/interop/vhost-user.html>), the device that of virtio 1.2. Messages, memory and
//! rings are parsed by the crates of rust-vmm; that project's own server, `vhost-user-backend`, has threads of its
//! own, and here all is on the one thread of the runtime.
//!
//! What it promises, N1 to N4, stands at [`weir_export`]. A guest that did not take the feature FLUSH gets each write
//! as with FUA. And:
//!
//! - **N5, taken up again.** Requests of a guest that were under way when the server was killed are carried out by the
//!   next server, in the order in which the guest gave them to each ring, before any that the guest gives then: which
//!   ones, and in which order, stands in memory that the frontend keeps (`VHOST_USER_PROTOCOL_F_INFLIGHT_SHMFD`).
//!
//! A guest's rings and requests are input: whatever they hold, the answer is an error, or the ring is served no more
//! until the guest sets it up anew. The frontend is trusted with one thing: one that makes the file of its own memory
//! shorter ends the server by SIGBUS, if the file is not sealed against that (QEMU's `memory-backend-memfd` is).
//!
//! | file | what it is |
//! |---|---|
//! | `server.rs` | frontends, one after the other |
//! | `frontend.rs` | one frontend: its messages |
//! | `device.rs` | the disk as a frontend sets it up |
//! | `config.rs` | what the disk offers, and how large it is |
//! | `memory.rs` | the guest's memory |
//! | `vring.rs` | a ring of requests |
//! | `inflight.rs` | which of them are under way, in memory that outlives the server |
//! | `chain.rs` | where in memory one request lies |
//! | `requests.rs` | what it asks for is checked and done |

mod chain;
mod config;
mod device;
mod error;
mod frontend;
mod inflight;
mod memory;
mod mutants;
mod requests;
mod server;
mod vring;

pub use config::{QUEUE_SIZE_MAX, QUEUES_MAX};
pub use error::VhostError;
#[cfg(feature = "mutants")]
pub use mutants::VhostMutant;
pub use requests::PAYLOAD_MAX;
pub use server::{Frontends, VhostOptions, VhostServer};
