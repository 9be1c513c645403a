//! Who changes something: what a caller may take of the space depends on it.

use weir_ext4::Superblock;
use weir_vfs::Caller;

/// For whom the superuser's reserve is.
#[derive(Clone, Copy)]
pub(crate) struct ReserveOwners {
    user: u32,
    group: u32,
}

impl ReserveOwners {
    /// Those whom a superblock names.
    pub(crate) fn from_superblock(superblock: &Superblock) -> ReserveOwners {
        let (user, group) = (superblock.reserved_uid.get(), superblock.reserved_gid.get());
        ReserveOwners { user: user.into(), group: group.into() }
    }

    /// Whether a caller may take what the superuser has reserved: the superuser, and the user and the group that
    /// the superblock names. Group 0 is there by default, and stands for no user but the superuser.
    pub(crate) fn include(self, caller: Caller) -> bool {
        let is_group = self.group != 0 && caller.gid == self.group;
        caller.uid == 0 || caller.uid == self.user || is_group
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;

    #[test]
    fn the_reserve_is_for_those_whom_the_superblock_names() {
        let mut superblock = Superblock::new_zeroed();
        let has = |uid, gid, superblock: &Superblock| {
            ReserveOwners::from_superblock(superblock).include(Caller { uid, gid })
        };
        assert!(has(0, 0, &superblock) && has(0, 7, &superblock));
        assert!(!has(7, 0, &superblock), "the group 0 is the default, and says nothing");
        (superblock.reserved_uid, superblock.reserved_gid) = (7.into(), 9.into());
        assert!(has(7, 1, &superblock) && has(1, 9, &superblock) && has(0, 0, &superblock));
        assert!(!has(9, 7, &superblock));
    }
}
