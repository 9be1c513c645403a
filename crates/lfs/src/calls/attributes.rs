//! Attributes of inodes.

use futures_util::future::LocalBoxFuture;
use weir_f2fs::NodeId;
use weir_format::acl::Acl;
use weir_vfs::{
    AclChange, AclKind, AttributeCalls, AttributeChanges, Attributes, Expect, FsError, InodeNumber,
};

use crate::content::Content;
use crate::filesystem::F2fs;

impl AttributeCalls for F2fs {
    fn next_inode(&self, last: InodeNumber) -> LocalBoxFuture<'_, Result<Option<InodeNumber>, FsError>> {
        Box::pin(async move {
            for number in last.max(NodeId::ROOT.0 - 1) + 1..self.0.layout.nodes() {
                let entry = self.0.placement.table.entry(NodeId(number)).await?;
                if entry.address.get() != 0 && entry.inode.get() == number {
                    return Ok(Some(number));
                }
            }
            Ok(None)
        })
    }

    fn is_file_number(&self, inode: InodeNumber) -> bool {
        NodeId(inode) >= NodeId::ROOT && inode < self.0.layout.nodes()
    }

    fn attributes(&self, number: InodeNumber) -> LocalBoxFuture<'_, Result<Attributes, FsError>> {
        Box::pin(self.0.attributes_of(NodeId(number)))
    }

    fn set_attributes<'a>(
        &'a self,
        inode: InodeNumber,
        changes: &'a AttributeChanges,
    ) -> LocalBoxFuture<'a, Result<(), FsError>> {
        Box::pin(async move {
            if let Some(size) = changes.size {
                Content(&self.0).truncate_file(inode, size).await?;
            }
            self.0.change_attributes(NodeId(inode), changes).await
        })
    }

    fn extended_attribute<'a>(
        &'a self,
        inode: InodeNumber,
        name: &'a [u8],
    ) -> LocalBoxFuture<'a, Result<Vec<u8>, FsError>> {
        Box::pin(self.0.extended_attribute(NodeId(inode), name))
    }

    fn extended_attributes(&self, inode: InodeNumber) -> LocalBoxFuture<'_, Result<Vec<Vec<u8>>, FsError>> {
        Box::pin(self.0.extended_names(NodeId(inode)))
    }

    fn set_extended_attribute<'a>(
        &'a self,
        inode: InodeNumber,
        name: &'a [u8],
        value: &'a [u8],
        expect: Expect,
    ) -> LocalBoxFuture<'a, Result<(), FsError>> {
        Box::pin(self.0.set_extended(NodeId(inode), name, value, expect))
    }

    fn remove_extended_attribute<'a>(
        &'a self,
        inode: InodeNumber,
        name: &'a [u8],
    ) -> LocalBoxFuture<'a, Result<(), FsError>> {
        Box::pin(self.0.remove_extended(NodeId(inode), name))
    }

    fn acl(&self, inode: InodeNumber, kind: AclKind) -> LocalBoxFuture<'_, Result<Option<Acl>, FsError>> {
        Box::pin(self.0.find_acl(NodeId(inode), kind))
    }

    fn set_acl<'a>(
        &'a self,
        inode: InodeNumber,
        kind: AclKind,
        acl: Option<&'a Acl>,
        takes_set_group: bool,
    ) -> LocalBoxFuture<'a, Result<(), FsError>> {
        let expect = if acl.is_some() { Expect::Anything } else { Expect::Present };
        Box::pin(self.0.change_acl(NodeId(inode), AclChange { kind, acl, expect, takes_set_group }))
    }
}
