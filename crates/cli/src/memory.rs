//! The memory of a server: how much it may take, how much it has, and giving back what it does not need.

use std::time::Duration;

use weir_fs::MemoryBound;
use weir_fuse::REQUEST_BYTES_UNDER_WAY_MAX;
use weir_runtime::{Handle, give_back};

use crate::stack::Stack;

/// How often memory is given back that was free all the time since the last time.
const GIVEN_BACK: Duration = Duration::from_millis(500);
/// How often that of the heap is, in so many times.
const HEAP_EVERY: u64 = 8;

/// What a server takes without a filesystem: the program, its stacks, what its heap has between what is in use, and
/// buffers that wait to be used again.
const PROGRAM_BYTES: u64 = 48 << 20;
/// A request's bytes are in memory up to twice: on their way from or to the kernel, and from or to the disk.
const REQUEST_COPIES: u64 = 2;

/// What a server takes of memory at most, and what it comes back to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// At any time, in bytes.
    pub(crate) bound: u64,
    /// Ten seconds after the last request, when no file has any content in memory; in bytes.
    pub(crate) floor: u64,
}

/// The bounds of a server; none where the storage itself lies in memory.
pub(crate) fn bounds(stack: &Stack, filesystem: Option<MemoryBound>) -> Option<Bounds> {
    let none = MemoryBound { files: 0, changes: 0, caches: 0 };
    let MemoryBound { files, changes, caches } = filesystem.unwrap_or(none);
    let floor = PROGRAM_BYTES + stack.memory_bound()? + caches;
    let requests = REQUEST_COPIES * REQUEST_BYTES_UNDER_WAY_MAX;
    Some(Bounds { bound: floor + files + changes + requests, floor })
}

/// The resident set of this process in bytes, by the kernel's second number in `/proc/self/statm`; 0 where it does not
/// tell.
pub(crate) fn resident() -> u64 {
    let told = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = told.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

/// Gives back to the system what is not needed any more, as long as the runtime runs.
pub(crate) async fn give_back_now_and_then(handle: Handle) {
    for turn in 1_u64.. {
        handle.sleep(GIVEN_BACK).await;
        give_back(turn.is_multiple_of(HEAP_EVERY));
    }
}
