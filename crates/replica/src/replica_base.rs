//! The newest state of a replica as the *base* of a volume on this machine, which goes on where the replica ends and is shipped to
//! it. The volume holds what has changed since; all other blocks are read from the store.
//!
//! 1. Either the volume is new: this writer takes the replica over, and the volume is made on the state before its place in the
//!    log (R10). Or the volume is there, and the replica has to have the epoch object of the writer that made it, and nothing that
//!    the volume does not have (R11). No two such objects are the same, and none is ever deleted.
//! 2. The base that is read is the newest state in the store each time, not the first one: of a block that the volume does not
//!    hold both say the same, and only the newest is kept, since each checkpoint of this writer names it (R7).

use std::rc::Rc;

use weir_runtime::Handle;
use weir_volume::{Base, Info};

use crate::access::{Access, Requests};
use crate::descriptor::Descriptor;
use crate::envelope::Envelopes;
use crate::error::ReplicaError;
use crate::history::Reached;
use crate::object_source::ObjectSource;
use crate::options::ReplicaOptions;
use crate::reader::Replica;
use crate::replica_storage::ReplicaStorage;
use crate::state::ReplicaState;
use crate::store::ObjectStore;
use crate::writer::Writer;

/// The newest state of a replica, with the writer that ships what comes behind it.
pub struct ReplicaBase {
    handle: Handle,
    store: Rc<dyn ObjectStore>,
    descriptor: Descriptor,
    pub(crate) writer: Writer,
}

impl ReplicaBase {
    /// Opens the replica in a store, and reads the map of its newest state. Nothing is written but what shows that the store
    /// creates no object twice.
    ///
    /// # Errors
    /// [`ReplicaError::NoReplica`] if there is none; [`ReplicaError`], what is missing or damaged, or what the store answered.
    pub async fn open(
        handle: &Handle,
        store: Rc<dyn ObjectStore>,
        options: ReplicaOptions,
    ) -> Result<ReplicaBase, ReplicaError> {
        let descriptor = Replica::open(handle, Rc::clone(&store), options.clone()).await?.descriptor();
        let writer = Writer::open(handle, Rc::clone(&store), descriptor, options).await?;
        Ok(ReplicaBase { handle: handle.clone(), store, descriptor, writer })
    }

    /// Of which volume it is.
    #[must_use]
    pub fn descriptor(&self) -> Descriptor {
        self.descriptor
    }

    /// Requests to the store so far.
    #[must_use]
    pub fn requests(&self) -> Requests {
        self.writer.requests()
    }

    /// What a volume for a trial is made on, which is read and thrown away: nothing is taken over.
    ///
    /// # Errors
    /// [`ReplicaError::NoState`] if nothing was shipped whole.
    pub fn base_of_trial(&self) -> Result<Base, ReplicaError> {
        let ReplicaState { end, generation, .. } = &self.writer.state;
        match end.last() {
            0 => Err(ReplicaError::NoState),
            sequence => Ok(Base { sequence, generation: *generation, epoch: 0, token: 0 }),
        }
    }

    /// Takes the replica over for a new volume, which is to be [made](weir_volume::Volume::create_on_base) on what is returned, with
    /// the identity and the capacity of the [descriptor](Self::descriptor). The writer before stops from here on.
    ///
    /// # Errors
    /// [`ReplicaError::NoState`] if nothing was shipped whole; [`ReplicaError::TakenOver`] if another one takes it over at the same
    /// time; what the store answered.
    pub async fn begin_volume(&mut self) -> Result<Base, ReplicaError> {
        self.writer.begin_new_volume().await
    }

    /// That a volume which is there was made on this replica, and that no other one has taken the replica over since.
    ///
    /// # Errors
    /// [`ReplicaError::OtherVolume`] or [`ReplicaError::OtherBase`] if it was not; [`ReplicaError::Ahead`] if another volume writes
    /// the replica now, or this one went back; what the store answered.
    pub async fn require_base_of(&self, volume: &Info) -> Result<(), ReplicaError> {
        if volume.volume != self.descriptor.volume {
            let (found, expected) = (self.descriptor.volume, volume.volume);
            return Err(ReplicaError::OtherVolume { found, expected });
        }
        self.writer.require_base(volume.base.as_ref().ok_or(ReplicaError::OtherBase)?).await?;
        if self.writer.state.generation > volume.generation {
            let (remote, local) = (self.writer.state.end.last(), volume.next_sequence - 1);
            return Err(ReplicaError::Ahead { remote, local });
        }
        Ok(())
    }

    /// The state as a storage, with at most so many bytes of objects in memory.
    #[must_use]
    pub fn storage(&self, cache_bytes: usize) -> ReplicaStorage {
        let ReplicaOptions { key, compress, patience, rules, .. } = &self.writer.options;
        let access = Access::new(&self.handle, Rc::clone(&self.store), *patience);
        let envelopes = Envelopes::new(&self.handle, key.as_ref(), *compress, *rules);
        envelopes.volume.set(self.descriptor.volume);
        let source = ObjectSource::new(access, envelopes, *patience, cache_bytes);
        let reached =
            Reached { sequence: self.writer.state.end.last(), is_newest: true, ..Reached::default() };
        let map = self.writer.state.map.clone();
        ReplicaStorage::new(&self.handle, (map, reached), source, self.descriptor.logical_blocks, *rules)
    }
}
