//! What files hold.

use futures_util::future::LocalBoxFuture;
use weir_f2fs::{Inode, inline_flags};
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

    /// The first page from `page` on that has content: all of a file that lies in its inode has.
    async fn next_page(&self, inode: &Inode, page: u64) -> Result<Option<u64>, FsError> {
        match inode.has_inline(inline_flags::DATA) {
            true => Ok((page == 0 && inode.size.get() > 0).then_some(0)),
            false => Ok(self.image.next_page(inode, page).await?.map(|(page, _)| page)),
        }
    }

    async fn seek_data(&self, number: InodeNumber, offset: u64) -> Result<Option<u64>, FsError> {
        let inode = self.file(number).await?;
        if offset >= inode.size.get() {
            return Ok(None);
        }
        let page = self.next_page(&inode, offset / BLOCK).await?;
        Ok(page.map(|page| offset.max(page * BLOCK)))
    }

    async fn seek_hole(&self, number: InodeNumber, offset: u64) -> Result<Option<u64>, FsError> {
        let inode = self.file(number).await?;
        let size = inode.size.get();
        if offset >= size {
            return Ok(None);
        }
        let mut page = offset / BLOCK;
        while self.next_page(&inode, page).await? == Some(page) {
            page += 1;
        }
        Ok(Some(offset.max(page * BLOCK).min(size)))
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
        Box::pin(self.0.seek_data(inode, offset))
    }

    fn seek_hole(&self, inode: InodeNumber, offset: u64) -> LocalBoxFuture<'_, Result<Option<u64>, FsError>> {
        Box::pin(self.0.seek_hole(inode, offset))
    }

    fn mapped_blocks(&self, inode: InodeNumber, limit: u64) -> LocalBoxFuture<'_, Result<u64, FsError>> {
        Box::pin(async move {
            let inode = self.0.file(inode).await?;
            let (mut count, mut next) = (0, self.0.next_page(&inode, 0).await?);
            while let Some(page) = next.filter(|_| count <= limit) {
                count += 1;
                next = self.0.next_page(&inode, page + 1).await?;
            }
            Ok(count)
        })
    }
}
