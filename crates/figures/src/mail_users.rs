//! A run of [`Varmail`]. Each thread goes through the thirteen operations of Filebench's `varmail.f` again and again, each
//! of which is a call that counts:
//!
//! - a file is deleted;
//! - a file is made, appended to, synchronised, closed;
//! - a file is opened, read, appended to, synchronised, closed;
//! - a file is opened, read, closed.
//!
//! An append has 1 byte to 16 KiB, as Filebench's `appendfilerand` with an `iosize` of 16 KiB, which `varmail.f` calls
//! the mean. Files have 1 byte to 32 KiB
//! at the beginning, 16 KiB on average, where Filebench draws from a gamma distribution. A file that a thread works on is
//! not for the others, as in Filebench.

use std::cell::RefCell;
use std::rc::Rc;

use weir_ext4::{FileType, ROOT_INODE};
use weir_flash::FlashOptions;
use weir_fs::{FsError, InodeNumber, NewNode};
use weir_runtime::Random;
use weir_storage::BLOCK_BYTES;

use crate::calls::On;
use crate::error::FigureError;
use crate::experiment::Experiment;
use crate::files::fill;
use crate::metric::{Metric, OPERATIONS};
use crate::run::{Outcome, Run};
use crate::stage::{self, APPLICATION, Setting, Stage, Thread, perform};
use crate::varmail::Varmail;

/// A file has so many bytes at most at the beginning.
const FILE_BYTES: u64 = 32 << 10;

impl Experiment for Varmail {
    fn metrics(&self) -> Vec<Metric> {
        stage::metrics(OPERATIONS)
    }

    fn filesystem(&self) -> Option<On> {
        Some(self.on.on)
    }

    fn ground(&self) -> String {
        self.on.to_string()
    }

    fn run(&self, run: &Run, seed: u64, options: FlashOptions) -> Result<Outcome, FigureError> {
        let play = async |stage: &Rc<Stage>| {
            let messages = Rc::new(RefCell::new(self.messages(stage).await?));
            let user = |_| {
                let (stage, messages) = (Rc::clone(stage), Rc::clone(&messages));
                let random = stage.handle.random(APPLICATION);
                Box::pin(User { varmail: *self, stage, messages, random, read: Vec::new() }.run()) as Thread
            };
            Ok((0..self.threads.max(1)).map(user).collect())
        };
        let setting = Setting { mounting: self.on, cores: self.cores, rate: OPERATIONS };
        perform(run, setting, seed, options, play)
    }
}

impl Varmail {
    async fn messages(self, stage: &Stage) -> Result<Messages, FsError> {
        let files = self.files.max(5);
        let mut messages = Messages { idle: Vec::new(), unused: Vec::new() };
        let mut random = stage.handle.random("messages");
        for number in 0..files {
            if number % 5 == 4 {
                messages.unused.push(number);
                continue;
            }
            let message = Message::make(stage, number).await?;
            let size = 1 + random.below(FILE_BYTES);
            fill(&stage.filesystem, message.inode, size).await?;
            messages.idle.push(Message { size, ..message });
        }
        Ok(messages)
    }
}

/// All files.
struct Messages {
    /// Those that no thread works on.
    idle: Vec<Message>,
    /// The names of those that do not exist.
    unused: Vec<u32>,
}

/// A file.
#[derive(Clone, Copy)]
struct Message {
    number: u32,
    inode: InodeNumber,
    size: u64,
}

impl Message {
    async fn make(stage: &Stage, number: u32) -> Result<Message, FsError> {
        let new = NewNode::new(FileType::Regular, 0o644);
        let inode = stage.filesystem.create(ROOT_INODE, name(number).as_bytes(), &new).await?;
        Ok(Message { number, inode, size: 0 })
    }
}

fn name(number: u32) -> String {
    format!("{number:08}")
}

/// A thread.
struct User {
    varmail: Varmail,
    stage: Rc<Stage>,
    messages: Rc<RefCell<Messages>>,
    random: Random,
    /// What it read last.
    read: Vec<u8>,
}

impl User {
    async fn run(mut self) -> Result<(), FsError> {
        while !self.stage.progress.is_over() {
            self.delete().await?;
            if let Some(message) = self.make().await? {
                let message = self.append(message).await?;
                self.close(message).await?;
            }
            for appends in [true, false] {
                let Some(message) = self.open().await? else { continue };
                self.read(message).await?;
                let message = if appends { self.append(message).await? } else { message };
                self.close(message).await?;
            }
        }
        Ok(())
    }

    /// One of the files that no thread works on; it is for this thread now.
    fn choose(&mut self) -> Option<Message> {
        let idle = &mut self.messages.borrow_mut().idle;
        if idle.is_empty() {
            return None;
        }
        let nth = self.random.below(idle.len() as u64);
        self.stage.handle.trace(&[nth]);
        Some(idle.swap_remove(nth as usize))
    }

    async fn delete(&mut self) -> Result<(), FsError> {
        let Some(message) = self.choose() else { return Ok(()) };
        let from = self.begin(1).await;
        self.stage.filesystem.unlink(ROOT_INODE, name(message.number).as_bytes()).await?;
        self.messages.borrow_mut().unused.push(message.number);
        self.end(from);
        Ok(())
    }

    async fn make(&mut self) -> Result<Option<Message>, FsError> {
        let unused = self.messages.borrow_mut().unused.pop();
        let Some(number) = unused else { return Ok(None) };
        let from = self.begin(1).await;
        let message = Message::make(&self.stage, number).await?;
        self.stage.filesystem.open(message.inode).await?;
        self.end(from);
        Ok(Some(message))
    }

    async fn open(&mut self) -> Result<Option<Message>, FsError> {
        let Some(message) = self.choose() else { return Ok(None) };
        let from = self.begin(1).await;
        let inode = self.stage.filesystem.lookup(ROOT_INODE, name(message.number).as_bytes()).await?;
        self.stage.filesystem.open(inode).await?;
        self.end(from);
        Ok(Some(message))
    }

    async fn read(&mut self, message: Message) -> Result<(), FsError> {
        let from = self.begin(message.size).await;
        self.read.resize(usize::try_from(message.size).unwrap_or_default(), 0);
        self.stage.filesystem.read(message.inode, 0, &mut self.read).await?;
        self.end(from);
        Ok(())
    }

    /// Appends, and synchronises the file.
    async fn append(&mut self, message: Message) -> Result<Message, FsError> {
        let bytes = 1 + self.random.below(u64::from(self.varmail.append_bytes.max(1)));
        self.stage.handle.trace(&[bytes]);
        let from = self.begin(bytes).await;
        self.read.resize(usize::try_from(bytes).unwrap_or_default(), 0);
        self.stage.filesystem.write(message.inode, message.size, &self.read).await?;
        self.end(from);
        let from = self.stage.handle.now().as_nanos();
        self.stage.work(f64::from(self.varmail.operation_us)).await;
        self.stage.call(self.varmail.call, message.inode).await?;
        self.end(from);
        Ok(Message { size: message.size + bytes, ..message })
    }

    async fn close(&mut self, message: Message) -> Result<(), FsError> {
        let from = self.begin(1).await;
        self.stage.filesystem.release(message.inode).await?;
        self.messages.borrow_mut().idle.push(message);
        self.end(from);
        Ok(())
    }

    /// A call on so many bytes begins: when.
    async fn begin(&self, bytes: u64) -> u64 {
        let from = self.stage.handle.now().as_nanos();
        let pages = bytes.div_ceil(BLOCK_BYTES as u64).max(1);
        let operation = f64::from(self.varmail.operation_us);
        self.stage.work(operation + pages as f64 * self.stage.host.write_us.value).await;
        from
    }

    fn end(&self, from: u64) {
        self.stage.progress.called(self.stage.handle.now().as_nanos() - from);
    }
}
