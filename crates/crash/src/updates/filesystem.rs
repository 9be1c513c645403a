//! The filesystems whose updates are judged: made, mounted, and checked.

use weir_fs::{BarrierFs, CheckpointBy, MountOptions};
use weir_lfs::{F2fs, F2fsOptions};
use weir_runtime::{Handle, Random};
use weir_vfs::{Filesystem, StorageImage};

use crate::fs::F2FS_BLOCKS;
use crate::fs::ground::{Blocks, DiskTraits, Ground, new_f2fs_image, new_image};
use crate::options::{f2fs_options, mount_options, pick};

/// A filesystem, and how it is mounted.
#[derive(Clone, Copy, Debug)]
pub enum UpdatedFs {
    /// BarrierFS: engine, journal mode and checkpoints; the rest is drawn for each run.
    BarrierFs(MountOptions),
    /// F2FS: its cleaner and its rules; the rest is drawn for each run.
    F2fs(F2fsOptions),
}

impl UpdatedFs {
    /// The same with what is drawn for a run.
    pub(super) fn drawn(self, random: &mut Random) -> UpdatedFs {
        match self {
            UpdatedFs::BarrierFs(options) => UpdatedFs::BarrierFs(mount_options(options, random)),
            UpdatedFs::F2fs(options) => UpdatedFs::F2fs(f2fs_options(options, random)),
        }
    }

    /// A new one.
    pub(super) fn make_image(self) -> Result<Blocks, String> {
        match self {
            UpdatedFs::BarrierFs(_) => new_image(true),
            UpdatedFs::F2fs(_) => new_f2fs_image(F2FS_BLOCKS),
        }
    }

    /// The disk that it stands on.
    pub(super) fn disk_traits(self, random: &mut Random) -> DiskTraits {
        match self {
            UpdatedFs::BarrierFs(options) => {
                let remaps = options.checkpoint == CheckpointBy::Remap;
                DiskTraits { share_blocks: remaps.then(|| pick(random, &[1, 4, 64])), ..DiskTraits::PLAIN }
            }
            UpdatedFs::F2fs(_) => DiskTraits { blocks: F2FS_BLOCKS, ..DiskTraits::PLAIN },
        }
    }

    /// Mounts it, with the bytes of the units that it keeps whole.
    pub(super) async fn mount(self, handle: &Handle, ground: &Ground) -> Result<(Filesystem, u64), String> {
        let mounted = match self {
            UpdatedFs::BarrierFs(options) => {
                let mounted = BarrierFs::mount(handle, ground.storage(), options).await;
                mounted.map(|fs| (fs.clone().into(), fs.statistics().unit_bytes.into()))
            }
            UpdatedFs::F2fs(options) => {
                F2fs::mount(handle, ground.storage(), options).await.map(|fs| (fs.into(), 0))
            }
        };
        mounted.map_err(|error| format!("mounting: {error}"))
    }

    /// Checks the format.
    pub(super) async fn check(self, ground: &Ground) -> Result<(), String> {
        let (is_clean, report) = match self {
            UpdatedFs::BarrierFs(_) => {
                let report = ground.check().await.map_err(|error| error.to_string())?;
                (report.is_clean(), format!("{report:?}"))
            }
            UpdatedFs::F2fs(_) => {
                let report = weir_f2fs::check::check(&StorageImage(ground.storage())).await;
                let report = report.map_err(|error| error.to_string())?;
                (report.is_clean(), format!("{report:?}"))
            }
        };
        if is_clean { Ok(()) } else { Err(format!("the format: {report}")) }
    }
}
