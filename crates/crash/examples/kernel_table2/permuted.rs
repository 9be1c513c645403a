//! A cell of the table as CrashMonkey makes it: the workload is run once, what the kernel writes and flushes is logged, and what is
//! left are permutations of that log.
//!
//! CrashMonkey sleeps 6 s behind each deletion, longer than it lets dirty blocks wait for writeback, and 20 s at the end. Here
//! the kernel is told to write home instead.

use std::error::Error;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::atomic::Ordering;

use tempfile::TempDir;
use weir_crash::{Found, Judges, Operation, Overlaps, Permutation, Permuter, Request, Tally};
use weir_runtime::{Runtime, Simulation};

use crate::cell::{Run, SIZE};
use crate::disk::{Disk, Mounted};
use crate::scenario::{Expected, play, promises};

/// A step, by the lengths of the log when it began and when it had returned.
struct Step {
    began: u64,
    returned: u64,
    promises: bool,
}

/// What the kernel has written, and when.
struct Log {
    base: Vec<u8>,
    requests: Vec<Request>,
    /// Where in the log each request ends.
    ends: Vec<u64>,
    steps: Vec<Step>,
    /// What is there behind each step.
    after: Vec<Expected>,
}

impl Log {
    /// Where in the log each epoch ends.
    fn epochs(&self) -> Vec<u64> {
        let ended = self.requests.iter().zip(&self.ends).filter(|(request, _)| request.ends_epoch);
        ended.map(|(_, end)| *end).chain([u64::MAX]).collect()
    }

    /// What may be there when an epoch ends at this place: it is that behind the last step which was promised, or a later one.
    fn allowed(&self, end: u64) -> &[Expected] {
        let promised = self.steps.iter().rposition(|step| step.promises && step.returned < end);
        let begun = self.steps.iter().filter(|step| step.began < end).count();
        &self.after[promised.map_or(0, |nth| nth + 1)..=begun]
    }
}

impl Run<'_> {
    /// Runs once, and judges as many permutations as there shall be images.
    pub fn run_permuted(&self, overlaps: Overlaps) -> Result<Tally, Box<dyn Error>> {
        let log = self.log()?;
        let runtime = Runtime::simulated(Simulation { seed: self.seed, ..Simulation::default() });
        let permuter = Permuter::new(&log.requests, overlaps, runtime.handle().random("permutations"));
        let (epochs, requests) = (log.epochs(), log.requests.len());
        eprintln!("{}: {requests} requests, {} epochs", self.cell, permuter.epochs());
        let before = self.before(&log)?;
        let mut tally = Tally::default();
        for permutation in permuter.take(self.images as usize) {
            let mut image = log.base.clone();
            permutation.apply(&log.requests, &mut image);
            let allowed = log.allowed(epochs[permutation.epoch]);
            let is_allowed = |found: &Found| allowed.iter().any(|after| after.is(found));
            let passes = |found: &Found| self.cell.scenario.check().passes(&before, found);
            let judgement = self.judges.test(&image, &is_allowed, &passes)?;
            let mut hasher = DefaultHasher::new();
            image.hash(&mut hasher);
            tally.add(judgement, hasher.finish());
            if self.stop.load(Ordering::Relaxed) {
                return Err("interrupted".into());
            }
        }
        Ok(tally)
    }

    /// What a mount shows of the disk as it was when the log began.
    fn before(&self, log: &Log) -> Result<Found, Box<dyn Error>> {
        let found = std::cell::RefCell::new(None);
        Judges::OURS.judge(&log.base, &|shown| {
            *found.borrow_mut() = Some(shown.clone());
            true
        })?;
        Ok(found.take().ok_or("what the workload begins with cannot be read")?)
    }

    /// Runs once.
    fn log(&self) -> Result<Log, Box<dyn Error>> {
        let place = TempDir::new()?;
        let at = place.path().join("files");
        std::fs::create_dir(&at)?;
        let disk = Disk::serve(self.weir, place.path(), SIZE)?;
        let before = self.set_up(&disk, &at)?;
        let mounted = Mounted::new(&disk, self.cell.options(), &at)?;
        let from = disk.log_bytes()?;
        let (mut steps, mut after) = (Vec::new(), vec![before]);
        for step in &self.cell.scenario.run()?.operations {
            let began = disk.log_bytes()?;
            play(step, mounted.at)?;
            let promises = promises(step) && self.cell.barriers;
            steps.push(Step { began, returned: disk.log_bytes()?, promises });
            let mut expected = after.last().cloned().unwrap_or_default();
            expected.change(step);
            after.push(expected);
            if matches!(step, Operation::Sync) {
                disk.write_home()?;
            }
        }
        disk.write_home()?;
        let log = disk.log(from..disk.log_bytes()?)?;
        // The disk was new, and what its cache holds is not read through it.
        let mut base = vec![0; disk.read()?.len()];
        let (written, _): (Vec<_>, Vec<_>) = disk.log(0..from)?.into_iter().unzip();
        Permutation { epoch: 0, requests: (0..written.len()).collect() }.apply(&written, &mut base);
        let (requests, ends) = log.into_iter().unzip();
        Ok(Log { base, requests, ends, steps, after })
    }
}
