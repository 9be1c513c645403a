//! *Read-ahead*: what a reader in sequence will want next, so that it is asked for before it is wanted, in one request where it
//! lies together.

use std::ops::Range;

use weir_storage::Extent;

/// Readers that are followed at one time.
const READERS_MAX: usize = 8;
/// Blocks that are fetched ahead: twice as many each time, between these.
const AHEAD_MIN: u64 = 32;
pub(crate) const AHEAD_MAX: u64 = 1024;

/// A reader in sequence.
struct Reader {
    /// The block behind its newest read.
    next: u64,
    /// The block behind what was asked for ahead.
    asked_to: u64,
    /// Blocks to ask for ahead.
    window: u64,
    /// Which read was its newest.
    read: u64,
}

/// Readers in sequence.
#[derive(Default)]
pub(crate) struct ReadAhead {
    readers: Vec<Reader>,
    reads: u64,
}

impl ReadAhead {
    /// Takes note of a read, and returns what to fetch ahead: nothing unless it goes on where another one ended.
    pub(crate) fn note(&mut self, extent: Extent) -> Option<Range<u64>> {
        self.reads += 1;
        let (start, end) = (extent.start.0, extent.end().0);
        // Reads that are under way at one time may come in another order.
        let goes_on =
            |reader: &&mut Reader| end > reader.next && start.abs_diff(reader.next) <= reader.window;
        if let Some(reader) = self.readers.iter_mut().find(goes_on) {
            reader.next = end;
            reader.read = self.reads;
            reader.window = (2 * reader.window).min(AHEAD_MAX);
            if reader.asked_to >= end + reader.window / 2 {
                return None;
            }
            let from = reader.asked_to.max(end);
            reader.asked_to = end + reader.window;
            return Some(from..reader.asked_to);
        }
        if self.readers.len() == READERS_MAX
            && let Some(oldest) = (0..READERS_MAX).min_by_key(|i| self.readers[*i].read)
        {
            self.readers.swap_remove(oldest);
        }
        self.readers.push(Reader { next: end, asked_to: end, window: AHEAD_MIN / 2, read: self.reads });
        None
    }
}

#[cfg(test)]
mod tests {
    use weir_storage::Lba;

    use super::*;

    fn note(ahead: &mut ReadAhead, start: u64, blocks: u32) -> Option<Range<u64>> {
        ahead.note(Extent::new(Lba(start), blocks))
    }

    #[test]
    fn a_reader_in_sequence_is_read_ahead_of_and_one_at_random_is_not() {
        let mut ahead = ReadAhead::default();
        for start in [500_000, 90, 700_000, 200_000] {
            assert_eq!(note(&mut ahead, start, 8), None);
        }
        assert_eq!(note(&mut ahead, 98, 8), Some(106..138));
        // What was asked for is not asked for again, and the next is asked for before it is wanted.
        let mut asked_to = 138;
        let mut at = 106;
        while at < 20_000 {
            if let Some(range) = note(&mut ahead, at, 8) {
                assert!(range.start == asked_to && range.start >= at + 8, "{range:?} at {at}");
                asked_to = range.end;
            }
            at += 8;
            assert!(asked_to >= at && asked_to <= at + AHEAD_MAX);
        }
        assert!(asked_to - at > AHEAD_MAX / 4);
    }

    #[test]
    fn only_so_many_readers_are_followed() {
        let mut ahead = ReadAhead::default();
        for start in 0..100 {
            note(&mut ahead, start * 1_000_000, 8);
        }
        assert_eq!(ahead.readers.len(), READERS_MAX);
        assert_eq!(note(&mut ahead, 8, 8), None, "it was given up");
        assert!(note(&mut ahead, 99 * 1_000_000 + 8, 8).is_some());
    }
}
