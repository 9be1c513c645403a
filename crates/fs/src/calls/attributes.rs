//! The calls for attributes of inodes, extended attributes, and access control lists.

use futures_util::future::LocalBoxFuture;
use weir_format::acl::Acl;

use weir_vfs::{
    AclKind, AttributeCalls, AttributeChanges, Attributes, Expect, FsError, InodeNumber, MountedCalls as _,
    ReadOnlyReason,
};

use crate::filesystem::BarrierFs;

impl AttributeCalls for BarrierFs {
    fn next_inode(&self, last: InodeNumber) -> LocalBoxFuture<'_, Result<Option<InodeNumber>, FsError>> {
        Box::pin(async move {
            if let Some(reason @ ReadOnlyReason::Unmounted) = self.read_only() {
                return Err(FsError::ReadOnly(reason));
            }
            // A caller that asks looks at all of them, and need not keep them in memory.
            self.0.nodes.make_room();
            self.0.metadata.space.next_used_inode(last).await
        })
    }

    fn is_file_number(&self, inode: InodeNumber) -> bool {
        self.0.metadata.space.is_file_number(inode)
    }

    fn attributes(&self, inode: InodeNumber) -> LocalBoxFuture<'_, Result<Attributes, FsError>> {
        Box::pin(async move { self.0.attributes.attributes(inode).await })
    }

    fn set_attributes<'a>(
        &'a self,
        inode: InodeNumber,
        changes: &'a AttributeChanges,
    ) -> LocalBoxFuture<'a, Result<(), FsError>> {
        Box::pin(async move {
            if let Some(size) = changes.size {
                self.truncate(inode, size).await?;
            }
            self.0.attributes.set(self.1, inode, changes).await
        })
    }

    fn extended_attribute<'a>(
        &'a self,
        inode: InodeNumber,
        name: &'a [u8],
    ) -> LocalBoxFuture<'a, Result<Vec<u8>, FsError>> {
        Box::pin(async move { self.0.attributes.extended(inode, name).await })
    }

    fn extended_attributes(&self, inode: InodeNumber) -> LocalBoxFuture<'_, Result<Vec<Vec<u8>>, FsError>> {
        Box::pin(async move { self.0.attributes.extended_names(inode).await })
    }

    fn set_extended_attribute<'a>(
        &'a self,
        inode: InodeNumber,
        name: &'a [u8],
        value: &'a [u8],
        expect: Expect,
    ) -> LocalBoxFuture<'a, Result<(), FsError>> {
        Box::pin(async move { self.0.attributes.set_extended(self.1, inode, name, value, expect).await })
    }

    fn remove_extended_attribute<'a>(
        &'a self,
        inode: InodeNumber,
        name: &'a [u8],
    ) -> LocalBoxFuture<'a, Result<(), FsError>> {
        Box::pin(async move { self.0.attributes.remove_extended(self.1, inode, name).await })
    }

    fn acl(&self, inode: InodeNumber, kind: AclKind) -> LocalBoxFuture<'_, Result<Option<Acl>, FsError>> {
        Box::pin(async move { self.0.attributes.acl(inode, kind).await })
    }

    fn set_acl<'a>(
        &'a self,
        inode: InodeNumber,
        kind: AclKind,
        acl: Option<&'a Acl>,
        takes_set_group: bool,
    ) -> LocalBoxFuture<'a, Result<(), FsError>> {
        Box::pin(async move { self.0.attributes.set_acl(self.1, inode, kind, acl, takes_set_group).await })
    }
}
