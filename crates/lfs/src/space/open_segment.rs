//! The open segment of a log.

use weir_f2fs::{
    Allocation, CheckpointHeader, FormatError, Log, LogState, Place, SegmentNumber, Structure, SummaryBlock,
    SummaryKind,
};

/// The segment that a log appends to.
pub(crate) struct OpenSegment {
    /// Which it is.
    pub(crate) segment: SegmentNumber,
    /// Its next block: 0 to 511.
    pub(crate) next: u32,
    /// Whose its blocks are.
    pub(crate) summary: Box<SummaryBlock>,
}

/// What a log's segments hold.
pub(super) fn kind_of(log: Log) -> SummaryKind {
    if log.is_node() { SummaryKind::Node } else { SummaryKind::Data }
}

impl OpenSegment {
    /// An empty one.
    pub(super) fn new(segment: SegmentNumber, kind: SummaryKind) -> OpenSegment {
        OpenSegment { segment, next: 0, summary: SummaryBlock::new(kind) }
    }

    /// As a checkpoint has it.
    pub(super) fn from_header(
        header: &CheckpointHeader,
        log: Log,
        summary: Box<SummaryBlock>,
    ) -> Result<OpenSegment, FormatError> {
        let corrupt = || FormatError::corrupt(Structure::Checkpoint, Place::Block(0), "allocation of a log");
        let LogState { segment, next, .. } = header.log(log).ok_or_else(corrupt)?;
        Ok(OpenSegment { segment, next, summary })
    }

    /// As a checkpoint has it.
    pub(super) fn state(&self) -> LogState {
        LogState { segment: self.segment, next: self.next, allocation: Allocation::Append }
    }
}
