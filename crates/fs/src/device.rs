//! The numbers of a device, and their place in its inode.

use weir_ext4::Inode;

use weir_vfs::{Device, FsError};

/// Puts device numbers into the first two words of a block area.
pub(crate) fn put_device(inode: &mut Inode, device: Device) -> Result<(), FsError> {
    for (at, word) in [0, 4].into_iter().zip(device.to_words()?) {
        inode.block_area[at..at + 4].copy_from_slice(&word.to_le_bytes());
    }
    Ok(())
}

/// The device numbers of an inode.
pub(crate) fn device_of(inode: &Inode) -> Device {
    let word = |at| {
        let area = &inode.block_area;
        u32::from_le_bytes([area[at], area[at + 1], area[at + 2], area[at + 3]])
    };
    Device::from_words(word(0), word(4))
}

#[cfg(test)]
mod tests {
    use weir_format::FileType;

    use super::*;

    #[test]
    fn devices_keep_their_numbers() {
        for (major, minor) in [(0, 0), (8, 1), (255, 255), (256, 0), (0, 256), (4095, (1 << 20) - 1)] {
            let mut inode = Inode::new(FileType::BlockDevice, 0o600);
            put_device(&mut inode, Device { major, minor }).expect("fits");
            assert_eq!(device_of(&inode), Device { major, minor });
        }
        let mut inode = Inode::new(FileType::BlockDevice, 0o600);
        put_device(&mut inode, Device { major: 4096, minor: 0 }).expect_err("too large");
        put_device(&mut inode, Device { major: 0, minor: 1 << 20 }).expect_err("too large");
    }
}
