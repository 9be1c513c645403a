//! *Varmail*: a mail server that keeps each message in a file, as the personality of that name of Filebench. Figure 2b
//! of the SHARE paper runs it with 100 threads, figure 14 of the FAST 2018 paper as it comes.
//!
//! A run of [`Varmail`]: the [users](weir_workload::MailUser) of a mail server, each of whose operations is a call that
//! counts.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use serde::Deserialize;
use weir_ext4::ROOT_INODE;
use weir_flash::FlashOptions;
use weir_format::FileType;
use weir_storage::BLOCK_BYTES;
use weir_vfs::{FsError, InodeNumber, NewNode};
use weir_workload::{MailStore, MailUser, Message, Messages};

use crate::calls::{Call, On};
use crate::error::FigureError;
use crate::experiment::Experiment;
use crate::files::fill;
use crate::metric::{Metric, OPERATIONS};
use crate::mounting::Mounting;
use crate::run::{Outcome, Run};
use crate::stage::{self, APPLICATION, Setting, Stage, Thread, perform};

/// Threads that delete, make, read and append to files of one directory, and synchronise what they appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Varmail {
    /// On which filesystem.
    pub on: Mounting,
    /// Names of files; four fifths of them exist at the beginning.
    pub files: u32,
    /// Threads.
    pub threads: u32,
    /// How what was appended is synchronised.
    #[serde(default = "Call::durable")]
    pub call: Call,
    /// Bytes that an append has at most, and half of them on average; the personality's if it is left out.
    #[serde(default = "append_bytes")]
    pub append_bytes: u32,
    /// Processor time of the program for each operation, in microseconds, beyond what the host's profile has for pages.
    #[serde(default)]
    pub operation_us: u32,
    /// Cores of the host, if not its profile's.
    #[serde(default)]
    pub cores: Option<u32>,
}

/// `iosize` of `appendfilerand` in `varmail.f`, where it is called the mean.
fn append_bytes() -> u32 {
    16 << 10
}

impl fmt::Display for Varmail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Varmail { on, threads, call, files, append_bytes, operation_us, cores } = self;
        write!(
            f,
            "varmail, {on}, {threads} threads, {files} files, {call}, appends of {append_bytes} bytes at most"
        )?;
        if *operation_us > 0 {
            write!(f, ", {operation_us} us more for each operation")?;
        }
        cores.map_or(Ok(()), |cores| write!(f, ", {cores} cores"))
    }
}

impl Experiment for Varmail {
    fn metrics(&self) -> Vec<Metric> {
        stage::metrics(OPERATIONS)
    }

    fn filesystem(&self) -> Option<On> {
        Some(self.on.on)
    }

    fn short_name(&self) -> String {
        self.on.to_string()
    }

    fn run(&self, run: &Run, seed: u64, options: FlashOptions) -> Result<Outcome, FigureError> {
        let varmail = *self;
        let play = async |stage: &Rc<Stage>| {
            let messages = Messages::new(varmail.files, &mut stage.handle.random("messages"));
            for message in messages.idle() {
                let file = create(stage, message).await?;
                fill(&stage.filesystem, file, message.bytes).await?;
            }
            let messages = Rc::new(RefCell::new(messages));
            let thread = |_| {
                let (stage, messages) = (Rc::clone(stage), Rc::clone(&messages));
                let random = stage.handle.random(APPLICATION);
                let store = Store { varmail, stage, messages };
                let user = MailUser::new(store, random, varmail.append_bytes);
                Box::pin(async { user.run().await.map(drop) }) as Thread
            };
            Ok((0..varmail.threads.max(1)).map(thread).collect())
        };
        let setting = Setting { mounting: self.on, cores: self.cores, rate: OPERATIONS, aged_percent: 0 };
        perform(run, setting, seed, options, play)
    }
}

async fn create(stage: &Stage, message: &Message) -> Result<InodeNumber, FsError> {
    let new = NewNode::new(FileType::Regular, 0o644);
    stage.filesystem.create(ROOT_INODE, message.name().as_bytes(), &new).await
}

/// The files of the stage's filesystem, as one thread works on them.
struct Store {
    varmail: Varmail,
    stage: Rc<Stage>,
    messages: Rc<RefCell<Messages>>,
}

impl Store {
    /// A call on so many bytes: for its price.
    async fn count<T>(
        &self,
        bytes: u64,
        call: impl Future<Output = Result<T, FsError>>,
    ) -> Result<T, FsError> {
        let pages = bytes.div_ceil(BLOCK_BYTES as u64).max(1);
        self.count_at(pages as f64 * self.stage.host.write_us.value, call).await
    }

    /// A call that takes so many microseconds of the processor beside those of each operation.
    async fn count_at<T>(
        &self,
        us: f64,
        call: impl Future<Output = Result<T, FsError>>,
    ) -> Result<T, FsError> {
        let from = self.stage.handle.now().as_nanos();
        self.stage.work(f64::from(self.varmail.operation_us) + us).await;
        let answer = call.await?;
        self.stage.progress.called(self.stage.handle.now().as_nanos() - from);
        Ok(answer)
    }
}

impl MailStore for Store {
    type File = InodeNumber;
    type Error = FsError;

    fn is_over(&self) -> bool {
        self.stage.progress.is_over()
    }

    fn with_messages<R>(&self, work: impl FnOnce(&mut Messages) -> R) -> R {
        work(&mut self.messages.borrow_mut())
    }

    fn note_choice(&self, number: u64) {
        self.stage.handle.trace(&[number]);
    }

    async fn delete(&self, message: &Message) -> Result<(), FsError> {
        let name = message.name();
        self.count(1, self.stage.filesystem.unlink(ROOT_INODE, name.as_bytes())).await
    }

    async fn create(&self, message: &Message) -> Result<InodeNumber, FsError> {
        let made = async {
            let file = create(&self.stage, message).await?;
            self.stage.filesystem.open(file).await?;
            Ok(file)
        };
        self.count(1, made).await
    }

    async fn open(&self, message: &Message) -> Result<InodeNumber, FsError> {
        let opened = async {
            let file = self.stage.filesystem.lookup(ROOT_INODE, message.name().as_bytes()).await?;
            self.stage.filesystem.open(file).await?;
            Ok(file)
        };
        self.count(1, opened).await
    }

    async fn read(&self, file: &InodeNumber, bytes: u64) -> Result<(), FsError> {
        let mut data = vec![0; usize::try_from(bytes).unwrap_or_default()];
        self.count(bytes, self.stage.filesystem.read(*file, 0, &mut data)).await.map(drop)
    }

    async fn append(&self, file: &InodeNumber, offset: u64, bytes: u64) -> Result<(), FsError> {
        let data = vec![0; usize::try_from(bytes).unwrap_or_default()];
        self.count(bytes, self.stage.filesystem.write(*file, offset, &data)).await.map(drop)
    }

    async fn synchronise(&self, file: &InodeNumber) -> Result<(), FsError> {
        self.count_at(0.0, self.stage.call(self.varmail.call, *file)).await
    }

    async fn close(&self, file: InodeNumber) -> Result<(), FsError> {
        self.count(1, self.stage.filesystem.release(file)).await
    }
}
