//! Queues of FUSE over io_uring, as a thread of its own serves them: to measure what they would gain. A mount does not use
//! them ([results](../../../../results/README.md#trips)).
//!
//! The kernel has a queue for each possible processor, and puts a request into that of the caller's. A *place* of a queue is
//! memory for one request and its answer: the server registers it, the kernel fills it and says so by a completion, and the
//! answer goes back in the same memory by a command that waits for the next request at once. The layout is that of
//! `include/uapi/linux/fuse.h`, version 7.42 (Linux 6.14).

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use io_uring::squeue::Entry128;
use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode};

use super::CLOSE_PATIENCE;
use crate::Buffer;

/// Commands.
const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;

/// Registering takes two pieces of memory: the head, and the rest.
const PIECES: u32 = 2;
/// Where an entry of the submission queue has their number (`struct io_uring_sqe`, `len`).
const PIECES_AT: usize = 24;

/// The head of a place: the header of the request, later of its answer; what the operation begins with; and what the
/// kernel and the server say of it.
#[repr(C)]
struct Head {
    header: [u8; 128],
    operation: [u8; 128],
    flags: u64,
    commit: u64,
    rest_bytes: u32,
    padding: u32,
    reserved: u64,
}

/// Memory for a request and its answer.
struct Place {
    queue: u16,
    head: Box<Head>,
    rest: Buffer,
    pieces: Box<[libc::iovec; PIECES as usize]>,
    /// The kernel may write to it.
    is_lent: bool,
}

impl Place {
    fn new(queue: u16, rest_bytes: usize) -> Place {
        let mut head = Box::new(Head {
            header: [0; 128],
            operation: [0; 128],
            flags: 0,
            commit: 0,
            rest_bytes: 0,
            padding: 0,
            reserved: 0,
        });
        let mut rest = Buffer::new(rest_bytes);
        let pieces = [
            libc::iovec { iov_base: std::ptr::from_mut(&mut *head).cast(), iov_len: size_of::<Head>() },
            libc::iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest_bytes },
        ];
        Place { queue, head, rest, pieces: Box::new(pieces), is_lent: false }
    }

    fn command(&self, device: &File, command: u32) -> opcode::UringCmd80 {
        let mut words = [0; 80];
        words[8..16].copy_from_slice(&self.head.commit.to_ne_bytes());
        words[16..18].copy_from_slice(&self.queue.to_ne_bytes());
        opcode::UringCmd80::new(Fd(device.as_raw_fd()), command).cmd(words)
    }
}

/// A request that came in: its header, what its operation begins with, and the rest.
#[derive(Clone, Copy, Debug)]
pub struct FuseRequest<'a> {
    /// 40 bytes.
    pub header: &'a [u8],
    /// At most 128 bytes; none of an operation that begins with a name.
    pub operation: &'a [u8],
    /// Names and data.
    pub rest: &'a [u8],
}

/// Some of the kernel's queues, on a ring of the thread that made it.
pub struct FuseQueues {
    ring: IoUring<Entry128, cqueue::Entry>,
    device: Arc<File>,
    places: Vec<Place>,
    /// Places with requests that the caller has not seen.
    arrived: Vec<usize>,
}

impl std::fmt::Debug for FuseQueues {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("FuseQueues").field("places", &self.places.len()).finish_non_exhaustive()
    }
}

impl FuseQueues {
    /// Registers places for `queues` of a connection that has agreed to FUSE over io_uring: `depth` for each, whose
    /// requests and answers have at most `rest_bytes` behind what the operation begins with. The kernel sends requests once all
    /// of its queues, one a possible processor, have a place.
    ///
    /// # Errors
    /// When the kernel refuses the ring. What it says of a place, [`poll`](Self::poll) tells.
    pub fn register(
        device: &Arc<File>,
        queues: Range<u16>,
        depth: usize,
        rest_bytes: usize,
    ) -> io::Result<FuseQueues> {
        let places: Vec<_> =
            queues.flat_map(|queue| (0..depth).map(move |_| Place::new(queue, rest_bytes))).collect();
        let length = u32::try_from(places.len().max(1)).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut builder = IoUring::builder();
        let builder = builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
        let ring = builder.dontfork().build(length)?;
        let count = places.len();
        let mut queues = FuseQueues { ring, device: device.clone(), places, arrived: Vec::new() };
        (0..count).try_for_each(|place| queues.lend(place, REGISTER))?;
        queues.ring.submit()?;
        Ok(queues)
    }

    /// Gives a place to the kernel.
    fn lend(&mut self, place: usize, command: u32) -> io::Result<()> {
        let Some(lent) = self.places.get_mut(place).filter(|place| !place.is_lent) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let mut entry = lent.command(&self.device, command);
        if command == REGISTER {
            entry = entry.addr(Some(lent.pieces.as_ptr() as u64));
        }
        let mut entry = entry.build().user_data(place as u64);
        if command == REGISTER {
            // SAFETY: an entry is the kernel's structure of 128 bytes, in which the number of pieces is a word of its own;
            // the builder has no name for it.
            unsafe { std::ptr::from_mut(&mut entry).byte_add(PIECES_AT).cast::<u32>().write(PIECES) };
        }
        lent.is_lent = true;
        // SAFETY: the entry, or the one that registered the place, points to the place's head, rest and pieces, which do not
        // move when the place does. `self` owns them, and touches none while the place is lent; `drop` leaks what is not
        // given back.
        unsafe { self.ring.submission().push(&entry) }.map_err(io::Error::other)
    }

    /// Takes in the completions that are there: whether there were any.
    fn collect(&mut self) -> io::Result<bool> {
        let mut failed = None;
        for completion in self.ring.completion() {
            let place = completion.user_data() as usize;
            let Some(given) = self.places.get_mut(place) else { continue };
            given.is_lent = false;
            match completion.result() {
                0.. => self.arrived.push(place),
                code => failed = Some(io::Error::from_raw_os_error(-code)),
            }
        }
        failed.map_or(Ok(!self.arrived.is_empty()), Err)
    }

    /// Sends the answers, and takes in the requests that are there: whether there are any.
    ///
    /// # Errors
    /// What the kernel says: that a place cannot be registered, or, as an error of kind NotConnected, that it was unmounted.
    pub fn poll(&mut self) -> io::Result<bool> {
        let submission = self.ring.submission();
        let has_work = !submission.is_empty() || submission.taskrun();
        drop(submission);
        if has_work {
            self.enter(0, None)?;
        }
        self.collect()
    }

    /// Sends the answers, and sleeps until there are requests, for `limit` at most.
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    pub fn sleep(&mut self, limit: Option<Duration>) -> io::Result<()> {
        self.enter(1, limit)?;
        self.collect().map(drop)
    }

    fn enter(&mut self, wanted: usize, limit: Option<Duration>) -> io::Result<()> {
        let submitter = self.ring.submitter();
        let entered = match limit.map(Timespec::from) {
            Some(limit) => submitter.submit_with_args(wanted, &SubmitArgs::new().timespec(&limit)),
            None => submitter.submit_and_wait(wanted),
        };
        match entered {
            Err(error) if !matches!(error.raw_os_error(), Some(libc::EINTR | libc::ETIME)) => Err(error),
            _ => Ok(()),
        }
    }

    /// A place with a request that was not told yet.
    pub fn next_place(&mut self) -> Option<usize> {
        self.arrived.pop()
    }

    /// The request in a place; none while the kernel has it.
    #[must_use]
    pub fn request(&self, place: usize) -> Option<FuseRequest<'_>> {
        let place = self.places.get(place).filter(|place| !place.is_lent)?;
        let (header, _) = place.head.header.split_at(40);
        let bytes = u32::from_ne_bytes(header[..4].try_into().ok()?) as usize;
        let rest = place.rest.get(..place.head.rest_bytes as usize)?;
        let operation = place.head.operation.get(..bytes.checked_sub(header.len() + rest.len())?)?;
        Some(FuseRequest { header, operation, rest })
    }

    /// Answers the request of a place, which then waits for the next one.
    ///
    /// # Errors
    /// InvalidInput if the place has no request, or the answer does not fit.
    pub fn answer(&mut self, place: usize, header: [u8; 16], body: &[u8]) -> io::Result<()> {
        let Some(given) = self.places.get_mut(place).filter(|given| !given.is_lent) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        given.rest.get_mut(..body.len()).ok_or(io::ErrorKind::InvalidInput)?.copy_from_slice(body);
        given.head.header[..header.len()].copy_from_slice(&header);
        given.head.rest_bytes = u32::try_from(body.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        self.lend(place, COMMIT_AND_FETCH)
    }
}

impl Drop for FuseQueues {
    fn drop(&mut self) {
        let patience = Timespec::from(CLOSE_PATIENCE);
        let _ = self.ring.submitter().register_sync_cancel(Some(patience), CancelBuilder::any());
        let _ = self.collect();
        if self.places.iter().any(|place| place.is_lent) {
            std::mem::forget(std::mem::take(&mut self.places));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that is no FUSE device takes no place, and then nothing is lent to the kernel.
    #[test]
    fn what_the_kernel_refuses_is_told() {
        let file = Arc::new(tempfile::tempfile().unwrap());
        let mut queues = FuseQueues::register(&file, 0..2, 2, 4096).unwrap();
        assert!(queues.request(0).is_none(), "the kernel has it");
        assert_eq!(queues.answer(0, [0; 16], &[]).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(queues.answer(4, [0; 16], &[]).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(queues.sleep(None).unwrap_err().raw_os_error(), Some(libc::EOPNOTSUPP));
        assert_eq!(queues.next_place(), None);
        assert!(queues.places.iter().all(|place| !place.is_lent));
    }
}
