//! An object of the log: requests in order, or a part of a catch-up group.

use bytes::Bytes;
use weir_storage::BLOCK_BYTES;
use weir_volume::{Change, LogEntry};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::envelope::{
    self, EnvelopeMaker, EnvelopeOpener, Envelopes, Hash, ObjectKind, Opened, Outline, hash_at_end,
};
use crate::error::{Defect, ReplicaError};
use crate::key::LogPlace;

const ENDS: u32 = 1;
const CATCH_UP: u32 = 2;
const LAST_OF_REQUEST: u32 = 1 << 31;
/// An object of so many bytes is hashed, compressed and encrypted on a thread of its own: programs on a mount would wait for that.
const LARGE_BYTES: usize = 256 << 10;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct LogHeader {
    first: U64,
    last: U64,
    generation: U64,
    part: U32,
    flags: U32,
    entries: U32,
    data_blocks: U32,
    group: U32,
    reserved: U32,
    previous: Hash,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct EntryOnDisk {
    lba: U32,
    word: U32,
    info: U32,
}

const HEADER_BYTES: usize = size_of::<LogHeader>();
/// Bytes of an entry.
pub(crate) const ENTRY_BYTES: usize = size_of::<EntryOnDisk>();
const _: () = assert!(HEADER_BYTES == 80 && ENTRY_BYTES == 12);

/// Bytes at the beginning of an object that say its shape.
pub(crate) const HEAD_BYTES: usize = envelope::HEADER_BYTES + HEADER_BYTES;

/// How the data blocks of an object lie in its bytes, as its head says, unproved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// As they are.
    Plain {
        /// The first byte of the first one.
        data_at: u64,
        /// How many.
        blocks: u32,
    },
    /// Compressed or encrypted, with all else.
    Packed,
}

impl Shape {
    /// `None` if it is the head of no object of the log.
    pub(crate) fn from_head(head: &[u8]) -> Option<Shape> {
        let outline = Outline::from_head(head, ObjectKind::Log)?;
        if outline.is_packed {
            return Some(Shape::Packed);
        }
        let (header, _) = LogHeader::read_from_prefix(head.get(envelope::HEADER_BYTES..)?).ok()?;
        let entry_bytes = u64::from(header.entries.get()) * ENTRY_BYTES as u64;
        let blocks = header.data_blocks.get();
        let body = HEADER_BYTES as u64 + entry_bytes + u64::from(blocks) * BLOCK_BYTES as u64;
        let data_at = HEAD_BYTES as u64 + entry_bytes;
        (body == u64::from(outline.body_bytes)).then_some(Shape::Plain { data_at, blocks })
    }
}

/// An object of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogObject {
    pub place: LogPlace,
    /// The last request in it; one before the first if there is none. Of an object of a catch-up group that others follow: the request
    /// that the group began at, in the first one, and one that is durable and no older than anything in it, in a later one.
    pub last: u64,
    /// The generation of the volume's log.
    pub generation: u64,
    /// The part that its group begins with.
    pub group: u32,
    /// The last object of its group: the group counts.
    pub ends: bool,
    /// A part of a catch-up group: the state is that after `last`, and there is none between.
    pub catch_up: bool,
    /// Hash of the object before it.
    pub previous: Hash,
    pub entries: Vec<LogEntry>,
    /// A block for each entry that writes.
    pub data: Bytes,
}

/// Where the log of a replica ends: what the next object has to follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChainEnd {
    /// The place of the next object.
    pub next: LogPlace,
    /// Hash of the newest object; zeros before the first.
    pub hash: Hash,
    /// A group has begun with this part, and its last object is missing.
    pub open_group: Option<u32>,
}

impl ChainEnd {
    /// Before the first object.
    pub(crate) fn start() -> ChainEnd {
        ChainEnd { next: LogPlace { first: 1, part: 0 }, hash: Hash::default(), open_group: None }
    }

    /// Behind this object, which has this hash.
    pub(crate) fn behind(object: &LogObject, hash: Hash) -> ChainEnd {
        let LogPlace { first, part } = object.place;
        let next = if object.ends && object.last >= first {
            LogPlace { first: object.last.saturating_add(1), part: 0 }
        } else {
            LogPlace { first, part: part.saturating_add(1) }
        };
        ChainEnd { next, hash, open_group: (!object.ends).then_some(object.group) }
    }

    /// Whether this object comes next.
    pub(crate) fn is_followed_by(&self, object: &LogObject) -> bool {
        object.place == self.next
            && object.previous == self.hash
            && (self.open_group == Some(object.group) || object.begins())
    }

    /// The newest request that counts.
    pub(crate) fn last(&self) -> u64 {
        self.next.first - 1
    }
}

impl LogObject {
    /// The object with its envelope, and its hash.
    pub(crate) fn encode(&self, maker: EnvelopeMaker) -> Result<(Bytes, Hash), ReplicaError> {
        let flag = |is_set, bit| if is_set { bit } else { 0 };
        let flags = flag(self.ends, ENDS) | flag(self.catch_up, CATCH_UP);
        let header = LogHeader {
            first: self.place.first.into(),
            last: self.last.into(),
            generation: self.generation.into(),
            part: self.place.part.into(),
            flags: flags.into(),
            entries: (self.entries.len() as u32).into(),
            data_blocks: ((self.data.len() / BLOCK_BYTES) as u32).into(),
            group: self.group.into(),
            reserved: 0.into(),
            previous: self.previous,
        };
        let mut body = Vec::with_capacity(HEADER_BYTES + self.entries.len() * ENTRY_BYTES + self.data.len());
        body.extend_from_slice(header.as_bytes());
        for entry in &self.entries {
            body.extend_from_slice(encode_entry(entry).as_bytes());
        }
        body.extend_from_slice(&self.data);
        let bytes = maker.wrap(&self.place.key(), &body)?;
        let hash = hash_at_end(&bytes);
        Ok((bytes, hash))
    }

    /// Does the same on a thread of its own, where that takes long, and returns the object besides.
    pub(crate) async fn encode_in_thread(
        self,
        envelopes: &Envelopes,
    ) -> Result<(LogObject, Bytes, Hash), ReplicaError> {
        let (maker, is_large) = (envelopes.maker(ObjectKind::Log), self.data.len() >= LARGE_BYTES);
        let encode = move || {
            let (bytes, hash) = self.encode(maker)?;
            Ok((self, bytes, hash))
        };
        if !is_large {
            return encode();
        }
        envelopes.handle().blocking(encode).await.map_err(|_| ReplicaError::NoThread)?
    }

    /// Reads the object at a place; what else its envelope says comes with it.
    pub(crate) fn decode(
        opener: &EnvelopeOpener,
        place: LogPlace,
        bytes: &Bytes,
    ) -> Result<(LogObject, Opened), ReplicaError> {
        let key = place.key();
        let mut opened = opener.open(&key, ObjectKind::Log, bytes)?;
        let body = std::mem::take(&mut opened.body);
        let object = LogObject::from_body(&body).filter(|object| object.place == place);
        let object = object.ok_or(ReplicaError::Damaged { key, defect: Defect::Content })?;
        Ok((object, opened))
    }

    /// Does the same on a thread of its own, where that takes long.
    pub(crate) async fn decode_in_thread(
        envelopes: &Envelopes,
        place: LogPlace,
        bytes: Bytes,
    ) -> Result<(LogObject, Opened), ReplicaError> {
        let opener = envelopes.opener().clone();
        if bytes.len() < LARGE_BYTES {
            return LogObject::decode(&opener, place, &bytes);
        }
        let decode = move || LogObject::decode(&opener, place, &bytes);
        envelopes.handle().blocking(decode).await.map_err(|_| ReplicaError::NoThread)?
    }

    fn from_body(body: &Bytes) -> Option<LogObject> {
        let (header, rest) = LogHeader::read_from_prefix(body).ok()?;
        let entry_bytes = (header.entries.get() as usize).checked_mul(ENTRY_BYTES)?;
        let (entries, data) = rest.split_at_checked(entry_bytes)?;
        let entries: Option<Vec<LogEntry>> = entries.chunks_exact(ENTRY_BYTES).map(decode_entry).collect();
        let entries = entries?;
        let writes = entries.iter().filter(|entry| matches!(entry.change, Change::Write(_))).count();
        let flags = header.flags.get();
        let object = LogObject {
            place: LogPlace { first: header.first.get(), part: header.part.get() },
            last: header.last.get(),
            generation: header.generation.get(),
            group: header.group.get(),
            ends: flags & ENDS != 0,
            catch_up: flags & CATCH_UP != 0,
            previous: header.previous,
            entries,
            data: body.slice(body.len() - data.len()..),
        };
        let whole = data.len() == writes * BLOCK_BYTES
            && writes == header.data_blocks.get() as usize
            && flags & !(ENDS | CATCH_UP) == 0
            && object.is_consistent();
        whole.then_some(object)
    }

    fn is_consistent(&self) -> bool {
        let requests = self.entries.iter().filter(|entry| entry.last).count() as u64;
        let ends_whole = self.entries.last().is_none_or(|entry| entry.last);
        let LogPlace { first, .. } = self.place;
        let counted = first.checked_add(requests) == self.last.checked_add(1);
        // Only the parts of a catch-up group have fewer or more requests than numbers.
        first > 0
            && ends_whole
            && self.group <= self.place.part
            && (self.catch_up || counted && self.begins() && self.ends)
    }

    /// Whether it is the first object of its group.
    pub(crate) fn begins(&self) -> bool {
        self.group == self.place.part
    }

    /// The requests in it up to number `to`, each with its entries and the first of its data blocks.
    pub(crate) fn requests(&self, to: u64) -> Vec<(&[LogEntry], usize)> {
        let mut requests = Vec::new();
        let (mut number, mut begin, mut data, mut next_data) = (self.place.first, 0, 0, 0);
        for (at, entry) in self.entries.iter().enumerate() {
            next_data += usize::from(matches!(entry.change, Change::Write(_)));
            if !entry.last {
                continue;
            }
            if number > to && !self.catch_up {
                break;
            }
            requests.push((&self.entries[begin..=at], data));
            (number, begin, data) = (number + 1, at + 1, next_data);
        }
        requests
    }

    /// A data block.
    pub(crate) fn block(&self, index: usize) -> Option<&[u8]> {
        self.data.get(index.checked_mul(BLOCK_BYTES)?..)?.get(..BLOCK_BYTES)
    }
}

fn encode_entry(entry: &LogEntry) -> EntryOnDisk {
    let (kind, word) = match entry.change {
        Change::Write(checksum) => (1, checksum),
        Change::Discard(blocks) => (2, blocks),
        Change::Share(from) => (3, from),
        Change::Nothing => (4, 0),
    };
    let info = if entry.last { kind | LAST_OF_REQUEST } else { kind };
    EntryOnDisk { lba: entry.lba.into(), word: word.into(), info: info.into() }
}

fn decode_entry(bytes: &[u8]) -> Option<LogEntry> {
    let entry = EntryOnDisk::read_from_bytes(bytes).ok()?;
    let (info, word) = (entry.info.get(), entry.word.get());
    let change = match info & !LAST_OF_REQUEST {
        1 => Change::Write(word),
        2 => Change::Discard(word),
        3 => Change::Share(word),
        4 => Change::Nothing,
        _ => return None,
    };
    Some(LogEntry { lba: entry.lba.get(), change, last: info & LAST_OF_REQUEST != 0 })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use weir_runtime::{Runtime, Simulation};
    use weir_storage::Rules;

    use super::*;
    use crate::envelope::{BODY_BYTES_MAX, EncryptionKey};

    #[test]
    fn nothing_is_wrapped_that_is_not_opened() {
        let runtime = Runtime::simulated(Simulation::default());
        let key = EncryptionKey::from_hex(&"7a".repeat(32));
        let envelopes = Envelopes::new(&runtime.handle(), key.as_ref(), false, Rules::all());
        let mut body = vec![0; BODY_BYTES_MAX];
        let wrapped = envelopes.wrap("log/1", ObjectKind::Log, &body).unwrap();
        assert_eq!(envelopes.opener().open("log/1", ObjectKind::Log, &wrapped).unwrap().body, body);
        body.push(0);
        let refused = envelopes.wrap("log/1", ObjectKind::Log, &body);
        assert!(matches!(refused, Err(ReplicaError::TooLarge { bytes, .. }) if bytes == BODY_BYTES_MAX + 1));
    }
}
