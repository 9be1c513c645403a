//! The *state* of a replica as of a request: its map, and where its log goes on. It follows the log object by object.

use bytes::Bytes;
use weir_storage::Rules;

use crate::envelope::Hash;
use crate::error::{Defect, ReplicaError};
use crate::log_object::{ChainEnd, LogObject};
use crate::map::ReplicaMap;
use crate::mutants::ReplicaMutant;

/// The state of a replica.
#[derive(Clone)]
pub(crate) struct ReplicaState {
    pub map: ReplicaMap,
    /// Where the log goes on.
    pub end: ChainEnd,
    /// The generation of the newest object that counts.
    pub generation: u64,
    /// Objects of a group whose end has not come, without their data.
    group: Vec<LogObject>,
    rules: Rules<ReplicaMutant>,
}

impl ReplicaState {
    /// Before the first object.
    pub(crate) fn empty(rules: Rules<ReplicaMutant>) -> ReplicaState {
        ReplicaState::at(ReplicaMap::new(rules), ChainEnd::start(), 0, rules)
    }

    /// At the end of a group.
    pub(crate) fn at(
        map: ReplicaMap,
        end: ChainEnd,
        generation: u64,
        rules: Rules<ReplicaMutant>,
    ) -> ReplicaState {
        ReplicaState { map, end, generation, group: Vec::new(), rules }
    }

    /// Takes the next object of the log, which has this hash (R1). The objects of a group count when its last one is there (R3).
    pub(crate) fn take(&mut self, mut object: LogObject, hash: Hash) -> Result<(), ReplicaError> {
        require_next(&self.end, &object, self.rules)?;
        self.end = ChainEnd::behind(&object, hash);
        if object.begins() {
            // What an earlier writer began and did not end never counts.
            self.group.clear();
        }
        object.data = Bytes::new();
        let generation = object.generation;
        self.group.push(object);
        if self.end.open_group.is_none() || self.rules.drops(ReplicaMutant::PartialGroupCounts) {
            for object in std::mem::take(&mut self.group) {
                self.map.apply(&object, u64::MAX);
            }
            self.generation = self.generation.max(generation);
        }
        Ok(())
    }
}

/// R1: an object has to follow the one before it.
pub(crate) fn require_next(
    end: &ChainEnd,
    object: &LogObject,
    rules: Rules<ReplicaMutant>,
) -> Result<(), ReplicaError> {
    if end.is_followed_by(object) || rules.drops(ReplicaMutant::ChainUnchecked) {
        return Ok(());
    }
    Err(ReplicaError::Damaged { key: object.place.key(), defect: Defect::Chain })
}
