//! The *history* of a replica up to the wanted state: the newest checkpoint before it, and the log from there on, of which only groups
//! that are whole count (R3).

use crate::beginning::{Beginning, find_beginning};
use crate::check::Fault;
use crate::error::ReplicaError;
use crate::kept_state::WantedState;
use crate::key::LogPlace;
use crate::log_object::{ChainEnd, LogObject};
use crate::log_reader::{Group, LogReader};
use crate::map::ReplicaMap;
use crate::mutants::ReplicaMutant;
use crate::reader::{Replica, require_newest};
use crate::state::{ReplicaState, require_next};

/// How far a history was followed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reached {
    /// The state after this request.
    pub sequence: u64,
    /// When the newest object that counts was made, in milliseconds of Unix time; 0 if there is none.
    pub created_ms: u64,
    /// The log was read to its end: the replica has nothing newer.
    pub is_newest: bool,
    /// Objects of the log that were read.
    pub objects: u64,
    /// Their bytes in the store.
    pub bytes: u64,
    /// What is wrong with checkpoints that were passed over.
    pub passed_over: Vec<Fault>,
}

/// The way to the wanted state.
pub(crate) struct History<'a> {
    replica: &'a Replica,
    wanted: WantedState,
    pub reached: Reached,
}

impl<'a> History<'a> {
    /// At its beginning.
    pub(crate) fn new(replica: &'a Replica, wanted: WantedState) -> History<'a> {
        History { replica, wanted, reached: Reached::default() }
    }

    fn drops(&self, mutant: ReplicaMutant) -> bool {
        self.replica.options.rules.drops(mutant)
    }

    /// The state of the newest checkpoint that can be read and is no newer than the wanted one. Where others were passed over, the
    /// log from there on was read, and is whole.
    pub(crate) async fn choose_checkpoint(&mut self) -> Result<ReplicaState, ReplicaError> {
        let Replica { access, envelopes, options, .. } = self.replica;
        let found = find_beginning(access, envelopes, self.wanted, options.rules).await?;
        let Beginning { state, created_ms, has_checkpoints, passed_over } = found;
        self.reached.sequence = state.end.last();
        self.reached.created_ms = created_ms.unwrap_or(0);
        if !passed_over.is_empty() {
            let trial = History { reached: self.reached.clone(), ..*self };
            if let Err(error) = trial.prove_log(&state.end).await {
                return Err(passed_over.error_of_log(error));
            }
            self.reached.passed_over = passed_over.faults;
        } else if created_ms.is_none() && has_checkpoints {
            let reader = LogReader::begin(access, envelopes, &state.end).await?;
            if reader.read(state.end.next).await?.is_none() {
                return Err(self.replica.out_of_range(self.wanted).await);
            }
        }
        Ok(state)
    }

    /// That the log leads from here to the wanted state: what is written to a target is not taken back.
    async fn prove_log(mut self, end: &ChainEnd) -> Result<(), ReplicaError> {
        self.follow(*end, async |_, _| Ok(())).await
    }

    /// Follows the log from where a checkpoint ends, and hands over each object that counts, with the last request in it that
    /// belongs to the wanted state.
    pub(crate) async fn follow(
        &mut self,
        mut end: ChainEnd,
        mut take: impl AsyncFnMut(&LogObject, u64) -> Result<(), ReplicaError>,
    ) -> Result<(), ReplicaError> {
        let Replica { access, envelopes, options, .. } = self.replica;
        let mut reader = LogReader::begin(access, envelopes, &end).await?;
        let mut group: Option<(u64, Option<Group>)> = None;
        let mut is_within = false;
        while !self.is_there() {
            let found = reader.next_behind(&end).await.map_err(|error| error.behind(end.last()))?;
            let Some(found) = found else {
                if !self.drops(ReplicaMutant::CheckpointForgotten) {
                    require_newest(access, end.last()).await?;
                }
                self.reached.is_newest = true;
                break;
            };
            self.reached.objects += 1;
            self.reached.bytes += found.bytes;
            require_next(&end, &found.object, options.rules)?;
            end = ChainEnd::behind(&found.object, found.hash);
            let LogPlace { first, .. } = found.object.place;
            let whole = found.object.begins() && found.object.ends;
            let counts = if whole {
                let LogObject { group, last, .. } = found.object;
                Some(Group { begin: group, last, created_ms: found.created_ms })
            } else {
                // Behind a group that was found, another one may have begun.
                let is_known = |(of, found_group): (u64, Option<Group>)| {
                    of == first && found_group.is_some_and(|known| found.object.group <= known.begin)
                };
                if !group.is_some_and(is_known) {
                    group = Some((first, reader.find_group(first, options.rules).await?));
                }
                group.and_then(|(_, group)| group)
            };
            let Some(Group { begin, last, created_ms }) = counts else {
                // What comes last has not ended.
                self.reached.is_newest = true;
                break;
            };
            if matches!(self.wanted, WantedState::Time(asked) if created_ms > asked) {
                break;
            }
            if let WantedState::Sequence(asked) = self.wanted
                && found.object.catch_up
                && asked < last
                && last >= first
            {
                return Err(ReplicaError::InCatchUp { asked, first, last });
            }
            if found.object.group == begin {
                let to = self.last_request();
                take(&found.object, to).await?;
                if found.object.ends {
                    self.reached.sequence = found.object.last.min(to);
                    if last >= first {
                        self.reached.created_ms = created_ms;
                    }
                }
                is_within = !found.object.ends;
            }
        }
        if is_within && !self.drops(ReplicaMutant::PartialGroupCounts) {
            return Err(ReplicaError::Outrun);
        }
        let is_there = match self.wanted {
            WantedState::Newest => true,
            WantedState::Sequence(asked) => asked > 0 && self.reached.sequence == asked,
            WantedState::Time(_) => self.reached.sequence > 0,
        };
        if is_there { Ok(()) } else { Err(self.replica.out_of_range(self.wanted).await) }
    }

    /// The map of the wanted state.
    pub(crate) async fn read_map(&mut self) -> Result<ReplicaMap, ReplicaError> {
        let ReplicaState { mut map, end, .. } = self.choose_checkpoint().await?;
        self.follow(end, async |object, to| {
            map.apply(object, to);
            Ok(())
        })
        .await?;
        Ok(map)
    }

    fn last_request(&self) -> u64 {
        match self.wanted {
            WantedState::Sequence(asked) => asked,
            WantedState::Newest | WantedState::Time(_) => u64::MAX,
        }
    }

    fn is_there(&self) -> bool {
        matches!(self.wanted, WantedState::Sequence(asked) if self.reached.sequence >= asked)
    }
}
