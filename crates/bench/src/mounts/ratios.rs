//! The ratios of the benchmark of mounts.

use crate::host::HostCalls;
use crate::mode::Mode;
use crate::mounts::calls::MountCalls;
use crate::ratio::{About, Quantity, Ratio};

const ORDERED: Mode = Mode::Mount(MountCalls::OverwriteBarrier);
const HOST_OVERWRITE: Mode = Mode::Host(HostCalls::Fdatasync);
const HOST_APPEND: Mode = Mode::Host(HostCalls::AppendFsync);

/// All ratios of this benchmark, in the order in which they are told.
pub const MOUNT_RATIOS: [Ratio; 6] = [
    Ratio {
        name: "ordered_vs_host_fdatasync",
        title: "mount fdatabarrier / host fdatasync",
        meaning: "direct overwrite + fdatabarrier on the mount, over pwrite + fdatasync on the host's filesystem, which is how programs get order today; fdatasync also gives durability, fdatabarrier does not: see the loss window",
        about: About::ThisDisk,
        over: ORDERED,
        under: HOST_OVERWRITE,
        of: Quantity::Writes,
    },
    Ratio {
        name: "ordered_writes_vs_host_fdatasync",
        title: "mount, ordered writes / host fdatasync",
        meaning: "direct overwrite on the mount, by a program that has said once that its writes in place are to be ordered, over pwrite + fdatasync on the host's filesystem",
        about: About::ThisDisk,
        over: Mode::Mount(MountCalls::OverwriteOrdered),
        under: HOST_OVERWRITE,
        of: Quantity::Writes,
    },
    Ratio {
        name: "durable_vs_host_fdatasync",
        title: "fdatasync: mount / host",
        meaning: "direct overwrite + fdatasync on the mount, over pwrite + fdatasync on the host's filesystem: both durable at once",
        about: About::ThisDisk,
        over: Mode::Mount(MountCalls::OverwriteFdatasync),
        under: HOST_OVERWRITE,
        of: Quantity::Writes,
    },
    Ratio {
        name: "append_durable_vs_host_fsync",
        title: "append + fsync: mount / host",
        meaning: "append + fsync on the mount, over the same on the host's filesystem: both durable at once",
        about: About::ThisDisk,
        over: Mode::Mount(MountCalls::AppendFsync),
        under: HOST_APPEND,
        of: Quantity::Writes,
    },
    Ratio {
        name: "append_ordered_vs_host_fsync",
        title: "append: mount fbarrier / host fsync",
        meaning: "append + fbarrier on the mount, over append + fsync on the host's filesystem; fsync also gives durability, fbarrier does not: see the loss window",
        about: About::ThisDisk,
        over: Mode::Mount(MountCalls::AppendFbarrier),
        under: HOST_APPEND,
        of: Quantity::Writes,
    },
    Ratio {
        name: "kernel_ext4_vs_host_fsync",
        title: "append + fsync: nobarrier ext4 / host",
        meaning: "append + fsync on the kernel's ext4, without barriers on weir disk over a volume, over the same on the host's filesystem; the former only orders, in the volume's loss window",
        about: About::ThisDisk,
        over: Mode::Mount(MountCalls::KernelAppendFsync),
        under: HOST_APPEND,
        of: Quantity::Writes,
    },
];
