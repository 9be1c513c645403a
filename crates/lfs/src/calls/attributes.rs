//! Attributes of inodes.

use futures_util::future::LocalBoxFuture;
use weir_f2fs::NodeId;
use weir_format::acl::Acl;
use weir_format::{AttributeName, FileType, Stamp};
use weir_vfs::{AclKind, AttributeCalls, Attributes, Device, FsError, InodeNumber};

use crate::filesystem::{F2fs, Mounted};

/// Units of 512 bytes in a block.
const SECTORS: u64 = 8;

impl Mounted {
    async fn value(&self, number: InodeNumber, name: &[u8]) -> Result<Option<Vec<u8>>, FsError> {
        let inode = self.inode(number).await?;
        let name = AttributeName::parse(name).map_err(|_| FsError::NoAttribute)?;
        Ok(self.image.attributes(&inode).await?.get(&name).map(<[u8]>::to_vec))
    }

    async fn list(&self, number: InodeNumber, kind: AclKind) -> Result<Option<Acl>, FsError> {
        let stored = self.value(number, kind.attribute()).await?;
        Ok(stored.map(|stored| Acl::read(number, &stored)).transpose()?)
    }
}

impl AttributeCalls for F2fs {
    fn next_inode(&self, last: InodeNumber) -> LocalBoxFuture<'_, Result<Option<InodeNumber>, FsError>> {
        Box::pin(async move {
            let image = &self.0.image;
            for number in last.max(NodeId::ROOT.0 - 1) + 1..image.layout.nodes() {
                let entry = image.node_entry(NodeId(number)).await?;
                if entry.address().is_block() && entry.inode.get() == number {
                    return Ok(Some(number));
                }
            }
            Ok(None)
        })
    }

    fn is_file_number(&self, inode: InodeNumber) -> bool {
        NodeId(inode) >= NodeId::ROOT && inode < self.0.image.layout.nodes()
    }

    fn attributes(&self, number: InodeNumber) -> LocalBoxFuture<'_, Result<Attributes, FsError>> {
        Box::pin(async move {
            let inode = self.0.inode(number).await?;
            let kind = inode.file_type().ok_or(FsError::NotFound)?;
            let is_device = matches!(kind, FileType::CharacterDevice | FileType::BlockDevice);
            Ok(Attributes {
                inode: number,
                generation: inode.generation.get(),
                kind,
                permissions: inode.mode.get() & 0xFFF,
                links: inode.links.get(),
                takes_first_name: false,
                uid: inode.uid.get(),
                gid: inode.gid.get(),
                size: inode.size.get(),
                sectors: inode.blocks.get().saturating_mul(SECTORS),
                accessed: inode.time(Stamp::Accessed),
                changed: inode.time(Stamp::Changed),
                modified: inode.time(Stamp::Modified),
                created: inode.time(Stamp::Created),
                device: match is_device {
                    true => Device::from_words(inode.address(0).0, inode.address(1).0),
                    false => Device::default(),
                },
            })
        })
    }

    fn extended_attribute<'a>(
        &'a self,
        inode: InodeNumber,
        name: &'a [u8],
    ) -> LocalBoxFuture<'a, Result<Vec<u8>, FsError>> {
        Box::pin(async move {
            match AclKind::of_attribute(name) {
                Some(kind) => self.0.list(inode, kind).await?.map(|list| list.to_interface()),
                None => self.0.value(inode, name).await?,
            }
            .ok_or(FsError::NoAttribute)
        })
    }

    fn extended_attributes(&self, inode: InodeNumber) -> LocalBoxFuture<'_, Result<Vec<Vec<u8>>, FsError>> {
        Box::pin(async move {
            let inode = self.0.inode(inode).await?;
            let attributes = self.0.image.attributes(&inode).await?;
            Ok(attributes.names().filter_map(AttributeName::full).collect())
        })
    }

    fn acl(&self, inode: InodeNumber, kind: AclKind) -> LocalBoxFuture<'_, Result<Option<Acl>, FsError>> {
        Box::pin(self.0.list(inode, kind))
    }
}
