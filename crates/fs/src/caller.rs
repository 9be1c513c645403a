//! Who changes something: what a caller may take of the space depends on it.

use weir_ext4::Superblock;

use crate::filesystem::{Filesystem, Mounted};

/// A user, as far as the space goes: nothing else is checked here, since the doors know their users' rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The user's number.
    pub uid: u32,
    /// The number of the user's own group.
    pub gid: u32,
}

impl Caller {
    /// A caller that may take all of the space that files may have.
    pub const SUPERUSER: Caller = Caller { uid: 0, gid: 0 };

    /// Whether the caller may take what the superuser has reserved: the superuser, and the user and the group that
    /// the superblock names. Group 0 is there by default, and stands for nobody but the superuser.
    fn has_reserve(self, superblock: &Superblock) -> bool {
        let (user, group) = (superblock.reserved_uid.get(), superblock.reserved_gid.get());
        self.uid == 0 || self.uid == user.into() || group != 0 && self.gid == group.into()
    }
}

impl Filesystem {
    /// The same filesystem, for what `caller` does: its calls leave the superuser's reserve alone, unless the caller is
    /// one of those who may have it. Without this, the caller is [`Caller::SUPERUSER`].
    #[must_use]
    pub fn for_caller(&self, caller: Caller) -> Filesystem {
        Filesystem(self.0.clone(), caller)
    }
}

impl Mounted {
    /// Whether a caller may take what the superuser has reserved.
    pub(crate) fn has_reserve(&self, caller: Caller) -> bool {
        caller.has_reserve(&self.superblock.borrow())
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;

    #[test]
    fn the_reserve_is_for_those_whom_the_superblock_names() {
        let mut superblock = Superblock::new_zeroed();
        let has = |uid, gid, superblock: &Superblock| Caller { uid, gid }.has_reserve(superblock);
        assert!(has(0, 0, &superblock) && has(0, 7, &superblock));
        assert!(!has(7, 0, &superblock), "the group 0 is the default, and says nothing");
        (superblock.reserved_uid, superblock.reserved_gid) = (7.into(), 9.into());
        assert!(has(7, 1, &superblock) && has(1, 9, &superblock) && has(0, 0, &superblock));
        assert!(!has(9, 7, &superblock));
    }
}
