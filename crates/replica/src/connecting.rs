//! An uploader whose store does not answer yet, for a volume that is used without it meanwhile. The tap is there from the beginning,
//! so all that the store lacks is known to be missing, and for how long. When the store answers, the replica is opened with every check
//! that is made at the beginning otherwise, against what the volume was then (R4), and caught up with.

use std::rc::Rc;
use std::time::Duration;

use tracing::warn;
use weir_runtime::Handle;
use weir_storage::{Storage as _, flush};
use weir_volume::{Position, TapBounds, Volume};

use crate::access::Access;
use crate::catch_up::require_not_ahead;
use crate::check::Fault;
use crate::descriptor::Descriptor;
use crate::error::ReplicaError;
use crate::options::ReplicaOptions;
use crate::store::ObjectStore;
use crate::uploader::{Replication, Uploader, bytes_at_most};
use crate::writer::Writer;

/// Ships a volume, at once or when its store answers.
pub enum Shipper {
    /// The replica is open.
    Open(Box<Uploader>),
    /// The store has not answered.
    Connecting(Connecting),
}

/// An uploader that waits for the first answer of its store.
pub struct Connecting {
    handle: Handle,
    volume: Rc<Volume>,
    access: Rc<Access>,
    options: ReplicaOptions,
    replication: Replication,
    /// What the volume was before anything was written that the store was not asked about.
    position: Position,
    why: String,
}

impl Shipper {
    /// [Opens](Uploader::open) the replica of a volume; if the store does not answer `within` this time, and within the patience of the
    /// options, it is opened later.
    ///
    /// # Errors
    /// [`ReplicaError`]: what is wrong with the store that has answered, or with the replica in it.
    pub async fn open(
        handle: &Handle,
        volume: Rc<Volume>,
        store: Rc<dyn ObjectStore>,
        (bounds, within): (TapBounds, Duration),
        options: ReplicaOptions,
    ) -> Result<Shipper, ReplicaError> {
        flush(&*volume).await?;
        let position = volume.position();
        let first = options.patience.map_or(within, |patience| patience.min(within));
        let access = Rc::new(Access::new(handle, store, Some(first)));
        let opened =
            Writer::open_by(handle, Rc::clone(&access), descriptor_of(&volume), options.clone()).await;
        access.set_patience(options.patience);
        match opened {
            Err(ReplicaError::Store(error)) if error.is_transient() => {
                let missing = bytes_at_most(&volume, 0);
                let replication =
                    Replication::begin(handle, &volume, (&access, options.rules), (bounds, missing));
                let (handle, why) = (handle.clone(), error.to_string());
                let connecting = Connecting { handle, volume, access, options, replication, position, why };
                Ok(Shipper::Connecting(connecting))
            }
            opened => Ok(Uploader::begin(handle, volume, opened?, bounds).await?.into()),
        }
    }

    /// For those who look at it.
    #[must_use]
    pub fn replication(&self) -> Replication {
        match self {
            Shipper::Open(uploader) => uploader.replication(),
            Shipper::Connecting(connecting) => connecting.replication.clone(),
        }
    }

    /// Why the store was not reached, if it was not.
    #[must_use]
    pub fn why_not_reached(&self) -> Option<&str> {
        match self {
            Shipper::Open(_) => None,
            Shipper::Connecting(connecting) => Some(&connecting.why),
        }
    }

    /// What is wrong with newer checkpoints that could not be read, as [`Uploader::passed_over`] has it; later the log says it.
    #[must_use]
    pub fn passed_over(&self) -> &[Fault] {
        match self {
            Shipper::Open(uploader) => uploader.passed_over(),
            Shipper::Connecting(_) => &[],
        }
    }

    /// Ships what is written, as [`Uploader::run`] does, once the store has answered.
    ///
    /// # Errors
    /// As there; and as [`Uploader::open`].
    pub async fn run(self) -> Result<(), ReplicaError> {
        match self {
            Shipper::Open(uploader) => uploader.run().await,
            Shipper::Connecting(connecting) => {
                let (replication, stops) = (connecting.replication.clone(), connecting.options.stops);
                replication
                    .run(stops, async move { connecting.connect().await?.run_until_stopped().await })
                    .await
            }
        }
    }
}

impl From<Uploader> for Shipper {
    fn from(uploader: Uploader) -> Shipper {
        Shipper::Open(Box::new(uploader))
    }
}

impl Connecting {
    async fn connect(self) -> Result<Uploader, ReplicaError> {
        let Connecting { handle, volume, access, options, replication, position, .. } = self;
        let writer = Writer::open_by(&handle, access, descriptor_of(&volume), options).await?;
        // What was written meanwhile says nothing of what was there before.
        require_not_ahead(position, &writer)?;
        let uploader = Uploader::with(volume, writer, replication);
        for Fault { key, what } in uploader.passed_over() {
            warn!(name: "checkpoint_passed_over", object = %key, "{what}: the log from an older one on took its place");
        }
        Ok(uploader)
    }
}

/// Of which volume the replica is.
pub(crate) fn descriptor_of(volume: &Volume) -> Descriptor {
    Descriptor { volume: volume.identity(), logical_blocks: volume.blocks() }
}
