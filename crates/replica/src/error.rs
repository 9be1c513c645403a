//! What can go wrong with a replica.

use weir_storage::Rejected;
use weir_volume::VolumeError;

use crate::kept_state::{KeptRange, WantedState};
use crate::store::StoreError;

/// What is wrong with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Defect {
    /// It is no object of a replica.
    #[error("it is no object of Weir's")]
    Foreign,
    /// It is cut, or bytes of it have changed.
    #[error("it is cut or changed: its checksum does not match")]
    Checksum,
    /// Its content contradicts itself.
    #[error("its content contradicts itself")]
    Content,
    /// It does not follow the object before it.
    #[error("it does not follow the object before it")]
    Chain,
    /// It is a checkpoint that fits no place of the log.
    #[error("it is of a place that the log does not have, as one of another history")]
    Place,
    /// It names an object that is not there.
    #[error("it names an object that is missing or is another one")]
    Names,
}

/// Why a replica cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum ReplicaError {
    /// The store.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The log goes on behind an object that is missing.
    #[error(
        "the object {key} is missing, and the log goes on behind it: {}to ship again, begin at another URL",
        what_can_be_had(*.last)
    )]
    Hole {
        /// The key of the object.
        key: String,
        /// The newest position before it; 0 if there is none.
        last: u64,
    },
    /// The system starts no thread.
    #[error("no thread can be started: raise the limits of processes and memory")]
    NoThread,
    /// There is nothing at this place.
    #[error(
        "there is no replica at this URL: nothing was shipped there yet, or the prefix or directory is another one"
    )]
    NoReplica,
    /// An object is damaged.
    #[error("the object {key} is damaged: {defect}")]
    Damaged {
        /// Its key.
        key: String,
        /// What is wrong.
        defect: Defect,
    },
    /// It would have more bytes than a reader takes.
    #[error(
        "the object {key} would have {bytes} bytes, more than can be read again: it was not made; begin at another URL"
    )]
    TooLarge {
        /// Its key.
        key: String,
        /// Bytes of its body.
        bytes: usize,
    },
    /// A newer program has written it.
    #[error(
        "the object {key} has format version {version}, which this program does not know: use a newer weir"
    )]
    Version {
        /// Its key.
        key: String,
        /// Its version.
        version: u32,
    },
    /// It is of another volume.
    #[error(
        "this is the replica of volume {found:016x}, and the volume here is {expected:016x}: use a URL of its own for each volume"
    )]
    OtherVolume {
        /// The volume of the replica.
        found: u64,
        /// The volume here.
        expected: u64,
    },
    /// The volume was grown or shrunk since the replica was begun.
    #[error(
        "the replica was begun when the volume had {found} blocks, and it has {expected} now: use another URL, where a replica of \
         the volume as it is now begins"
    )]
    Resized {
        /// Blocks in the replica.
        found: u64,
        /// Blocks of the volume.
        expected: u64,
    },
    /// It is encrypted, and no key was given.
    #[error("the replica is encrypted: give the key by --key-file or WEIR_REPLICA_KEY")]
    KeyNeeded,
    /// The key is not the one.
    #[error("the object {0} cannot be decrypted: the key is another one, or the object was changed")]
    Key(String),
    /// A key was given, and the replica is not encrypted.
    #[error(
        "the replica is not encrypted, and a key was given: leave the key away, or begin a replica at another URL"
    )]
    NotEncrypted,
    /// The store took an object that was there already.
    #[error(
        "the store replaces objects although it was asked not to (If-None-Match is ignored), so a second writer would go \
         unnoticed: use another store, or accept that by --without-fence"
    )]
    NotFenced,
    /// Another writer has taken over.
    #[error(
        "another writer has taken over this replica (writer number {0}): this one has stopped; nothing is lost locally"
    )]
    TakenOver(u64),
    /// The store has more than the volume.
    #[error(
        "the replica, at position {remote}, is ahead of the volume here, at {local}: this volume is an older copy, was rolled back or \
         repaired, or another machine took the replica over; restore the replica, or use another URL"
    )]
    Ahead {
        /// The newest request in the store.
        remote: u64,
        /// The newest durable request here.
        local: u64,
    },
    /// The volume here was made on a state of another replica.
    #[error(
        "the volume here was not made on this replica, or the replica has lost objects: use the URL that it was made with"
    )]
    OtherBase,
    /// Nothing is that old, or that new.
    #[error("{asked} cannot be restored, but states from {} to {}", kept.first, kept.last)]
    OutOfRange {
        /// What was asked for.
        asked: WantedState,
        /// What can be restored.
        kept: KeptRange,
    },
    /// There is no state yet.
    #[error("nothing can be restored yet: the first upload of the volume has not ended")]
    NoState,
    /// The request lies in a catch-up group.
    #[error(
        "position {asked} has no state of its own: it was shipped in one step with {first} to {last}; take {last}"
    )]
    InCatchUp {
        /// What was asked for.
        asked: u64,
        /// The first request of the step.
        first: u64,
        /// The last one.
        last: u64,
    },
    /// A collection was faster.
    #[error("what was being read is not kept any more: begin again, or keep more by --keep")]
    Outrun,
    /// The disk or the volume here.
    #[error("{0}")]
    Volume(#[from] VolumeError),
    /// The disk or the volume here refused.
    #[error("{0}")]
    Rejected(#[from] Rejected),
}

impl ReplicaError {
    /// Whether an object is missing, as one is that was listed and has been collected meanwhile.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(
            self,
            ReplicaError::Store(StoreError::Missing(_)) | ReplicaError::Hole { .. } | ReplicaError::Outrun
        )
    }

    /// That of a log which was read up to this position, and is to go on there.
    pub(crate) fn behind(self, last: u64) -> ReplicaError {
        match self {
            ReplicaError::Store(StoreError::Missing(key)) => ReplicaError::Hole { key, last },
            error => error,
        }
    }
}

fn what_can_be_had(last: u64) -> String {
    match last {
        0 => String::new(),
        last => format!("states up to position {last} can be had by `--at {last}`; "),
    }
}
