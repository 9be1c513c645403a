//! A replica as its readers see it: which states it has, and the newest of them.

use std::rc::Rc;

use weir_runtime::Handle;
use weir_storage::Rules;

use crate::access::{Access, Requests};
use crate::beginning::{Beginning, PassedOver, find_beginning};
use crate::descriptor::Descriptor;
use crate::envelope::Envelopes;
use crate::error::ReplicaError;
use crate::kept_state::WantedState;
use crate::key::{CHECKPOINTS, checkpoint_from_key, checkpoint_key};
use crate::log_reader::LogReader;
use crate::mutants::ReplicaMutant;
use crate::options::ReplicaOptions;
use crate::state::ReplicaState;
use crate::store::ObjectStore;

/// How often a reader begins anew when what it reads is collected meanwhile.
pub(crate) const ATTEMPTS: u32 = 5;

/// A replica, opened to be read.
pub struct Replica {
    pub(crate) access: Access,
    pub(crate) envelopes: Envelopes,
    pub(crate) options: ReplicaOptions,
    descriptor: Descriptor,
}

impl Replica {
    /// Opens the replica in a store.
    ///
    /// # Errors
    /// [`ReplicaError::NoReplica`] if there is none; what the store answered otherwise.
    pub async fn open(
        handle: &Handle,
        store: Rc<dyn ObjectStore>,
        options: ReplicaOptions,
    ) -> Result<Replica, ReplicaError> {
        let access = Access::new(handle, store, options.patience);
        let envelopes = Envelopes::new(handle, options.key.as_ref(), options.compress, options.rules);
        let descriptor = Descriptor::read(&access, &envelopes).await?;
        Ok(Replica { access, envelopes, options, descriptor })
    }

    /// Of which volume it is.
    #[must_use]
    pub fn descriptor(&self) -> Descriptor {
        self.descriptor
    }

    /// Requests to the store so far.
    #[must_use]
    pub fn requests(&self) -> Requests {
        self.access.requests()
    }
}

/// The requests as of which there are checkpoints, in order.
pub(crate) async fn list_checkpoints(access: &Access) -> Result<Vec<u64>, ReplicaError> {
    let keys = access.list(CHECKPOINTS, "").await?;
    Ok(keys.iter().filter_map(|key| checkpoint_from_key(key)).collect())
}

/// The newest state of a replica.
pub(crate) struct NewestState {
    pub state: ReplicaState,
    /// Bytes of the objects since its checkpoint.
    pub bytes: u64,
    pub passed_over: PassedOver,
}

/// Reads the newest state.
pub(crate) async fn newest_state(
    access: &Access,
    envelopes: &Envelopes,
    rules: Rules<ReplicaMutant>,
) -> Result<NewestState, ReplicaError> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        match read_newest(access, envelopes, rules).await {
            // The list was an older one, and its checkpoint is collected.
            Err(error) if error.is_missing() && attempt < ATTEMPTS => {}
            outcome => return outcome,
        }
    }
}

async fn read_newest(
    access: &Access,
    envelopes: &Envelopes,
    rules: Rules<ReplicaMutant>,
) -> Result<NewestState, ReplicaError> {
    let found = find_beginning(access, envelopes, WantedState::Newest, rules).await?;
    let Beginning { mut state, passed_over, .. } = found;
    let followed = follow_log(access, envelopes, &mut state).await;
    let whole = match followed {
        Ok(bytes) => require_newest(access, state.end.last()).await.map(|()| bytes),
        Err(error) => Err(error),
    };
    match whole {
        Ok(bytes) => Ok(NewestState { state, bytes, passed_over }),
        Err(error) => Err(passed_over.error_of_log(error)),
    }
}

/// Where the log ends for a reader, it may go on behind what was collected while it was read: no checkpoint may be newer.
pub(crate) async fn require_newest(access: &Access, sequence: u64) -> Result<(), ReplicaError> {
    let keys = access.list(CHECKPOINTS, &checkpoint_key(sequence)).await?;
    if keys.iter().any(|key| checkpoint_from_key(key).is_some()) { Err(ReplicaError::Outrun) } else { Ok(()) }
}

/// Reads the log from where a state ends, into the state. Returns the bytes of the objects.
async fn follow_log(
    access: &Access,
    envelopes: &Envelopes,
    state: &mut ReplicaState,
) -> Result<u64, ReplicaError> {
    let mut reader = LogReader::begin(access, envelopes, &state.end).await?;
    let mut bytes = 0;
    let failed = |last| move |error: ReplicaError| error.behind(last);
    while let Some(found) = reader.next_behind(&state.end).await.map_err(failed(state.end.last()))? {
        bytes += found.bytes;
        state.take(found.object, found.hash)?;
    }
    Ok(bytes)
}
