//! What kinds of files there are, with their numbers in modes and directories: both formats have the same.

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileType {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A character device.
    CharacterDevice,
    /// A block device.
    BlockDevice,
    /// A pipe with a name.
    Fifo,
    /// A socket with a name.
    Socket,
    /// A symbolic link.
    Symlink,
}

impl FileType {
    const ALL: [(Self, u16); 7] = [
        (Self::Regular, 0x8000),
        (Self::Directory, 0x4000),
        (Self::CharacterDevice, 0x2000),
        (Self::BlockDevice, 0x6000),
        (Self::Fifo, 0x1000),
        (Self::Socket, 0xC000),
        (Self::Symlink, 0xA000),
    ];

    /// The type that the four high bits of a mode say.
    pub fn of_mode(mode: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, bits)| *bits == mode & 0xF000).map(|(kind, _)| kind)
    }

    /// The four high bits of a mode.
    pub fn mode_bits(self) -> u16 {
        Self::ALL.into_iter().find(|(kind, _)| *kind == self).map_or(0, |(_, bits)| bits)
    }

    /// The number of this type in a directory entry, from 1.
    pub fn entry_code(self) -> u8 {
        self as u8 + 1
    }

    /// The type of that number in a directory entry.
    pub fn of_entry_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|(kind, _)| kind.entry_code() == code).map(|(kind, _)| kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_their_numbers() {
        for (kind, bits) in FileType::ALL {
            assert_eq!(FileType::of_mode(bits | 0o777), Some(kind));
            assert_eq!(FileType::of_entry_code(kind.entry_code()), Some(kind));
        }
        assert_eq!((FileType::Regular.entry_code(), FileType::Symlink.entry_code()), (1, 7));
        assert_eq!((FileType::of_mode(0), FileType::of_entry_code(0)), (None, None));
    }
}
