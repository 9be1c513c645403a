//! *Disk state*: what a power cut has left of a disk, as an image that the kernel has mounted, so that its filesystem has
//! recovered.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use weir_crash::KernelMountError;
use weir_fuse::DISK_NAME;
use weir_vfs::InodeNumber;

use crate::disk_mount::DiskMount;
use crate::judge::FILES;
use crate::run_plan::RunDisk;
use crate::tree::{Content, FileContent, ROOT, Tree, is_zeros};

/// What `mount` says if there is no loop device for it: that is not the image's fault.
const NO_LOOP_DEVICE: &str = "loop device";

/// See the head of this file.
pub(crate) struct DiskState {
    image: PathBuf,
    mount: DiskMount,
}

impl DiskState {
    /// Writes the disk of a tree to an image in a directory, and mounts it there as `files`; what the kernel says if it refuses.
    pub(crate) fn mount(
        RunDisk { ground, weir }: &RunDisk,
        tree: &Tree,
        place: &Path,
    ) -> io::Result<Result<DiskState, String>> {
        let (image, files) = (place.join(DISK_NAME), place.join(FILES));
        let disk = disk_of(tree).ok_or(io::Error::other("the record has no disk"))?;
        write_image(disk, &image)?;
        fs::create_dir(&files)?;
        match ground.mount(&image, &files, weir) {
            Ok(mount) => Ok(Ok(DiskState { image, mount })),
            Err(KernelMountError::Refused(said)) if !said.contains(NO_LOOP_DEVICE) => Ok(Err(said)),
            Err(error) => Err(io::Error::other(error)),
        }
    }

    pub(crate) fn image(&self) -> &Path {
        &self.image
    }

    pub(crate) fn unmount(self) -> io::Result<()> {
        self.mount.unmount()
    }
}

/// The file that is the disk of a tree that a recording mount had.
pub(crate) fn find_disk(tree: &Tree) -> Option<InodeNumber> {
    tree.lookup(ROOT, DISK_NAME.as_bytes())
}

/// What is on it.
fn disk_of(tree: &Tree) -> Option<&FileContent> {
    match &tree.node(find_disk(tree)?)?.content {
        Content::File(file) => Some(file),
        _ => None,
    }
}

/// Writes the blocks of a disk that are not zeros.
pub(crate) fn write_image(disk: &FileContent, path: &Path) -> io::Result<()> {
    let image = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    image.set_len(disk.size())?;
    let mut blocks = disk.data().filter(|(_, bytes)| !is_zeros(bytes));
    blocks.try_for_each(|(offset, bytes)| image.write_all_at(bytes, offset))
}
