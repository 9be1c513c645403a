//! Emulated flash devices: the papers' drives as deterministic models.
//!
//! A [`FlashDevice`] is a [`Storage`](weir_storage::Storage) made of a host link, a command queue, a write-back
//! cache, a translation layer and flash chips, all described by a [`Profile`]. It keeps barriers by the
//! [`Mechanism`] that its profile names, loses what a real one loses when the power goes, and recovers from
//! what is on flash alone. It runs in either clock of its runtime.
//!
//! # What is modelled
//!
//! | part | file |
//! |---|---|
//! | command queue with simple, ordered and head-of-queue priority | `queue.rs` |
//! | controller, link, flush, FUA, reads; the way of a command | `machine.rs` |
//! | write-back cache: bounded, coalescing, written back in epochs, units or freely | `cache.rs` |
//! | barrier mechanisms: when a page counts, what recovery keeps | `mechanism.rs` |
//! | page mapping, allocation over idle dies, the gate before an erase | `ftl.rs` |
//! | cleaning: greedy and cost-benefit | `clean.rs` |
//! | checkpoints of the map | `checkpoint.rs` |
//! | recovery from the spare areas | `recovery.rs` |
//! | dies and channels, in time | `array.rs` |
//! | what is on flash | `medium.rs` |
//! | where its bytes lie, if not in memory | `backing.rs` |
//! | the same behind the contract of a storage | `device.rs` |
//!
//! # What is not
//!
//! Media errors, retention and read disturbance; suspended programs and erases; the damage that a torn upper
//! page does to its lower page (firmware with a backup of it is assumed); a host that aborts commands. A flush
//! does not hold up other commands in the queue. The system area, with two checkpoints and what capacitors
//! save, lies outside the modelled erase blocks, and its programs take the dies' time.
//!
//! # Power cuts
//!
//! [`FlashDevice::after_cut`] is what is on flash if the power goes before the next event: pages being programmed and blocks being
//! erased are as they were, torn, or done. [`FlashDevice::restarted`] recovers from it.

mod array;
mod backing;
mod cache;
mod checkpoint;
mod clean;
mod device;
mod ftl;
mod geometry;
mod machine;
mod mechanism;
mod medium;
mod mutants;
mod options;
mod probe;
mod profile;
mod queue;
mod recovery;
mod stats;

pub use backing::Backing;
pub use device::FlashDevice;
pub use medium::Medium;
#[cfg(feature = "mutants")]
pub use mutants::FlashMutant;
pub use options::{FlashOptions, Keep};
pub use probe::{Busy, Probe};
pub use profile::{
    Barrier, Cache, Flush, Ftl, GcPolicy, Host, Kind, Mechanism, Nand, OrderedService, Parameter, Profile,
    ProfileError, SimpleService,
};
pub use stats::Stats;
