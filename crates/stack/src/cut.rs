//! What a power cut leaves of a stack in memory, and the stack that comes back from it.

use std::rc::Rc;

use weir_flash::{FlashDevice, FlashOptions, Medium, Profile};
use weir_runtime::{Handle, Random};
use weir_storage::{AdversaryDisk, AdversaryOptions, CrashStates, Image, Kept, Recorder};

use crate::error::StackError;
use crate::spec::{DiskSpec, StackSpec, VolumeSpec};
use crate::stack::{Disk, Stack};

/// All that a power cut now may leave.
pub struct MayLeave<'a> {
    disk: States<'a>,
    volume: Option<&'a VolumeSpec>,
}

enum States<'a> {
    /// Of a device, of which one can only be drawn.
    Device(&'a FlashDevice, &'a Rc<Profile>),
    /// Of a disk, which has names for them.
    Disk(CrashStates, &'a AdversaryOptions),
}

impl<'a> MayLeave<'a> {
    /// What a power cut now may leave of a disk that `spec` describes; none of a file, whose power is not ours.
    #[must_use]
    pub fn of(disk: &'a Disk, spec: &'a StackSpec) -> Option<MayLeave<'a>> {
        let disk = match (disk, &spec.disk) {
            (Disk::Emulated(device), DiskSpec::Emulated { profile, .. }) => States::Device(device, profile),
            (Disk::Adversary(disk), DiskSpec::Adversary(options)) => {
                States::Disk(disk.crash_states(), options)
            }
            _ => return None,
        };
        Some(MayLeave { disk, volume: spec.volume.as_ref() })
    }

    /// One of the states.
    #[must_use]
    pub fn draw(&self, random: &mut Random) -> Left {
        self.leave(match &self.disk {
            States::Device(device, profile) => Content::Device(device.after_cut(random), Rc::clone(profile)),
            States::Disk(states, options) => Content::Disk(states.sample(random), (*options).clone()),
        })
    }

    /// The states, where they have names.
    #[must_use]
    pub fn states(&self) -> Option<&CrashStates> {
        match &self.disk {
            States::Device(..) => None,
            States::Disk(states, _) => Some(states),
        }
    }

    /// The state of this name, where they have names.
    #[must_use]
    pub fn named(&self, kept: &Kept) -> Option<Left> {
        match &self.disk {
            States::Device(..) => None,
            States::Disk(states, options) => {
                Some(self.leave(Content::Disk(states.image(kept), (*options).clone())))
            }
        }
    }

    fn leave(&self, disk: Content) -> Left {
        Left { disk, volume: self.volume.cloned() }
    }
}

/// What a power cut left.
#[derive(Clone)]
pub struct Left {
    disk: Content,
    volume: Option<VolumeSpec>,
}

/// What is on the disk.
#[derive(Clone)]
enum Content {
    Device(Medium, Rc<Profile>),
    Disk(Image, AdversaryOptions),
}

impl Left {
    /// Whether it is of an emulated device, which has no names for its states.
    #[must_use]
    pub fn is_of_device(&self) -> bool {
        matches!(self.disk, Content::Device(..))
    }

    /// Tells what is left from what else may be left.
    #[must_use]
    pub fn hash(&self) -> u64 {
        match &self.disk {
            Content::Device(medium, _) => medium.hash(),
            Content::Disk(image, _) => image.hash(),
        }
    }

    /// Power comes back: what is left, recovered by the device and by the volume. `recorder` is told what the stack does.
    ///
    /// # Errors
    /// Those of the volume.
    pub async fn power_up(
        &self,
        handle: &Handle,
        recorder: Option<&Rc<Recorder>>,
    ) -> Result<Stack, StackError> {
        let disk = match &self.disk {
            Content::Device(medium, profile) => {
                let options = FlashOptions { recorder: recorder.cloned(), ..FlashOptions::default() };
                Disk::Emulated(FlashDevice::restarted(handle, profile, options, medium.clone()))
            }
            Content::Disk(image, options) => {
                Disk::Adversary(AdversaryDisk::from_image(handle, options.clone(), image))
            }
        };
        let stack = match &self.volume {
            Some(volume) => Stack::open(handle, disk, volume.options.clone()).await?,
            None => Stack::from(disk),
        };
        if let Some(recorder) = recorder {
            stack.set_recorder(recorder);
        }
        Ok(stack)
    }
}
