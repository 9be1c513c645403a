//! The *adversary disk*: a disk in memory that behaves as badly as the contract allows, and no worse.
//!
//! What it does that a kind disk would not:
//!
//! - Simple commands are serviced in a seeded random order (S1), each after a seeded delay.
//! - A flush makes durable what was transferred before its submission and nothing else; while it is in
//!   flight it guarantees nothing (S2).
//! - A power cut leaves, for every tear unit on its own, the last durable version or any later one that
//!   was transferred or is in flight (S4); on a barrier device within the epoch that the cut falls into
//!   (S3); on a prefix device any prefix of the requests received, each whole.
//! - The cache is written back when the seed says so, in any order that the barriers allow, or never.
//!
//! [`CrashStates`] enumerates or samples what a power cut may leave, [`Image`] is one such state,
//! [`Faults`] adds failures beyond power cuts, and [`Witness`] is the judge: it watches a storage from
//! outside, writes down what was submitted and what was acknowledged, and says of an image whether the
//! contract allows it.

mod accept;
mod cache;
mod crash;
mod disk;
mod faults;
mod image;
mod judge;
mod kept;
mod mutants;
mod queue;
mod service;
mod state;
mod witness;

pub use crash::CrashStates;
pub use disk::{AdversaryDisk, AdversaryOptions};
pub use faults::{Fault, Faults};
pub use image::Image;
pub use judge::{Expectation, Illegal, Reason};
pub use kept::{Kept, NoState};
#[cfg(feature = "mutants")]
pub use mutants::StorageMutant;
pub use witness::Witness;
