//! The server traces of Microsoft Research Cambridge (Narayanan and others, FAST 2008): a CSV file without a header,
//! `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`, offsets and sizes in bytes.

use super::{Parsed, TraceKind, request};

/// The fields of a line.
fn fields(line: &str) -> Option<[&str; 7]> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    fields.try_into().ok()
}

/// Whether a line can be one of such a file.
pub(super) fn is_line(line: &str) -> bool {
    fields(line)
        .is_some_and(|[time, .., offset, _, _]| time.parse::<u64>().is_ok() && offset.parse::<u64>().is_ok())
}

pub(super) fn parse(line: &str) -> Parsed {
    let [_, _, _, kind, offset, bytes, _] = fields(line).ok_or("the line does not have seven fields")?;
    let kind = match kind {
        "Read" | "read" => TraceKind::Read,
        "Write" | "write" => TraceKind::Write,
        _ => return Err("the fourth field is neither Read nor Write"),
    };
    let offset = offset.parse().map_err(|_| "the fifth field, the offset, is no number")?;
    let bytes = bytes.parse().map_err(|_| "the sixth field, the size, is no number")?;
    request(kind, offset, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_fields_are_named() {
        let wrong = |line| parse(line).err().unwrap_or_default();
        assert!(wrong("1,a,0,Trim,0,1,1").contains("fourth"));
        assert!(wrong("1,a,0,Read,x,1,1").contains("fifth"));
        assert!(wrong("1,a,0,Read,0,-1,1").contains("sixth"));
        assert!(wrong("1,a,0,Read").contains("seven"));
    }
}
