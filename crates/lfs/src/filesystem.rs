//! A mounted image.

use std::rc::Rc;

use weir_f2fs::{Image, Inode, Mkfs, NodeId, Superblock, checkpoint_flags};
use weir_format::{BLOCK_BYTES, FileTime, FormatError, ImageReader as _};
use weir_runtime::Handle as Clock;
use weir_storage::Storage;
use weir_vfs::{Filesystem, FsError, InodeNumber, LetGo, NewFilesystem, StorageImage, write_filesystem};

/// An image of F2FS that is read; clones share it.
#[derive(Clone)]
pub struct F2fs(pub(crate) Rc<Mounted>);

/// What is known of it.
pub(crate) struct Mounted {
    pub(crate) image: Image<StorageImage>,
    clock: Clock,
}

impl F2fs {
    /// Makes a filesystem of `options.blocks` blocks on a storage, whatever is there. One that was not finished is none.
    ///
    /// # Errors
    /// [`FsError::Format`] for options out of range, or a storage that is too small; what the storage answered.
    pub async fn make(device: &dyn Storage, options: &Mkfs) -> Result<(), FsError> {
        let image = options.plan()?;
        let (blocks, writes) = (options.blocks, image.writes());
        write_filesystem(device, NewFilesystem { blocks, superblocks: 0..2, writes, discards: false }).await
    }

    /// Whether the first two blocks of a storage are those of F2FS, of any kind. Blocks that cannot be read are not known to be.
    pub async fn is_on(device: &Rc<dyn Storage>) -> bool {
        if device.blocks() < 2 {
            return false;
        }
        let mut blocks = vec![0; 2 * BLOCK_BYTES];
        if StorageImage(Rc::clone(device)).read(0, &mut blocks).await.is_err() {
            return false;
        }
        let (first, second) = blocks.split_at(BLOCK_BYTES);
        let chosen = Superblock::choose(first, second, device.blocks());
        !matches!(chosen, Err(FormatError::Foreign { .. }))
    }

    /// Opens the image on a storage, to read it.
    ///
    /// # Errors
    /// [`FsError::Format`] names what is not supported, or damaged; [`FsError::NotRolledForward`] for an image that was not
    /// unmounted, where `checkpoint_alone` is not set: files may be newer behind its checkpoint.
    pub async fn mount(
        clock: &Clock,
        device: Rc<dyn Storage>,
        checkpoint_alone: bool,
    ) -> Result<F2fs, FsError> {
        let image = Image::open(StorageImage(device)).await?;
        let unmounted = image.checkpoint.header.has(checkpoint_flags::UMOUNT);
        match unmounted || checkpoint_alone {
            true => Ok(F2fs(Rc::new(Mounted { image, clock: clock.clone() }))),
            false => Err(FsError::NotRolledForward),
        }
    }
}

impl From<F2fs> for Filesystem {
    fn from(mounted: F2fs) -> Filesystem {
        Filesystem::new(Rc::new(mounted))
    }
}

impl Mounted {
    /// The inode of a number; [`FsError::NotFound`] for one that is not in use.
    pub(crate) async fn inode(&self, number: InodeNumber) -> Result<Inode, FsError> {
        let node = NodeId(number);
        let in_use = self.image.layout.node_entry_of(node).is_some() && node >= NodeId::ROOT;
        if !in_use || !self.image.node_entry(node).await?.address().is_block() {
            return Err(FsError::NotFound);
        }
        self.image.inode(node).await
    }

    pub(crate) fn now(&self) -> FileTime {
        let nanos = self.clock.wall_clock_nanos();
        let seconds = i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX);
        FileTime { seconds, nanoseconds: (nanos % 1_000_000_000) as u32 }
    }
}

impl LetGo for Mounted {
    /// Nothing is ever deleted, so nothing has to be kept.
    fn let_go(self: Rc<Self>, _inode: InodeNumber, _count: u64) {}
}
