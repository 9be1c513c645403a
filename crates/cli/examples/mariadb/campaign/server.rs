//! The server of MariaDB, on a directory that may lose its storage at any moment.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use rustix::fs::{XattrFlags, setxattr};

use super::{Outcome, run, system, wait_for};

/// How long it may take to start, with its recovery, and to end.
const PATIENCE: Duration = Duration::from_secs(90);
/// The attribute that makes what is written to a file between two synchronisations all or nothing.
const ATOMIC: &str = "user.weir.atomic";

/// How the server is configured.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Whether InnoDB writes each page twice.
    pub doublewrite: bool,
    /// MiB of InnoDB's pages in memory.
    pub pool_mib: u32,
    /// MiB of InnoDB's redo log.
    pub log_mib: u32,
}

/// An installation of MariaDB: what it is told, and where its socket, its messages and its temporary files are.
pub struct Mariadb {
    /// Paths of sockets are short; and a server that starts removes the temporary files of others.
    beside: tempfile::TempDir,
    setup: Setup,
}

/// A server that answers; killed when dropped.
pub struct Running {
    server: Child,
    socket: PathBuf,
}

impl Mariadb {
    pub fn new(setup: Setup) -> Outcome<Mariadb> {
        Ok(Mariadb { beside: tempfile::tempdir()?, setup })
    }

    /// Makes the system's tables in a directory that is not there yet.
    pub fn install(&self, data: &Path) -> Outcome<()> {
        let mut command = system("mariadb-install-db");
        command.args(["--no-defaults", "--user=root", "--skip-test-db"]).arg(self.temporary());
        run(command.arg(format!("--datadir={}", data.display()))).map(drop)
    }

    fn temporary(&self) -> String {
        format!("--tmpdir={}", self.beside.path().display())
    }

    /// Starts it, and waits until it answers: it has recovered then.
    pub fn start(&self, data: &Path) -> Outcome<Running> {
        let [socket, messages] = ["s", "log"].map(|name| self.beside.path().join(name));
        let _ = fs::remove_file(&socket);
        let Setup { doublewrite, pool_mib, log_mib } = self.setup;
        let mut command = system("mariadbd");
        command
            .args(["--no-defaults", "--user=root", "--skip-networking", "--innodb-flush-log-at-trx-commit=1"])
            // It ends with an error where it would write a core.
            .args(["--skip-stack-trace", "--innodb-autoextend-increment=4", "--innodb-fast-shutdown=1"])
            .arg(self.temporary())
            .arg(format!("--innodb-doublewrite={}", u8::from(doublewrite)))
            .arg(format!("--innodb-buffer-pool-size={pool_mib}M"))
            .arg(format!("--innodb-log-file-size={log_mib}M"))
            .arg(format!("--datadir={}", data.display()))
            .arg(format!("--socket={}", socket.display()));
        let said = File::create(&messages)?;
        let server = command.stdout(said.try_clone()?).stderr(said).spawn()?;
        let mut running = Running { server, socket };
        wait_for("MariaDB answers", PATIENCE, || {
            if let Some(ended) = running.server.try_wait()? {
                let said = String::from_utf8_lossy(&fs::read(&messages)?).into_owned();
                let errors: Vec<_> = said.lines().filter(|line| line.contains("[ERROR]")).take(3).collect();
                return Err(format!("MariaDB does not start: {ended}: {}", errors.join("; ")).into());
            }
            Ok(running.ask("SELECT 1").is_ok().then_some(()))
        })?;
        Ok(running)
    }
}

impl Running {
    /// A client of it.
    pub fn client(&self) -> Command {
        let mut command = system("mariadb");
        command.args(["--no-defaults", "--user=root", "--skip-column-names", "--batch", "--unbuffered"]);
        command.arg(format!("--socket={}", self.socket.display()));
        command
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    pub fn ask(&self, sql: &str) -> Outcome<String> {
        run(self.client().args(["--execute", sql]))
    }

    /// A number that the server counts, by its name.
    pub fn counter(&self, name: &str) -> Outcome<u64> {
        let answer = self.ask(&format!("SHOW GLOBAL STATUS LIKE '{name}'"))?;
        Ok(answer.split_whitespace().nth(1).ok_or("no such counter")?.parse()?)
    }

    /// Ends it in good order.
    pub fn stop(mut self) -> Outcome<()> {
        self.ask("SHUTDOWN")?;
        let ended = wait_for("MariaDB has ended", PATIENCE, || Ok(self.server.try_wait()?))?;
        if ended.success() { Ok(()) } else { Err(format!("MariaDB ended with {ended}").into()) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// The files that hold InnoDB's pages.
pub fn page_files(data: &Path) -> Outcome<Vec<PathBuf>> {
    let mut found = vec![data.join("ibdata1")];
    for directory in directories(data)? {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "ibd") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Those of the databases.
fn directories(data: &Path) -> Outcome<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(data)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// Makes all files that hold InnoDB's pages atomic, and those that will be made beside them. The server is not running.
pub fn make_atomic(data: &Path) -> Outcome<()> {
    for path in directories(data)?.into_iter().chain(page_files(data)?) {
        setxattr(&path, ATOMIC, b"1", XattrFlags::empty())
            .map_err(|error| format!("{}: {ATOMIC}: {error}; is it on a mount of Weir?", path.display()))?;
    }
    Ok(())
}
