//! What can go wrong when a stack is put together.

use weir_flash::ProfileError;
use weir_storage::FileDiskError;
use weir_volume::VolumeError;

/// Why a stack could not be put together.
#[derive(Debug, thiserror::Error)]
pub enum StackError {
    /// The text is no description.
    #[error(
        "{text:?} describes no stack: write [volume+]DISK, where DISK is a path with a slash, the name of a device, or adversary, \
         legacy or prefix for the worst disk of that order"
    )]
    Text {
        /// The text.
        text: String,
    },
    /// No device has this name, or its profile is wrong.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The file or block device.
    #[error(transparent)]
    File(#[from] FileDiskError),
    /// The volume.
    #[error("the volume: {0}")]
    Volume(#[from] VolumeError),
}
