//! Two tasks that follow the log: one takes buffers back as chunks arrive, one flushes.
//!
//! A *flush* of the volume is one flush of the disk below, shared by all callers that asked meanwhile. The flusher
//! also keeps the *loss window* (V5): it flushes by itself when the oldest record that is not durable has
//! reached half of the window's time, or the volatile bytes a quarter of its bytes, so that the window
//! holds although the flush takes its time.

use std::rc::Rc;
use std::time::Duration;

use futures_util::future::{Either, select};
use futures_util::pin_mut;
use tracing::debug;
use weir_storage::{Command, Rejected, flush, submit_when_free};

use crate::common::Common;
use crate::log::Log;
use crate::mutants::VolumeMutant;

/// What the flusher has to do next.
enum Need {
    /// Make everything placed so far durable.
    All,
    /// Make what is sealed durable; the open chunk may go on filling.
    Sealed,
    /// When the oldest volatile record has this much time left.
    In(Duration),
    Nothing,
}

/// Makes the log durable.
pub(crate) struct Flusher {
    common: Rc<Common>,
    log: Rc<Log>,
}

impl Flusher {
    pub(crate) fn new(log: Rc<Log>) -> Flusher {
        Flusher { common: Rc::clone(&log.common), log }
    }

    /// Requests that all records up to `sequence` become durable.
    pub(crate) fn want_durable(&self, sequence: u64) {
        if sequence > self.common.watermark.durable_to() {
            self.common.flushes.want(sequence);
            self.common.flush_needed.notify(1);
            if self.common.drops(VolumeMutant::FlushLies) {
                self.common.watermark.durable(sequence);
                self.common.flushes.settle(sequence);
            }
        }
    }

    fn need(&self) -> Need {
        if self.common.watermark.failure().is_some() {
            return Need::Nothing;
        }
        if self.common.flushes.is_wanted(u64::MAX) {
            return Need::All;
        }
        if self.common.drops(VolumeMutant::NoLossBound) {
            return Need::Nothing;
        }
        let window = self.common.options.loss_window;
        let age = self.log.volatile_for();
        if age.is_some_and(|age| age >= window.time / 2) {
            return Need::All;
        }
        if self.log.sealed.borrow().bytes() >= window.bytes / 4 {
            return Need::Sealed;
        }
        age.map_or(Need::Nothing, |age| Need::In(window.time / 2 - age))
    }

    /// The flusher.
    pub(crate) async fn run_flusher(self: Rc<Flusher>) {
        loop {
            let changed = self.common.flush_needed.listen();
            match self.need() {
                need @ (Need::All | Need::Sealed) => {
                    if let Err(error) = self.flush_log(matches!(need, Need::All)).await {
                        self.common.fail(error);
                    }
                    self.common.slots.notify(usize::MAX);
                }
                Need::In(time) => {
                    let timer = self.common.handle.sleep(time);
                    pin_mut!(timer);
                    if let Either::Right(_) = select(changed, timer).await {
                        continue;
                    }
                }
                Need::Nothing => changed.await,
            }
        }
    }

    /// Makes everything sealed durable, and with `all` what is in the open chunk, too.
    async fn flush_log(&self, all: bool) -> Result<(), Rejected> {
        if all {
            self.log.seal_to_flush();
        }
        let Some(end) = self.log.sealed.borrow().last() else { return Ok(()) };
        self.common.watermark.until_transferred(end).await?;
        if self.common.watermark.durable_to() >= end {
            return Ok(());
        }
        if self.common.drops(VolumeMutant::FlushNotAwaited) {
            submit_when_free(&*self.common.disk, Command::Flush).await?;
        } else {
            flush(&*self.common.disk).await?;
        }
        debug!(name: "volume_flushed", last_record = end, "flushed");
        self.log.flushed(end);
        Ok(())
    }

    /// Follows the chunks in flight in their order and takes their buffers back.
    pub(crate) async fn run_retirer(self: Rc<Flusher>) {
        loop {
            let sealed = self.common.chunk_sealed.listen();
            let oldest = self.log.sealed.borrow().oldest_under_way();
            match oldest {
                None => sealed.await,
                // The disk below was busy when the chunk was sealed.
                Some((_, None)) => {
                    if self.common.watermark.failure().is_some() {
                        return;
                    }
                    // It may have become free since: the slot after that may never come.
                    let slot = self.common.disk.slots().listen();
                    if !self.log.sealed.borrow_mut().dispatch(&self.common) {
                        slot.await;
                    }
                }
                Some((last, Some(ticket))) => match ticket.transferred().await {
                    Ok(()) => self.log.retire(last),
                    Err(error) => return self.common.fail(error.into()),
                },
            }
        }
    }
}
