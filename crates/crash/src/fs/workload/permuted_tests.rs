//! Crash tests as CrashMonkey makes them: a workload is played once, and what it writes is logged, from the mount to some time
//! behind its end, before an unmount. What a power cut leaves is a [`Permutation`] of that log.
//!
//! What is promised of a permutation is what was promised when its last epoch ended: a flush before that has ended an epoch, too,
//! of which everything is left.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::rc::Rc;
use std::time::Duration;

use weir_runtime::Random;
use weir_storage::{BLOCK_BYTES, Lba};

use super::crash_tests::Tally;
use super::crashmonkey_check::CrashMonkeyCheck;
use super::found::Found;
use super::parse::Workload;
use super::perform::PlayError;
use super::session::Session;
use super::setup::Bench;
use crate::fs::ground::bytes_of;
use crate::fs::history::History;
use crate::fs::judges::Judges;
use crate::permuter::{Overlaps, Permutation, Permuter};
use crate::request_log::Request;

/// How long requests are logged behind the workload. CrashMonkey's `WRITE_DELAY` is 20 s, where it lets Linux write back what is
/// dirty for 5 s; here that takes 30 s, its default, and a commit 5 s.
const WRITE_DELAY: Duration = Duration::from_secs(40);

/// What a play has written.
pub(super) struct Log {
    /// The disk when the log begins, and what the filesystem shows then.
    base: Vec<u8>,
    before: Found,
    requests: Vec<Request>,
    /// What was done and promised when each epoch ended.
    moments: Vec<History>,
    random: Random,
}

impl Log {
    /// A hash of what a permutation leaves: equal content has an equal one.
    fn hash_of(&self, permutation: &Permutation) -> u64 {
        let written = permutation.requests.iter().filter_map(|nth| self.requests[*nth].block.as_ref());
        let newest: BTreeMap<Lba, &Rc<[u8]>> = written.map(|(block, bytes)| (*block, bytes)).collect();
        let mut hasher = DefaultHasher::new();
        for (block, bytes) in newest {
            let from = block.0 as usize * BLOCK_BYTES;
            if self.base.get(from..from + BLOCK_BYTES) != Some(bytes) {
                (block, bytes).hash(&mut hasher);
            }
        }
        hasher.finish()
    }

    /// Judges so many permutations.
    pub(super) fn test(
        &self,
        tests: u64,
        overlaps: Overlaps,
        judges: Judges,
        check: CrashMonkeyCheck,
    ) -> Result<Tally, String> {
        let permuter = Permuter::new(&self.requests, overlaps, self.random.clone());
        let (mut tally, mut known) = (Tally::default(), BTreeMap::new());
        for permutation in permuter.take(usize::try_from(tests).unwrap_or(usize::MAX)) {
            let state = self.hash_of(&permutation);
            let judgement = match known.entry((state, permutation.epoch)) {
                Entry::Occupied(judgement) => *judgement.get(),
                Entry::Vacant(place) => {
                    let mut image = self.base.clone();
                    permutation.apply(&self.requests, &mut image);
                    let moment = &self.moments[permutation.epoch];
                    let is_allowed = |found: &Found| moment.judge(&found.0).is_ok();
                    let passes = |found: &Found| check.passes(&self.before, found);
                    *place.insert(judges.test(&image, &is_allowed, &passes)?)
                }
            };
            tally.add(judgement, state);
        }
        Ok(tally)
    }
}

/// Plays a workload once, with a log.
pub(super) fn log_play(bench: &Bench, workload: &Workload) -> Result<Log, PlayError> {
    bench.play_logged(true, async |session: &Session| {
        let base = bytes_of(&*session.ground.storage()).await;
        let base = base.map_err(|error| PlayError::Ground(error.to_string()))?;
        let before = session.read_content().await.map_err(|defect| PlayError::Ground(defect.what))?;
        let logged = Rc::new(RefCell::new((Vec::new(), Vec::new())));
        let moment = {
            let history = Rc::clone(&session.judge.history);
            move || history.borrow().clone()
        };
        if let Some(storage) = &session.logged {
            let (logged, moment) = (Rc::clone(&logged), moment.clone());
            storage.send_to(move |request| {
                let (requests, moments) = &mut *logged.borrow_mut();
                if request.ends_epoch {
                    moments.push(moment());
                }
                requests.push(request);
            });
        }
        for operation in &workload.operations {
            session.perform(operation).await?;
        }
        session.sleep(WRITE_DELAY).await;
        if let Some(storage) = &session.logged {
            storage.stop();
        }
        let (requests, mut moments) = logged.take();
        moments.push(moment());
        let random = session.handle.random("permutations");
        Ok(Log { base, before, requests, moments, random })
    })?
}

#[cfg(test)]
mod tests {
    use crate::Setup;
    use crate::fs::judges::Condition;

    use super::*;

    fn log(engine: &str) -> Log {
        let setup = Setup { check: 0, checksums: false, ..Setup::named("legacy", engine).unwrap() };
        let workload = "create /a\nappend /a 5000\nfsync /a\nrename /a /b\nfsync /b\n".parse().unwrap();
        log_play(&setup.prepare().unwrap(), &workload).unwrap()
    }

    fn tally(log: &Log, overlaps: Overlaps) -> Tally {
        log.test(200, overlaps, Judges::OURS, CrashMonkeyCheck::CreateDelete).unwrap()
    }

    /// The canary: of the same requests as one epoch, something is wrong.
    #[test]
    fn a_log_without_its_flushes_fails() {
        for overlaps in Overlaps::ALL {
            let mut log = log("jbd2");
            let whole = tally(&log, overlaps);
            assert!(whole.tests() > 20 && whole.all(Condition::Clean) == whole.tests(), "{whole:?}");
            log.requests.retain(|request| request.block.is_some());
            log.requests.iter_mut().for_each(|request| request.ends_epoch = false);
            log.moments.drain(..log.moments.len() - 1);
            let flat = tally(&log, overlaps);
            assert!(flat.all(Condition::Failed) > flat.tests() / 2, "the model: {flat:?}");
            assert!(flat.tested(Condition::Clean) < flat.tests(), "a test: {flat:?}");
        }
    }

    #[test]
    fn tests_are_a_function_of_the_seed() {
        let again = || tally(&log("jbd2-nobarrier"), Overlaps::AsDrawn);
        assert_eq!(again(), again());
    }

    /// One moment for each epoch, the last of which nothing ends.
    #[test]
    fn each_epoch_has_its_promises() {
        for engine in ["jbd2", "jbd2-nobarrier"] {
            let log = log(engine);
            let epochs = 1 + log.requests.iter().filter(|request| request.ends_epoch).count();
            assert_eq!(log.moments.len(), epochs, "{engine}");
        }
    }
}
