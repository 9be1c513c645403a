//! *Record*: all that a program did to a mount, in order.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::disk_record::DiskRecord;
use crate::operation::{Call, Operation};
use crate::tree::Tree;

/// Operations that are recorded at most.
pub const OPERATIONS_MAX: usize = 4 << 20;
/// Bytes of acknowledged lines at most.
pub const LINES_BYTES_MAX: usize = 64 << 20;
/// Bytes of a line at most.
pub const LINE_BYTES_MAX: usize = 64 << 10;
/// Bytes of written data that are kept in memory; more of them are in a file without a name.
const MEMORY_BYTES: u64 = 256 << 20;

/// Why a run cannot be recorded any further.
#[derive(Debug, Error)]
pub enum RecordError {
    /// It wrote too much.
    #[error("the run wrote more than {0} bytes: make it shorter, or allow more by --record-bytes")]
    TooMuchData(u64),
    /// It made too many calls.
    #[error("the run made more than {OPERATIONS_MAX} calls that change something: make it shorter")]
    TooManyOperations,
    /// It acknowledged too much.
    #[error("the run acknowledged more than {LINES_BYTES_MAX} bytes: acknowledge less, such as a number")]
    TooManyLines,
    /// A line does not end.
    #[error("an acknowledgement is longer than {LINE_BYTES_MAX} bytes: end each with a line feed")]
    LongLine,
    /// What does not fit into memory cannot be kept.
    #[error("cannot keep what the run wrote in a temporary file: {0}: free space there, or set TMPDIR")]
    Spill(#[source] io::Error),
}

/// The bytes that were written, one write after the other: in memory up to a limit, and from there on in a file.
#[derive(Debug, Default)]
pub struct WrittenData {
    memory: Vec<u8>,
    spilled: Option<(File, u64)>,
}

impl WrittenData {
    /// Bytes of a trace.
    #[must_use]
    pub fn from_bytes(memory: Vec<u8>) -> WrittenData {
        WrittenData { memory, spilled: None }
    }

    /// How many there are.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.memory.len() as u64 + self.spilled.as_ref().map_or(0, |(_, bytes)| *bytes)
    }

    /// Appends; where it is.
    fn push(&mut self, bytes: &[u8]) -> io::Result<Range<u64>> {
        let (from, length) = (self.bytes(), bytes.len() as u64);
        if self.spilled.is_none() && from + length <= MEMORY_BYTES {
            self.memory.extend_from_slice(bytes);
        } else {
            if self.spilled.is_none() {
                self.spilled = Some((tempfile::tempfile()?, 0));
            }
            if let Some((file, there)) = &mut self.spilled {
                file.write_all_at(bytes, *there)?;
                *there += length;
            }
        }
        Ok(from..from + length)
    }

    /// Reads a part of it that is in it.
    ///
    /// # Errors
    /// What the file fails by, and `InvalidInput` for a part that is not in it.
    pub fn read(&self, range: &Range<u64>) -> io::Result<Vec<u8>> {
        let in_memory = self.memory.len() as u64;
        if range.start > range.end || range.end > self.bytes() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if range.end <= in_memory {
            return Ok(self.memory[range.start as usize..range.end as usize].to_vec());
        }
        let mut bytes = vec![0; (range.end - range.start) as usize];
        let (file, _) = self.spilled.as_ref().ok_or(io::ErrorKind::InvalidInput)?;
        // A write lies in one of the two.
        let from = range.start.checked_sub(in_memory).ok_or(io::ErrorKind::InvalidInput)?;
        file.read_exact_at(&mut bytes, from)?;
        Ok(bytes)
    }
}

/// A process that made calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number; 0 for pages of a mapping that the kernel wrote back.
    pub id: u32,
    /// The name of its command.
    pub command: String,
}

/// A recorded run.
#[derive(Debug)]
pub struct Record {
    /// Who owns the root directory.
    pub owner: (u32, u32),
    /// What was done, in order.
    pub operations: Vec<Operation>,
    /// Of these, those that made what the run begins with.
    pub setup: usize,
    /// What was written.
    pub data: WrittenData,
    /// The lines that were acknowledged, without the line feeds.
    pub lines: Vec<Vec<u8>>,
    /// The processes.
    pub processes: Vec<Process>,
    /// The disk that it is the record of; none of a mount.
    pub disk: Option<DiskRecord>,
    line_bytes: usize,
    data_max: u64,
    error: Option<RecordError>,
}

impl Record {
    /// Of a run that has done nothing yet, and may write so many bytes.
    #[must_use]
    pub fn new(owner: (u32, u32), data_max: u64) -> Record {
        Record {
            owner,
            operations: Vec::new(),
            setup: 0,
            data: WrittenData::default(),
            lines: Vec::new(),
            processes: vec![Process { id: 0, command: "kernel".to_owned() }],
            disk: None,
            line_bytes: 0,
            data_max,
            error: None,
        }
    }

    /// Why it ended, if it did.
    pub fn take_error(&mut self) -> Option<RecordError> {
        self.error.take()
    }

    /// Whether something more can be recorded.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.error.is_none()
    }

    fn fail(&mut self, error: RecordError) -> bool {
        self.error.get_or_insert(error);
        false
    }

    /// Adds a call of a process: whether it was recorded.
    pub fn push(&mut self, process: usize, call: Call) -> bool {
        if self.operations.len() >= OPERATIONS_MAX {
            return self.fail(RecordError::TooManyOperations);
        }
        self.operations.push(Operation { process, call });
        self.is_open()
    }

    /// Adds what is written; where it is, unless the record has ended.
    pub fn push_data(&mut self, bytes: &[u8]) -> Option<Range<u64>> {
        if self.data.bytes() + bytes.len() as u64 > self.data_max {
            self.fail(RecordError::TooMuchData(self.data_max));
            return None;
        }
        match self.data.push(bytes) {
            Ok(range) => Some(range),
            Err(error) => {
                self.fail(RecordError::Spill(error));
                None
            }
        }
    }

    /// Adds a line that was acknowledged.
    pub fn acknowledge(&mut self, process: usize, line: Vec<u8>) {
        self.line_bytes += line.len() + 1;
        if line.len() > LINE_BYTES_MAX {
            self.fail(RecordError::LongLine);
        } else if self.line_bytes > LINES_BYTES_MAX {
            self.fail(RecordError::TooManyLines);
        } else {
            self.lines.push(line);
            self.push(process, Call::Acknowledge(self.lines.len() - 1));
        }
    }

    /// The bytes of a write; none for other calls.
    ///
    /// # Errors
    /// What reading them fails by.
    pub fn data_of(&self, call: &Call) -> io::Result<Vec<u8>> {
        match call {
            Call::Write { data, .. } => self.data.read(data),
            _ => Ok(Vec::new()),
        }
    }

    /// How many of the run's operations until then asked for something: all but acknowledgements.
    pub(crate) fn requests(&self, until: usize) -> usize {
        let is_request = |operation: &&Operation| !matches!(operation.call, Call::Acknowledge(_));
        self.operations[self.setup..until].iter().filter(is_request).count()
    }

    /// The tree after so many operations.
    ///
    /// # Errors
    /// What reading the bytes of a write fails by.
    pub fn tree_after(&self, operations: usize) -> io::Result<Tree> {
        let mut tree = Tree::new(self.owner);
        for operation in &self.operations[..operations] {
            operation.call.apply(&mut tree, &self.data_of(&operation.call)?);
        }
        Ok(tree)
    }
}
