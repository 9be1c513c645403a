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
//! | the way of a command | `machine.rs` |
//! | the queue's limit, controller, link | `service.rs` |
//! | flushes, FUA writes and shares that wait | `waiters.rs` |
//! | reads that wait | `reads.rs` |
//! | shares that go through the map's log | `shares.rs` |
//! | writes, discards and shares that are followed until they are committed | `requests.rs` |
//! | answers whose time is known | `events.rs` |
//! | write-back cache: bounded, coalescing, written back in epochs, units or freely | `cache.rs` |
//! | barrier mechanisms: when a page is committed, what recovery keeps | `mechanism.rs` |
//! | the map, the blocks that read one slot, and what changes them | `map.rs` |
//! | allocation over idle dies, commits, the reclaim check before an erase | `ftl.rs` |
//! | cleaning: greedy and cost-benefit | `clean.rs` |
//! | order-preserving recovery: numbers of requests, internal flushes | `machine/prefix.rs` |
//! | its coalescing records on their way to flash; the memory that it takes | `record_buffer.rs`, `order_memory.rs` |
//! | which requests recovery keeps; what it may keep, by definition | `recovery_point.rs`, `flow_network.rs` |
//! | older versions that recovery may go back to | `unsettled.rs` |
//! | checkpoints of the map, full ones and increments; when each is written | `checkpoint.rs`, `checkpointer.rs` |
//! | recovery from the spare areas | `recovery.rs` |
//! | the pages that it finds, the only way to read them | `found_pages.rs`, `recovery_reads.rs` |
//! | which erase blocks are free or being filled, as a seal says | `stock.rs` |
//! | dies and channels, in time | `array.rs` |
//! | what is on flash | `medium.rs` |
//! | what a power cut leaves of it | `power.rs` |
//! | where its bytes lie, if not in memory | `backing.rs` |
//! | the same behind the contract of a storage | `device.rs` |
//!
//! # What is not
//!
//! The limit of 63 writes in a packed command; media errors, retention and read disturbance; suspended programs and erases; the damage that a torn upper
//! page does to its lower page (firmware with a backup of it is assumed); a host that aborts commands. A flush
//! does not hold up other commands in the queue. The system area, with the checkpoints of the map and what capacitors
//! save, lies outside the modelled erase blocks, and its programs take the dies' time.
//!
//! # The rules
//!
//! How the devices keep S1 to S4 and S7. A page is *committed* when no power cut can take it back.
//! With order-preserving recovery that is so when a flush covers its request, which is *settled* then; the map points to
//! the page before.
//!
//! - **F1** Ordered commands are serviced in their place. A FUA write, a discard or a share by a page is transferred
//!   when it is durable: barriers and ordered commands wait for it.
//! - **F2** Writing back keeps the order of epochs as far as the mechanism needs it. A version takes the place of an
//!   older one in the cache only within its epoch.
//! - **F3** Recovery keeps what was committed, and nothing that could not have: the log to its first gap, whole
//!   units, no torn page, no place that was programmed again since. It serves nothing before its checkpoint is whole.
//!   With order-preserving recovery it reads the erase blocks that the newest seal, the log, and pages found there name, and
//!   no other.
//! - **F4** The later version wins, a discard is a version, a copy made by cleaning never brings a block back, and what
//!   capacitors saved is restored.
//! - **F5** The reclaim check: an erase block is erased when nothing in it is valid, everything in it is committed or
//!   never will be, the newest whole checkpoint covers it, and recovery cannot go back to anything in it.
//! - **F6** A flush is answered when everything transferred before it is committed; a FUA write too, with what came
//!   before it.
//! - **F7** A checkpoint is the map at one moment: a whole full one, and the whole increments behind it in their order.
//!   The log that they are made of has every change of the map. With order-preserving recovery its seal says which erase
//!   blocks are free, and none of them is filled before the seal, an earlier page of its die, or the log names it.
//! - **F8** A share is one record, all of its pairs or none, of what was committed before it; until it is committed itself, no
//!   command changes what it names. A slot that several blocks read is valid until the last of them reads something else, and
//!   moves with all of them.
//! - **F9** With order-preserving recovery, what is left is a prefix of the requests in order of receipt, each of them
//!   whole. Coalesced requests are kept together. A flush is answered when all requests before it and their records are
//!   on flash. What a request superseded is kept until a flush covers the request, and a checkpoint is taken only behind
//!   a flush that covers its requests.
//! - **F10** A version of a logical page is a whole one: what a command does not change of it is what it was, whatever is
//!   on its way to flash. A summary page that is torn says nothing: recovery reads the pages themselves.
//! - **F11** A packed command is one command: decoded once, with its header, and answered with its last write. Its writes
//!   enter the cache in turn, each with its flags; one that must be on flash is there before the next enters, or in one
//!   page of flash with it (`host.packed_pages`), and nothing else is serviced meanwhile. So a power cut leaves a prefix of
//!   writes that all have FUA.
//! - **F12** A reliable write must be on flash before it is transferred, as one with FUA. Where programs are torn
//!   (`nand.torn_program`, [`Mechanism::None`]), a page whose program a power cut interrupted reads as good, with garbage
//!   in each of its blocks in place of the version before; not so a page that holds something reliable, a record, or
//!   copies made by cleaning.
//!
//! docs/RULES.md has them with the tests.
//!
//! # Power cuts
//!
//! [`FlashDevice::after_cut`] is what is on flash if the power goes before the next event: pages being programmed and blocks being
//! erased are as they were, torn, or done. [`FlashDevice::restarted`] recovers from it.

mod array;
mod backing;
mod cache;
mod checkpoint;
mod checkpointer;
mod clean;
mod clean_pages;
mod device;
mod events;
mod flow_network;
mod found_pages;
mod ftl;
mod geometry;
mod logical_page;
mod machine;
mod map;
mod mechanism;
mod medium;
mod mutants;
mod options;
mod order_memory;
mod power;
mod probe;
mod profile;
mod queue;
mod reads;
mod record_buffer;
mod recovery;
mod recovery_point;
mod recovery_reads;
mod requests;
mod service;
mod shares;
mod stats;
mod stock;
mod unsettled;
mod waiters;

pub use backing::Backing;
pub use device::FlashDevice;
pub use flow_network::FlowNetwork;
pub use medium::Medium;
#[cfg(feature = "mutants")]
pub use mutants::FlashMutant;
pub use options::{FlashOptions, Keep};
pub use order_memory::OrderMemory;
pub use probe::{Busy, Probe, Subject};
pub use profile::{
    Allocation, Barrier, Cache, Changes, Flush, Ftl, GcPolicy, Host, InternalFlush, Kind, Layout, Mechanism,
    Nand, OrderedService, Parameter, Profile, ProfileError, Replacement, ShareBy, SimpleService,
};
pub use recovery_point::RecoveryPoint;
pub use recovery_reads::RecoveryReads;
pub use stats::Stats;
