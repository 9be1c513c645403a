//! The *state* of a replica as of a request: its map, and where its log goes on. It follows the log object by object.

use bytes::Bytes;
use weir_storage::Rules;
use weir_volume::Position;

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

/// A group whose end has not come, of a catch-up that was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CutGroup {
    /// What it has is as of this request, or newer.
    pub began_at: u64,
    /// What it has is no newer than this request, which was durable.
    pub durable: u64,
    /// The generation of the volume that its newest object was made in.
    pub generation: u64,
    /// Entries of its objects.
    pub entries: u64,
}

impl CutGroup {
    /// Whether a volume has everything that the group has read: no other program has opened the volume between, and the crash, or the older
    /// copy that was opened, lacks none of it.
    pub(crate) fn is_of(&self, volume: Position) -> bool {
        self.generation + 1 == volume.generation && self.durable <= volume.opened_at
    }
}

impl ReplicaState {
    /// The group whose end has not come, if its objects say what they are as of. The first says when it began, and each later one what
    /// was durable.
    pub(crate) fn cut_group(&self) -> Option<CutGroup> {
        self.end.open_group?;
        let [first, .., newest] = &self.group[..] else { return None };
        let entries = self.group.iter().map(|object| object.entries.len() as u64).sum();
        let (began_at, durable) = (first.last, newest.last);
        let says = began_at >= first.place.first && durable >= began_at;
        says.then_some(CutGroup { began_at, durable, generation: newest.generation, entries })
    }

    /// The map as it will be when that group has ended with what it has now.
    pub(crate) fn map_with_group(&self) -> ReplicaMap {
        let mut map = self.map.clone();
        self.group.iter().for_each(|object| map.apply(object, u64::MAX));
        map
    }

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
