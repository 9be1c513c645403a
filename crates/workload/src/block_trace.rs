//! Recorded block traces, as other programs write them: a replay issues what a real machine issued.
//!
//! Three formats are read, told apart by the first line that says something:
//!
//! | format | who writes it | file |
//! |---|---|---|
//! | MSR | the server traces of Microsoft Research Cambridge, a CSV file | `block_trace/msr.rs` |
//! | `blkparse` | `blktrace` and `blkparse`, in the default text format | `block_trace/blkparse.rs` |
//! | iolog | `fio --write_iolog`, versions 2 and 3 | `block_trace/iolog.rs` |
//!
//! Times are not kept: a replay issues requests in their order, as fast as a queue takes them.

mod blkparse;
mod iolog;
mod msr;

use std::io::{self, BufRead, Read};

use thiserror::Error;

/// Bytes of a line at most: no format has lines that come near.
const LINE_BYTES_MAX: u64 = 4096;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceKind {
    /// A read.
    Read,
    /// A write.
    Write,
    /// A discard.
    Discard,
    /// A flush, without a range.
    Flush,
}

/// One request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRequest {
    /// What it asks for.
    pub kind: TraceKind,
    /// Where it begins, in bytes.
    pub offset: u64,
    /// How long it is, in bytes; 0 for a flush.
    pub bytes: u64,
    /// The disk flushes before it.
    pub preflush: bool,
    /// It is durable when it is done.
    pub fua: bool,
}

impl TraceRequest {
    const FLUSH: TraceRequest = TraceRequest::plain(TraceKind::Flush, 0, 0);

    pub(crate) const fn plain(kind: TraceKind, offset: u64, bytes: u64) -> TraceRequest {
        TraceRequest { kind, offset, bytes, preflush: false, fua: false }
    }
}

/// Why a trace cannot be read.
#[derive(Debug, Error)]
pub enum TraceError {
    /// The file cannot be read.
    #[error("cannot read the trace: {0}")]
    Io(#[from] io::Error),
    /// The first line is of no format.
    #[error(
        "line {line} is of no format that is known: a CSV line of the MSR traces, the text of `blkparse`, or a fio \
         iolog of version 2 or 3"
    )]
    Format {
        /// The line, from 1.
        line: u64,
    },
    /// A line is not as its format has it.
    #[error("line {line}: {what}")]
    Line {
        /// The line, from 1.
        line: u64,
        /// What is wrong with it.
        what: &'static str,
    },
}

/// What a line says: a request, nothing that a disk sees, or why it says nothing.
type Parsed = Result<Option<TraceRequest>, &'static str>;

/// How lines are read.
#[derive(Clone, Copy, Debug)]
enum Format {
    Msr,
    Blkparse,
    Iolog { with_times: bool },
}

impl Format {
    fn of(line: &str) -> Option<Format> {
        iolog::version(line)
            .map(|with_times| Format::Iolog { with_times })
            .or_else(|| msr::is_line(line).then_some(Format::Msr))
            .or_else(|| blkparse::is_line(line).then_some(Format::Blkparse))
    }

    fn parse(self, line: &str) -> Parsed {
        match self {
            Format::Msr => msr::parse(line),
            Format::Blkparse => blkparse::parse(line),
            Format::Iolog { with_times } => iolog::parse(line, with_times),
        }
    }
}

/// The requests of a trace, in its order. Ends after the first error.
pub struct BlockTrace<R> {
    text: R,
    format: Option<Format>,
    /// Lines read.
    line: u64,
    over: bool,
}

impl<R: BufRead> BlockTrace<R> {
    /// A trace in any of the formats.
    pub fn new(text: R) -> BlockTrace<R> {
        BlockTrace { text, format: None, line: 0, over: false }
    }

    /// The next line without its end; none at the end of the file.
    fn next_line(&mut self) -> Result<Option<String>, TraceError> {
        let mut bytes = Vec::new();
        if self.text.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut bytes)? == 0 {
            return Ok(None);
        }
        self.line += 1;
        let wrong = |what| TraceError::Line { line: self.line, what };
        if bytes.len() as u64 == LINE_BYTES_MAX && bytes.last() != Some(&b'\n') {
            return Err(wrong("the line is longer than 4 KiB"));
        }
        let line = String::from_utf8(bytes).map_err(|_| wrong("the line is not text"))?;
        Ok(Some(line.trim().to_owned()))
    }

    fn next_request(&mut self) -> Result<Option<TraceRequest>, TraceError> {
        while let Some(line) = self.next_line()? {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let format = match self.format {
                Some(format) => format,
                None => {
                    let format = Format::of(&line).ok_or(TraceError::Format { line: self.line })?;
                    self.format = Some(format);
                    if matches!(format, Format::Iolog { .. }) {
                        continue;
                    }
                    format
                }
            };
            let parsed = format.parse(&line).map_err(|what| TraceError::Line { line: self.line, what })?;
            if let Some(request) = parsed {
                return Ok(Some(request));
            }
        }
        Ok(None)
    }
}

impl<R: BufRead> Iterator for BlockTrace<R> {
    type Item = Result<TraceRequest, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let next = self.next_request().transpose();
        self.over = next.as_ref().is_none_or(Result::is_err);
        next
    }
}

/// A range that ends within 2^63 bytes.
fn request(kind: TraceKind, offset: u64, bytes: u64) -> Parsed {
    match offset.checked_add(bytes) {
        Some(end) if end <= i64::MAX as u64 => Ok(Some(TraceRequest::plain(kind, offset, bytes))),
        _ => Err("the request ends behind 2^63 bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<TraceRequest>, String> {
        BlockTrace::new(text.as_bytes()).map(|request| request.map_err(|error| error.to_string())).collect()
    }

    fn write(offset: u64, bytes: u64) -> TraceRequest {
        TraceRequest::plain(TraceKind::Write, offset, bytes)
    }

    #[test]
    fn every_format_is_known_by_its_first_line() {
        let read_request = TraceRequest::plain(TraceKind::Read, 8192, 512);
        let msr =
            "128166372003061629,src1,0,Write,4096,8192,1331\n128166372016382155,src1,0,Read,8192,512,20\n";
        assert_eq!(read(msr), Ok(vec![write(4096, 8192), read_request]));
        let blkparse = "  8,0    1        1     0.000000000   697  Q  WS 8 + 16 [kworker]\n\
                        \x20 8,0    1        2     0.000000100   697  C  WS 8 + 16 [0]\n\
                        \x20 8,0    1        3     0.000000200   697  Q   R 16 + 1 [dd]\n\
                        CPU1 (8,0):\n Reads Queued: 1\n";
        assert_eq!(read(blkparse), Ok(vec![write(4096, 8192), read_request]));
        let iolog = "fio version 2 iolog\n/dev/a add\n/dev/a open\n/dev/a write 4096 8192\n/dev/a read 8192 512\n\
                     /dev/a close\n";
        assert_eq!(read(iolog), Ok(vec![write(4096, 8192), read_request]));
    }

    #[test]
    fn what_is_no_trace_is_refused_with_its_line() {
        assert!(read("").is_ok_and(|requests| requests.is_empty()));
        assert!(
            read("\n# a comment\nhello\n").is_err_and(|error| error.starts_with("line 3 is of no format"))
        );
        let torn = "1,a,0,Write,4096,8192,1\n1,a,0,Write,4096\n";
        assert!(read(torn).is_err_and(|error| error.starts_with("line 2: ")));
        let far = format!("1,a,0,Write,{},1,1\n", u64::MAX);
        assert!(read(&far).is_err_and(|error| error.contains("2^63")));
        assert!(read(&"x".repeat(5000)).is_err_and(|error| error.contains("4 KiB")));
        let bytes: &[u8] = &[0xff, 0xfe, b'\n'];
        assert!(BlockTrace::new(bytes).all(|request| request.is_err()));
    }

    #[test]
    fn a_trace_ends_after_its_first_error() {
        let text = "1,a,0,Write,0,1,1\nrubbish\n1,a,0,Write,0,1,1\n";
        assert_eq!(BlockTrace::new(text.as_bytes()).count(), 2);
    }
}
