//! Replies as bytes.

use weir_export::Extent;
use zerocopy::IntoBytes as _;
use zerocopy::byteorder::big_endian::{U16, U32, U64};

use crate::protocol::{
    ALLOCATION_ID, CHUNK_MAGIC, ChunkHeader, HOLE_READS_ZERO, SIMPLE_REPLY_MAGIC, SimpleReply, chunk,
};

/// The number of success.
pub(crate) const NO_ERROR: u32 = 0;

/// A simple reply, with room for so many bytes of data behind it.
pub(crate) fn simple_reply(cookie: u64, error: u32, data_bytes: usize) -> Vec<u8> {
    let header = SimpleReply { magic: SIMPLE_REPLY_MAGIC.into(), error: error.into(), cookie: cookie.into() };
    let mut reply = Vec::with_capacity(size_of::<SimpleReply>() + data_bytes);
    reply.extend_from_slice(header.as_bytes());
    reply
}

/// A chunk that is the only one of its reply, with room for so many bytes, which follow.
fn only_chunk(cookie: u64, kind: u16, bytes: u32) -> Vec<u8> {
    let header = ChunkHeader {
        magic: CHUNK_MAGIC.into(),
        flags: U16::new(chunk::DONE),
        kind: kind.into(),
        cookie: cookie.into(),
        length: bytes.into(),
    };
    let mut reply = Vec::with_capacity(size_of::<ChunkHeader>() + bytes as usize);
    reply.extend_from_slice(header.as_bytes());
    reply
}

/// A structured reply to a read of so many bytes at `offset`, which follow.
pub(crate) fn data_chunk(cookie: u64, offset: u64, bytes: u32) -> Vec<u8> {
    let mut reply = only_chunk(cookie, chunk::OFFSET_DATA, bytes + size_of::<U64>() as u32);
    reply.extend_from_slice(&offset.to_be_bytes());
    reply
}

/// Extents in turn, each with the state of its blocks.
pub(crate) fn status_chunk(cookie: u64, extents: &[Extent]) -> Vec<u8> {
    let bytes = size_of::<U32>() + extents.len() * 2 * size_of::<U32>();
    let mut reply = only_chunk(cookie, chunk::BLOCK_STATUS, bytes as u32);
    reply.extend_from_slice(&ALLOCATION_ID.to_be_bytes());
    for Extent { bytes, reads_zeros } in extents {
        // A request is about fewer than 4 GiB.
        reply.extend_from_slice(&(*bytes as u32).to_be_bytes());
        reply.extend_from_slice(&if *reads_zeros { HOLE_READS_ZERO } else { 0 }.to_be_bytes());
    }
    reply
}

/// What went wrong, with a text for people.
pub(crate) fn error_chunk(cookie: u64, error: u32, cause: &str) -> Vec<u8> {
    let text = &cause.as_bytes()[..cause.len().min(1024)];
    let bytes = size_of::<U32>() + size_of::<U16>() + text.len();
    let mut reply = only_chunk(cookie, chunk::ERROR, bytes as u32);
    reply.extend_from_slice(&error.to_be_bytes());
    reply.extend_from_slice(&(text.len() as u16).to_be_bytes());
    reply.extend_from_slice(text);
    reply
}
