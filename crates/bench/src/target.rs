//! A *target* is the piece of a disk that a mode writes to, and what it must hold: a scratch file on the disk that
//! is measured, or an emulated device of its own.

use std::rc::Rc;

use weir_runtime::Handle;
use weir_stack::Disk;
use weir_storage::Storage;

use crate::content::Pages;
use crate::emulated::{Emulated, QueueDepth, Watch};
use crate::error::BenchError;
use crate::ledger::Ledger;
use crate::plan::{BenchOptions, Plan};
use crate::raw::fill;
use crate::scratch::{Scratch, ScratchDirectory};

/// Where targets lie.
pub(crate) enum TargetBase<'a> {
    /// In files on a disk.
    Disk {
        /// The directory.
        place: ScratchDirectory,
        /// Whether the files stay.
        keep: bool,
    },
    /// On emulated devices.
    Device(&'a Emulated),
}

impl<'a> TargetBase<'a> {
    /// Where the targets of a benchmark will lie, if there is room.
    pub(crate) fn look(plan: &Plan, options: &'a BenchOptions) -> Result<TargetBase<'a>, BenchError> {
        if let Some(emulated) = &options.device {
            if let Some(directory) = &emulated.backing {
                check_room(&ScratchDirectory::look(directory)?, emulated.flash_bytes(&plan.device_sizes()))?;
            }
            return Ok(TargetBase::Device(emulated));
        }
        let place = ScratchDirectory::look(&options.directory)?;
        check_room(&place, plan.disk_bytes())?;
        Ok(TargetBase::Disk { place, keep: options.keep })
    }
}

/// Refuses to begin what cannot end.
pub(crate) fn check_room(place: &ScratchDirectory, needed: u64) -> Result<(), BenchError> {
    match place.free_bytes() {
        Some(free) if free < needed => Err(BenchError::NoRoom {
            path: place.directory.clone(),
            needed_mib: needed >> 20,
            free_mib: free >> 20,
        }),
        _ => Ok(()),
    }
}

/// A disk in a new file of so many bytes.
pub(crate) fn create_disk(
    handle: &Handle,
    options: &BenchOptions,
    name: &str,
    bytes: u64,
) -> Result<Disk, BenchError> {
    let place = ScratchDirectory::look(&options.directory)?;
    check_room(&place, bytes)?;
    Ok(Disk::File(Scratch::create(&place.directory, name, bytes, options.keep)?.disk(handle)?))
}

/// A disk, and what it must hold.
pub(crate) struct BenchTarget {
    disk: Disk,
    pub(crate) ledger: Ledger,
    /// Whether the kernel's page cache is passed by; emulated devices have none.
    pub(crate) direct: bool,
    depth: Option<Rc<QueueDepth>>,
}

impl BenchTarget {
    /// A target of `bytes` bytes, of which nothing was written.
    pub(crate) fn create(
        handle: &Handle,
        base: &TargetBase<'_>,
        name: &str,
        bytes: u64,
    ) -> Result<BenchTarget, BenchError> {
        match base {
            TargetBase::Disk { place, keep } => {
                BenchTarget::on(handle, &Scratch::create(&place.directory, name, bytes, *keep)?)
            }
            TargetBase::Device(emulated) => {
                let (device, depth) = emulated.device(handle, name, bytes)?;
                let ledger = Ledger::new(device.blocks());
                Ok(BenchTarget { disk: Disk::Emulated(device), ledger, direct: true, depth: Some(depth) })
            }
        }
    }

    /// The target that is this file.
    pub(crate) fn on(handle: &Handle, scratch: &Scratch) -> Result<BenchTarget, BenchError> {
        let disk = scratch.disk(handle)?;
        let (direct, ledger) = (disk.direct(), Ledger::new(disk.blocks()));
        Ok(BenchTarget { disk: Disk::File(disk), ledger, direct, depth: None })
    }

    /// Writes all of it once, as run 1.
    pub(crate) async fn fill(&mut self, handle: &Handle, pages: &Pages) -> Result<(), BenchError> {
        fill(handle, &*self.storage(), pages, 1, &mut self.ledger).await?;
        Ok(())
    }

    /// The disk.
    pub(crate) fn disk(&self) -> Disk {
        self.disk.clone()
    }

    /// The disk as a storage.
    pub(crate) fn storage(&self) -> Rc<dyn Storage> {
        self.disk.storage()
    }

    /// Watches the queue of an emulated device from now on; a disk's commands are those of the process.
    pub(crate) fn watch(&self, handle: &Handle) -> Option<Watch> {
        Some(self.depth.as_ref()?.watch(handle))
    }
}
