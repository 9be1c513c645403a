//! Commands that serve until they are told to end, in the background or not: a mount, or a socket.
//!
//! A server in the background keeps nothing of the process that started it: no terminal, no session, no directory, and
//! no open file. Otherwise a lock, a pipe or a mount of the caller's would be held as long as the server lives.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::Args;
use futures_util::future::{Either, select};
use futures_util::{FutureExt as _, select_biased};
use rustix::io::Errno;
use rustix::process::{Signal, set_parent_process_death_signal};
use signal_hook::iterator::Signals;
use tracing::Level;
use weir_fuse::Server;
use weir_runtime::{CpuLatencyGuard, Handle, Listener, keep_heap_small};

use crate::error::CliError;
use crate::handover::TakenOver;
use crate::log_line::{LogFormat, LogLine};
use crate::messages::Log;
use crate::metrics_server::serve_metrics;
use crate::mountpoint::is_mountpoint;
use crate::signals::Instruction;
use crate::socket_address::{SocketAddress, SocketFile};
use crate::successor::program_of_this_process;
use crate::{in_wall_time, log_line, memory, messages, print, service_manager, signals, status};

/// What a service in the background says when programs may use it.
const READY: &str = "ready";
/// What a service in the background is called, for `pgrep`.
const NAME_IN_KERNEL: &std::ffi::CStr = c"weir";
/// What is longer, a mount gives back to the system at once: its data is in slabs.
const MMAP_THRESHOLD: u32 = 1 << 18;
/// The first descriptor after standard input, output and error.
const FIRST_DESCRIPTOR: i32 = 3;
/// How often a start that waits looks for a signal to end.
const SIGNALS_EVERY: Duration = Duration::from_millis(100);

/// Where a service runs.
#[derive(Clone, Debug, Args)]
pub(crate) struct ServiceArguments {
    /// Stay in the foreground until it ends
    #[arg(long, short)]
    foreground: bool,
    /// Append the server's messages to FILE once it serves, such as that the disk has failed, and the events that
    /// RUST_LOG asks for, such as weir_journal=debug. Without it, they go to standard error, and in the background nowhere
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// How the server's messages are written
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    log_format: LogFormat,
    /// End when the thread ends that started it, as by a signal to end
    #[arg(long, hide = true, requires = "foreground")]
    with_parent: bool,
    /// Say on standard output that it serves, then leave the terminal
    #[arg(long, hide = true, requires = "foreground")]
    detach: bool,
}

impl ServiceArguments {
    pub(crate) fn is_foreground(&self) -> bool {
        self.foreground
    }

    /// How this process writes lines of a log.
    pub(crate) fn log_format(&self) -> LogFormat {
        self.log_format
    }
}

/// Where a service of a mount runs, and what it does to the machine.
#[derive(Clone, Debug, Args)]
pub(crate) struct MountServiceArguments {
    #[command(flatten)]
    service: ServiceArguments,
    /// Keep the machine's idle processors from sleeping while the mount is in use, and 0.1 s longer. Calls return
    /// sooner, on virtual machines in a third of the time; it draws power. Superuser only [default: where that can be done]
    #[arg(long)]
    awake: bool,
    /// Let idle processors sleep
    #[arg(long, conflicts_with = "awake")]
    no_awake: bool,
    /// Serve metrics for Prometheus by HTTP, under /metrics, see docs/operators.md: unix:PATH, a socket that only this user can
    /// use; or tcp:PORT on 127.0.0.1
    #[arg(long, value_name = "unix:PATH|tcp:PORT")]
    metrics: Option<SocketAddress>,
}

impl MountServiceArguments {
    pub(crate) fn is_foreground(&self) -> bool {
        self.service.foreground
    }

    /// How this process writes lines of a log.
    pub(crate) fn log_format(&self) -> LogFormat {
        self.service.log_format
    }

    /// With paths that are in this directory, wherever the process is.
    pub(crate) fn within(mut self, directory: &Path) -> MountServiceArguments {
        self.service.log = self.service.log.map(|path| directory.join(path));
        self.metrics = self.metrics.map(|address| address.within(directory));
        self
    }

    /// Whether the log can be opened.
    pub(crate) fn check_log(&self) -> Result<(), CliError> {
        self.service.log.as_deref().map(Log::open).transpose().map(drop)
    }

    /// What a server with these arguments opens, or makes.
    pub(crate) fn opened_paths(&self) -> Vec<PathBuf> {
        let socket = self.metrics.as_ref().and_then(SocketAddress::path);
        self.service.log.as_deref().into_iter().chain(socket).map(Path::to_owned).collect()
    }

    /// Whether processors are kept awake: where it was asked for, or can be done.
    pub(crate) fn awake(&self) -> bool {
        self.awake || !self.no_awake && CpuLatencyGuard::new().is_ok()
    }
}

/// A service that runs.
pub(crate) struct Service {
    signals: Signals,
    detach: bool,
    log: Option<Log>,
    /// Where its metrics are asked for.
    metrics: Option<(Listener, Option<SocketFile>)>,
    /// Where it serves.
    place: PathBuf,
    /// What the server before has handed over.
    pub(crate) taken_over: Option<TakenOver>,
}

/// Runs `work` in wall time, which mounts: here, or in a process of its own, of which this one waits until it has mounted.
pub(crate) fn run_mount(
    arguments: &MountServiceArguments,
    mountpoint: &Path,
    work: impl AsyncFnOnce(Handle, Service) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let failed = |doing| move |source| CliError::File { doing, path: mountpoint.to_owned(), source };
    std::fs::read_dir(mountpoint).map(drop).map_err(|source| match Errno::from_io_error(&source) {
        Some(Errno::NOTCONN | Errno::CONNABORTED) => CliError::ServerEnded(mountpoint.to_owned()),
        Some(Errno::NOENT) => CliError::NoMountpoint(mountpoint.to_owned()),
        Some(Errno::NOTDIR) => CliError::MountpointNoDirectory(mountpoint.to_owned()),
        _ => failed("mount on")(source),
    })?;
    if is_mountpoint(mountpoint) && status::ask(mountpoint).is_ok() {
        return Err(CliError::MountedThere(mountpoint.to_owned()));
    }
    run_server(arguments, mountpoint, None, work)
}

/// The same, here, with a mount that is there already. Its directory is not looked at: nothing is answered yet.
pub(crate) fn run_taken_over(
    arguments: &MountServiceArguments,
    taken_over: TakenOver,
    work: impl AsyncFnOnce(Handle, Service) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let mountpoint = taken_over.handover.mountpoint.clone();
    run_server(arguments, &mountpoint, Some(taken_over), work)
}

fn run_server(
    arguments: &MountServiceArguments,
    mountpoint: &Path,
    taken_over: Option<TakenOver>,
    work: impl AsyncFnOnce(Handle, Service) -> Result<(), CliError>,
) -> Result<(), CliError> {
    if arguments.awake {
        // Only to see that it can be done.
        drop(CpuLatencyGuard::new().map_err(CliError::Awake)?);
    }
    run(&arguments.service, mountpoint, MMAP_THRESHOLD, async |handle, mut service| {
        let listen = |address: &SocketAddress| address.listen(&handle);
        service.metrics = match arguments.metrics.as_ref().map(listen).transpose() {
            // Programs use the mount: it goes on without them.
            Err(error) if taken_over.is_some() => {
                let message = format!("there are no metrics: {error}");
                LogLine::new(Level::WARN, "metrics_missing", message)
                    .with("reason", error.to_string())
                    .print();
                None
            }
            listening => listening?,
        };
        if let (Some(log), true) = (&service.log, taken_over.is_some()) {
            log.take_standard_error();
        }
        service.taken_over = taken_over;
        work(handle, service).await
    })
}

/// Runs `work` in wall time, which serves at `place`: here, or in a process of its own, of which this one waits until it
/// serves. Memory of `mmap_threshold` bytes or more goes back to the system as soon as it is not used.
pub(crate) fn run(
    arguments: &ServiceArguments,
    place: &Path,
    mmap_threshold: u32,
    work: impl AsyncFnOnce(Handle, Service) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let failed = |doing| move |source| CliError::File { doing, path: place.to_owned(), source };
    if !arguments.foreground {
        return in_background().map_err(failed("start a server in the background for"))?;
    }
    // Before anything is served, so that no signal ends the program between.
    let signals = signals::take().map_err(failed("wait for signals to end the server for"))?;
    if arguments.with_parent {
        set_parent_process_death_signal(Some(Signal::TERM))
            .map_err(|errno| failed("end with the thread that started the server for")(errno.into()))?;
    }
    if arguments.detach {
        // It was started as /proc/self/exe, and would be found under that name.
        let _ = rustix::thread::set_name(NAME_IN_KERNEL);
    }
    let log = arguments.log.as_deref().map(Log::open).transpose()?;
    messages::send_to(log.as_ref(), arguments.detach).map_err(failed("write messages about"))?;
    let service = Service {
        signals,
        detach: arguments.detach,
        log,
        metrics: None,
        place: place.to_owned(),
        taken_over: None,
    };
    keep_heap_small(mmap_threshold);
    let ended = in_wall_time(0, async |handle: Handle| {
        drop(handle.spawn(memory::return_memory_periodically(handle.clone())));
        // Before it serves: after a restart the manager's watchdog runs while the volume is opened.
        service_manager::keep_watchdog(&handle);
        work(handle, service).await
    });
    if ended.is_ok() {
        LogLine::new(Level::INFO, "stopped", format!("ended: {}", place.display())).with_path(place).print();
    }
    ended
}

/// Starts this program anew, without a terminal, and waits until it serves or has failed.
fn in_background() -> std::io::Result<Result<(), CliError>> {
    let mut arguments: Vec<_> = std::env::args_os().skip(1).collect();
    // Directly after the command: what follows "--" is not an option.
    arguments.splice(1..1, ["--foreground".into(), "--detach".into()]);
    // The server opens what it needs itself; what this process was given is the caller's.
    close_fds::set_fds_cloexec(FIRST_DESCRIPTOR, &[]);
    let mut command = Command::new("/proc/self/exe");
    // It starts the next server by this path.
    command.arg0(program_of_this_process());
    let mut child = command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output).read_line(&mut line)?;
    }
    if line.trim_end() == READY {
        return Ok(Ok(()));
    }
    // It has said on standard error why.
    child.wait()?;
    Ok(Err(CliError::Silent))
}

impl Service {
    /// Says that it is mounted, and waits until it is unmounted, or a signal says to end; then it is unmounted. `restart` is called for a signal that asks
    /// for that, and returns where it cannot be done; with an error where the server cannot go on. `begin_end` is called when the
    /// mount begins to end. After an error, too, everything that programs have written by now has come from the kernel.
    pub(crate) async fn until_unmounted(
        mut self,
        handle: &Handle,
        mut server: Server,
        mut restart: impl AsyncFnMut(&Server, &mut Instructions) -> Result<(), CliError>,
        begin_end: impl FnOnce(),
    ) -> Result<(), CliError> {
        let place = self.place.display();
        let line = match server.is_taken_over() {
            true => LogLine::new(Level::INFO, "restarted", format!("goes on with the mount on {place}")),
            false => LogLine::new(Level::INFO, "started", format!("mounted on {place}")),
        };
        let serve_metrics =
            |(listener, file)| (serve_metrics(handle, listener, server.status_reader()), file);
        let _metrics = self.metrics.take().map(serve_metrics);
        let serving = async {
            let mut instructions = self.announce(handle, line)?;
            loop {
                let instruction = select_biased! {
                    ended = server.ended().fuse() => return Ok::<_, CliError>(Some(ended)),
                    instruction = instructions.next().fuse() => instruction,
                };
                match instruction {
                    Instruction::Restart => restart(&server, &mut instructions).await?,
                    Instruction::End => return Ok(None),
                }
            }
        };
        let ended = serving.await;
        begin_end();
        match ended {
            Ok(Some(ended)) => Ok(ended?),
            Ok(None) => {
                service_manager::notify_stopping();
                Ok(server.unmount().await?)
            }
            Err(error) => {
                // Programs that use it get errors, and find no dead mount.
                server.resume();
                let _ = server.unmount().await;
                Err(error)
            }
        }
    }

    /// What a step of the start comes to, however long it waits. None, said in the log, where a signal to end arrives before: what the
    /// step has begun is left as by a crash.
    pub(crate) async fn unless_ended<T>(
        &mut self,
        handle: &Handle,
        step: impl Future<Output = T>,
    ) -> Option<T> {
        let mut step = pin!(step);
        loop {
            if let Either::Left((done, _)) = select(step.as_mut(), handle.sleep(SIGNALS_EVERY)).await {
                return Some(done);
            }
            if self.end_is_pending() {
                self.log_early_end();
                return None;
            }
        }
    }

    /// Says that it has ended before it served.
    pub(crate) fn log_early_end(&self) {
        let message = format!("ended by a signal before it served {}", self.place.display());
        LogLine::new(Level::INFO, "ended_early", message).with_path(&self.place).print();
    }

    /// Whether a signal to end has arrived before it [serves](Self::announce). Such a signal is told once.
    pub(crate) fn end_is_pending(&mut self) -> bool {
        signals::end_is_pending(&mut self.signals, self.log.as_ref(), !self.detach)
    }

    /// Says by `line` that it serves, on the terminal and in the log; what is returned tells what signals say.
    pub(crate) fn announce(self, handle: &Handle, line: LogLine) -> Result<Instructions, CliError> {
        let Service { signals, detach, log, place, .. } = self;
        let line = line.with_path(&place);
        if detach {
            leave_terminal()?;
        } else if !log_line::are_dated() {
            line.print();
        }
        if let Some(log) = &log {
            log.take_standard_error();
            line.print();
        }
        service_manager::notify_ready();
        let (handle, in_foreground) = (handle.clone(), !detach);
        Ok(Instructions { handle, signals: Some(signals), is_ending: false, log, in_foreground })
    }
}

/// What signals tell a service that runs.
pub(crate) struct Instructions {
    handle: Handle,
    /// None while a thread waits for one.
    signals: Option<Signals>,
    is_ending: bool,
    log: Option<Log>,
    in_foreground: bool,
}

impl Instructions {
    /// Waits for the next one. To be called again only when it has returned; where no thread can wait, it is the end.
    pub(crate) async fn next(&mut self) -> Instruction {
        let Some(mut signals) = self.signals.take().filter(|_| !self.is_ending) else {
            return Instruction::End;
        };
        let (log, in_foreground) = (self.log.clone(), self.in_foreground);
        let waiting = self.handle.blocking(move || {
            let instruction = signals::next_instruction(&mut signals, log.as_ref(), in_foreground);
            (instruction, signals)
        });
        let Ok((instruction, signals)) = waiting.await else { return Instruction::End };
        self.signals = Some(signals);
        instruction
    }

    /// Waits for the end of a service that cannot be restarted.
    pub(crate) async fn until_end(mut self) {
        while self.next().await != Instruction::End {}
        service_manager::notify_stopping();
    }

    /// Whether a signal to end has arrived that [`next`](Self::next) has not returned yet.
    pub(crate) fn end_is_pending(&mut self) -> bool {
        let (log, in_foreground) = (self.log.as_ref(), self.in_foreground);
        let signals = self.signals.as_mut();
        self.is_ending |= signals.is_some_and(|signals| signals::end_is_pending(signals, log, in_foreground));
        self.is_ending
    }
}

/// Says that it serves, and leaves the terminal and the directory: by now everything is open, and the paths that
/// are needed later are absolute.
fn leave_terminal() -> Result<(), CliError> {
    let failed = |doing, path| move |source| CliError::File { doing, path: PathBuf::from(path), source };
    std::env::set_current_dir("/").map_err(failed("change to", "/"))?;
    // A session of its own; it fails for a process that leads one already.
    let _ = rustix::process::setsid();
    let null = File::options().read(true).write(true).open("/dev/null");
    let null = null.map(OwnedFd::from).map_err(failed("open", "/dev/null"))?;
    // Before the caller continues: it may wait until no process has its standard error open any more.
    let _ = rustix::stdio::dup2_stderr(&null);
    print(READY)?;
    let _ = rustix::stdio::dup2_stdout(&null);
    Ok(())
}
