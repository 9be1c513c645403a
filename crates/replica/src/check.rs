//! *Checking* a replica: everything in it is read and verified, and what is missing or damaged is listed.

use weir_storage::BLOCK_BYTES;
use weir_volume::content_checksum;

use crate::checkpoint::Manifest;
use crate::error::{Defect, ReplicaError};
use crate::kept_state::{KeptRange, KeptState};
use crate::key::checkpoint_key;
use crate::log_object::LogObject;
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
    /// The fault of one object that an error tells of, if it does.
    pub(crate) fn of_object(error: &ReplicaError) -> Option<Fault> {
        match error {
            ReplicaError::Store(StoreError::Missing(key))
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

impl Replica {
    /// Reads everything, and compares each checkpoint with the log.
    ///
    /// # Errors
    /// [`ReplicaError`] if the store refuses; what is wrong with single objects is in the report.
    pub async fn check(&self) -> Result<CheckReport, ReplicaError> {
        let Replica { access, envelopes, options, .. } = self;
        let mut report = CheckReport::default();
        let mut states = Vec::new();
        for sequence in list_checkpoints(access).await? {
            report.checkpoints += 1;
            let manifest = match Manifest::read(access, envelopes, sequence).await {
                Ok(manifest) => manifest,
                Err(error) => {
                    report.note(error)?;
                    continue;
                }
            };
            match manifest.load(access, envelopes, options.rules).await {
                Ok(state) => states.push((state, manifest.created_ms)),
                Err(error) => report.note(error)?,
            }
        }
        let start = ReplicaState::empty(options.rules);
        let reader = LogReader::begin(access, envelopes, &start.end).await?;
        // Collection deletes the oldest object first: where that is gone, so may others be.
        let is_complete = match reader.read(start.end.next).await {
            Ok(found) => found.is_some() || states.is_empty(),
            Err(error) => {
                report.note(error)?;
                states.is_empty()
            }
        };
        let mut state = start;
        if !is_complete {
            let created_ms = states[0].1;
            state = states[0].0.clone();
            report.note_state(KeptState { sequence: state.end.last(), created_ms });
        }
        self.check_named(&state, &mut report).await?;
        if let Err(error) = self.check_log(&mut state, &states, &mut report).await {
            report.note(error)?;
        }
        Ok(report)
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
        checkpoints: &[(ReplicaState, u64)],
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
            for (checkpoint, _) in checkpoints.iter().filter(|(checkpoint, _)| checkpoint.end == state.end) {
                if checkpoint.map != state.map {
                    let key = checkpoint_key(state.end.last());
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
