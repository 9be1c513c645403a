//! A single-threaded async executor with two clocks.
//!
//! The same code runs in two worlds:
//!
//! - **virtual time** ([`Runtime::simulated`]): the clock stands still while tasks run and jumps to the next
//!   timer when none is ready. A run is a function of its seed: same seed, same order of polls, same
//!   [`trace_hash`](Handle::trace_hash), in any process on any machine. When nothing is ready and no timer is
//!   pending the run has [`Stalled`], which is a lost wake-up or a deadlock, and says so.
//! - **wall time** ([`Runtime::wall`]): the clock is the machine's, and the executor parks on an io_uring
//!   ([`Ring`]) until a completion, the next timer, or a wake-up from another thread.
//!
//! Nothing outside this crate reads a clock, starts a thread or draws randomness: all of it comes from a
//! [`Handle`].
//!
//! | noun | what it is |
//! |---|---|
//! | [`Task`] | a spawned future; await it for its result, drop it to let it run |
//! | [`Sleep`] | a timer; dropping it cancels it |
//! | [`Event`], [`channel`], [`Semaphore`] | how tasks wait for each other; all behave in virtual time |
//! | [`Cores`] | simulated processor cores: what host threads and their context switches cost |
//! | [`Random`] | a seeded stream a label |
//! | [`Ring`], [`Buffer`] | asynchronous file input and output on page-aligned memory, in wall time |
//! | [`Listener`], [`Socket`], [`PolledFile`] | connections of other programs, and files that they share, in wall time |
//! | [`UblkQueue`], [`control_ublk`] | block devices of the kernel that this process serves, in wall time |
//! | [`release_unused`] | returns unused memory of buffers and the heap to the system |
//! | [`Remote`] | the runtime as other threads see it |
//! | [`run_on_threads`], [`share_among_threads`] | work that shares nothing, on several threads |
//! | [`CpuLatencyGuard`] | processors that do not sleep, for a server of other processes |
//!
//! ```
//! use std::time::Duration;
//! use weir_runtime::{Runtime, Simulation};
//!
//! let runtime = Runtime::simulated(Simulation { seed: 1, ..Simulation::default() });
//! let handle = runtime.handle();
//! let elapsed = runtime.block_on(async {
//!     let start = handle.now();
//!     handle.sleep(Duration::from_secs(3600)).await;
//!     handle.now().since(start)
//! });
//! assert_eq!(elapsed, Ok(Duration::from_secs(3600)));
//! ```

mod buffer;
mod clock;
mod cores;
mod cpu_latency;
mod error;
mod executor;
mod handle;
mod instant;
mod polled;
mod random;
mod ready;
mod remote;
mod ring;
mod runtime;
mod semaphore;
mod slabs;
mod sleep;
mod socket;
mod task;
mod task_id;
mod tasks;
mod threads;
mod timer;
mod trace;
mod ublk;
mod uring;
mod work;

pub use async_channel::{Receiver, Sender, bounded as channel};
pub use event_listener::{Event, EventListener};

pub use buffer::Buffer;
pub use clock::{CpuTime, machine_date_nanos};
pub use cores::{Cores, ThreadCounts};
pub use cpu_latency::CpuLatencyGuard;
pub use error::{Cancelled, RemoteError, RingFull, RuntimeError, Stalled};
pub use handle::{GiveWay, Handle, YieldNow};
pub use instant::Instant;
pub use polled::PolledFile;
pub use random::Random;
pub use remote::Remote;
pub use ring::{Outcome, Ring};
pub use runtime::{Runtime, Simulation, Wall};
pub use semaphore::{Acquire, Permit, Semaphore};
pub use slabs::{keep_freed_memory, keep_heap_small, release_unused};
pub use sleep::Sleep;
pub use socket::{Listener, Socket};
pub use task::Task;
pub use threads::{cores, run_on_threads, share_among_threads};
pub use ublk::UblkQueue;
#[cfg(feature = "fuse-queues")]
pub use uring::fuse_queues::{FuseQueues, FuseRequest};
pub use uring::ublk::{UBLK_DESCRIPTION_BYTES, UblkControl, control_ublk};
pub use work::Work;
