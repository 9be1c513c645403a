//! What the kernel's ext4 writes and flushes for the same calls as ours, on the same filesystem: whether the ext4 that figures compare with
//! is ext4.
//!
//! `kernel_ext4 [--weir PATH] [--calls N]`
//!
//! A filesystem is made by mkfs.ext4 on a disk that `weir disk` serves, and its bytes are copied. Then the kernel mounts it, and our
//! legacy engine, with checkpoints in the foreground, mounts the copy. Both get the same calls, and the requests of both are
//! counted. The disk has no FUA: the kernel's loop device makes a write and a flush of it. Times are not compared.
//!
//! It needs root, loop devices, e2fsprogs, and `weir`. It prints a line for each filesystem and workload: for each call, blocks that are
//! written to the journal and elsewhere, and flushes. A filesystem without a journal is not among them: ours mounts none.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]
#![expect(clippy::disallowed_methods, reason = "it waits for what other processes do")]

#[path = "../kernel_table2/disk.rs"]
#[expect(dead_code, reason = "no power is cut here")]
mod disk;
mod ours;

use std::collections::BTreeSet;
use std::error::Error;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use clap::Parser;
use tempfile::TempDir;
use weir_crash::Request;
use weir_fs::{Engine, JournalMode};

use disk::{Disk, MKFS, Mounted, run};

/// Counts what the kernel's ext4 and ours write and flush for the same calls.
#[derive(Parser)]
struct Arguments {
    /// The program `weir`.
    #[arg(long, default_value = "target/debug/weir")]
    weir: PathBuf,
    /// Calls of a workload, each with an fsync.
    #[arg(long, default_value_t = 1_000)]
    calls: u64,
}

/// What is called.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Workload {
    /// A block is appended to a file, and the file is synchronised.
    Appends,
    /// A block of one of some files is overwritten, each file in turn, and that file is synchronised.
    Overwrites,
}

/// Files that are overwritten, and blocks of each.
const FILES: u64 = 20;
const FILE_BLOCKS: u64 = 64;

/// Bytes of a block.
pub(crate) const BLOCK: usize = 4096;

impl Workload {
    /// The file of a call, and where in it the call writes.
    pub(crate) fn place(self, call: u64) -> (u64, u64) {
        match self {
            Workload::Appends => (0, call * BLOCK as u64),
            // A factor without a common divisor takes the blocks out of order.
            Workload::Overwrites => (call % FILES, call / FILES * 37 % FILE_BLOCKS * BLOCK as u64),
        }
    }

    /// Blocks that each file has before the calls begin.
    pub(crate) fn prepared(self) -> (u64, u64) {
        match self {
            Workload::Appends => (1, 0),
            Workload::Overwrites => (FILES, FILE_BLOCKS),
        }
    }
}

/// A filesystem: how it is made and mounted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Variant {
    name: &'static str,
    options: &'static str,
    engine: Engine,
    mode: JournalMode,
}

const VARIANTS: [Variant; 2] = [
    Variant {
        name: "ordered",
        options: "data=ordered",
        engine: Engine::Jbd2 { barrier: true },
        mode: JournalMode::Ordered,
    },
    Variant {
        name: "data",
        options: "data=journal",
        engine: Engine::Jbd2 { barrier: true },
        mode: JournalMode::Data,
    },
];

/// The size of the disk.
const SIZE: &str = "128M";

fn main() -> Result<(), Box<dyn Error>> {
    let Arguments { weir, calls } = Arguments::parse();
    println!("journal, workload, whose, journal blocks a call, other blocks, flushes");
    for variant in VARIANTS {
        for workload in [Workload::Appends, Workload::Overwrites] {
            let Played { image, journal, requests } = play_on_kernel(&weir, variant, workload, calls)?;
            print_counts(variant, workload, "kernel", &requests, &journal, calls);
            let requests = ours::play(&image, variant, workload, calls)?;
            print_counts(variant, workload, "ours", &requests, &journal, calls);
        }
    }
    Ok(())
}

fn print_counts(
    variant: Variant,
    workload: Workload,
    whose: &str,
    requests: &[Request],
    journal: &BTreeSet<u64>,
    calls: u64,
) {
    let written = || requests.iter().filter_map(|request| request.block.as_ref());
    let logged = written().filter(|(block, _)| journal.contains(&block.0)).count();
    let flushes = requests.iter().filter(|request| request.ends_epoch).count();
    let [logged, other, flushes] =
        [logged, written().count() - logged, flushes].map(|count| count as f64 / calls as f64);
    println!("{}, {workload:?}, {whose}, {logged:.3}, {other:.3}, {flushes:.3}", variant.name);
}

/// What the kernel was called for.
struct Played {
    /// The filesystem as the calls find it.
    image: Vec<u8>,
    /// The blocks of its journal.
    journal: BTreeSet<u64>,
    /// What the kernel requests for the calls.
    requests: Vec<Request>,
}

/// Plays a workload on the kernel's ext4.
fn play_on_kernel(
    weir: &Path,
    variant: Variant,
    workload: Workload,
    calls: u64,
) -> Result<Played, Box<dyn Error>> {
    let place = TempDir::new()?;
    let at = place.path().join("files");
    fs::create_dir(&at)?;
    let disk = Disk::serve(weir, place.path(), SIZE)?;
    let device = disk.device().display().to_string();
    run("mkfs.ext4", &[&MKFS[..], &[&device]].concat())?;
    prepare(&Mounted::new(&disk, variant.options, &at)?, workload)?;
    let image = disk.read()?;
    let blocks = run("debugfs", &["-R", "blocks <8>", &device])?;
    let journal = blocks.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let mounted = Mounted::new(&disk, variant.options, &at)?;
    let from = disk.log_bytes()?;
    let files: Vec<File> = (0..workload.prepared().0)
        .map(|number| File::options().write(true).open(mounted.at.join(name(number))))
        .collect::<io::Result<_>>()?;
    for call in 0..calls {
        let (file, offset) = workload.place(call);
        let file = files.get(file as usize).ok_or("a file that is not there")?;
        file.write_all_at(&content(call), offset)?;
        file.sync_all()?;
    }
    let requests = disk.log(from..disk.log_bytes()?)?.into_iter().map(|(request, _)| request).collect();
    Ok(Played { image, journal, requests })
}

/// Makes the files, and unmounts, so that the journal is empty.
fn prepare(mounted: &Mounted<'_>, workload: Workload) -> io::Result<()> {
    let (files, blocks) = workload.prepared();
    for number in 0..files {
        fs::write(mounted.at.join(name(number)), vec![1; blocks as usize * BLOCK])?;
    }
    Ok(())
}

/// The name of a file.
pub(crate) fn name(number: u64) -> String {
    format!("file-{number}")
}

/// What a call writes.
pub(crate) fn content(call: u64) -> Vec<u8> {
    call.to_le_bytes().repeat(BLOCK / 8)
}
