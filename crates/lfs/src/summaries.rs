//! Summaries of segments on the disk.

use weir_f2fs::{Layout, SegmentNumber, SummaryBlock, read_block};
use weir_format::{FormatError, Place, Structure};
use weir_vfs::{FsError, StorageImage};

/// The summary of a segment as the disk has it.
pub(crate) async fn read_summary(
    image: &StorageImage,
    layout: &Layout,
    segment: SegmentNumber,
) -> Result<Box<SummaryBlock>, FsError> {
    let corrupt = || FormatError::corrupt(Structure::Summary, Place::Segment(segment.0), "its place");
    let place = layout.summary_block(segment).ok_or_else(corrupt)?;
    let bytes = read_block(image, place).await?;
    Ok(SummaryBlock::read(&bytes[..], Place::Segment(segment.0))?)
}
