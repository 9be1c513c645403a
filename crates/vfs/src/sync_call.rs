//! The four synchronisation calls, by name.

use std::fmt;
use std::str::FromStr;

use weir_journal::Promise;

/// A synchronisation call on a file. A door makes a request of its kind (a system call, an ioctl, an attribute, a call of
/// SQLite) into one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SyncCall {
    /// The file is durable.
    Fsync,
    /// The file's data is durable, and what of its inode is needed to find it (J3).
    Fdatasync,
    /// The file is ordered before everything that is written later, to any file.
    Fbarrier,
    /// The file's data is, and what of its inode is needed to find it (J3).
    Fdatabarrier,
}

/// No call has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no synchronisation call is called {0:?}: there are {list}", list = SyncCall::ALL.map(SyncCall::name).join(", "))]
pub struct UnknownCall(pub String);

impl SyncCall {
    /// All of them.
    pub const ALL: [SyncCall; 4] =
        [SyncCall::Fsync, SyncCall::Fdatasync, SyncCall::Fbarrier, SyncCall::Fdatabarrier];

    /// The call that promises this, of a file or of its data only.
    #[must_use]
    pub const fn from_promise(promise: Promise, data_only: bool) -> SyncCall {
        match (promise, data_only) {
            (Promise::Durable, false) => SyncCall::Fsync,
            (Promise::Durable, true) => SyncCall::Fdatasync,
            (Promise::Ordered, false) => SyncCall::Fbarrier,
            (Promise::Ordered, true) => SyncCall::Fdatabarrier,
        }
    }

    /// The call of the same reach that promises this.
    #[must_use]
    pub const fn with_promise(self, promise: Promise) -> SyncCall {
        SyncCall::from_promise(promise, self.is_data_only())
    }

    /// What it promises.
    #[must_use]
    pub const fn promise(self) -> Promise {
        match self {
            SyncCall::Fsync | SyncCall::Fdatasync => Promise::Durable,
            SyncCall::Fbarrier | SyncCall::Fdatabarrier => Promise::Ordered,
        }
    }

    /// Whether it covers no more of the inode than is needed to find the data.
    #[must_use]
    pub const fn is_data_only(self) -> bool {
        matches!(self, SyncCall::Fdatasync | SyncCall::Fdatabarrier)
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            SyncCall::Fsync => "fsync",
            SyncCall::Fdatasync => "fdatasync",
            SyncCall::Fbarrier => "fbarrier",
            SyncCall::Fdatabarrier => "fdatabarrier",
        }
    }
}

impl fmt::Display for SyncCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for SyncCall {
    type Err = UnknownCall;

    fn from_str(name: &str) -> Result<SyncCall, UnknownCall> {
        let found = SyncCall::ALL.into_iter().find(|call| call.name() == name);
        found.ok_or_else(|| UnknownCall(name.to_owned()))
    }
}
