//! The *upkeep* of a replica: its checkpoints, and the collection of what no kept state needs. While an uploader runs, it goes on beside
//! the shipping, which waits for none of its requests: a checkpoint of a large volume has thousands of objects, and so may what is
//! collected behind it.

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;

use futures_util::{FutureExt as _, select_biased};
use tracing::warn;
use weir_runtime::Event;

use crate::access::Access;
use crate::checkpoint::write_parts;
use crate::collect::Collector;
use crate::envelope::Envelopes;
use crate::error::ReplicaError;
use crate::fence::require_no_newer_checkpoint;
use crate::options::ReplicaOptions;
use crate::state::ReplicaState;

/// The upkeep of one writer.
pub(crate) struct Upkeep {
    access: Rc<Access>,
    envelopes: Rc<Envelopes>,
    options: ReplicaOptions,
    collector: Collector,
    /// The state whose checkpoint is being written, or is to be next.
    due: RefCell<Option<Rc<ReplicaState>>>,
    /// There was a checkpoint since the last collection began.
    uncollected: Cell<bool>,
    /// Objects that no block of the state of the newest checkpoint reads, by their numbers in its map.
    unread: RefCell<Vec<u32>>,
    is_closed: Cell<bool>,
    changed: Event,
}

impl Upkeep {
    pub(crate) fn new(access: &Rc<Access>, envelopes: &Rc<Envelopes>, options: &ReplicaOptions) -> Upkeep {
        Upkeep {
            access: Rc::clone(access),
            envelopes: Rc::clone(envelopes),
            options: options.clone(),
            collector: Collector::new(access, envelopes, options),
            due: RefCell::default(),
            uncollected: Cell::default(),
            unread: RefCell::default(),
            is_closed: Cell::default(),
            changed: Event::new(),
        }
    }

    /// These checkpoints cannot be read: what older ones keep stays.
    pub(crate) fn set_unreadable(&self, sequences: &[u64]) {
        self.collector.set_unreadable(sequences);
    }

    /// Whether a checkpoint is being written, or is to be.
    pub(crate) fn is_busy(&self) -> bool {
        self.due.borrow().is_some()
    }

    /// Has the checkpoint of a state written by who runs.
    pub(crate) fn begin_checkpoint(&self, state: ReplicaState) {
        self.due.replace(Some(Rc::new(state)));
        self.changed.notify(usize::MAX);
    }

    /// The objects that no block has read since the newest checkpoint, by their numbers in the map it was made from.
    pub(crate) fn take_unread(&self) -> Vec<u32> {
        self.unread.take()
    }

    /// Nothing more is to be done: who runs ends with the checkpoint that it is at.
    pub(crate) fn close(&self) {
        self.is_closed.set(true);
        self.changed.notify(usize::MAX);
    }

    /// Writes checkpoints, and collects, until it is closed. What is not collected then is by the next writer.
    ///
    /// # Errors
    /// Why a checkpoint cannot be written.
    pub(crate) async fn run(&self) -> Result<(), ReplicaError> {
        let mut writing = pin!(self.write_until_closed().fuse());
        let mut collecting = pin!(self.collect_for_ever().fuse());
        select_biased! {
            outcome = writing => outcome,
            () = collecting => Ok(()),
        }
    }

    async fn write_until_closed(&self) -> Result<(), ReplicaError> {
        loop {
            let changed = self.changed.listen();
            let due = self.due.borrow().clone();
            if let Some(state) = due {
                self.write_checkpoint(&state).await?;
                self.due.take();
            } else if self.is_closed.get() {
                return Ok(());
            } else {
                changed.await;
            }
        }
    }

    async fn collect_for_ever(&self) {
        loop {
            let changed = self.changed.listen();
            if !self.uncollected.get() {
                changed.await;
            } else if let Err(error) = self.collect().await {
                // What is not deleted takes room, and breaks no promise.
                warn!(name: "collection_refused", %error, "what is not kept any more was not deleted");
            }
        }
    }

    /// Writes the checkpoint of a state of this writer.
    pub(crate) async fn write_checkpoint(&self, state: &ReplicaState) -> Result<(), ReplicaError> {
        let Upkeep { access, envelopes, options, .. } = self;
        let mut parts = write_parts(access, envelopes, state, options).await?;
        require_no_newer_checkpoint(access, state.end.last()).await?;
        parts.write_manifest(access, envelopes).await?;
        self.unread.replace(parts.unread);
        self.uncollected.set(true);
        self.changed.notify(usize::MAX);
        Ok(())
    }

    /// Deletes what no kept state needs.
    pub(crate) async fn collect(&self) -> Result<(), ReplicaError> {
        self.uncollected.set(false);
        self.collector.collect().await
    }
}
