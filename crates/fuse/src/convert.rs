//! Between the kernel's words and the filesystem's.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, INodeNo};
use weir_ext4::{FileTime, FileType, ROOT_INODE};
use weir_fs::{Attributes, Device, InodeNumber};

/// The kernel calls the root 1, ext4 calls it 2. Nothing else has the number 1: it is ext4's for bad blocks.
pub(crate) fn inode(number: INodeNo) -> InodeNumber {
    match number {
        INodeNo::ROOT => ROOT_INODE,
        // 0 is no inode: whatever looks for it finds nothing.
        INodeNo(number) => InodeNumber::try_from(number).unwrap_or(0),
    }
}

/// The kernel's number of an inode.
pub(crate) fn number(inode: InodeNumber) -> INodeNo {
    if inode == ROOT_INODE { INodeNo::ROOT } else { INodeNo(inode.into()) }
}

pub(crate) fn kind(kind: FileType) -> fuser::FileType {
    match kind {
        FileType::Regular => fuser::FileType::RegularFile,
        FileType::Directory => fuser::FileType::Directory,
        FileType::CharacterDevice => fuser::FileType::CharDevice,
        FileType::BlockDevice => fuser::FileType::BlockDevice,
        FileType::Fifo => fuser::FileType::NamedPipe,
        FileType::Socket => fuser::FileType::Socket,
        FileType::Symlink => fuser::FileType::Symlink,
    }
}

pub(crate) fn attributes(found: &Attributes) -> FileAttr {
    FileAttr {
        ino: number(found.inode),
        size: found.size,
        blocks: found.sectors,
        atime: system_time(found.accessed),
        mtime: system_time(found.modified),
        ctime: system_time(found.changed),
        crtime: system_time(found.created),
        kind: kind(found.kind),
        perm: found.permissions,
        nlink: found.links,
        uid: found.uid,
        gid: found.gid,
        rdev: device_number(found.device),
        blksize: 4096,
        flags: 0,
    }
}

fn system_time(time: FileTime) -> SystemTime {
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let whole = if time.seconds < 0 { UNIX_EPOCH - seconds } else { UNIX_EPOCH + seconds };
    whole + Duration::from_nanos(time.nanoseconds.into())
}

/// Nanoseconds count forwards also before 1970.
pub(crate) fn file_time(time: SystemTime) -> FileTime {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => FileTime {
            seconds: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
            nanoseconds: after.subsec_nanos(),
        },
        Err(error) => {
            let before = error.duration();
            let seconds = -i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
            match before.subsec_nanos() {
                0 => FileTime { seconds, nanoseconds: 0 },
                nanoseconds => FileTime { seconds: seconds - 1, nanoseconds: 1_000_000_000 - nanoseconds },
            }
        }
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
    fn times_before_1970_come_back() {
        for time in
            [(0, 0), (1, 999_999_999), (-1, 0), (-1, 1), (-2_000_000_000, 999_999_999), (15_032_385_535, 7)]
        {
            let time = FileTime { seconds: time.0, nanoseconds: time.1 };
            assert_eq!(file_time(system_time(time)), time);
        }
    }

    #[test]
    fn devices_come_back() {
        for (major, minor) in [(0, 0), (1, 3), (259, 1 << 19), (4095, 1_048_575)] {
            assert_eq!(device(device_number(Device { major, minor })), Device { major, minor });
        }
        // As the kernel and `stat` see /dev/nvme0n1.
        assert_eq!(device_number(Device { major: 259, minor: 256 }), 0x0011_0300);
    }
}
