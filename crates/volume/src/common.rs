//! The state that the parts of an open volume share: the disk below, how far the log is durable, and the events that wake tasks.
//!
//! A part calls only those before it in this list: `blocks`, `pager`, `log`, `flush`, `branches`, `checkpointer`, `discard`,
//! `cleaner`, `volume`; `base_storage` needs the first three, `read` these, `base_storage` and `branches`. What a part has to say
//! to one behind it is an event here.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use event_listener::Event;
use tracing::error;
use weir_runtime::{Handle, Permit, Semaphore};
use weir_storage::{BLOCK_BYTES, FlushSharing, Rejected, Storage, StorageError, Watermark};

use crate::geometry::Geometry;
use crate::marks::MarkState;
use crate::mutants::VolumeMutant;
use crate::options::VolumeOptions;
use crate::stats::Stats;
use crate::tap::TapQueue;

/// What all parts of an open volume use.
pub(crate) struct Common {
    pub handle: Handle,
    pub disk: Rc<dyn Storage>,
    pub geometry: Geometry,
    pub options: VolumeOptions,
    pub watermark: Rc<Watermark>,
    /// Which records are wanted durable; positions are their sequence numbers.
    pub flushes: Rc<FlushSharing>,
    stats: RefCell<Stats>,
    /// Held while a checkpoint is being taken: the order of the free-segment list is the checkpoint's then.
    pub checkpointing: Semaphore,
    /// Held for a round of upkeep.
    pub upkeep: Semaphore,
    /// Set once the volume is being closed: writes are refused, and upkeep ends.
    pub closing: Cell<bool>,
    /// Where sealed chunks are copied to.
    pub tap: RefCell<Option<Rc<TapQueue>>>,
    /// V13: of a volume that takes marks.
    pub marks: Option<MarkState>,
    /// A command that was refused may be taken now. A volume that is opened again has the same.
    pub slots: Rc<Event>,
    /// For the flusher.
    pub flush_needed: Event,
    /// For the task that follows the chunks in flight.
    pub chunk_sealed: Event,
    pub upkeep_needed: Event,
    pub discard_needed: Event,
}

impl Common {
    pub(crate) fn new(
        handle: &Handle,
        disk: Rc<dyn Storage>,
        geometry: Geometry,
        options: VolumeOptions,
        durable: u64,
        slots: Rc<Event>,
    ) -> Common {
        let marks = options.marks.map(|bytes| MarkState::new(&geometry, bytes, durable));
        Common {
            handle: handle.clone(),
            marks,
            disk,
            geometry,
            options,
            watermark: Watermark::new(durable),
            flushes: FlushSharing::durable_to(durable),
            stats: RefCell::default(),
            checkpointing: Semaphore::new(1),
            upkeep: Semaphore::new(1),
            closing: Cell::new(false),
            tap: RefCell::default(),
            slots,
            flush_needed: Event::new(),
            chunk_sealed: Event::new(),
            upkeep_needed: Event::new(),
            discard_needed: Event::new(),
        }
    }

    /// Refuses further writes.
    pub(crate) fn begin_closing(&self) {
        self.closing.set(true);
        self.slots.notify(usize::MAX);
    }

    /// Waits until upkeep has ended. It begins no round while the permit is held.
    pub(crate) async fn end_upkeep(&self) -> Permit {
        self.upkeep.acquire(1).await
    }

    pub(crate) fn segment_bytes(&self) -> u64 {
        u64::from(self.geometry.segment_blocks) * BLOCK_BYTES as u64
    }

    /// How far behind a hole a chunk can lie that knows the hole to have been durable: the loss window, and
    /// as much again for the ends of segments that a large request left unused.
    pub(crate) fn window_blocks(&self) -> u32 {
        let blocks = self.options.loss_window.bytes / BLOCK_BYTES as u64 * 2;
        u32::try_from(blocks).unwrap_or(u32::MAX).saturating_add(2 * self.geometry.segment_blocks)
    }

    pub(crate) fn stats(&self) -> Stats {
        *self.stats.borrow()
    }

    #[inline]
    pub(crate) fn count(&self, count: impl FnOnce(&mut Stats)) {
        count(&mut self.stats.borrow_mut());
    }

    pub(crate) fn drops(&self, mutant: VolumeMutant) -> bool {
        self.options.rules.drops(mutant)
    }

    /// The error of what is not carried out any more, if the disk below has failed.
    pub(crate) fn require_no_failure(&self) -> Result<(), Rejected> {
        self.watermark.failure().map_or(Ok(()), |error| Err(Rejected::Failed(error)))
    }

    /// Makes an attempt again, as often as it is refused as by a full queue, each time that a command may be taken.
    pub(crate) async fn until_accepted<T, E: From<Rejected> + PartialEq>(
        &self,
        mut attempt: impl AsyncFnMut() -> Result<T, E>,
    ) -> Result<T, E> {
        loop {
            let slot = self.slots.listen();
            match attempt().await {
                Err(refused) if refused == Rejected::Busy.into() => slot.await,
                ended => return ended,
            }
        }
    }

    /// Waits for one mark after the other while `waits` says so (V13).
    pub(crate) async fn wait_for_marks(
        &self,
        marks: &MarkState,
        waits: impl Fn() -> bool,
    ) -> Result<(), Rejected> {
        while waits() {
            self.require_no_failure()?;
            marks.until_placed(&self.slots).await;
        }
        Ok(())
    }

    /// Up to where a record counts as durable for the reclaim check (V3): no crash takes it back.
    pub(crate) fn reclaimable_to(&self) -> u64 {
        let durable = self.watermark.durable_to();
        match &self.marks {
            _ if self.drops(VolumeMutant::ReuseBeforeFlush) => u64::MAX,
            Some(marks) if !self.drops(VolumeMutant::ReuseBeforeMark) => marks.durable_to(&self.watermark),
            _ => durable,
        }
    }

    /// A user has placed a record.
    #[inline]
    pub(crate) fn note_change(&self) {
        if let Some(marks) = &self.marks {
            marks.note_change();
        }
    }

    /// The disk below failed: nothing more is acknowledged, and all waiting callers get the error.
    pub(crate) fn fail(&self, error: Rejected) {
        if self.drops(VolumeMutant::FailureForgotten) {
            return;
        }
        let error = failure(error);
        if self.watermark.failure().is_none() {
            error!(name: "disk_failed", %error, "the disk failed: nothing more is acknowledged");
        }
        self.watermark.fail(error);
        self.flushes.fail(error);
        self.slots.notify(usize::MAX);
        if let Some(marks) = &self.marks {
            marks.placed.notify(usize::MAX);
        }
        self.chunk_sealed.notify(usize::MAX);
        self.upkeep_needed.notify(usize::MAX);
        self.discard_needed.notify(usize::MAX);
    }
}

/// A rejection of our own read, as the error of a ticket.
pub(crate) fn failure(rejected: Rejected) -> StorageError {
    match rejected {
        Rejected::Failed(error) => error,
        // The map holds only addresses inside the volume; anything else means that the device changed.
        Rejected::Busy | Rejected::Unsupported(_) | Rejected::Invalid(_) => StorageError::Gone,
    }
}
