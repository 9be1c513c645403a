//! What the kernel is answered.

use rustix::io::Errno;
use weir_format::FileTime;
use weir_runtime::Buffer;
use zerocopy::{Immutable, IntoBytes};

use super::{ROOT, node_id};

/// How long the kernel may keep what it was told, in seconds. No program changes the filesystem but by way of the kernel,
/// so there need be no limit.
const VALID_SECONDS: u64 = 3600;

/// What an opened file is to the kernel.
pub(crate) mod open_flags {
    /// The page cache is left out.
    pub(crate) const DIRECT_IO: u32 = 1;
    /// What the page cache holds of it stays.
    pub(crate) const KEEP_CACHE: u32 = 1 << 1;
    /// Direct writes to it need not wait for each other.
    pub(crate) const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
}

/// What every answer begins with.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct Header {
    bytes: u32,
    /// 0, or the negative number of an error.
    error: i32,
    unique: u64,
}

/// What an inode is to the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct NodeAttributes {
    pub(crate) node: u64,
    pub(crate) size: u64,
    pub(crate) sectors: u64,
    pub(crate) accessed: i64,
    pub(crate) modified: i64,
    pub(crate) changed: i64,
    pub(crate) accessed_nanoseconds: u32,
    pub(crate) modified_nanoseconds: u32,
    pub(crate) changed_nanoseconds: u32,
    pub(crate) mode: u32,
    pub(crate) links: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) device: u32,
    pub(crate) block_bytes: u32,
    pub(crate) flags: u32,
}

/// A name's inode.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct Entry {
    pub(super) node: u64,
    generation: u64,
    entry_seconds: u64,
    attributes_seconds: u64,
    entry_nanoseconds: u32,
    attributes_nanoseconds: u32,
    attributes: NodeAttributes,
}

#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct Attributes {
    seconds: u64,
    nanoseconds: u32,
    padding: u32,
    attributes: NodeAttributes,
}

/// A time as `statx` tells it.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
struct StatusTime {
    seconds: i64,
    nanoseconds: u32,
    reserved: u32,
}

impl StatusTime {
    fn new(seconds: i64, nanoseconds: u32) -> StatusTime {
        StatusTime { seconds, nanoseconds, reserved: 0 }
    }
}

/// What an inode is to `statx`.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct Status {
    seconds: u64,
    nanoseconds: u32,
    flags: u32,
    spare: [u64; 2],
    /// What of the following is told.
    mask: u32,
    block_bytes: u32,
    attributes: u64,
    links: u32,
    uid: u32,
    gid: u32,
    mode: u16,
    padding: u16,
    node: u64,
    size: u64,
    sectors: u64,
    attributes_mask: u64,
    accessed: StatusTime,
    born: StatusTime,
    changed: StatusTime,
    modified: StatusTime,
    device_major: u32,
    device_minor: u32,
    /// Of the filesystem: the kernel's to say.
    own_device: [u32; 2],
    rest: [u64; 14],
}

/// What `statx` is told: all that `stat` tells, and the birth time.
mod told {
    pub(super) const STAT: u32 = 0x7FF;
    pub(super) const BORN: u32 = 0x800;
}

#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct Opened {
    pub(crate) handle: u64,
    flags: u32,
    padding: u32,
}

#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct Created {
    entry: Entry,
    pub(crate) opened: Opened,
}

/// A filesystem's room.
#[derive(Clone, Copy, Debug, Default, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct Statistics {
    pub(crate) blocks: u64,
    pub(crate) free_blocks: u64,
    pub(crate) available_blocks: u64,
    pub(crate) inodes: u64,
    pub(crate) free_inodes: u64,
    pub(crate) block_bytes: u32,
    pub(crate) name_bytes_max: u32,
    pub(crate) fragment_bytes: u32,
    pub(crate) reserved: [u32; 7],
}

/// What an operation gives.
#[derive(Debug)]
pub(crate) enum Answer {
    /// It is done.
    Done,
    Entry(Entry),
    Attributes(Attributes),
    Status(Status),
    Opened(Opened),
    Created(Created),
    Statistics(Statistics),
    /// A number of bytes, written or needed.
    Bytes([u32; 2]),
    /// A place in a file.
    Offset(i64),
    Data(Vec<u8>),
    /// So many bytes of what a file holds.
    Content(Buffer, usize),
    /// Names of a directory, and the nodes that they tell of.
    Names {
        bytes: Vec<u8>,
        told: Vec<u64>,
    },
}

impl Answer {
    pub(crate) fn entry(attributes: NodeAttributes, generation: u32) -> Answer {
        Answer::Entry(Entry::new(attributes, generation))
    }

    /// There is no such name, and the kernel need not ask for it again: programs look for many files that do not exist,
    /// and ask each time. An error would say it once.
    pub(crate) fn nothing() -> Answer {
        Answer::entry(NodeAttributes::default(), 0)
    }

    pub(crate) fn attributes(attributes: NodeAttributes) -> Answer {
        Answer::Attributes(Attributes { seconds: VALID_SECONDS, nanoseconds: 0, padding: 0, attributes })
    }

    /// The attributes and when the inode was made, where that is known.
    pub(crate) fn status(attributes: NodeAttributes, born: Option<FileTime>) -> Answer {
        let NodeAttributes { device, .. } = attributes;
        let FileTime { seconds, nanoseconds } = born.unwrap_or_default();
        Answer::Status(Status {
            seconds: VALID_SECONDS,
            nanoseconds: 0,
            flags: 0,
            spare: [0; 2],
            mask: told::STAT | if born.is_some() { told::BORN } else { 0 },
            block_bytes: attributes.block_bytes,
            attributes: 0,
            links: attributes.links,
            uid: attributes.uid,
            gid: attributes.gid,
            mode: attributes.mode as u16,
            padding: 0,
            node: attributes.node,
            size: attributes.size,
            sectors: attributes.sectors,
            attributes_mask: 0,
            accessed: StatusTime::new(attributes.accessed, attributes.accessed_nanoseconds),
            born: StatusTime::new(seconds, nanoseconds),
            changed: StatusTime::new(attributes.changed, attributes.changed_nanoseconds),
            modified: StatusTime::new(attributes.modified, attributes.modified_nanoseconds),
            device_major: device >> 8 & 0xFFF,
            device_minor: device & 0xFF | device >> 12 & 0xF_FF00,
            own_device: [0; 2],
            rest: [0; 14],
        })
    }

    /// `flags` are of [`open_flags`].
    pub(crate) fn opened(handle: u64, flags: u32) -> Answer {
        Answer::Opened(Opened { handle, flags, padding: 0 })
    }

    /// A file made and opened.
    pub(crate) fn created(attributes: NodeAttributes, generation: u32, handle: u64, flags: u32) -> Answer {
        let opened = Opened { handle, flags, padding: 0 };
        Answer::Created(Created { entry: Entry::new(attributes, generation), opened })
    }

    pub(crate) fn bytes(count: u32) -> Answer {
        Answer::Bytes([count, 0])
    }

    /// An ioctl is done, and gives these bytes: a header of four words, in which none means success, and they.
    pub(crate) fn controlled(given: &[u8]) -> Answer {
        Answer::Data([&[0; 16], given].concat())
    }

    /// An attribute's value for a caller that has `room` for it; its size for a caller that has none and asks.
    ///
    /// # Errors
    /// ERANGE if it is too long.
    pub(crate) fn value(value: Vec<u8>, room: u32) -> Result<Answer, Errno> {
        match value.len() {
            length if room == 0 => Ok(Answer::bytes(u32::try_from(length).map_err(|_| Errno::TOOBIG)?)),
            length if length > room as usize => Err(Errno::RANGE),
            _ => Ok(Answer::Data(value)),
        }
    }

    /// The handle that it opens.
    pub(crate) fn handle(&self) -> Option<u64> {
        match self {
            Answer::Opened(opened) | Answer::Created(Created { opened, .. }) => Some(opened.handle),
            _ => None,
        }
    }

    /// The nodes that it tells of, which the kernel counts until it forgets them.
    pub(crate) fn told_nodes(&self) -> &[u64] {
        match self {
            // Number 0 says that there is no such name.
            Answer::Entry(entry) | Answer::Created(Created { entry, .. }) if entry.node != 0 => {
                std::slice::from_ref(&entry.node)
            }
            Answer::Names { told, .. } => told,
            _ => &[],
        }
    }

    /// What follows the header.
    pub(crate) fn body(&self) -> &[u8] {
        match self {
            Answer::Done => &[],
            Answer::Entry(entry) => entry.as_bytes(),
            Answer::Attributes(attributes) => attributes.as_bytes(),
            Answer::Status(status) => status.as_bytes(),
            Answer::Opened(opened) => opened.as_bytes(),
            Answer::Created(created) => created.as_bytes(),
            Answer::Statistics(statistics) => statistics.as_bytes(),
            Answer::Bytes(bytes) => bytes.as_bytes(),
            Answer::Offset(offset) => offset.as_bytes(),
            Answer::Data(bytes) | Answer::Names { bytes, .. } => bytes,
            Answer::Content(buffer, bytes) => &buffer[..*bytes],
        }
    }

    /// The header of an answer with such a body, or of an error, which has none.
    pub(crate) fn header(unique: u64, error: Option<Errno>, body: &[u8]) -> [u8; 16] {
        let error = error.map_or(0, |errno| -errno.raw_os_error());
        let bytes = u32::try_from(size_of::<Header>() + body.len()).unwrap_or(u32::MAX);
        zerocopy::transmute!(Header { bytes, error, unique })
    }
}

impl Entry {
    pub(super) fn new(attributes: NodeAttributes, generation: u32) -> Entry {
        // That of the kernel's root is 0, whatever the image says.
        let generation = if attributes.node == ROOT { 0 } else { generation };
        Entry {
            node: node_id(attributes.node, generation),
            generation: generation.into(),
            entry_seconds: VALID_SECONDS,
            attributes_seconds: VALID_SECONDS,
            entry_nanoseconds: 0,
            attributes_nanoseconds: 0,
            attributes,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Integers of an answer, each with its place and its width in bytes.
    pub(in crate::protocol) fn holds(body: &[u8], length: usize, fields: &[(usize, usize, u64)]) {
        assert_eq!(body.len(), length);
        let mut rest = body.to_vec();
        for &(at, width, expected) in fields {
            let mut bytes = [0; 8];
            bytes[..width].copy_from_slice(&body[at..at + width]);
            assert_eq!(u64::from_le_bytes(bytes), expected, "at {at}");
            rest[at..at + width].fill(0);
        }
        assert!(rest.iter().all(|&byte| byte == 0), "{rest:?}");
    }

    fn attributes() -> NodeAttributes {
        NodeAttributes {
            node: 12,
            size: 5000,
            sectors: 16,
            accessed: 1,
            modified: 2,
            changed: -3,
            accessed_nanoseconds: 4,
            modified_nanoseconds: 5,
            changed_nanoseconds: 6,
            mode: 0o100_644,
            links: 7,
            uid: 8,
            gid: 9,
            device: 10,
            block_bytes: 4096,
            flags: 0,
        }
    }

    /// The fields of [`attributes`] as the specification has them, from `at` on.
    fn fields(at: usize) -> Vec<(usize, usize, u64)> {
        let long = [12, 5000, 16, 1, 2, -3_i64 as u64];
        let short = [4, 5, 6, 0o100_644, 7, 8, 9, 10, 4096];
        let long = long.into_iter().enumerate().map(|(nth, value)| (at + 8 * nth, 8, value));
        let short = short.into_iter().enumerate().map(|(nth, value)| (at + 48 + 4 * nth, 4, value));
        long.chain(short).collect()
    }

    /// What `statx` is told of [`attributes`] and a birth time, as the specification has it.
    fn status_fields() -> Vec<(usize, usize, u64)> {
        let head = [(0, 8, 3600), (32, 4, 0xFFF), (36, 4, 4096), (48, 4, 7), (52, 4, 8), (56, 4, 9)];
        let body = [(60, 2, 0o100_644), (64, 8, 12), (72, 8, 5000), (80, 8, 16)];
        let times = [
            (96, 8, 1),
            (104, 4, 4),
            (112, 8, -9_i64 as u64),
            (120, 4, 11),
            (128, 8, -3_i64 as u64),
            (136, 4, 6),
            (144, 8, 2),
            (152, 4, 5),
        ];
        [&head[..], &body, &times, &[(164, 4, 10)]].concat()
    }

    // The bytes are those of a little-endian machine.
    #[test]
    #[cfg(target_endian = "little")]
    fn answers_are_laid_out_as_specified() {
        let entry = [(0, 8, 99 << 32 | 12), (8, 8, 99), (16, 8, 3600), (24, 8, 3600)];
        holds(Answer::entry(attributes(), 99).body(), 128, &[&entry[..], &fields(40)].concat());
        let nothing: Vec<_> =
            (0..128).step_by(8).map(|at| (at, 8, if at == 16 || at == 24 { 3600 } else { 0 })).collect();
        holds(Answer::nothing().body(), 128, &nothing);
        holds(Answer::attributes(attributes()).body(), 104, &[&[(0, 8, 3600)][..], &fields(16)].concat());
        let born = FileTime { seconds: -9, nanoseconds: 11 };
        holds(Answer::status(attributes(), Some(born)).body(), 288, &status_fields());
        let unknown: Vec<_> = status_fields()
            .into_iter()
            .filter(|(at, ..)| ![112, 120].contains(at))
            .map(|(at, width, value)| (at, width, if at == 32 { 0x7FF } else { value }))
            .collect();
        holds(Answer::status(attributes(), None).body(), 288, &unknown);
        holds(Answer::opened(3, 65).body(), 16, &[(0, 8, 3), (8, 4, 65)]);
        let opened = [(128, 8, 3), (136, 4, 2)];
        let created = [&entry[..], &fields(40), &opened].concat();
        holds(Answer::created(attributes(), 99, 3, 2).body(), 144, &created);
        let statistics = Statistics {
            blocks: 1,
            free_blocks: 2,
            available_blocks: 3,
            inodes: 4,
            free_inodes: 5,
            block_bytes: 4096,
            name_bytes_max: 255,
            fragment_bytes: 512,
            reserved: [0; 7],
        };
        let long = (0..5).map(|nth| (8 * nth as usize, 8, nth + 1));
        let short = [(40, 4, 4096), (44, 4, 255), (48, 4, 512)];
        holds(Answer::Statistics(statistics).body(), 80, &long.chain(short).collect::<Vec<_>>());
        holds(Answer::bytes(77).body(), 8, &[(0, 4, 77)]);
        holds(Answer::Offset(-5).body(), 8, &[(0, 8, -5_i64 as u64)]);
        holds(Answer::controlled(&[]).body(), 16, &[]);
        holds(Answer::controlled(&7_u64.to_le_bytes()).body(), 24, &[(16, 8, 7)]);
        holds(Answer::Done.body(), 0, &[]);
        assert_eq!(Answer::Data(vec![1, 2, 3]).body(), [1, 2, 3]);
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn headers_say_the_length_the_error_and_whose_answer_it_is() {
        holds(&Answer::header(0x1234_5678_9ABC, None, &[0; 8]), 16, &[(0, 4, 24), (8, 8, 0x1234_5678_9ABC)]);
        let error = u64::from((-5_i32).cast_unsigned());
        holds(&Answer::header(7, Some(Errno::IO), &[]), 16, &[(0, 4, 16), (4, 4, error), (8, 8, 7)]);
    }

    #[test]
    fn values_are_given_to_who_has_room() {
        let value = |room| Answer::value(vec![7; 10], room).map(|answer| answer.body().to_vec());
        assert_eq!(value(0), Ok(Answer::bytes(10).body().to_vec()));
        assert_eq!(value(9), Err(Errno::RANGE));
        assert_eq!(value(10), Ok(vec![7; 10]));
    }
}
