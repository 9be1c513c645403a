//! *Kept states*: which states of a replica can be restored, from the oldest to the newest.

use crate::check::Fault;
use crate::checkpoint::Manifest;
use crate::error::ReplicaError;
use crate::kept_state::{KeptRange, KeptState, WantedState};
use crate::key::{LOG, LogPlace};
use crate::log_object::ChainEnd;
use crate::log_reader::{Group, LogReader};
use crate::reader::{Replica, list_checkpoints};

impl Replica {
    /// Which states can be restored; `None` while the first upload has not ended. What the store does not list yet is left out.
    ///
    /// # Errors
    /// [`ReplicaError`]: what is missing or damaged, or what the store answered.
    pub async fn kept_range(&self) -> Result<Option<KeptRange>, ReplicaError> {
        let Replica { access, envelopes, .. } = self;
        let mut range = None;
        let checkpoints = list_checkpoints(access).await?;
        let start = ChainEnd::start().next;
        let reader = LogReader::begin(access, envelopes, &ChainEnd::start()).await?;
        if reader.read(start).await?.is_some() {
            range = KeptRange::with(range, state_of(self.find_group(&reader, start.first).await?));
        }
        let oldest = self.first_readable(checkpoints.iter()).await?;
        let newest = self.first_readable(checkpoints.iter().rev()).await?;
        for state in [oldest, newest].into_iter().flatten() {
            range = KeptRange::with(range, state);
        }
        let keys = access.list(LOG, "").await?;
        let mut firsts: Vec<u64> =
            keys.iter().filter_map(|key| LogPlace::from_key(key)).map(|place| place.first).collect();
        firsts.dedup();
        let newest_known = range.map_or(0, |range| range.last.sequence);
        for first in firsts.into_iter().rev().take_while(|first| *first > newest_known) {
            let state = state_of(self.find_group(&reader, first).await?);
            if state.sequence >= first {
                range = KeptRange::with(range, state);
                break;
            }
        }
        Ok(range)
    }

    /// The state of the first of these checkpoints that can be read.
    async fn first_readable(
        &self,
        checkpoints: impl Iterator<Item = &u64>,
    ) -> Result<Option<KeptState>, ReplicaError> {
        for sequence in checkpoints {
            match Manifest::read(&self.access, &self.envelopes, *sequence).await {
                Ok(Manifest { created_ms, .. }) => {
                    return Ok(Some(KeptState { sequence: *sequence, created_ms }));
                }
                Err(error) if Fault::of_object(&error).is_some() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// That the wanted state is none of those that are kept, and which are.
    pub(crate) async fn out_of_range(&self, asked: WantedState) -> ReplicaError {
        match self.kept_range().await {
            Ok(Some(kept)) => ReplicaError::OutOfRange { asked, kept },
            Ok(None) => ReplicaError::NoState,
            Err(error) => error,
        }
    }

    async fn find_group(&self, reader: &LogReader<'_>, first: u64) -> Result<Option<Group>, ReplicaError> {
        reader.find_group(first, self.options.rules).await
    }
}

/// The state after a group; that before all requests if there is none.
fn state_of(group: Option<Group>) -> KeptState {
    group.map_or_else(KeptState::default, |Group { last, created_ms, .. }| KeptState {
        sequence: last,
        created_ms,
    })
}
