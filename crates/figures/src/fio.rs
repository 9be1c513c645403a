//! *Fio* writes at random to many files, as the benchmark of that name does for figure 2a of the SHARE paper.
//!
//! A run of [`Fio`]. The files are laid out as fio does it: allocated by `fallocate`, so that each block is written for
//! the first time in the run. It takes the files in turn, and in each a place of 8 KiB that it has not written yet; when
//! all are written it begins again.

use std::fmt;
use std::rc::Rc;

use serde::Deserialize;
use weir_ext4::ROOT_INODE;
use weir_flash::FlashOptions;
use weir_format::FileType;
use weir_runtime::Random;
use weir_vfs::{Fallocate, FsError, InodeNumber, NewNode};

use crate::calls::On;
use crate::error::FigureError;
use crate::experiment::Experiment;
use crate::metric::{Metric, WRITES};
use crate::mounting::Mounting;
use crate::run::{Outcome, Run};
use crate::stage::{self, APPLICATION, Setting, Stage, Thread, perform};

/// One thread writes 8 KiB after 8 KiB to files that are allocated and not written, and synchronises the file that it
/// wrote last after every so many writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fio {
    /// On which filesystem.
    pub on: Mounting,
    /// Files.
    pub files: u32,
    /// The size of each file, in writes of 8 KiB, 1 to 65,536.
    pub file_writes: u32,
    /// Writes from one `fsync` to the next, 1 and more.
    pub fsync_every: u32,
}

impl fmt::Display for Fio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fio { on, fsync_every, .. } = self;
        write!(f, "fio, {on}, fsync/{fsync_every}")
    }
}

/// Bytes of a write.
const WRITE_BYTES: usize = 8 << 10;

impl Experiment for Fio {
    fn metrics(&self) -> Vec<Metric> {
        stage::metrics(WRITES)
    }

    fn filesystem(&self) -> Option<On> {
        Some(self.on.on)
    }

    fn short_name(&self) -> String {
        self.on.to_string()
    }

    fn run(&self, run: &Run, seed: u64, options: FlashOptions) -> Result<Outcome, FigureError> {
        let play = async |stage: &Rc<Stage>| {
            let writer = Writer {
                stage: Rc::clone(stage),
                files: lay_out(stage, *self).await?,
                fio: *self,
                random: stage.handle.random(APPLICATION),
                written: 0,
            };
            Ok(vec![Box::pin(writer.run()) as Thread])
        };
        let setting = Setting { mounting: self.on, cores: None, rate: WRITES, aged_percent: 0 };
        perform(run, setting, seed, options, play)
    }
}

impl Fio {
    /// Places of a file.
    fn places(self) -> u16 {
        u16::try_from(self.file_writes.clamp(1, 1 << 16) - 1).unwrap_or(u16::MAX)
    }
}

/// A file, and which of its places come next.
struct File {
    inode: InodeNumber,
    /// Those that are not written yet are at the front.
    places: Vec<u16>,
    left: usize,
}

async fn lay_out(stage: &Stage, fio: Fio) -> Result<Vec<File>, FsError> {
    let new = NewNode::new(FileType::Regular, 0o644);
    let mut files = Vec::new();
    for number in 0..fio.files.max(1) {
        let name = format!("job.0.{number}");
        let inode = stage.filesystem.create(ROOT_INODE, name.as_bytes(), &new).await?;
        let places: Vec<u16> = (0..=fio.places()).collect();
        let bytes = (places.len() * WRITE_BYTES) as u64;
        stage.filesystem.fallocate(inode, Fallocate::Allocate { keep_size: false }, 0, bytes).await?;
        files.push(File { inode, places, left: 0 });
    }
    Ok(files)
}

/// The thread that writes.
struct Writer {
    stage: Rc<Stage>,
    fio: Fio,
    files: Vec<File>,
    random: Random,
    written: u64,
}

impl Writer {
    async fn run(mut self) -> Result<(), FsError> {
        let bytes = vec![2; WRITE_BYTES];
        let stage = Rc::clone(&self.stage);
        while !stage.progress.is_over() {
            let (inode, offset) = self.next();
            let from = stage.handle.now();
            // A call for each page, but only one of them is a system call.
            stage.work(stage.host.write_us.value).await;
            stage.filesystem.write(inode, offset, &bytes).await?;
            self.written += 1;
            if self.written.is_multiple_of(u64::from(self.fio.fsync_every.max(1))) {
                stage.work(stage.host.sync_us.value).await;
                stage.filesystem.fsync(inode).await?;
            }
            stage.progress.called(stage.handle.now().as_nanos() - from.as_nanos());
        }
        Ok(())
    }

    /// Where the next write goes.
    fn next(&mut self) -> (InodeNumber, u64) {
        let nth = (self.written % self.files.len() as u64) as usize;
        let file = &mut self.files[nth];
        if file.left == 0 {
            file.left = file.places.len();
        }
        let chosen = self.random.below(file.left as u64) as usize;
        file.left -= 1;
        file.places.swap(chosen, file.left);
        let place = u64::from(file.places[file.left]);
        self.stage.handle.trace(&[nth as u64, place]);
        (file.inode, place * WRITE_BYTES as u64)
    }
}
