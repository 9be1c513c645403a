//! A mounted image.

use std::rc::Rc;

use weir_f2fs::{Image, Inode, Mkfs, NodeId, checkpoint_flags, read_superblock};
use weir_format::FormatError;
use weir_runtime::Handle as Clock;
use weir_storage::Storage;
use weir_vfs::{
    Filesystem, FsError, InodeNumber, LetGo, NewFilesystem, StorageImage, Timer, write_filesystem,
};

/// Ticks of the clock that callers are told: nothing is stamped with it.
const TICKS_A_SECOND: u32 = 1_000_000_000;

/// An image of F2FS that is read; clones share it.
#[derive(Clone)]
pub struct F2fs(pub(crate) Rc<Mounted>);

/// What is known of it.
pub(crate) struct Mounted {
    pub(crate) image: Image<StorageImage>,
    pub(crate) timer: Timer,
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
        let read = read_superblock(&StorageImage(Rc::clone(device))).await;
        read.is_ok_and(|chosen| !matches!(chosen, Err(FormatError::Foreign { .. })))
    }

    /// Opens the image on a storage, to read it.
    ///
    /// # Errors
    /// [`FsError::Format`] names what is not supported, or damaged; [`FsError::NotRolledForward`] for an image that was not
    /// unmounted: files may be newer behind its checkpoint.
    pub async fn mount(clock: &Clock, device: Rc<dyn Storage>) -> Result<F2fs, FsError> {
        let image = Image::open(StorageImage(device)).await?;
        match image.checkpoint.header.has(checkpoint_flags::UMOUNT) {
            true => Ok(F2fs(Rc::new(Mounted { image, timer: Timer::new(clock, TICKS_A_SECOND) }))),
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
        self.image.find_inode(NodeId(number)).await?.ok_or(FsError::NotFound)
    }
}

impl LetGo for Mounted {
    /// Nothing is ever deleted, so nothing has to be kept.
    fn let_go(self: Rc<Self>, _inode: InodeNumber, _count: u64) {}
}
