//! Names of a directory, as the kernel is told them.

use weir_format::FileType;
use zerocopy::{Immutable, IntoBytes};

use super::answer::{Answer, Entry, NodeAttributes};

/// What a name begins with: `fuse_dirent`.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct NameHeader {
    node: u64,
    position: u64,
    name_bytes: u32,
    kind: u32,
}

/// A name of a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirectoryName<'a> {
    /// The number of what it stands for, without the generation.
    pub(crate) node: u64,
    /// Reading goes on behind it.
    pub(crate) position: u64,
    pub(crate) kind: FileType,
    pub(crate) name: &'a [u8],
}

/// Names of a directory, as many as there is room for.
pub(crate) struct Names {
    bytes: Vec<u8>,
    room: usize,
    told: Vec<u64>,
}

impl Names {
    /// Room for so many bytes.
    pub(crate) fn new(room: u32) -> Names {
        Names { bytes: Vec::new(), room: room as usize, told: Vec::new() }
    }

    /// Whether there is room for a name, and for what it stands for, `with_attributes`.
    pub(crate) fn have_room(&self, name: &[u8], with_attributes: bool) -> bool {
        let before = if with_attributes { size_of::<Entry>() } else { 0 };
        let bytes = before + size_of::<NameHeader>() + name.len();
        self.bytes.len() + bytes.next_multiple_of(8) <= self.room
    }

    /// Adds a name for which there is room.
    pub(crate) fn add(&mut self, name: &DirectoryName<'_>) {
        let &DirectoryName { node, position, kind, name } = name;
        // A name has 255 bytes at most. The types' numbers are a mode's four high bits.
        let (name_bytes, kind) = (name.len() as u32, u32::from(kind.mode_bits() >> 12));
        self.bytes.extend_from_slice(NameHeader { node, position, name_bytes, kind }.as_bytes());
        self.bytes.extend_from_slice(name);
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
    }

    /// Adds a name with what it stands for, where that is told.
    pub(crate) fn add_entry(&mut self, name: &DirectoryName<'_>, found: Option<(NodeAttributes, u32)>) {
        let entry = found.map(|(attributes, generation)| Entry::new(attributes, generation));
        match &entry {
            Some(entry) => self.bytes.extend_from_slice(entry.as_bytes()),
            None => self.bytes.extend_from_slice(&[0; size_of::<Entry>()]),
        }
        self.told.extend(entry.map(|entry| entry.node));
        self.add(name);
    }

    pub(crate) fn answer(self) -> Answer {
        Answer::Names { bytes: self.bytes, told: self.told }
    }
}

#[cfg(test)]
mod tests {
    use super::super::answer::tests::holds;
    use super::*;

    fn add(names: &mut Names, node: u64, position: u64, kind: FileType, name: &[u8]) -> bool {
        let has_room = names.have_room(name, false);
        if has_room {
            names.add(&DirectoryName { node, position, kind, name });
        }
        has_room
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn names_fill_their_room_and_no_more() {
        let mut names = Names::new(96);
        assert!(add(&mut names, 2, 100, FileType::Directory, b"."));
        assert!(add(&mut names, 12, 101, FileType::Regular, b"exactly8"));
        // 24 bytes for the header, 8 for what is left of the name.
        assert!(!add(&mut names, 13, 102, FileType::Symlink, b"nine chars"));
        assert!(add(&mut names, 13, 102, FileType::Symlink, b"fits"));
        assert!(!add(&mut names, 14, 103, FileType::Fifo, b"x"));
        let answer = names.answer();
        let text = |name: &[u8]| name.iter().rev().fold(0, |all, &byte| all << 8 | u64::from(byte));
        let expected = [
            (0, 8, 2),
            (8, 8, 100),
            (16, 4, 1),
            (20, 4, 4),
            (24, 8, text(b".")),
            (32, 8, 12),
            (40, 8, 101),
            (48, 4, 8),
            (52, 4, 8),
            (56, 8, text(b"exactly8")),
            (64, 8, 13),
            (72, 8, 102),
            (80, 4, 4),
            (84, 4, 10),
            (88, 8, text(b"fits")),
        ];
        holds(answer.body(), 96, &expected);
    }

    #[test]
    fn a_name_with_attributes_tells_of_its_node() {
        let mut names = Names::new(2 * (128 + 24 + 8) + 7);
        let name = |name| DirectoryName { node: 12, position: 100, kind: FileType::Regular, name };
        let attributes = NodeAttributes { node: 12, ..NodeAttributes::default() };
        names.add_entry(&name(b"a"), Some((attributes, 3)));
        assert!(names.have_room(b"b", true) && !names.have_room(b"nine chars", true));
        names.add_entry(&name(b"."), None);
        assert!(!names.have_room(b"", false));
        let answer = names.answer();
        assert_eq!((answer.told_nodes(), answer.body().len()), ([3 << 32 | 12].as_slice(), 320));
        // What is told nothing of has number 0 instead of an entry.
        assert_eq!((answer.body()[0], &answer.body()[160..168]), (12, [0; 8].as_slice()));
    }
}
