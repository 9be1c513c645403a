//! Why a volume cannot be served as a block device.

use std::io;

use thiserror::Error;

/// Why there is no device.
#[derive(Debug, Error)]
pub enum UblkError {
    /// The kernel's module is not there.
    #[error(
        "the kernel has no ublk, since /dev/ublk-control is not there: run `modprobe ublk_drv` (Linux 6.5 or later), or serve by \
         --nbd"
    )]
    NoModule,
    /// Another user than root, or a host that has no io_uring for it.
    #[error(
        "the kernel does not admit this process to ublk ({0}): run it as root (CAP_SYS_ADMIN), where io_uring is allowed (`sysctl \
         kernel.io_uring_disabled=0`, and no filter of system calls)"
    )]
    NotPermitted(io::Error),
    /// It cannot do what is needed.
    #[error(
        "the kernel's ublk is too old (it has {found:#x} of {needed:#x}): run Linux 6.5 or later, or serve by --nbd"
    )]
    OldKernel {
        /// Features that it has, as bits.
        found: u64,
        /// Features that are needed.
        needed: u64,
    },
    /// Another server has the device.
    #[error("/dev/ublkb{number} is served by process {process} already: take another number")]
    Served {
        /// The device's.
        number: u32,
        /// The server's.
        process: i32,
    },
    /// The device is there, and not ours.
    #[error("/dev/ublkb{number} is there, and belongs to another server or volume: take another number")]
    Foreign {
        /// The device's.
        number: u32,
    },
    /// The device is shown no more, and not gone.
    #[error(
        "/dev/ublkb{number} is shown no more, but {holder} still has it open: end that, or take another number"
    )]
    Held {
        /// The device's.
        number: u32,
        /// What has it open.
        holder: String,
    },
    /// Its server is gone, and no other can have it.
    #[error(
        "/dev/ublkb{number} waits, and the kernel gives it to no server: take another number; this one is free after a restart of the \
         machine"
    )]
    Stuck {
        /// The device's.
        number: u32,
    },
    /// The device waits for a server of something else.
    #[error(
        "/dev/ublkb{number} waits for its server, and has {device} bytes where this volume has {export} (read-only: {} and {}): \
         serve what was served before, with or without --read-only as before",
        read_only.0, read_only.1
    )]
    Changed {
        /// The device's.
        number: u32,
        /// Bytes of the device.
        device: u64,
        /// Bytes of the export.
        export: u64,
        /// Whether the device, and the export, refuse changes.
        read_only: (bool, bool),
    },
    /// A signal ended the server before its device was shown.
    #[error("ended before /dev/ublkb{number} was shown")]
    StartCancelled {
        /// The device's.
        number: u32,
    },
    /// The kernel refused.
    #[error("cannot {doing} /dev/ublkb{number}: {source}")]
    Kernel {
        /// What was to be done.
        doing: &'static str,
        /// The device's.
        number: u32,
        /// What it answered.
        source: io::Error,
    },
}
