//! *Acknowledgements*: lines by which a program says what it has promised, in order with its calls.
//!
//! A program writes them to the file [`ACK_NAME`] at the root of the mount, which no directory lists. Each write is a
//! request of the kernel, as its other calls are, so its place among them is exact: what was written or synchronised before
//! is recorded before.
//!
//! - A line is acknowledged with the write that brings its line feed; several lines of one write at one moment.
//! - A part of a line waits for the rest of it from the same thread. The end of the run ends a line, too.
//! - Where in the file a writer writes, and whether it appends, does not matter: all is appended.

use std::collections::BTreeMap;

use crate::record::LINE_BYTES_MAX;

/// The name of the file at the root of the mount.
pub const ACK_NAME: &str = ".weir-ack";

/// Threads of which a part of a line is kept at most; of more the oldest number ends its line.
const PARTS_MAX: usize = 1024;

/// What was written of lines that have not ended, by the thread that writes.
#[derive(Debug, Default)]
pub(crate) struct PartialLines(BTreeMap<u32, Vec<u8>>);

impl PartialLines {
    /// Takes in what a thread writes; the lines that have ended with it.
    pub(crate) fn push(&mut self, thread: u32, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut ended = Vec::new();
        let mut line = self.0.remove(&thread).unwrap_or_default();
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(part);
            // One that is too long is an error of the record, and need not be longer still.
            if line.ends_with(b"\n") || line.len() > LINE_BYTES_MAX {
                if line.ends_with(b"\n") {
                    line.pop();
                }
                ended.push(std::mem::take(&mut line));
            }
        }
        if !line.is_empty() {
            self.0.insert(thread, line);
            if self.0.len() > PARTS_MAX {
                ended.extend(self.0.pop_first().map(|(_, line)| line));
            }
        }
        ended
    }

    /// Ends all lines.
    pub(crate) fn take_all(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.0).into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_ends_with_its_line_feed_whoever_else_writes() {
        let mut lines = PartialLines::default();
        assert_eq!(lines.push(1, b"one\ntw"), [b"one"]);
        assert!(lines.push(2, b"thr").is_empty());
        assert_eq!(lines.push(1, b"o\n\n"), [&b"two"[..], b""]);
        assert_eq!(lines.push(2, b"ee\n"), [b"three"]);
        lines.push(3, b"four");
        assert_eq!(lines.take_all(), [b"four"]);
        let long = lines.push(1, &vec![b'a'; LINE_BYTES_MAX + 9]);
        assert_eq!(long.len(), 1, "what is too long ends, so that it can be refused");
    }
}
