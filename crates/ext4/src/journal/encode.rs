//! The writer's side: a transaction as blocks of the log.

use weir_format::{BLOCK_BYTES, FormatError};

use super::MAGIC;
use super::block::{LogFormat, Tag};
use super::ring::Sequence;

/// A block of JD, in the order in which the log holds them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogBlock {
    /// A descriptor or revoke block.
    Own(Box<[u8; BLOCK_BYTES]>),
    /// The copy with this index.
    Copy(usize),
}

/// Encodes JD of a transaction: revoke blocks for `revokes`, and for `copies`, pairs of a home block and its
/// bytes, descriptor blocks each before what it describes. Copies are escaped in place, so they are copies:
/// immutable from here on, and never the page itself (rule J4).
///
/// # Errors
///
/// [`FormatError::Invalid`] for a copy that is not 4,096 bytes long, an address that the log cannot hold, or
/// a block that is both copied and revoked: its copy would never be replayed. A writer that changes a block
/// again cancels its revocation.
pub fn encode_transaction<B: AsRef<[u8]> + AsMut<[u8]>>(
    format: &LogFormat,
    sequence: Sequence,
    revokes: &[u64],
    copies: &mut [(u64, B)],
) -> Result<Vec<LogBlock>, FormatError> {
    check(format, revokes, copies)?;
    let mut blocks = Vec::with_capacity(format.transaction_blocks(copies.len(), revokes.len()));
    for homes in revokes.chunks(format.revokes_per_block()) {
        let mut block = empty();
        format.encode_revoke(sequence, homes, &mut block);
        blocks.push(LogBlock::Own(block));
    }
    let per_descriptor = format.tags_per_descriptor();
    for (batch, described) in copies.chunks_mut(per_descriptor).enumerate() {
        let tags: Vec<Tag> = described.iter_mut().map(|copy| tag(format, sequence, copy)).collect();
        let mut block = empty();
        format.encode_descriptor(sequence, &tags, &mut block);
        blocks.push(LogBlock::Own(block));
        blocks.extend((0..tags.len()).map(|index| LogBlock::Copy(batch * per_descriptor + index)));
    }
    Ok(blocks)
}

/// Encodes JC of a transaction: its commit block, with the time since 1970.
pub fn encode_commit(
    format: &LogFormat,
    sequence: Sequence,
    seconds: u64,
    nanoseconds: u32,
) -> Box<[u8; BLOCK_BYTES]> {
    let mut block = empty();
    format.encode_commit_block(sequence, seconds, nanoseconds, &mut block);
    block
}

fn check<B: AsRef<[u8]>>(
    format: &LogFormat,
    revokes: &[u64],
    copies: &[(u64, B)],
) -> Result<(), FormatError> {
    if copies.iter().any(|(_, bytes)| bytes.as_ref().len() != BLOCK_BYTES) {
        return Err(FormatError::Invalid { what: "a journaled block has 4,096 bytes" });
    }
    let mut homes = copies.iter().map(|&(home, _)| home);
    if !homes.clone().chain(revokes.iter().copied()).all(|home| format.can_address(home)) {
        return Err(FormatError::Invalid { what: "this journal addresses blocks with 32 bits" });
    }
    let mut sorted = revokes.to_vec();
    sorted.sort_unstable();
    if homes.any(|home| sorted.binary_search(&home).is_ok()) {
        return Err(FormatError::Invalid { what: "a block is journaled or revoked, not both" });
    }
    Ok(())
}

/// Escapes a copy that begins as the log's own blocks do; whether it did. Asks for mutable bytes only then: a caller may
/// have to clone them for that.
pub(super) fn escape<B: AsRef<[u8]> + AsMut<[u8]>>(copy: &mut B) -> bool {
    let escaped = copy.as_ref().starts_with(&MAGIC);
    if escaped {
        copy.as_mut()[..MAGIC.len()].fill(0);
    }
    escaped
}

fn tag<B: AsRef<[u8]> + AsMut<[u8]>>(
    format: &LogFormat,
    sequence: Sequence,
    (home, copy): &mut (u64, B),
) -> Tag {
    let escaped = escape(copy);
    Tag { home: *home, escaped, checksum: format.copy_checksum(sequence, copy.as_ref()) }
}

fn empty() -> Box<[u8; BLOCK_BYTES]> {
    Box::new([0; BLOCK_BYTES])
}
