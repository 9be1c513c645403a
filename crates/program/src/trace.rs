//! *Trace*: a recorded run as a file, to be judged again elsewhere.
//!
//! It begins with a line that names the format and its version. Behind it come the lengths of two parts, of 8 bytes each,
//! little end first, the parts, and a checksum (CRC-64/NVME) of all before it. The first part is the run in JSON, the second
//! the bytes that it wrote. What is read is checked: a trace may come from anybody.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::PathBuf;

use crc_fast::{CrcAlgorithm, Digest};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use weir_vfs::check_ordinary_name;

use crate::disk_record::DiskRecord;
use crate::operation::{Call, Operation, Place};
use crate::record::{Process, Record, WrittenData};
use crate::tree::FILE_BYTES_MAX;

/// The first bytes of every trace.
pub const TRACE_BEGINNING: &str = "weir-crash-trace ";
/// The first line by what it is the record of: a mount, or a disk, which the first version does not know.
const FIRST_LINES: [&str; 2] = ["weir-crash-trace 1\n", "weir-crash-trace 2\n"];
/// Bytes of the first line and the two lengths.
const START_BYTES: u64 = FIRST_LINES[0].len() as u64 + 16;
/// Bytes of a trace that are read at most.
const BYTES_MAX: u64 = 8 << 30;

/// What was run, and how it was judged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceHeader {
    /// The command that was recorded.
    pub run: String,
    /// The command that checks a state.
    pub check: String,
    /// The name of the promises.
    pub promises: String,
    /// The seed of the states.
    pub seed: u64,
    /// The directory that the commands found as `WEIR_HERE`.
    pub here: PathBuf,
    /// The name of the drive that chose the states of a disk; none if they were those of the worst legal disk.
    #[serde(default)]
    pub drive: Option<String>,
}

/// Why a trace cannot be read or written.
#[derive(Debug, Error)]
pub enum RunTraceError {
    /// The file fails.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It begins otherwise.
    #[error("it is no trace of `weir crash program`: it does not begin with {TRACE_BEGINNING:?}")]
    NoTrace,
    /// Another version.
    #[error(
        "it has version {0} of the format, and this program reads versions 1 and 2: take the program that wrote it"
    )]
    Version(String),
    /// It was cut or changed.
    #[error("it is damaged: {0}: have it sent again")]
    Damaged(&'static str),
    /// It is too large.
    #[error("it has more than {BYTES_MAX} bytes")]
    TooLarge,
}

/// The first part.
#[derive(Serialize, Deserialize)]
struct Body<'a> {
    header: Cow<'a, TraceHeader>,
    owner: (u32, u32),
    setup: usize,
    operations: Cow<'a, [Operation]>,
    lines: Cow<'a, [Vec<u8>]>,
    processes: Cow<'a, [Process]>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    disk: Option<Cow<'a, DiskRecord>>,
}

/// Writes a trace.
///
/// # Errors
/// [`RunTraceError::Io`].
pub fn write_trace(file: &mut File, header: &TraceHeader, record: &Record) -> Result<(), RunTraceError> {
    let body = Body {
        header: Cow::Borrowed(header),
        owner: record.owner,
        setup: record.setup,
        operations: Cow::Borrowed(&record.operations),
        lines: Cow::Borrowed(&record.lines),
        processes: Cow::Borrowed(&record.processes),
        disk: record.disk.as_ref().map(Cow::Borrowed),
    };
    let body = serde_json::to_vec(&body).map_err(io::Error::from)?;
    let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
    let mut put = |bytes: &[u8]| {
        digest.update(bytes);
        file.write_all(bytes)
    };
    put(FIRST_LINES[usize::from(record.disk.is_some())].as_bytes())?;
    put(&(body.len() as u64).to_le_bytes())?;
    put(&record.data.bytes().to_le_bytes())?;
    put(&body)?;
    for operation in &record.operations {
        put(&record.data_of(&operation.call)?)?;
    }
    let sum = digest.finalize();
    Ok(file.write_all(&sum.to_le_bytes())?)
}

/// Reads a trace.
///
/// # Errors
/// All of [`RunTraceError`].
pub fn read_trace(file: &mut File) -> Result<(TraceHeader, Record), RunTraceError> {
    // What is no trace, or has no end, is not read into memory.
    let mut bytes = Vec::new();
    file.take(START_BYTES).read_to_end(&mut bytes)?;
    let (body, data) = read_start(&bytes)?;
    let length = body.checked_add(data).and_then(|parts| parts.checked_add(START_BYTES + 8));
    let length = length.filter(|length| *length <= BYTES_MAX).ok_or(RunTraceError::TooLarge)?;
    let metadata = file.metadata()?;
    if metadata.is_file() && metadata.len() != length {
        return Err(RunTraceError::Damaged("its parts are not as long as it says"));
    }
    file.take(length + 1 - START_BYTES).read_to_end(&mut bytes)?;
    if bytes.len() as u64 != length {
        return Err(RunTraceError::Damaged("its parts are not as long as it says"));
    }
    let (all, sum) = bytes.split_last_chunk::<8>().ok_or(RunTraceError::Damaged("it is cut"))?;
    if crc_fast::checksum(CrcAlgorithm::Crc64Nvme, all) != u64::from_le_bytes(*sum) {
        return Err(RunTraceError::Damaged("its checksum is wrong, or its end is missing"));
    }
    let (body, data) = all[START_BYTES as usize..].split_at(body as usize);
    let data = data.to_vec();
    let body: Body<'_> = serde_json::from_slice(body)
        .map_err(|_| RunTraceError::Damaged("its first part is not as the format says"))?;
    let mut record = Record::new(body.owner, data.len() as u64);
    record.operations = body.operations.into_owned();
    record.lines = body.lines.into_owned();
    record.processes = body.processes.into_owned();
    record.setup = body.setup;
    record.disk = body.disk.map(Cow::into_owned);
    record.data = WrittenData::from_bytes(data);
    check_record(&record)?;
    Ok((body.header.into_owned(), record))
}

/// The lengths of the two parts.
fn read_start(bytes: &[u8]) -> Result<(u64, u64), RunTraceError> {
    let mut known = FIRST_LINES.iter();
    let Some(rest) = known.find_map(|line| bytes.strip_prefix(line.as_bytes())) else {
        let other = bytes.strip_prefix(TRACE_BEGINNING.as_bytes()).ok_or(RunTraceError::NoTrace)?;
        let version = other.iter().take_while(|byte| byte.is_ascii_graphic());
        return Err(RunTraceError::Version(version.map(|byte| char::from(*byte)).collect()));
    };
    let lengths = rest.split_first_chunk::<8>().and_then(|(body, rest)| {
        let (data, _) = rest.split_first_chunk::<8>()?;
        Some((u64::from_le_bytes(*body), u64::from_le_bytes(*data)))
    });
    lengths.ok_or(RunTraceError::Damaged("it is cut"))
}

/// That a record says nothing that cannot be.
fn check_record(record: &Record) -> Result<(), RunTraceError> {
    if record.setup > record.operations.len() {
        return Err(RunTraceError::Damaged("its setup is longer than the run"));
    }
    if let Some(disk) = &record.disk {
        let is_within = (record.setup..=record.operations.len()).contains(&disk.ended);
        if !is_within || disk.ground.check().is_err() {
            return Err(RunTraceError::Damaged("its disk cannot be"));
        }
    }
    let (mut written, mut lines) = (0, 0);
    for operation in &record.operations {
        let is_right = operation.process < record.processes.len()
            && match &operation.call {
                Call::Make { inode, at, new } => {
                    *inode > crate::tree::ROOT
                        && new.to_node().is_some()
                        && !new.target.contains(&0)
                        && at.as_ref().is_none_or(is_place)
                }
                Call::Link { at, .. } | Call::Remove { at, .. } => is_place(at),
                Call::Rename { from, to, .. } => is_place(from) && is_place(to),
                Call::Write { offset, data, grown, .. } => {
                    let is_next =
                        data.start == written && data.end >= data.start && data.end <= record.data.bytes();
                    written = data.end;
                    is_next && *offset <= FILE_BYTES_MAX && grown.is_none_or(|size| size <= FILE_BYTES_MAX)
                }
                Call::SetSize { size, .. } => *size <= FILE_BYTES_MAX,
                Call::Zero { offset, length, .. } => *offset <= FILE_BYTES_MAX && *length <= FILE_BYTES_MAX,
                Call::SetExtended { name, .. } => !name.contains(&0),
                Call::Acknowledge(line) => {
                    lines += 1;
                    *line + 1 == lines && *line < record.lines.len()
                }
                Call::SetAttributes { .. } | Call::Sync { .. } | Call::SyncFailed { .. } | Call::SyncAll => {
                    true
                }
            };
        if !is_right {
            return Err(RunTraceError::Damaged("it has a call that cannot be"));
        }
    }
    Ok(())
}

/// A place that a tree may have: its name leads nowhere else.
fn is_place(place: &Place) -> bool {
    check_ordinary_name(&place.name).is_ok()
}

#[cfg(test)]
mod tests {
    use std::io::{Seek as _, SeekFrom};
    use std::os::unix::fs::FileExt as _;

    use super::*;
    use crate::tree::ROOT;

    fn record(name: &[u8]) -> Record {
        let mut record = Record::new((1, 2), 100);
        let at = Place { directory: ROOT, name: name.to_vec() };
        record.push(0, Call::Link { inode: 5, at });
        let data = record.push_data(b"written").unwrap();
        record.push(0, Call::Write { inode: 5, offset: 9, data, grown: Some(16) });
        record.acknowledge(0, b"line".to_vec());
        record
    }

    fn trace(record: &Record) -> File {
        let mut file = tempfile::tempfile().unwrap();
        write_trace(&mut file, &TraceHeader { seed: 7, ..TraceHeader::default() }, record).unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        file
    }

    #[test]
    fn a_trace_is_read_as_it_was_written() {
        let (written, mut file) = (record(b"a"), trace(&record(b"a")));
        let (header, read) = read_trace(&mut file).unwrap();
        assert_eq!((header.seed, &read.operations, read.owner), (7, &written.operations, (1, 2)));
        assert_eq!((read.lines, read.data.read(&(0..7)).unwrap()), (written.lines, b"written".to_vec()));
    }

    #[test]
    fn what_has_no_end_or_lies_about_its_length_is_not_read() {
        let endless = File::open("/dev/zero").map(|mut file| read_trace(&mut file));
        assert!(matches!(endless.unwrap(), Err(RunTraceError::NoTrace)));
        let of_lengths = |body: u64| {
            let file = &mut trace(&record(b"a"));
            file.write_all_at(&body.to_le_bytes(), FIRST_LINES[0].len() as u64).unwrap();
            let read = read_trace(file);
            (read, file.stream_position().unwrap())
        };
        assert!(matches!(of_lengths(u64::MAX), (Err(RunTraceError::TooLarge), START_BYTES)));
        assert!(matches!(of_lengths(1 << 30), (Err(RunTraceError::Damaged(_)), START_BYTES)));
    }

    #[test]
    fn no_damage_and_no_name_that_leads_out_is_taken() {
        for name in [&b".."[..], b"a/b", b"", b"a\0"] {
            assert!(
                matches!(read_trace(&mut trace(&record(name))), Err(RunTraceError::Damaged(_))),
                "{name:?}"
            );
        }
        let length = trace(&record(b"a")).metadata().unwrap().len();
        for at in 0..length {
            let file = &mut trace(&record(b"a"));
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 1], at).unwrap();
            assert!(read_trace(file).is_err(), "a bit of byte {at}");
            let cut = &mut trace(&record(b"a"));
            cut.set_len(at).unwrap();
            assert!(read_trace(cut).is_err(), "cut at {at}");
        }
    }
}
