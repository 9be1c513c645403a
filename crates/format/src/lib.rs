//! What the formats of filesystems share, [ext4](../weir_ext4/index.html) and F2FS: errors, types and times of files, names and
//! values of attributes, access control lists, and the trait by which a check reads an image.
//!
//! What is here has one form in both formats, on the disk or towards callers. A crate that serves files from
//! either uses this one and knows no format.

pub mod acl;
mod attribute;
mod directory;
mod error;
mod file_time;
mod file_type;
mod image;
pub mod name_hash;

pub use attribute::{AttributeName, Attributes};
pub use directory::{Cookie, DirectoryEntry, Target};
pub use error::{FormatError, Place, Structure};
pub use file_time::{FileTime, Stamp};
pub use file_type::FileType;
pub use image::{BLOCK_BYTES, ImageReader};
