//! The benchmark of everyday work: every job is done on the host's filesystem and on a mount, one after the other, in rounds.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;
use weir_runtime::Handle;

use crate::error::BenchError;
use crate::everyday::job::{Job, failed, pack, prepare_root};
use crate::everyday::plan::EverydayPlan;
use crate::everyday::report::EverydayReport;
use crate::everyday::requests::RequestCounter;
use crate::everyday::tree::make_tree;
use crate::machine::{Load, Machine, Usage, drop_caches};
use crate::mounts::{Door, Served, make_volume};
use crate::plan::BenchOptions;
use crate::rounds::{Progress, Steps};
use crate::scratch::ScratchDirectory;
use crate::summary::Setting;
use crate::target::check_room;

/// The archive, the volume and its mount, and what the host and the mount begin with.
const SETUP_STEPS: u64 = 3;

/// One job, done once on both.
#[derive(Clone, Copy, Debug)]
pub(super) struct JobTurn {
    pub(super) job: Job,
    pub(super) host: Duration,
    pub(super) mount: Duration,
    /// Requests to the mount's server, where they could be counted.
    pub(super) requests: Option<u64>,
}

/// Runs the benchmark of `plan`; `progress` is told at each step. `program` is this program, `weir`, by a path. Jobs that begin with cold
/// caches are left out for others than the superuser.
///
/// # Errors
/// [`BenchError`]; the mount and all files are gone in any case.
pub async fn everyday(
    handle: &Handle,
    program: &Path,
    plan: EverydayPlan,
    options: &BenchOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<EverydayReport, BenchError> {
    let superuser = rustix::process::geteuid().is_root();
    let jobs: Vec<Job> = Job::ALL.into_iter().filter(|job| superuser || !job.is_cold()).collect();
    let total = SETUP_STEPS + u64::from(plan.rounds) * jobs.len() as u64;
    let mut steps = Steps::new(total, progress);
    let place = ScratchDirectory::look(&options.directory)?;
    check_room(&place, plan.disk_bytes())?;
    steps.prepare("the archive");
    let ground = EverydayGround::make(handle, program, plan, &place.directory)?;
    steps.prepare("the host's trees");
    ground.prepare(&ground.host())?;
    steps.prepare("the mount's trees");
    ground.prepare(&ground.mount())?;
    let counter = RequestCounter::new(&ground.mount());
    let (mut turns, mut usage) = (Vec::new(), Usage::default());
    for round in 0..plan.rounds {
        for &job in &jobs {
            steps.begin(format!("round {} of {}", round + 1, plan.rounds), job.title());
            turns.push(ground.do_job(handle, job, round, counter.as_ref(), &mut usage)?);
        }
    }
    steps.end();
    drop(counter);
    ground.end(handle).await?;
    let setting = Setting::new(plan, options.seed, Machine::seen(usage), Some(place));
    Ok(EverydayReport::new(setting, &turns))
}

/// Writes what a filesystem has in the kernel's caches, and no other one.
fn sync_filesystem(root: &Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(File::open(root)?)?)
}

/// A directory on the host's filesystem, with a volume in it that is mounted.
struct EverydayGround {
    program: PathBuf,
    plan: EverydayPlan,
    /// Dropped after the mount.
    served: Served,
    directory: TempDir,
}

impl EverydayGround {
    fn make(
        handle: &Handle,
        program: &Path,
        plan: EverydayPlan,
        directory: &Path,
    ) -> Result<EverydayGround, BenchError> {
        let failed = |doing| move |source| BenchError::File { doing, path: directory.to_owned(), source };
        let made = tempfile::Builder::new().prefix("weir-bench-").tempdir_in(directory);
        let made = made.map_err(failed("make a directory"))?;
        make_tree(&made.path().join("tree"), plan.files, &mut handle.random("tree"))
            .map_err(failed("make a tree"))?;
        pack(made.path(), "archive")?;
        let volume = made.path().join("volume.weir");
        let options: &[&str] = if plan.open_requests { &[] } else { &["--no-open-requests"] };
        let door = Door::Filesystem { options };
        make_volume(program, door, plan.volume_bytes, &volume)?;
        let served = Served::start(program, door, &volume)?;
        let ground = EverydayGround { program: program.to_owned(), plan, served, directory: made };
        std::fs::create_dir(ground.host()).map_err(failed("make a directory"))?;
        Ok(ground)
    }

    fn host(&self) -> PathBuf {
        self.directory.path().join("host")
    }

    fn mount(&self) -> PathBuf {
        self.served.path("")
    }

    fn prepare(&self, root: &Path) -> Result<(), BenchError> {
        let (from, to) = (self.directory.path().join("archive"), root.join("archive"));
        std::fs::copy(from, to).map_err(|source| BenchError::File {
            doing: "copy the archive",
            path: root.to_owned(),
            source,
        })?;
        prepare_root(root, &self.plan)
    }

    /// On the host first in even rounds, on the mount first in odd ones.
    fn do_job(
        &self,
        handle: &Handle,
        job: Job,
        round: u32,
        counter: Option<&RequestCounter>,
        usage: &mut Usage,
    ) -> Result<JobTurn, BenchError> {
        let mut turn = JobTurn { job, host: Duration::ZERO, mount: Duration::ZERO, requests: None };
        let host_first = round.is_multiple_of(2);
        for on_host in [host_first, !host_first] {
            if on_host {
                let load = Load::now(handle);
                (turn.host, _) = self.time_job(handle, job, &self.host(), None)?;
                usage.add(load.until_now(handle));
                continue;
            }
            (turn.mount, turn.requests) = self.time_job(handle, job, &self.mount(), counter)?;
        }
        Ok(turn)
    }

    /// What was written before is on the disk then: one does not pay for the other.
    fn time_job(
        &self,
        handle: &Handle,
        job: Job,
        root: &Path,
        counter: Option<&RequestCounter>,
    ) -> Result<(Duration, Option<u64>), BenchError> {
        job.prepare(root)?;
        sync_filesystem(root).map_err(failed("a synchronised filesystem"))?;
        if job.is_cold() {
            drop_caches()?;
        }
        let counted = counter.filter(|counter| counter.start().is_ok());
        let begun = handle.now();
        job.run(root, &self.plan)?;
        let took = handle.now().since(begun);
        Ok((took, counted.and_then(|counter| counter.stop().ok())))
    }

    /// Unmounts, and has the filesystem checked.
    async fn end(self, handle: &Handle) -> Result<(), BenchError> {
        let EverydayGround { program, served, directory, .. } = self;
        served.end(handle).await?;
        let checked = Command::new(program).arg("fsck").arg(directory.path().join("volume.weir")).output();
        let failed = |told| BenchError::Server { doing: "check the filesystem", told };
        let checked = checked.map_err(|error| failed(error.to_string()))?;
        if checked.status.success() {
            return Ok(());
        }
        Err(failed(String::from_utf8_lossy(&checked.stdout).trim().to_owned()))
    }
}
