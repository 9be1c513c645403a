//! The fit of a device and its host to legacy rows of the FAST 2018 paper: `cargo run -p weir-figures --example fit --
//! ufs20|sata-plp|sata-ssd`.
//!
//! Every combination of a few values of the free parameters is run, and printed with what it leaves over of each row, the
//! best first. A combination that breaks a bound is left out. No row with barriers is run: such rows are predictions.

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::process::ExitCode;
use std::sync::Arc;

use weir_figures::{BlockWrites, Call, Calls, Change, Experiment, FigureError, Host, On, Outcome, Run};
use weir_flash::Profile;

/// Combinations that are printed.
const SHOWN: usize = 12;

/// Writes without order, of the warm-up and in the window.
const FREE_WRITES: u64 = 20_000;

/// What it takes to service D (section 6.2): command, 4 KiB on the link, and latency.
const UFS_SERVICE_US: f64 = 70.0;

/// D and JD are so far apart (section 6.2): the switch to the commit task, composing, and JD's dispatch.
const UFS_D_TO_JD_US: f64 = 160.0;

/// Log blocks of such a commit, which changes an inode: descriptor, inode, and JC.
const COMPOSED: f64 = 3.0;

/// A combination.
struct Trial {
    /// Its values, for print.
    values: String,
    device: Profile,
    host: Host,
    /// The filesystem of table 1's row EXT4.
    ext4: On,
}

/// A legacy row: what the paper prints, and ours.
struct Legacy {
    name: &'static str,
    printed: f64,
    ours: f64,
    /// The text says "less than".
    bound: bool,
}

impl Legacy {
    /// Ours over the printed number, less one.
    fn residual(&self) -> f64 {
        self.ours / self.printed - 1.0
    }
}

impl Trial {
    fn run(&self, experiment: Arc<dyn Experiment>, writes: u64) -> Result<Outcome, FigureError> {
        let files = experiment.filesystem().is_some();
        let run = Run {
            device: self.device.with_capacity(if files { 4_194_304 } else { 262_144 }),
            host: self.host.clone(),
            experiment,
            erased: false,
            span: if files { 1 } else { 65_536 },
            writes,
            warm_up_max: if writes == FREE_WRITES { FREE_WRITES } else { 500 },
            sample_ns: 1_000_000,
            asks_kernel: false,
        };
        run.outcome(1)
    }

    /// The rows: `xnf` (all that is printed of that share, in percent) and `mean` (ms) are the paper's for the device.
    fn rows(&self, xnf: &[f64], mean: f64) -> Result<Vec<Legacy>, FigureError> {
        let free = self.run(Arc::new(BlockWrites::P), FREE_WRITES)?.value("iops");
        let share = |way: BlockWrites| {
            Ok::<f64, FigureError>(100.0 * self.run(Arc::new(way), 2_000)?.value("iops") / free)
        };
        let calls = Calls {
            on: self.ext4,
            change: Change::Append,
            call: Call::Fsync,
            threads: 1,
            cores: None,
            other: None,
            aged_percent: 0,
        };
        let fsync = self.run(Arc::new(calls), 4_000)?.value("latency-mean");
        let row = |name, printed, ours, bound| Legacy { name, printed, ours, bound };
        let flushed = share(BlockWrites::XnF)?;
        let mut rows: Vec<Legacy> = xnf.iter().map(|xnf| row("XnF/P, %", *xnf, flushed, false)).collect();
        rows.push(row("X/P, %", 40.0, share(BlockWrites::X)?, true));
        rows.push(row("EXT4, mean, ms", mean, fsync, false));
        Ok(rows)
    }
}

/// The phone's: D is serviced in 70 us, and JD comes 160 us behind it, whatever the combination.
fn ufs20(device: &Profile, host: &Host) -> Vec<Trial> {
    let link_us = 4096e6 / device.host.link_bytes_per_second as f64;
    let mut trials = Vec::new();
    for command_us in [46.0, 50.0, 53.0, 55.0] {
        for program_us in [200.0, 250.0, 300.0] {
            for switch_us in [30.0, 45.0, 60.0, 75.0, 90.0, 105.0, 120.0] {
                let (mut device, mut host) = (device.clone(), host.clone());
                device.host.command_ns = (command_us * 1e3) as u64;
                device.host.latency_ns = ((UFS_SERVICE_US - command_us - link_us) * 1e3) as u64;
                device.nand.program_ns.iter_mut().for_each(|ns| *ns = (program_us * 1e3) as u64);
                device.flush.fixed_ns = 0;
                host.context_switch_us.value = switch_us;
                host.compose_us.value = (UFS_D_TO_JD_US - switch_us - host.dispatch_us.value) / COMPOSED;
                let values = format!("command {command_us}, program {program_us}, switch {switch_us}");
                trials.push(Trial { values, device, host, ext4: On::Ext4Async });
            }
        }
    }
    trials
}

/// The drive with power-loss protection.
fn sata_plp(device: &Profile, host: &Host) -> Vec<Trial> {
    let mut trials = Vec::new();
    for command_us in [13.0, 14.0, 15.0, 16.0, 17.0, 18.0, 20.0] {
        for latency_us in [0.5, 1.0, 2.0, 3.0, 4.3] {
            let (mut device, host) = (device.clone(), host.clone());
            device.host.command_ns = (command_us * 1e3) as u64;
            device.host.latency_ns = (latency_us * 1e3) as u64;
            trials.push(Trial {
                values: format!("command {command_us}, latency {latency_us}"),
                device,
                host,
                ext4: On::Ext4,
            });
        }
    }
    trials
}

/// The drive without: what a flush takes beyond its programs.
fn sata_ssd(device: &Profile, host: &Host) -> Vec<Trial> {
    let trial = |fixed_us: f64| {
        let (mut device, host) = (device.clone(), host.clone());
        device.flush.fixed_ns = (fixed_us * 1e3) as u64;
        Trial { values: format!("flush {fixed_us}"), device, host, ext4: On::Ext4 }
    };
    [1_000.0, 1_100.0, 1_150.0, 1_200.0, 1_250.0, 1_300.0].map(trial).into()
}

fn fit(name: &str) -> Result<(), Box<dyn std::error::Error>> {
    let device = Profile::builtin(name)?;
    let (trials, xnf, mean) = match name {
        "ufs20" => (ufs20(&device, &Host::builtin("phone")?), [10.0].as_slice(), 1.29),
        // Figure 9 and figure 1 print a share for one class of drives: 35 and 25.
        "sata-plp" => (sata_plp(&device, &Host::builtin("pc")?), [35.0, 25.0].as_slice(), 0.15),
        "sata-ssd" => (sata_ssd(&device, &Host::builtin("pc")?), [0.5].as_slice(), 5.95),
        _ => return Err(format!("there is no fit for {name}: ufs20, sata-plp, sata-ssd").into()),
    };
    let mut results = Vec::new();
    for trial in trials {
        let rows = trial.rows(xnf, mean)?;
        if rows.iter().any(|row| row.bound && row.residual() > 0.0) {
            continue;
        }
        let squares: f64 = rows.iter().filter(|row| !row.bound).map(|row| row.residual().powi(2)).sum();
        results.push((squares, trial.values, rows));
    }
    results.sort_by(|one, other| one.0.total_cmp(&other.0));
    for (squares, values, rows) in results.into_iter().take(SHOWN) {
        let told = rows.iter().map(|row| {
            let Legacy { name, printed, ours, bound } = row;
            match bound {
                true => format!("{name} {ours:.3}, at most {printed}"),
                false => format!("{name} {ours:.3} for {printed} ({:+.1} %)", 100.0 * row.residual()),
            }
        });
        println!("{squares:.5}  {values}: {}", told.collect::<Vec<_>>().join(", "));
    }
    Ok(())
}

fn main() -> ExitCode {
    let name = std::env::args().nth(1).unwrap_or_default();
    match fit(&name) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
