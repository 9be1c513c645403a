//! A log of fio: after its version, lines of `file action [offset length]`; version 3 puts a time before each. Requests
//! of several files are taken as those of one disk.

use super::{Parsed, TraceKind, TraceRequest, request};

/// Whether the lines of a log have times, if the first line is that of a log.
pub(super) fn version(line: &str) -> Option<bool> {
    match line {
        "fio version 2 iolog" => Some(false),
        "fio version 3 iolog" => Some(true),
        _ => None,
    }
}

pub(super) fn parse(line: &str, with_times: bool) -> Parsed {
    let mut words = line.split_whitespace().skip(usize::from(with_times) + 1);
    let kind = match words.next().ok_or("the line has no action")? {
        "read" => TraceKind::Read,
        "write" => TraceKind::Write,
        "trim" => TraceKind::Discard,
        "sync" | "datasync" => {
            return Ok(Some(TraceRequest::FLUSH));
        }
        "add" | "open" | "close" | "wait" => return Ok(None),
        _ => return Err("the action is none of read, write, trim, sync, datasync, wait, add, open, close"),
    };
    let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
    let offset = number().ok_or("the offset is missing, or no number")?;
    request(kind, offset, number().ok_or("the length is missing, or no number")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_read() {
        let flush = Ok(Some(TraceRequest::FLUSH));
        assert_eq!(parse("/dev/a datasync 0 0", false), flush);
        assert_eq!(parse("17 /dev/a trim 0 4096", true), request(TraceKind::Discard, 0, 4096));
        assert_eq!(parse("17 /dev/a open", true), Ok(None));
        assert!(parse("/dev/a write 0", false).is_err() && parse("/dev/a fly 0 1", false).is_err());
        assert!(parse("/dev/a", false).is_err() && version("fio version 1 iolog").is_none());
    }
}
