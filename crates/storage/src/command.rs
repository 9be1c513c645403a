//! What a [`Storage`](crate::Storage) is asked to do.
//!
//! A command borrows everything: it is built on the stack, handed to `submit`, and forgotten. A write
//! carries its data as of submission (S6): a storage that keeps it beyond the call copies borrowed
//! bytes, or takes a share of a [`Buffer`] that no caller can change any more.

use std::rc::Rc;

use weir_runtime::Buffer;

use crate::address::{BLOCK_BYTES, Extent, Lba};

/// One sequence of epochs. Writes of different streams have no order between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u32);

/// The number of an epoch in its stream: a set of order-preserving writes that may be reordered among
/// themselves, closed by a barrier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// The number of a request in the run, in issue order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// How a request takes part in order: the edge that the order recorder keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Outside all epochs: it may cross them.
    Orderless,
    /// Order-preserving, in this epoch of this stream.
    Epoch(StreamId, Epoch),
}

/// Names one request inside a command; a merged command carries one tag for each of its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Which request.
    pub request: RequestId,
    /// The order it takes part in.
    pub order: Order,
}

/// Where the device may put a command in its queue: the three priorities of SCSI (SAM, task attributes).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Priority {
    /// Serviced in any order among simple commands.
    #[default]
    Simple,
    /// Serviced after all submitted before it and before all submitted after it (a capability, S1).
    Ordered,
    /// Serviced next; reads and flushes only (S1).
    HeadOfQueue,
}

/// The bytes of one part of a write, whole blocks.
#[derive(Clone, Copy)]
pub enum Data<'a> {
    /// Borrowed for the call; the storage copies what it keeps.
    Bytes(&'a [u8]),
    /// `bytes` bytes at `offset` of a frozen buffer; the storage keeps a share instead of a copy.
    Shared {
        /// The frozen buffer.
        buffer: &'a Rc<Buffer>,
        /// Where the data starts in it, in bytes; a multiple of the block size.
        offset: usize,
        /// How many bytes; a multiple of the block size.
        bytes: usize,
    },
}

impl<'a> Data<'a> {
    /// The bytes themselves. A shared range that lies outside its buffer yields an empty slice,
    /// which every storage refuses.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        match *self {
            Data::Bytes(bytes) => bytes,
            Data::Shared { buffer, offset, bytes } => {
                offset.checked_add(bytes).and_then(|end| buffer.get(offset..end)).unwrap_or(&[])
            }
        }
    }
}

/// A contiguous part of a write.
#[derive(Clone, Copy)]
pub struct Part<'a> {
    /// The first block written.
    pub start: Lba,
    /// What is written there.
    pub data: Data<'a>,
}

impl<'a> Part<'a> {
    /// A part that writes borrowed bytes.
    #[must_use]
    pub fn bytes(start: Lba, bytes: &'a [u8]) -> Part<'a> {
        Part { start, data: Data::Bytes(bytes) }
    }

    /// The blocks that the part covers (a torn last block counts not at all; checked at submission).
    #[must_use]
    pub fn extent(&self) -> Extent {
        let blocks = self.data.bytes().len() / BLOCK_BYTES;
        Extent::new(self.start, u32::try_from(blocks).unwrap_or(u32::MAX))
    }
}

/// The flags of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteFlags {
    /// Closes the epoch with this write (S3).
    pub barrier: bool,
    /// Complete only when the write itself is durable (S2).
    pub fua: bool,
    /// Flush what was transferred before, then write.
    pub preflush: bool,
    /// eMMC's reliable write: of each block the old or the new content survives a power cut, never a mixture (S4).
    pub reliable: bool,
}

/// A write command.
#[derive(Clone, Copy)]
pub struct Write<'a> {
    /// What goes where; parts do not overlap.
    pub parts: &'a [Part<'a>],
    /// Barrier, FUA, pre-flush, reliable.
    pub flags: WriteFlags,
    /// Place in the device's queue.
    pub priority: Priority,
    /// The requests inside, for order; may be empty where no order is asked for.
    pub tags: &'a [Tag],
}

impl<'a> Write<'a> {
    /// A simple, orderless write without flags.
    #[must_use]
    pub fn new(parts: &'a [Part<'a>]) -> Write<'a> {
        Write { parts, flags: WriteFlags::default(), priority: Priority::Simple, tags: &[] }
    }

    /// Blocks written by all parts together.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.parts.iter().map(|part| u64::from(part.extent().blocks)).sum()
    }
}

/// One pair of a share command: afterwards `to` reads what `from` read when the command was serviced, also if another
/// pair of the command changes what `from` reads. Of pairs with one target, the last counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharePair {
    /// Whose content is shared.
    pub from: Extent,
    /// Where it appears; as many blocks follow as `from` has.
    pub to: Lba,
}

/// A command to a [`Storage`](crate::Storage).
#[derive(Clone, Copy)]
pub enum Command<'a> {
    /// Read one extent; the ticket carries the data.
    Read {
        /// What to read.
        extent: Extent,
        /// Simple or head-of-queue.
        priority: Priority,
    },
    /// Write.
    Write(Write<'a>),
    /// A bare barrier: closes the stream's epoch without writing.
    Barrier {
        /// The stream whose epoch is closed.
        stream: StreamId,
    },
    /// Make every write transferred before this submission durable (S2).
    Flush,
    /// Forget the content of these extents; what they read afterwards is a capability (S7).
    Discard(&'a [Extent]),
    /// Atomically remap all pairs (the SHARE command; S7).
    Share(&'a [SharePair]),
    /// Several writes in one command (eMMC packed write; S7). Their flags apply in turn.
    Packed(&'a [Write<'a>]),
}

impl Command<'_> {
    /// A simple read.
    #[must_use]
    pub fn read(extent: Extent) -> Command<'static> {
        Command::Read { extent, priority: Priority::Simple }
    }

    /// What kind of command this is, for errors and counts.
    #[must_use]
    pub fn kind(&self) -> CommandKind {
        match self {
            Command::Read { .. } => CommandKind::Read,
            Command::Write(_) | Command::Packed(_) => CommandKind::Write,
            Command::Barrier { .. } => CommandKind::Barrier,
            Command::Flush => CommandKind::Flush,
            Command::Discard(_) => CommandKind::Discard,
            Command::Share(_) => CommandKind::Share,
        }
    }
}

/// The kinds of commands, for errors and counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CommandKind {
    /// A read.
    Read,
    /// A write, packed ones too.
    Write,
    /// A bare barrier.
    Barrier,
    /// A flush.
    Flush,
    /// A discard.
    Discard,
    /// A share.
    Share,
}
