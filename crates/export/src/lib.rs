//! A [`Storage`](weir_storage::Storage) as servers of blocks offer it to their clients, whatever the protocol: an [`Export`].
//!
//! # What a server promises
//!
//! A reply to a write comes when the storage has it (transferred, S2), so that all connections read it. What survives a
//! crash is what FLUSH and FUA say, in one of two ways ([`FlushMode`]):
//!
//! - **N1, durability.** With [`FlushMode::Durable`], FLUSH is answered when every write that was answered before it was
//!   received, on any connection, is durable, and a request with FUA when it is durable itself. So a client may send its
//!   writes on several connections, and a flush on one. After a flush that failed, none succeeds.
//! - **N2, order.** With [`FlushMode::Order`], FLUSH and FUA only order, and wait for nothing: if something survives that
//!   was received after the answer to FLUSH, all survives that was answered before that FLUSH was received, on any
//!   connection. A volume keeps more: what is left is a prefix of the requests in the order in which it took them, and one
//!   that was received after the answer to another comes after that.
//! - **N3, bounds.** A connection has a limited number of requests and bytes under way ([`Load`]); the next is not read
//!   before one of them has been answered and its answer taken. A client that does not keep to the protocol is dropped,
//!   and the others are served on.
//!
//! - **N4, answers from the disk.** On a volume that answers from the disk
//!   (`weir_volume::Completion::Disk`), a change is answered when the disk has taken it. So what was answered is there when the
//!   server is killed and started again, and the machine goes on; a power cut may take what N1 and N2 let it take.
//!
//! - **N7, no promise behind a loss.** A client that goes on after its server was killed expects all that was answered.
//!   Where answered changes may be lost (without N4), no flush of it succeeds ([`Export::fail_flushes`]).
//!
//! | file | what it is |
//! |---|---|
//! | `export.rs` | the storage as it is served: what its requests do |
//! | `error.rs` | why a request is refused |
//! | `load.rs` | how much of a connection is under way |

mod error;
mod export;
mod load;
mod mutants;

pub use error::{NoOrder, RequestError};
pub use export::{Export, ExportOptions, Extent, FlushMode, RequestUnderWay};
pub use load::{BYTES_MAX, Load, REQUESTS_MAX, UnderWay};
#[cfg(feature = "mutants")]
pub use mutants::ExportMutant;
