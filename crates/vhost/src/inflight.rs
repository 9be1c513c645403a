//! Which requests of a guest are under way: memory that the frontend keeps while one server is killed and the next one
//! started (N5). Its layout is the protocol's, for split rings.
//!
//! A request is marked before anything of it is done. The order of the steps of an answer makes sure that a kill
//! between any two leaves either the mark, and no answer, or enough to see that there is an answer.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, ftruncate, memfd_create};
use vm_memory::{AtomicAccess, Bytes as _, FileOffset, MmapRegion, VolatileMemory as _};

use crate::config::{QUEUE_SIZE_MAX, QUEUES_MAX};
use crate::error::VhostError;
use crate::memory::is_in_file;

/// Bytes before the first entry of a queue: features, version, entries, the entry that was answered last, answers.
const HEADER: usize = 16;
const VERSION: usize = 8;
const ENTRIES: usize = 10;
const LAST: usize = 12;
const ANSWERS: usize = 14;
/// Bytes of an entry: whether its request is under way, the entry that was answered before it, its turn.
const ENTRY: usize = 16;
const NEXT: usize = 6;
const TURN: usize = 8;
/// The version of this layout; a new region has 0.
const CURRENT: u16 = 1;
/// Queues begin at multiples of so many bytes.
const ALIGNMENT: usize = 64;

/// Bytes behind all queues: whether the server that used them last has ended, with everything durable.
const TRAILER: usize = ALIGNMENT;

/// The memory of all queues.
pub(crate) struct InflightRegion {
    mapping: MmapRegion,
    /// Device and inode of its file, and where in it the region is.
    file: (u64, u64, u64),
    queues: u16,
    size: u16,
}

fn queue_bytes(size: u16) -> usize {
    (HEADER + ENTRY * usize::from(size)).next_multiple_of(ALIGNMENT)
}

/// Bytes for so many queues of a size, if there may be so many.
fn region_bytes(queues: u16, size: u16) -> Result<usize, VhostError> {
    match queues > QUEUES_MAX || size > QUEUE_SIZE_MAX {
        true => Err(VhostError::Queues { queue: queues.saturating_sub(1).into(), size: size.into() }),
        false => Ok(queue_bytes(size) * usize::from(queues) + TRAILER),
    }
}

/// New memory for so many queues of a size, and its bytes. It can become neither shorter nor longer.
///
/// # Errors
/// [`VhostError::Queues`] for more than there may be, [`VhostError::Connection`] where the system has none.
pub(crate) fn create(queues: u16, size: u16) -> Result<(File, u64), VhostError> {
    let bytes = region_bytes(queues, size)? as u64;
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let create = || {
        let memory = memfd_create("weir-inflight", flags)?;
        ftruncate(&memory, bytes)?;
        fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(memory)
    };
    let memory = create().map_err(|errno: rustix::io::Errno| VhostError::Connection(errno.into()))?;
    Ok((File::from(memory), bytes))
}

impl InflightRegion {
    /// Maps such memory, which an earlier server may have made.
    ///
    /// # Errors
    /// [`VhostError::Inflight`] for memory that is not of that kind.
    pub(crate) fn map(file: File, offset: u64, queues: u16, size: u16) -> Result<InflightRegion, VhostError> {
        let bytes = region_bytes(queues, size)?;
        // Memory that became shorter while it is mapped would end the server.
        if !fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK)) {
            return Err(VhostError::Inflight("it is not sealed"));
        }
        if !is_in_file(&file, offset, bytes as u64) {
            return Err(VhostError::Inflight("it is shorter than its queues"));
        }
        let found = file.metadata()?;
        let place = (found.dev(), found.ino(), offset);
        let mapping = MmapRegion::from_file(FileOffset::new(file, offset), bytes)
            .map_err(|_| VhostError::Inflight("it cannot be mapped"))?;
        Ok(InflightRegion { mapping, file: place, queues, size })
    }

    /// The part of one queue of a size.
    ///
    /// # Errors
    /// [`VhostError::Inflight`] for a queue that it has not, a longer one, or one with a newer layout.
    pub(crate) fn queue(self: &Rc<Self>, nth: usize, size: u16) -> Result<InflightQueue, VhostError> {
        if nth >= self.queues.into() || size > self.size {
            return Err(VhostError::Inflight("it has no place for this ring"));
        }
        let start = nth * queue_bytes(self.size);
        let queue = InflightQueue { start, region: Rc::clone(self), next_turn: 1 };
        match queue.load::<u16>(VERSION) > CURRENT {
            true => Err(VhostError::Inflight("it has a newer layout")),
            false => Ok(queue),
        }
    }

    /// Whether both are the same memory.
    pub(crate) fn is_same(&self, other: &InflightRegion) -> bool {
        self.file == other.file
    }

    /// Whether a server has used it and was killed: one that ended has left a mark. The mark is taken away.
    pub(crate) fn take_kill(self: &Rc<Self>) -> bool {
        let queues = (0..self.queues).filter_map(|nth| self.queue(nth.into(), 0).ok());
        let is_used = queues.into_iter().any(|queue| queue.load::<u16>(VERSION) == CURRENT);
        let memory = self.mapping.as_volatile_slice();
        let ended: u8 = memory.load(self.trailer(), Ordering::Acquire).unwrap_or_default();
        self.store_ended(0);
        is_used && ended != 1
    }

    /// Notes that the server ends, with everything durable that it has answered.
    pub(crate) fn note_end(&self) {
        self.store_ended(1);
    }

    fn trailer(&self) -> usize {
        queue_bytes(self.size) * usize::from(self.queues)
    }

    fn store_ended(&self, ended: u8) {
        let stored = self.mapping.as_volatile_slice().store(ended, self.trailer(), Ordering::Release);
        debug_assert!(stored.is_ok(), "the trailer is inside");
    }
}

/// The part of one queue.
pub(crate) struct InflightQueue {
    region: Rc<InflightRegion>,
    start: usize,
    next_turn: u64,
}

impl InflightQueue {
    fn load<T: AtomicAccess + Default>(&self, offset: usize) -> T {
        let memory = self.region.mapping.as_volatile_slice();
        // Every offset is inside, and a multiple of its type's size.
        memory.load(self.start + offset, Ordering::Acquire).unwrap_or_default()
    }

    fn store<T: AtomicAccess>(&self, offset: usize, value: T) {
        let memory = self.region.mapping.as_volatile_slice();
        let stored = memory.store(value, self.start + offset, Ordering::Release);
        debug_assert!(stored.is_ok(), "the offset is inside and aligned");
    }

    fn entry(head: u16) -> usize {
        HEADER + ENTRY * usize::from(head)
    }

    /// The requests that are under way, of a ring with so many answers, in the order in which the guest gave them.
    pub(crate) fn recover(&mut self, answers: u16) -> Vec<u16> {
        if self.load::<u16>(VERSION) != CURRENT {
            self.store(ENTRIES, self.region.size);
            self.store(VERSION, CURRENT);
            self.store(ANSWERS, answers);
        }
        // A server that was killed between an answer and the end of its mark.
        let unmarked = answers.wrapping_sub(self.load(ANSWERS));
        let mut head = self.load::<u16>(LAST);
        for _ in 0..unmarked.min(self.region.size) {
            if head >= self.region.size {
                break;
            }
            self.store(Self::entry(head), 0_u8);
            head = self.load(Self::entry(head) + NEXT);
        }
        self.store(ANSWERS, answers);
        let is_under_way = |head: &u16| self.load::<u8>(Self::entry(*head)) == 1;
        let mut heads: Vec<u16> = (0..self.region.size).filter(is_under_way).collect();
        heads.sort_by_key(|head| self.load::<u64>(Self::entry(*head) + TURN));
        let last = heads.last().map_or(0_u64, |head| self.load(Self::entry(*head) + TURN));
        self.next_turn = last.saturating_add(1);
        heads
    }

    /// Marks a request as under way.
    pub(crate) fn mark(&mut self, head: u16) {
        self.store(Self::entry(head) + TURN, self.next_turn);
        self.next_turn = self.next_turn.saturating_add(1);
        self.store(Self::entry(head), 1_u8);
    }

    /// Notes that the next answer in the ring is this one's.
    pub(crate) fn prepare_answer(&self, head: u16) {
        self.store(Self::entry(head) + NEXT, self.load::<u16>(LAST));
        self.store(LAST, head);
    }

    /// Ends the mark of a request, whose answer is in the ring, which then has so many.
    pub(crate) fn unmark(&self, head: u16, answers: u16) {
        self.store(Self::entry(head), 0_u8);
        self.store(ANSWERS, answers);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    /// The region of one queue as the next server finds it.
    fn reopened(file: &File) -> InflightQueue {
        let region = InflightRegion::map(file.try_clone().unwrap(), 0, 1, 8).unwrap();
        Rc::new(region).queue(0, 8).unwrap()
    }

    /// A kill between any two steps of an answer leaves the mark or shows the answer.
    #[test]
    fn each_request_is_under_way_or_answered_whenever_the_server_is_killed() {
        for killed_after in 0..=3 {
            let (file, _) = create(1, 8).unwrap();
            let mut queue = reopened(&file);
            assert!(queue.recover(7).is_empty());
            for head in [5, 2, 3] {
                queue.mark(head);
            }
            let mut answers = 7;
            for (nth, step) in ["prepare", "answer", "unmark"].into_iter().enumerate() {
                match step {
                    _ if nth >= killed_after => break,
                    "prepare" => queue.prepare_answer(2),
                    "answer" => answers = 8,
                    _ => queue.unmark(2, 8),
                }
            }
            let left = reopened(&file).recover(answers);
            let answered = killed_after >= 2;
            assert_eq!(
                left,
                if answered { vec![5, 3] } else { vec![5, 2, 3] },
                "killed after {killed_after}"
            );
            assert_eq!(reopened(&file).recover(answers), left, "to look changes nothing");
        }
    }

    #[test]
    fn memory_of_another_kind_is_refused() {
        let (file, bytes) = create(2, 128).unwrap();
        assert_eq!(bytes, 2 * (16 + 128 * 16_u64).next_multiple_of(64) + 64);
        let map = |file: &File, queues, size| InflightRegion::map(file.try_clone().unwrap(), 0, queues, size);
        assert!(map(&file, 2, 128).is_ok());
        assert!(matches!(map(&file, 3, 128), Err(VhostError::Inflight(_))));
        assert!(matches!(map(&file, 17, 128), Err(VhostError::Queues { .. })));
        let plain = tempfile::tempfile().unwrap();
        plain.set_len(bytes).unwrap();
        assert!(matches!(map(&plain, 2, 128), Err(VhostError::Inflight("it is not sealed"))));
        // Nonsense in it, as deep as it goes.
        let queue = reopened(&file);
        (0..16 + 8 * 16).for_each(|offset| queue.store(offset, 0xFF_u8));
        let region = Rc::new(map(&file, 1, 8).unwrap());
        assert!(matches!(region.queue(0, 8), Err(VhostError::Inflight("it has a newer layout"))));
        queue.store(VERSION, CURRENT);
        assert!(reopened(&file).recover(3).iter().all(|head| *head < 8));
    }
}
