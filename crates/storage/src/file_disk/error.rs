//! Why a path could not be opened or created as a disk.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why [`FileDisk`](crate::FileDisk) could not be opened or created. Nothing was changed on disk.
#[derive(Debug, Error)]
pub enum FileDiskError {
    /// There is nothing at the path.
    #[error("{path} does not exist: no such file or directory")]
    Missing {
        /// The path asked for.
        path: PathBuf,
    },
    /// Creation found something at the path.
    #[error("{path} exists already and is not overwritten; use another name, or remove it yourself")]
    Exists {
        /// The path asked for.
        path: PathBuf,
    },
    /// The path is a directory.
    #[error("{path} is a directory; name a file or a block device")]
    Directory {
        /// The path asked for.
        path: PathBuf,
    },
    /// The path is a socket, a pipe or a character device.
    #[error("{path} is neither a regular file nor a block device; name one of these")]
    NotADisk {
        /// The path asked for.
        path: PathBuf,
    },
    /// Not even one block fits.
    #[error("{path} has {bytes} bytes, and a disk has at least one block of 4096; make it larger")]
    TooSmall {
        /// The path asked for.
        path: PathBuf,
        /// Its size in bytes.
        bytes: u64,
    },
    /// The host has no space for the new file.
    #[error(
        "no space for {path}: it takes {needed_mib} MiB, and {free_mib} MiB are free there; free some, or use a smaller size or another disk"
    )]
    NoSpace {
        /// The path asked for.
        path: PathBuf,
        /// MiB needed.
        needed_mib: u64,
        /// MiB free.
        free_mib: u64,
    },
    /// A limit on the size of files is less than the disk.
    #[error(
        "{path} would be larger than a file may be: `ulimit -f` shows this shell's limit, and the filesystem that it is on may have a lower one; use a smaller size, or another filesystem"
    )]
    FileTooLarge {
        /// The path asked for.
        path: PathBuf,
    },
    /// The device, or the filesystem that the file is on, takes no writes.
    #[error(
        "{path} is read-only: `weir mount --read-only` mounts it, and `weir ls`, `cat` and `get` read it; to change it, make the device, or the filesystem that it is on, writable"
    )]
    ReadOnly {
        /// The path asked for.
        path: PathBuf,
    },
    /// Another process has it open as a disk.
    #[error(
        "{path} is in use: it is mounted, or another process has it open as a disk; run `weir umount` on the mountpoint, or end that process"
    )]
    Locked {
        /// The path asked for.
        path: PathBuf,
    },
    /// The kernel has it as a block device, on which something may be mounted.
    #[error("{path} is in use by the kernel as {0}: unmount that, and run `losetup -d {0}`", device.display())]
    Attached {
        /// The path asked for.
        path: PathBuf,
        /// The loop device.
        device: PathBuf,
    },
    /// The block device is mounted or part of another device.
    #[error(
        "{path} is mounted, or in use as part of another device; unmount it, or remove it from that device first"
    )]
    Busy {
        /// The path asked for.
        path: PathBuf,
    },
    /// An option lies outside its range.
    #[error("option `{option}` is {value}; it must be {range}")]
    Option {
        /// The option's name.
        option: &'static str,
        /// Its value.
        value: u64,
        /// What it may be.
        range: &'static str,
    },
    /// The runtime has no io_uring: it runs in virtual time.
    #[error("a real disk needs a wall-clock runtime with an io_uring; virtual time has none")]
    NoRing,
    /// The kernel refused, for the reason given.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// What was attempted.
        action: &'static str,
        /// The path asked for.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
}
