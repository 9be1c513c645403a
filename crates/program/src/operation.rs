//! *Operation*: one call of a program that changed something, or made something durable, as it was recorded.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use weir_format::FileType;
use weir_vfs::InodeNumber;

use crate::tree::{Content, FileContent, Name, Node, Tree};

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// The directory.
    pub directory: InodeNumber,
    /// The name.
    pub name: Name,
}

/// What a new inode is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewInode {
    /// Its type and permissions, as `stat` has them.
    pub mode: u16,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// The target of a symbolic link.
    pub target: Vec<u8>,
    /// The numbers of a device.
    pub device: (u32, u32),
}

impl NewInode {
    /// The inode; none for a type that there is not.
    #[must_use]
    pub fn to_node(&self) -> Option<Node> {
        let content = match FileType::of_mode(self.mode)? {
            FileType::Regular => Content::File(FileContent::default()),
            FileType::Directory => Content::Directory(std::collections::BTreeMap::new()),
            FileType::Symlink => Content::Symlink(self.target.clone()),
            special => Content::Special(special, self.device),
        };
        Some(Node::new(content, self.mode & 0o7777, (self.uid, self.gid)))
    }
}

/// A call that was recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Call {
    /// A file, directory, link or special file was made; without a name by `O_TMPFILE`.
    Make {
        /// Its inode.
        inode: InodeNumber,
        /// What it is.
        new: NewInode,
        /// Its name.
        at: Option<Place>,
    },
    /// A file got another name.
    Link {
        /// Its inode.
        inode: InodeNumber,
        /// The name.
        at: Place,
    },
    /// A name was taken, of a file or an empty directory.
    Remove {
        /// What it stood for.
        inode: InodeNumber,
        /// The name.
        at: Place,
    },
    /// A name was given to what another one stood for.
    Rename {
        /// What it stands for.
        inode: InodeNumber,
        /// The old name.
        from: Place,
        /// The new one.
        to: Place,
        /// What the new name stood for.
        replaced: Option<InodeNumber>,
        /// What stood there has the old name now.
        exchanged: bool,
        /// It is a directory.
        is_directory: bool,
    },
    /// Bytes were written.
    Write {
        /// The file.
        inode: InodeNumber,
        /// Where.
        offset: u64,
        /// Where the bytes are among those of the record.
        data: Range<u64>,
        /// The file's size then, if it grew.
        grown: Option<u64>,
    },
    /// The size was set.
    SetSize {
        /// The file.
        inode: InodeNumber,
        /// The new size.
        size: u64,
        /// The size before.
        before: u64,
    },
    /// A range was made zeros: a hole was punched, or zeros were allocated.
    Zero {
        /// The file.
        inode: InodeNumber,
        /// Where.
        offset: u64,
        /// How many bytes.
        length: u64,
    },
    /// Permissions, owner or group were set.
    SetAttributes {
        /// The inode.
        inode: InodeNumber,
        /// The twelve bits of its permissions then.
        permissions: u16,
        /// Its owner then.
        uid: u32,
        /// Its group then.
        gid: u32,
    },
    /// An extended attribute was set, or removed.
    SetExtended {
        /// The inode.
        inode: InodeNumber,
        /// The attribute.
        name: Name,
        /// Its value, if it was set.
        value: Option<Vec<u8>>,
    },
    /// `fsync` or `fdatasync` returned.
    Sync {
        /// The file or directory.
        inode: InodeNumber,
        /// It was `fdatasync`.
        data_only: bool,
    },
    /// `fsync` or `fdatasync` failed: what was written to the file, and was not durable, is lost for the disk. A later call
    /// makes none of it durable, unless the same block is written again.
    SyncFailed {
        /// The file or directory.
        inode: InodeNumber,
    },
    /// All was made durable.
    SyncAll,
    /// A line was acknowledged: its number among the lines of the record.
    Acknowledge(usize),
}

impl Call {
    /// Does it to a tree; `data` has the bytes of a write.
    pub fn apply(&self, tree: &mut Tree, data: &[u8]) {
        match self {
            Call::Make { inode, new, at } => {
                if let Some(node) = new.to_node() {
                    tree.insert(*inode, node);
                }
                if let Some(at) = at {
                    tree.set_name(at.directory, &at.name, Some(*inode));
                }
            }
            Call::Link { inode, at } => tree.set_name(at.directory, &at.name, Some(*inode)),
            Call::Remove { at, .. } => tree.set_name(at.directory, &at.name, None),
            Call::Rename { inode, from, to, replaced, exchanged, .. } => {
                tree.set_name(from.directory, &from.name, replaced.filter(|_| *exchanged));
                tree.set_name(to.directory, &to.name, Some(*inode));
            }
            Call::Write { inode, offset, grown, .. } => {
                if let Some(file) = tree.node_mut(*inode).and_then(Node::file_mut) {
                    file.write(*offset, data);
                    grown.iter().for_each(|size| file.grow(*size));
                }
            }
            Call::SetSize { inode, size, .. } => {
                if let Some(file) = tree.node_mut(*inode).and_then(Node::file_mut) {
                    file.set_size(*size);
                }
            }
            Call::Zero { inode, offset, length } => {
                if let Some(file) = tree.node_mut(*inode).and_then(Node::file_mut) {
                    file.zero(*offset, *length);
                }
            }
            Call::SetAttributes { inode, permissions, uid, gid } => {
                if let Some(node) = tree.node_mut(*inode) {
                    (node.permissions, node.uid, node.gid) = (*permissions, *uid, *gid);
                }
            }
            Call::SetExtended { inode, name, value } => {
                if let Some(node) = tree.node_mut(*inode) {
                    match value {
                        Some(value) => drop(node.extended.insert(name.clone(), value.clone())),
                        None => drop(node.extended.remove(name)),
                    }
                }
            }
            Call::Sync { .. } | Call::SyncFailed { .. } | Call::SyncAll | Call::Acknowledge(_) => {}
        }
    }

    /// Whether it changes something.
    #[must_use]
    pub fn is_change(&self) -> bool {
        !self.is_sync() && !matches!(self, Call::SyncFailed { .. } | Call::Acknowledge(_))
    }

    /// Whether it makes something durable.
    #[must_use]
    pub fn is_sync(&self) -> bool {
        matches!(self, Call::Sync { .. } | Call::SyncAll)
    }
}

/// A call, and who made it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// The process, among those of the record.
    pub process: usize,
    /// The call.
    pub call: Call,
}
