//! What the turns of a benchmark of files share: the plan, the pages, the host's files, and a file for a volume.

use std::time::Duration;

use weir_runtime::{Handle, Random};

use crate::chooser::Distribution;
use crate::content::Pages;
use crate::error::BenchError;
use crate::filesystem::plan::FsPlan;
use crate::host::HostCalls;
use crate::host_files::{HostFiles, HostRun};
use crate::ledger::Coverage;
use crate::machine::Usage;
use crate::measure::Goal;
use crate::mode::Mode;
use crate::plan::BenchOptions;
use crate::scratch::{Scratch, ScratchDirectory};
use crate::target::{BenchTarget, check_room};
use crate::turn::Turn;
use crate::writes::{Span, Writes};

/// What the turns share.
pub(crate) struct FileGround {
    pub(crate) handle: Handle,
    pub(crate) plan: FsPlan,
    pub(crate) pages: Pages,
    pub(crate) random: Random,
    /// Runs so far; each turn is one, and each filling of a file.
    pub(crate) runs: u32,
    pub(crate) host: HostFiles,
}

impl FileGround {
    /// Makes and fills the files: the volume's, by this name and open, beside the host's.
    pub(crate) async fn prepare(
        handle: &Handle,
        plan: FsPlan,
        options: &BenchOptions,
        name: &str,
        room: u64,
    ) -> Result<(FileGround, Scratch, BenchTarget), BenchError> {
        let mut place = ScratchDirectory::look(&options.directory)?;
        check_room(&place, room)?;
        let mut random = handle.random("bench");
        let pages = Pages::new(&mut random);
        let volume = Scratch::create(&place.directory, name, plan.volume_bytes, options.keep)?;
        let mut target = BenchTarget::on(handle, &volume)?;
        target.fill(handle, &pages).await?;
        place.direct_io = target.direct;
        let host = HostFiles::prepare(handle, place, options.keep, plan.span_bytes, &pages).await?;
        let ground = FileGround { handle: handle.clone(), plan, pages, random, runs: 1, host };
        Ok((ground, volume, target))
    }

    /// A turn on the host's filesystem.
    pub(crate) async fn host(
        &mut self,
        calls: HostCalls,
        coverage: Coverage,
        usage: &mut Usage,
    ) -> Result<Turn, BenchError> {
        let distribution = if calls.appends() { Distribution::Sequential } else { Distribution::Uniform };
        let (mode, start, goal) = (Mode::Host(calls), self.writes(distribution), self.goal());
        let run = HostRun { mode, calls, start, goal, coverage };
        self.host.turn(run, &self.handle, &mut self.pages, &mut self.random, usage).await
    }

    /// The writes of the next run, one page at a time over the file.
    pub(crate) fn writes(&mut self, distribution: Distribution) -> Writes {
        self.runs += 1;
        let span = Span::pages(self.plan.span_blocks());
        Writes::new(self.runs, span, distribution, 0, 1, self.handle.random("writes"))
    }

    pub(crate) fn goal(&self) -> Goal {
        let time = Duration::from_secs_f64(self.plan.turn_seconds);
        Goal { writes: 1, time, time_max: Duration::MAX }
    }
}
