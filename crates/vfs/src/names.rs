//! What calls for names are given.

use weir_format::FileType;

use crate::attributes::{Device, InodeNumber};

/// The bit of a mode by which directories hand down their group: set-group-ID.
pub(crate) const SET_GROUP: u16 = 0o2000;

/// The group of a new inode of this kind, and the bits that it has beside its permissions, in a directory with this mode and group:
/// one with the bit hands its group down, and directories that are made in it have the bit, too.
#[must_use]
pub fn inherit_group((mode, group): (u16, u32), kind: Option<FileType>, own: u32) -> (u32, u16) {
    match (mode & SET_GROUP != 0, kind) {
        (false, _) => (own, 0),
        (true, Some(FileType::Directory)) => (group, SET_GROUP),
        (true, _) => (group, 0),
    }
}

/// What a new inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewNode {
    /// Its type.
    pub kind: FileType,
    /// The twelve bits of its permissions.
    pub permissions: u16,
    /// Bits that are taken from the permissions, unless the directory has a default access control list, which is given
    /// to what is made in it.
    pub umask: u16,
    /// Its owner.
    pub uid: u32,
    /// Its group; a directory whose set-group-ID bit is set gives its own to what is made in it.
    pub gid: u32,
    /// For devices.
    pub device: Device,
}

impl NewNode {
    /// A file, directory, pipe or socket of user and group 0.
    pub fn new(kind: FileType, permissions: u16) -> NewNode {
        NewNode { kind, permissions, umask: 0, uid: 0, gid: 0, device: Device::default() }
    }
}

/// Where a path's last name is, or would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent<'a> {
    /// The directory.
    pub directory: InodeNumber,
    /// The last name.
    pub name: &'a [u8],
}

/// What a rename does with names that are taken, and with the old one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RenameFlags {
    /// It fails.
    pub no_replace: bool,
    /// What the two names stand for changes places.
    pub exchange: bool,
    /// The old name stays, and stands for a new *whiteout* from then on: a character device with the numbers 0 and 0,
    /// the caller's, that no user may open. An overlay takes it for a name that was deleted.
    pub whiteout: bool,
}
