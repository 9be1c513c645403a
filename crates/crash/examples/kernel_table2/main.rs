//! Table 2 of the FAST 2018 paper for the kernel's own ext4: its two workloads run with real calls on the worst disk, whose
//! power is cut at random moments, and each image that is left is shown to four judges. With `--cuts crashmonkey` each
//! workload is run once, and CrashMonkey's permutations of its requests are left, and judged as CrashMonkey does, too.
//!
//! `kernel_table2 [--cuts events|crashmonkey|crashmonkey-legal] [--images N] [--weir PATH] [--seed S] [--only WORD]`
//!
//! It needs root, loop devices and e2fsck, and `weir` beside it or in `--weir`. It prints a line for each cell of the
//! table, and takes away whatever it has mounted, also when it is interrupted.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]
#![expect(clippy::disallowed_methods, reason = "it waits for what other processes do")]

mod cell;
mod disk;
mod permuted;
mod scenario;

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use cell::{Cell, Run};
use clap::{Parser, ValueEnum};
use scenario::Scenario;
use signal_hook::consts::{SIGINT, SIGTERM};
use weir_crash::{Condition, Judges, Overlaps, Tally};

/// Runs the two workloads of table 2 on the kernel's ext4, and cuts the power.
#[derive(Parser)]
struct Arguments {
    /// Which images.
    #[arg(long, default_value = "events")]
    cuts: Cuts,
    /// Images for each cell.
    #[arg(long, default_value_t = 1_000)]
    images: u64,
    /// The program `weir`.
    #[arg(long, default_value = "target/debug/weir")]
    weir: PathBuf,
    /// Decides which moments are tried; the kernel is not bound by it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only the cells whose name holds this.
    #[arg(long, default_value = "")]
    only: String,
}

/// What is left of a workload.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Cuts {
    /// What power cuts at random moments leave.
    Events,
    /// Permutations of its requests; of two writes to one block any may win.
    Crashmonkey,
    /// Permutations that keep the order of writes to one block.
    CrashmonkeyLegal,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    // The workloads' modes are what the files get.
    rustix::process::umask(rustix::fs::Mode::empty());
    let judges = Judges::here()?;
    if !judges.has_kernel() {
        return Err("it takes root, loop devices, mount and e2fsck".into());
    }
    let cells = Scenario::ALL.into_iter().flat_map(|scenario| {
        let barriers = [true, false].into_iter();
        barriers
            .flat_map(move |barriers| [true, false].map(|checksums| Cell { scenario, barriers, checksums }))
    });
    println!("cell, images, different, verdict, as CrashMonkey, all, our model, our check, e2fsck, kernel");
    for cell in cells.filter(|cell| cell.to_string().contains(&arguments.only)) {
        let run = Run {
            cell,
            weir: &arguments.weir,
            judges,
            images: arguments.images,
            seed: arguments.seed,
            stop: &stop,
        };
        print(
            &cell,
            &match arguments.cuts {
                Cuts::Events => run.run_cell()?,
                Cuts::Crashmonkey => run.run_permuted(Overlaps::AsDrawn)?,
                Cuts::CrashmonkeyLegal => run.run_permuted(Overlaps::InOrder)?,
            },
        );
    }
    Ok(())
}

fn print(cell: &Cell, tally: &Tally) {
    let (images, different) = (tally.tests(), tally.states());
    for condition in Condition::ALL {
        let (name, all, by) = (condition.name(), tally.all(condition), tally.by_judge(condition));
        let [e2fsck, kernel] = [by.e2fsck, by.kernel].map(Option::unwrap_or_default);
        println!(
            "{cell}, {images}, {different}, {name}, {}, {all}, {}, {}, {e2fsck}, {kernel}",
            tally.tested(condition),
            by.model,
            by.check
        );
    }
}
