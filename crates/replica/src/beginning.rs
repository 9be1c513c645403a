//! The *beginning* of what a reader reads: the newest checkpoint before the wanted state that can be read, or the first object of the
//! log. A newer checkpoint that is damaged is passed over, which loses nothing where the log from the older one on is whole: a
//! reader that begins there proves that, up to behind the newest checkpoint (R6).

use weir_storage::Rules;

use crate::access::Access;
use crate::check::Fault;
use crate::checkpoint::Manifest;
use crate::envelope::Envelopes;
use crate::error::ReplicaError;
use crate::kept_state::WantedState;
use crate::mutants::ReplicaMutant;
use crate::reader::list_checkpoints;
use crate::state::ReplicaState;

/// Where a reader begins.
pub(crate) struct Beginning {
    pub state: ReplicaState,
    /// When its checkpoint was made, in milliseconds of Unix time; none at the first object of the log.
    pub created_ms: Option<u64>,
    /// There are checkpoints.
    pub has_checkpoints: bool,
    pub passed_over: PassedOver,
}

/// Checkpoints that cannot be read and were passed over, the newest first.
#[derive(Debug, Default)]
pub(crate) struct PassedOver {
    /// As of which requests they are.
    pub sequences: Vec<u64>,
    /// What is wrong with them.
    pub faults: Vec<Fault>,
    /// The error of the newest.
    error: Option<ReplicaError>,
}

impl PassedOver {
    pub(crate) fn is_empty(&self) -> bool {
        self.sequences.is_empty()
    }

    /// Passes a checkpoint over, if an object of it is why it cannot be read.
    fn note(&mut self, sequence: u64, error: ReplicaError) -> Result<(), ReplicaError> {
        // What a newer program has written is for a newer program to read.
        let is_older = !matches!(error, ReplicaError::Version { .. });
        let Some(fault) = Fault::of_object(&error).filter(|_| is_older) else { return Err(error) };
        self.sequences.push(sequence);
        self.faults.push(fault);
        self.error.get_or_insert(error);
        Ok(())
    }

    /// The error of a log that was to take the place of these checkpoints: if it is not whole, that of the newest of them.
    pub(crate) fn error_of_log(self, error: ReplicaError) -> ReplicaError {
        let is_not_whole = error.is_missing() || Fault::of_object(&error).is_some();
        self.error.filter(|_| is_not_whole).unwrap_or(error)
    }
}

/// Finds the beginning of what leads to the wanted state.
pub(crate) async fn find_beginning(
    access: &Access,
    envelopes: &Envelopes,
    wanted: WantedState,
    rules: Rules<ReplicaMutant>,
) -> Result<Beginning, ReplicaError> {
    let checkpoints = list_checkpoints(access).await?;
    let has_checkpoints = !checkpoints.is_empty();
    let mut passed_over = PassedOver::default();
    for sequence in checkpoints.into_iter().rev() {
        if matches!(wanted, WantedState::Sequence(asked) if asked < sequence) {
            continue;
        }
        match load(access, envelopes, sequence, wanted, rules).await {
            Ok(None) => {}
            Ok(Some((state, created_ms))) => {
                return Ok(Beginning { state, created_ms: Some(created_ms), has_checkpoints, passed_over });
            }
            Err(error) => passed_over.note(sequence, error)?,
        }
    }
    let state = ReplicaState::empty(rules);
    Ok(Beginning { state, created_ms: None, has_checkpoints, passed_over })
}

/// Reads a checkpoint, unless it was made behind the wanted time: its state, and when it was made.
async fn load(
    access: &Access,
    envelopes: &Envelopes,
    sequence: u64,
    wanted: WantedState,
    rules: Rules<ReplicaMutant>,
) -> Result<Option<(ReplicaState, u64)>, ReplicaError> {
    let manifest = Manifest::read(access, envelopes, sequence).await?;
    if matches!(wanted, WantedState::Time(asked) if asked < manifest.created_ms) {
        return Ok(None);
    }
    Ok(Some((manifest.load(access, envelopes, rules).await?, manifest.created_ms)))
}
