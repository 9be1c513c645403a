//! The default text of `blkparse`: `major,minor cpu sequence time pid action rwbs sector + sectors [process]`. A
//! request counts when it is queued, action `Q`; other actions repeat it. Sectors are of 512 bytes.
//!
//! In `rwbs`, a leading `F` before another letter is a flush before the request, `W` a write, `D` a discard, `R` a
//! read; `F` alone is a flush, and a trailing `F` forces the write to the medium.

use super::{Parsed, TraceKind, TraceRequest, request};

const SECTOR: u64 = 512;

/// Whether a line is an event, not a part of the summary at the end.
pub(super) fn is_line(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let device = words.next().and_then(|word| word.split_once(','));
    device.is_some_and(|(major, minor)| major.parse::<u32>().is_ok() && minor.parse::<u32>().is_ok())
}

pub(super) fn parse(line: &str) -> Parsed {
    if !is_line(line) {
        return Ok(None);
    }
    let mut words = line.split_whitespace().skip(5);
    let (Some(action), Some(kinds)) = (words.next(), words.next()) else {
        return Err("the line has no action and kind of request");
    };
    if action != "Q" {
        return Ok(None);
    }
    let kind = match kinds.trim_start_matches('F').chars().next() {
        _ if kinds.starts_with('F') && words.clone().nth(1) != Some("+") => {
            return Ok(Some(TraceRequest::FLUSH));
        }
        Some('W') => TraceKind::Write,
        Some('R') => TraceKind::Read,
        Some('D') => TraceKind::Discard,
        _ => return Ok(None),
    };
    let (Some(sector), Some("+"), Some(sectors)) = (words.next(), words.next(), words.next()) else {
        return Err("a queued request has no `sector + sectors`");
    };
    let bytes = |number: &str, what| {
        let sectors = number.parse::<u64>().map_err(|_| what)?;
        sectors.checked_mul(SECTOR).ok_or(what)
    };
    let offset = bytes(sector, "the sector is no number, or too large")?;
    let parsed = request(kind, offset, bytes(sectors, "the number of sectors is no number, or too large")?)?;
    let fua = kinds.get(1..).is_some_and(|rest| rest.contains('F'));
    Ok(parsed.map(|plain| TraceRequest { preflush: kinds.starts_with('F'), fua, ..plain }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(rest: &str) -> Result<Option<TraceKind>, &'static str> {
        let line = format!("  259,0    3       41     1.000000123  1234  Q {rest}");
        parse(&line).map(|request| request.map(|request| request.kind))
    }

    #[test]
    fn kinds_of_requests_are_told_apart() {
        assert_eq!(kind("WS 0 + 8 [a]"), Ok(Some(TraceKind::Write)));
        assert_eq!(kind("RA 0 + 8 [a]"), Ok(Some(TraceKind::Read)));
        assert_eq!(kind("DS 0 + 8 [a]"), Ok(Some(TraceKind::Discard)));
        let flags = |line| parse(line).map(|found| found.map(|found| (found.preflush, found.fua)));
        assert_eq!(flags("8,0 1 2 0.1 7 Q FWFS 0 + 8 [a]"), Ok(Some((true, true))));
        assert_eq!(flags("8,0 1 2 0.1 7 Q FWS 0 + 8 [a]"), Ok(Some((true, false))));
        assert_eq!(flags("8,0 1 2 0.1 7 Q WFS 0 + 8 [a]"), Ok(Some((false, true))));
        assert_eq!(kind("FWS [a]"), Ok(Some(TraceKind::Flush)));
        assert_eq!(kind("N 0 + 8 [a]"), Ok(None));
        assert!(kind("W 0 8 [a]").is_err() && kind("W x + 8 [a]").is_err());
        assert!(parse("8,0 1 2").is_err() && parse("Total (8,0):").is_ok_and(|request| request.is_none()));
    }
}
