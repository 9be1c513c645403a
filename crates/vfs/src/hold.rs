//! A hold of one inode, as a caller has it.

use std::rc::Rc;

use crate::attributes::InodeNumber;

/// Takes holds back.
pub trait LetGo {
    /// Takes `count` holds of an inode back.
    fn let_go(self: Rc<Self>, inode: InodeNumber, count: u64);
}

/// A hold of an inode, until dropped. [`keep`](Self::keep) leaves it to the caller that releases it by
/// [`let_go`](crate::NameCalls::let_go).
#[must_use = "the inode is let go at once otherwise"]
pub struct Hold {
    inode: InodeNumber,
    owner: Option<Rc<dyn LetGo>>,
}

impl Hold {
    /// A hold of `inode`, which `owner` has counted, and takes back when this is dropped.
    pub fn new(inode: InodeNumber, owner: Rc<dyn LetGo>) -> Hold {
        Hold { inode, owner: Some(owner) }
    }

    /// The inode.
    pub fn inode(&self) -> InodeNumber {
        self.inode
    }

    /// The inode, which stays held.
    pub fn keep(mut self) -> InodeNumber {
        self.owner = None;
        self.inode
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(owner) = self.owner.take() {
            owner.let_go(self.inode, 1);
        }
    }
}

impl std::fmt::Debug for Hold {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "Hold({})", self.inode)
    }
}
