//! What files hold.

use futures_util::future::LocalBoxFuture;
use weir_f2fs::{Inode, inline_flags, pages_max};
use weir_format::{BLOCK_BYTES, FileType};
use weir_vfs::{FileCalls, FsError, InodeNumber};

use crate::filesystem::{F2fs, Mounted};

const BLOCK: u64 = BLOCK_BYTES as u64;

impl Mounted {
    /// The inode of a regular file.
    async fn file(&self, number: InodeNumber) -> Result<Inode, FsError> {
        let inode = self.inode(number).await?;
        match inode.file_type() {
            Some(FileType::Regular) => Ok(inode),
            Some(FileType::Directory) => Err(FsError::IsDirectory),
            _ => Err(FsError::Invalid("only regular files have content")),
        }
    }

    /// Whether a page has content: all of a file that lies in its inode has.
    async fn has_page(&self, inode: &Inode, page: u64) -> Result<bool, FsError> {
        let inline = inode.has_inline(inline_flags::DATA);
        Ok(inline || self.image.page_address(inode, page).await?.is_block())
    }

    /// The first byte at or behind `offset` whose page has content, or has none; `None` if there is none before the end.
    async fn seek(&self, number: InodeNumber, offset: u64, content: bool) -> Result<Option<u64>, FsError> {
        let inode = self.file(number).await?;
        let size = inode.size.get();
        let mut page = offset / BLOCK;
        while page * BLOCK < size {
            if self.has_page(&inode, page).await? == content {
                return Ok(Some(offset.max(page * BLOCK)));
            }
            page += 1;
        }
        Ok((!content && offset < size).then_some(size))
    }
}

impl FileCalls for F2fs {
    fn read<'a>(
        &'a self,
        inode: InodeNumber,
        offset: u64,
        bytes: &'a mut [u8],
    ) -> LocalBoxFuture<'a, Result<usize, FsError>> {
        Box::pin(async move {
            let inode = self.0.file(inode).await?;
            let left = inode.size.get().saturating_sub(offset);
            let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
            let mut done = 0;
            while done < wanted {
                let at = offset + done as u64;
                let page = self.0.image.page(&inode, at / BLOCK).await?;
                let rest = &page[(at % BLOCK) as usize..];
                let taken = rest.len().min(wanted - done);
                bytes[done..done + taken].copy_from_slice(&rest[..taken]);
                done += taken;
            }
            Ok(done)
        })
    }

    fn accessed(&self, _inode: InodeNumber) -> LocalBoxFuture<'_, Result<bool, FsError>> {
        Box::pin(async { Ok(false) })
    }

    fn seek_data(&self, inode: InodeNumber, offset: u64) -> LocalBoxFuture<'_, Result<Option<u64>, FsError>> {
        Box::pin(self.0.seek(inode, offset, true))
    }

    fn seek_hole(&self, inode: InodeNumber, offset: u64) -> LocalBoxFuture<'_, Result<Option<u64>, FsError>> {
        Box::pin(self.0.seek(inode, offset, false))
    }

    fn mapped_blocks(&self, inode: InodeNumber, limit: u64) -> LocalBoxFuture<'_, Result<u64, FsError>> {
        Box::pin(async move {
            let inode = self.0.file(inode).await?;
            let pages = inode.size.get().div_ceil(BLOCK).min(pages_max(inode.addresses()));
            let (mut count, mut page) = (0, 0);
            while page < pages && count <= limit {
                count += u64::from(self.0.has_page(&inode, page).await?);
                page += 1;
            }
            Ok(count)
        })
    }
}
