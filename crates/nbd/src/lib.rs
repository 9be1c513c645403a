//! A [`Storage`](weir_storage::Storage) as a network block device (NBD), for virtual machines and tools.
//!
//! [`NbdServer::start`] serves an [`Export`](weir_export::Export) to all who connect to a [`Listener`](weir_runtime::Listener). It speaks the
//! fixed newstyle negotiation with structured replies and the context `base:allocation`, as the protocol's document says
//! (<https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>). TLS it has not: a socket of the host is for
//! the users whom the permissions of its file admit, and TCP for all users of this machine.
//!
//! What it promises, N1 to N4, stands at [`weir_export`].
//!
//! # Why it is our own
//!
//! The crate `nbd` (0.3, "first sketch, not stable") reads and writes by calls that wait, one request at a time, without
//! structured replies or block status; `nbdkit` binds to a server in C with threads of its own. A server here has many
//! requests under way on the one thread of the runtime, in virtual time too.
//!
//! | file | what it is |
//! |---|---|
//! | `protocol.rs` | numbers and structures of the protocol |
//! | `negotiation.rs` | what client and server agree on first |
//! | `reply.rs` | replies as bytes |
//! | `requests.rs` | one request, from its header to its reply |
//! | `connection.rs` | many requests of one client |
//! | `inbox.rs`, `outbox.rs` | bytes that come in, and replies that go out |
//! | `server.rs` | all clients |

mod connection;
mod error;
mod inbox;
mod negotiation;
mod outbox;
mod protocol;
mod reply;
mod requests;
mod server;
mod transport;

pub use connection::serve_connection;
pub use error::NbdError;
pub use protocol::PAYLOAD_MAX;
pub use server::{CONNECTIONS_MAX, Connections, NbdServer};
pub use transport::Transport;
