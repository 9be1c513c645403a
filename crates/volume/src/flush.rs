//! Two tasks that follow the log: one takes buffers back as chunks arrive, one flushes.
//!
//! A *flush* of the volume is one flush of the disk below, shared by all who asked meanwhile. The flusher
//! also keeps the *loss window* (V5): it flushes by itself when the oldest record that is not durable has
//! reached half of the window's time, or the volatile bytes a quarter of its bytes, so that the window
//! holds although the flush takes its time.

use std::rc::Rc;
use std::time::Duration;

use futures_util::future::{Either, select};
use futures_util::pin_mut;
use tracing::debug;
use weir_storage::{Command, Rejected, flush, submit_when_free};

use crate::mutants::VolumeMutant;
use crate::state::Shared;

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

impl Shared {
    /// Asks for everything up to `sequence` to become durable.
    pub(crate) fn want_durable(&self, sequence: u64) {
        if sequence > self.watermark.durable_to() {
            self.flushes.want(sequence);
            self.flush_needed.notify(1);
            if self.options.rules.drops(VolumeMutant::FlushLies) {
                self.watermark.durable(sequence);
                self.flushes.settle(sequence);
            }
        }
    }

    fn need(&self) -> Need {
        if self.watermark.failure().is_some() {
            return Need::Nothing;
        }
        if self.flushes.is_wanted(u64::MAX) {
            return Need::All;
        }
        if self.options.rules.drops(VolumeMutant::NoLossBound) {
            return Need::Nothing;
        }
        let state = self.state.borrow();
        let window = self.options.loss_window;
        let age = state.log.oldest_volatile().map(|since| self.handle.now().since(since));
        if age.is_some_and(|age| age >= window.time / 2) {
            return Need::All;
        }
        if state.log.volatile_bytes >= window.bytes / 4 {
            return Need::Sealed;
        }
        age.map_or(Need::Nothing, |age| Need::In(window.time / 2 - age))
    }

    /// The flusher.
    pub(crate) async fn run_flusher(self: Rc<Shared>) {
        loop {
            let changed = self.flush_needed.listen();
            match self.need() {
                need @ (Need::All | Need::Sealed) => {
                    if let Err(error) = self.flush_log(matches!(need, Need::All)).await {
                        self.fail(error);
                    }
                    self.slots.notify(usize::MAX);
                }
                Need::In(time) => {
                    let timer = self.handle.sleep(time);
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
        let end = {
            let mut state = self.state.borrow_mut();
            if all {
                // A lone chunk with nothing volatile before it needs no flush of its own: FUA does both.
                let alone = state.log.sealed.is_empty() && self.disk.capabilities().fua;
                self.seal_with(&mut state, alone);
            }
            let Some(last) = state.log.sealed.back() else { return Ok(()) };
            last.last_sequence
        };
        self.watermark.until_transferred(end).await?;
        if self.watermark.durable_to() >= end {
            return Ok(());
        }
        if self.options.rules.drops(VolumeMutant::FlushNotAwaited) {
            submit_when_free(&*self.disk, Command::Flush).await?;
        } else {
            flush(&*self.disk).await?;
        }
        debug!(last_record = end, "flushed");
        let mut state = self.state.borrow_mut();
        state.stats.flushes += 1;
        self.settle_durable(&mut state, end);
        Ok(())
    }

    /// Follows the chunks in flight in their order and takes their buffers back.
    pub(crate) async fn run_retirer(self: Rc<Shared>) {
        loop {
            let sealed = self.chunk_sealed.listen();
            let front = {
                let state = self.state.borrow();
                let oldest = state.log.sealed.iter().find(|chunk| !chunk.transferred);
                oldest.map(|chunk| (chunk.last_sequence, chunk.ticket.clone()))
            };
            match front {
                None => sealed.await,
                // The disk below was busy when the chunk was sealed.
                Some((_, None)) => {
                    if self.watermark.failure().is_some() {
                        return;
                    }
                    // It may have become free since: the slot after that may never come.
                    let slot = self.disk.slots().listen();
                    if !self.dispatch(&mut self.state.borrow_mut()) {
                        slot.await;
                    }
                }
                Some((last, Some(ticket))) => match ticket.transferred().await {
                    Ok(()) => self.retire(last),
                    Err(error) => return self.fail(error.into()),
                },
            }
        }
    }
}
