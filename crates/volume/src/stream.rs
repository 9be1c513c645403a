//! A *stream*: a snapshot as bytes, whole or as what has changed since an earlier one, for another volume to receive.
//!
//! A header, then records, each with a checksum over itself and its data and with its number, then a record that ends the stream: one
//! that is cut, changed or out of order is refused. docs/format/volume.md has every byte.

use std::io::{self, Read, Write};
use std::rc::Rc;

use thiserror::Error;
use weir_storage::{BLOCK_BYTES, Command, Extent, Lba, Part, Rejected, Storage as _, read, submit_when_free};
use zerocopy::{FromBytes, FromZeros as _, IntoBytes};

use crate::branch::BranchStorage;
use crate::error::SnapshotError;
use crate::layout::{STREAM_MAGIC, StreamHeader, StreamRecord, checksum_matches, stamp_checksum};
use crate::snapshot_table::{Branch, name_bytes, name_from_bytes};
use crate::volume::Volume;

/// The version of the stream that is written and read.
const STREAM_VERSION: u32 = 1;
/// Blocks in a record at most.
const RECORD_BLOCKS_MAX: u32 = 256;

/// What a record of a stream holds.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum RecordKind {
    Data = 1,
    Zeros = 2,
    End = 3,
}

/// What was sent or received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamReport {
    /// The snapshot.
    pub name: String,
    /// The snapshot that it was sent against.
    pub from: Option<String>,
    /// Blocks with data.
    pub blocks: u64,
    /// Blocks that read zeros now, and did not before.
    pub zeros: u64,
}

/// Why a stream cannot be sent or received.
#[derive(Debug, Error)]
pub enum StreamError {
    /// The snapshots do not fit.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The bytes cannot be read or written.
    #[error("the stream: {0}")]
    Io(#[source] io::Error),
    /// The program that takes the stream has ended.
    #[error(
        "the program that takes the stream has ended before the stream has: its own message says why; what it has taken is no snapshot"
    )]
    Closed,
    /// Not a byte came.
    #[error(
        "the stream is empty: the program that sends it has ended, and its own message says why; nothing has changed here"
    )]
    Empty,
    /// The end is missing.
    #[error(
        "the stream ends at record {record}, before its end: the program that sends it, or a copy of the stream, was cut; there is no \
         snapshot of it here: {}",
        what_repeats(*is_whole)
    )]
    Cut {
        /// The record that is not there.
        record: u64,
        /// It was to be a whole snapshot.
        is_whole: bool,
    },
    /// It is no stream of a snapshot.
    #[error("this is no stream of `weir send`")]
    Foreign,
    /// Another version of the program has made it.
    #[error(
        "the stream has version {0}, which this program does not know; use the program that has made it, or a newer one"
    )]
    Newer(u32),
    /// A record is damaged or missing.
    #[error("the stream is damaged at record {0}; nothing was taken from there on: send it again")]
    Damaged(u64),
    /// The volume is smaller than the one that was sent.
    #[error("the snapshot is of {needed} blocks, and this volume has {found}: receive it into a larger one")]
    TooSmall {
        /// Blocks that are needed.
        needed: u64,
        /// Blocks that are there.
        found: u64,
    },
    /// A whole snapshot is to be received where there is something.
    #[error("the volume holds data, and this is a whole snapshot: receive it into a new volume")]
    NotEmpty,
    /// The snapshot that the stream builds on is another one here.
    #[error("the snapshot {0} here is not the one that the stream builds on")]
    OtherBase(String),
    /// The volume or its disk.
    #[error("the volume: {0}")]
    Volume(#[from] Rejected),
}

/// What to do when a part of a stream was taken.
fn what_repeats(is_whole: bool) -> &'static str {
    if is_whole {
        "a part of the data is in the volume: make it anew (`weir volume create --force VOLUME --size SIZE`), and send it again"
    } else {
        "send it again; the volume goes back to the earlier snapshot then"
    }
}

impl From<io::Error> for StreamError {
    fn from(error: io::Error) -> StreamError {
        if error.kind() == io::ErrorKind::BrokenPipe { StreamError::Closed } else { StreamError::Io(error) }
    }
}

/// Sends a snapshot: all of it, or what has changed since the snapshot `from`.
///
/// # Errors
/// [`StreamError`].
pub async fn send(
    volume: &Rc<Volume>,
    name: &str,
    from: Option<&str>,
    output: &mut dyn Write,
) -> Result<StreamReport, StreamError> {
    let storage = BranchStorage::open(Rc::clone(volume), name)?;
    let found = volume.branches().find_snapshot(name)?;
    let base = from.map(|from| volume.branches().find_snapshot(from)).transpose()?;
    let header = header_of(volume, &found, base.as_ref());
    let stream = header.checksum.get();
    output.write_all(header.as_bytes())?;
    let mut report = StreamReport { name: found.name, from: base.map(|base| base.name), blocks: 0, zeros: 0 };
    let most = volume.capabilities().max_transfer_blocks.min(RECORD_BLOCKS_MAX);
    let mut number = 0;
    for page in volume.branches().pages_changed(from, name)? {
        for (extent, is_mapped) in volume.branches().runs_changed(page, from, name, most).await? {
            match is_mapped {
                true => {
                    let data = read(&storage, extent).await?;
                    write_record(output, RecordKind::Data, (stream, number), extent, &data)?;
                    report.blocks += u64::from(extent.blocks);
                }
                false => {
                    write_record(output, RecordKind::Zeros, (stream, number), extent, &[])?;
                    report.zeros += u64::from(extent.blocks);
                }
            }
            number += 1;
        }
    }
    write_record(output, RecordKind::End, (stream, number), Extent::new(Lba(0), 0), &[])?;
    output.flush()?;
    Ok(report)
}

fn header_of(volume: &Volume, found: &Branch, base: Option<&Branch>) -> StreamHeader {
    let mut header = StreamHeader {
        magic: STREAM_MAGIC,
        version: STREAM_VERSION.into(),
        checksum: 0.into(),
        logical_blocks: volume.blocks().into(),
        made: found.made.into(),
        identity: found.identity.into(),
        base_identity: base.map_or(0, |base| base.identity).into(),
        name: name_bytes(&found.name),
        base: base.map_or([0; 64], |base| name_bytes(&base.name)),
    };
    stamp_checksum(header.as_mut_bytes(), std::mem::offset_of!(StreamHeader, checksum));
    header
}

fn write_record(
    output: &mut dyn Write,
    kind: RecordKind,
    (stream, number): (u32, u64),
    extent: Extent,
    data: &[u8],
) -> io::Result<()> {
    let record = StreamRecord {
        checksum: 0.into(),
        kind: (kind as u32).into(),
        number: number.into(),
        first: extent.start.0.into(),
        blocks: extent.blocks.into(),
        stream: stream.into(),
    };
    let mut bytes = [record.as_bytes(), data].concat();
    stamp_checksum(&mut bytes, std::mem::offset_of!(StreamRecord, checksum));
    output.write_all(&bytes)
}

/// Receives a snapshot into a volume that nothing else uses: whole into one that holds nothing, or behind the snapshot that it was sent
/// against, to which the volume goes back first. The snapshot is made when the stream has ended well. Otherwise the volume holds part of
/// it, and the next stream begins as this one did.
///
/// # Errors
/// [`StreamError`].
pub async fn receive(volume: &Rc<Volume>, input: &mut dyn Read) -> Result<StreamReport, StreamError> {
    let header = read_header(input)?;
    let (needed, found) = (header.logical_blocks.get(), volume.blocks());
    if needed > found {
        return Err(StreamError::TooSmall { needed, found });
    }
    let name = name_from_bytes(&header.name).ok_or(StreamError::Foreign)?;
    volume.branches().require_room(&name)?;
    let from = begin_receiving(volume, &header).await?;
    let mut report = StreamReport { name, from, blocks: 0, zeros: 0 };
    receive_records(volume, input, (needed, header.checksum.get()), &mut report).await?;
    let made = (header.made.get(), header.identity.get());
    volume.branches().create_received(&report.name, made).await?;
    Ok(report)
}

fn read_header(input: &mut dyn Read) -> Result<StreamHeader, StreamError> {
    let mut header = StreamHeader::new_zeroed();
    let (first, rest) = header.as_mut_bytes().split_at_mut(1);
    input.read_exact(first).map_err(|error| cut_at(error, StreamError::Empty))?;
    input.read_exact(rest).map_err(|error| cut_at(error, StreamError::Foreign))?;
    if header.magic != STREAM_MAGIC {
        return Err(StreamError::Foreign);
    }
    if header.version.get() != STREAM_VERSION {
        return Err(StreamError::Newer(header.version.get()));
    }
    let is_whole = checksum_matches(header.as_bytes(), std::mem::offset_of!(StreamHeader, checksum));
    if is_whole { Ok(header) } else { Err(StreamError::Damaged(0)) }
}

/// The error of a stream that ends where bytes are missing.
fn cut_at(error: io::Error, cut: StreamError) -> StreamError {
    if error.kind() == io::ErrorKind::UnexpectedEof { cut } else { error.into() }
}

/// Takes the volume to where the stream begins: the name of the snapshot there.
async fn begin_receiving(volume: &Volume, header: &StreamHeader) -> Result<Option<String>, StreamError> {
    if header.base == [0; 64] {
        return if volume.next_data(Lba(0)).is_none() { Ok(None) } else { Err(StreamError::NotEmpty) };
    }
    let base = name_from_bytes(&header.base).ok_or(StreamError::Foreign)?;
    let found = volume.branches().find_snapshot(&base)?;
    if found.identity != header.base_identity.get() {
        return Err(StreamError::OtherBase(base));
    }
    volume.roll_back(&base).await?;
    Ok(Some(base))
}

async fn receive_records(
    volume: &Volume,
    input: &mut dyn Read,
    (blocks, stream): (u64, u32),
    report: &mut StreamReport,
) -> Result<(), StreamError> {
    for number in 0.. {
        let damaged = || StreamError::Damaged(number);
        let cut = || StreamError::Cut { record: number, is_whole: report.from.is_none() };
        let mut bytes = vec![0; size_of::<StreamRecord>()];
        input.read_exact(&mut bytes).map_err(|error| cut_at(error, cut()))?;
        let record = StreamRecord::read_from_bytes(&bytes).map_err(|_| damaged())?;
        let (first, count) = (record.first.get(), record.blocks.get());
        let is_inside = first.checked_add(count.into()).is_some_and(|end| end <= blocks);
        let is_next = record.number.get() == number && record.stream.get() == stream;
        if !is_next || !is_inside || count > RECORD_BLOCKS_MAX {
            return Err(damaged());
        }
        let extent = Extent::new(Lba(first), count);
        let has_data = record.kind.get() == RecordKind::Data as u32;
        if has_data {
            bytes.resize(size_of::<StreamRecord>() + extent.bytes(), 0);
            let data = &mut bytes[size_of::<StreamRecord>()..];
            input.read_exact(data).map_err(|error| cut_at(error, cut()))?;
        }
        if !checksum_matches(&bytes, std::mem::offset_of!(StreamRecord, checksum)) {
            return Err(damaged());
        }
        if has_data && count > 0 {
            write_blocks(volume, extent, &bytes[size_of::<StreamRecord>()..]).await?;
            report.blocks += u64::from(count);
        } else if record.kind.get() == RecordKind::Zeros as u32 && count > 0 {
            submit_when_free(volume, Command::Discard(&[extent])).await?;
            report.zeros += u64::from(count);
        } else {
            let is_end = record.kind.get() == RecordKind::End as u32 && count == 0 && first == 0;
            return if is_end { Ok(()) } else { Err(damaged()) };
        }
    }
    Ok(())
}

/// Writes blocks in as many commands as the volume takes them.
async fn write_blocks(volume: &Volume, extent: Extent, data: &[u8]) -> Result<(), Rejected> {
    let most = volume.capabilities().max_transfer_blocks as usize * BLOCK_BYTES;
    let mut start = extent.start;
    for bytes in data.chunks(most) {
        let part = [Part::bytes(start, bytes)];
        submit_when_free(volume, Command::Write(weir_storage::Write::new(&part))).await?;
        start = start.offset((bytes.len() / BLOCK_BYTES) as u64);
    }
    Ok(())
}
