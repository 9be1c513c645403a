//! Access control lists: rights for users and groups beyond the three that a mode has room for.
//!
//! A list has an entry for the file's owner, its group and all others, which are what the mode says; besides these,
//! entries for users and groups by number, and then a mask that bounds what they and the file's group may do. The mask
//! is the group's bits of the mode. A list without such entries and mask says what a mode says, and is not kept.
//!
//! Lists are attributes of inodes. The kernel's interface has them in one form, with a number in each entry, and ext4 in
//! another, where entries that need no number have none.

use crate::attribute::{AttributeName, Attributes};
use crate::error::{FormatError, Place, Structure};

/// The name of the attribute that is a file's own list.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// The name of the attribute that is a directory's list for what is made in it.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

/// Versions of the two forms, which begin with them.
const INTERFACE_VERSION: u32 = 2;
const STORED_VERSION: u32 = 1;
/// Bytes of an entry, without and with a number.
const SHORT: usize = 4;
const LONG: usize = 8;
/// The number in entries that have none, and that no user has.
const NOBODY: u32 = u32::MAX;

/// The subject of an entry, in the order of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AclSubject {
    /// The file's owner.
    Owner,
    /// A user, by number.
    User(u32),
    /// The file's group.
    OwningGroup,
    /// A group, by number.
    Group(u32),
    /// What users and groups by number, and the file's group, have at most.
    Mask,
    /// All others.
    Other,
}

impl AclSubject {
    /// Its number in both forms, and that of the user or group.
    fn tag(self) -> (u16, Option<u32>) {
        match self {
            AclSubject::Owner => (0x01, None),
            AclSubject::User(id) => (0x02, Some(id)),
            AclSubject::OwningGroup => (0x04, None),
            AclSubject::Group(id) => (0x08, Some(id)),
            AclSubject::Mask => (0x10, None),
            AclSubject::Other => (0x20, None),
        }
    }

    fn of_tag(tag: u16, id: u32) -> Option<AclSubject> {
        Some(match tag {
            0x01 => AclSubject::Owner,
            0x02 => AclSubject::User(id),
            0x04 => AclSubject::OwningGroup,
            0x08 => AclSubject::Group(id),
            0x10 => AclSubject::Mask,
            0x20 => AclSubject::Other,
            _ => return None,
        })
    }
}

/// An entry of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AclEntry {
    /// Whom it is for.
    pub who: AclSubject,
    /// Three bits: read 4, write 2, execute 1.
    pub permissions: u8,
}

/// An access control list, complete and in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl {
    entries: Vec<AclEntry>,
}

impl Acl {
    /// A list of these entries.
    ///
    /// # Errors
    ///
    /// [`FormatError::Invalid`] unless the three of the mode are there once, entries are in the order of [`AclSubject`],
    /// users and groups have numbers and a mask behind them, and permissions have three bits.
    pub fn new(entries: Vec<AclEntry>) -> Result<Acl, FormatError> {
        let invalid = |what| Err(FormatError::Invalid { what });
        if !entries.is_sorted_by_key(|entry| entry.who.tag().0) {
            return invalid("entries of an access control list have an order");
        }
        let count = |tag| entries.iter().filter(|entry| entry.who.tag().0 == tag).count();
        if [0x01, 0x04, 0x20].into_iter().any(|tag| count(tag) != 1) || count(0x10) > 1 {
            return invalid(
                "an access control list has one entry for owner, group and others, and one mask at most",
            );
        }
        if count(0x02) + count(0x08) > 0 && count(0x10) == 0 {
            return invalid("an access control list with users or groups has a mask");
        }
        if entries.iter().any(|entry| entry.who.tag().1 == Some(NOBODY) || entry.permissions > 7) {
            return invalid("an entry of an access control list has a number, and three bits");
        }
        Ok(Acl { entries })
    }

    /// Reads the form of the kernel's interface.
    ///
    /// # Errors
    ///
    /// [`FormatError::Invalid`] for what is not of that form, and as of [`new`](Self::new).
    pub fn of_interface(value: &[u8]) -> Result<Acl, FormatError> {
        let malformed =
            FormatError::Invalid { what: "an access control list has version 2 and whole entries" };
        let Some((version, entries)) = value.split_at_checked(4) else { return Err(malformed) };
        if version != INTERFACE_VERSION.to_le_bytes() || !entries.len().is_multiple_of(LONG) {
            return Err(malformed);
        }
        let read = |entry: &[u8]| {
            let who = AclSubject::of_tag(u16_at(entry, 0), u32_at(entry, 4))?;
            Some(AclEntry { who, permissions: u8::try_from(u16_at(entry, 2)).ok()? })
        };
        Acl::new(entries.chunks_exact(LONG).map(read).collect::<Option<_>>().ok_or(malformed)?)
    }

    /// The list in the form of the kernel's interface.
    pub fn to_interface(&self) -> Vec<u8> {
        let mut value = INTERFACE_VERSION.to_le_bytes().to_vec();
        for entry in &self.entries {
            let (tag, id) = entry.who.tag();
            value.extend_from_slice(&tag.to_le_bytes());
            value.extend_from_slice(&u16::from(entry.permissions).to_le_bytes());
            value.extend_from_slice(&id.unwrap_or(NOBODY).to_le_bytes());
        }
        value
    }

    /// Reads the form that is stored with an inode.
    ///
    /// # Errors
    ///
    /// [`FormatError::Corrupt`] for what is no such list.
    pub fn read(inode: u32, stored: &[u8]) -> Result<Acl, FormatError> {
        let corrupt = FormatError::corrupt(
            Structure::Attributes,
            Place::Inode(inode),
            "an access control list that is none",
        );
        Acl::of_stored(stored).and_then(|entries| Acl::new(entries).ok()).ok_or(corrupt)
    }

    fn of_stored(stored: &[u8]) -> Option<Vec<AclEntry>> {
        let (version, mut left) = stored.split_at_checked(4)?;
        if version != STORED_VERSION.to_le_bytes() {
            return None;
        }
        let mut entries = Vec::with_capacity(left.len() / LONG + 4);
        while !left.is_empty() {
            let (short, behind) = left.split_at_checked(SHORT)?;
            let (tag, permissions) = (u16_at(short, 0), u16_at(short, 2));
            let has_id = AclSubject::of_tag(tag, 0)?.tag().1.is_some();
            let (id, behind) = behind.split_at_checked(if has_id { LONG - SHORT } else { 0 })?;
            let id = if has_id { u32_at(id, 0) } else { NOBODY };
            let who = AclSubject::of_tag(tag, id)?;
            entries.push(AclEntry { who, permissions: u8::try_from(permissions).ok()? });
            left = behind;
        }
        Some(entries)
    }

    /// The list in the form that is stored with an inode.
    pub fn to_stored(&self) -> Vec<u8> {
        let mut stored = STORED_VERSION.to_le_bytes().to_vec();
        for entry in &self.entries {
            let (tag, id) = entry.who.tag();
            stored.extend_from_slice(&tag.to_le_bytes());
            stored.extend_from_slice(&u16::from(entry.permissions).to_le_bytes());
            stored.extend(id.into_iter().flat_map(u32::to_le_bytes));
        }
        stored
    }

    /// Its entries.
    pub fn entries(&self) -> &[AclEntry] {
        &self.entries
    }

    /// Whether it says no more than a mode does.
    pub fn is_mode(&self) -> bool {
        self.entries.len() == 3
    }

    /// The nine bits of the mode of a file that has this list.
    pub fn mode_bits(&self) -> u16 {
        self.entries.iter().fold(0, |bits, entry| {
            let shift = self.place_in_mode(entry.who);
            bits | shift.map_or(0, |shift| u16::from(entry.permissions) << shift)
        })
    }

    /// Makes it the list of a file whose mode becomes one with these nine bits.
    pub fn set_mode_bits(&mut self, mode: u16) {
        self.change_mode_entries(|_, bits| bits, mode);
    }

    /// The list of what is made, with a mode of these nine bits, where this one is the default: no user gets more than
    /// both allow. The mode is then that of [`mode_bits`](Self::mode_bits).
    #[must_use]
    pub fn inherited(&self, mode: u16) -> Acl {
        let mut acl = self.clone();
        acl.change_mode_entries(|had, bits| had & bits, mode);
        acl
    }

    /// Changes entries that are the mode, by what they have and the bits of another mode.
    fn change_mode_entries(&mut self, change: impl Fn(u8, u8) -> u8, mode: u16) {
        let places: Vec<_> = self.entries.iter().map(|entry| self.place_in_mode(entry.who)).collect();
        for (entry, place) in self.entries.iter_mut().zip(places) {
            if let Some(shift) = place {
                entry.permissions = change(entry.permissions, (mode >> shift & 7) as u8);
            }
        }
    }

    /// Where the mode has what an entry says; none if it has not. The mask comes before the file's group.
    fn place_in_mode(&self, who: AclSubject) -> Option<u32> {
        let masked = self.entries.iter().any(|entry| entry.who == AclSubject::Mask);
        match who {
            AclSubject::Owner => Some(6),
            AclSubject::Mask => Some(3),
            AclSubject::OwningGroup if !masked => Some(3),
            AclSubject::Other => Some(0),
            _ => None,
        }
    }
}

/// Checks the lists among the attributes of an inode.
///
/// # Errors
///
/// [`FormatError::Corrupt`] if one is none.
pub fn check(inode: u32, attributes: &Attributes) -> Result<(), FormatError> {
    for name in [ACCESS, DEFAULT] {
        if let Some(stored) = attributes.get(&AttributeName::parse(name)?) {
            Acl::read(inode, stored)?;
        }
    }
    Ok(())
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(list: &[(AclSubject, u8)]) -> Vec<AclEntry> {
        list.iter().map(|&(who, permissions)| AclEntry { who, permissions }).collect()
    }

    const LIST: [(AclSubject, u8); 6] = [
        (AclSubject::Owner, 7),
        (AclSubject::User(1000), 6),
        (AclSubject::OwningGroup, 5),
        (AclSubject::Group(7), 4),
        (AclSubject::Mask, 6),
        (AclSubject::Other, 1),
    ];

    fn list() -> Acl {
        Acl::new(entries(&LIST)).expect("a list")
    }

    /// The bytes are those that Linux writes: `getfattr -e hex`, and `debugfs -R "ea_get -x"`.
    #[test]
    fn both_forms_are_as_linux_has_them() {
        let interface = [
            2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 2, 0, 6, 0, 0xE8, 3, 0, 0, 4, 0, 5, 0, 255, 255, 255,
            255, 8, 0, 4, 0, 7, 0, 0, 0, 16, 0, 6, 0, 255, 255, 255, 255, 32, 0, 1, 0, 255, 255, 255, 255,
        ];
        let stored = [
            1, 0, 0, 0, 1, 0, 7, 0, 2, 0, 6, 0, 0xE8, 3, 0, 0, 4, 0, 5, 0, 8, 0, 4, 0, 7, 0, 0, 0, 16, 0, 6,
            0, 32, 0, 1, 0,
        ];
        assert_eq!(list().to_interface(), interface);
        assert_eq!(list().to_stored(), stored);
        assert_eq!(Acl::of_interface(&interface), Ok(list()));
        assert_eq!(Acl::read(9, &stored), Ok(list()));
    }

    #[test]
    fn the_mode_is_owner_mask_and_others() {
        let mut acl = list();
        assert_eq!((acl.mode_bits(), acl.is_mode()), (0o761, false));
        acl.set_mode_bits(0o640);
        let changed = [6, 6, 5, 4, 4, 0];
        assert_eq!(acl.entries().iter().map(|entry| entry.permissions).collect::<Vec<_>>(), changed);
        let plain = [(AclSubject::Owner, 6), (AclSubject::OwningGroup, 4), (AclSubject::Other, 0)];
        let mut acl = Acl::new(entries(&plain)).expect("a list");
        assert_eq!((acl.mode_bits(), acl.is_mode()), (0o640, true));
        acl.set_mode_bits(0o777);
        assert_eq!(acl.mode_bits(), 0o777);
    }

    #[test]
    fn what_is_made_gets_what_default_and_mode_allow() {
        let made = list().inherited(0o654);
        let permissions: Vec<_> = made.entries().iter().map(|entry| entry.permissions).collect();
        assert_eq!(permissions, [6, 6, 5, 4, 4, 0]);
        assert_eq!(made.mode_bits(), 0o640);
    }

    #[test]
    fn lists_that_are_none_are_refused() {
        let without = |nth: usize| {
            let mut list = LIST.to_vec();
            list.remove(nth);
            Acl::new(entries(&list))
        };
        for nth in [0, 2, 4, 5] {
            without(nth).expect_err("it lacks an entry");
        }
        for nth in [1, 3] {
            without(nth).expect("a list");
        }
        for (nth, other) in [
            (0, (AclSubject::Owner, 8)),
            (1, (AclSubject::User(u32::MAX), 4)),
            (3, (AclSubject::User(3), 4)),
            (4, (AclSubject::OwningGroup, 4)),
            (5, (AclSubject::Mask, 4)),
        ] {
            let mut list = LIST;
            list[nth] = other;
            Acl::new(entries(&list)).expect_err("not a list");
        }
        for value in [&[][..], &[2, 0, 0], &[2, 0, 0, 0], &[1, 0, 0, 0], &list().to_stored()] {
            Acl::of_interface(value).expect_err("not the form");
        }
        let corrupt = |stored: &[u8]| {
            assert!(matches!(Acl::read(9, stored), Err(FormatError::Corrupt { .. })), "{stored:?}");
        };
        for stored in [&[][..], &[1, 0, 0, 0], &[2, 0, 0, 0], &list().to_interface()] {
            corrupt(stored);
        }
        let stored = list().to_stored();
        for length in 0..stored.len() {
            corrupt(&stored[..length]);
        }
    }

    #[test]
    fn whatever_is_read_is_stored_as_it_was() {
        use rand::{RngExt, SeedableRng};
        let mut random = rand_pcg::Pcg64::seed_from_u64(1);
        let (mut read, stored) = (0, list().to_stored());
        for _ in 0..50_000 {
            let mut other = stored.clone();
            for _ in 0..random.random_range(1..3) {
                let at = random.random_range(0..other.len());
                other[at] = [0, 1, 2, 4, 8, 16, 32, 255][random.random_range(0..8)];
            }
            if let Ok(acl) = Acl::read(9, &other) {
                read += 1;
                assert_eq!(acl.to_stored(), other);
                assert_eq!(Acl::of_interface(&acl.to_interface()), Ok(acl));
            }
        }
        assert!(read > 1000, "{read}");
    }
}
