//! Between the kernel's words and the filesystem's.

use weir_vfs::{Attributes, Device, InodeNumber};

use crate::protocol::{NodeAttributes, ROOT, of_node_id};

/// The inode of a node, in a filesystem with this root, which the kernel calls 1. No file has the number 1 in either format.
pub(crate) fn inode(node: u64, root: InodeNumber) -> InodeNumber {
    match of_node_id(node).0 {
        ROOT => root,
        // 0 is no inode: whatever looks for it finds nothing.
        number => InodeNumber::try_from(number).unwrap_or(0),
    }
}

/// The kernel's number of an inode, in a filesystem with this root.
pub(crate) fn number(inode: InodeNumber, root: InodeNumber) -> u64 {
    if inode == root { ROOT } else { inode.into() }
}

/// The kernel counts nanoseconds forwards also before 1970, as ext4 does.
pub(crate) fn attributes(found: &Attributes, root: InodeNumber) -> NodeAttributes {
    NodeAttributes {
        node: number(found.inode, root),
        size: found.size,
        sectors: found.sectors,
        accessed: found.accessed.seconds,
        modified: found.modified.seconds,
        changed: found.changed.seconds,
        accessed_nanoseconds: found.accessed.nanoseconds,
        modified_nanoseconds: found.modified.nanoseconds,
        changed_nanoseconds: found.changed.nanoseconds,
        mode: u32::from(found.kind.mode_bits() | found.permissions),
        links: found.links,
        uid: found.uid,
        gid: found.gid,
        device: device_number(found.device),
        block_bytes: 4096,
        flags: 0,
    }
}

/// A device in the form of the kernel's protocol: the low 8 bits of the minor number, 12 of the major, and the
/// other 12 of the minor.
fn device_number(device: Device) -> u32 {
    device.minor & 0xFF | (device.major & 0xFFF) << 8 | (device.minor & 0xF_FF00) << 12
}

/// The reverse.
pub(crate) fn device(number: u32) -> Device {
    Device { major: number >> 8 & 0xFFF, minor: number & 0xFF | number >> 12 & 0xF_FF00 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_come_back() {
        for (major, minor) in [(0, 0), (1, 3), (259, 1 << 19), (4095, 1_048_575)] {
            assert_eq!(device(device_number(Device { major, minor })), Device { major, minor });
        }
        // As the kernel and `stat` see /dev/nvme0n1.
        assert_eq!(device_number(Device { major: 259, minor: 256 }), 0x0011_0300);
    }
}
