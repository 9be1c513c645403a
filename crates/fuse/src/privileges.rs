//! What a file loses when its content or owner changes: set-user-ID and set-group-ID, and its capabilities.
//!
//! The kernel leaves that to the server that says so (`FUSE_HANDLE_KILLPRIV_V2`). It would ask for the attribute
//! `security.capability` before every write otherwise, which costs as much as the write.

use rustix::io::Errno;
use weir_format::FileType;
use weir_vfs::{AttributeChanges, Attributes, Filesystem, FsError, InodeNumber};

use crate::errno::errno;
use crate::protocol::Header;

const SET_UID: u16 = 0o4000;
const SET_GID: u16 = 0o2000;
/// Without it, set-group-ID stands for something else than privileges, for those of the group.
const GROUP_EXECUTE: u16 = 0o0010;

/// The capability to keep set-ID bits (capabilities(7)), as a bit of a set.
const CAP_FSETID: u64 = 1 << 4;

/// The attribute that holds a file's capabilities.
const CAPABILITY: &[u8] = b"security.capability";

/// Who changes a file, as far as a request tells.
#[derive(Clone, Copy)]
pub(crate) struct Caller {
    pub(crate) uid: u32,
    /// The group of files that the caller makes; the request says nothing of further groups.
    pub(crate) gid: u32,
    /// The thread that asks, 0 if the kernel names none.
    thread: u32,
}

/// Whether the bits of a file are removed for every user that changes it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Removal {
    /// The kernel asks for it, or the owner changes.
    Required,
    /// The caller may hold the capability that keeps them.
    UnlessKept,
}

impl Caller {
    /// The filesystem, for operations of this caller.
    pub(crate) fn view_of(self, filesystem: &Filesystem) -> Filesystem {
        filesystem.for_caller(weir_vfs::Caller { uid: self.uid, gid: self.gid })
    }

    pub(crate) fn from_header(header: &Header) -> Caller {
        Caller { uid: header.uid, gid: header.gid, thread: header.thread }
    }

    /// Whether the caller may change what `fsync` of a file of this owner promises.
    pub(crate) fn may_speak_for(self, owner: u32) -> bool {
        self.uid == owner || self.uid == 0
    }

    /// Whether the caller may write a file, as far as its owner, its group and its permissions tell; the group's are those of all that an
    /// access control list names.
    pub(crate) fn may_write(self, file: &Attributes) -> bool {
        let in_group = || {
            self.gid == file.gid
                || self.credentials().is_some_and(|credentials| credentials.groups.contains(&file.gid))
        };
        match file.permissions {
            _ if self.may_speak_for(file.uid) => true,
            all if all & 0o002 != 0 => true,
            all => all & 0o020 != 0 && in_group(),
        }
    }

    /// The thread that asks, 0 if the kernel names none.
    pub(crate) fn thread(self) -> u32 {
        self.thread
    }

    /// The process of that thread. None where the server cannot read it.
    pub(crate) fn process(self) -> Option<u32> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.thread)).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
        line.trim().parse().ok()
    }

    /// Whether the caller is the superuser.
    pub(crate) fn is_superuser(self) -> bool {
        self.uid == 0
    }

    /// What the thread that asks holds. An overlay sends requests with the user of its mounter; the thread's status has the
    /// credentials of the program behind it. None where the thread cannot be read.
    fn credentials(self) -> Option<Credentials> {
        let of_thread = |what: &str| format!("/proc/{}/{what}", self.thread);
        let mut found = Credentials::from_status(&std::fs::read_to_string(of_thread("status")).ok()?);
        // Capabilities count in the server's own user namespace, which is the kernel's first one or stricter.
        let [own, others] = ["/proc/self/ns/user".to_owned(), of_thread("ns/user")].map(std::fs::read_link);
        found.may_keep &= own.is_ok_and(|own| others.is_ok_and(|others| own == others));
        Some(found)
    }
}

/// A thread's credentials, as `/proc/PID/status` lists them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Credentials {
    /// `CAP_FSETID` is among the effective capabilities.
    may_keep: bool,
    /// The group of files that it makes, and all further groups.
    groups: Vec<u32>,
}

impl Credentials {
    /// What is missing in the text, or cannot be read, is not held.
    fn from_status(text: &str) -> Credentials {
        let field = |name| text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        let numbers = |name| field(name).split_whitespace().filter_map(|word| word.parse().ok());
        let effective = u64::from_str_radix(field("CapEff:").trim(), 16).unwrap_or(0);
        // Real, effective, saved, of files.
        let groups = numbers("Gid:").nth(3).into_iter().chain(numbers("Groups:")).collect();
        Credentials { may_keep: effective & CAP_FSETID != 0, groups }
    }
}

/// Permissions of a file without its privileges, when it is changed by a user of its group or not; none if it has
/// none. Of directories they mean something else. Others that are not regular files lose them, too, as the kernel has it
/// on its own filesystems.
fn without_privileges(kind: FileType, permissions: u16, in_group: bool) -> Option<u16> {
    if kind == FileType::Directory {
        return None;
    }
    let group = if permissions & GROUP_EXECUTE != 0 || !in_group { SET_GID } else { 0 };
    let left = permissions & !(SET_UID | group);
    (left != permissions).then_some(left)
}

/// Before a write by a caller that may not keep privileges: removes them. Whether there were any, so that the kernel has
/// to look again.
pub(crate) async fn drop_privileges(
    filesystem: &Filesystem,
    inode: InodeNumber,
    caller: Caller,
    removal: Removal,
) -> Result<bool, Errno> {
    let permissions = left_without_privileges(filesystem, inode, caller, removal).await?;
    if permissions.is_some() {
        let changes = AttributeChanges { permissions, ..AttributeChanges::default() };
        filesystem.set_attributes(inode, &changes).await.map_err(|error| errno(&error))?;
    }
    Ok(permissions.is_some())
}

/// What is to be left of a file's permissions; none if that is all.
pub(crate) async fn left_without_privileges(
    filesystem: &Filesystem,
    inode: InodeNumber,
    caller: Caller,
    removal: Removal,
) -> Result<Option<u16>, Errno> {
    let found = filesystem.attributes(inode).await.map_err(|error| errno(&error))?;
    if found.permissions & (SET_UID | SET_GID) == 0 {
        return Ok(None);
    }
    let credentials = caller.credentials();
    let keeps = caller.uid == 0 && credentials.as_ref().is_some_and(|credentials| credentials.may_keep);
    if keeps && removal == Removal::UnlessKept {
        return Ok(None);
    }
    let in_group = keeps
        || match credentials {
            Some(credentials) => credentials.groups.contains(&found.gid),
            // The group of an overlay's mounter says nothing about the program behind it.
            None => caller.uid != 0 && caller.gid == found.gid,
        };
    Ok(without_privileges(found.kind, found.permissions, in_group))
}

/// Before a direct write, of which the kernel does not ask for them as it does of others.
pub(crate) async fn drop_capabilities(filesystem: &Filesystem, inode: InodeNumber) -> Result<(), Errno> {
    match filesystem.extended_attribute(inode, CAPABILITY).await {
        Ok(_) => {
            let removed = filesystem.remove_extended_attribute(inode, CAPABILITY).await;
            removed.map_err(|error| errno(&error))
        }
        Err(FsError::NoAttribute) => Ok(()),
        Err(error) => Err(errno(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_read_from_a_status() {
        let found = |text| Credentials::from_status(text);
        let held = |may_keep, groups: &[u32]| Credentials { may_keep, groups: groups.to_vec() };
        assert_eq!(
            found("Name:\tx\nGid:\t1\t2\t3\t4\nGroups:\t5 6 \nCapEff:\t000001ffffffffff\n"),
            held(true, &[4, 5, 6])
        );
        assert_eq!(
            found("Gid:\t1\t1\t1\t1\nGroups:\t\nCapPrm:\t000001ffffffffff\nCapEff:\t0\n"),
            held(false, &[1])
        );
        assert_eq!(found("CapEff:\t000001ffffffffef\n"), held(false, &[]));
        assert_eq!(found("CapEff:\tnone\nGid:\t1\nGroups:\tx\n"), held(false, &[]));
        assert_eq!(found(""), held(false, &[]));
    }

    #[test]
    fn privileges_are_those_of_programs() {
        assert_eq!(without_privileges(FileType::Regular, 0o6755, true), Some(0o0755));
        assert_eq!(without_privileges(FileType::Regular, 0o2745, true), None, "once meant mandatory locking");
        assert_eq!(without_privileges(FileType::Regular, 0o2745, false), Some(0o0745), "as ext4 has it");
        assert_eq!(without_privileges(FileType::Regular, 0o0777, false), None);
        assert_eq!(
            without_privileges(FileType::Directory, 0o2775, false),
            None,
            "inherited by what is made in it"
        );
    }
}
