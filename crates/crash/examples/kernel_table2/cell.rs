//! A cell of the table: a workload on a filesystem of one kind, run again and again, with the power cut at random moments.
//!
//! A run begins with the filesystem as the setup left it, durable. Its cuts are each at a moment drawn like this: one of
//! the steps, or the time behind the last, each as likely; and a delay from the step's begin, up to [`DELAY_US_MAX`]. The
//! disk draws what is left.

use std::error::Error;
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;
use weir_crash::{Found, Judges, Operation, Tally};
use weir_runtime::{Random, Runtime, Simulation};

use crate::disk::{Disk, MKFS, Mounted, run};
use crate::scenario::{Expected, Scenario, play, promises};

/// Cuts in one run, and steps between two of them at least on average: fewer cuts where a run is short.
const CUTS_MAX: usize = 8;
const STEPS_PER_CUT: usize = 5;
/// How long after the begin of a step the power is cut, at most.
const DELAY_US_MAX: u64 = 5_000;
/// The size of the disk: room for the smallest journal and as much again, as mkfs.ext4 wants it.
pub const SIZE: &str = "16M";
/// Features that the kernel of 3.10 did not have are left out.
const FEATURES: &str = "^orphan_file,^metadata_csum_seed";

/// A workload, and the filesystem that it runs on.
#[derive(Clone, Copy)]
pub struct Cell {
    pub scenario: Scenario,
    /// Mounted with barriers (EXT4-DR), or `nobarrier` (EXT4-OD).
    pub barriers: bool,
    pub checksums: bool,
}

impl fmt::Display for Cell {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let engine = if self.barriers { "EXT4-DR" } else { "EXT4-OD" };
        let checksums = if self.checksums { "metadata_csum" } else { "no checksums" };
        write!(to, "{} {engine} {checksums}", self.scenario)
    }
}

impl Cell {
    /// How it is mounted.
    pub fn options(&self) -> &'static str {
        if self.barriers { "barrier" } else { "nobarrier" }
    }
}

/// How a cell is run.
pub struct Run<'a> {
    pub cell: Cell,
    pub weir: &'a Path,
    pub judges: Judges,
    pub images: u64,
    pub seed: u64,
    pub stop: &'a AtomicBool,
}

/// An image that a power cut left, and the steps after one of which it has to be: those from the last that was promised
/// to the last that had begun.
struct Left {
    image: Vec<u8>,
    from: usize,
    to: usize,
}

impl Run<'_> {
    /// Runs until there are enough images, and judges each.
    pub fn run_cell(&self) -> Result<Tally, Box<dyn Error>> {
        let place = TempDir::new()?;
        let at = place.path().join("files");
        std::fs::create_dir(&at)?;
        let runtime = Runtime::simulated(Simulation { seed: self.seed, ..Simulation::default() });
        let mut random = runtime.handle().random("moments");
        let mut disk = Disk::serve(self.weir, place.path(), SIZE)?;
        let before = self.set_up(&disk, &at)?;
        let base = disk.read()?;
        let steps = self.cell.scenario.run()?.operations;
        let mut after = vec![before];
        for step in &steps {
            let mut expected = after.last().cloned().unwrap_or_default();
            expected.change(step);
            after.push(expected);
        }
        let mut tally = Tally::default();
        while tally.tests() < self.images {
            disk.restore(&base)?;
            let missing = (self.images - tally.tests()) as usize;
            for left in self.once(&mut disk, &at, &steps, &mut random)?.into_iter().take(missing) {
                let is_allowed =
                    |found: &Found| after[left.from..=left.to].iter().any(|after| after.is(found));
                let judgement = self.judges.judge(&left.image, &is_allowed)?;
                let mut hasher = DefaultHasher::new();
                left.image.hash(&mut hasher);
                tally.add(judgement, hasher.finish());
            }
            if self.stop.load(Ordering::Relaxed) {
                return Err("interrupted".into());
            }
        }
        Ok(tally)
    }

    /// Makes the filesystem and what the workload begins with, and says what that is.
    pub(crate) fn set_up(&self, disk: &Disk, at: &Path) -> Result<Expected, Box<dyn Error>> {
        let checksums = if self.cell.checksums { "metadata_csum" } else { "^metadata_csum" };
        let features = format!("{FEATURES},{checksums}");
        let device = disk.device().to_string_lossy().into_owned();
        run("mkfs.ext4", &[&MKFS[..], &["-O", &features, &device]].concat())?;
        let mounted = Mounted::new(disk, "barrier", at)?;
        let mut expected = Expected::default();
        for step in &self.cell.scenario.setup()?.operations {
            play(step, mounted.at)?;
            expected.change(step);
        }
        Ok(expected)
    }

    /// Runs the steps once, and cuts the power now and then.
    fn once(
        &self,
        disk: &mut Disk,
        at: &Path,
        steps: &[Operation],
        random: &mut Random,
    ) -> Result<Vec<Left>, Box<dyn Error>> {
        let mounted = Mounted::new(disk, self.cell.options(), at)?;
        let cuts = (steps.len() / STEPS_PER_CUT).clamp(1, CUTS_MAX);
        let mut moments: Vec<(usize, u64)> = (0..cuts)
            .map(|_| (random.below(steps.len() as u64 + 1) as usize, random.below(DELAY_US_MAX)))
            .collect();
        moments.sort_unstable();
        let (begun, promised) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            let player = scope.spawn(|| -> std::io::Result<()> {
                for (nth, step) in (1..).zip(steps) {
                    begun.store(nth, Ordering::SeqCst);
                    let played = play(step, mounted.at);
                    if played.is_err() {
                        begun.store(steps.len() + 1, Ordering::SeqCst);
                    }
                    played?;
                    if promises(step) && self.cell.barriers {
                        promised.store(nth, Ordering::SeqCst);
                    }
                }
                begun.store(steps.len() + 1, Ordering::SeqCst);
                Ok(())
            });
            let mut left = Vec::new();
            for (step, delay_us) in moments {
                while begun.load(Ordering::SeqCst) < step + 1 {
                    thread::yield_now();
                }
                thread::sleep(Duration::from_micros(delay_us));
                let from = promised.load(Ordering::SeqCst);
                let image = disk.cut()?;
                left.push(Left { image, from, to: begun.load(Ordering::SeqCst).min(steps.len()) });
            }
            player.join().map_err(|_| "the workload panicked")??;
            Ok(left)
        })
    }
}
