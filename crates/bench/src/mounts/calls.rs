//! What a program does on a mount, by the calls of any program and the two of libweir.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;
use weir_fs::Promise;
use weir_storage::BLOCK_BYTES;

use crate::content::Pages;
use crate::measure::{Goal, Meter};
use crate::writes::Writes;

/// Writes of 4 KiB on a mount, and what follows each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MountCalls {
    /// Direct, at random over a file that is there, then `fdatabarrier`.
    OverwriteBarrier,
    /// The same, with nothing after it, as the open file has each write in place ordered.
    OverwriteOrdered,
    /// The same, then `fdatasync`.
    OverwriteFdatasync,
    /// Direct and at random, nothing after it, this many at a time.
    Deep(u32),
    /// The same, each of them durable when it is done.
    DeepDurable(u32),
    /// Behind the end of the file, then `fbarrier`.
    AppendFbarrier,
    /// The same, then `fsync`.
    AppendFsync,
    /// The two on a mount whose journal logs changed bytes.
    CoalitionAppendFbarrier,
    /// See above.
    CoalitionAppendFsync,
    /// The same on the kernel's ext4, which is mounted without barriers on a volume.
    KernelAppendFsync,
}

impl MountCalls {
    /// The name that scripts rely on.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            MountCalls::OverwriteBarrier => "mount_overwrite_fdatabarrier".to_owned(),
            MountCalls::OverwriteOrdered => "mount_overwrite_ordered".to_owned(),
            MountCalls::OverwriteFdatasync => "mount_overwrite_fdatasync".to_owned(),
            MountCalls::Deep(depth) => format!("mount_direct_depth_{depth}"),
            MountCalls::DeepDurable(depth) => format!("mount_direct_durable_depth_{depth}"),
            MountCalls::AppendFbarrier => "mount_append_fbarrier".to_owned(),
            MountCalls::AppendFsync => "mount_append_fsync".to_owned(),
            MountCalls::CoalitionAppendFbarrier => "mount_coalition_append_fbarrier".to_owned(),
            MountCalls::CoalitionAppendFsync => "mount_coalition_append_fsync".to_owned(),
            MountCalls::KernelAppendFsync => "kernel_ext4_on_volume_append_fsync".to_owned(),
        }
    }

    /// What it does, for a table.
    #[must_use]
    pub fn title(self) -> String {
        match self {
            MountCalls::OverwriteBarrier => "mount, direct overwrite + fdatabarrier".to_owned(),
            MountCalls::OverwriteOrdered => "mount, direct overwrite, ORDER_WRITES".to_owned(),
            MountCalls::OverwriteFdatasync => "mount, direct overwrite + fdatasync".to_owned(),
            MountCalls::Deep(depth) => format!("mount, direct overwrites, {depth} at a time"),
            MountCalls::DeepDurable(depth) => format!("mount, durable overwrites, {depth} at a time"),
            MountCalls::AppendFbarrier => "mount, append + fbarrier".to_owned(),
            MountCalls::AppendFsync => "mount, append + fsync".to_owned(),
            MountCalls::CoalitionAppendFbarrier => "mount, coalition, append + fbarrier".to_owned(),
            MountCalls::CoalitionAppendFsync => "mount, coalition, append + fsync".to_owned(),
            MountCalls::KernelAppendFsync => "ext4 nobarrier on volume, append + fsync".to_owned(),
        }
    }

    /// What a call promises when it returns; none for writes without one.
    #[must_use]
    pub fn promise(self) -> Option<Promise> {
        match self {
            MountCalls::OverwriteFdatasync
            | MountCalls::DeepDurable(_)
            | MountCalls::AppendFsync
            | MountCalls::CoalitionAppendFsync => Some(Promise::Durable),
            MountCalls::Deep(_) => None,
            MountCalls::OverwriteBarrier
            | MountCalls::OverwriteOrdered
            | MountCalls::AppendFbarrier
            | MountCalls::CoalitionAppendFbarrier
            | MountCalls::KernelAppendFsync => Some(Promise::Ordered),
        }
    }

    /// The options of `weir mount` that it is measured with.
    pub(super) fn mount_options(self) -> &'static [&'static str] {
        match self {
            MountCalls::CoalitionAppendFbarrier | MountCalls::CoalitionAppendFsync => {
                &["--journal-coalition"]
            }
            _ => &[],
        }
    }

    /// Whether the file is written over, and not grown.
    pub(super) fn overwrites(self) -> bool {
        matches!(
            self,
            MountCalls::OverwriteBarrier
                | MountCalls::OverwriteOrdered
                | MountCalls::OverwriteFdatasync
                | MountCalls::Deep(_)
                | MountCalls::DeepDurable(_)
        )
    }

    /// Opens the file that is to be written, made if it is not there.
    pub(super) fn open(self, path: &Path) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        if self.overwrites() {
            options.custom_flags(OFlags::DIRECT.bits().cast_signed());
        }
        let file = options.open(path)?;
        if self == MountCalls::OverwriteOrdered && !weir::order_writes(file.as_raw_fd()) {
            return Err(io::Error::last_os_error());
        }
        Ok(file)
    }

    /// Writes one page after the other until the goal is reached, and makes all of it durable where the calls did
    /// not; how many calls made something durable.
    pub(super) fn run(
        self,
        file: &File,
        writes: &mut Writes,
        pages: &mut Pages,
        goal: &Goal,
        meter: &mut Meter,
    ) -> io::Result<u64> {
        let mut durable = 0;
        let mut first = true;
        while !meter.reached(goal) {
            let stamp = writes.take();
            let offset = stamp.block * BLOCK_BYTES as u64;
            if offset == 0 && !first && !self.overwrites() {
                // The span is used up: the file begins anew.
                file.set_len(0)?;
            }
            first = false;
            file.write_all_at(pages.page(stamp), offset)?;
            match self {
                MountCalls::OverwriteBarrier => answered(weir::fdatabarrier(file.as_raw_fd()))?,
                MountCalls::AppendFbarrier | MountCalls::CoalitionAppendFbarrier => {
                    answered(weir::fbarrier(file.as_raw_fd()))?;
                }
                MountCalls::OverwriteFdatasync => file.sync_data()?,
                MountCalls::AppendFsync
                | MountCalls::CoalitionAppendFsync
                | MountCalls::KernelAppendFsync => file.sync_all()?,
                MountCalls::OverwriteOrdered | MountCalls::Deep(_) | MountCalls::DeepDurable(_) => {}
            }
            durable += u64::from(self.promise() == Some(Promise::Durable));
            meter.lap();
        }
        if self.promise() == Some(Promise::Durable) {
            return Ok(durable);
        }
        file.sync_all()?;
        Ok(durable + 1)
    }
}

/// The answer of a call of libweir.
fn answered(code: i32) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
