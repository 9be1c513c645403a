//! What the host's filesystem is measured with, and a turn of one of its modes.

use weir_runtime::{Handle, Random};
use weir_storage::{BLOCK_BYTES, FileDisk, FileDiskOptions};

use crate::content::Pages;
use crate::error::BenchError;
use crate::host::{self, HostCalls};
use crate::ledger::{Coverage, Ledger};
use crate::machine::{Load, Usage};
use crate::measure::{Goal, Meter};
use crate::mode::Mode;
use crate::scratch::{Scratch, ScratchDirectory};
use crate::target::BenchTarget;
use crate::turn::Turn;
use crate::writes::Writes;

/// The files that the host's modes write.
pub(crate) struct HostFiles {
    pub(crate) place: ScratchDirectory,
    file: Scratch,
    /// What the file must hold.
    ledger: Ledger,
    append: Scratch,
    /// Blocks that are appended before the file begins anew.
    append_blocks: u64,
}

/// What a turn on the host's filesystem does.
pub(crate) struct HostRun {
    pub(crate) mode: Mode,
    pub(crate) calls: HostCalls,
    pub(crate) start: Writes,
    pub(crate) goal: Goal,
    pub(crate) coverage: Coverage,
}

impl HostFiles {
    /// A file that is full of data, of `span_bytes`, and an empty one.
    pub(crate) async fn prepare(
        handle: &Handle,
        place: ScratchDirectory,
        keep: bool,
        span_bytes: u64,
        pages: &Pages,
    ) -> Result<HostFiles, BenchError> {
        let file = Scratch::create(&place.directory, "host", span_bytes, keep)?;
        // The host's file is not locked by Weir while the host's calls are measured.
        let mut target = BenchTarget::on(handle, &file)?;
        target.fill(handle, pages).await?;
        let append = Scratch::create(&place.directory, "append", 0, keep)?;
        Ok(HostFiles {
            place,
            file,
            ledger: target.ledger,
            append,
            append_blocks: span_bytes / BLOCK_BYTES as u64,
        })
    }

    /// Writes until the goal is reached, and reads back.
    pub(crate) async fn turn(
        &mut self,
        run: HostRun,
        handle: &Handle,
        pages: &mut Pages,
        random: &mut Random,
        usage: &mut Usage,
    ) -> Result<Turn, BenchError> {
        let HostRun { mode, calls, start, goal, coverage } = run;
        let append = calls.appends();
        let scratch = if append { &self.append } else { &self.file };
        if append {
            // What an earlier turn left is not this one's to free: no other filesystem has it, either.
            host::begin_anew(scratch.file()).map_err(|source| scratch.write_failed(source))?;
        }
        let mut writes = start.clone();
        let load = Load::now(handle);
        let before = self.place.written_bytes();
        let mut meter = Meter::start(handle);
        let flushes = host::run(calls, scratch.file(), &mut writes, pages, &goal, &mut meter)
            .map_err(|source| scratch.write_failed(source))?;
        let measured = meter.stop();
        let used = load.until_now(handle);
        // The device's counter counts for all programs: it stands for this turn only where no other was at work.
        let counted = self.place.written_bytes().zip(before).filter(|_| used.quiet());
        let disk_bytes = counted.map(|(after, before)| after.saturating_sub(before));
        // The kernel's own threads write the page cache back: that load is the mode's, not another program's.
        if calls != HostCalls::FinalFsync {
            usage.add(used);
        }
        let mut fresh = Ledger::new(if append { self.append_blocks } else { 0 });
        let ledger = if append { &mut fresh } else { &mut self.ledger };
        ledger.enter(start, measured.writes);
        let options = FileDiskOptions { read_only: true, ..FileDiskOptions::default() };
        let disk = FileDisk::open(handle, scratch.path(), options)?;
        let checked_blocks = ledger.verify(&*disk, pages, coverage, random).await?;
        Ok(Turn { disk_bytes, flushes, ..Turn::new(mode, measured, BLOCK_BYTES as u64, checked_blocks) })
    }
}
