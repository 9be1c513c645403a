//! What inodes and the blocks that they own are kept in: journaled blocks, and the space for them.

use std::rc::Rc;

use weir_cache::ReadFailures;
use weir_ext4::{Inode, Kind};
use weir_format::{BLOCK_BYTES, FileType, FormatError, Place, Structure};
use weir_journal::{BufferHead, Buffers, JournalError};
use weir_vfs::FsError;

use crate::space::Space;

/// Blocks of metadata.
pub(crate) struct Metadata {
    pub(crate) buffers: Rc<Buffers>,
    pub(crate) space: Rc<Space>,
    pub(crate) failures: ReadFailures,
}

impl Metadata {
    /// A block that an inode needs; a failure is logged.
    pub(crate) async fn block_of(
        &self,
        inode: u32,
        block: u64,
        kind: Kind,
    ) -> Result<Rc<BufferHead>, JournalError> {
        let found = self.buffers.get(block, kind).await;
        found.inspect_err(|error| self.failures.log(inode, None, block, error))
    }

    /// The block of the inode table that an inode is in, and the byte where it starts.
    pub(super) async fn table(&self, number: u32) -> Result<(Rc<BufferHead>, usize), FsError> {
        let (block, bytes) = self.space.inode_place(number)?;
        Ok((self.block_of(number, block, Kind::InodeTable).await?, bytes.start))
    }

    /// Reads an inode of a file.
    ///
    /// # Errors
    /// [`FsError::Format`] for numbers that are not those of files, and what is damaged.
    pub(super) async fn read_inode(&self, number: u32) -> Result<Inode, FsError> {
        if !self.space.is_file_number(number) {
            let place = Place::Inode(number);
            return Err(FormatError::corrupt(Structure::Inode, place, "a number that no file has").into());
        }
        let (table, start) = self.table(number).await?;
        let inode = table.read(|table| {
            Inode::read(&table[start..start + weir_ext4::INODE_BYTES], number, self.buffers.checksums())
        })?;
        if inode.links.get() > 0 {
            inode.check_supported(number)?;
        }
        // One with a block in many places would be read as often, for every name.
        let blocks_max = self.space.layout().blocks();
        if inode.file_type() == Some(FileType::Directory) && inode.size() / BLOCK_BYTES as u64 > blocks_max {
            let place = Place::Inode(number);
            let what = "a directory larger than the filesystem";
            return Err(FormatError::corrupt(Structure::Inode, place, what).into());
        }
        Ok(inode)
    }
}
