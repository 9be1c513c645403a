//! MariaDB: InnoDB's pages of 16 KiB.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{XattrFlags, setxattr};
use rustix::process::Signal;

use super::database::{Database, Setup};
use super::server::Running;
use super::{Outcome, run, system};

/// The attribute that makes what is written to a file between two synchronisations all or nothing.
const ATOMIC: &str = "user.weir.atomic";
/// Tables that the judge looks at.
const TABLES: &str = "t.done, t.a, t.b";

/// MariaDB, configured.
pub struct Mariadb {
    pub setup: Setup,
}

impl Database for Mariadb {
    fn prepare_scratch(&self, _: &Path) -> Outcome<()> {
        Ok(())
    }

    fn install(&self, data: &Path, scratch: &Path) -> Outcome<()> {
        let mut command = system("mariadb-install-db");
        command.args(["--no-defaults", "--user=root", "--skip-test-db"]);
        command.arg(format!("--tmpdir={}", scratch.display()));
        run(command.arg(format!("--datadir={}", data.display()))).map(drop)
    }

    fn serve(&self, data: &Path, scratch: &Path) -> Command {
        let socket = socket(scratch);
        let _ = fs::remove_file(&socket);
        let Setup { pages_twice, pool_mib, log_mib } = self.setup;
        let mut command = system("mariadbd");
        command
            .args(["--no-defaults", "--user=root", "--skip-networking", "--innodb-flush-log-at-trx-commit=1"])
            // It ends with an error where it would write a core.
            .args(["--skip-stack-trace", "--innodb-autoextend-increment=4", "--innodb-fast-shutdown=1"])
            .arg(format!("--tmpdir={}", scratch.display()))
            .arg(format!("--innodb-doublewrite={}", u8::from(pages_twice)))
            .arg(format!("--innodb-buffer-pool-size={pool_mib}M"))
            .arg(format!("--innodb-log-file-size={log_mib}M"))
            .arg(format!("--datadir={}", data.display()))
            .arg(format!("--socket={}", socket.display()));
        command
    }

    fn is_error(&self, line: &str) -> bool {
        line.contains("[ERROR]")
    }

    fn client(&self, scratch: &Path) -> Command {
        let mut command = system("mariadb");
        command.args(["--no-defaults", "--user=root", "--skip-column-names", "--batch", "--unbuffered"]);
        command.arg(format!("--socket={}", socket(scratch).display()));
        command
    }

    fn option_to_ask(&self) -> &'static str {
        "--execute"
    }

    fn request_end(&self, server: &Running<'_>) -> Outcome<()> {
        server.ask("SHUTDOWN").map(drop)
    }

    fn remove_lock(&self, _: &Path) -> Outcome<()> {
        Ok(()) // The kernel's locks are the copy's own.
    }

    fn signal_to_kill(&self) -> Signal {
        Signal::KILL
    }

    fn torn_pages(&self, data: &Path, _: bool) -> Outcome<Vec<String>> {
        let mut found = Vec::new();
        for path in page_files(data)? {
            let name = path.strip_prefix(data).unwrap_or(&path).display().to_string();
            // In the space of the system, pages 64 to 191 are the doublewrite buffer: it may be torn.
            let parts: &[&str] =
                if name == "ibdata1" { &["--end-page=63", "--start-page=192"] } else { &["--start-page=0"] };
            for part in parts {
                let output = system("innochecksum").arg(part).arg(&path).output()?;
                if !output.status.success() {
                    let told = String::from_utf8_lossy(&output.stderr).into_owned();
                    let first = told.lines().find(|line| line.contains("Fail")).unwrap_or(&told);
                    found.push(format!("{name}: {first}"));
                    break;
                }
            }
        }
        Ok(found)
    }

    fn check_tables(&self, server: &Running<'_>) -> Outcome<()> {
        let told = server.ask(&format!("CHECK TABLE {TABLES} EXTENDED"))?;
        let found = told.lines().filter(|line| line.ends_with("status\tOK")).count();
        if found == 3 && told.lines().count() == 3 { Ok(()) } else { Err(told.into()) }
    }

    fn make_atomic(&self, data: &Path) -> Outcome<()> {
        for path in directories(data)?.into_iter().chain(page_files(data)?) {
            setxattr(&path, ATOMIC, b"1", XattrFlags::empty()).map_err(|error| {
                format!("{}: {ATOMIC}: {error}; is it on a mount of Weir?", path.display())
            })?;
        }
        Ok(())
    }

    fn numbers_to(&self, last: u64) -> String {
        format!("t.seq_0_to_{last}")
    }

    fn text_of(&self, number: &str, bytes: u64) -> String {
        format!("REPEAT(CHAR(97 + {number} % 26), {bytes})")
    }

    fn pages_written(&self, server: &Running<'_>) -> Outcome<u64> {
        counter(server, "Innodb_buffer_pool_pages_flushed")
    }

    fn log_bytes(&self, server: &Running<'_>) -> Outcome<u64> {
        counter(server, "Innodb_os_log_written")
    }
}

/// The server's socket.
pub fn socket(scratch: &Path) -> PathBuf {
    scratch.join("s")
}

/// A number that the server counts, by its name.
fn counter(server: &Running<'_>, name: &str) -> Outcome<u64> {
    let answer = server.ask(&format!("SHOW GLOBAL STATUS LIKE '{name}'"))?;
    Ok(answer.split_whitespace().nth(1).ok_or("no such counter")?.parse()?)
}

/// The files that hold InnoDB's pages.
fn page_files(data: &Path) -> Outcome<Vec<PathBuf>> {
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
