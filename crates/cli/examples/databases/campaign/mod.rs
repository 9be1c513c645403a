//! A database on storage that crashes: its server, the places where its files lie, the load, and the judge.

#![allow(dead_code, reason = "the benchmark, the campaigns and the tests each use a part of this")]
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "it waits for what other processes do"
)]

pub mod database;
pub mod ground;
pub mod judge;
pub mod load;
pub mod mariadb;
pub mod postgresql;
pub mod replicated;
pub mod rounds;
pub mod server;

use std::error::Error;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

/// What fails ends the run: nothing here is asked for twice.
pub type Outcome<T> = Result<T, Box<dyn Error>>;

/// How often it is looked whether something has happened.
const LOOK: Duration = Duration::from_millis(10);

/// A command of the system, found in the superuser's directories as well. PostgreSQL has a directory of programs for each version; this takes
/// the newest.
pub fn system(program: &str) -> Command {
    let mut command = Command::new(program);
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = versions
        .map(|entry| entry.path())
        .max_by_key(|path| path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok()));
    let newest = newest.map_or_else(String::new, |path| format!(":{}/bin", path.display()));
    command.env("PATH", format!("/usr/sbin:/sbin:/usr/bin:/bin{newest}"));
    command
}

/// Whether a program is to be had.
pub fn is_there(program: &str) -> bool {
    system(program).arg("--version").output().is_ok()
}

/// Runs a program that succeeds; what it prints.
pub fn run(command: &mut Command) -> Outcome<String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let told = [output.stdout, output.stderr].concat();
    Err(format!("{command:?}: {}: {}", output.status, String::from_utf8_lossy(&told).trim()).into())
}

/// Asks again and again until there is an answer.
pub fn wait_for<T>(what: &str, most: Duration, mut ask: impl FnMut() -> Outcome<Option<T>>) -> Outcome<T> {
    let began = Instant::now();
    loop {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        if began.elapsed() > most {
            return Err(format!("waited {most:?} in vain until {what}").into());
        }
        std::thread::sleep(LOOK);
    }
}
