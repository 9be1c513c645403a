//! Writes that wait for the one behind them.
//!
//! SQLite writes a page of a journal in three pieces, and a frame of a write-ahead log in two: on a mount each is a trip
//! to the server. No connection looks at them before they are complete, so they go there together.

use std::ops::Range;

/// Bytes that are held back at most.
const BYTES_MAX: usize = 64 << 10;

/// Bytes that follow each other in a file, and are not in it yet.
#[derive(Debug, Default)]
pub(crate) struct Held {
    offset: i64,
    bytes: Vec<u8>,
}

impl Held {
    /// Takes bytes that follow those held so far, if there is room; whether it did.
    pub(crate) fn take(&mut self, offset: i64, bytes: &[u8]) -> bool {
        if self.bytes.is_empty() {
            self.offset = offset;
        }
        let fits = offset == self.range().end && bytes.len() <= BYTES_MAX - self.bytes.len();
        if fits {
            self.bytes.extend_from_slice(bytes);
        }
        fits
    }

    /// Where they belong; empty if none are held.
    pub(crate) fn range(&self) -> Range<i64> {
        let length = i64::try_from(self.bytes.len()).unwrap_or(i64::MAX);
        self.offset..self.offset.saturating_add(length)
    }

    /// Reads some of them; whether all were there.
    pub(crate) fn read(&self, offset: i64, into: &mut [u8]) -> bool {
        let from = usize::try_from(offset.wrapping_sub(self.offset)).unwrap_or(usize::MAX);
        let found = self.bytes.get(from..).and_then(|bytes| bytes.get(..into.len()));
        if let Some(found) = found {
            into.copy_from_slice(found);
        }
        found.is_some()
    }

    /// Has them written; those that could not be are held on.
    pub(crate) fn put_down<E>(&mut self, write: impl FnOnce(i64, &[u8]) -> Result<(), E>) -> Result<(), E> {
        if !self.bytes.is_empty() {
            write(self.offset, &self.bytes)?;
            self.bytes.clear();
        }
        Ok(())
    }

    /// The same, but drops those that could not be: their writer gets the error.
    pub(crate) fn put_down_or_drop<E>(
        &mut self,
        write: impl FnOnce(i64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let down = self.put_down(write);
        self.bytes.clear();
        down
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn down(held: &mut Held) -> Option<(i64, Vec<u8>)> {
        let mut written = None;
        held.put_down(|offset, bytes| {
            written = Some((offset, bytes.to_vec()));
            Ok::<_, ()>(())
        })
        .expect("it is written");
        written
    }

    #[test]
    fn what_follows_is_joined() {
        let mut held = Held::default();
        assert!(held.range().is_empty());
        assert!(held.take(512, b"abcd") && held.take(516, b"ef"));
        assert_eq!(held.range(), 512..518);
        assert!(!held.take(512, b"x") && !held.take(520, b"x"));
        let mut two = [0; 2];
        assert!(held.read(515, &mut two) && two == *b"de");
        assert!(!held.read(517, &mut two) && !held.read(511, &mut two) && !held.read(600, &mut two));
        assert_eq!(down(&mut held), Some((512, b"abcdef".to_vec())));
        assert_eq!(down(&mut held), None);
        assert!(held.take(0, b"z"));
    }

    #[test]
    fn there_is_a_bound() {
        let mut held = Held::default();
        assert!(!held.take(0, &vec![0; BYTES_MAX + 1]));
        assert!(held.range().is_empty() && held.take(0, &vec![0; BYTES_MAX - 1]));
        assert!(!held.take(BYTES_MAX as i64 - 1, b"ab") && held.take(BYTES_MAX as i64 - 1, b"a"));
        assert!(!held.take(i64::MAX, b"a"));
    }

    #[test]
    fn what_is_not_written_is_held_on() {
        let mut held = Held::default();
        assert!(held.take(7, b"ab"));
        assert_eq!(held.put_down(|_, _| Err("full")), Err("full"));
        assert_eq!(down(&mut held), Some((7, b"ab".to_vec())));
        assert!(held.take(7, b"ab"));
        assert_eq!(held.put_down_or_drop(|_, _| Err("full")), Err("full"));
        assert_eq!(down(&mut held), None);
    }
}
