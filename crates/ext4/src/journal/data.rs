//! Checksums of file data in the log: what a transaction says of blocks that it has written in place, and not logged
//! (*Optimistic Crash Consistency*, SOSP 2013: data may be missing behind a commit block as log blocks may). A block of the
//! log of a type of its own holds them:
//!
//! ```text
//! bytes 0..12      header: magic number, type 10, transaction
//! bytes 12..16     records
//! bytes 16..       records: home (8), checksum of its content, as copies have it, seeded with the journal's UUID (4)
//! last 4 bytes     the same over the block
//! ```
//!
//! A record holds until a later transaction logs a copy of the block or revokes it: only then may the home change. So
//! recovery takes the longest run of transactions at whose end every record that still holds is right. What was durable
//! is never cut off: whatever has changed a home since was said by a transaction that was durable before.

use std::collections::BTreeMap;

use weir_format::BLOCK_BYTES;

use super::block::{BlockType, LogFormat, TornOr, block_head, put};
use super::replay::LogReader;
use super::ring::Sequence;

const COUNT: usize = 12;
const FIRST: usize = 16;
const RECORD_BYTES: usize = 12;
const CHECKSUM_AT: usize = BLOCK_BYTES - 4;
/// Records in a block: 339.
const RECORDS_MAX: usize = (CHECKSUM_AT - FIRST) / RECORD_BYTES;

/// Encodes what a transaction says of blocks that it has written in place: pairs of a home and its content. None without
/// any.
pub fn encode_data_checksums<'a>(
    format: &LogFormat,
    sequence: Sequence,
    written: impl IntoIterator<Item = (u64, &'a [u8])>,
) -> Vec<Box<[u8; BLOCK_BYTES]>> {
    let records: Vec<(u64, u32)> =
        written.into_iter().map(|(home, content)| (home, format.data_checksum(content))).collect();
    records.chunks(RECORDS_MAX).map(|records| format.encode_records(sequence, records)).collect()
}

impl LogFormat {
    fn data_checksum(&self, content: &[u8]) -> u32 {
        self.content_checksum(self.checksum_seed.unwrap_or(0), &[content])
    }

    fn encode_records(&self, sequence: Sequence, records: &[(u64, u32)]) -> Box<[u8; BLOCK_BYTES]> {
        let mut block = Box::new([0; BLOCK_BYTES]);
        block_head(&mut block, BlockType::DataChecksums, sequence);
        put(&mut block[..], COUNT, records.len() as u32);
        for (slot, (home, checksum)) in block[FIRST..].chunks_exact_mut(RECORD_BYTES).zip(records) {
            slot[..8].copy_from_slice(&home.to_be_bytes());
            slot[8..].copy_from_slice(&checksum.to_be_bytes());
        }
        let sum = self.data_checksum(&block[..CHECKSUM_AT]);
        put(&mut block[..], CHECKSUM_AT, sum);
        block
    }

    /// The homes and checksums that a block holds; `None` if it cannot have so many.
    pub(super) fn decode_records(&self, block: &[u8; BLOCK_BYTES]) -> Option<TornOr<Vec<(u64, u32)>>> {
        let word = |at: usize| block[at..at + 4].iter().fold(0, |high, byte| high << 8 | u32::from(*byte));
        let count = usize::try_from(word(COUNT)).ok().filter(|count| *count <= RECORDS_MAX)?;
        let record = |nth: usize| {
            let at = FIRST + nth * RECORD_BYTES;
            (u64::from(word(at)) << 32 | u64::from(word(at + 4)), word(at + 8))
        };
        let whole = word(CHECKSUM_AT) == self.data_checksum(&block[..CHECKSUM_AT]);
        Some(TornOr { whole, value: (0..count).map(record).collect() })
    }
}

/// What the transactions of a log say of a block in place, each as a count from the first: it holds something with this
/// checksum; or, none, it may have changed from then on.
type Said = Vec<(u32, Option<u32>)>;

/// What a log says of data in place, by home.
#[derive(Default)]
pub(super) struct CheckedData(BTreeMap<u64, Said>);

impl CheckedData {
    /// A transaction has written a block in place.
    pub(super) fn written(&mut self, transaction: u32, home: u64, checksum: u32) {
        self.0.entry(home).or_default().push((transaction, Some(checksum)));
    }

    /// A transaction has logged or revoked a block, which may change then.
    pub(super) fn let_go(&mut self, transaction: u32, home: u64) {
        if let Some(said) = self.0.get_mut(&home) {
            said.push((transaction, None));
        }
    }

    /// Of so many transactions, the most from the first on that leave nothing whose checksum is wrong.
    pub(super) async fn whole<R: LogReader>(
        &self,
        format: &LogFormat,
        transactions: u32,
        log: &R,
    ) -> Result<u32, R::Error> {
        // How many wrong records hold at the end of so many transactions, as differences.
        let mut wrong = vec![0_i64; transactions as usize + 2];
        let mut content = Box::new([0; BLOCK_BYTES]);
        for (home, said) in &self.0 {
            log.read_home(*home, &mut content).await?;
            let found = format.data_checksum(&content[..]);
            for (nth, (from, checksum)) in said.iter().enumerate() {
                if checksum.is_some_and(|checksum| checksum != found) {
                    let until = said.get(nth + 1).map_or(transactions, |(until, _)| *until);
                    wrong[*from as usize + 1] += 1;
                    wrong[until as usize + 1] -= 1;
                }
            }
        }
        let (mut holding, mut whole) = (0, 0);
        for (length, change) in (0..=transactions).zip(wrong) {
            holding += change;
            if holding == 0 {
                whole = length;
            }
        }
        Ok(whole)
    }
}
