//! Deleting inodes that have no names: at once, when they are released, or after a crash.

use std::rc::Rc;

use weir_ext4::{FormatError, Place, Structure, inode_flags};

use crate::attributes::AttributeStore;
use crate::changes::Changes;
use crate::error::FsError;
use crate::files::Files;
use crate::inodes::{Node, Nodes};
use crate::orphans::Orphans;
use crate::timer::Timer;

/// Blocks that the end of an inode changes at most: no more than a change of names.
const CREDITS: u32 = 64;

/// Deletes inodes, with all that they own.
pub(crate) struct Deletion {
    changes: Rc<Changes>,
    nodes: Rc<Nodes>,
    orphans: Rc<Orphans>,
    files: Rc<Files>,
    attributes: Rc<AttributeStore>,
    timer: Timer,
}

impl Deletion {
    pub(crate) fn new(
        changes: Rc<Changes>,
        (nodes, orphans): (Rc<Nodes>, Rc<Orphans>),
        (files, attributes): (Rc<Files>, Rc<AttributeStore>),
        timer: Timer,
    ) -> Rc<Deletion> {
        Rc::new(Deletion { changes, nodes, orphans, files, attributes, timer })
    }

    /// Finishes what a crash has interrupted: inodes without names are deleted, truncations are done to their
    /// end. Each leaves the chain with the transaction that finishes it, so this can be interrupted as well.
    pub(crate) async fn finish_orphans(&self) -> Result<(), FsError> {
        if self.changes.mounted_with().is_err() {
            return Ok(());
        }
        self.changes.undivided(self.finish_all_orphans()).await
    }

    async fn finish_all_orphans(&self) -> Result<(), FsError> {
        self.orphans.empty_orphan_file(&self.changes).await?;
        while let Some(number) = self.orphans.first() {
            let node = self.nodes.get_orphan(number).await?;
            if node.links() == 0 {
                self.delete(&node).await?;
            } else {
                self.files.finish_truncation(&node).await?;
            }
            if self.orphans.contains(number) {
                let what = "it cannot be taken out of the list of orphans";
                return Err(FormatError::corrupt(Structure::Inode, Place::Inode(number), what).into());
            }
        }
        Ok(())
    }

    /// Deletes an inode that is in the list of orphans: all that it owns, in as many transactions as that takes, and
    /// then itself.
    pub(crate) async fn delete(&self, node: &Rc<Node>) -> Result<(), FsError> {
        let _locked = node.alone().await;
        if !self.nodes.is_current(node) || node.links() > 0 {
            // Another call was faster, or has given it its first name.
            return Ok(());
        }
        let mapped = node.inode.borrow().has_flag(inode_flags::EXTENTS);
        if mapped {
            self.files.free_content(node).await?;
        }
        let handle = self.changes.start(CREDITS).await?;
        self.changes
            .all_or_abort(async {
                self.attributes.drop_block(&handle, node).await?;
                self.orphans.remove(&handle, node).await?;
                {
                    let mut inode = node.inode.borrow_mut();
                    inode.set_attribute_block(0);
                    inode.set_sectors(0);
                    inode.deleted = u32::try_from(self.timer.now().seconds).unwrap_or(u32::MAX).into();
                }
                node.log(&handle).await?;
                node.metadata().space.free_inode(&handle, node.number, node.is_directory()).await
            })
            .await?;
        self.nodes.forget(node.number);
        Ok(())
    }
}
