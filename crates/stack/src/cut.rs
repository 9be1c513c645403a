//! What a power cut leaves of a stack in memory, and the stack that comes back from it.

use std::cell::OnceCell;
use std::rc::Rc;

use weir_flash::{FlashDevice, FlashOptions, Medium, Profile};
use weir_runtime::{Handle, Random};
use weir_storage::{AdversaryDisk, AdversaryOptions, CrashStates, Image, Kept, Ordering, Recorder};

use crate::error::StackError;
use crate::spec::{DiskSpec, StackSpec, VolumeSpec};
use crate::stack::{Disk, Stack};

/// All that a power cut now may leave.
pub struct MayLeave<'a> {
    disk: States<'a>,
    spec: &'a StackSpec,
}

enum States<'a> {
    /// Of a device, of which one can only be drawn.
    Device(&'a FlashDevice, &'a Rc<Profile>, &'a FlashOptions),
    /// Of a disk, which has names for them. They are computed when they are asked for.
    Disk(&'a AdversaryDisk, OnceCell<CrashStates>, &'a AdversaryOptions),
}

impl<'a> MayLeave<'a> {
    /// What a power cut now may leave of a disk that `spec` describes; none for a file and for what is
    /// elsewhere, whose power loss cannot be simulated.
    #[must_use]
    pub fn of_disk(disk: &'a Disk, spec: &'a StackSpec) -> Option<MayLeave<'a>> {
        match disk {
            Disk::File(_) | Disk::Remote(_) => None,
            Disk::Emulated(device) => MayLeave::of_device(device, spec),
            Disk::Adversary(disk) => MayLeave::of_adversary(disk, spec),
        }
    }

    fn of_device(device: &'a FlashDevice, spec: &'a StackSpec) -> Option<MayLeave<'a>> {
        let DiskSpec::Emulated { profile, options } = &spec.disk else { return None };
        Some(MayLeave { disk: States::Device(device, profile, options), spec })
    }

    fn of_adversary(disk: &'a AdversaryDisk, spec: &'a StackSpec) -> Option<MayLeave<'a>> {
        let DiskSpec::Adversary(options) = &spec.disk else { return None };
        Some(MayLeave { disk: States::Disk(disk, OnceCell::new(), options), spec })
    }

    /// One of the states.
    #[must_use]
    pub fn draw(&self, random: &mut Random) -> Left {
        self.leave(match &self.disk {
            States::Device(device, profile, options) => {
                Content::Device(device.after_cut(random), Rc::clone(profile), (*options).clone())
            }
            States::Disk(disk, states, options) => {
                let states = states.get_or_init(|| disk.crash_states());
                Content::Disk(states.sample(random), (*options).clone())
            }
        })
    }

    /// The states, where they have names.
    #[must_use]
    pub fn states(&self) -> Option<&CrashStates> {
        match &self.disk {
            States::Device(..) => None,
            States::Disk(disk, states, _) => Some(states.get_or_init(|| disk.crash_states())),
        }
    }

    /// The state of this name, where they have names.
    #[must_use]
    pub fn named(&self, kept: &Kept) -> Option<Left> {
        match &self.disk {
            States::Device(..) => None,
            States::Disk(disk, states, options) => {
                let states = states.get_or_init(|| disk.crash_states());
                Some(self.leave(Content::Disk(states.image(kept), (*options).clone())))
            }
        }
    }

    fn leave(&self, disk: Content) -> Left {
        Left { disk, volume: self.spec.volume.clone(), claims: self.spec.claims }
    }
}

/// What a power cut left.
#[derive(Clone)]
pub struct Left {
    disk: Content,
    volume: Option<VolumeSpec>,
    claims: Option<Ordering>,
}

/// What is on the disk.
#[derive(Clone)]
enum Content {
    Device(Medium, Rc<Profile>, FlashOptions),
    Disk(Image, AdversaryOptions),
}

impl Stack {
    /// Calls `visit` at every event of the disk in memory that `spec` describes, with what a power cut may leave then.
    pub fn observe_cuts(&self, spec: &Rc<StackSpec>, visit: impl Fn(&MayLeave<'_>) + 'static) {
        let spec = Rc::clone(spec);
        match self.disk() {
            Disk::File(_) | Disk::Remote(_) => {}
            Disk::Emulated(device) => {
                let weak = Rc::downgrade(device);
                device.observe(move || {
                    let Some(device) = weak.upgrade() else { return };
                    MayLeave::of_device(&device, &spec).iter().for_each(&visit);
                });
            }
            Disk::Adversary(disk) => disk.observe(Box::new(move |disk| {
                MayLeave::of_adversary(disk, &spec).iter().for_each(&visit);
            })),
        }
    }
}

impl Left {
    /// What the stack is made of that comes back from it.
    #[must_use]
    pub fn spec(&self) -> StackSpec {
        let disk = match &self.disk {
            Content::Device(_, profile, options) => {
                DiskSpec::Emulated { profile: Rc::clone(profile), options: options.clone() }
            }
            Content::Disk(_, options) => DiskSpec::Adversary(options.clone()),
        };
        StackSpec { disk, volume: self.volume.clone(), claims: self.claims }
    }

    /// Whether it is of an emulated device, which has no names for its states.
    #[must_use]
    pub fn is_of_device(&self) -> bool {
        matches!(self.disk, Content::Device(..))
    }

    /// A hash that tells this state from others.
    #[must_use]
    pub fn hash(&self) -> u64 {
        match &self.disk {
            Content::Device(medium, ..) => medium.hash(),
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
            Content::Device(medium, profile, options) => {
                // A recorder sees the top of the stack alone.
                let recorder = recorder.filter(|_| self.volume.is_none()).cloned();
                let options = FlashOptions { recorder, ..options.clone() };
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
        Ok(stack.claiming(self.claims))
    }
}
