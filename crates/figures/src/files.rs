//! A run of [`Calls`]: threads make them in a closed loop, each to files of its own, made before the run begins.

use std::rc::Rc;
use std::time::Duration;

use weir_ext4::ROOT_INODE;
use weir_flash::FlashOptions;
use weir_format::FileType;
use weir_fs::BarrierFs;
use weir_runtime::Random;
use weir_storage::BLOCK_BYTES;
use weir_vfs::{AttributeChanges, FsError, InodeNumber, NewNode};

use crate::calls::{Call, Calls, Change, On, OtherProgram};
use crate::error::FigureError;
use crate::experiment::Experiment;
use crate::metric::{Metric, WRITES};
use crate::mounting::Mounting;
use crate::run::{Outcome, Run};
use crate::stage::{self, APPLICATION, Setting, Stage, Thread, perform};

/// Files of a thread that changes permissions, and how far their inodes are apart: two never share a block.
const FILES: usize = 32;
const INODES_APART: usize = 16;

/// Blocks that one write of the preparation has.
const BLOCKS_AT_ONCE: usize = 64;

impl Experiment for Calls {
    fn metrics(&self) -> Vec<Metric> {
        stage::metrics(WRITES)
    }

    fn filesystem(&self) -> Option<On> {
        Some(self.on)
    }

    fn waits(&self) -> bool {
        match self.call {
            Call::Fsync | Call::Fdatasync => true,
            Call::Fbarrier | Call::Fdatabarrier => !self.on.has_barriers(),
            Call::None => false,
        }
    }

    fn run(&self, run: &Run, seed: u64, options: FlashOptions) -> Result<Outcome, FigureError> {
        let (calls, span) = (*self, run.span.max(1));
        let play = async |stage: &Rc<Stage>| {
            let mut threads = Vec::new();
            for thread in 0..calls.threads.max(1) {
                let caller = Caller {
                    stage: Rc::clone(stage),
                    files: files(&stage.filesystem, calls, span, thread).await?,
                    calls,
                    span,
                    random: stage.handle.random(APPLICATION),
                    made: 0,
                };
                threads.push(Box::pin(caller.run()) as Thread);
            }
            if let Some(program) = calls.other {
                let stage = Rc::clone(stage);
                threads.push(Box::pin(append_beside(stage, program)) as Thread);
            }
            Ok(threads)
        };
        let aged_percent = calls.aged_percent;
        let setting =
            Setting { mounting: Mounting::of(calls.on), cores: calls.cores, rate: WRITES, aged_percent };
        perform(run, setting, seed, options, play)
    }
}

/// The files of a thread.
async fn files(
    filesystem: &BarrierFs,
    calls: Calls,
    span: u64,
    thread: u32,
) -> Result<Vec<InodeNumber>, FsError> {
    let new = NewNode::new(FileType::Regular, 0o644);
    let all = if calls.change == Change::Permissions { FILES * INODES_APART } else { 1 };
    let mut files = Vec::new();
    for file in 0..all {
        let name = format!("{thread}-{file}");
        files.push(filesystem.create(ROOT_INODE, name.as_bytes(), &new).await?);
    }
    if calls.change == Change::Overwrite {
        fill(filesystem, files[0], span * BLOCK_BYTES as u64).await?;
    }
    Ok(files.into_iter().step_by(INODES_APART).collect())
}

/// Writes a file up to `end`.
pub(crate) async fn fill(filesystem: &BarrierFs, file: InodeNumber, end: u64) -> Result<(), FsError> {
    let bytes = vec![1; BLOCKS_AT_ONCE * BLOCK_BYTES];
    let mut offset = 0;
    while offset < end {
        let some = bytes.len().min(usize::try_from(end - offset).unwrap_or(usize::MAX));
        offset += filesystem.write(file, offset, &bytes[..some]).await? as u64;
    }
    Ok(())
}

/// Another program: appends, and synchronises what it appended, until the window has ended.
async fn append_beside(stage: Rc<Stage>, program: OtherProgram) -> Result<(), FsError> {
    let mut random = stage.handle.random("other program");
    let file = stage.create(ROOT_INODE, "other").await?;
    let mut end = 0;
    while !stage.progress.is_over() {
        let us = random.below(2_000 * u64::from(program.every_ms) + 1);
        stage.handle.sleep(Duration::from_micros(us)).await;
        let bytes = program.draw_blocks(&mut random) * BLOCK_BYTES as u64;
        stage.write(file, end, bytes).await?;
        stage.call(program.call, file).await?;
        end += bytes;
    }
    Ok(())
}

/// One thread of the host that calls.
struct Caller {
    stage: Rc<Stage>,
    files: Vec<InodeNumber>,
    calls: Calls,
    /// Blocks of the file that it overwrites.
    span: u64,
    random: Random,
    /// Calls made.
    made: u64,
}

impl Caller {
    /// Calls until the window has ended.
    async fn run(mut self) -> Result<(), FsError> {
        let page = vec![2; BLOCK_BYTES];
        while !self.stage.progress.is_over() {
            let file = self.files[self.made as usize % self.files.len()];
            self.change(file, &page).await?;
            let from = self.stage.handle.now();
            self.stage.call(self.calls.call, file).await?;
            self.made += 1;
            self.stage.progress.called(self.stage.handle.now().as_nanos() - from.as_nanos());
        }
        Ok(())
    }

    async fn change(&mut self, file: InodeNumber, page: &[u8]) -> Result<(), FsError> {
        let block = match self.calls.change {
            Change::Append => self.made,
            Change::Overwrite => self.random.below(self.span),
            Change::Permissions => return self.change_permissions(file).await,
        };
        self.stage.handle.trace(&[block]);
        self.stage.work(self.stage.host.write_us.value).await;
        self.stage.filesystem.write(file, block * BLOCK_BYTES as u64, page).await.map(drop)
    }

    async fn change_permissions(&self, file: InodeNumber) -> Result<(), FsError> {
        let turn = self.made / self.files.len() as u64;
        let permissions = Some(if turn.is_multiple_of(2) { 0o600 } else { 0o644 });
        let changes = AttributeChanges { permissions, ..AttributeChanges::default() };
        self.stage.filesystem.set_attributes(file, &changes).await
    }
}
