//! A second task beside the player: it reads, and now and then takes a checkpoint, while the player writes,
//! so that reads race writes, cleaning and the reuse of segments.
//!
//! A read that races writes may find any version that was current at some time between its submission and
//! its completion, and nothing else.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use weir_runtime::{Handle, Random, Task};
use weir_storage::{Command, Extent, StorageError, submit_when_free};
use weir_volume::Volume;

use crate::bound::Bounded;
use crate::content::content_of;
use crate::model::Verdict;
use crate::player::{Span, failed};
use crate::request_history::RequestHistory;
use crate::window::Window;

/// Reads for each step of the player at most.
const READS_PER_STEP: u64 = 2;

/// What the reader reads, and how it behaves.
pub(crate) struct Reader {
    pub handle: Handle,
    pub random: Random,
    pub range: Span,
    pub volume: Rc<Bounded<Volume>>,
    pub history: Rc<RefCell<RequestHistory>>,
    pub window: Rc<Window>,
    /// Steps of the player.
    pub steps: u64,
    /// Longest pause between two reads, in nanoseconds.
    pub pause_ns_max: u64,
    /// Of 64 turns, so many take a checkpoint instead.
    pub checkpoints: u64,
}

/// A reader at work.
pub(crate) struct Reading {
    task: Task<Result<(), Verdict>>,
    stop: Rc<Cell<bool>>,
}

impl Reading {
    /// The process dies, and the reader with it, unless it has found something before.
    pub(crate) async fn kill(self) -> Result<(), Verdict> {
        if self.task.is_finished() {
            return self.finish().await;
        }
        self.task.cancel();
        Ok(())
    }

    /// Waits until the reader is through with what it does.
    pub(crate) async fn finish(self) -> Result<(), Verdict> {
        self.stop.set(true);
        self.task.await.map_err(|error| failed("reading beside the writer", &error))?
    }
}

impl Reader {
    pub(crate) fn start(self) -> Reading {
        let stop = Rc::new(Cell::new(false));
        let task = self.handle.clone().spawn(self.read_until_stopped(Rc::clone(&stop)));
        Reading { task, stop }
    }

    async fn read_until_stopped(mut self, stop: Rc<Cell<bool>>) -> Result<(), Verdict> {
        for _ in 0..READS_PER_STEP * self.steps {
            if stop.get() {
                break;
            }
            if self.random.below(64) < self.checkpoints {
                let taken = self.volume.inner.checkpoint().await;
                taken.map_err(|error| failed("a checkpoint beside the writer", &error))?;
            } else {
                self.read().await?;
            }
            self.pause().await;
        }
        Ok(())
    }

    async fn read(&mut self) -> Result<(), Verdict> {
        let block = self.random.below(self.range.blocks);
        let failed = |error: &dyn std::error::Error| failed("a read beside the writer", error);
        let _reading = self.window.user_reads();
        let command = Command::read(Extent::new(self.range.lba(block), 1));
        let ticket = submit_when_free(&*self.volume, command).await.map_err(|error| failed(&error))?;
        let submitted = self.history.borrow().accepted();
        ticket.transferred().await.map_err(|error| failed(&error))?;
        let page = ticket.take_data().ok_or_else(|| failed(&StorageError::Gone))?;
        let (history, found) = (self.history.borrow(), content_of(&page, block));
        if found.is_some_and(|stamp| history.model.held(block, stamp, submitted..=history.accepted())) {
            return Ok(());
        }
        Err(Verdict::Read { block, expected: history.model.stamp(block), found })
    }

    async fn pause(&mut self) {
        match self.random.below(self.pause_ns_max + 1) {
            0 => self.handle.yield_now().await,
            nanos => self.handle.sleep(Duration::from_nanos(nanos)).await,
        }
    }
}
