//! What a test stands on: a device and an engine by name, and a new filesystem there, made once and used by every play.

use std::rc::Rc;

use weir_fs::{Engine, JournalMode, MountOptions, Needs, UnknownEngine};
use weir_runtime::{Runtime, Simulation};
use weir_storage::BLOCK_BYTES;

use super::judge::Recoveries;
use crate::fs::FsGround;
use crate::fs::ground::{DiskTraits, Ground, GroundError, Left, new_image};

/// Why a test cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// No ground has this name.
    #[error("unknown ground {0:?}: the grounds are {list}", list = FsGround::ALL.map(FsGround::name).join(", "))]
    Ground(String),
    /// No engine has this name.
    #[error(transparent)]
    Engine(#[from] UnknownEngine),
    /// The ground tears no blocks so.
    #[error(
        "a power cut on {ground} cannot tear blocks at multiples of {bytes} bytes: use 4096, or 512 on adversary or legacy"
    )]
    Tear {
        /// Its name.
        ground: &'static str,
        /// Where it should tear.
        bytes: u32,
    },
    /// The ground does not take a filesystem.
    #[error("cannot make a filesystem on the ground: {0}")]
    Format(String),
}

/// What decides a test, beside its workload.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// What the filesystem stands on.
    pub ground: FsGround,
    /// How it is mounted: the engine and the journal mode, and for mutants its rules.
    pub options: MountOptions,
    /// Determines the ground, and all that is drawn.
    pub seed: u64,
    /// All states are judged of a power cut that may leave at most so many.
    pub exhaustive_max: u64,
    /// States drawn of each other power cut.
    pub samples: u32,
    /// Of this many states, one is checked by our own check of the format; 0 for none.
    pub check: u64,
    /// Of this many states, one is shown to e2fsck and the kernel, where they are installed; 0 for none.
    pub outside: u64,
    /// Of this many states, one has the power cut again at every event of its recovery; 0 for none. See
    /// [`Cut::cut_recovery`](super::Cut::cut_recovery).
    pub cut_recovery: u64,
    /// A power cut tears what the disk writes at multiples of so many bytes: 4,096, so that it tears no block, or 512 on
    /// the grounds `adversary` and `legacy`. What is torn outside judges see only when we have recovered it.
    pub tear_bytes: u32,
    /// Whether the filesystem has checksums of metadata and journal.
    pub checksums: bool,
}

impl Setup {
    /// A test on this ground with this engine, in journal mode ordered: all states are judged of cuts with up to 16, and 6
    /// are drawn of others; one of 8 states is checked, none is shown outside. No block is torn, and no recovery is cut.
    #[must_use]
    pub fn new(ground: FsGround, engine: Engine) -> Setup {
        let options =
            MountOptions { engine: Some(engine), mode: JournalMode::Ordered, ..MountOptions::default() };
        Setup {
            ground,
            options,
            seed: 1,
            exhaustive_max: 16,
            samples: 6,
            check: 8,
            outside: 0,
            cut_recovery: 0,
            tear_bytes: BLOCK_BYTES as u32,
            checksums: true,
        }
    }

    /// The same by names: of the grounds [`FsGround::ALL`], and of the engines [`Engine::ALL`].
    ///
    /// # Errors
    /// [`SetupError`] for a name that is not known.
    pub fn named(ground: &str, engine: &str) -> Result<Setup, SetupError> {
        let found = FsGround::from_name(ground).ok_or_else(|| SetupError::Ground(ground.to_owned()))?;
        Ok(Setup::new(found, engine.parse()?))
    }

    /// Makes the filesystem, and mounts it once.
    ///
    /// # Errors
    /// [`SetupError::Tear`], and [`SetupError::Format`].
    pub fn prepare(self) -> Result<Bench, SetupError> {
        let is_torn = self.tear_bytes == 512 && self.ground.can_tear();
        if self.tear_bytes != BLOCK_BYTES as u32 && !is_torn {
            return Err(SetupError::Tear { ground: self.ground.name(), bytes: self.tear_bytes });
        }
        let base = self.format().map_err(SetupError::Format)?;
        let bench = Bench { setup: self, base, recoveries: Rc::new(Recoveries::new(self)) };
        // An engine may not stand there.
        bench.play(async |_| ()).map_err(|error| SetupError::Format(error.to_string()))?;
        Ok(bench)
    }

    pub(super) fn engine(&self) -> Engine {
        self.options.engine.unwrap_or(Engine::Jbd2 { barrier: true })
    }

    fn format(&self) -> Result<Left, String> {
        let image = new_image(self.checksums)?;
        let runtime = Runtime::simulated(Simulation { seed: self.seed, ..Simulation::default() });
        let handle = runtime.handle();
        let made = runtime.block_on(async {
            let mut random = handle.random("ground");
            let (tear_bytes, packs) = (self.tear_bytes, self.engine().facts().needs == Needs::Packed);
            let traits = DiskTraits { tear_bytes, packs, ..DiskTraits::PLAIN };
            let ground = Ground::new(self.ground, &handle, &mut random, &image, None, traits).await?;
            let mut left = None;
            // Everything is durable, so this is all that may be left.
            ground.visit_states(&mut |may_leave| left = Some(may_leave.draw(&mut random)));
            Ok::<_, GroundError>(left)
        });
        let left = made.map_err(|stalled| stalled.to_string())?.map_err(|error| error.to_string())?;
        left.ok_or_else(|| "the state of the ground cannot be read".to_owned())
    }
}

/// A ground that holds a new filesystem, for any number of plays, one after the other.
///
/// ```
/// use weir_crash::{Setup, Workload};
///
/// let bench = Setup::named("legacy", "jbd2")?.prepare()?;
///
/// // A workload, with the power cut at every event, and everything judged by the model.
/// let workload: Workload = "create /a\nappend /a 5000\nfsync /a\n".parse()?;
/// let swept = bench.sweep(&workload)?;
/// assert!(swept.failure.is_none() && swept.totals.states > 5);
///
/// // By hand: perform operations, promise something, cut the power, recover, and judge.
/// bench.play(async |session| {
///     session.perform(&"create /a".parse()?).await?;
///     session.perform(&"fsync /a".parse()?).await?;
///     session.promise("what was synchronised is there", |found| found.is_there("/a"));
///     for cut in session.cut_now() {
///         assert!(cut.recover()?.is_there("/a"));
///         cut.judge()?;
///     }
///     Ok::<_, Box<dyn std::error::Error>>(())
/// })??;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub struct Bench {
    pub(super) setup: Setup,
    pub(super) base: Left,
    pub(super) recoveries: Rc<Recoveries>,
}

#[cfg(test)]
mod tests {
    use weir_fs::Conflicts;

    use super::*;

    /// A ground says by itself whether dual-mode journaling stands there, and the mount says the same.
    #[test]
    fn every_ground_takes_its_default_engine_and_dual_mode_if_it_keeps_barriers() {
        let dual = Engine::Dual { conflicts: Conflicts::Copy };
        for ground in FsGround::ALL {
            let name = ground.name();
            assert_eq!(FsGround::from_name(name), Some(ground));
            assert!(Setup::new(ground, ground.default_engine()).prepare().is_ok(), "{name}");
            assert_eq!(Setup::new(ground, dual).prepare().is_ok(), ground.keeps_barriers(), "{name}");
        }
    }
}
