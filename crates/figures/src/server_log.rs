//! A *log* of InnoDB's server: threads add to it and wait until it is on the disk up to there. One of them writes and
//! synchronises it for all that wait.

use std::cell::Cell;
use std::rc::Rc;

use weir_runtime::Event;
use weir_storage::BLOCK_BYTES;
use weir_vfs::{FsError, InodeNumber};

use crate::calls::Call;
use crate::stage::Stage;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// A log, in one file.
pub(crate) struct ServerLog {
    stage: Rc<Stage>,
    file: InodeNumber,
    shape: Shape,
    call: Call,
    /// Bytes that were added.
    added: Cell<u64>,
    /// Bytes of them that are synchronised.
    done: Cell<u64>,
    is_written: Cell<bool>,
    changed: Event,
}

/// How a log lies in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Round and round over so many bytes that were written before, in whole blocks: the redo log.
    Round(u64),
    /// At the end of a file that grows: the binary log.
    Grows,
}

impl ServerLog {
    pub(crate) fn new(stage: &Rc<Stage>, file: InodeNumber, shape: Shape, call: Call) -> ServerLog {
        ServerLog {
            stage: Rc::clone(stage),
            file,
            shape,
            call,
            added: Cell::new(0),
            done: Cell::new(0),
            is_written: Cell::new(false),
            changed: Event::new(),
        }
    }

    /// Adds so many bytes, and says where the log ends now.
    pub(crate) fn add(&self, bytes: u64) -> u64 {
        self.added.set(self.added.get() + bytes);
        self.added.get()
    }

    /// Synchronises all that was added.
    pub(crate) async fn commit_all(&self) -> Result<(), FsError> {
        self.commit(self.added.get()).await
    }

    /// Waits until the log is synchronised up to `end`.
    pub(crate) async fn commit(&self, end: u64) -> Result<(), FsError> {
        while self.done.get() < end {
            let changed = self.changed.listen();
            if self.is_written.get() {
                changed.await;
                continue;
            }
            self.is_written.set(true);
            let upto = self.added.get();
            let written = self.write(upto).await;
            self.is_written.set(false);
            self.changed.notify(usize::MAX);
            written?;
            self.done.set(upto);
        }
        Ok(())
    }

    /// Writes up to `upto` and synchronises it.
    async fn write(&self, upto: u64) -> Result<(), FsError> {
        let (mut at, end, round) = match self.shape {
            Shape::Round(bytes) => (self.done.get() / BLOCK * BLOCK, upto.next_multiple_of(BLOCK), bytes),
            Shape::Grows => (self.done.get(), upto, u64::MAX),
        };
        while at < end {
            let place = at % round;
            let bytes = (end - at).min(round - place);
            self.stage.write(self.file, place, bytes).await?;
            at += bytes;
        }
        self.stage.call(self.call, self.file).await
    }
}
