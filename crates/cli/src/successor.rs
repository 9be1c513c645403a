//! The *successor*: the program that takes the place of the server of a mount, in the same process.
//!
//! 1. What is mounted has to be at its path still. The program that lies where this one was started from is asked whether it could go on (`weir mount --check-take-over`): it parses
//!    the command line and reads a document of the state. So a broken program, or one that knows another format, changes nothing.
//! 2. Everything is made durable while programs go on, so that little is left to be done while they wait.
//! 3. The server leaves requests with the kernel, answers those that it has read, and closes the filesystem and what is below, as an
//!    unmount does, but for what is held without a name.
//! 4. It starts the program in its place (`execve`), with the state and the descriptor of `/dev/fuse` at standard input
//!    ([`handover`](crate::handover)). If that fails, it starts itself.

use std::cell::RefCell;
use std::convert::Infallible;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use tracing::Level;
use weir_fuse::{HandoverError, MountState, Server};
use weir_program::ends_within;
use weir_runtime::Handle;
use weir_vfs::{Filesystem, HandoverRefusal};

use crate::closing::Closing;
use crate::error::CliError;
use crate::handover::{Handover, is_on_mount, send};
use crate::log_line::LogLine;
use crate::restarts::Restarts;
use crate::service::{Instructions, MountServiceArguments};
use crate::signals;
use crate::stack::Stack;

/// The options by which a program is told what it is started for, behind its command.
pub(crate) const TAKE_OVER: &str = "--take-over";
const CHECK_TAKE_OVER: &str = "--check-take-over";
/// How long the program may take to say whether it could go on.
const CHECKED_WITHIN: Duration = Duration::from_secs(10);
/// How long requests may be under way before programs get on with the server that there is.
const ANSWERED_WITHIN: Duration = Duration::from_secs(1);
/// How long a moment is looked for in which no update of an atomic file is under way, and how often.
const LOOKED_FOR: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(20);
/// Bytes of an error that are passed on.
const ERROR_BYTES: u64 = 4096;

/// What is needed to start the program anew, as it was when the server was started.
pub(crate) struct Successor {
    program: PathBuf,
    arguments: Vec<OsString>,
    restarts: Rc<RefCell<Restarts>>,
    source: PathBuf,
    mountpoint: PathBuf,
    directory: PathBuf,
    /// What the next server opens besides.
    opened: Vec<PathBuf>,
    /// Why there is none, whatever the state.
    refusal: Option<&'static str>,
}

impl Successor {
    /// That of a server that was started just now, or has taken over.
    pub(crate) fn new(
        (source, mountpoint): (&Path, &Path),
        service: &MountServiceArguments,
        taken_over: Option<&Handover>,
        refusal: Option<&'static str>,
    ) -> Successor {
        let program = taken_over.map_or_else(program_of_this_process, |handover| handover.program.clone());
        let here = || std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        let directory = taken_over.map_or_else(here, |handover| handover.directory.clone());
        let restarts = taken_over.map(|handover| handover.restarts.clone()).unwrap_or_default();
        Successor {
            program,
            arguments: own_arguments(std::env::args_os()),
            restarts: Rc::new(RefCell::new(restarts)),
            source: source.canonicalize().unwrap_or_else(|_| weir_fuse::absolute(source)),
            mountpoint: weir_fuse::absolute(mountpoint),
            opened: service.clone().within(&directory).opened_paths(),
            directory,
            refusal,
        }
    }

    /// What a status tells.
    pub(crate) fn restarts(&self) -> Rc<RefCell<Restarts>> {
        Rc::clone(&self.restarts)
    }

    /// Starts the next server in the place of this one. It returns where that cannot be done, which the status tells.
    ///
    /// # Errors
    /// The server ends: what [`close_for_handover`](Closing::close_for_handover) has failed for, and [`CliError::NoSuccessor`] where no
    /// program could be started, and everything is closed.
    pub(crate) async fn take_place(
        &self,
        handle: &Handle,
        server: &Server,
        instructions: &mut Instructions,
        closing: &Closing<'_>,
    ) -> Result<(), CliError> {
        let refused = match self.try_to_take_place(handle, server, instructions, closing).await {
            Ok(never) => match never {},
            Err(refused) => refused,
        };
        match refused {
            Refused::NotClosed(error) => return Err(*error),
            Refused::Closed(source) => {
                return Err(CliError::NoSuccessor { path: self.mountpoint.clone(), source });
            }
            _ => {}
        }
        let why = refused.to_string();
        let message = format!("{}: the server was not restarted: {why}", self.mountpoint.display());
        LogLine::new(Level::WARN, "restart_refused", message)
            .with_path(&self.mountpoint)
            .with("reason", why.as_str())
            .print();
        let next = self.restarts.borrow().refused(&why);
        self.restarts.replace(next);
        Ok(())
    }

    async fn try_to_take_place(
        &self,
        handle: &Handle,
        server: &Server,
        instructions: &mut Instructions,
        closing: &Closing<'_>,
    ) -> Result<Infallible, Refused> {
        let (filesystem, stack) = (closing.filesystem(), closing.stack());
        if let Some(why) = self.refusal {
            return Err(Refused::Because(why));
        }
        self.require_source(stack)?;
        // Of the state only the form counts here.
        let document = self.document(pause(handle, server, filesystem).await?);
        server.resume();
        self.check(handle, document?).await?;
        if filesystem.read_only().is_none() {
            filesystem.sync().await.map_err(Refused::Filesystem)?;
        }
        let state = pause(handle, server, filesystem).await?;
        let socket = self.document(state).and_then(|document| Ok(send(&document, Some(server.device()))?));
        let socket = socket.inspect_err(|_| server.resume())?;
        signals::block();
        let may_close = match instructions.end_is_pending() {
            true => Err(Refused::Because("it is being ended")),
            false => self.require_source(stack),
        };
        if let Err(refused) = may_close {
            signals::unblock();
            server.resume();
            return Err(refused);
        }
        let started = self.close_and_exec(closing, &socket).await;
        signals::unblock();
        started
    }

    /// Closes what the next server opens, and starts it. There is no way back from here.
    async fn close_and_exec(&self, closing: &Closing<'_>, socket: &OwnedFd) -> Result<Infallible, Refused> {
        closing.close_for_handover().await.map_err(|error| Refused::NotClosed(Box::new(error)))?;
        rustix::stdio::dup2_stdin(socket).map_err(|errno| Refused::Closed(errno.into()))?;
        let failed = self.exec(&self.program);
        let message = format!("cannot start {}: {failed}; trying the old program", self.program.display());
        LogLine::new(Level::ERROR, "program_not_started", message).with_path(&self.program).print();
        Err(Refused::Closed(self.exec(Path::new("/proc/self/exe"))))
    }

    fn document(&self, mount: MountState) -> Result<Vec<u8>, Refused> {
        let handover = Handover {
            program: self.program.clone(),
            source: self.source.clone(),
            mountpoint: self.mountpoint.clone(),
            directory: self.directory.clone(),
            restarts: self.restarts.borrow().done(),
            mount,
        };
        Ok(handover.to_bytes()?)
    }

    /// Refuses where the next server would not find what is mounted: it may have been moved, and another one be there.
    fn require_source(&self, stack: &Stack) -> Result<(), Refused> {
        match stack.file().is_none_or(|disk| disk.is_at(&self.source)) {
            true => Ok(()),
            false => Err(Refused::Because(
                "what is mounted is not at its path any more: unmount it, and mount it where it is now",
            )),
        }
    }

    /// Asks the program whether it could go on.
    async fn check(&self, handle: &Handle, document: Vec<u8>) -> Result<(), Refused> {
        let (program, mountpoint, opened) =
            (self.program.clone(), self.mountpoint.clone(), self.opened.clone());
        let arguments = self.arguments_with(CHECK_TAKE_OVER);
        let checked = handle.blocking(move || {
            // While the next server starts, nothing is answered.
            if std::iter::once(&program).chain(&opened).any(|path| is_on_mount(path, &mountpoint)) {
                return Err(Refused::Because("the program, its log or its socket is on the mount itself"));
            }
            run_check(&program, &arguments, &document)
        });
        checked.await.unwrap_or(Err(Refused::Because("no thread can be started")))
    }

    /// The command line, with an option behind the command.
    fn arguments_with(&self, option: &str) -> Vec<OsString> {
        let mut arguments = self.arguments.clone();
        arguments.insert(2.min(arguments.len()), option.into());
        arguments
    }

    /// Starts a program in the place of this one; why it could not.
    fn exec(&self, program: &Path) -> io::Error {
        let as_text = |text: &OsStr| CString::new(text.as_bytes());
        let started = || -> io::Result<Infallible> {
            let arguments = self.arguments_with(TAKE_OVER);
            let arguments = arguments.iter().map(|text| as_text(text)).collect::<Result<Vec<_>, _>>()?;
            let variable = |(mut name, value): (OsString, OsString)| {
                name.push("=");
                name.push(value);
                CString::new(name.into_vec())
            };
            let variables = std::env::vars_os().map(variable).collect::<Result<Vec<_>, _>>()?;
            Ok(nix::unistd::execve(&as_text(program.as_os_str())?, &arguments, &variables)?)
        };
        match started() {
            Ok(never) => match never {},
            Err(error) => error,
        }
    }
}

/// Why a server was not restarted.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("{0}")]
    Because(&'static str),
    #[error(transparent)]
    State(#[from] HandoverError),
    #[error(transparent)]
    Document(#[from] crate::handover::HandoverError),
    #[error("{}: {why}", program.display())]
    Program { program: PathBuf, why: String },
    #[error("{0}")]
    System(#[from] io::Error),
    #[error("the filesystem cannot be made durable: {0}")]
    Filesystem(weir_vfs::FsError),
    /// It could not be closed as it should be, and the server ends.
    #[error("it cannot be closed: {0}")]
    NotClosed(Box<CliError>),
    /// Everything is closed, and no program runs in its place.
    #[error("{0}")]
    Closed(io::Error),
}

/// Pauses a server in a moment in which no update of an atomic file is under way.
async fn pause(handle: &Handle, server: &Server, filesystem: &Filesystem) -> Result<MountState, Refused> {
    let began = handle.now();
    loop {
        match server.pause(ANSWERED_WITHIN).await {
            Err(HandoverError::Filesystem(HandoverRefusal::UpdateOpen(_)))
                if handle.now().since(began) < LOOKED_FOR && filesystem.read_only().is_none() =>
            {
                handle.sleep(LOOK).await;
            }
            paused => return Ok(paused?),
        }
    }
}

/// Runs the program on a document.
fn run_check(program: &Path, arguments: &[OsString], document: &[u8]) -> Result<(), Refused> {
    let mut errors = File::from(memfd_create("errors", MemfdFlags::CLOEXEC).map_err(io::Error::from)?);
    let refused = |why: String| Refused::Program { program: program.to_owned(), why };
    let (name, rest) =
        arguments.split_first().ok_or_else(|| refused("there is no command line".to_owned()))?;
    let mut command = Command::new(program);
    command
        .arg0(name)
        .args(rest)
        .stdin(send(document, None)?)
        .stdout(Stdio::null())
        .stderr(errors.try_clone()?);
    let mut child = command.spawn().map_err(|error| refused(error.to_string()))?;
    if !ends_within(&child, CHECKED_WITHIN)? {
        child.kill()?;
        child.wait()?;
        return Err(refused(format!("it does not end within {} s", CHECKED_WITHIN.as_secs())));
    }
    let status = child.wait()?;
    if status.success() {
        return Ok(());
    }
    errors.rewind()?;
    let mut told = Vec::new();
    errors.take(ERROR_BYTES).read_to_end(&mut told)?;
    let told = String::from_utf8_lossy(&told);
    let told = told.trim().trim_start_matches("weir: ");
    Err(refused(if told.is_empty() { status.to_string() } else { told.replace('\n', " ") }))
}

/// The path by which this program was started, links in it not followed: by its name, or found by the caller, as in PATH. Where there is
/// none, what it is.
pub(crate) fn program_of_this_process() -> PathBuf {
    let name = std::env::args_os().next().map(PathBuf::from);
    let found = PathBuf::from(OsStr::from_bytes(rustix::param::linux_execfn().to_bytes()));
    // A descriptor's path leads nowhere in another process.
    let is_path = |path: &PathBuf| {
        let of_descriptor = path.starts_with("/proc") || path.starts_with("/dev/fd");
        path.as_os_str().as_bytes().contains(&b'/') && !of_descriptor
    };
    let path = name.filter(is_path).or(Some(found).filter(is_path)).map(|path| weir_fuse::absolute(&path));
    path.or_else(|| std::env::current_exe().ok()).unwrap_or_else(|| PathBuf::from("/proc/self/exe"))
}

/// The command line as the first server had it.
fn own_arguments(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    // It is directly behind the command: what follows "--" is no option.
    arguments.enumerate().filter(|(nth, text)| *nth != 2 || text != TAKE_OVER).map(|(_, text)| text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_stays_what_it_was() {
        let own = |words: &[&str]| own_arguments(words.iter().map(OsString::from));
        let first = own(&["weir", "mount", "--foreground", "a", "b"]);
        assert_eq!(own(&["weir", "mount", TAKE_OVER, "--foreground", "a", "b"]), first);
        assert_eq!(own(&["weir", "mount", "--", TAKE_OVER, "b"]).len(), 5);
    }
}
