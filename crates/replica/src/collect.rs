//! *Collection*: deleting what no kept state needs (R7). Kept are the checkpoints that are young enough, the newest one before these,
//! so that every moment of that time has one before it, and the log from there on; and the objects that this oldest checkpoint
//! reads. What a later one reads of the log before is a part of that.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tracing::{info, warn};
use weir_storage::Rules;

use crate::access::Access;
use crate::checkpoint::Manifest;
use crate::envelope::Envelopes;
use crate::error::ReplicaError;
use crate::key::{CHECKPOINTS, LOG, LogPlace, MAPS, checkpoint_from_key, map_from_key};
use crate::mutants::ReplicaMutant;
use crate::options::ReplicaOptions;
use crate::steady_date::SteadyDate;

/// Deletions that are under way at one time.
const DELETIONS_AT_ONCE: usize = 8;

/// The collection of one writer, which remembers what it has read.
pub(crate) struct Collector {
    access: Rc<Access>,
    envelopes: Rc<Envelopes>,
    keep: Duration,
    date: SteadyDate,
    rules: Rules<ReplicaMutant>,
    /// When the oldest checkpoints were made, in milliseconds of Unix time: those that were read and are there.
    ages: RefCell<BTreeMap<u64, u64>>,
    /// Checkpoints that cannot be read, though their first objects may: an older one is kept in the place of each.
    unreadable: RefCell<Vec<u64>>,
    /// All is deleted that the checkpoint as of this request does not need.
    collected: Cell<u64>,
}

impl Collector {
    pub(crate) fn new(access: &Rc<Access>, envelopes: &Rc<Envelopes>, options: &ReplicaOptions) -> Collector {
        Collector {
            access: Rc::clone(access),
            envelopes: Rc::clone(envelopes),
            keep: if options.rules.drops(ReplicaMutant::KeepIgnored) { Duration::ZERO } else { options.keep },
            date: SteadyDate::new(envelopes.handle(), options.keep),
            rules: options.rules,
            ages: RefCell::default(),
            unreadable: RefCell::default(),
            collected: Cell::default(),
        }
    }

    /// These checkpoints cannot be read.
    pub(crate) fn set_unreadable(&self, sequences: &[u64]) {
        self.unreadable.replace(sequences.to_vec());
    }

    /// Deletes what no kept state needs, some objects at one time. If that ends before all is deleted, the next one goes on.
    pub(crate) async fn collect(&self) -> Result<(), ReplicaError> {
        let kept = self.find_kept(self.date.now_ms()).await?.filter(|kept| *kept > self.collected.get());
        let Some(kept) = kept else { return Ok(()) };
        let manifest = Manifest::read(&self.access, &self.envelopes, kept).await?;
        let mut named = match self.rules.drops(ReplicaMutant::NamedCollected) {
            true => Vec::new(),
            false => manifest.read_table(&self.access, &self.envelopes, self.rules).await?,
        };
        named.sort_unstable();
        // What names objects goes before the objects: what is left is whole at each moment.
        let is_older = |sequence: Option<u64>| sequence.map(|sequence| sequence < kept);
        let mut deleted = self.sweep(CHECKPOINTS, |key| is_older(checkpoint_from_key(key)), |_| true).await?;
        deleted += self.sweep(MAPS, |key| is_older(map_from_key(key)), |_| true).await?;
        let is_before = |key: &str| LogPlace::from_key(key).map(|place| place.first <= kept);
        let is_unneeded =
            |key: &str| LogPlace::from_key(key).is_some_and(|place| named.binary_search(&place).is_err());
        deleted += self.sweep(LOG, is_before, is_unneeded).await?;
        self.collected.set(kept);
        if deleted > 0 {
            info!(name: "replica_collected", objects = deleted, kept_from = kept, "collected");
        }
        Ok(())
    }

    /// The newest of the checkpoints that are too old, and before which none is young enough. So it reads the oldest ones only, and each
    /// of them once. What is dated later than now says nothing of its age: a clock was wrong, and others are right.
    async fn find_kept(&self, now_ms: u64) -> Result<Option<u64>, ReplicaError> {
        let keep_ms = u64::try_from(self.keep.as_millis()).unwrap_or(u64::MAX);
        let young = now_ms.saturating_sub(keep_ms).saturating_add(1)..=now_ms;
        let mut kept = None;
        let (mut after, mut is_over) = (String::new(), false);
        while !is_over {
            let keys = self.access.list_page(CHECKPOINTS, &after).await?;
            let Some(last) = keys.last() else { break };
            after.clone_from(last);
            for sequence in keys.iter().filter_map(|key| checkpoint_from_key(key)) {
                match self.age_of(sequence).await? {
                    Some(created_ms) if young.contains(&created_ms) => {
                        is_over = true;
                        break;
                    }
                    Some(created_ms) if created_ms < *young.start() => kept = Some(sequence),
                    _ => {}
                }
            }
        }
        self.ages.borrow_mut().retain(|sequence, _| kept.is_none_or(|kept| *sequence >= kept));
        Ok(kept)
    }

    /// When a checkpoint was made; `None` of one that cannot be read, so that nothing is kept for it.
    async fn age_of(&self, sequence: u64) -> Result<Option<u64>, ReplicaError> {
        let known = self.ages.borrow().get(&sequence).copied();
        if known.is_some() {
            return Ok(known);
        }
        if self.unreadable.borrow().contains(&sequence) {
            return Ok(None);
        }
        match Manifest::read(&self.access, &self.envelopes, sequence).await {
            Ok(Manifest { created_ms, .. }) => {
                self.ages.borrow_mut().insert(sequence, created_ms);
                Ok(Some(created_ms))
            }
            Err(error @ ReplicaError::Store(_)) if !error.is_missing() => Err(error),
            // Another collection has deleted it, and the list does not know yet.
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => {
                warn!(name: "checkpoint_unreadable", %error, "an older checkpoint is kept in its place");
                Ok(None)
            }
        }
    }

    /// Deletes the objects with this prefix that are old and unneeded, and returns how many. Those that are old come first.
    async fn sweep(
        &self,
        prefix: &str,
        is_old: impl Fn(&str) -> Option<bool>,
        is_unneeded: impl Fn(&str) -> bool,
    ) -> Result<u64, ReplicaError> {
        let (mut after, mut deleted) = (String::new(), 0);
        loop {
            let keys = self.access.list_page(prefix, &after).await?;
            let Some(last) = keys.last() else { return Ok(deleted) };
            after.clone_from(last);
            let unneeded = keys.iter().filter(|key| is_old(key) == Some(true) && is_unneeded(key));
            let mut unneeded = unneeded.map(String::as_str);
            // The oldest one alone: a reader takes it that others may be gone where that one is.
            if let Some(oldest) = unneeded.next() {
                self.access.delete(oldest).await?;
                deleted += 1;
            }
            let deletions = stream::iter(unneeded).map(|key| self.access.delete(key));
            let count = deletions.buffer_unordered(DELETIONS_AT_ONCE).try_fold(0, async |n, ()| Ok(n + 1));
            deleted += count.await?;
            if is_old(last) == Some(false) {
                return Ok(deleted);
            }
        }
    }
}
