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

use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Parser;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;

/// Bytes that an append has at most.
const APPEND_BYTES: usize = 16 << 10;
/// Bytes that a file has at most at the beginning.
const FILE_BYTES: usize = 32 << 10;

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

/// Names of files that no thread works on: those that exist, and those that do not.
struct Names {
    idle: Vec<u32>,
    unused: Vec<u32>,
}

/// One thread.
struct User<'a> {
    directory: &'a Path,
    names: &'a Mutex<Names>,
    random: Pcg64,
    operations: u64,
    buffer: Vec<u8>,
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
    let mut random = Pcg64::seed_from_u64(1);
    let (unused, idle): (Vec<u32>, Vec<u32>) = (0..asked.files.max(5)).partition(|number| number % 5 == 4);
    for number in &idle {
        let bytes = vec![1; random.random_range(1..=FILE_BYTES)];
        fs::write(directory.join(name(*number)), bytes)?;
    }
    rustix::fs::syncfs(File::open(directory)?)?;
    let names = Mutex::new(Names { idle, unused });
    let (begun, length) = (Instant::now(), Duration::from_secs(asked.seconds.max(1)));
    let operations = std::thread::scope(|scope| {
        let user = |seed| {
            let random = Pcg64::seed_from_u64(seed);
            let user =
                User { directory, names: &names, random, operations: 0, buffer: vec![2; APPEND_BYTES] };
            scope.spawn(move || user.run(begun + length))
        };
        let users: Vec<_> = (2..2 + asked.threads.max(1)).map(user).collect();
        // A thread that panics has lost what it did.
        let done = |user: std::thread::ScopedJoinHandle<'_, io::Result<u64>>| {
            user.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
        };
        users.into_iter().map(done).sum::<io::Result<u64>>()
    })?;
    Ok(operations as f64 / begun.elapsed().as_secs_f64())
}

fn name(number: u32) -> String {
    format!("{number:08}")
}

impl User<'_> {
    fn run(mut self, end: Instant) -> io::Result<u64> {
        while Instant::now() < end {
            self.delete()?;
            self.make()?;
            self.append_to_one()?;
            self.read_one()?;
        }
        Ok(self.operations)
    }

    /// An existing file that no thread works on; it is for this thread now.
    fn choose(&mut self) -> Option<u32> {
        let idle = &mut self.names.lock().unwrap_or_else(PoisonError::into_inner).idle;
        (!idle.is_empty()).then(|| idle.swap_remove(self.random.random_range(0..idle.len())))
    }

    fn give_back(&self, number: u32) {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).idle.push(number);
    }

    fn path(&self, number: u32) -> PathBuf {
        self.directory.join(name(number))
    }

    fn delete(&mut self) -> io::Result<()> {
        let Some(number) = self.choose() else { return Ok(()) };
        fs::remove_file(self.path(number))?;
        self.names.lock().unwrap_or_else(PoisonError::into_inner).unused.push(number);
        self.operations += 1;
        Ok(())
    }

    fn make(&mut self) -> io::Result<()> {
        let unused = self.names.lock().unwrap_or_else(PoisonError::into_inner).unused.pop();
        let Some(number) = unused else { return Ok(()) };
        let file = OpenOptions::new().append(true).create_new(true).open(self.path(number))?;
        self.append(file)?;
        self.give_back(number);
        // Made, appended to, synchronised, closed.
        self.operations += 4;
        Ok(())
    }

    fn append_to_one(&mut self) -> io::Result<()> {
        let Some(number) = self.choose() else { return Ok(()) };
        let mut file = OpenOptions::new().read(true).append(true).open(self.path(number))?;
        file.read_to_end(&mut Vec::new())?;
        self.append(file)?;
        self.give_back(number);
        // Opened, read, appended to, synchronised, closed.
        self.operations += 5;
        Ok(())
    }

    fn read_one(&mut self) -> io::Result<()> {
        let Some(number) = self.choose() else { return Ok(()) };
        File::open(self.path(number))?.read_to_end(&mut Vec::new())?;
        self.give_back(number);
        // Opened, read, closed.
        self.operations += 3;
        Ok(())
    }

    /// Appends, synchronises and closes.
    fn append(&mut self, mut file: File) -> io::Result<()> {
        let bytes = self.random.random_range(1..=APPEND_BYTES);
        file.write_all(&self.buffer[..bytes])?;
        file.sync_all()
    }
}
