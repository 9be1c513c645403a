//! The memory of a server: how much it may take, how much it has, and giving back what it does not need.

use std::time::Duration;

use tracing::Level;
use weir_fs::{MemoryBound, MountOptions};
use weir_fuse::REQUEST_BYTES_UNDER_WAY_MAX;
use weir_runtime::{Handle, release_unused};
use weir_storage::Marks;
use weir_volume::VolumeOptions;

use crate::cgroup::memory_limit;
use crate::error::CliError;
use crate::log_line::LogLine;
use crate::size::Size;
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

/// The memory that a server takes at most, and what it returns to when its files are gone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// At any time, in bytes.
    pub(crate) bound: u64,
    /// Ten seconds after the last request, when no file has any content in memory; in bytes.
    pub(crate) floor: u64,
}

/// The bounds of a server; none where the storage itself lies in memory.
pub(crate) fn bounds(
    stack: &Stack,
    filesystem: Option<MemoryBound>,
    request_bytes_max: u64,
) -> Option<Bounds> {
    let none = MemoryBound { files: 0, changes: 0, caches: 0 };
    let MemoryBound { files, changes, caches } = filesystem.unwrap_or(none);
    let floor = PROGRAM_BYTES + stack.memory_bound()? + caches;
    let requests = REQUEST_COPIES * request_bytes_max;
    Some(Bounds { bound: floor + files + changes + requests, floor })
}

/// What a mount may take if nothing else is said, whatever its size.
const USUAL_BYTES: u64 = 1 << 30;
/// Of the limit of a group of processes, a server takes this part by default: the rest is for what the kernel keeps in its
/// name, and for other processes of the group.
const GROUP_SHARE: (u64, u64) = (3, 4);
/// Of a limit, this part is for the map of a volume, or for the blocks of a replica.
const MAP_SHARE: u64 = 4;
/// Of a limit, this part is for requests.
const REQUESTS_SHARE: u64 = 32;
/// Bytes that requests may take at least: some reads of the largest size, with what is read ahead.
const REQUEST_BYTES_MIN: u64 = 4 << 20;

/// How much memory a mount may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// 1 GiB, or the least that a mount takes.
    Usual,
    /// So much, since the user asked for that.
    Asked(Size),
    /// So much, since the group of this process has that limit.
    Group(Size),
}

impl Limit {
    /// What was asked for; otherwise the limit of the group, or the usual one.
    pub(crate) fn from_option(asked: Option<Size>) -> Limit {
        match (asked, memory_limit()) {
            (Some(asked), _) => Limit::Asked(asked),
            (None, Some(group)) => Limit::Group(Size(group)),
            (None, None) => Limit::Usual,
        }
    }

    /// The bytes that a mount may take.
    fn bytes(self) -> u64 {
        match self {
            Limit::Asked(size) => size.0,
            Limit::Group(size) => (size.0 / GROUP_SHARE.1 * GROUP_SHARE.0).min(USUAL_BYTES),
            Limit::Usual => USUAL_BYTES,
        }
    }

    /// Bytes for the blocks of a mounted replica.
    pub(crate) fn cache_bytes(self) -> usize {
        usize::try_from(self.bytes() / MAP_SHARE).unwrap_or(usize::MAX)
    }

    /// The options of a volume within the limit.
    pub(crate) fn apply_to_volume(self, options: VolumeOptions) -> VolumeOptions {
        let pages = self.bytes() / MAP_SHARE / VolumeOptions::MAP_PAGE_BYTES;
        VolumeOptions { map_pages: options.map_pages.min(pages as usize), ..options }
    }

    /// The options of a mount on `stack` within the limit, and the bytes that requests may take. A limit of the group that is too
    /// small is told of, and the mount takes as little as it can.
    ///
    /// # Errors
    /// [`CliError::MemoryLimitTooSmall`] if less was asked for than a mount takes.
    pub(crate) fn apply(self, stack: &Stack, options: MountOptions) -> Result<(MountOptions, u64), CliError> {
        let bytes = self.bytes();
        // With moments, what is under way when one is taken is written before it, too.
        let marks = stack.storage().marks().map(Marks::room);
        let of_moment = marks.map_or(u64::MAX, |room| (room / 4).max(REQUEST_BYTES_MIN));
        let Some(storage) = stack.memory_bound() else {
            return Ok((options, REQUEST_BYTES_UNDER_WAY_MAX.min(of_moment)));
        };
        let blocks = stack.storage().blocks();
        let requests = self.request_bytes().min(of_moment);
        let (least, needed) = match self.fit_filesystem(options, blocks, (storage, requests)) {
            Ok(options) => return Ok((options, requests)),
            Err(least) => least,
        };
        match self {
            Limit::Asked(asked) => return Err(CliError::MemoryLimitTooSmall { asked, needed }),
            Limit::Group(_) => {
                let message = format!(
                    "the memory of this group of processes has a limit of which a mount may take {}, and it takes {needed} \
                     at least: raise the limit, or the system may end the server",
                    Size(bytes)
                );
                LogLine::new(Level::WARN, "memory_limit_too_small", message)
                    .with("bytes", bytes)
                    .with("needed_bytes", needed.0)
                    .print();
            }
            Limit::Usual => {}
        }
        // That much is enough.
        Ok((options.within_memory(blocks, least).unwrap_or(options), requests))
    }

    /// Bytes that requests may take.
    fn request_bytes(self) -> u64 {
        (self.bytes() / REQUESTS_SHARE).clamp(REQUEST_BYTES_MIN, REQUEST_BYTES_UNDER_WAY_MAX)
    }

    /// Whether a mount of a filesystem of so many blocks, on a storage that takes so many bytes, would be refused: what was asked for,
    /// and what it takes at least.
    pub(crate) fn refuses(self, blocks: u64, storage: u64) -> Option<(Size, Size)> {
        let Limit::Asked(asked) = self else { return None };
        let beside = (storage, self.request_bytes());
        let (_, needed) = self.fit_filesystem(MountOptions::default(), blocks, beside).err()?;
        Some((asked, needed))
    }

    /// The options of a filesystem of so many blocks within the limit, beside a storage and requests that take so many bytes. If they do
    /// not fit, the bytes that the filesystem takes at least, and the least limit that allows them.
    fn fit_filesystem(
        self,
        options: MountOptions,
        blocks: u64,
        (storage, requests): (u64, u64),
    ) -> Result<MountOptions, (u64, Size)> {
        let others = PROGRAM_BYTES + storage + REQUEST_COPIES * requests;
        options
            .within_memory(blocks, self.bytes().saturating_sub(others))
            .map_err(|least| (least, Size((least + others).next_multiple_of(1 << 20))))
    }
}

/// The resident set of this process in bytes, by the kernel's second number in `/proc/self/statm`; 0 where it does not
/// tell.
pub(crate) fn resident() -> u64 {
    let told = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = told.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

/// Gives back to the system what is not needed any more, as long as the runtime runs.
pub(crate) async fn return_memory_periodically(handle: Handle) {
    for turn in 1_u64.. {
        handle.sleep(GIVEN_BACK).await;
        release_unused(turn.is_multiple_of(HEAP_EVERY));
    }
}
