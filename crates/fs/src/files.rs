//! The content of files: read, written, cut, allocated, and made zeros.

mod fallocate;
mod read;
mod truncate;
mod write;

use std::rc::Rc;

use weir_cache::{BLOCK, PageCache, index_of};
use weir_format::FileType;
use weir_journal::{Disk, Role};
use weir_runtime::{Buffer as Memory, Semaphore};
use weir_storage::Rules;
use weir_vfs::{FsError, InodeNumber, Timer};

use crate::changes::Changes;
use crate::mapping::{Mapping, Tree};
use crate::mutants::FsMutant;
use crate::options::{JournalMode, MountOptions};
use crate::orphans::Orphans;
use crate::{inodes::Node, inodes::Nodes};
pub(crate) use write::{FileWrite, Times};

/// Reads and changes what files hold.
pub(crate) struct Files {
    disk: Rc<Disk>,
    cache: Rc<PageCache>,
    changes: Rc<Changes>,
    nodes: Rc<Nodes>,
    mapping: Rc<Mapping>,
    orphans: Rc<Orphans>,
    timer: Timer,
    mode: JournalMode,
    /// The largest size of a file, in bytes.
    size_max: u64,
    /// Bytes that calls may write now, and as many as they may at one time: with moments.
    under_way: Option<(Semaphore, usize)>,
    rules: Rules<FsMutant>,
}

impl Files {
    pub(crate) fn new(
        (disk, cache, changes): (Rc<Disk>, Rc<PageCache>, Rc<Changes>),
        (nodes, mapping, orphans): (Rc<Nodes>, Rc<Mapping>, Rc<Orphans>),
        timer: Timer,
        options: MountOptions,
    ) -> Rc<Files> {
        let MountOptions { mode, rules, .. } = options;
        let size_max = mapping.file_bytes_max();
        let under_way = options.bytes_under_way_max().map(|bytes| (Semaphore::new(bytes), bytes));
        Rc::new(Files {
            disk,
            cache,
            changes,
            nodes,
            mapping,
            orphans,
            timer,
            mode,
            size_max,
            under_way,
            rules,
        })
    }

    /// As many of the bytes that are written at `offset` as a file can have.
    ///
    /// # Errors
    /// [`FsError::TooLarge`] if it cannot have the first of them.
    pub(crate) fn within_size_max<'a>(&self, offset: u64, bytes: &'a [u8]) -> Result<&'a [u8], FsError> {
        match self.size_max.saturating_sub(offset) {
            0 if !bytes.is_empty() => Err(FsError::TooLarge),
            most => Ok(&bytes[..bytes.len().min(usize::try_from(most).unwrap_or(usize::MAX))]),
        }
    }

    /// Refuses a size that no file can have, in bytes.
    ///
    /// # Errors
    /// [`FsError::TooLarge`].
    pub(crate) fn check_size(&self, size: u64) -> Result<(), FsError> {
        if size > self.size_max { Err(FsError::TooLarge) } else { Ok(()) }
    }

    /// The node of a regular file.
    pub(crate) async fn node(&self, inode: InodeNumber) -> Result<Rc<Node>, FsError> {
        self.nodes.make_room();
        let node = self.nodes.get(inode).await?;
        require_regular(&node)?;
        Ok(node)
    }

    /// The first byte at or behind `offset` that is not in a hole; `None` if there is none.
    pub(crate) async fn seek_data(&self, inode: InodeNumber, offset: u64) -> Result<Option<u64>, FsError> {
        let node = self.node(inode).await?;
        let _looking = node.beside_others().await;
        let size = node.size();
        let mut at = offset;
        while at < size {
            match Tree::from_node(&node).next(index_of(at)).await? {
                Some(extent) if extent.written => {
                    let start = at.max(u64::from(extent.logical) * BLOCK);
                    return Ok((start < size).then_some(start));
                }
                Some(unwritten) => at = u64::from(unwritten.end()) * BLOCK,
                None => break,
            }
        }
        Ok(None)
    }

    /// The first byte at or behind `offset` that is in a hole, as the end of a file is; `None` if `offset` is
    /// behind that.
    pub(crate) async fn seek_hole(&self, inode: InodeNumber, offset: u64) -> Result<Option<u64>, FsError> {
        let node = self.node(inode).await?;
        let _looking = node.beside_others().await;
        let size = node.size();
        if offset >= size {
            return Ok(None);
        }
        let mut at = offset;
        while at < size {
            match Tree::from_node(&node).find(index_of(at)).await? {
                Some(extent) if extent.written => at = u64::from(extent.end()) * BLOCK,
                _ => break,
            }
        }
        Ok(Some(at.min(size)))
    }

    /// Blocks that the extents of a file map up to its end, counted until they are more than `limit`.
    pub(crate) async fn mapped_blocks(&self, inode: InodeNumber, limit: u64) -> Result<u64, FsError> {
        let node = self.node(inode).await?;
        let _looking = node.beside_others().await;
        let size = node.size();
        let (mut at, mut count) = (0, 0);
        while at < size && count <= limit {
            let Some(extent) = Tree::from_node(&node).next(index_of(at)).await? else { break };
            if u64::from(extent.logical) * BLOCK < size {
                count += u64::from(extent.end() - extent.logical);
            }
            at = u64::from(extent.end()) * BLOCK;
        }
        Ok(count)
    }

    /// The content of a data block that went through the journal: at home it may be older.
    fn journaled(&self, node: &Node, home: u64) -> Option<Rc<Memory>> {
        if !node.is_journaled(self.mode) {
            return None;
        }
        let buffer = node.metadata().buffers.cached(home)?;
        (buffer.role() == Role::Data).then(|| buffer.snapshot())
    }
}

/// Refuses what has no content.
fn require_regular(node: &Node) -> Result<(), FsError> {
    match node.kind() {
        Some(FileType::Regular) => Ok(()),
        Some(FileType::Directory) => Err(FsError::IsDirectory),
        _ => Err(FsError::Invalid("only regular files have content")),
    }
}
