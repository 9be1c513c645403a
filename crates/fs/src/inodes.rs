//! Inodes: on the disk, in memory as *nodes*, and the cache of those.

mod metadata;
mod node;
mod nodes;
mod update;

pub(crate) use metadata::Metadata;
pub(crate) use node::{LINKS_MAX, Node, lock};
pub(crate) use nodes::Nodes;
pub(crate) use update::{ToCommit, Update};
