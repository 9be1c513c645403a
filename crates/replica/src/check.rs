//! *Checking* a replica: everything in it is read and verified, and what is missing or damaged is listed.

use std::collections::VecDeque;

use weir_storage::BLOCK_BYTES;
use weir_volume::content_checksum;

use crate::checkpoint::Manifest;
use crate::error::{Defect, ReplicaError};
use crate::kept_state::{KeptRange, KeptState};
use crate::key::checkpoint_key;
use crate::log_object::{ChainEnd, LogObject};
use crate::log_reader::LogReader;
use crate::reader::{Replica, list_checkpoints};
use crate::state::ReplicaState;
use crate::store::StoreError;

/// What is wrong with a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The object.
    pub key: String,
    /// What is wrong with it.
    pub what: String,
}

/// What a check has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// What can be restored, as far as it is whole.
    pub kept: Option<KeptRange>,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Objects of the log that were read.
    pub objects: u64,
    /// Their bytes in the store.
    pub bytes: u64,
    /// What is missing or damaged.
    pub faults: Vec<Fault>,
}

impl Fault {
    /// The fault of the object that an error names; none if it names no object.
    pub(crate) fn of_object(error: &ReplicaError) -> Option<Fault> {
        match error {
            ReplicaError::Store(StoreError::Missing(key) | StoreError::Oversized { key, .. })
            | ReplicaError::Damaged { key, .. }
            | ReplicaError::Version { key, .. }
            | ReplicaError::Key(key) => Some(Fault { key: key.clone(), what: error.to_string() }),
            _ => None,
        }
    }
}

impl CheckReport {
    fn note_state(&mut self, state: KeptState) {
        self.kept = KeptRange::with(self.kept, state);
    }

    /// Takes note of a fault of one object. Another error ends the check.
    fn note(&mut self, error: ReplicaError) -> Result<(), ReplicaError> {
        let Some(fault) = Fault::of_object(&error) else { return Err(error) };
        if !self.faults.contains(&fault) {
            self.faults.push(fault);
        }
        Ok(())
    }
}

/// A checkpoint that was read without its map, and has not been compared yet.
struct Unmet {
    sequence: u64,
    created_ms: u64,
    end: ChainEnd,
}

impl Unmet {
    /// Whether it is of the place where a state ends.
    fn is_at(&self, end: &ChainEnd) -> bool {
        (self.end.next, self.end.hash) == (end.next, end.hash)
    }
}

impl Replica {
    /// Reads everything, and compares each checkpoint with the log. Two maps are in memory at most.
    ///
    /// # Errors
    /// [`ReplicaError`] if the store refuses; what is wrong with single objects is in the report.
    pub async fn check(&self) -> Result<CheckReport, ReplicaError> {
        let Replica { access, envelopes, options, .. } = self;
        let mut report = CheckReport::default();
        let mut unmet = VecDeque::new();
        for sequence in list_checkpoints(access).await? {
            report.checkpoints += 1;
            match Manifest::read(access, envelopes, sequence).await {
                Ok(manifest) => {
                    let (created_ms, end) = (manifest.created_ms, manifest.end());
                    unmet.push_back(Unmet { sequence, created_ms, end });
                }
                Err(error) => report.note(error)?,
            }
        }
        let mut state = ReplicaState::empty(options.rules);
        let reader = LogReader::begin(access, envelopes, &state.end).await?;
        // Collection deletes the oldest object first: where that is gone, so may others be.
        let mut is_complete = match reader.read(state.end.next).await {
            Ok(found) => found.is_some(),
            Err(error) => {
                report.note(error)?;
                false
            }
        };
        while !is_complete && let Some(oldest) = unmet.pop_front() {
            if let Some(found) = self.load_checkpoint(oldest.sequence, &mut report).await? {
                report.note_state(KeptState { sequence: oldest.sequence, created_ms: oldest.created_ms });
                state = found;
                is_complete = true;
            }
        }
        self.check_named(&state, &mut report).await?;
        let is_whole = match self.check_log(&mut state, &mut unmet, &mut report).await {
            Ok(()) => true,
            Err(error) => {
                report.note(error)?;
                false
            }
        };
        for Unmet { sequence, .. } in unmet {
            if self.load_checkpoint(sequence, &mut report).await?.is_some() && is_whole {
                let key = checkpoint_key(sequence);
                report.note(ReplicaError::Damaged { key, defect: Defect::Place })?;
            }
        }
        Ok(report)
    }

    /// Reads a checkpoint with its map; `None` if that is missing or damaged, which the report says.
    async fn load_checkpoint(
        &self,
        sequence: u64,
        report: &mut CheckReport,
    ) -> Result<Option<ReplicaState>, ReplicaError> {
        let Replica { access, envelopes, options, .. } = self;
        let read = async {
            let manifest = Manifest::read(access, envelopes, sequence).await?;
            manifest.load(access, envelopes, options.rules).await
        };
        match read.await {
            Ok(state) => Ok(Some(state)),
            Err(error) => {
                report.note(error)?;
                Ok(None)
            }
        }
    }

    /// Reads the objects that the oldest checkpoint names. What others name besides is in the log.
    async fn check_named(&self, state: &ReplicaState, report: &mut CheckReport) -> Result<(), ReplicaError> {
        for (place, blocks) in state.map.by_object() {
            let reader = LogReader::of_places(&self.access, &self.envelopes, [place]);
            let found = match reader.read(place).await {
                Ok(Some(found)) => found,
                Ok(None) => {
                    report.note(StoreError::Missing(place.key()).into())?;
                    continue;
                }
                Err(error) => {
                    report.note(error)?;
                    continue;
                }
            };
            report.objects += 1;
            report.bytes += found.bytes;
            let is_named = |block: usize, checksum: u32| {
                found.object.block(block).is_some_and(|data| content_checksum(data) == checksum)
            };
            if !blocks.iter().all(|(_, content)| is_named(content.block as usize, content.checksum)) {
                report.note(ReplicaError::Damaged { key: place.key(), defect: Defect::Names })?;
            }
        }
        Ok(())
    }

    async fn check_log(
        &self,
        state: &mut ReplicaState,
        unmet: &mut VecDeque<Unmet>,
        report: &mut CheckReport,
    ) -> Result<(), ReplicaError> {
        let mut reader = LogReader::begin(&self.access, &self.envelopes, &state.end).await?;
        while let Some(found) = reader.next_behind(&state.end).await? {
            report.objects += 1;
            report.bytes += found.bytes;
            let place = found.object.place;
            let damaged = |defect| ReplicaError::Damaged { key: place.key(), defect };
            if !has_its_blocks(&found.object) {
                report.note(damaged(Defect::Content))?;
            }
            state.take(found.object.clone(), found.hash)?;
            if state.end.open_group.is_none() && state.end.last() >= place.first {
                let sequence = state.end.last();
                report.note_state(KeptState { sequence, created_ms: found.created_ms });
            }
            let met = unmet.iter().position(|checkpoint| checkpoint.is_at(&state.end));
            if let Some(Unmet { sequence, .. }) = met.and_then(|at| unmet.remove(at)) {
                let found = self.load_checkpoint(sequence, report).await?;
                if found.is_some_and(|found| found.map != state.map) {
                    let key = checkpoint_key(sequence);
                    report.note(ReplicaError::Damaged { key, defect: Defect::Content })?;
                }
            }
        }
        Ok(())
    }
}

/// Whether each block of an object has the checksum that its entry says.
fn has_its_blocks(object: &LogObject) -> bool {
    let checksums = object.entries.iter().filter_map(|entry| match entry.change {
        weir_volume::Change::Write(checksum) => Some(checksum),
        _ => None,
    });
    object.data.chunks_exact(BLOCK_BYTES).zip(checksums).all(|(block, sum)| content_checksum(block) == sum)
}
