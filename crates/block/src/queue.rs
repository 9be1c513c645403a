//! The *queue*: requests that were issued and could not be dispatched at once. Their data was copied when
//! they entered (S6); from here on everything is passed by share.

use std::collections::BTreeMap;
use std::collections::btree_map::Range;
use std::rc::Rc;

use weir_runtime::Buffer;
use weir_storage::{
    BLOCK_BYTES, Data, Epoch, Extent, Lba, Part, RequestId, SharePair, Storage, StreamId, Ticket, WriteFlags,
};

use crate::inflight::{Extents, Owners, Tags};

/// One part of a queued write: `bytes` bytes at `offset` of a buffer that no caller changes any more.
pub(crate) struct StoredPart {
    start: Lba,
    buffer: Rc<Buffer>,
    offset: usize,
    bytes: usize,
}

impl StoredPart {
    pub(crate) fn part(&self) -> Part<'_> {
        let StoredPart { start, ref buffer, offset, bytes } = *self;
        Part { start, data: Data::Shared { buffer, offset, bytes } }
    }

    pub(crate) fn extent(&self) -> Extent {
        self.part().extent()
    }
}

/// Keeps the data of `parts` as of now (S6): shared buffers by share, borrowed bytes by one copy.
pub(crate) fn store(parts: &[Part<'_>], device: &dyn Storage) -> Vec<StoredPart> {
    let borrowed = |part: &Part<'_>| match part.data {
        Data::Bytes(bytes) => bytes.len(),
        Data::Shared { .. } => 0,
    };
    let mut copy = device.allocate(parts.iter().map(borrowed).sum());
    let mut filled = 0;
    for part in parts {
        let bytes = borrowed(part);
        if bytes > 0 {
            copy[filled..filled + bytes].copy_from_slice(part.data.bytes());
        }
        filled += bytes;
    }
    let copy = Rc::new(copy);
    let mut taken = 0;
    let keep = |part: &Part<'_>| match part.data {
        Data::Bytes(bytes) => {
            let offset = taken;
            taken += bytes.len();
            StoredPart { start: part.start, buffer: Rc::clone(&copy), offset, bytes: bytes.len() }
        }
        Data::Shared { buffer, offset, bytes } => {
            StoredPart { start: part.start, buffer: Rc::clone(buffer), offset, bytes }
        }
    };
    parts.iter().map(keep).collect()
}

/// One write of a queued packed command.
pub(crate) struct StoredWrite {
    pub(crate) parts: Vec<StoredPart>,
    pub(crate) flags: WriteFlags,
}

/// What a queued request asks for.
pub(crate) enum Work {
    Write { parts: Vec<StoredPart>, flags: WriteFlags },
    Read(Extent),
    Discard(Vec<Extent>),
    Share(Vec<SharePair>),
    Packed(Vec<StoredWrite>),
}

/// What a pair of a share command reads and changes.
fn ends(pair: &SharePair) -> [Extent; 2] {
    [pair.from, Extent::new(pair.to, pair.from.blocks)]
}

impl Work {
    /// Whether `test` holds for an extent that the work touches.
    pub(crate) fn any(&self, mut test: impl FnMut(Extent) -> bool) -> bool {
        match self {
            Work::Write { parts, .. } => parts.iter().any(|part| test(part.extent())),
            Work::Read(extent) => test(*extent),
            Work::Discard(extents) => extents.iter().any(|extent| test(*extent)),
            Work::Share(pairs) => pairs.iter().flat_map(ends).any(test),
            Work::Packed(writes) => parts_of(writes).any(|part| test(part.extent())),
        }
    }

    pub(crate) fn extents(&self) -> Extents {
        match self {
            Work::Write { parts, .. } => parts.iter().map(StoredPart::extent).collect(),
            Work::Read(extent) => [*extent].into(),
            Work::Discard(extents) => extents.as_slice().into(),
            Work::Share(pairs) => pairs.iter().flat_map(ends).collect(),
            Work::Packed(writes) => parts_of(writes).map(StoredPart::extent).collect(),
        }
    }

    /// The flags of a write, or of a packed command, in which FUA is what one of its writes asks for; none for anything
    /// else.
    pub(crate) fn flags(&self) -> WriteFlags {
        match self {
            Work::Write { flags, .. } => *flags,
            Work::Packed(writes) => {
                WriteFlags { fua: writes.iter().any(|write| write.flags.fua), ..WriteFlags::default() }
            }
            Work::Read(_) | Work::Discard(_) | Work::Share(_) => WriteFlags::default(),
        }
    }

    /// Whether it changes something that may be volatile when it is answered.
    pub(crate) fn is_volatile(&self) -> bool {
        match self {
            Work::Packed(writes) => !writes.iter().all(|write| write.flags.fua),
            work => !work.is_read() && !work.flags().fua,
        }
    }

    pub(crate) fn is_read(&self) -> bool {
        matches!(self, Work::Read(_))
    }

    /// Whether the two touch a block in common and one of them changes it (S6). A share counts as changing both its ends.
    pub(crate) fn conflicts(&self, other: &Work) -> bool {
        !(self.is_read() && other.is_read()) && self.any(|ours| other.any(|theirs| ours.overlaps(theirs)))
    }

    pub(crate) fn start(&self) -> Lba {
        self.extents().first().map_or(Lba(0), |extent| extent.start)
    }

    pub(crate) fn blocks(&self) -> u64 {
        match self {
            Work::Write { parts, .. } => parts.iter().map(|part| (part.bytes / BLOCK_BYTES) as u64).sum(),
            Work::Read(extent) => u64::from(extent.blocks),
            Work::Discard(extents) => extents.iter().map(|extent| u64::from(extent.blocks)).sum(),
            Work::Share(pairs) => pairs.iter().map(|pair| u64::from(pair.from.blocks)).sum(),
            Work::Packed(writes) => parts_of(writes).map(|part| u64::from(part.extent().blocks)).sum(),
        }
    }
}

fn parts_of(writes: &[StoredWrite]) -> impl Iterator<Item = &StoredPart> {
    writes.iter().flat_map(|write| &write.parts)
}

/// Where a queued request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// In the staging queue, while the queue is closed (E3, E4).
    Staged,
    /// In the queue, waiting for the flush that stands in for its pre-flush.
    Flushing,
    /// In the queue, free to leave as far as its own flags go.
    Ready,
}

/// A queued request, with what was merged into it.
pub(crate) struct Pending {
    pub(crate) id: RequestId,
    pub(crate) stream: StreamId,
    pub(crate) work: Work,
    /// The epoch that it belongs to; none for an orderless request.
    pub(crate) epoch: Option<Epoch>,
    /// The epoch that was current when it was issued: the one it joins, should it be promoted (E7).
    pub(crate) issued_in: Epoch,
    /// It brought the barrier flag with it (and lost it on entering the queue, E4).
    pub(crate) closes: bool,
    pub(crate) stage: Stage,
    pub(crate) tags: Tags,
    /// The tasks that wait for it.
    pub(crate) owners: Owners,
    /// What the owners hold.
    pub(crate) tickets: Vec<Ticket>,
}

/// All queued requests in issue order, those in the staging queue included.
#[derive(Default)]
pub(crate) struct Queue {
    requests: BTreeMap<RequestId, Pending>,
    reads: usize,
}

impl Queue {
    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Queued writes and discards.
    pub(crate) fn writes(&self) -> usize {
        self.requests.len() - self.reads
    }

    pub(crate) fn reads(&self) -> usize {
        self.reads
    }

    pub(crate) fn insert(&mut self, pending: Pending) {
        self.reads += usize::from(pending.work.is_read());
        self.requests.insert(pending.id, pending);
    }

    pub(crate) fn get(&self, id: RequestId) -> Option<&Pending> {
        self.requests.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: RequestId) -> Option<&mut Pending> {
        self.requests.get_mut(&id)
    }

    pub(crate) fn remove(&mut self, id: RequestId) -> Option<Pending> {
        let pending = self.requests.remove(&id)?;
        self.reads -= usize::from(pending.work.is_read());
        Some(pending)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Pending> {
        self.requests.values()
    }

    /// The requests issued before `id`.
    fn before(&self, id: RequestId) -> Range<'_, RequestId, Pending> {
        self.requests.range(..id)
    }

    /// Whether a request issued before `pending` overlaps it: it must not pass that one (S6).
    pub(crate) fn blocks(&self, pending: &Pending) -> bool {
        self.before(pending.id).any(|(_, earlier)| earlier.work.conflicts(&pending.work))
    }
}
