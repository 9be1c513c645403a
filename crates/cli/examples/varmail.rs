//! Filebench's varmail in a directory of any filesystem, as it comes: 16 threads, 1,000 names of which four fifths exist, and
//! thirteen operations again and again, two of which are `fsync`. It stands for Filebench where that cannot be had.
//!
//! ```sh
//! cargo build --release -p weir-cli --example varmail
//! target/release/examples/varmail DIRECTORY... --rounds 5 --seconds 10
//! ```
//!
//! The directories are measured in turns. What is made there is removed. Of `varmail.f` it has the operations, their order,
//! the counts of files and threads, and the sizes: appends of 1 byte to 16 KiB, files of 16 KiB on average. It does not have the
//! program's own time: Filebench draws, locks and takes the time around each operation.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]
#![expect(clippy::disallowed_types, reason = "it measures the host")]
#![expect(clippy::disallowed_methods, reason = "it measures the host")]

use std::cell::{Cell, RefCell};
use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Parser;
use futures_util::FutureExt as _;
use weir_runtime::{Random, Runtime, Simulation};
use weir_workload::{APPEND_BYTES, MailStore, MailUser, Message, Messages};

/// Filebench's varmail in a directory.
#[derive(Parser)]
struct Arguments {
    /// Directories, each on a filesystem that is measured
    #[arg(required = true)]
    directories: Vec<PathBuf>,
    #[arg(long, default_value_t = 1000)]
    files: u32,
    #[arg(long, default_value_t = 16)]
    threads: u64,
    /// Rounds; in each, every directory has a turn
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds of a turn
    #[arg(long, default_value_t = 10)]
    seconds: u64,
}

/// A directory of the host, as one thread works on it.
struct Directory<'a> {
    path: &'a Path,
    messages: &'a Mutex<Messages>,
    end: Instant,
    operations: Cell<u64>,
    buffer: RefCell<Vec<u8>>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let asked = Arguments::parse();
    let mut rates = vec![Vec::new(); asked.directories.len()];
    for round in 0..asked.rounds.max(1) {
        for nth in 0..rates.len() {
            // Each begins a round in its turn.
            let which = (nth + round) % rates.len();
            let directory = tempfile::tempdir_in(&asked.directories[which])?;
            let rate = turn(&asked, directory.path())?;
            println!("round {round}, {}: {rate:.0} operations/s", asked.directories[which].display());
            rates[which].push(rate);
        }
    }
    for (directory, mut rates) in asked.directories.iter().zip(rates) {
        rates.sort_by(f64::total_cmp);
        let (median, last) = (rates[rates.len() / 2], rates.len() - 1);
        println!("{}: {median:.0} ({:.0} to {:.0})", directory.display(), rates[0], rates[last]);
    }
    Ok(())
}

/// Makes the files and runs the threads; operations a second.
fn turn(asked: &Arguments, directory: &Path) -> io::Result<f64> {
    let runtime = Runtime::simulated(Simulation::default());
    let handle = runtime.handle();
    let messages = Messages::new(asked.files, &mut handle.random("messages"));
    for message in messages.idle() {
        fs::write(directory.join(message.name()), vec![1; message.bytes as usize])?;
    }
    rustix::fs::syncfs(File::open(directory)?)?;
    let messages = Mutex::new(messages);
    let (begun, length) = (Instant::now(), Duration::from_secs(asked.seconds.max(1)));
    let operations = std::thread::scope(|scope| {
        let user = |random: Random| {
            let messages = &messages;
            scope.spawn(move || run_user(directory, messages, random, begun + length))
        };
        let users: Vec<_> = (0..asked.threads.max(1)).map(|_| handle.random("user")).map(user).collect();
        // A thread that panics has lost what it did.
        let done = |user: std::thread::ScopedJoinHandle<'_, io::Result<u64>>| {
            user.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
        };
        users.into_iter().map(done).sum::<io::Result<u64>>()
    })?;
    Ok(operations as f64 / begun.elapsed().as_secs_f64())
}

/// Runs one thread until `end`; how many operations it did.
fn run_user(path: &Path, messages: &Mutex<Messages>, random: Random, end: Instant) -> io::Result<u64> {
    let directory = Directory { path, messages, end, operations: Cell::new(0), buffer: RefCell::default() };
    let user = MailUser::new(directory, random, APPEND_BYTES);
    // Calls of the host block, so nothing is ever pending.
    let ended = user.run().now_or_never();
    Ok(ended.unwrap_or_else(|| Err(io::Error::other("a call of the host is pending")))?.operations.get())
}

impl Directory<'_> {
    fn count<T>(&self, done: T) -> T {
        self.operations.set(self.operations.get() + 1);
        done
    }

    fn open_with(&self, message: &Message, options: &mut OpenOptions) -> io::Result<File> {
        options.read(true).append(true).open(self.path.join(message.name())).map(|file| self.count(file))
    }
}

impl MailStore for Directory<'_> {
    type File = File;
    type Error = io::Error;

    fn is_over(&self) -> bool {
        Instant::now() >= self.end
    }

    fn with_messages<R>(&self, work: impl FnOnce(&mut Messages) -> R) -> R {
        work(&mut self.messages.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn delete(&self, message: &Message) -> io::Result<()> {
        fs::remove_file(self.path.join(message.name())).map(|()| self.count(()))
    }

    async fn create(&self, message: &Message) -> io::Result<File> {
        self.open_with(message, OpenOptions::new().create_new(true))
    }

    async fn open(&self, message: &Message) -> io::Result<File> {
        self.open_with(message, &mut OpenOptions::new())
    }

    async fn read(&self, mut file: &File, bytes: u64) -> io::Result<()> {
        let mut buffer = self.buffer.borrow_mut();
        buffer.resize(bytes as usize, 0);
        file.read_exact(&mut buffer).map(|()| self.count(()))
    }

    async fn append(&self, mut file: &File, _offset: u64, bytes: u64) -> io::Result<()> {
        let mut buffer = self.buffer.borrow_mut();
        buffer.resize(bytes as usize, 0);
        file.write_all(&buffer).map(|()| self.count(()))
    }

    async fn synchronise(&self, file: &File) -> io::Result<()> {
        file.sync_all().map(|()| self.count(()))
    }

    async fn close(&self, file: File) -> io::Result<()> {
        drop(file);
        self.count(());
        Ok(())
    }
}
