//! What is asked of a mount's volume, by its attribute [`VOLUME_ATTRIBUTE`](crate::control::VOLUME_ATTRIBUTE).

use std::pin::Pin;

use weir_vfs::FsError;

/// A number that is not given.
const NONE: &str = "-";

/// A change of a volume as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeCall {
    /// A change of its snapshots and clones.
    Snapshot(SnapshotCall),
    /// Make the volume larger, and the filesystem on it.
    Grow {
        /// Bytes of its file; none for what the file or device has.
        bytes: Option<u64>,
        /// Bytes of its capacity; none for as many as fit.
        logical: Option<u64>,
    },
}

/// A change of snapshots and clones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotCall {
    /// Keep what the volume holds now, under a name. Everything on the mount becomes durable before.
    Create(String),
    /// Make a clone of a snapshot.
    Clone {
        /// The snapshot.
        snapshot: String,
        /// The name of the clone.
        name: String,
    },
    /// Delete a snapshot or a clone.
    Delete(String),
}

/// Does what a call asks.
pub(crate) type VolumeCalls = dyn Fn(VolumeCall) -> Pin<Box<dyn Future<Output = Result<(), FsError>>>>;

impl VolumeCall {
    /// The value of the attribute: words with a blank between them.
    #[must_use]
    pub fn to_value(&self) -> String {
        let word = |number: &Option<u64>| number.map_or(NONE.to_owned(), |number| number.to_string());
        match self {
            VolumeCall::Snapshot(SnapshotCall::Create(name)) => format!("create {name}"),
            VolumeCall::Snapshot(SnapshotCall::Clone { snapshot, name }) => {
                format!("clone {snapshot} {name}")
            }
            VolumeCall::Snapshot(SnapshotCall::Delete(name)) => format!("delete {name}"),
            VolumeCall::Grow { bytes, logical } => format!("grow {} {}", word(bytes), word(logical)),
        }
    }

    /// Reads a value; none if it is not one.
    #[must_use]
    pub fn from_value(value: &[u8]) -> Option<VolumeCall> {
        let number = |word: &str| match word {
            NONE => Some(None),
            word => word.parse().ok().map(Some),
        };
        let words: Vec<&str> = str::from_utf8(value).ok()?.split(' ').collect();
        Some(VolumeCall::Snapshot(match words[..] {
            ["create", name] => SnapshotCall::Create(name.to_owned()),
            ["clone", snapshot, name] => {
                SnapshotCall::Clone { snapshot: snapshot.to_owned(), name: name.to_owned() }
            }
            ["delete", name] => SnapshotCall::Delete(name.to_owned()),
            ["grow", bytes, logical] => {
                return Some(VolumeCall::Grow { bytes: number(bytes)?, logical: number(logical)? });
            }
            _ => return None,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::{SnapshotCall, VolumeCall};

    #[test]
    fn a_call_is_read_as_it_was_written() {
        let (snapshot, name) = ("a".to_owned(), "b".to_owned());
        for call in [
            VolumeCall::Snapshot(SnapshotCall::Create("a".to_owned())),
            VolumeCall::Snapshot(SnapshotCall::Delete("a".to_owned())),
            VolumeCall::Snapshot(SnapshotCall::Clone { snapshot, name }),
            VolumeCall::Grow { bytes: Some(1 << 40), logical: None },
            VolumeCall::Grow { bytes: None, logical: Some(0) },
        ] {
            assert_eq!(VolumeCall::from_value(call.to_value().as_bytes()), Some(call));
        }
        for value in [
            &b"create"[..],
            b"create a b",
            b"drop a",
            b"create \xff",
            b"",
            b"grow 1",
            b"grow 1 -1",
            b"grow x -",
        ] {
            assert_eq!(VolumeCall::from_value(value), None);
        }
    }
}
