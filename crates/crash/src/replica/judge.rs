//! The judge of what a store and a disk hold together, in a runtime of its own.

use std::rc::Rc;

use weir_replica::{
    Fault, Objects, Replica, ReplicaError, ReplicaOptions, Restored, SimulatedStore, StoreFaults, Uploader,
    WantedState,
};
use weir_runtime::{Handle, Random, Runtime, Simulation};
use weir_storage::{AdversaryDisk, AdversaryOptions, BLOCK_BYTES, Capabilities, Discard, Image};
use weir_volume::{TapBounds, Volume, VolumeOptions};

use super::model::{Content, Model, read_content};

/// What is judged, and what was promised.
pub(super) struct Left<'a> {
    pub objects: &'a Objects,
    pub image: &'a Image,
    pub disk: AdversaryOptions,
    pub volume: VolumeOptions,
    pub bounds: TapBounds,
    pub options: ReplicaOptions,
    pub model: &'a Model,
    /// A request that can be restored, of the time that is kept.
    pub kept: u64,
    /// Requests from this one on can be restored, but those within a catch-up; 0 if there is none.
    pub kept_from: u64,
    /// Any other request.
    pub other: u64,
    /// A machine has been taken for dead, and went on.
    pub had_takeover: bool,
    /// A recovered volume goes on.
    pub goes_on: bool,
}

impl Left<'_> {
    /// Judges it. Returns how many states were restored.
    pub(super) fn judge(&self, random: &mut Random) -> Result<u64, String> {
        let seed = random.below(u64::MAX);
        let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
        let handle = runtime.handle();
        let ended = runtime.block_on(self.judge_in(&handle));
        ended.unwrap_or_else(|stalled| Err(stalled.to_string()))
    }

    async fn judge_in(&self, handle: &Handle) -> Result<u64, String> {
        let store = SimulatedStore::from_objects(handle, StoreFaults::default(), self.objects);
        let newest = match self.restore(handle, &store, WantedState::Newest).await {
            Ok((restored, content)) => {
                self.compare("the newest state", restored.sequence, &content)?;
                require_none_passed_over(&restored)?;
                restored.sequence
            }
            Err(ReplicaError::NoReplica) => 0,
            Err(error) => return Err(format!("the store cannot be restored: {error}")),
        };
        let promised = self.model.newest_shipped();
        if newest < promised {
            return Err(format!("the store has request {newest}, and was said to have {promised}"));
        }
        let flushed = self.model.newest_flushed();
        if newest < flushed {
            return Err(format!(
                "a flush to the store was acknowledged with request {flushed}, and that has {newest}"
            ));
        }
        let mut restores = 1;
        if self.kept > 0 {
            let kept = self.restore(handle, &store, WantedState::Sequence(self.kept)).await;
            let (restored, content) =
                kept.map_err(|error| format!("request {}, which is kept: {error}", self.kept))?;
            require_none_passed_over(&restored)?;
            self.compare("a kept state", self.kept, &content)?;
            restores += 1;
        }
        match self.restore(handle, &store, WantedState::Sequence(self.other)).await {
            Ok((restored, content)) => {
                self.compare("an earlier state", self.other, &content)?;
                // A checkpoint of a writer that was taken for dead may come when its map is collected.
                if !self.had_takeover {
                    require_none_passed_over(&restored)?;
                }
                restores += 1;
            }
            Err(error) if self.may_lack_other(newest, &error) => {}
            Err(error) => return Err(format!("request {}: {error}", self.other)),
        }
        self.recover(handle, store, newest).await?;
        Ok(restores)
    }

    /// Whether this may be why the other request is not restored.
    fn may_lack_other(&self, newest: u64, error: &ReplicaError) -> bool {
        let is_kept = self.kept_from > 0 && (self.kept_from..=newest).contains(&self.other);
        match error {
            ReplicaError::NoState | ReplicaError::NoReplica => newest == 0,
            ReplicaError::OutOfRange { .. } => !is_kept,
            ReplicaError::InCatchUp { .. } => !self.model.was_newest(self.other),
            // A checkpoint of a writer that was taken for dead may come when what it names is collected.
            error => error.is_missing() && self.had_takeover && !is_kept,
        }
    }

    /// What the disk has left is opened, and may go on.
    async fn recover(&self, handle: &Handle, store: SimulatedStore, newest: u64) -> Result<(), String> {
        let disk = AdversaryDisk::from_image(handle, self.disk.clone(), self.image);
        let volume = Volume::open(handle, disk, self.volume.clone()).await;
        let volume = Rc::new(volume.map_err(|error| format!("recovering the volume: {error}"))?);
        let recovered = volume.position().placed;
        if recovered < newest {
            return Err(format!(
                "the store has request {newest}, and a power cut leaves the disk {recovered}"
            ));
        }
        if !self.goes_on {
            return Ok(());
        }
        let failed = |error: ReplicaError| format!("going on after a power cut: {error}");
        let opened =
            Uploader::open(handle, volume.clone(), Rc::new(store.clone()), self.bounds, self.options.clone());
        let mut uploader = opened.await.map_err(failed)?;
        uploader.ship_all().await.map_err(failed)?;
        let (restored, content) = self.restore(handle, &store, WantedState::Newest).await.map_err(failed)?;
        if restored.sequence < recovered {
            return Err(format!("caught up to {}, and the volume is at {recovered}", restored.sequence));
        }
        if content != read_content(&*volume).await? {
            return Err("the store has caught up, and has not what the volume has".to_owned());
        }
        Ok(())
    }

    async fn restore(
        &self,
        handle: &Handle,
        store: &SimulatedStore,
        wanted: WantedState,
    ) -> Result<(Restored, Content), ReplicaError> {
        let replica = Replica::open(handle, Rc::new(store.clone()), self.options.clone()).await?;
        restore(handle, &replica, wanted).await
    }

    fn compare(&self, what: &str, sequence: u64, content: &Content) -> Result<(), String> {
        let expected = self.model.content_at(sequence).cloned().unwrap_or_default();
        if *content == expected {
            return Ok(());
        }
        Err(format!("{what}, request {sequence}, is {content:?}, and should be {expected:?}"))
    }
}

/// Nothing has damaged the store, so a checkpoint that cannot be read is one that was made wrong, also where the log takes its place.
fn require_none_passed_over(restored: &Restored) -> Result<(), String> {
    match restored.passed_over.first() {
        Some(Fault { what, .. }) => Err(format!("a checkpoint cannot be read: {what}")),
        None => Ok(()),
    }
}

/// Restores a state to a disk in memory, and reads it.
pub(super) async fn restore(
    handle: &Handle,
    replica: &Replica,
    wanted: WantedState,
) -> Result<(Restored, Content), ReplicaError> {
    let legacy = Capabilities::legacy(8, 4, BLOCK_BYTES as u32);
    let capabilities = Capabilities { discard: Discard::ReadsZero, share: true, ..legacy };
    let blocks = replica.descriptor().logical_blocks;
    let target =
        AdversaryDisk::new(handle, AdversaryOptions { blocks, capabilities, ..AdversaryOptions::default() });
    let restored = replica.restore(wanted, &*target).await?;
    // What nobody wrote is no content of any request, so it is noticed.
    let content = read_content(&*target).await.unwrap_or_else(|_| Content::from([(u32::MAX, 0)]));
    Ok((restored, content))
}
