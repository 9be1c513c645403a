//! What filesystems of any format share, above the block layer: the calls by which doors use them, and what they have in
//! memory that does not depend on a format.
//!
//! Calls that change something have a provided method that refuses: a format that is only read implements the others.
//!
//! A door (FUSE, an image tool, SQLite) knows [`Filesystem`] alone: a handle on whatever implements [`FilesystemCalls`].

mod acls;
mod attributes;
mod caller;
mod calls;
mod error;
mod fallocate;
mod filesystem;
mod hold;
mod holds;
mod make;
mod name_cache;
mod names;
mod path;
mod refusal;
mod statfs;
mod storage_image;
mod sync_call;
mod timer;

pub use acls::{
    AclChange, Inherited, acl_from_interface, attributes_for_mode, check_attribute_of, find_acl,
    is_kept_attribute, parse_attribute,
};
pub use attributes::{AclKind, AttributeChanges, Attributes, Device, Expect, InodeNumber, is_own_attribute};
pub use caller::Caller;
pub use calls::{
    AttributeCalls, FileCalls, FilesystemCalls, HandoverCalls, HandoverRefusal, HeldInode, MountedCalls,
    NameCalls, SyncCalls,
};
pub use error::{FsError, ReadOnlyReason};
pub use fallocate::Fallocate;
pub use filesystem::Filesystem;
pub use hold::{Hold, LetGo};
pub use holds::{HOLD_BYTES, Holds};
pub use make::{NewFilesystem, write_filesystem};
pub use name_cache::{NAMES_BYTES_MAX, NameCache};
pub use names::{NewNode, Parent, RenameFlags, inherit_group};
pub use path::{NAME_BYTES_MAX, check_name_length, check_ordinary_name, is_dots};
pub use statfs::Statfs;
pub use storage_image::StorageImage;
pub use sync_call::{SyncCall, UnknownCall};
pub use timer::Timer;
pub use weir_journal::Promise;
