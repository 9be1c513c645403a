//! What a stack is made of.

use std::path::PathBuf;
use std::rc::Rc;

use weir_flash::{FlashOptions, Profile};
use weir_storage::{AdversaryOptions, FileDiskOptions, Ordering};
use weir_volume::{Format, VolumeOptions};

/// A disk, and a volume on it or none.
#[derive(Clone)]
pub struct StackSpec {
    /// The disk.
    pub disk: DiskSpec,
    /// The volume.
    pub volume: Option<VolumeSpec>,
    /// An order that the stack claims to keep, and does not: the negative control of campaigns.
    pub claims: Option<Ordering>,
}

/// A disk.
#[derive(Clone)]
pub enum DiskSpec {
    /// A file or a block device.
    File {
        /// Where it is.
        path: PathBuf,
        /// How it is opened.
        options: FileDiskOptions,
    },
    /// An emulated device, in memory.
    Emulated {
        /// What it is like.
        profile: Rc<Profile>,
        /// What it keeps, and who is told of it.
        options: FlashOptions,
    },
    /// The worst disk that the contract allows, in memory.
    Adversary(AdversaryOptions),
}

/// A volume.
#[derive(Clone, Debug, Default)]
pub struct VolumeSpec {
    /// How a new one is made.
    pub format: Format,
    /// How it is opened.
    pub options: VolumeOptions,
}

impl StackSpec {
    /// This disk, and no volume.
    #[must_use]
    pub fn from_disk(disk: DiskSpec) -> StackSpec {
        StackSpec { disk, volume: None, claims: None }
    }

    /// A volume on this disk.
    #[must_use]
    pub fn with_volume(disk: DiskSpec, volume: VolumeSpec) -> StackSpec {
        StackSpec { disk, volume: Some(volume), claims: None }
    }
}
