//! An open volume that can grow while it is used.
//!
//! 1. Commands are refused, as by a full queue, and those under way end: all that was submitted is durable.
//! 2. The volume is closed, but for its claim (V8), and grown as one that no process has open (V11).
//! 3. It is opened again, and commands are taken.
//!
//! So nothing of a layout changes under a command, and a power cut meanwhile leaves what it leaves of `weir volume grow`. Step 2 takes as
//! long as closing and opening the volume does.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use event_listener::Event;
use tracing::{error, info};
use weir_storage::{Capabilities, Command, Lba, Rejected, Storage, Ticket};

use crate::error::ResizeError;
use crate::geometry::Geometry;
use crate::mutants::VolumeMutant;
use crate::placement::NewSize;
use crate::resize::{Resized, prepare, require_blocks, resize_closed};
use crate::volume::Volume;

/// A volume, open, that can [grow](Self::grow). It keeps no marks for those above it (V13).
pub struct ResizableVolume {
    open: RefCell<Rc<Volume>>,
    capabilities: Capabilities,
    slots: Rc<Event>,
    is_resizing: Cell<bool>,
}

impl ResizableVolume {
    /// The volume as it is now. It is closed, and another one has its place, once the volume has grown.
    #[must_use]
    pub fn current(&self) -> Rc<Volume> {
        Rc::clone(&self.open.borrow())
    }

    /// Does something with the volume. Where that fails and the volume has grown meanwhile, so that the one in hand is closed, it is done
    /// again with the one in its place.
    ///
    /// # Errors
    /// Those of `work`.
    pub async fn with_current<T, E>(&self, work: impl AsyncFn(&Volume) -> Result<T, E>) -> Result<T, E> {
        let mut volume = self.when_grown().await;
        loop {
            let done = work(&volume).await;
            if done.is_ok() {
                return done;
            }
            let now = self.when_grown().await;
            if Rc::ptr_eq(&volume, &now) {
                return done;
            }
            volume = now;
        }
    }

    /// The volume as it is when it does not grow any more.
    async fn when_grown(&self) -> Rc<Volume> {
        while self.is_resizing.get() {
            self.slots.listen().await;
        }
        self.current()
    }

    /// The size that the volume has.
    #[must_use]
    pub fn size(&self) -> Resized {
        Resized::from_geometry(&self.current().common().geometry)
    }

    /// The size that the volume would get, and the bytes of memory that it would take at most
    /// ([`memory_bound`](Volume::memory_bound)).
    ///
    /// # Errors
    /// [`ResizeError`], if the volume has no layout of that size.
    pub fn plan_growth(&self, size: NewSize) -> Result<(Resized, u64), ResizeError> {
        let volume = self.current();
        let new = volume.common().geometry.grown_to(size)?;
        Ok((Resized::from_geometry(&new), volume.memory_bound_of(&new)))
    }

    /// Makes the volume larger. The disk must have as many blocks already. Commands wait meanwhile.
    ///
    /// # Errors
    /// [`ResizeError`]. The volume goes on with its old size; after [`ResizeError::Volume`] it may not, and after [`ResizeError::NotReopened`] it takes no
    /// command any more.
    pub async fn grow(&self, size: NewSize) -> Result<Resized, ResizeError> {
        let volume = self.current();
        self.require_growable(&volume, size)?;
        self.is_resizing.set(!volume.common().drops(VolumeMutant::GrownUnheld));
        let resizing = Resizing(self);
        let resized = self.grow_held(&volume, size).await;
        drop(resizing);
        match &resized {
            Ok(Resized { logical_blocks, physical_blocks }) => {
                info!(name: "volume_grown", logical_blocks, physical_blocks, "grown")
            }
            Err(error @ (ResizeError::Volume(_) | ResizeError::NotReopened(_))) => {
                error!(name: "volume_not_grown", %error, "not grown")
            }
            // What was asked for is refused.
            Err(_) => {}
        }
        resized
    }

    fn require_growable(&self, volume: &Volume, size: NewSize) -> Result<(), ResizeError> {
        let common = volume.common();
        if self.is_resizing.get() {
            return Err(ResizeError::UnderWay);
        }
        if common.marks.is_some() {
            return Err(ResizeError::Marks);
        }
        if common.geometry.base.is_some() || common.tap.borrow().as_ref().is_some_and(|tap| !tap.is_closed())
        {
            return Err(ResizeError::Shipped);
        }
        require_blocks(&*common.disk, size)
    }

    async fn grow_held(&self, volume: &Volume, size: NewSize) -> Result<Resized, ResizeError> {
        // None is made between the preparation and the end, and moves.
        let _snapshots = volume.branches().hold().await;
        volume.end_commands().await?;
        let plan = |geometry: &Geometry, _| geometry.grown_to(size);
        prepare(volume, &plan).await?;
        volume.close_log().await?;
        let resized = resize_closed(volume, &plan).await;
        self.open.replace(Rc::new(volume.open_again().await.map_err(ResizeError::NotReopened)?));
        resized
    }
}

/// Commands wait until this is dropped.
struct Resizing<'a>(&'a ResizableVolume);

impl Drop for Resizing<'_> {
    fn drop(&mut self) {
        self.0.is_resizing.set(false);
        self.0.slots.notify(usize::MAX);
    }
}

impl From<Volume> for ResizableVolume {
    fn from(volume: Volume) -> ResizableVolume {
        ResizableVolume {
            capabilities: *volume.capabilities(),
            slots: Rc::clone(&volume.common().slots),
            open: RefCell::new(Rc::new(volume)),
            is_resizing: Cell::new(false),
        }
    }
}

impl Storage for ResizableVolume {
    fn blocks(&self) -> u64 {
        self.open.borrow().blocks()
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn submit(&self, command: Command<'_>) -> Result<Ticket, Rejected> {
        if self.is_resizing.get() {
            return Err(Rejected::Busy);
        }
        self.open.borrow().submit(command)
    }

    fn slots(&self) -> &Event {
        &self.slots
    }

    fn next_data(&self, from: Lba) -> Option<Lba> {
        self.open.borrow().next_data(from)
    }
}
