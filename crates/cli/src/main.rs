//! `weir`: barriers on any disk, measured on yours.
//!
//! [`bench`] measures, [`crash`] cuts the power under workloads, [`figures`] runs the papers' figures, [`volume`] makes, shows and checks volumes, [`mkfs`],
//! [`fsck`], [`put`], [`get`] and [`list`] make, check, fill and read filesystems, [`mount`] and [`disk`] mount them, and [`serve`] serves volumes to virtual machines.
//! Results go to standard output, everything else to standard error. The exit code is 0 for success, 1 where a
//! check found damage, and 2 where the program could not do what it was asked to; [`fsck`] ends with 4 and 8 for
//! the two, as `e2fsck` does.

mod ask_volume;
mod barrier;
mod bench;
mod block_server;
mod branch_status;
mod by_name;
mod cache;
mod campaign;
mod cgroup;
mod closing;
mod crash;
mod cuts;
mod devices;
mod disk;
mod error;
mod f2fs_status;
mod figures;
mod fsck;
mod generate;
mod get;
mod grow;
mod handover;
mod health;
mod helper;
mod image;
mod journal_engine;
mod journal_mode;
mod list;
mod log_line;
mod memory;
mod messages;
mod metrics;
mod metrics_server;
mod mkfs;
mod moment;
mod mount;
mod mount_f2fs;
mod mountpoint;
mod occupant;
mod open;
mod owner;
mod plain;
mod program;
mod progress;
mod put;
mod repair;
mod replica;
mod replica_mount;
mod replicate;
mod replication;
mod report_file;
mod resize;
mod restart;
mod restarts;
mod restore;
mod send;
mod serve;
mod serve_status;
mod service;
mod service_manager;
mod signals;
mod signatures;
mod size;
mod snapshot;
mod socket_address;
mod sqlite;
mod stack;
mod status;
mod successor;
mod sync_promise;
mod table;
mod time_limit;
mod trace;
mod umount;
mod volume;
mod volume_calls;

use std::future::Future;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser, Subcommand};
use signal_hook::consts::SIGXFSZ;
use tracing::Level;
use weir_runtime::{Handle, Runtime, Wall};

use crate::error::CliError;
use crate::log_line::LogLine;

/// Barriers on any disk: one write before another, without waiting for the disk and without a flush
///
/// Weir orders writes on the disk that you have, in user space, on an unmodified Linux kernel. A barrier says
/// "this before that" and waits for nothing; a flush makes data durable when a program asks for that.
#[derive(Debug, Parser)]
#[command(name = "weir", version, max_term_width = 100, after_help = EXAMPLES)]
struct Arguments<C: Subcommand> {
    #[command(subcommand)]
    command: C,
}

const EXAMPLES: &str = "\
Examples:
  weir mkfs --volume a.weir --size 4G      a volume in a new file, and a filesystem in it
  weir mount a.weir /mnt/weir              for any program; weir umount /mnt/weir ends it
  weir status /mnt/weir                    flushes saved, and how much a crash could take
  weir volume check a.weir                 read all of it and compare checksums
  weir bench disk --quick                  half a minute, in the current directory
  weir bench disk --on /mnt/disk --json    the whole benchmark on another disk, for scripts
  weir mkfs a.img --size 4G                a filesystem in a new file, without a volume
  weir put -r a.img photos /               copy a directory's files into an image
  weir fsck disk.img                       check a filesystem
  weir figures fast18-fig09                a figure of the paper, on emulated devices

Exit codes: 0 success, 1 a check found damage, 2 the program could not do what it was asked to.
Those of fsck, as of e2fsck: 0 clean, 4 something is wrong, 8 it cannot be checked.
Those of status: 0 healthy, 1 something is wrong, 2 no mount or server, it has ended, or you may
not look, 3 the server does not answer.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a filesystem, ext4 or F2FS, alone or in a volume, in a file or on a block device
    Mkfs(mkfs::MkfsArguments),
    /// Mount a filesystem on a directory, for any program
    Mount(Box<mount::MountArguments>),
    /// Show the health, flushes, loss window and space of a mount, or of a server of a volume
    ///
    /// docs/status.md explains each line. Exit codes: 0 healthy, 1 something is wrong, 2 no mount or server, it has ended, or you
    /// may not look, 3 the server does not answer.
    Status(status::StatusArguments),
    /// Order all that was done on a mount before, by any program, before all that comes after
    Barrier(barrier::BarrierArguments),
    /// Make everything on a mount durable and end it
    ///
    /// The command returns when the server has ended and the volume is free, and reports errors of the server. Exit code 3: the
    /// server does not answer, and is still mounted.
    Umount(umount::UmountArguments),
    /// Have the program that is installed by now serve a mount, such as after an upgrade
    ///
    /// Programs that use the mount do not notice, but that their calls wait for a moment. The server's process stays, with the
    /// options that it was started with. docs/operators.md says what keeps it from that.
    Restart(restart::RestartArguments),
    /// Show a volume or an emulated device as one file, for a loop device
    Disk(disk::DiskArguments),
    /// Serve a volume to virtual machines and tools: by NBD, by vhost-user-blk, or as a block device (ublk)
    ///
    /// docs/nbd.md, docs/vhost-user.md and docs/ublk.md say what each of them promises, and how clients use it.
    Serve(serve::ServeArguments),
    /// Make, show, check, repair, resize and upgrade volumes
    #[command(subcommand)]
    Volume(volume::VolumeCommand),
    /// Keep what a volume holds under a name, list, delete, and go back
    #[command(subcommand)]
    Snapshot(snapshot::SnapshotCommand),
    /// Make a clone of a snapshot: a volume of its own that takes space as it is written
    Clone(snapshot::CloneArguments),
    /// Write a snapshot, or what has changed since an earlier one, to standard output
    Send(send::SendArguments),
    /// Take such a snapshot from standard input into another volume
    Receive(send::ReceiveArguments),
    /// Ship a closed volume to an object store, or check what is there, and end; weir mount --replicate ships while it serves
    ///
    /// Credentials come from AWS_ACCESS_KEY_ID and the other variables AWS_..., see docs/replicate.md.
    Replicate(replicate::ReplicateArguments),
    /// Make a volume of what was shipped to an object store, as of a time or a position
    Restore(restore::RestoreArguments),
    /// Copy files into a filesystem image, with owners, modes and links
    Put(put::PutArguments),
    /// Copy files out of a filesystem image, with owners, modes and links
    Get(get::GetArguments),
    /// List a directory of a filesystem image
    Ls(list::ListArguments),
    /// Write a file of a filesystem image to standard output
    Cat(list::CatArguments),
    /// Check a filesystem, ext4 or F2FS; it is changed only with `--replay`
    ///
    /// It reads no file data; `weir volume check` reads all of a volume. Exit codes: 0 clean, 4 something is wrong, 8
    /// it cannot be checked.
    Fsck(fsck::FsckArguments),
    /// Measure what order costs: raw disk, host's filesystem, Weir
    Bench(bench::BenchArguments),
    /// Cut the power under any program, or under workloads of your own, and judge what is left
    #[command(subcommand)]
    Crash(crash::CrashCommand),
    /// Run the papers' figures on emulated devices
    Figures(figures::FiguresArguments),
    /// List the devices that can be emulated
    Devices(devices::DevicesArguments),
    /// Write one run on an emulated device as a timeline, for Perfetto
    Trace(trace::TraceArguments),
}

/// The whole command line. Help, manual pages and completions show [`Command`] alone.
#[derive(Debug, Subcommand)]
enum Taken {
    #[command(flatten)]
    Told(Box<Command>),
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
    /// A filesystem cannot be checked, and the cause was reported.
    Unreadable,
}

fn main() -> ExitCode {
    // Otherwise a limit on the size of files would end the program without a word; now the write fails, and that is reported.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
    if let Some(code) = helper::run() {
        return code;
    }
    let result = match Arguments::<Taken>::try_parse().unwrap_or_else(|error| refuse(&error)).command {
        Taken::Told(command) => run(*command),
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
            // Where standard error is closed, too, the exit code still says it.
            let told = plain::of_text(&error.to_string());
            LogLine::new(Level::ERROR, "failed", told).print();
            ExitCode::from(error.exit_code())
        }
    }
}

/// Ends the program with what is wrong with its arguments, or with the help that was asked for. An unknown command gets
/// the names of those there are.
fn refuse(error: &clap::Error) -> ! {
    let _ = error.print();
    if error.kind() == ErrorKind::InvalidSubcommand {
        let (name, known) = known_commands(std::env::args().skip(1));
        let _ = writeln!(std::io::stderr(), "\nCommands of {name}: {}", known.join(", "));
    }
    std::process::exit(error.exit_code())
}

/// The command that the arguments begin with, and the names of the commands below it.
fn known_commands(arguments: impl Iterator<Item = String>) -> (String, Vec<String>) {
    let mut command = Arguments::<Command>::command();
    let mut name = command.get_name().to_owned();
    for argument in arguments {
        let Some(below) = command.find_subcommand(&argument).cloned() else { break };
        name = format!("{name} {argument}");
        command = below;
    }
    let known = command.get_subcommands().map(|below| below.get_name().to_owned()).collect();
    (name, known)
}

fn run(command: Command) -> Result<Verdict, CliError> {
    match command {
        Command::Bench(arguments) => bench::run(&arguments).map(|()| Verdict::Good),
        Command::Figures(arguments) => figures::run(&arguments).map(|()| Verdict::Good),
        Command::Crash(command) => crash::run(&command),
        Command::Devices(arguments) => devices::run(&arguments).map(|()| Verdict::Good),
        Command::Trace(arguments) => trace::run(&arguments).map(|()| Verdict::Good),
        Command::Fsck(arguments) => fsck::run(&arguments),
        Command::Volume(command) => volume::run(&command),
        Command::Snapshot(command) => snapshot::run(&command).map(|()| Verdict::Good),
        Command::Clone(arguments) => snapshot::run_clone(&arguments).map(|()| Verdict::Good),
        Command::Send(arguments) => send::run_send(&arguments).map(|()| Verdict::Good),
        Command::Receive(arguments) => send::run_receive(&arguments).map(|()| Verdict::Good),
        Command::Replicate(arguments) => replicate::run(&arguments),
        Command::Restore(arguments) => restore::run(&arguments),
        Command::Mkfs(arguments) => mkfs::run(&arguments).map(|()| Verdict::Good),
        Command::Put(arguments) => put::run(&arguments).map(|()| Verdict::Good),
        Command::Get(arguments) => get::run(&arguments).map(|()| Verdict::Good),
        Command::Mount(arguments) => mount::run(&arguments).map(|()| Verdict::Good),
        Command::Disk(arguments) => disk::run(&arguments).map(|()| Verdict::Good),
        Command::Serve(arguments) => serve::run(&arguments).map(|()| Verdict::Good),
        Command::Status(arguments) => status::run(&arguments),
        Command::Barrier(arguments) => barrier::run(&arguments).map(|()| Verdict::Good),
        Command::Umount(arguments) => umount::run(&arguments).map(|()| Verdict::Good),
        Command::Restart(arguments) => restart::run(&arguments).map(|()| Verdict::Good),
        Command::Ls(arguments) => list::run(&arguments).map(|()| Verdict::Good),
        Command::Cat(arguments) => list::cat(&arguments).map(|()| Verdict::Good),
    }
}

/// Runs `work` in wall time, its randomness decided by `seed`.
fn in_wall_time<T, F>(seed: u64, work: impl FnOnce(Handle) -> F) -> Result<T, CliError>
where
    F: Future<Output = Result<T, CliError>>,
{
    let runtime = Runtime::wall(Wall { seed, quota: cgroup::has_processor_quota(), ..Wall::default() })?;
    runtime.block_on(work(runtime.handle()))?
}

/// Writes a result to standard output.
fn print(text: &str) -> Result<(), CliError> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{text}")?;
    Ok(output.flush()?)
}
