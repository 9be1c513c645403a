//! Emulated devices as the ground of a benchmark, in wall time: what a disk is for the files on it, a device of
//! its own is for each target here. All are of one profile, each no larger than it must be.

use std::cell::Cell;
use std::path::PathBuf;
use std::rc::Rc;

use serde::Serialize;
use weir_flash::{Backing, FlashDevice, FlashOptions, Keep, Probe, Profile};
use weir_runtime::{Handle, Instant};
use weir_storage::BLOCK_BYTES;

use crate::error::BenchError;
use crate::scratch::Scratch;

/// Which device is emulated, and where its bytes lie.
#[derive(Clone, Debug)]
pub struct Emulated {
    /// The device.
    pub profile: Profile,
    /// The directory for files without a name that hold the devices' bytes; `None` for memory.
    pub backing: Option<PathBuf>,
}

/// What is said about an emulated device.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceReport {
    /// The profile's name.
    pub name: String,
    /// What it stands for.
    pub title: String,
    /// By which mechanism it keeps barriers; `none` on a legacy device.
    pub mechanism: &'static str,
    /// The directory of the files that hold its bytes; null for memory.
    pub backing: Option<PathBuf>,
}

impl Emulated {
    /// A new device of `bytes` bytes, and the depth of its queue.
    ///
    /// # Errors
    /// [`BenchError::Capacity`] if the profile's device is smaller; what the kernel refused of its file.
    pub(crate) fn device(
        &self,
        handle: &Handle,
        name: &str,
        bytes: u64,
    ) -> Result<(Rc<FlashDevice>, Rc<QueueDepth>), BenchError> {
        let blocks = bytes / BLOCK_BYTES as u64;
        if blocks > self.profile.blocks {
            let device_mib = (self.profile.blocks * BLOCK_BYTES as u64) >> 20;
            return Err(BenchError::Capacity { device_mib, needed_mib: bytes >> 20 });
        }
        let keep = match &self.backing {
            Some(directory) => {
                Keep::File(Backing::new(Scratch::create(directory, name, 0, false)?.into_file()))
            }
            None => Keep::Bytes,
        };
        let depth = Rc::new(QueueDepth::default());
        let probe = Some(Rc::clone(&depth) as Rc<dyn Probe>);
        let options = FlashOptions { keep, probe, never_cut: true, ..FlashOptions::default() };
        Ok((FlashDevice::new(handle, &self.profile.with_capacity(blocks), options), depth))
    }

    /// What the flash and the caches of devices of these sizes hold at most, in bytes.
    pub(crate) fn flash_bytes(&self, sizes: &[u64]) -> u64 {
        let each = |bytes: &u64| {
            let Profile { nand, cache, .. } = self.profile.with_capacity(bytes / BLOCK_BYTES as u64);
            let pages = [nand.channels, nand.ways, nand.planes, nand.blocks_per_plane, nand.pages_per_block];
            let pages: u64 = pages.into_iter().map(u64::from).product();
            pages * u64::from(nand.page_bytes) + cache.bytes
        };
        sizes.iter().map(each).sum()
    }

    pub(crate) fn report(&self) -> DeviceReport {
        DeviceReport {
            name: self.profile.name.clone(),
            title: self.profile.title.clone(),
            mechanism: self.profile.barrier.mechanism.name(),
            backing: self.backing.clone(),
        }
    }
}

/// Commands that a device has accepted and not answered, over time.
#[derive(Debug, Default)]
pub(crate) struct QueueDepth {
    commands: Cell<u64>,
    since_ns: Cell<u64>,
    /// Commands times nanoseconds.
    sum: Cell<u64>,
}

impl QueueDepth {
    /// Watches it from now on.
    pub(crate) fn watch(self: &Rc<QueueDepth>, handle: &Handle) -> Watch {
        let began = handle.now();
        Watch { handle: handle.clone(), depth: Rc::clone(self), began, sum: self.sum(began) }
    }

    /// Commands times nanoseconds until now.
    fn sum(&self, now: Instant) -> u64 {
        let passed = now.as_nanos().saturating_sub(self.since_ns.get());
        self.sum.get() + passed * self.commands.get()
    }
}

/// A look at a queue's depth from some moment on.
pub(crate) struct Watch {
    handle: Handle,
    depth: Rc<QueueDepth>,
    began: Instant,
    sum: u64,
}

impl Watch {
    /// The depth from that moment until now, averaged over time.
    pub(crate) fn mean(&self) -> f64 {
        let now = self.handle.now();
        let sum = self.depth.sum(now).saturating_sub(self.sum);
        sum as f64 / now.since(self.began).as_nanos().max(1) as f64
    }
}

impl Probe for QueueDepth {
    fn busy(&self, _: weir_flash::Busy, _: weir_flash::Subject, _: u64, _: u64) {}

    fn queue_depth(&self, at_ns: u64, commands: u32) {
        self.sum.set(self.sum(Instant::from_nanos(at_ns)));
        self.since_ns.set(at_ns.max(self.since_ns.get()));
        self.commands.set(u64::from(commands));
    }

    fn cached(&self, _: u64, _: u64) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_is_commands_times_time() {
        let depth = QueueDepth::default();
        depth.queue_depth(100, 2);
        depth.queue_depth(200, 4);
        assert_eq!(depth.sum(Instant::from_nanos(250)), 2 * 100 + 4 * 50);
        depth.queue_depth(250, 0);
        assert_eq!(depth.sum(Instant::from_nanos(1000)), 400);
    }
}
