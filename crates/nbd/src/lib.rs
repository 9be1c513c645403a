//! A [`Storage`](weir_storage::Storage) as a network block device (NBD), for virtual machines and tools.
//!
//! [`NbdServer::start`] serves an [`Export`] to all who connect to a [`Listener`](weir_runtime::Listener). It speaks the
//! fixed newstyle negotiation with structured replies and the context `base:allocation`, as the protocol's document says
//! (<https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>). TLS it has not: a socket of the host is for
//! the users whom the permissions of its file admit, and TCP for all users of this machine.
//!
//! # What a server promises
//!
//! A reply to a write comes when the storage has it (transferred, S2), so that all connections read it. What survives a
//! crash is what FLUSH and FUA say, in one of two ways ([`FlushMode`]):
//!
//! - **N1, durability.** With [`FlushMode::Durable`], FLUSH is answered when every write that was answered before it was
//!   received, on any connection, is durable, and a request with FUA when it is durable itself. So a client may send its
//!   writes on several connections, and a flush on one (`NBD_FLAG_CAN_MULTI_CONN`). After a flush that failed, none
//!   succeeds.
//! - **N2, order.** With [`FlushMode::Order`], FLUSH and FUA only order, and wait for nothing: if something survives that
//!   was received after the answer to FLUSH, all survives that was answered before that FLUSH was received, on any
//!   connection. A volume keeps more: what is left is a prefix of the requests in the order in which it took them, and one
//!   that was received after the answer to another comes after that.
//! - **N3, bounds.** A connection has a limited number of requests and bytes under way; the next is not read before one
//!   of them has been answered and its answer taken. A client that does not keep to the protocol is dropped, and the
//!   others are served on.
//!
//! - **N4, answers from the disk.** On a volume that answers from the disk
//!   (`weir_volume::Completion::Disk`), a change is answered when the disk has taken it. So what was answered is there when the
//!   server is killed and started again, and the machine goes on; a power cut may take what N1 and N2 let it take.
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
//! | `export.rs` | the storage as it is served: what its requests do |
//! | `requests.rs` | one request, from its header to its reply |
//! | `connection.rs` | many requests of one client |
//! | `inbox.rs`, `outbox.rs` | bytes that come in, and replies that go out |
//! | `load.rs` | how much is under way |
//! | `server.rs` | all clients |

mod connection;
mod error;
mod export;
mod inbox;
mod load;
mod mutants;
mod negotiation;
mod outbox;
mod protocol;
mod reply;
mod requests;
mod server;
mod transport;

pub use connection::serve_connection;
pub use error::{NbdError, NoOrder};
pub use export::{Export, ExportOptions, FlushMode};
pub use load::{BYTES_MAX, REQUESTS_MAX};
#[cfg(feature = "mutants")]
pub use mutants::NbdMutant;
pub use protocol::PAYLOAD_MAX;
pub use server::{CONNECTIONS_MAX, Connections, NbdServer};
pub use transport::Transport;
