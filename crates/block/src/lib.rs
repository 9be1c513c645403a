//! The order-preserving block layer, between the callers that issue requests and a
//! [`Storage`](weir_storage::Storage).
//!
//! A write is *orderless* or *order-preserving*. Order-preserving writes form *epochs*; a *barrier* closes
//! an epoch. Submitting a write waits neither for its transfer nor for a flush, and after a power loss no
//! write of an epoch is left unless all epochs of its stream before it are (FAST 2018 paper, sections 3.2
//! to 3.4). The rules:
//!
//! - **E1** The partial order between the epochs of a stream is preserved.
//! - **E2** Within an epoch requests leave in any order: the [`Elevator`]'s freedom.
//! - **E3** Orderless requests cross epochs; while a queue is closed new ones wait, for a bounded time.
//!   Reads are never held back, nor are flushes but those of E9.
//! - **E4** *Barrier reassignment*: a barrier loses its flag when it enters the queue, and closes it; the last
//!   order-preserving request that the device accepts becomes the barrier, and the queue opens. A bare barrier, with nothing left
//!   queued, is the device's barrier command. A merged request is order-preserving if one part is, and streams
//!   never merge.
//! - **E5** The next command is dispatched as soon as the last was accepted. Barrier writes have ordered
//!   priority where the device honours it. Order-preserving requests wait behind a refused one, orderless
//!   ones may pass it; a device that refuses with slots free is asked again after 3 ms.
//! - **E6** Legacy dispatch puts epochs in order by transfer-and-flush.
//! - **E7** An orderless write to a page that a barrier call covers is promoted to the current epoch.
//! - **E8** What is in an *ordered plug* leaves in its order, whatever the elevator does: as one packed command, or as several,
//!   each submitted when the one before is transferred. Writes that continue each other become one, but not across a bare barrier.
//! - **E9** A *flush behind writes* leaves when every write that was issued before it is transferred, or has failed. So it covers them,
//!   and no task runs between.
//! - **S5** After a failed order-preserving write, nothing order-preserving of its stream that is not yet
//!   transferred is carried out, until [`BlockLayer::reset`]. After a failed flush nothing more is
//!   acknowledged as durable: what it covered may be lost, and no later flush would tell.
//! - **S6** A request carries its data as of submission, and overlapping requests never pass each other.
//!
//! Every rule has a `BlockMutant` (feature `mutants`) that drops it, and a test that kills the mutant.
//!
//! An orderless write belongs to no stream's order; its stream says which closed queue it waits for, and
//! whose turn it takes in the fair elevator.
//!
//! How a request goes its way: `layer` takes it, `scheduler` issues it and, when nothing is in its way,
//! hands it straight to the device; otherwise it enters the `queue`, where `epoch` says whether it may (what may not waits in `staging`), and
//! `merge` whether it becomes part of another. A `plug` collects writes before all that. `dispatch` lets it leave, `inflight` remembers it until the
//! device has answered, `complete` passes the answer on.
//!
//! ```
//! use std::rc::Rc;
//! use weir_block::{BlockLayer, BlockOptions, Dispatch, Request};
//! use weir_runtime::{Runtime, Simulation};
//! use weir_storage::{AdversaryDisk, AdversaryOptions, Lba, Part, StreamId};
//!
//! let runtime = Runtime::simulated(Simulation::default());
//! let disk = AdversaryDisk::new(&runtime.handle(), AdversaryOptions::default());
//! // This disk knows no barriers, so the host keeps order.
//! let options = BlockOptions { dispatch: Dispatch::Legacy, ..BlockOptions::default() };
//! let layer = BlockLayer::new(&runtime.handle(), disk, options)?;
//! let page = [7; 4096];
//! let ticket = layer.try_submit(&Request::barrier(StreamId(0), &[Part::bytes(Lba(0), &page)]))?;
//! layer.try_submit(&Request::ordered(StreamId(0), &[Part::bytes(Lba(1), &page)]))?;
//! runtime.block_on(async { ticket.transferred().await })??;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod block_io;
mod complete;
mod dispatch;
mod elevator;
mod epoch;
mod error;
mod inflight;
mod layer;
mod merge;
mod mutants;
mod options;
mod plug;
mod promote;
mod queue;
mod request;
mod scheduler;
mod staging;
mod stats;

pub use block_io::{BlockIo, Durable, Run, Waits};
pub use elevator::{Deadline, Elevator, Entry, Fair, Noop};
pub use error::{BlockError, Refused};
pub use layer::BlockLayer;
#[cfg(feature = "mutants")]
pub use mutants::BlockMutant;
pub use options::{BlockOptions, Dispatch, ElevatorKind};
pub use plug::OrderedPlug;
pub use promote::Promotion;
pub use request::{Class, Request};
pub use stats::Stats;
