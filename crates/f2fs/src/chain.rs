//! The *chain*: nodes that synchronisation calls have written behind a checkpoint, for roll-forward to find. Each names the place of the
//! next.

use std::collections::BTreeSet;

use weir_format::ImageReader;

use crate::block::{BlockAddress, NodeId};
use crate::image::read_block;
use crate::node::NodeFooter;

/// A node of a chain.
#[derive(Clone, Copy, Debug)]
pub struct ChainNode {
    /// Where it is.
    pub address: BlockAddress,
    /// Its footer.
    pub footer: NodeFooter,
}

impl ChainNode {
    /// Whether it is an inode.
    pub fn is_inode(&self) -> bool {
        self.footer.node() == self.footer.inode()
    }
}

/// Reads the chain from block `first` on, where the checkpoint has left the log of warm nodes. It ends at the first block that is in use,
/// as `is_free` tells, or whose version is not that of nodes behind the checkpoint ([`CheckpointPack::is_followed_by`]).
///
/// # Errors
/// What the reader fails by.
///
/// [`CheckpointPack::is_followed_by`]: crate::CheckpointPack::is_followed_by
pub async fn read_chain<R: ImageReader>(
    image: &R,
    first: BlockAddress,
    is_free: impl Fn(BlockAddress) -> bool,
    is_behind: impl Fn(u64) -> bool,
) -> Result<Vec<ChainNode>, R::Error> {
    let mut next = first;
    let mut seen = BTreeSet::new();
    let mut chain = Vec::new();
    while is_free(next) && seen.insert(next) {
        let block = read_block(image, next).await?;
        let Some(footer) = NodeFooter::of_block(&block) else { break };
        if !is_behind(footer.version()) || footer.inode() < NodeId::ROOT {
            break;
        }
        chain.push(ChainNode { address: next, footer });
        next = footer.next();
    }
    Ok(chain)
}
