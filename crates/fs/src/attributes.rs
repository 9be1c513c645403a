//! Attributes of inodes: what `stat` tells, what of it can be set, extended attributes, and access control lists.

mod acls;
mod xattrs;

use std::rc::Rc;

use weir_format::{FileType, Stamp};
use weir_vfs::{AttributeChanges, Attributes, Caller, Device, FsError, InodeNumber, Timer};

use crate::changes::Changes;
use crate::device::device_of;
use crate::inodes::Nodes;

/// Blocks that a change of attributes changes: the inode's, where its access control list stays.
const CREDITS: u32 = 1;

/// Reads and changes the attributes of inodes.
pub(crate) struct AttributeStore {
    nodes: Rc<Nodes>,
    changes: Rc<Changes>,
    timer: Timer,
}

impl AttributeStore {
    pub(crate) fn new(nodes: Rc<Nodes>, changes: Rc<Changes>, timer: Timer) -> Rc<AttributeStore> {
        Rc::new(AttributeStore { nodes, changes, timer })
    }

    /// The attributes of an inode.
    pub(crate) async fn attributes(&self, inode: InodeNumber) -> Result<Attributes, FsError> {
        let node = self.nodes.get(inode).await?;
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
            size: node.size_with_update(),
            sectors: found.sectors(),
            accessed: found.time(Stamp::Accessed),
            changed: found.time(Stamp::Changed),
            modified: found.time(Stamp::Modified),
            created: found.time(Stamp::Created),
            device: if is_device { device_of(&found) } else { Device::default() },
        })
    }

    /// Sets all attributes but the size.
    pub(crate) async fn set(
        &self,
        caller: Caller,
        inode: InodeNumber,
        changes: &AttributeChanges,
    ) -> Result<(), FsError> {
        self.changes.changing_with_space(async || self.set_once(caller, inode, changes).await).await
    }

    async fn set_once(
        &self,
        caller: Caller,
        inode: InodeNumber,
        changes: &AttributeChanges,
    ) -> Result<(), FsError> {
        let node = self.nodes.get(inode).await?;
        let _locked = node.lock_exclusive().await;
        let lists = match changes.permissions {
            Some(permissions) => self.for_mode(&node, permissions).await?,
            None => None,
        };
        let handle =
            self.changes.start_for(caller, if lists.is_some() { xattrs::CREDITS } else { CREDITS }).await?;
        if let Some(lists) = lists {
            self.store(&handle, &node, &lists).await?;
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
            inode.set_time(Stamp::Changed, changes.changed.unwrap_or_else(|| self.timer.now()));
        }
        self.changes.all_or_abort(node.log(&handle)).await
    }
}
