//! Access control lists among the attributes of an inode: what more there is to a mode, and what is made in a directory gets.
//!
//! No access is decided here: the kernel does that for a mount, by the lists that it asks for. Here they are kept true. A file's
//! mode and its own list say the same of owner, group and others: to set one is to set the other, and a list that says no more than a
//! mode is not kept. What is made in a directory begins with the directory's default list.

use weir_format::acl::{ACCESS, Acl, DEFAULT};
use weir_format::{AttributeName, Attributes, FileType, FormatError};

use crate::attributes::{AclKind, Expect, InodeNumber};
use crate::error::FsError;
use crate::names::SET_GROUP;

/// The bits of a mode that a list says, too.
const MODE_BITS: u16 = 0o777;

/// The name of an extended attribute, of the kinds that are kept.
///
/// # Errors
/// [`FsError::Unsupported`] for another kind, [`FsError::Invalid`] for a name that none can have.
pub fn parse_attribute(name: &[u8]) -> Result<AttributeName, FsError> {
    if !is_kept_attribute(name) {
        return Err(FsError::Unsupported("attributes other than user, trusted, security and access lists"));
    }
    AttributeName::parse(name)
        .map_err(|_| FsError::Invalid("an attribute's name has 1 to 255 bytes, none zero"))
}

/// Whether an extended attribute is of a kind that is kept.
#[must_use]
pub fn is_kept_attribute(name: &[u8]) -> bool {
    let prefixes = [b"user.".as_slice(), b"trusted.", b"security."];
    prefixes.into_iter().any(|prefix| name.starts_with(prefix)) || AclKind::of_attribute(name).is_some()
}

/// That an inode of a type can have an extended attribute of this name.
///
/// # Errors
/// [`FsError::NotPermitted`] for a user's attribute of what is neither a file nor a directory.
pub fn check_attribute_of(kind: Option<FileType>, name: &[u8]) -> Result<(), FsError> {
    match name.starts_with(b"user.") && !matches!(kind, Some(FileType::Regular | FileType::Directory)) {
        true => Err(FsError::NotPermitted("user attributes are for files and directories")),
        false => Ok(()),
    }
}

/// The list of a kind among the attributes of an inode.
///
/// # Errors
/// [`FsError::Format`] for a damaged list.
pub fn find_acl(kind: AclKind, inode: InodeNumber, attributes: &Attributes) -> Result<Option<Acl>, FsError> {
    let stored = attributes.get(&parse_attribute(kind.attribute())?);
    Ok(stored.map(|stored| Acl::read(inode, stored)).transpose()?)
}

/// A list from the form of the kernel's interface.
///
/// # Errors
/// [`FsError::Invalid`] for bytes that are none.
pub fn acl_from_interface(value: &[u8]) -> Result<Acl, FsError> {
    Acl::of_interface(value).map_err(|error| match error {
        FormatError::Invalid { what } => FsError::Invalid(what),
        other => other.into(),
    })
}

/// A list to be set, or to be removed.
#[derive(Clone, Copy, Debug)]
pub struct AclChange<'a> {
    /// Which of the two.
    pub kind: AclKind,
    /// The new one; none removes it.
    pub acl: Option<&'a Acl>,
    /// Whether it has to be there already.
    pub expect: Expect,
    /// The bit by which the group is handed down goes.
    pub takes_set_group: bool,
}

impl AclChange<'_> {
    /// Changes the attributes of an inode of a type; the inode's permissions after that.
    ///
    /// # Errors
    /// [`FsError::Unsupported`] for a symbolic link; [`FsError::Invalid`] and [`FsError::NoAttribute`] for a default list of what is no
    /// directory; those of [`Expect::check`].
    pub fn apply(
        self,
        kind: Option<FileType>,
        attributes: &mut Attributes,
        permissions: u16,
    ) -> Result<u16, FsError> {
        match (kind, self.kind) {
            (Some(FileType::Symlink), _) => {
                return Err(FsError::Unsupported("an access control list of a symbolic link"));
            }
            (Some(FileType::Directory), _) | (_, AclKind::Access) => {}
            _ if self.acl.is_some() => return Err(FsError::Invalid("a default list is for directories")),
            _ => return Err(FsError::NoAttribute),
        }
        let name = parse_attribute(self.kind.attribute())?;
        self.expect.check(attributes.get(&name).is_some())?;
        let Some(acl) = self.acl else {
            attributes.remove(&name);
            return Ok(permissions);
        };
        let kept = if self.takes_set_group { permissions & !SET_GROUP } else { permissions };
        match self.kind {
            AclKind::Default => attributes.set(name, acl.to_stored()),
            AclKind::Access => {
                put_access(attributes, &name, acl);
                return Ok(kept & !MODE_BITS | acl.mode_bits());
            }
        }
        Ok(permissions)
    }
}

/// Keeps a file's own list, if it says more than the mode.
fn put_access(attributes: &mut Attributes, name: &AttributeName, acl: &Acl) {
    match acl.is_mode() {
        true => drop(attributes.remove(name)),
        false => attributes.set(name.clone(), acl.to_stored()),
    }
}

/// What a new inode gets from the directory that it is made in.
pub struct Inherited {
    /// The nine bits of its mode.
    pub mode_bits: u16,
    /// Its lists, where it gets any.
    pub attributes: Option<Attributes>,
}

impl Inherited {
    /// What an inode of a type and a mode gets of a directory with these attributes.
    ///
    /// # Errors
    /// [`FsError::Format`] for a damaged list.
    pub fn from_directory(
        directory: InodeNumber,
        attributes: &Attributes,
        (kind, mode): (FileType, u16),
        umask: u16,
    ) -> Result<Inherited, FsError> {
        let default = match kind {
            FileType::Symlink => None,
            _ => find_acl(AclKind::Default, directory, attributes)?,
        };
        let Some(default) = default else {
            let kept = if kind == FileType::Symlink { MODE_BITS } else { !umask };
            return Ok(Inherited { mode_bits: mode & MODE_BITS & kept, attributes: None });
        };
        let acl = default.inherited(mode);
        let mut attributes = Attributes::default();
        put_access(&mut attributes, &parse_attribute(ACCESS)?, &acl);
        if kind == FileType::Directory {
            attributes.set(parse_attribute(DEFAULT)?, default.to_stored());
        }
        Ok(Inherited { mode_bits: acl.mode_bits(), attributes: Some(attributes) })
    }

    /// The permissions of the new inode, which was to have these.
    #[must_use]
    pub fn permissions_of(&self, permissions: u16) -> u16 {
        permissions & !MODE_BITS | self.mode_bits
    }
}

/// The attributes of an inode that gets other permissions, if its own list has to follow.
///
/// # Errors
/// [`FsError::Format`] for a damaged list.
pub fn attributes_for_mode(
    inode: InodeNumber,
    mut attributes: Attributes,
    mode: u16,
) -> Result<Option<Attributes>, FsError> {
    let Some(mut acl) = find_acl(AclKind::Access, inode, &attributes)? else { return Ok(None) };
    if acl.mode_bits() == mode & MODE_BITS {
        return Ok(None);
    }
    acl.set_mode_bits(mode);
    attributes.set(parse_attribute(ACCESS)?, acl.to_stored());
    Ok(Some(attributes))
}
