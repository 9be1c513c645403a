//! Filesystems in memory: mounted, on a disk that can do everything; or only read, by the check.

#![allow(dead_code, reason = "each caller uses a part of it")]

use std::rc::Rc;

use weir_format::{BLOCK_BYTES, FormatError, ImageReader};
use weir_fs::{BarrierFs, MountOptions};
use weir_runtime::Handle;
use weir_storage::{AdversaryDisk, AdversaryOptions, Capabilities, Discard, Image, Lba, Ordering, Storage};
use weir_vfs::FsError;

/// An access control list in the form of the kernel's interface: owner, user 1000, group, mask and others.
pub const LIST: [u8; 44] = [
    2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 2, 0, 6, 0, 232, 3, 0, 0, 4, 0, 5, 0, 255, 255, 255, 255, 16,
    0, 6, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255,
];

pub async fn mount(clock: &Handle, image: &Image) -> Result<(BarrierFs, Rc<AdversaryDisk>), FsError> {
    mount_with(clock, image, MountOptions::default()).await
}

pub async fn mount_with(
    clock: &Handle,
    image: &Image,
    mounted: MountOptions,
) -> Result<(BarrierFs, Rc<AdversaryDisk>), FsError> {
    let disk = disk_of(clock, image);
    let storage = Rc::clone(&disk) as Rc<dyn Storage>;
    let fs = BarrierFs::mount(clock, storage, mounted).await?;
    Ok((fs, disk))
}

/// A disk with this content that can do everything.
pub fn disk_of(clock: &Handle, image: &Image) -> Rc<AdversaryDisk> {
    let capabilities = Capabilities {
        ordering: Ordering::Barrier,
        ordered_service: true,
        fua: true,
        preflush: true,
        discard: Discard::ReadsZero,
        ..Capabilities::legacy(32, 256, 4096)
    };
    let options = AdversaryOptions { capabilities, ..AdversaryOptions::default() };
    AdversaryDisk::from_image(clock, options, image)
}

/// An image that is only read.
pub struct InMemory<'a>(pub &'a Image);

impl ImageReader for InMemory<'_> {
    type Error = FormatError;

    fn blocks(&self) -> u64 {
        self.0.blocks()
    }

    async fn read(&self, block: u64, bytes: &mut [u8]) -> Result<(), FormatError> {
        for (part, number) in bytes.chunks_mut(BLOCK_BYTES).zip(block..) {
            self.0.read_into(Lba(number), part);
        }
        Ok(())
    }
}
