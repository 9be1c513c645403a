//! Attributes of inodes: what `stat` tells, and what of it can be set.

use weir_ext4::{FileTime, FileType, ROOT_INODE, Stamp};

use crate::caller::Caller;
use crate::error::{FsError, ReadOnlyReason};
use crate::filesystem::{Filesystem, InodeNumber, Mounted};
use crate::names::{Device, device_of};
use crate::xattrs;

/// Blocks that a change of attributes changes: the inode's, where its access control list stays.
const CREDITS: u32 = 1;

/// What `stat` tells of an inode.
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

impl Filesystem {
    /// The next inode in use behind `last`, by number; of 0, the root. Those of the format itself are left out. It may
    /// be deleted by the time that it is looked at.
    ///
    /// # Errors
    /// [`FsError::ReadOnly`] once the filesystem is unmounted, and what reading may fail by.
    pub async fn next_inode(&self, last: InodeNumber) -> Result<Option<InodeNumber>, FsError> {
        if let Some(reason @ ReadOnlyReason::Unmounted) = self.read_only() {
            return Err(FsError::ReadOnly(reason));
        }
        // A caller that asks looks at all of them, and need not keep them in memory.
        self.0.nodes.make_room(&self.0);
        self.0.space.next_used_inode(last).await
    }

    /// Whether a file can have this number: neither is it one of the format itself, nor behind the last.
    pub fn is_file_number(&self, inode: InodeNumber) -> bool {
        self.0.is_file_number(inode)
    }

    /// The attributes of an inode.
    ///
    /// # Errors
    /// [`FsError::NotFound`], and what reading may fail by.
    pub async fn attributes(&self, inode: InodeNumber) -> Result<Attributes, FsError> {
        let node = self.0.nodes.get(&self.0, inode).await?;
        let found = node.inode.borrow();
        let kind = found.file_type().ok_or(FsError::NotFound)?;
        let is_device = matches!(kind, FileType::CharacterDevice | FileType::BlockDevice);
        Ok(Attributes {
            inode,
            generation: found.generation.get(),
            kind,
            permissions: found.permissions(),
            links: found.links.get().into(),
            takes_first_name: node.takes_first_name.get(),
            uid: found.uid(),
            gid: found.gid(),
            size: found.size(),
            sectors: found.sectors(),
            accessed: found.time(Stamp::Accessed),
            changed: found.time(Stamp::Changed),
            modified: found.time(Stamp::Modified),
            created: found.time(Stamp::Created),
            device: if is_device { device_of(&found) } else { Device::default() },
        })
    }

    /// Sets attributes of an inode, and its time of change. A size that grows leaves a hole, one that shrinks
    /// frees what is behind it. An access control list goes along with the permissions.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::ReadOnly`], [`FsError::NoSpace`] when the block that its list lies in has to be
    /// split off from other files, those of [`truncate`](Self::truncate) for a size, and what
    /// reading may fail by.
    pub async fn set_attributes(
        &self,
        inode: InodeNumber,
        changes: &AttributeChanges,
    ) -> Result<(), FsError> {
        if let Some(size) = changes.size {
            self.truncate(inode, size).await?;
        }
        let fs = &self.0;
        fs.changing(fs.with_space(async || fs.change_inode(self.1, inode, changes).await)).await
    }
}

impl Mounted {
    /// Whether a file can have this number.
    pub(crate) fn is_file_number(&self, number: u32) -> bool {
        let first = self.superblock.borrow().first_inode.get();
        number == ROOT_INODE || (first..=self.layout.inodes()).contains(&number)
    }

    /// Sets all attributes but the size.
    async fn change_inode(
        &self,
        caller: Caller,
        inode: InodeNumber,
        changes: &AttributeChanges,
    ) -> Result<(), FsError> {
        let node = self.nodes.get(self, inode).await?;
        let _locked = node.alone().await;
        let lists = match changes.permissions {
            Some(permissions) => self.attributes_for_mode(&node, permissions).await?,
            None => None,
        };
        let handle = self.start(caller, if lists.is_some() { xattrs::CREDITS } else { CREDITS }).await?;
        if let Some(lists) = lists {
            self.put_attributes(&handle, &node, &lists).await?;
        }
        {
            let mut inode = node.inode.borrow_mut();
            if let Some(permissions) = changes.permissions {
                inode.set_permissions(permissions);
            }
            let (uid, gid) = (changes.uid.unwrap_or(inode.uid()), changes.gid.unwrap_or(inode.gid()));
            inode.set_owner(uid, gid);
            let times = [(Stamp::Accessed, changes.accessed), (Stamp::Modified, changes.modified)];
            for (stamp, time) in times {
                if let Some(time) = time {
                    inode.set_time(stamp, time);
                }
            }
            inode.set_time(Stamp::Changed, changes.changed.unwrap_or_else(|| self.now()));
        }
        self.all_or_abort(node.log(self, &handle)).await
    }
}
