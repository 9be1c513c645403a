//! Times of access, as Linux's `relatime` has them: what is read gets a new one if it has changed since the last, or
//! if that is a day old.
//!
//! They change in memory, so readers wait for nothing. They go to the log with the next change of the inode, or some
//! seconds later many at a time, and at `sync` and unmount. A crash may lose them: nothing is promised of them, and no
//! call waits for them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use weir_ext4::Inode;
use weir_format::{FileTime, Stamp};
use weir_runtime::Handle as Clock;
use weir_vfs::{FsError, InodeNumber, Timer};

use crate::changes::Changes;
use crate::options::{AccessTimes, MountOptions};
use crate::{inodes::Node, inodes::Nodes};

/// A time of access is renewed when it is so old, in seconds.
const OLD: i64 = 24 * 3600;
/// Inodes whose times wait for their way to the log: so many of them are kept in memory for that.
const WAITING_MAX: usize = 1 << 10;
/// Blocks that one of them changes.
const CREDITS: u32 = 1;

/// The inodes whose time of access is newer in memory than in the log.
pub(crate) struct Accesses {
    clock: Clock,
    timer: Timer,
    changes: Rc<Changes>,
    nodes: Rc<Nodes>,
    times: AccessTimes,
    /// Until they go to the log.
    delay: Duration,
    waiting: RefCell<BTreeSet<u32>>,
    /// There is a task that will bring them there.
    scheduled: Cell<bool>,
}

impl Accesses {
    /// None.
    pub(crate) fn new(
        (clock, timer): (Clock, Timer),
        (changes, nodes): (Rc<Changes>, Rc<Nodes>),
        MountOptions { access_times: times, commit_interval: delay, .. }: MountOptions,
    ) -> Rc<Accesses> {
        let (waiting, scheduled) = (RefCell::default(), Cell::new(false));
        Rc::new(Accesses { clock, timer, changes, nodes, times, delay, waiting, scheduled })
    }

    /// What an inode holds was read just now: whether its time of access is another one now.
    pub(crate) async fn accessed(self: &Rc<Accesses>, inode: InodeNumber) -> Result<bool, FsError> {
        if self.times == AccessTimes::Never || self.changes.read_only().is_some() {
            return Ok(false);
        }
        let node = self.nodes.get(inode).await?;
        let now = self.timer.now();
        if !is_due(&node.inode.borrow(), now) {
            return Ok(false);
        }
        node.inode.borrow_mut().set_time(Stamp::Accessed, now);
        self.note_access(&node);
        Ok(true)
    }

    fn note_access(self: &Rc<Accesses>, node: &Node) {
        if node.accessed.replace(true) {
            return;
        }
        let waiting = {
            let mut waiting = self.waiting.borrow_mut();
            waiting.insert(node.number);
            waiting.len()
        };
        if waiting == WAITING_MAX {
            self.log_after(Duration::ZERO);
        } else if !self.scheduled.replace(true) {
            self.log_after(self.delay);
        }
    }

    fn log_after(self: &Rc<Accesses>, delay: Duration) {
        let (weak, clock) = (Rc::downgrade(self), self.clock.clone());
        drop(self.clock.spawn(async move {
            clock.sleep(delay).await;
            let Some(accesses) = weak.upgrade() else { return };
            accesses.scheduled.set(false);
            // A failure has aborted the journal, and the next call reports that.
            let _ = accesses.log().await;
        }));
    }

    /// Puts the times of access that wait into the running transaction.
    pub(crate) async fn log(&self) -> Result<(), FsError> {
        self.changes.changing(self.log_all()).await
    }

    async fn log_all(&self) -> Result<(), FsError> {
        let waiting = self.waiting.take();
        for number in waiting {
            let Some(node) = self.nodes.find(number) else { continue };
            let _locked = node.lock_exclusive().await;
            // It may have been logged with something else, or deleted.
            if node.accessed.get() && self.nodes.is_current(&node) {
                let handle = self.changes.start(CREDITS).await?;
                // Nothing has changed by then but the time in memory, which is not worth an end of all changes.
                if node.log(&handle).await.is_err() {
                    node.accessed.set(false);
                }
            }
        }
        Ok(())
    }
}

/// Whether an inode that is read gets a new time of access.
fn is_due(inode: &Inode, now: FileTime) -> bool {
    let [accessed, modified, changed] =
        [Stamp::Accessed, Stamp::Modified, Stamp::Changed].map(|stamp| inode.time(stamp));
    let is_old = now.seconds.saturating_sub(accessed.seconds) >= OLD;
    accessed != now && (accessed <= modified || accessed <= changed || is_old)
}

#[cfg(test)]
mod tests {
    use weir_format::FileType;

    use super::*;

    #[test]
    fn a_time_of_access_is_renewed_after_a_change_and_after_a_day() {
        let at = |seconds| FileTime { seconds, nanoseconds: 0 };
        let due = |accessed, modified, changed, now| {
            let mut inode = Inode::new(FileType::Regular, 0o644);
            for (stamp, seconds) in
                [(Stamp::Accessed, accessed), (Stamp::Modified, modified), (Stamp::Changed, changed)]
            {
                inode.set_time(stamp, at(seconds));
            }
            is_due(&inode, at(now))
        };
        assert!(due(10, 10, 10, 11), "as it was made");
        assert!(due(10, 11, 9, 12) && due(10, 9, 11, 12), "changed since");
        assert!(!due(12, 11, 11, 13), "unchanged since");
        assert!(!due(12, 11, 11, 12 + OLD - 1) && due(12, 11, 11, 12 + OLD));
        assert!(!due(12, 12, 12, 12), "the same once more");
    }
}
