//! What `fsync` promises: on a mount, and to the guests of a volume that is served.

use clap::ValueEnum;
use weir_export::FlushMode;
use weir_fuse::SyncMode;

use crate::error::CliError;

/// What `fsync` and its like promise, or FLUSH and FUA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SyncPromise {
    /// When it returns, the data is durable
    Durable,
    /// It only orders: when it returns, nothing is durable yet, and the newest writes may be lost in a crash
    Order,
    /// When it returns, the data is durable, and in the object store that the volume is shipped to; it fails if that does not answer
    /// for --patience
    Remote,
}

impl SyncPromise {
    /// Its name on the command line and in a status.
    pub(crate) fn name(self) -> &'static str {
        match self {
            SyncPromise::Durable => "durable",
            SyncPromise::Order => "order",
            SyncPromise::Remote => "remote",
        }
    }

    /// Whether it waits for an object store.
    pub(crate) fn waits_for_store(self) -> bool {
        self == SyncPromise::Remote
    }

    /// Refuses to wait for a store where none is named.
    pub(crate) fn require_store(self, is_named: bool) -> Result<(), CliError> {
        match self.waits_for_store() && !is_named {
            true => Err(CliError::Usage(
                "--sync remote waits for an object store: name it by --replicate (or mount a URL with --cache)",
            )),
            false => Ok(()),
        }
    }
}

impl From<SyncPromise> for SyncMode {
    fn from(promise: SyncPromise) -> SyncMode {
        match promise {
            SyncPromise::Durable | SyncPromise::Remote => SyncMode::Durable,
            SyncPromise::Order => SyncMode::Order,
        }
    }
}

impl From<SyncPromise> for FlushMode {
    fn from(promise: SyncPromise) -> FlushMode {
        match promise {
            SyncPromise::Durable | SyncPromise::Remote => FlushMode::Durable,
            SyncPromise::Order => FlushMode::Order,
        }
    }
}
