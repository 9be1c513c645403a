//! What shipping a mount to an object store costs, how fast a restore is beside what the store gives, and Litestream beside it, in
//! turns, with SeaweedFS as the store. It takes the superuser, `weed` and `sqlite3`; `sqlite` takes `litestream`, too.
//!
//! ```sh
//! cargo build --release -p weir-cli --bin weir --example replication
//! target/release/examples/replication speed --on DIRECTORY
//! target/release/examples/replication sqlite --on DIRECTORY
//! ```

#![allow(clippy::print_stdout, reason = "printing is what it is for")]
#![allow(
    clippy::unwrap_used,
    dead_code,
    reason = "it fails by panicking, and uses a part of what tests have"
)]
#![expect(clippy::disallowed_types, reason = "it measures the host")]
#![expect(clippy::disallowed_methods, reason = "it measures the host")]

#[path = "../../tests/support/lag.rs"]
mod lag;
#[path = "../../tests/support/seaweed.rs"]
mod seaweed;
mod speed;
mod sqlite;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::{Parser, Subcommand};

use seaweed::Seaweed;

/// What fails ends the run.
type Outcome<T> = Result<T, Box<dyn Error>>;

/// Replication, measured.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: What,
    /// The program [default: the one that was built beside this]
    #[arg(long, global = true)]
    weir: Option<PathBuf>,
    /// A directory on the disk; what is made there is removed
    #[arg(long, global = true, default_value = ".")]
    on: PathBuf,
}

#[derive(Subcommand)]
enum What {
    /// Ordered writes on a mount that is shipped and on one that is not; a restore, and plain reads of the same objects
    Speed(speed::Arguments),
    /// SQLite on a mount that is shipped, and on the host with Litestream: the loss at a kill, restores, bytes in the store
    Sqlite(sqlite::Arguments),
    /// Reads all objects below a URL, several at a time, and prints their bytes and the seconds
    #[command(hide = true)]
    Get { url: String },
}

fn main() -> Outcome<()> {
    let arguments = Arguments::parse();
    if let What::Get { url } = &arguments.command {
        return speed::get(url);
    }
    let beside = tempfile::tempdir_in(&arguments.on)?;
    let weir = arguments.weir.map_or_else(beside_this, Ok)?;
    let ground = Ground { weir, path: beside.path().canonicalize()? };
    match arguments.command {
        What::Speed(asked) => speed::measure(&asked, &ground),
        What::Sqlite(asked) => sqlite::measure(&asked, &ground),
        What::Get { .. } => Ok(()),
    }
}

/// The program that cargo builds into the directory above that of its examples.
fn beside_this() -> Outcome<PathBuf> {
    let this = std::env::current_exe()?;
    let program = this.ancestors().nth(2).map(|above| above.join("weir"));
    let program = program.filter(|program| program.exists());
    Ok(program.ok_or("there is no `weir` beside this: build it, or name it by --weir")?)
}

/// Where it works.
struct Ground {
    weir: PathBuf,
    path: PathBuf,
}

impl Drop for Ground {
    /// What failed leaves no mount behind.
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.root()).stderr(Stdio::null()).status();
    }
}

impl Ground {
    fn volume(&self) -> PathBuf {
        self.path.join("volume")
    }

    fn root(&self) -> PathBuf {
        self.path.join("mounted")
    }

    /// `weir`, with what the store asks for.
    fn weir(&self, seaweed: &Seaweed) -> Command {
        let mut command = Command::new(&self.weir);
        command.envs(seaweed.environment()).env_remove("RUST_LOG");
        command
    }

    /// A new volume of so many MiB, with a filesystem.
    fn format(&self, mib: u64) -> Outcome<()> {
        let _ = std::fs::remove_file(self.volume());
        std::fs::create_dir_all(self.root())?;
        let size = format!("{mib}M");
        run(Command::new(&self.weir).args(["mkfs", "--size", &size, "--volume"]).arg(self.volume()))?;
        Ok(())
    }

    fn mount(&self, seaweed: &Seaweed, more: &[&str]) -> Outcome<()> {
        let mut command = self.weir(seaweed);
        run(command.arg("mount").arg(self.volume()).arg(self.root()).args(more)).map(drop)
    }

    fn umount(&self) -> Outcome<()> {
        run(Command::new(&self.weir).arg("umount").arg(self.root())).map(drop)
    }
}

/// Runs a program that succeeds; what it prints.
fn run(command: &mut Command) -> Outcome<String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim()).into())
}

/// The bytes of all objects below a URL, and the seconds in which they are read.
fn bytes_in_store(seaweed: &Seaweed, this: &Path, url: &str) -> Outcome<(u64, f64)> {
    let told = run(Command::new(this).args(["get", url]).envs(seaweed.environment()))?;
    let mut words = told.split_whitespace();
    let bytes = words.next().ok_or("no bytes")?.parse()?;
    Ok((bytes, words.next().ok_or("no time")?.parse()?))
}

/// The median of what was measured, with the least and the most.
fn told(mut values: Vec<f64>, digits: usize) -> String {
    values.sort_by(f64::total_cmp);
    match values[..] {
        [] => "-".to_owned(),
        [one] => format!("{one:.digits$}"),
        [least, .., most] => {
            let median = values[values.len() / 2];
            format!("{median:.digits$} ({least:.digits$} to {most:.digits$})")
        }
    }
}
