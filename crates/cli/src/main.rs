//! `weir`: barriers on any disk, measured on yours.
//!
//! One command line a door: [`bench`] measures, [`figures`] runs the papers' figures, [`volume`] makes, shows
//! and checks volumes, [`mkfs`], [`fsck`], [`put`], [`get`] and [`list`] make, check, fill and read filesystems.
//! Results go to standard output, everything else to standard error. The exit code is 0 for success, 1 where a
//! check found damage, and 2 where the program could not do what it was asked to; [`fsck`] ends with 4 and 8 for
//! the two, as `e2fsck` does.

mod bench;
mod cuts;
mod devices;
mod disk;
mod error;
mod figures;
mod fsck;
mod generate;
mod get;
mod helper;
mod image;
mod list;
mod memory;
mod messages;
mod mkfs;
mod mount;
mod open;
mod plain;
mod progress;
mod put;
mod report_file;
mod service;
mod size;
mod sqlite;
mod stack;
mod status;
mod table;
mod trace;
mod umount;
mod volume;

use std::future::Future;
use std::io::Write as _;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use weir_runtime::{Handle, Runtime, Wall};

use crate::error::CliError;

/// Barriers on any disk: one write before another, without waiting for the disk and without a flush
///
/// Weir orders writes on the disk that you have, in user space, on an unmodified Linux kernel. A barrier says
/// "this before that" and waits for nothing; a flush makes data durable where that is asked for.
#[derive(Debug, Parser)]
#[command(name = "weir", version, max_term_width = 100, after_help = EXAMPLES)]
struct Arguments<C: Subcommand> {
    #[command(subcommand)]
    command: C,
}

const EXAMPLES: &str = "\
Examples:
  weir bench disk --quick                  half a minute in the current directory
  weir bench disk --on /mnt/disk --json    all of it on another disk, for scripts
  weir figures fast18-fig09                a paper's figure, ours beside it
  weir mkfs --volume a.weir --size 4G      a volume in a new file, and a filesystem in it
  weir mount a.weir /mnt/weir              for any program; weir umount /mnt/weir ends it
  weir status /mnt/weir                    what barriers saved, and how much a crash could take
  weir volume check a.weir                 read all of it and compare checksums
  weir mkfs a.img --size 4G                a filesystem in a new file
  weir put -r a.img photos /               a directory's files into a filesystem image, without a mount
  weir fsck disk.img                       check an ext4 filesystem

Exit codes: 0 success, 1 a check found damage, 2 the program could not do what it was asked to.
Those of fsck, as of e2fsck: 0 clean, 4 something is wrong, 8 it cannot be checked.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure what order costs on this disk: raw, through the host's filesystem, and through Weir
    Bench(bench::BenchArguments),
    /// Run the FAST 2018 paper's figures on emulated devices, in virtual time, and compare
    Figures(figures::FiguresArguments),
    /// List the devices that can be emulated, with the source of every number
    Devices(devices::DevicesArguments),
    /// Write one run on an emulated device as a timeline, for Perfetto or Chrome's tracing page
    Trace(trace::TraceArguments),
    /// Check an ext4 filesystem, without changing it or reading file data; exit code 4 if something is wrong, 8 if it
    /// cannot be checked
    Fsck(fsck::FsckArguments),
    /// Make, show and check volumes
    #[command(subcommand)]
    Volume(volume::VolumeCommand),
    /// Make a filesystem (ext4) in a new file, an empty one, or on an empty block device
    Mkfs(mkfs::MkfsArguments),
    /// Copy files into a filesystem image, with modes, owners, times and links
    Put(put::PutArguments),
    /// Copy files out of a filesystem image, with modes, owners, times and links
    Get(get::GetArguments),
    /// Mount a filesystem on a directory of this machine, for any program
    Mount(mount::MountArguments),
    /// Show a volume or an emulated device as one file, to put a loop device and the kernel's filesystems on
    Disk(disk::DiskArguments),
    /// Say what a mount is doing: commits, flushes, dirty pages, space
    Status(status::StatusArguments),
    /// Make everything on a mount durable, end it, and wait until its server has let go
    Umount(umount::UmountArguments),
    /// List a directory of a filesystem image
    Ls(list::ListArguments),
    /// Write a file of a filesystem image to standard output
    Cat(list::CatArguments),
}

/// All that the program takes. Help, manual pages and completions tell of [`Command`] alone.
#[derive(Debug, Subcommand)]
enum Taken {
    #[command(flatten)]
    Told(Command),
    /// Write manual pages and completions of shells, for a package
    #[command(hide = true)]
    Generate(generate::GenerateArguments),
}

/// What a command found; its exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Good,
    Damaged,
    /// A filesystem has errors.
    Unclean,
    /// A filesystem cannot be checked, which was told.
    Unreadable,
}

fn main() -> ExitCode {
    if let Some(code) = helper::run() {
        return code;
    }
    let result = match Arguments::<Taken>::parse().command {
        Taken::Told(command) => run(command),
        Taken::Generate(arguments) => {
            let told = [Arguments::<Command>::command()].into_iter().chain(helper::commands());
            generate::run(&arguments, told).map(|()| Verdict::Good)
        }
    };
    match result {
        Ok(Verdict::Good) => ExitCode::SUCCESS,
        Ok(Verdict::Damaged) => ExitCode::from(1),
        Ok(Verdict::Unclean) => ExitCode::from(4),
        Ok(Verdict::Unreadable) => ExitCode::from(8),
        Err(CliError::Output(broken)) if broken.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(CliError::Silent) => ExitCode::from(2),
        Err(error) => {
            // Where standard error is gone too, the exit code still tells.
            let told = plain::of_text(&error.to_string());
            let _ = writeln!(std::io::stderr(), "weir: {told}");
            ExitCode::from(2)
        }
    }
}

fn run(command: Command) -> Result<Verdict, CliError> {
    match command {
        Command::Bench(arguments) => bench::run(&arguments).map(|()| Verdict::Good),
        Command::Figures(arguments) => figures::run(&arguments).map(|()| Verdict::Good),
        Command::Devices(arguments) => devices::run(&arguments).map(|()| Verdict::Good),
        Command::Trace(arguments) => trace::run(&arguments).map(|()| Verdict::Good),
        Command::Fsck(arguments) => fsck::run(&arguments),
        Command::Volume(command) => volume::run(&command),
        Command::Mkfs(arguments) => mkfs::run(&arguments).map(|()| Verdict::Good),
        Command::Put(arguments) => put::run(&arguments).map(|()| Verdict::Good),
        Command::Get(arguments) => get::run(&arguments).map(|()| Verdict::Good),
        Command::Mount(arguments) => mount::run(&arguments).map(|()| Verdict::Good),
        Command::Disk(arguments) => disk::run(&arguments).map(|()| Verdict::Good),
        Command::Status(arguments) => status::run(&arguments).map(|()| Verdict::Good),
        Command::Umount(arguments) => umount::run(&arguments).map(|()| Verdict::Good),
        Command::Ls(arguments) => list::run(&arguments).map(|()| Verdict::Good),
        Command::Cat(arguments) => list::cat(&arguments).map(|()| Verdict::Good),
    }
}

/// Runs `work` in wall time, its randomness decided by `seed`.
fn in_wall_time<T, F>(seed: u64, work: impl FnOnce(Handle) -> F) -> Result<T, CliError>
where
    F: Future<Output = Result<T, CliError>>,
{
    let runtime = Runtime::wall(Wall { seed, ..Wall::default() })?;
    runtime.block_on(work(runtime.handle()))?
}

/// Writes a result to standard output.
fn print(text: &str) -> Result<(), CliError> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{text}")?;
    Ok(output.flush()?)
}
