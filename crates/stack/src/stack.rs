//! A stack that is put together.

use std::rc::Rc;

use weir_flash::FlashDevice;
use weir_runtime::Handle;
use weir_storage::{AdversaryDisk, FileDisk, Ordering, Recorder, Storage};
use weir_volume::{BranchStorage, ResizableVolume, Stats, Volume, VolumeError, VolumeOptions};

use crate::error::StackError;
use crate::false_order::FalseOrder;
use crate::spec::{DiskSpec, StackSpec, VolumeSpec};

/// What is at the bottom of a stack.
#[derive(Clone)]
pub enum Disk {
    /// A file or a block device.
    File(Rc<FileDisk>),
    /// An emulated device.
    Emulated(Rc<FlashDevice>),
    /// The worst disk that the contract allows.
    Adversary(Rc<AdversaryDisk>),
    /// What lies on another machine, and is only read here.
    Remote(Rc<dyn Storage>),
}

impl Disk {
    /// A disk in memory that is new, or the file or block device that is there.
    ///
    /// # Errors
    /// Those of opening a file.
    pub fn open(handle: &Handle, spec: &DiskSpec) -> Result<Disk, StackError> {
        Ok(match spec {
            DiskSpec::File { path, options } => Disk::File(FileDisk::open(handle, path, options.clone())?),
            DiskSpec::Emulated { profile, options } => {
                Disk::Emulated(FlashDevice::new(handle, profile, options.clone()))
            }
            DiskSpec::Adversary(options) => Disk::Adversary(AdversaryDisk::new(handle, options.clone())),
        })
    }

    /// Returns the disk as a storage.
    #[must_use]
    pub fn storage(&self) -> Rc<dyn Storage> {
        match self {
            Disk::File(disk) => Rc::<FileDisk>::clone(disk),
            Disk::Emulated(device) => Rc::<FlashDevice>::clone(device),
            Disk::Adversary(disk) => Rc::<AdversaryDisk>::clone(disk),
            Disk::Remote(storage) => Rc::clone(storage),
        }
    }

    /// Makes a new volume on it, and leaves it closed.
    ///
    /// # Errors
    /// Those of the volume.
    pub async fn create_volume(&self, handle: &Handle, spec: &VolumeSpec) -> Result<(), VolumeError> {
        Volume::create(handle, &*self.storage(), spec.format).await
    }
}

/// A disk, and a volume on it or none.
#[derive(Clone)]
pub struct Stack {
    disk: Disk,
    volume: Option<Rc<ResizableVolume>>,
    /// The snapshot or clone that is at the top, in the place of the volume.
    branch: Option<Rc<BranchStorage>>,
    claims: Option<Ordering>,
}

impl Stack {
    /// A new disk in memory, or the file or block device that is there, and a new volume, if there is to be one.
    ///
    /// # Errors
    /// Those of the disk, and of the volume.
    pub async fn make(handle: &Handle, spec: &StackSpec) -> Result<Stack, StackError> {
        let disk = Disk::open(handle, &spec.disk)?;
        let stack = match &spec.volume {
            Some(volume) => Stack::make_volume(handle, disk, volume).await?,
            None => Stack::from(disk),
        };
        Ok(stack.claiming(spec.claims))
    }

    /// A disk that is there, and a new volume on it.
    ///
    /// # Errors
    /// Those of the volume.
    pub async fn make_volume(handle: &Handle, disk: Disk, spec: &VolumeSpec) -> Result<Stack, VolumeError> {
        disk.create_volume(handle, spec).await?;
        Stack::open(handle, disk, spec.options.clone()).await
    }

    /// A disk, and the volume that it holds, which recovers if need be.
    ///
    /// # Errors
    /// Those of the volume; [`VolumeError::Foreign`] if there is none.
    pub async fn open(handle: &Handle, disk: Disk, options: VolumeOptions) -> Result<Stack, VolumeError> {
        let storage = disk.storage();
        Stack::open_through(handle, disk, storage, options).await
    }

    /// A disk, and the volume that it holds, which reads and writes by `storage`, in front of the disk.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn open_through(
        handle: &Handle,
        disk: Disk,
        storage: Rc<dyn Storage>,
        options: VolumeOptions,
    ) -> Result<Stack, VolumeError> {
        let volume = Volume::open(handle, storage, options).await?;
        Ok(Stack { disk, volume: Some(Rc::new(volume.into())), branch: None, claims: None })
    }

    /// A disk, and the volume that it holds, which was made on a base.
    ///
    /// # Errors
    /// Those of the volume.
    pub async fn open_on_base(
        handle: &Handle,
        disk: Disk,
        base: Rc<dyn Storage>,
        options: VolumeOptions,
    ) -> Result<Stack, VolumeError> {
        let volume = Volume::open_on_base(handle, disk.storage(), base, options).await?;
        Ok(Stack { disk, volume: Some(Rc::new(volume.into())), branch: None, claims: None })
    }

    /// Whether a snapshot or clone of its volume is at the top.
    #[must_use]
    pub fn is_branch(&self) -> bool {
        self.branch.is_some()
    }

    /// The same with a snapshot or clone of its volume at the top.
    #[must_use]
    pub fn with_branch(self, branch: BranchStorage) -> Stack {
        Stack { branch: Some(Rc::new(branch)), ..self }
    }

    /// The same, claiming an order that it does not keep.
    pub(crate) fn claiming(self, claims: Option<Ordering>) -> Stack {
        Stack { claims, ..self }
    }

    /// The disk at the bottom.
    #[must_use]
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// The volume, if there is one, as it is open now.
    #[must_use]
    pub fn volume(&self) -> Option<Rc<Volume>> {
        self.volume.as_ref().map(|volume| volume.current())
    }

    /// The volume, if there is one, to make it larger.
    #[must_use]
    pub fn resizable_volume(&self) -> Option<&Rc<ResizableVolume>> {
        self.volume.as_ref()
    }

    /// What the volume has counted; nothing if there is none.
    #[must_use]
    pub fn volume_stats(&self) -> Stats {
        self.volume().map(|volume| volume.stats()).unwrap_or_default()
    }

    /// What is at the top.
    #[must_use]
    pub fn storage(&self) -> Rc<dyn Storage> {
        let top: Rc<dyn Storage> = match (&self.branch, &self.volume) {
            (Some(branch), _) => Rc::<BranchStorage>::clone(branch),
            // A volume with marks does not grow (V13).
            (None, Some(volume)) if volume.current().marks().is_some() => volume.current(),
            (None, Some(volume)) => Rc::<ResizableVolume>::clone(volume),
            (None, None) => self.disk.storage(),
        };
        match self.claims {
            Some(ordering) => FalseOrder::new(top, ordering),
            None => top,
        }
    }

    /// Attaches `recorder` to the top of the stack. An emulated device gets its recorder by its options, when it is made.
    pub fn set_recorder(&self, recorder: &Rc<Recorder>) {
        match (self.volume(), &self.disk) {
            (Some(volume), _) => volume.set_recorder(Rc::clone(recorder)),
            (None, Disk::Adversary(disk)) => disk.set_recorder(Rc::clone(recorder)),
            (None, Disk::File(disk)) => disk.set_recorder(Rc::clone(recorder)),
            (None, Disk::Emulated(_) | Disk::Remote(_)) => {}
        }
    }

    /// Closes the volume, if there is one, durably.
    ///
    /// # Errors
    /// Those of the volume: then its last state is that of the last flush.
    pub async fn close(&self) -> Result<(), VolumeError> {
        match self.volume() {
            Some(volume) => volume.close().await,
            None => Ok(()),
        }
    }
}

impl From<Disk> for Stack {
    fn from(disk: Disk) -> Stack {
        Stack { disk, volume: None, branch: None, claims: None }
    }
}
