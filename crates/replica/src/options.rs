//! How a replica is written and read.

use std::time::Duration;

use weir_storage::Rules;

use crate::envelope::EncryptionKey;
use crate::mutants::ReplicaMutant;

/// The rules that a replica keeps.
pub type ReplicaRules = Rules<ReplicaMutant>;

/// Options of a replica.
#[derive(Clone, Debug)]
pub struct ReplicaOptions {
    /// Encrypt and decrypt with this key, by AES-256-GCM. Default: none.
    pub key: Option<EncryptionKey>,
    /// Compress what gets smaller by it, by LZ4. Default: true.
    pub compress: bool,
    /// Use a store that does not create an object only if it is absent. A second writer is not noticed then. Default: false.
    pub unfenced: bool,
    /// How long a request is repeated that the store does not answer; `None` for ever. Default: one minute.
    pub patience: Option<Duration>,
    /// An uploader that [runs](crate::Uploader::run) stops when patience is over, and does not wait without end. Default: false.
    pub stops: bool,
    /// An object is sent when it has so many bytes of data; of a catch-up, with its entries. Default: 4 MiB.
    pub object_bytes: usize,
    /// A chunk is in the store so long after it was sealed, or writers wait. An object is sent after six tenths of it.
    /// Default: 1 s.
    pub lag: Duration,
    /// Bytes of objects after which a checkpoint is written. Default: 256 MiB.
    pub checkpoint_bytes: u64,
    /// Blocks, or objects, that a part of a checkpoint lists at most. Default: 131,072.
    pub part_entries: usize,
    /// States that are younger than this can be restored. Lists of the store have what is older. Default: one day.
    pub keep: Duration,
    /// The rules that this replica keeps: all of them.
    pub rules: ReplicaRules,
}

impl Default for ReplicaOptions {
    fn default() -> ReplicaOptions {
        ReplicaOptions {
            key: None,
            compress: true,
            unfenced: false,
            patience: Some(Duration::from_secs(60)),
            stops: false,
            object_bytes: 4 << 20,
            lag: Duration::from_secs(1),
            checkpoint_bytes: 256 << 20,
            part_entries: 1 << 17,
            keep: Duration::from_secs(24 * 60 * 60),
            rules: Rules::all(),
        }
    }
}
