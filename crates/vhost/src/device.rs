//! The disk as a frontend sets it up, by messages.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::rc::Rc;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use tracing::warn;
use vhost::VhostUserMemoryRegionBase;
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig, VhostUserSharedMsg,
    VhostUserSingleMemoryRegion, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{Error, GpuBackend, Result, VhostUserBackendReqHandler};
use weir_runtime::PolledFile;

use crate::config::{self, QUEUES_MAX, feature};
use crate::error::VhostError;
use crate::inflight::{self, InflightRegion};
use crate::memory::SharedMemory;
use crate::requests::{SERIAL_BYTES, Use};
use crate::vring::{Disk, Setting, Vring};

/// The disk of one frontend.
pub(crate) struct Device {
    disk: Rc<Disk>,
    serial: [u8; SERIAL_BYTES],
    /// What the guest took of the features.
    features: Cell<u64>,
    memory: RefCell<Option<SharedMemory>>,
    rings: Vec<Rc<Vring>>,
    inflight: RefCell<Option<Rc<InflightRegion>>>,
}

impl Device {
    /// # Errors
    /// [`VhostError::Protocol`] if a ring cannot be made.
    pub(crate) fn new(disk: Disk, serial: [u8; SERIAL_BYTES]) -> std::result::Result<Device, VhostError> {
        let rings = (0..QUEUES_MAX.into()).map(Vring::new).collect::<std::result::Result<_, _>>()?;
        // A new client expects nothing of the one before it; memory for requests under way may say otherwise (N7).
        disk.export.fail_flushes(false);
        Ok(Device {
            disk: Rc::new(disk),
            serial,
            features: Cell::default(),
            memory: RefCell::default(),
            rings,
            inflight: RefCell::default(),
        })
    }

    /// Serves the rings that are set up.
    pub(crate) fn start_rings(&self) -> std::result::Result<(), VhostError> {
        let memory = self.memory.borrow();
        let Some(memory) = &*memory else { return Ok(()) };
        let has = |bit| self.features.get() & bit != 0;
        let setting = Setting {
            memory: memory.mapped.clone(),
            how: Use { write_through: !has(feature::FLUSH), serial: self.serial },
            event_index: has(feature::EVENT_IDX),
            inflight: self.inflight.borrow().clone(),
        };
        self.rings.iter().try_for_each(|ring| ring.start(&self.disk, &setting))
    }

    /// Takes no more requests, and waits until those that are under way are answered.
    pub(crate) async fn stop_rings(&self) {
        self.rings.iter().for_each(|ring| ring.stop());
        self.disk.load.is_idle().await;
    }

    /// Makes durable what was answered, and notes that in the memory for requests under way: the next server need not take
    /// it for lost (N7). No request is under way.
    pub(crate) async fn end(&self) {
        let inflight = self.inflight.borrow().clone();
        let Some(inflight) = inflight else { return };
        if self.disk.export.make_durable().await.is_ok() {
            inflight.note_end();
        }
    }

    fn ring(&self, index: u32) -> Result<&Rc<Vring>> {
        self.rings.get(index as usize).ok_or(Error::InvalidParam)
    }

    fn set_memory(&self, regions: &[VhostUserMemoryRegion], files: Vec<File>) -> Result<()> {
        *self.memory.borrow_mut() = Some(SharedMemory::map(regions, files)?);
        Ok(())
    }
}

/// Sees to it that calls of a file do not wait.
fn without_waits(file: File) -> Result<File> {
    let set = fcntl_getfl(&file).and_then(|flags| fcntl_setfl(&file, flags | OFlags::NONBLOCK));
    set.map_err(|errno| Error::ReqHandlerError(errno.into()))?;
    Ok(file)
}

fn refuse<T>(what: &'static str) -> Result<T> {
    Err(Error::InvalidOperation(what))
}

/// What the messages do. Rings that they change are stopped before, and started again behind them.
impl VhostUserBackendReqHandler for Device {
    fn set_owner(&self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&self) -> Result<()> {
        self.reset_device()
    }

    fn reset_device(&self) -> Result<()> {
        for ring in &self.rings {
            ring.enable(false);
            ring.end();
            ring.set_next(0);
        }
        Ok(())
    }

    fn get_features(&self) -> Result<u64> {
        Ok(config::features(&self.disk.export))
    }

    fn set_features(&self, features: u64) -> Result<()> {
        if features & !config::features(&self.disk.export) != 0 {
            return Err(Error::FeatureMismatch);
        }
        self.features.set(features);
        // Only with that feature there is a message that enables them.
        let is_enabled_by_itself = features & feature::PROTOCOL_FEATURES == 0;
        self.rings.iter().filter(|_| is_enabled_by_itself).for_each(|ring| ring.enable(true));
        Ok(())
    }

    fn set_mem_table(
        &self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy: Option<bool>,
    ) -> Result<Option<Vec<VhostUserMemoryRegionBase>>> {
        self.set_memory(regions, files)?;
        Ok(None)
    }

    fn set_vring_num(&self, index: u32, num: u32) -> Result<()> {
        Ok(self.ring(index)?.set_size(num)?)
    }

    fn set_vring_addr(
        &self,
        index: u32,
        _flags: VhostUserVringAddrFlags,
        descriptor: u64,
        used: u64,
        available: u64,
        _log: u64,
    ) -> Result<()> {
        let ring = self.ring(index)?;
        let memory = self.memory.borrow();
        let of_guest = |user| memory.as_ref().and_then(|memory| memory.guest_address(user));
        let (Some(table), Some(available), Some(used)) =
            (of_guest(descriptor), of_guest(available), of_guest(used))
        else {
            return Err(VhostError::RingOutside(index as usize).into());
        };
        Ok(ring.place(table, available, used)?)
    }

    fn set_vring_base(&self, index: u32, base: u32) -> Result<()> {
        // Of a split ring it is the low half.
        self.ring(index)?.set_next(base as u16);
        Ok(())
    }

    fn get_vring_base(&self, index: u32) -> Result<VhostUserVringState> {
        Ok(VhostUserVringState::new(index, self.ring(index)?.end().into()))
    }

    fn set_vring_kick(&self, index: u8, file: Option<File>) -> Result<()> {
        let Some(file) = file else { return refuse("rings without a kick") };
        let file = without_waits(file)?;
        let kick = PolledFile::new(&self.disk.handle, file.into()).map_err(Error::ReqHandlerError)?;
        self.ring(index.into())?.set_kick(kick);
        Ok(())
    }

    fn set_vring_call(&self, index: u8, file: Option<File>) -> Result<()> {
        self.ring(index.into())?.set_call(file.map(without_waits).transpose()?);
        Ok(())
    }

    fn set_vring_err(&self, index: u8, _file: Option<File>) -> Result<()> {
        // It is told by a log line.
        self.ring(index.into()).map(|_| ())
    }

    fn get_protocol_features(&self) -> Result<VhostUserProtocolFeatures> {
        use VhostUserProtocolFeatures as feature;
        Ok(feature::MQ | feature::CONFIG | feature::INFLIGHT_SHMFD)
    }

    fn set_protocol_features(&self, _features: u64) -> Result<()> {
        Ok(())
    }

    fn get_queue_num(&self) -> Result<u64> {
        Ok(QUEUES_MAX.into())
    }

    fn set_vring_enable(&self, index: u32, enable: bool) -> Result<()> {
        self.ring(index)?.enable(enable);
        Ok(())
    }

    fn get_config(&self, offset: u32, size: u32, _flags: VhostUserConfigFlags) -> Result<Vec<u8>> {
        config::read(&self.disk.export, offset, size).ok_or(Error::InvalidParam)
    }

    fn set_config(&self, _offset: u32, _bytes: &[u8], _flags: VhostUserConfigFlags) -> Result<()> {
        refuse("the guest changes what it may only read")
    }

    fn set_gpu_socket(&self, _socket: GpuBackend) -> Result<()> {
        refuse("it is no display")
    }

    fn get_shared_object(&self, _object: VhostUserSharedMsg) -> Result<File> {
        refuse("shared objects")
    }

    fn get_inflight_fd(&self, asked: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        let (queues, size) = (asked.num_queues, asked.queue_size);
        let (file, bytes) = inflight::create(queues, size)?;
        Ok((VhostUserInflight::new(bytes, 0, queues, size), file))
    }

    fn set_inflight_fd(&self, given: &VhostUserInflight, file: File) -> Result<()> {
        let region = InflightRegion::map(file, given.mmap_offset, given.num_queues, given.queue_size)?;
        let region = Rc::new(region);
        let before = self.inflight.borrow_mut().replace(Rc::clone(&region));
        if before.is_some_and(|before| before.is_same(&region)) {
            // The rings were stopped meanwhile, as for a virtual machine that is stopped, and this is the server that answered.
            return Ok(());
        }
        let is_behind_loss = region.take_kill() && !self.disk.answers_from_disk;
        if is_behind_loss {
            warn!(
                name: "guest_behind_loss",
                "the last server was killed, and writes that it had answered may be lost: no flush of this guest succeeds; restart the \
                 guest, and serve with --answer disk"
            );
        }
        self.disk.export.fail_flushes(is_behind_loss);
        Ok(())
    }

    fn get_max_mem_slots(&self) -> Result<u64> {
        refuse("memory by single regions")
    }

    fn add_mem_region(
        &self,
        _region: &VhostUserSingleMemoryRegion,
        _file: File,
        _postcopy: Option<bool>,
    ) -> Result<Option<VhostUserMemoryRegionBase>> {
        refuse("memory by single regions")
    }

    fn remove_mem_region(&self, _region: &VhostUserSingleMemoryRegion) -> Result<()> {
        refuse("memory by single regions")
    }

    fn set_device_state_fd(
        &self,
        _direction: VhostTransferStateDirection,
        _phase: VhostTransferStatePhase,
        _file: File,
    ) -> Result<Option<File>> {
        refuse("migration")
    }

    fn check_device_state(&self) -> Result<()> {
        refuse("migration")
    }

    fn get_shmem_config(&self) -> Result<VhostUserShMemConfig> {
        refuse("shared memory of the device")
    }

    fn set_log_base(&self, _log: &VhostUserLog, _file: File) -> Result<()> {
        refuse("migration")
    }
}
