//! Object stores for replicas: S3 and what speaks its protocol, and directories, by the crate `object_store`.
//!
//! That crate needs a runtime of its own, tokio. It has a thread, and requests go to it over a bounded channel
//! ([`Bucket`]), so the rest of Weir knows one runtime. Credentials come from the environment, and no error has them in it.

mod answer;
mod bucket;
mod deadline;
mod place;
mod root;
mod settings;

pub use bucket::Bucket;
pub use place::{Place, PlaceError};
