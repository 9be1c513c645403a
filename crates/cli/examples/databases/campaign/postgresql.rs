//! PostgreSQL: pages of 8 KiB with checksums. It refuses to run as the superuser, so it runs as the user `postgres`, whom
//! its package makes.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};

use super::database::{Database, Setup};
use super::server::Running;
use super::{Outcome, run, system};

/// The user that it runs as.
const USER: &str = "postgres";

/// PostgreSQL, configured.
pub struct Postgresql {
    pub setup: Setup,
}

/// One of its programs, as its user; the process of it is that of the command.
fn as_user(program: &str) -> Command {
    let mut command = system("setpriv");
    command.args(["--reuid", USER, "--regid", USER, "--clear-groups"]).arg(program);
    // The user may have no way into the caller's directory.
    command.current_dir("/");
    command
}

/// Makes a directory that only its user may look into.
fn make_directory(path: &Path) -> Outcome<()> {
    run(system("install").args(["-d", "-o", USER, "-g", USER, "-m", "700"]).arg(path)).map(drop)
}

/// A client of any kind; the superuser of the database is called as the system's.
pub fn as_client(program: &str, scratch: &Path) -> Command {
    let mut command = system(program);
    command.args(["--username", "root", "--host"]).arg(scratch);
    command
}

impl Database for Postgresql {
    fn prepare_scratch(&self, scratch: &Path) -> Outcome<()> {
        make_directory(scratch)
    }

    fn install(&self, data: &Path, _: &Path) -> Outcome<()> {
        make_directory(data)?;
        let mut command = as_user("initdb");
        command.args(["--username", "root", "--auth", "trust", "--encoding", "UTF8", "--locale", "C"]);
        // Small segments of the log, so that a small log can be asked for.
        run(command.args(["--data-checksums", "--wal-segsize", "1", "--pgdata"]).arg(data)).map(drop)
    }

    fn serve(&self, data: &Path, scratch: &Path) -> Command {
        let Setup { pages_twice, pool_mib, log_mib } = self.setup;
        let mut command = as_user("postgres");
        command.arg("-D").arg(data).arg("-k").arg(scratch);
        let settings = [
            "listen_addresses=".to_owned(),
            format!("full_page_writes={}", if pages_twice { "on" } else { "off" }),
            format!("shared_buffers={pool_mib}MB"),
            format!("max_wal_size={log_mib}MB"),
            "min_wal_size=2MB".to_owned(),
            "max_connections=40".to_owned(),
            "log_min_messages=warning".to_owned(),
            "restart_after_crash=off".to_owned(),
        ];
        command.args(settings.iter().flat_map(|setting| ["-c", setting]));
        command
    }

    fn is_error(&self, line: &str) -> bool {
        // The server refuses clients until it has recovered: that is no error.
        let is_refusal = line.contains("the database system is starting up");
        ["FATAL:", "PANIC:", "ERROR:"].iter().any(|kind| line.contains(kind)) && !is_refusal
    }

    fn client(&self, scratch: &Path) -> Command {
        let mut command = as_client("psql", scratch);
        command.args(["--no-psqlrc", "--quiet", "--no-align", "--tuples-only", "--field-separator", "\t"]);
        command.args(["--set", "ON_ERROR_STOP=1", "--dbname", "postgres"]);
        command
    }

    fn option_to_ask(&self) -> &'static str {
        "--command"
    }

    fn request_end(&self, server: &Running<'_>) -> Outcome<()> {
        // Its fast shutdown, with a checkpoint.
        Ok(kill_process(Pid::from_child(server.process()), Signal::INT)?)
    }

    fn remove_lock(&self, data: &Path) -> Outcome<()> {
        match fs::remove_file(data.join("postmaster.pid")) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// SIGQUIT ends all processes of the server. If SIGKILL ends the first process alone, other processes wait for ever for locks that
    /// killed processes held.
    fn signal_to_kill(&self) -> Signal {
        Signal::QUIT
    }

    /// `pg_checksums` looks at databases that have ended in good order. A page that was torn stays so in the recovery, or ends it, as
    /// the log has changes of it alone where full pages are off.
    fn torn_pages(&self, data: &Path, is_recovered: bool) -> Outcome<Vec<String>> {
        if !is_recovered {
            return Ok(Vec::new());
        }
        let output = as_user("pg_checksums").args(["--check", "--pgdata"]).arg(data).output()?;
        if output.status.success() {
            return Ok(Vec::new());
        }
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        // Each page in a line; then a summary of several.
        let (pages, others): (Vec<&str>, Vec<&str>) = told.lines().partition(|line| line.contains("error"));
        let found = if pages.is_empty() { others } else { pages };
        Ok(found.into_iter().map(str::to_owned).collect())
    }

    fn check_tables(&self, server: &Running<'_>) -> Outcome<()> {
        server.ask("CREATE EXTENSION IF NOT EXISTS amcheck")?;
        let mut command = as_client("pg_amcheck", server.scratch());
        run(command.args(["--database", "postgres", "--heapallindexed", "--parent-check"])).map(drop)
    }

    fn make_atomic(&self, _: &Path) -> Outcome<()> {
        Err("pages of PostgreSQL, 8 KiB, are whole on a mount as they are: leave --atomic out".into())
    }

    fn numbers_to(&self, last: u64) -> String {
        format!("generate_series(0, {last}) AS seq")
    }

    fn text_of(&self, number: &str, bytes: u64) -> String {
        format!("repeat(chr((97 + {number} % 26)::int), {bytes})")
    }

    fn pages_written(&self, server: &Running<'_>) -> Outcome<u64> {
        let sum = "buffers_checkpoint + buffers_clean + buffers_backend";
        Ok(server.ask(&format!("SELECT {sum} FROM pg_stat_bgwriter"))?.trim().parse()?)
    }

    fn log_bytes(&self, server: &Running<'_>) -> Outcome<u64> {
        Ok(server.ask("SELECT (pg_current_wal_lsn() - '0/0')::bigint")?.trim().parse()?)
    }
}
