//! Filesystem images, used without a mount: [`list`], [`cat`], [`get`], [`put`] and [`find_damaged`].
//!
//! An image can come from anyone, and `get` often runs as the superuser. So what an image says leads nowhere but
//! into the directory that the caller names:
//!
//! - Names, targets of links and numbers of inodes are checked where they are read (`weir-ext4`). A name with a
//!   slash, an empty one, and "." or ".." where they do not belong are damage.
//! - **I1** Every operation on the host goes through the descriptor of a directory and one name, never through a joined
//!   path, and no symbolic link is followed on the way. Only the path that the caller names may have links in it.
//!   Where a directory is wanted and something else is there, the copy ends with an error, also if it was swapped since
//!   it was made. Where a file is wanted, what is there is replaced, as a name; a link is not followed for that either.
//! - **I2** A new file has mode 0600, and a new directory 0700, until everything else is right: first the content, then
//!   the owner, the extended attributes, the mode with its set-user-ID bits, capabilities and times. Directories get
//!   all that at the end. Where the owner cannot be set, the set-user-ID and set-group-ID bits are left out. Until then
//!   a directory is only filled while it is the one that was made, the caller's, and with the mode it was made with.
//!   So a copy is refused where new directories are another user's, no matter which user makes them: on FAT that is mounted for
//!   another user, or on NFS whose server does not trust the superuser. Copy as that user. Where the mode is fixed, as
//!   on FAT, others see early what that mode lets them see.
//! - **I3** A copy ends. A directory is entered once, at most [`DEPTH_MAX`] deep, and an image gives no more names
//!   and no more bytes than it has room for, so an image of 1 GiB never fills a disk. Zeros count that it has blocks
//!   for, and holes are not read, so it takes no more time than that either.
//!
//! Damage in an image is reported and skipped; an error of the host ends the copy. Devices and set-user-ID
//! programs are copied as they are if the caller may make them, as other programs for archives do.

mod cat;
mod damage;
mod error;
mod get;
mod holes;
mod host;
mod list;
mod mutants;
mod put;
mod xattrs;

pub use cat::cat;
pub use damage::{Damaged, find_damaged};
pub use error::ImageError;
pub use get::{Copied, GetOptions, get};
pub use host::DEPTH_MAX;
pub use list::list;
#[cfg(feature = "mutants")]
pub use mutants::ImageMutant;
pub use put::put;
