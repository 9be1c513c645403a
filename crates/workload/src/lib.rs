//! Workloads: what programs do to files and disks, written once for simulated and real ones.
//!
//! | noun | what it is |
//! |---|---|
//! | [`BlockTrace`] | a recorded block trace, as other programs write them |
//! | [`MailUser`] | a thread of Filebench's varmail, on any [`MailStore`] |

mod block_trace;
mod varmail;

pub use block_trace::{BlockTrace, TraceError, TraceKind, TraceRequest};
pub use varmail::{APPEND_BYTES, MailStore, MailUser, Message, Messages};
