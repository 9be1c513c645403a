//! How a file is being read: *streams* of reads, each of which begins where the one before it has ended, and how far
//! each is read ahead. Readers of a file at random places, however many, disturb no stream.

use std::collections::VecDeque;

/// Blocks that are read ahead at least and at most: 16 KiB to 512 KiB.
const AHEAD_MIN: u32 = 4;
const AHEAD_MAX: u32 = 128;
/// From so many blocks on, a read is long: 512 KiB, more than is read ahead.
const LONG: u32 = AHEAD_MAX;
/// Streams of a file that are known at most.
const STREAMS: usize = 8;
/// Reads at most that are remembered as what a stream may have begun with.
const BEGINNINGS: usize = 32;

/// Whether pages that were read are worth keeping, of which the reader wanted `wanted`. A long read that was wanted as a whole is not: its
/// reader has it, which is mostly the kernel's cache, and keeping it would cost two copies and what was kept before.
pub(crate) fn is_worth_keeping(blocks: u32, wanted: u32) -> bool {
    blocks < LONG || blocks > wanted
}

/// A stream, or what may become one.
#[derive(Clone, Copy)]
struct Stream {
    /// The block that comes next if the stream continues.
    next: u32,
    /// Blocks that were read for it last.
    window: u32,
}

/// The streams of a file; in both lists what was used last is at the back.
#[derive(Default)]
pub(crate) struct Readahead {
    streams: VecDeque<Stream>,
    beginnings: VecDeque<Stream>,
}

impl Readahead {
    /// Blocks to read for a miss at `index`, of which `wanted` were asked for.
    pub(crate) fn window(&self, index: u32, wanted: u32) -> u32 {
        let known = self.streams.iter().chain(&self.beginnings).find(|stream| stream.next == index);
        let last = match known {
            Some(stream) => stream.window,
            // A reader of the first block is likely to read on.
            None if index == 0 => 0,
            None => return wanted,
        };
        (2 * last).clamp(AHEAD_MIN, AHEAD_MAX).max(wanted)
    }

    /// A read of `blocks` blocks from `index` on has begun.
    pub(crate) fn begun(&mut self, index: u32, blocks: u32) {
        let new = Stream { next: index.saturating_add(blocks), window: blocks };
        let goes_on = |stream: &Stream| stream.next == index;
        let (list, most) = if let Some(at) = self.streams.iter().position(goes_on) {
            self.streams.remove(at);
            (&mut self.streams, STREAMS)
        } else if let Some(at) = self.beginnings.iter().position(goes_on) {
            self.beginnings.remove(at);
            (&mut self.streams, STREAMS)
        } else {
            (&mut self.beginnings, BEGINNINGS)
        };
        list.push_back(new);
        if list.len() > most {
            list.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_in_order_are_read_ahead_and_no_others() {
        let mut readahead = Readahead::default();
        assert_eq!(readahead.window(0, 1), AHEAD_MIN);
        assert_eq!(readahead.window(7, 1), 1);
        readahead.begun(32, 32);
        assert_eq!(readahead.window(64, 1), 64);
        assert_eq!(readahead.window(64, 1000), 1000);
        assert_eq!(readahead.window(63, 2), 2);
        readahead.begun(64, 1000);
        assert_eq!(readahead.window(1064, 1), AHEAD_MAX);
        readahead.begun(u32::MAX, 2);
    }

    #[test]
    fn a_stream_outlives_reads_at_random_places() {
        let mut readahead = Readahead::default();
        readahead.begun(100, 4);
        readahead.begun(104, 8);
        for nth in 0..1000 {
            readahead.begun(1_000_000 + 10 * nth, 1);
        }
        assert_eq!(readahead.window(112, 1), 16);
        assert!(readahead.streams.len() <= STREAMS && readahead.beginnings.len() <= BEGINNINGS);
    }

    #[test]
    fn streams_beside_one_another_are_kept_apart() {
        let mut readahead = Readahead::default();
        for nth in 0..10 {
            for stream in 0..STREAMS as u32 {
                let at = stream * 10_000 + nth * 4;
                assert_eq!(readahead.window(at, 1) > 1, nth > 0 || at == 0, "{at}");
                readahead.begun(at, 4);
            }
        }
        assert_eq!(readahead.streams.len(), STREAMS);
    }
}
