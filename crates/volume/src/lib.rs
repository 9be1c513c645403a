//! A log-structured volume: barriers on any disk.
//!
//! The papers change firmware so that a disk keeps the order of writes. A volume does the same one layer
//! up, on the disk that is there: every write becomes a checksummed, sequence-numbered record at the head
//! of a log, many chunks of the log are in flight in any completion order, and after a crash recovery keeps
//! exactly the longest unbroken prefix. So a barrier costs nothing, a request is atomic, and a flush is one
//! flush of the disk below.
//!
//! # Rules
//!
//! - **V1** Recovery begins a new log generation; records behind the cut never count again.
//! - **V2** Every chunk carries the last sequence number known durable; a hole below it is an error, not a silent
//!   cut.
//! - **V3** A version is overwritten only when what supersedes it is durable; one reclaim check decides.
//! - **V4** The segments that come next are in the checkpoint, or in records that lengthen its list; recovery reads
//!   a bounded tail.
//! - **V5** The loss window: what may be lost without a flush is bounded, configurable and reported.
//! - **V6** Memory, checkpoints and what opening reads follow what is used and what changes, not the volume's size.
//! - **V7** A share is one record; a block that several names read is live until the last is gone, and moves with
//!   all of them.
//! - **V8** A volume on a storage that others can reach has one owner: only with a valid lease it writes and
//!   acknowledges.
//! - **V9** A closed volume has its map and its checkpoint twice; repair keeps what is proved, and what is not
//!   reads as an error.
//! - **V10** A snapshot reads what the volume held at one record, whatever is written, discarded, shared, cleaned or deleted
//!   later, and over crashes.
//! - **V11** A volume that is being grown or shrunk has, after a crash, its old size or the new one, and all of its content. Where
//!   it is open meanwhile, no command fails for it.
//! - **V12** A volume with a base reads a block from the base until the block is written, discarded or shared; from then on it
//!   reads that, also after a crash. It is not opened without its base.
//! - **V13** A volume with marks has, after a crash, what it had at the newest mark that is durable, or at a later one; and a
//!   snapshot of it is of a mark.
//! - **checks** Everything that is read back is checked, and what does not match is an error.
//!
//! About V5: the bound in bytes is hard. The bound in time depends on the disk: a flush begins when half the
//! time is over, and how long it takes is up to the disk. If the whole time is over before it is done, the
//! volume opens no further chunk, so writers wait, and [`LossWindowSeen`] says how long it was. With marks (V13) both are of
//! what is not flushed: a crash takes back flushed records, too, behind the newest mark that is durable.
//!
//! **What the disk below may do** (the crash model): forget or keep each unit of 512 bytes or 4 KiB of what
//! was not flushed, independently and in any order, and tear any write between units. It may not lose what
//! was flushed, and a unit holds one whole version. Where it does worse, checksums notice.
//!
//! An open volume is made of parts, each of which calls only those before it (`common.rs`): the blocks and where they
//! are, the log, and what makes it durable, takes checkpoints, passes discards down, and cleans. `volume.rs` puts them
//! together.
//! Start reading in `log.rs` (how a write gets its place), then `recovery.rs` (what a crash leaves),
//! then `checkpointer.rs`. Every bit on the medium is in `layout.rs` and in `docs/format/volume.md`.
//!
//! Write, barrier, flush, crash, and open again, on the worst disk that the contract allows:
//!
//! ```
//! use weir_runtime::{Runtime, Simulation};
//! use weir_storage::{
//!     AdversaryDisk, AdversaryOptions, Command, Extent, Lba, Part, StreamId, flush, read,
//!     submit_when_free, write,
//! };
//! use weir_volume::{Format, Volume, VolumeOptions};
//!
//! let runtime = Runtime::simulated(Simulation::default());
//! let handle = runtime.handle();
//! let (zeroes, page) = ([0; 4096], [7; 4096]);
//! let barrier = Command::Barrier { stream: StreamId(0) };
//! runtime.block_on(async {
//!     let disk = AdversaryDisk::new(&handle, AdversaryOptions::default());
//!     Volume::create(&handle, &*disk, Format { segment_blocks: 8, ..Format::default() }).await?;
//!     let volume = Volume::open(&handle, disk.clone(), VolumeOptions::default()).await?;
//!     write(&volume, Part::bytes(Lba(0), &page)).await?;
//!     flush(&volume).await?;
//!     for lba in 1..100 {
//!         write(&volume, Part::bytes(Lba(lba), &page)).await?;
//!         submit_when_free(&volume, barrier).await?;
//!     }
//!     disk.cut_power();
//!
//!     let left = disk.crash_states().sample(&mut handle.random("what is left"));
//!     let disk = AdversaryDisk::from_image(&handle, AdversaryOptions::default(), &left);
//!     let volume = Volume::open(&handle, disk, VolumeOptions::default()).await?;
//!     let mut kept = Vec::new();
//!     for lba in 0..100 {
//!         let found = read(&volume, Extent::new(Lba(lba), 1)).await?;
//!         // Each request is there as a whole, or not at all.
//!         assert!(found[..] == page || found[..] == zeroes);
//!         kept.push(found[..] == page);
//!     }
//!     assert!(kept[0]); // It was flushed.
//!     assert!(kept.is_sorted_by(|earlier, later| earlier >= later)); // The rest is a prefix.
//!     Ok::<(), Box<dyn std::error::Error>>(())
//! })??;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod base;
mod base_storage;
mod blocks;
mod branch;
mod branches;
mod changes;
mod check;
mod checkpoint;
mod checkpointer;
mod chunk;
mod claim;
mod cleaner;
mod common;
mod correction;
mod create;
mod discard;
mod error;
mod flush;
mod geometry;
mod layout;
mod lease;
mod live;
mod log;
mod map;
mod map_page;
mod marks;
mod mutants;
mod names;
mod options;
mod pager;
mod placement;
mod read;
mod rebuild;
mod recovery;
mod repair;
mod reserve;
mod resizable;
mod resize;
mod scan;
mod sealed;
mod segments;
mod snapshot_table;
mod sparse;
mod stats;
mod stream;
mod tap;
mod transfer;
mod volume;

pub use base::Base;
pub use branch::BranchStorage;
pub use check::{CheckReport, Info, check, inspect, require_closed, upgrade};
pub use error::{Damage, FormatError, ResizeError, SnapshotError, VolumeError};
pub use geometry::Format;
pub use layout::content_checksum;
pub use live::{LiveBlock, LivePage, OldBlocks};
#[cfg(feature = "mutants")]
pub use mutants::VolumeMutant;
pub use options::{CleaningPolicy, Completion, LossWindow, VolumeOptions, VolumeRules};
pub use placement::NewSize;
pub use repair::{Finding, RepairOptions, RepairReport, repair};
pub use resizable::ResizableVolume;
pub use resize::{Resized, grow, plan_shrink, shrink};
pub use snapshot_table::{Branch, BranchKind};
pub use stats::{LossWindowSeen, RecoveryReport, Stats};
pub use stream::{StreamError, StreamReport, receive, send};
pub use tap::{Backlog, Change, LogChunk, LogEntry, LogTap, TapBounds};
pub use volume::{Position, Volume};
