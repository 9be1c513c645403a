//! Deleting inodes that have no names: at once, when no caller has them open or holds them any more, or after a crash.
//!
//! # When an inode is deleted
//!
//! 1. The call that takes the last name puts the inode on the list of orphans, in the transaction that takes the name.
//! 2. If no caller has the inode open and no door holds it, that call deletes it, too. Otherwise it stays as it is, and
//!    all calls on it work.
//! 3. The last [`release`](weir_vfs::NameCalls::release) deletes it, if it is not held.
//! 4. The hold that is let go last has no caller that waits: a task deletes the inode, and those that follow, one after
//!    the other. Each is a turn among other tasks.
//! 5. What no task comes to is deleted by the unmount, or by the next mount.
//!
//! An inode that has no name, is not open and is not held is lost for good: no call finds it.
//!
//! # Space
//!
//! What is let go and not deleted yet takes space that a program takes for free. So the calls that tell how much is
//! free, or find none, ask the door first for what its client has let go ([`Deletion::on_reclaim`]), and wait for the
//! task, for [`RECLAIM_MAX`] at most. A call that takes names deletes some of what waits, when that is much: so the
//! task never falls far behind.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use event_listener::Event;
use futures_util::{FutureExt, select_biased};
use tracing::warn;
use weir_ext4::inode_flags;
use weir_format::{FormatError, Place, Structure};
use weir_runtime::Handle as Clock;
use weir_vfs::{FsError, Hold, InodeNumber, LetGo, Timer};

use crate::attributes::AttributeStore;
use crate::changes::Changes;
use crate::files::Files;
use crate::orphans::Orphans;
use crate::{inodes::Node, inodes::Nodes};

/// Blocks that the end of an inode changes at most: no more than a change of names.
const CREDITS: u32 = 64;
/// Deletions in a row before other tasks have their turn.
const IN_A_ROW: u32 = 8;
/// From so many inodes on that wait for their deletion, each call that takes a name deletes two of them.
const WAITING_MANY: usize = 256;
/// How long a call waits for deletions before it takes the space for what it is.
const RECLAIM_MAX: Duration = Duration::from_secs(1);

/// Which inodes without names are deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Orphaned {
    /// All of them: no caller comes back to those that are open or held.
    All,
    /// Those that are neither open nor held.
    Unused,
}

/// Takes in what the client of a door has let go.
type TakeIn = dyn Fn() -> Pin<Box<dyn Future<Output = ()>>>;

/// Deletes inodes, with all that they own.
pub(crate) struct Deletion {
    clock: Clock,
    changes: Rc<Changes>,
    nodes: Rc<Nodes>,
    orphans: Rc<Orphans>,
    files: Rc<Files>,
    attributes: Rc<AttributeStore>,
    timer: Timer,
    /// Inodes that were let go last, oldest first. One that was deleted meanwhile is skipped.
    waiting: RefCell<VecDeque<u32>>,
    /// Inodes that have ever waited, and those that do not wait any more.
    begun: Cell<u64>,
    ended: Cell<u64>,
    /// There is a task that deletes them.
    is_running: Cell<bool>,
    one_ended: Event,
    take_in: OnceCell<Box<TakeIn>>,
}

impl LetGo for Deletion {
    /// After the last hold, an inode without a name is deleted.
    fn let_go(self: Rc<Self>, inode: InodeNumber, count: u64) {
        let is_last = self.nodes.holds.remove(inode, count);
        let node = if is_last { self.nodes.find_nameless(inode) } else { None };
        if node.is_none_or(|node| self.nodes.is_in_use(&node)) {
            return;
        }
        self.waiting.borrow_mut().push_back(inode);
        self.begun.set(self.begun.get() + 1);
        if !self.is_running.replace(true) {
            self.start();
        }
    }
}

impl Deletion {
    pub(crate) fn new(
        (clock, timer): (&Clock, Timer),
        changes: Rc<Changes>,
        (nodes, orphans): (Rc<Nodes>, Rc<Orphans>),
        (files, attributes): (Rc<Files>, Rc<AttributeStore>),
    ) -> Rc<Deletion> {
        Rc::new(Deletion {
            clock: clock.clone(),
            changes,
            nodes,
            orphans,
            files,
            attributes,
            timer,
            waiting: RefCell::default(),
            begun: Cell::new(0),
            ended: Cell::new(0),
            is_running: Cell::new(false),
            one_ended: Event::new(),
            take_in: OnceCell::new(),
        })
    }

    /// Asks a door which inodes its client has released, before free space is reported or an allocation fails. Of several doors, the
    /// first.
    pub(crate) fn on_reclaim(&self, take_in: Box<TakeIn>) {
        let _ = self.take_in.set(take_in);
    }

    /// Holds an inode that the caller knows to have a name, or to be in use.
    pub(crate) fn hold(self: &Rc<Deletion>, inode: InodeNumber) -> Hold {
        self.nodes.holds.add(inode);
        Hold::new(inode, Rc::<Deletion>::clone(self))
    }

    /// Holds an inode.
    ///
    /// # Errors
    /// [`FsError::NotFound`] for one that is deleted, or about to be.
    pub(crate) async fn hold_existing(self: &Rc<Deletion>, inode: InodeNumber) -> Result<Hold, FsError> {
        let node = self.nodes.get(inode).await?;
        if node.links() == 0 && !self.nodes.is_in_use(&node) {
            return Err(FsError::NotFound);
        }
        Ok(self.hold(inode))
    }

    /// Starts a task that deletes what waits.
    fn start(self: &Rc<Deletion>) {
        let (weak, clock) = (Rc::downgrade(self), self.clock.clone());
        drop(self.clock.spawn(async move {
            let mut in_a_row = 0;
            while let Some(deletion) = weak.upgrade() {
                if !deletion.delete_next().await {
                    deletion.is_running.set(false);
                    return;
                }
                drop(deletion);
                in_a_row += 1;
                if in_a_row % IN_A_ROW == 0 {
                    clock.yield_now().await;
                }
            }
        }));
    }

    /// Deletes one of the inodes that wait: whether there was one.
    async fn delete_next(&self) -> bool {
        let Some(number) = self.waiting.borrow_mut().pop_front() else { return false };
        if let Some(node) = self.nodes.find_nameless(number) {
            match self.changes.deleting(self.delete_unused(&node)).await {
                // The journal has stopped, or it is being unmounted.
                Ok(()) | Err(FsError::ReadOnly(_)) => {}
                Err(error) => {
                    warn!(
                        name: "unnamed_inode_kept",
                        inode = number, %error, "an inode without a name takes space until the next mount"
                    );
                }
            }
        }
        self.ended.set(self.ended.get() + 1);
        self.one_ended.notify(usize::MAX);
        true
    }

    /// Keeps what waits from growing. For calls that take names, with no lock and no handle.
    pub(crate) async fn keep_up(&self) {
        for _ in 0..2 {
            if self.waiting.borrow().len() < WAITING_MANY || !self.delete_next().await {
                return;
            }
        }
    }

    /// Deletes what was let go until now, for [`RECLAIM_MAX`] at most. The caller may hold locks of nodes, but no handle.
    pub(crate) async fn reclaim(&self) {
        let settled = async {
            if let Some(take_in) = self.take_in.get() {
                take_in().await;
            }
            let last = self.begun.get();
            while self.ended.get() < last {
                self.one_ended.listen().await;
            }
        };
        // What waits may need a lock of the caller's, if a client lets go what it still uses.
        select_biased! {
            () = Box::pin(settled).fuse() => {}
            () = self.clock.sleep(RECLAIM_MAX).fuse() => {}
        }
    }

    /// Finishes what a crash has interrupted: inodes without names are deleted, truncations are done to their
    /// end. Each leaves the chain with the transaction that finishes it, so this can be interrupted as well.
    pub(crate) async fn finish_orphans(&self, of: Orphaned) -> Result<(), FsError> {
        if self.changes.mounted_with().is_err() {
            return Ok(());
        }
        self.changes.undivided(self.finish_each_orphan(of)).await
    }

    async fn finish_each_orphan(&self, of: Orphaned) -> Result<(), FsError> {
        self.orphans.empty_orphan_file(&self.changes).await?;
        for number in self.orphans.list() {
            let node = self.nodes.get_orphan(number).await?;
            if of == Orphaned::Unused && node.links() == 0 && self.nodes.is_in_use(&node) {
                continue;
            }
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

    /// Deletes an inode that has no name, if it is not in use. The caller holds no lock.
    pub(crate) async fn delete_unused(&self, node: &Rc<Node>) -> Result<(), FsError> {
        if node.links() > 0 || self.nodes.is_in_use(node) {
            return Ok(());
        }
        self.delete(node).await
    }

    /// Deletes an inode that is in the list of orphans: all that it owns, in as many transactions as that takes, and
    /// then itself.
    async fn delete(&self, node: &Rc<Node>) -> Result<(), FsError> {
        let _locked = node.lock_exclusive().await;
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
