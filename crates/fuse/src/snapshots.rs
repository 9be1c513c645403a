//! What is asked of the snapshots of a mount's volume, by its attribute [`SNAPSHOT_ATTRIBUTE`](crate::control::SNAPSHOT_ATTRIBUTE).

use std::pin::Pin;

use weir_vfs::FsError;

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
pub(crate) type Snapshots = dyn Fn(SnapshotCall) -> Pin<Box<dyn Future<Output = Result<(), FsError>>>>;

impl SnapshotCall {
    /// The value of the attribute: words with a blank between them.
    #[must_use]
    pub fn to_value(&self) -> String {
        match self {
            SnapshotCall::Create(name) => format!("create {name}"),
            SnapshotCall::Clone { snapshot, name } => format!("clone {snapshot} {name}"),
            SnapshotCall::Delete(name) => format!("delete {name}"),
        }
    }

    pub(crate) fn from_value(value: &[u8]) -> Option<SnapshotCall> {
        let words: Vec<&str> = str::from_utf8(value).ok()?.split(' ').collect();
        match words[..] {
            ["create", name] => Some(SnapshotCall::Create(name.to_owned())),
            ["clone", snapshot, name] => {
                Some(SnapshotCall::Clone { snapshot: snapshot.to_owned(), name: name.to_owned() })
            }
            ["delete", name] => Some(SnapshotCall::Delete(name.to_owned())),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::SnapshotCall;

    #[test]
    fn a_call_is_read_as_it_was_written() {
        let (snapshot, name) = ("a".to_owned(), "b".to_owned());
        for call in [
            SnapshotCall::Create("a".to_owned()),
            SnapshotCall::Delete("a".to_owned()),
            SnapshotCall::Clone { snapshot, name },
        ] {
            assert_eq!(SnapshotCall::from_value(call.to_value().as_bytes()), Some(call));
        }
        for value in [&b"create"[..], b"create a b", b"drop a", b"create \xff", b""] {
            assert_eq!(SnapshotCall::from_value(value), None);
        }
    }
}
