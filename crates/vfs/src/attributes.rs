//! Attributes of inodes: what `stat` reports, what of it can be set, and which lists and names there are.

use weir_format::{
    FileTime, FileType,
    acl::{ACCESS, DEFAULT},
};

use crate::error::FsError;

/// The number of an inode, from 1; the root directory is [`root`](crate::MountedCalls::root).
pub type InodeNumber = u32;

/// The numbers of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Which driver, up to 4,095.
    pub major: u32,
    /// Which of its devices, up to 1,048,575.
    pub minor: u32,
}

impl Device {
    /// The numbers as Linux's filesystems store them: in the first word if both fit in a byte, otherwise in the second.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for a major number of more than 12 bits, or a minor one of more than 20.
    pub fn to_words(self) -> Result<[u32; 2], FsError> {
        let Device { major, minor } = self;
        match (major, minor) {
            (0..256, 0..256) => Ok([major << 8 | minor, 0]),
            (0..0x1000, 0..0x10_0000) => Ok([0, minor & 0xFF | major << 8 | (minor & !0xFF) << 12]),
            _ => Err(FsError::Invalid("a device has numbers of 12 and 20 bits")),
        }
    }

    /// The numbers in the first two words of an inode's addresses: in the first if both fit in a byte, else in the second,
    /// spread. Both formats have them so.
    #[must_use]
    pub fn from_words(small: u32, spread: u32) -> Device {
        match small {
            0 => Device { major: spread >> 8 & 0xFFF, minor: spread & 0xFF | spread >> 12 & 0xF_FF00 },
            small => Device { major: small >> 8 & 0xFF, minor: small & 0xFF },
        }
    }
}

/// What `stat` reports of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Its number.
    pub inode: InodeNumber,
    /// Its generation: another one where the number was another file's before.
    pub generation: u32,
    /// Its type.
    pub kind: FileType,
    /// The twelve bits of its permissions.
    pub permissions: u16,
    /// Its names; 1 for a directory with more subdirectories than are counted.
    pub links: u32,
    /// It was made without a name, and may get its first.
    pub takes_first_name: bool,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its size in bytes.
    pub size: u64,
    /// The space that it takes, in units of 512 bytes.
    pub sectors: u64,
    /// When it was last read, as far as that is kept.
    pub accessed: FileTime,
    /// When it last changed, its attributes included.
    pub changed: FileTime,
    /// When its content last changed.
    pub modified: FileTime,
    /// When it was made.
    pub created: FileTime,
    /// The numbers of a device.
    pub device: Device,
}

/// Attributes to set; what is `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttributeChanges {
    /// The twelve bits of the permissions.
    pub permissions: Option<u16>,
    /// The owner.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// The size in bytes, of a regular file.
    pub size: Option<u64>,
    /// When it was last read; from 1901 to 2446, as all times.
    pub accessed: Option<FileTime>,
    /// When its content last changed.
    pub modified: Option<FileTime>,
    /// When it last changed, its attributes included; now, if nothing is said.
    pub changed: Option<FileTime>,
}

/// Whether an extended attribute that is set was there before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expect {
    /// It does not matter.
    #[default]
    Anything,
    /// It was not: [`FsError::Exists`] otherwise.
    Absent,
    /// It was: [`FsError::NoAttribute`] otherwise.
    Present,
    /// It was not, and it was: always an error, that of [`Present`](Self::Present) where it is not there.
    AbsentAndPresent,
}

impl Expect {
    /// Whether what is there is what was expected.
    pub fn check(self, is_there: bool) -> Result<(), FsError> {
        match (self, is_there) {
            (Expect::Absent | Expect::AbsentAndPresent, true) => Err(FsError::Exists),
            (Expect::Present | Expect::AbsentAndPresent, false) => Err(FsError::NoAttribute),
            _ => Ok(()),
        }
    }
}

/// Whether an extended attribute is one of Weir's own, of a file or of a mount. A copy of the file has none of them.
#[must_use]
pub fn is_own_attribute(name: &[u8]) -> bool {
    name.starts_with(b"user.weir.") || name.starts_with(b"trusted.weir.")
}

/// Which of its two lists an inode is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AclKind {
    /// Who may do what with it.
    Access,
    /// Of a directory: what is made in it begins with.
    Default,
}

impl AclKind {
    /// The list that is the extended attribute of this name, if it is one.
    #[must_use]
    pub fn of_attribute(name: &[u8]) -> Option<AclKind> {
        [AclKind::Access, AclKind::Default].into_iter().find(|kind| kind.attribute() == name)
    }

    /// The name of the extended attribute.
    #[must_use]
    pub fn attribute(self) -> &'static [u8] {
        match self {
            AclKind::Access => ACCESS,
            AclKind::Default => DEFAULT,
        }
    }
}
