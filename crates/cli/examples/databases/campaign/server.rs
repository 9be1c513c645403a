//! A database server on a directory that may lose its storage at any moment.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use rustix::process::{Pid, kill_process};

use super::database::Database;
use super::{Outcome, run, wait_for};

/// How long it may take to start, with its recovery, and to end.
const PATIENCE: Duration = Duration::from_secs(90);

/// A database, and its scratch directory: paths of sockets are short, and a server that starts removes the temporary
/// files of others.
pub struct Installation {
    scratch: tempfile::TempDir,
    pub database: Box<dyn Database>,
}

/// A server that answers; killed when dropped.
pub struct Running<'a> {
    server: Child,
    installation: &'a Installation,
}

impl Installation {
    pub fn new(database: Box<dyn Database>) -> Outcome<Installation> {
        let scratch = tempfile::tempdir()?;
        database.prepare_scratch(scratch.path())?;
        Ok(Installation { scratch, database })
    }

    /// Makes the system's tables in a directory that is not there yet.
    pub fn install(&self, data: &Path) -> Outcome<()> {
        self.database.install(data, self.scratch.path())
    }

    /// Starts it, and waits until it answers: it has recovered then.
    pub fn start(&self, data: &Path) -> Outcome<Running<'_>> {
        let messages = self.scratch.path().join("log");
        let said = File::create(&messages)?;
        let mut command = self.database.serve(data, self.scratch.path());
        let server = command.stdout(said.try_clone()?).stderr(said).spawn()?;
        let mut running = Running { server, installation: self };
        wait_for("the server answers", PATIENCE, || {
            if let Some(ended) = running.server.try_wait()? {
                let said = String::from_utf8_lossy(&fs::read(&messages)?).into_owned();
                let errors = said.lines().filter(|line| self.database.is_error(line)).take(3);
                let errors: Vec<_> = errors.collect();
                return Err(format!("the server does not start: {ended}: {}", errors.join("; ")).into());
            }
            Ok(running.ask("SELECT 1").is_ok().then_some(()))
        })?;
        Ok(running)
    }
}

impl Running<'_> {
    /// A client of it.
    pub fn client(&self) -> Command {
        self.installation.database.client(self.scratch())
    }

    pub fn scratch(&self) -> &Path {
        self.installation.scratch.path()
    }

    pub fn database(&self) -> &dyn Database {
        &*self.installation.database
    }

    /// The process, which can be sent signals.
    pub fn process(&self) -> &Child {
        &self.server
    }

    pub fn ask(&self, sql: &str) -> Outcome<String> {
        run(self.client().args([self.database().option_to_ask(), sql]))
    }

    /// Ends it in good order.
    pub fn stop(mut self) -> Outcome<()> {
        self.database().request_end(&self)?;
        let ended = wait_for("the server has ended", PATIENCE, || Ok(self.server.try_wait()?))?;
        if ended.success() { Ok(()) } else { Err(format!("the server ended with {ended}").into()) }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.server), self.database().signal_to_kill());
        let _ = self.server.wait();
    }
}
