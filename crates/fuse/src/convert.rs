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

/// The time in a request. The kernel counts nanoseconds forwards also before 1970, but fuser 0.18 counts them
/// backwards from its seconds there, so these two numbers are what the kernel sent.
pub(crate) fn file_time(time: SystemTime) -> FileTime {
    let (sign, apart) = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (1, after),
        Err(error) => (-1, error.duration()),
    };
    let seconds = sign * i64::try_from(apart.as_secs()).unwrap_or(i64::MAX);
    FileTime { seconds, nanoseconds: apart.subsec_nanos() }
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
    fn times_before_1970_are_the_kernels() {
        let half = Duration::new(1, 500_000_000);
        let time = |seconds, nanoseconds| FileTime { seconds, nanoseconds };
        // In an answer: one and a half seconds before.
        assert_eq!(system_time(time(-2, 500_000_000)), UNIX_EPOCH - half);
        // In a request, of which fuser makes two and a half.
        assert_eq!(file_time(UNIX_EPOCH - half - Duration::from_secs(1)), time(-2, 500_000_000));
        for whole in [time(0, 0), time(1, 999_999_999), time(-1, 0), time(15_032_385_535, 7)] {
            assert_eq!(file_time(system_time(whole)), whole);
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
