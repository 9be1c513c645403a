//! `kill -9` on a real disk under load: a process writes numbered requests through a volume and says what
//! was acknowledged as durable; it is killed at a random moment; what it left is opened and compared.
//!
//! `kill_loop [--on DIRECTORY] [--rounds N] [--seed S]`

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

mod rounds;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Parser;

/// Kills writers of a volume on a real disk, and checks what they leave.
#[derive(Parser)]
struct Arguments {
    /// A directory on the disk; a scratch file is made there and removed.
    #[arg(long, default_value = ".")]
    on: PathBuf,
    /// Processes to kill.
    #[arg(long, default_value_t = 50)]
    rounds: u64,
    /// Decides the moments.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Writes to this volume until killed, as the process of this round.
    #[arg(long, hide = true, num_args = 2, value_names = ["PATH", "ROUND"])]
    writer: Option<Vec<String>>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    if let Some([path, round]) = arguments.writer.as_deref() {
        return rounds::write_on(Path::new(path), round.parse()?);
    }
    let program = std::env::current_exe()?;
    let scratch = tempfile::tempdir_in(&arguments.on)?;
    let totals = rounds::kill_rounds(scratch.path(), arguments.rounds, arguments.seed, |path, round| {
        let mut command = Command::new(&program);
        command.arg("--writer").arg(path).arg(round.to_string());
        command
    })?;
    println!("{totals:?}");
    Ok(())
}
