//! Names of directories, as they are read.

use crate::file_type::FileType;

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The inode.
    pub inode: u32,
    /// Its type, if the filesystem keeps types in entries.
    pub kind: Option<FileType>,
}

/// A place in the order in which a directory is read: behind the name that has this cookie. It stays valid
/// while names come and go, and across remounts. Cookies are less than 2^63. The upper 31 bits are the *group*: 0 for "."
/// and "..", another for names that are read together, such as those of one hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cookie(pub u64);

impl Cookie {
    /// Before the first name.
    pub const START: Self = Self(0);
    /// Behind ".".
    pub const DOT: Self = Self(1);
    /// Behind "..".
    pub const DOT_DOT: Self = Self(2);

    /// The group: 0 for "." and "..", and less than 2^31 for names, in the order of the cookies.
    #[must_use]
    pub fn group(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Behind the last name that a group can have.
    #[must_use]
    pub fn end_of_group(group: u32) -> Self {
        Self(u64::from(group) << 32 | u64::from(u32::MAX))
    }
}

/// A name and what it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// The name's place in the order.
    pub cookie: Cookie,
    /// The name.
    pub name: Vec<u8>,
    /// What it stands for.
    pub target: Target,
}
