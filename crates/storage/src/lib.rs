//! The storage contract of Weir: what every block store promises, and how it is checked.
//!
//! Everything that stores 4 KiB blocks is a [`Storage`], and storages stack. A caller hands over a
//! [`Command`] with [`Storage::submit`] and gets a [`Ticket`], or [`Rejected::Busy`] if the queue is full. A
//! ticket has two phases: *transferred*, and *durable* where the device can tell. What a device can do is in
//! its [`Capabilities`]; asking for anything else is [`Rejected::Unsupported`].
//!
//! # The rules
//!
//! - **S1, service.** The order of submission is the order of dispatch; simple commands may be serviced in
//!   any order. A command with ordered priority is serviced after everything submitted before it, and before
//!   everything submitted after it, head-of-queue commands excepted. Only reads and flushes may go to the
//!   head of the queue. Ordered priority is a capability (`ordered_service`): the volume has it, [`FileDisk`]
//!   does not.
//! - **S2, tickets.** A write is transferred when its data is in the device's write cache: for [`FileDisk`]
//!   when the kernel reports it complete, for the volume when its record has its place in the log. With FUA
//!   it is transferred only when it is durable; on a device with barriers all earlier epochs are durable by
//!   then, on a prefix device everything received before it. A write with pre-flush persists only after
//!   everything that was transferred before it was submitted. A flush completes when every write that was
//!   transferred before the flush was submitted is durable. With the capability `ordered_flush` it covers
//!   every write *submitted* before it.
//! - **S3, barriers.** After a power loss there is one epoch *k*: every epoch before *k* is applied, none after it
//!   is, and of *k* itself any part may be. That holds on a device with barriers ([`Ordering::Barrier`]). What was
//!   flushed, or completed with FUA, is applied in any case. "Applied" means
//!   this version of a block or a later one. A write belongs to the epoch in which it was transferred,
//!   orderless writes too. A prefix device ([`Ordering::Prefix`], such as the volume) keeps requests in the
//!   order in which it received them: what is left is a prefix. Requests of up to `atomic_blocks` blocks are
//!   whole or absent.
//! - **S4, tearing.** A tear unit (`tear_unit_bytes`: 512 bytes or 4 KiB) holds one whole version, never a
//!   mixture, and none older than its last durable one. On a legacy device ([`Ordering::Legacy`]) units are
//!   independent of each other, also inside one write. With the capability `corrupts_when_cut` a power cut may
//!   leave a block that is being written or discarded, and is not durable yet, as neither version: each of its
//!   sectors of 512 bytes is old, new or garbage. With the flag `reliable` each block of a write holds its old or
//!   its new version as a whole, on every device that has the flag.
//! - **S5, failures.** After a failed order-preserving write, the block layer fails everything of that stream that is
//!   not transferred yet; what was transferred may persist. Order is promised for power loss, not for media errors: a
//!   write that failed may have persisted in part. After a failed flush nothing more
//!   is acknowledged as durable ([`StorageError::Poisoned`]): no later flush could tell whether the data is
//!   there.
//! - **S6, payload and overlaps.** A write carries its data as of submission: once `submit` has returned, the
//!   caller may change its memory. Commands in flight that overlap have no order on a real device, so the
//!   block layer never has two of them in flight, unless a barrier separates them on a device that services
//!   barriers in their place. No elevator lets one pass another.
//! - **S7, the other changes.** Discards, shares and packed writes take part in S3 and S4 as writes do. A
//!   share is whole or absent. Packed writes are made in turn, and so are their flags: one with FUA is durable
//!   before the next is made, so that a power cut leaves the first of them. What a discarded block reads is
//!   a capability ([`Discard`]).
//!
//! # The crash model
//!
//! What a power cut may do to a device, and what it may not:
//!
//! - **Lose.** Whatever is neither flushed nor written with FUA may be gone, however long ago it was
//!   transferred.
//! - **Keep.** Whatever was submitted may be there, answered or not, unless a rule above holds it back.
//! - **Reorder.** A legacy device may keep a late write and lose an early one. A device with barriers may do
//!   so inside one epoch. A prefix device may not do so at all.
//! - **Tear.** A write of several units may be there in some of them, and a block of eight 512-byte units may
//!   hold the old version in some and the new one in others. A write of at most `atomic_blocks` blocks is not
//!   torn, and no block of a write with the `reliable` flag is.
//! - **Corrupt.** With the capability `corrupts_when_cut`, and only then, a block with a write that is not durable
//!   yet may hold garbage, which neither version has. A durable block that nobody writes to never does.
//! - **Not allowed.** A unit with a mixture of two versions, a unit older than its last durable version, a
//!   unit that changed although it was not written, and on a device with barriers anything that S3 excludes.
//!
//! [`AdversaryDisk`] does all that is allowed, and [`CrashStates`] lists or samples what may be left at any
//! moment. [`Faults`] goes further, beyond the contract: failing and slow commands, inverted bits,
//! misdirected writes, and a disk that turns read-only. No rule promises order under these; the layers above
//! must notice what they can, and must not acknowledge what they cannot keep.
//!
//! # What proves it
//!
//! [`Witness`] watches a storage from outside: what was submitted and what was acknowledged. From that alone
//! its [`Expectation`] says whether an [`Image`] is a legal rest. [`Recorder`] checks the four orders of a
//! run as requests pass. [`conformance`] is the suite that every storage must pass. With the feature
//! `mutants` the adversary disk breaks one rule of S1 to S4, S6 or S7 on request, and tests show that each
//! breach is noticed; S5 is the upper layers' to keep, and their mutants break it.
//!
//! # The files
//!
//! | file | what it is |
//! |---|---|
//! | `address.rs` | blocks and extents |
//! | `command.rs` | what a storage is asked to do |
//! | `capability.rs` | what a device can do, and the check of a command against it |
//! | `byte_storage.rs` | a storage, addressed by bytes |
//! | `ticket.rs` | what submitting gives back; the watermark of a log |
//! | `contract.rs` | the trait [`Storage`], and helpers that wait |
//! | `error.rs` | rejected at submission, or failed later |
//! | `recorder.rs` | the order recorder |
//! | `file_disk.rs`, `file_disk/` | a file or block device, through io_uring |
//! | `overlay.rs` | writes kept in memory, in front of a disk that is only read |
//! | `adversary/` | the worst disk that the contract allows, its crash states, its faults, the judge |
//! | `conformance.rs`, `conformance/` | the suite |
//!
//! # Example
//!
//! Without a flush a legacy disk may lose the first of two writes and keep the second:
//!
//! ```
//! use weir_runtime::{Runtime, Simulation};
//! use weir_storage::{AdversaryDisk, AdversaryOptions, Capabilities, Lba, Part, flush, write};
//!
//! let runtime = Runtime::simulated(Simulation::default());
//! let capabilities = Capabilities::legacy(32, 256, 4096);
//! let options = AdversaryOptions { capabilities, ..AdversaryOptions::default() };
//! let disk = AdversaryDisk::new(&runtime.handle(), options);
//! let page = [7; 4096];
//! runtime.block_on(async {
//!     write(&*disk, Part::bytes(Lba(0), &page)).await?;
//!     flush(&*disk).await?;
//!     write(&*disk, Part::bytes(Lba(1), &page)).await?;
//!     write(&*disk, Part::bytes(Lba(2), &page)).await
//! })??;
//! disk.cut_power();
//! let states = disk.crash_states();
//! let left: Vec<[bool; 3]> =
//!     states.all().map(|image| [0, 1, 2].map(|lba| image.read(Lba(lba)) == page)).collect();
//! assert_eq!(left.len(), 4);
//! assert!(left.iter().all(|kept| kept[0])); // It was flushed (S2).
//! assert!(left.contains(&[true, false, true])); // No order was promised (S4).
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod address;
mod adversary;
mod byte_storage;
mod capability;
mod command;
mod conformance;
mod contract;
mod error;
mod file_disk;
mod flush_sharing;
mod interposed;
mod marks;
mod opener;
mod overlay;
mod recorder;
mod rules;
mod ticket;

pub use address::{BLOCK_BYTES, Extent, Lba};
#[cfg(feature = "mutants")]
pub use adversary::StorageMutant;
pub use adversary::{
    AdversaryDisk, AdversaryOptions, CrashStates, Expectation, Fault, Faults, Illegal, Image, Kept, NoState,
    Reason, Witness,
};
pub use byte_storage::ByteStorage;
pub use capability::{Capabilities, Discard, Ordering};
pub use command::{
    Command, CommandKind, Data, Epoch, Order, Part, Priority, RequestId, SharePair, StreamId, Tag, Write,
    WriteFlags,
};
pub use conformance::{
    CONFORMANCE_BLOCKS_MIN, CONFORMANCE_SHARE_MIN, CONFORMANCE_TRANSFER_MIN, Expectations, Failure, Report,
    Rule, conformance,
};
pub use contract::{Storage, flush, read, submit_when_free, write};
pub use error::{Feature, Invalid, Rejected, StorageError};
#[cfg(feature = "mutants")]
pub use file_disk::FileDiskMutant;
pub use file_disk::{DiskFacts, FileDisk, FileDiskError, FileDiskOptions, Readers};
pub use flush_sharing::{FlushRound, FlushSharing};
pub use interposed::Interposed;
pub use marks::{Marks, place_mark, run_with_marks};
pub use opener::{HOST_BYTES, Opener, Standing};
pub use overlay::Overlay;
pub use recorder::{Counts, Layer, Recorder, Violation};
pub use rules::Rules;
pub use ticket::{Completer, LogPhase, Ticket, Watermark};
