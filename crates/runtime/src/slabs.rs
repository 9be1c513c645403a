//! The memory of buffers: pages out of *slabs* of 2 MiB, longer pieces by themselves, all of it straight from the
//! system.
//!
//! A general allocator spends two pages on one that is aligned, and cannot give back what lies between others. Here a
//! page takes a page; what is free is used again before anything new is taken, so that never more is held than was in
//! use at one time; and [`release_unused`] returns what was not needed for a while, whatever lies beside it.
//!
//! Each thread uses one of a fixed number of pools. A thread that frees a piece returns it to the pool it came from.

#![allow(unsafe_code)]

use std::alloc::{Layout, handle_alloc_error};
use std::collections::{BTreeMap, BTreeSet};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of a page, to which every piece is aligned.
pub(crate) const PAGE: usize = 4096;
const SLAB_PAGES: usize = 512;
const SLAB: usize = SLAB_PAGES * PAGE;
const WORDS: usize = SLAB_PAGES / 64;
/// Longer pieces come in 2, 4, ... 512 pages; what is longer still is never kept.
const CLASSES: usize = 10;
const POOLS: usize = 16;
/// Bytes of longer pieces that a pool keeps while they are free.
const LONG_MAX: usize = 32 << 20;
/// System calls and bytes that one [`release_unused`] takes for each pool, so that it takes a few milliseconds at most.
const CALLS_MAX: usize = 2048;
const BYTES_MAX: usize = 64 << 20;

static ALL: [Mutex<Pool>; POOLS] = [const { Mutex::new(Pool::new()) }; POOLS];
static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static MINE: usize = THREADS.fetch_add(1, Ordering::Relaxed) % POOLS;
}

fn pool(number: usize) -> MutexGuard<'static, Pool> {
    ALL[number].lock().unwrap_or_else(PoisonError::into_inner)
}

/// Page-aligned memory that belongs to one buffer.
pub(crate) struct Piece {
    start: NonNull<u8>,
    bytes: usize,
    pool: u8,
}

// SAFETY: a piece is the only way to its memory, as a box is, and the pool that it returns to is behind a lock.
unsafe impl Send for Piece {}
// SAFETY: a shared piece only gives shared slices.
unsafe impl Sync for Piece {}

impl Piece {
    /// Zeroed memory of `bytes` bytes.
    pub(crate) fn zeroed(bytes: usize) -> Piece {
        let (mut piece, is_fresh) = Piece::take(bytes);
        if !is_fresh {
            piece.bytes_mut().fill(0);
        }
        piece
    }

    /// Memory of `bytes` bytes with whatever was in it.
    pub(crate) fn unfilled(bytes: usize) -> Piece {
        Piece::take(bytes).0
    }

    /// Memory with these bytes.
    pub(crate) fn copy_of(bytes: &[u8]) -> Piece {
        let mut piece = Piece::unfilled(bytes.len());
        piece.bytes_mut().copy_from_slice(bytes);
        piece
    }

    /// Memory with whatever was in it, and whether it is zero.
    fn take(bytes: usize) -> (Piece, bool) {
        // A thread that is ending has no number any more.
        let number = MINE.try_with(|mine| *mine).unwrap_or(0);
        let (address, is_fresh) = pool(number).take(bytes);
        // What the system gives is zero, and never at address zero.
        let Some(start) = NonNull::new(address as *mut u8) else { out_of_memory(bytes) };
        (Piece { start, bytes, pool: number as u8 }, is_fresh)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the memory is mapped, holds bytes that are set, and belongs to this piece until it is dropped.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and no other code has a way to it.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        pool(self.pool.into()).put(self.start.as_ptr() as usize, self.bytes);
    }
}

/// Returns memory that was free since the last call to the system, for all threads, a bounded part per call. Call it
/// periodically. With `heap`, the free memory of the heap is returned too, which takes longer.
pub fn release_unused(heap: bool) {
    for number in 0..POOLS {
        pool(number).release_unused();
    }
    #[cfg(target_env = "gnu")]
    if heap && !cfg!(miri) {
        // SAFETY: it takes a number, and the allocator's own locks.
        unsafe { libc::malloc_trim(0) };
    }
}

/// Allocations of more bytes may come from the system whatever the heap is told.
const MMAP_THRESHOLD_MAX: u32 = 32 << 20;

/// Has the heap keep to one arena for all threads, and give back what is free at its end from 1 MiB on. Allocations of
/// `mmap_threshold` bytes or more (32 MiB at most) come from the system each time, with a page fault for each page. For a server, at its start.
pub fn keep_heap_small(mmap_threshold: u32) {
    set_up_heap(1 << 20, mmap_threshold);
}

/// Has the heap keep to one arena for all threads, and keep all that is freed: buffers of less than 32 MiB that come and
/// go take page faults once and not each time. It stays as large as it was at most. For a program that moves much data
/// and then ends, at its start.
pub fn keep_freed_memory() {
    set_up_heap(i32::MAX, MMAP_THRESHOLD_MAX);
}

fn set_up_heap(trim_threshold: i32, mmap_threshold: u32) {
    #[cfg(target_env = "gnu")]
    // SAFETY: they take numbers, and the allocator's own locks.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_TRIM_THRESHOLD, trim_threshold);
        libc::mallopt(libc::M_MMAP_THRESHOLD, mmap_threshold.min(MMAP_THRESHOLD_MAX) as i32);
    }
}

/// The pages of a slab, each a bit.
type Bits = [u64; WORDS];

fn first(bits: &Bits) -> Option<usize> {
    let word = bits.iter().position(|word| *word != 0)?;
    Some(word * 64 + bits[word].trailing_zeros() as usize)
}

fn flip(bits: &mut Bits, page: usize) {
    bits[page / 64] ^= 1 << (page % 64);
}

fn is_set(bits: &Bits, page: usize) -> bool {
    bits[page / 64] >> (page % 64) & 1 == 1
}

/// 512 pages that follow each other.
struct Slab {
    /// Pages that are free.
    free: Bits,
    free_count: usize,
    /// Those of them that have memory.
    idle: Bits,
    idle_count: usize,
}

/// What one thread, or a few, take their memory from. Slabs are named by their addresses.
struct Pool {
    slabs: BTreeMap<usize, Slab>,
    /// Slabs with pages that are free, and with such that have memory.
    with_free: BTreeSet<usize>,
    with_idle: BTreeSet<usize>,
    /// Pages that are free and have memory: now, and at least since they were last given back.
    idle: usize,
    idle_least: usize,
    /// Longer pieces that are free, by their class; and the fewest of each since then.
    long: [Vec<usize>; CLASSES],
    long_least: [usize; CLASSES],
    /// Bytes of all of them.
    long_bytes: usize,
}

/// Which class of longer pieces it takes, if one has so much.
fn class_of(bytes: usize) -> Option<usize> {
    let class = bytes.div_ceil(PAGE).next_power_of_two().trailing_zeros() as usize;
    (class < CLASSES).then_some(class)
}

impl Pool {
    const fn new() -> Pool {
        Pool {
            slabs: BTreeMap::new(),
            with_free: BTreeSet::new(),
            with_idle: BTreeSet::new(),
            idle: 0,
            idle_least: 0,
            long: [const { Vec::new() }; CLASSES],
            long_least: [0; CLASSES],
            long_bytes: 0,
        }
    }

    /// The address of a piece, and whether it is fresh from the system, and so zero.
    fn take(&mut self, bytes: usize) -> (usize, bool) {
        if bytes <= PAGE {
            return self.take_page();
        }
        let Some(class) = class_of(bytes) else { return (map(bytes), true) };
        let Some(address) = self.long[class].pop() else { return (map(PAGE << class), true) };
        self.long_least[class] = self.long_least[class].min(self.long[class].len());
        self.long_bytes -= PAGE << class;
        (address, false)
    }

    fn take_page(&mut self) -> (usize, bool) {
        // What has memory first; and of that the lowest, so that the others become free as a whole.
        let (start, has_memory) = match self.with_idle.first() {
            Some(start) => (*start, true),
            None => (self.with_free.first().copied().unwrap_or_else(|| self.grow()), false),
        };
        let Some(slab) = self.slabs.get_mut(&start) else { out_of_memory(PAGE) };
        let Some(page) = first(if has_memory { &slab.idle } else { &slab.free }) else { out_of_memory(PAGE) };
        flip(&mut slab.free, page);
        slab.free_count -= 1;
        if slab.free_count == 0 {
            self.with_free.remove(&start);
        }
        if has_memory {
            flip(&mut slab.idle, page);
            slab.idle_count -= 1;
            if slab.idle_count == 0 {
                self.with_idle.remove(&start);
            }
            self.idle -= 1;
            self.idle_least = self.idle_least.min(self.idle);
        }
        (start + page * PAGE, !has_memory)
    }

    /// A new slab.
    fn grow(&mut self) -> usize {
        let start = map_aligned();
        let slab = Slab { free: [u64::MAX; WORDS], free_count: SLAB_PAGES, idle: [0; WORDS], idle_count: 0 };
        self.slabs.insert(start, slab);
        self.with_free.insert(start);
        start
    }

    fn put(&mut self, address: usize, bytes: usize) {
        if bytes > PAGE {
            return self.put_long(address, bytes);
        }
        let start = address / SLAB * SLAB;
        let Some(slab) = self.slabs.get_mut(&start) else { return };
        let page = (address - start) / PAGE;
        flip(&mut slab.free, page);
        flip(&mut slab.idle, page);
        slab.free_count += 1;
        slab.idle_count += 1;
        self.idle += 1;
        if slab.free_count == 1 {
            self.with_free.insert(start);
        }
        if slab.idle_count == 1 {
            self.with_idle.insert(start);
        }
    }

    fn put_long(&mut self, address: usize, bytes: usize) {
        match class_of(bytes) {
            Some(class) if self.long_bytes + (PAGE << class) <= LONG_MAX => {
                self.long_bytes += PAGE << class;
                self.long[class].push(address);
            }
            Some(class) => unmap(address, PAGE << class),
            None => unmap(address, bytes.next_multiple_of(PAGE)),
        }
    }

    fn release_unused(&mut self) {
        for class in 1..CLASSES {
            let kept = &mut self.long[class];
            let rest = kept.len() - self.long_least[class];
            self.long_bytes -= self.long_least[class] * (PAGE << class);
            kept.drain(rest..).for_each(|address| unmap(address, PAGE << class));
            self.long_least[class] = rest;
        }
        let (mut left, mut calls) = (self.idle_least.min(BYTES_MAX / PAGE), CALLS_MAX);
        // The highest first, as the lowest are used first. Slabs that are free as a whole are no use to anybody.
        let slabs: Vec<usize> = self.with_idle.iter().rev().copied().collect();
        for start in slabs {
            if left == 0 || calls == 0 {
                break;
            }
            let Some(slab) = self.slabs.get_mut(&start) else { continue };
            let before = slab.idle_count;
            if slab.free_count == SLAB_PAGES && before <= left {
                unmap(start, SLAB);
                self.slabs.remove(&start);
                self.with_free.remove(&start);
                self.with_idle.remove(&start);
                (left, calls, self.idle) = (left - before, calls - 1, self.idle - before);
                continue;
            }
            calls -= slab.release_unused(start, left, calls);
            let gone = before - slab.idle_count;
            (left, self.idle) = (left - gone, self.idle - gone);
            if slab.idle_count == 0 {
                self.with_idle.remove(&start);
            }
        }
        self.idle_least = self.idle;
    }

    /// Bytes of pages, in use or idle, and of longer pieces that are kept.
    #[cfg(test)]
    fn held(&self) -> usize {
        let pages: usize =
            self.slabs.values().map(|slab| SLAB_PAGES - slab.free_count + slab.idle_count).sum();
        pages * PAGE + self.long_bytes
    }
}

impl Slab {
    /// Takes the memory from `most` idle pages at most, in `calls` system calls at most; how many there were.
    fn release_unused(&mut self, start: usize, most: usize, calls: usize) -> usize {
        let (mut left, mut called) = (most, 0);
        while left > 0 && called < calls {
            let Some(from) = first(&self.idle) else { break };
            let end = (from..SLAB_PAGES.min(from + left)).find(|page| !is_set(&self.idle, *page));
            let end = end.unwrap_or(SLAB_PAGES.min(from + left));
            forget(start + from * PAGE, (end - from) * PAGE);
            (from..end).for_each(|page| flip(&mut self.idle, page));
            self.idle_count -= end - from;
            left -= end - from;
            called += 1;
        }
        called
    }
}

fn out_of_memory(bytes: usize) -> ! {
    handle_alloc_error(Layout::from_size_align(bytes, PAGE).unwrap_or(Layout::new::<u8>()))
}

#[cfg(miri)]
use in_miri::{forget, map, map_aligned, unmap};
#[cfg(not(miri))]
use of_system::{forget, map, map_aligned, unmap};

#[cfg(not(miri))]
mod of_system {
    use std::ptr::null_mut;

    use rustix::mm::{Advice, MapFlags, ProtFlags};

    use super::{SLAB, out_of_memory};

    /// Zeroed memory from the system, rounded up to whole pages.
    pub(super) fn map(bytes: usize) -> usize {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: where it comes to lie is the system's choice, so it covers nothing that is in use.
        let mapped = unsafe { rustix::mm::mmap_anonymous(null_mut(), bytes, protection, flags) };
        mapped.map_or_else(|_| out_of_memory(bytes), |start| start as usize)
    }

    /// A slab's memory, at a multiple of its length.
    pub(super) fn map_aligned() -> usize {
        let mapped = map(2 * SLAB);
        let start = mapped.next_multiple_of(SLAB);
        let behind = mapped + SLAB - start;
        if start > mapped {
            unmap(mapped, start - mapped);
        }
        if behind > 0 {
            unmap(start + SLAB, behind);
        }
        // A page of 2 MiB would have memory where nothing was written. Where there are no such pages, it need not be told.
        // SAFETY: it is the memory that was just mapped, and its content does not change.
        let _ = unsafe { rustix::mm::madvise(start as *mut _, SLAB, Advice::LinuxNoHugepage) };
        start
    }

    /// Returns pages, addresses and all.
    pub(super) fn unmap(start: usize, bytes: usize) {
        // SAFETY: it was mapped here, and no piece is in it: it is free, as a whole. Should the system refuse, it stays mapped,
        // and is not used.
        let _ = unsafe { rustix::mm::munmap(start as *mut _, bytes) };
    }

    /// Returns the memory of pages, which read as zero when they are used again.
    pub(super) fn forget(start: usize, bytes: usize) {
        // The system takes whole pages of its own, which may be larger than ours: the rest of them may be in use.
        let system = rustix::param::page_size();
        let whole = start.is_multiple_of(system) && bytes.is_multiple_of(system);
        // SAFETY: the pages belong to a slab, and no piece has any of them.
        if !whole || unsafe { rustix::mm::madvise(start as *mut _, bytes, Advice::LinuxDontNeed) }.is_err() {
            // They are to be zero: locked memory cannot be given back.
            // SAFETY: as above; they are mapped, to be written.
            unsafe { std::ptr::write_bytes(start as *mut u8, 0, bytes) };
        }
    }
}

/// Miri knows no part of a mapping that is returned: there the memory is the allocator's, and what is done with it is
/// looked at all the same.
#[cfg(miri)]
mod in_miri {
    use std::alloc::{Layout, alloc_zeroed, dealloc};

    use super::{PAGE, SLAB, out_of_memory};

    fn layout(bytes: usize) -> Layout {
        let bytes = bytes.next_multiple_of(PAGE);
        let align = if bytes == SLAB { SLAB } else { PAGE };
        Layout::from_size_align(bytes, align).unwrap_or_else(|_| out_of_memory(bytes))
    }

    pub(super) fn map(bytes: usize) -> usize {
        // SAFETY: it is some memory: no piece is empty.
        let start = unsafe { alloc_zeroed(layout(bytes.max(1))) };
        if start.is_null() { out_of_memory(bytes) } else { start.expose_provenance() }
    }

    pub(super) fn map_aligned() -> usize {
        map(SLAB)
    }

    pub(super) fn unmap(start: usize, bytes: usize) {
        // SAFETY: it was made here, with this layout, and no piece is in it.
        unsafe { dealloc(std::ptr::with_exposed_provenance_mut(start), layout(bytes)) };
    }

    pub(super) fn forget(start: usize, bytes: usize) {
        // SAFETY: the pages belong to a slab, and no piece has any of them.
        unsafe { std::ptr::write_bytes(std::ptr::with_exposed_provenance_mut::<u8>(start), 0, bytes) };
    }
}

#[cfg(test)]
mod tests;
