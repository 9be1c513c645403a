//! A filesystem of a kind on a storage: made, mounted, and checked.

use std::rc::Rc;

use weir_fs::{BarrierFs, Engine, MountOptions};
use weir_lfs::{F2fs, F2fsOptions, Flushes};
use weir_runtime::Handle;
use weir_storage::Storage;
use weir_vfs::{Filesystem, StorageImage};

use crate::error::BenchError;

/// Which filesystem, and how it is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FsKind {
    /// BarrierFS.
    BarrierFs {
        /// Which engine commits.
        engine: Engine,
        /// Whether the journal logs changed bytes, and not whole blocks.
        coalition: bool,
    },
    /// F2FS.
    F2fs {
        /// Whether it is mounted with `nobarrier`: nothing is flushed.
        nobarrier: bool,
    },
}

impl FsKind {
    /// BarrierFS as it is mounted by default.
    pub const BARRIER_FS: FsKind = FsKind::BarrierFs { engine: Engine::DUAL, coalition: false };
    /// F2FS, likewise.
    pub const F2FS: FsKind = FsKind::F2fs { nobarrier: false };

    /// Its part of the name of a mode, and of a mode's title.
    pub(super) fn names(self) -> (String, String) {
        let (name, title) = match self {
            FsKind::BarrierFs { engine: Engine::Dual { .. }, .. } => ("barrierfs", "BarrierFS"),
            FsKind::BarrierFs { engine: Engine::FlushAhead, .. } => ("flush_ahead", "its engine flush-ahead"),
            FsKind::BarrierFs { .. } => ("jbd2", "its engine jbd2"),
            FsKind::F2fs { nobarrier: false } => ("f2fs", "F2FS"),
            FsKind::F2fs { nobarrier: true } => ("f2fs_nobarrier", "F2FS nobarrier"),
        };
        match self {
            FsKind::BarrierFs { coalition: true, .. } => {
                (format!("{name}_coalition"), format!("{title}, coalition"))
            }
            _ => (name.to_owned(), title.to_owned()),
        }
    }

    /// Whether its durable calls flush.
    pub(super) fn flushes(self) -> bool {
        !matches!(self, FsKind::F2fs { nobarrier: true })
    }

    /// Makes one that takes all of a storage, which reads as zeros.
    pub(crate) async fn make(self, handle: &Handle, storage: &dyn Storage) -> Result<(), BenchError> {
        let (blocks, zeroed) = (storage.blocks(), true);
        let created = u32::try_from(handle.wall_clock_millis() / 1000).unwrap_or(u32::MAX);
        match self {
            FsKind::BarrierFs { .. } => {
                let mkfs = weir_ext4::Mkfs::new(blocks, [7; 16], [8; 16], created);
                BarrierFs::make(storage, &weir_ext4::Mkfs { zeroed, ..mkfs }).await?;
            }
            FsKind::F2fs { .. } => {
                let mkfs = weir_f2fs::Mkfs::new(blocks, [7; 16], 1, created.into());
                F2fs::make(storage, &weir_f2fs::Mkfs { zeroed, ..mkfs }).await?;
            }
        }
        Ok(())
    }

    /// Mounts the one on a storage.
    pub(crate) async fn mount(
        self,
        handle: &Handle,
        storage: Rc<dyn Storage>,
        read_only: bool,
    ) -> Result<Filesystem, BenchError> {
        Ok(match self {
            FsKind::BarrierFs { engine, coalition } => {
                let engine = Some(engine);
                let options = MountOptions { read_only, engine, coalition, ..MountOptions::default() };
                BarrierFs::mount(handle, storage, options).await?.into()
            }
            FsKind::F2fs { nobarrier } => {
                let flushes = if nobarrier { Flushes::Never } else { Flushes::Ordered };
                let options = F2fsOptions { read_only, flushes, ..F2fsOptions::default() };
                F2fs::mount(handle, storage, options).await?.into()
            }
        })
    }

    /// Checks the one on a storage.
    ///
    /// # Errors
    /// [`BenchError::Damaged`] if anything is wrong with it, or left for the next mount to do.
    pub(crate) async fn require_clean(self, storage: Rc<dyn Storage>) -> Result<(), BenchError> {
        let image = StorageImage(storage);
        let (first, total, transactions, orphans) = match self {
            FsKind::BarrierFs { .. } => {
                let report = weir_ext4::check::check(&image).await?;
                let first = report.findings.first().map(ToString::to_string);
                (first, report.total, report.transactions, report.orphans)
            }
            FsKind::F2fs { .. } => {
                let report = weir_f2fs::check::check(&image).await?;
                let first = report.findings.first().map(ToString::to_string);
                (first, report.total, 0, report.orphans)
            }
        };
        match first {
            Some(first) => Err(BenchError::Damaged { first, total }),
            None if (transactions, orphans) != (0, 0) => {
                let first = format!("{transactions} transactions to replay, {orphans} orphans");
                Err(BenchError::Damaged { first, total: 1 })
            }
            None => Ok(()),
        }
    }
}
