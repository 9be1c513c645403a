//! What some rows of the FAST 2018 paper would be with FUA, and with longer commands: `cargo run -p weir-figures --example what_if`.
//! The READMEs of figure 13 and of table 1 print these runs. Nothing is fitted by them: the profiles stay as they are. What-ifs that
//! explain a printed row are series of its figure.

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::sync::Arc;

use weir_figures::{Call, Calls, Change, Experiment, FigureError, Host, On, Outcome, Run};
use weir_flash::Profile;

/// A device and its host, one thing about them other than it is.
struct Case<'a> {
    what: &'a str,
    device: Profile,
    host: Host,
}

impl<'a> Case<'a> {
    fn of(what: &'a str, device: &Profile, host: &Host) -> Case<'a> {
        Case { what, device: device.clone(), host: host.clone() }
    }

    fn measured(&self, experiment: Arc<dyn Experiment>, writes: u64) -> Result<Outcome, FigureError> {
        let run = Run {
            device: self.device.with_capacity(4_194_304),
            host: self.host.clone(),
            experiment,
            erased: false,
            span: 1,
            writes,
            warm_up_max: 5_000,
            sample_ns: 1_000_000,
            asks_kernel: false,
        };
        run.outcome(1)
    }

    /// Mean of `fsync` behind an append, in ms.
    fn table_1(&self) -> Result<(), FigureError> {
        let mean = |on| {
            let calls = Calls { on, ..append_and_sync(1) };
            Ok::<f64, FigureError>(self.measured(Arc::new(calls), 20_000)?.value("latency-mean"))
        };
        let (ext4, barrier) = (mean(On::Ext4)?, mean(On::BarrierFs)?);
        println!("{}, {}: EXT4 {ext4:.3} ms, BFS {barrier:.3} ms", self.device.name, self.what);
        Ok(())
    }

    /// Calls a second of threads that append and call `fsync`, each on a core.
    fn figure_13(&self, cores: &[u32]) -> Result<(), FigureError> {
        for &threads in cores {
            let rate = |on| {
                let calls = Calls { on, cores: Some(threads), ..append_and_sync(threads) };
                Ok::<f64, FigureError>(self.measured(Arc::new(calls), 6_000)?.value("iops"))
            };
            let (ext4, barrier) = (rate(On::Ext4)?, rate(On::BarrierFs)?);
            println!(
                "{}, {}, {threads} cores: EXT4 {ext4:.0}/s, BFS {barrier:.0}/s, {:.2} times",
                self.device.name,
                self.what,
                barrier / ext4
            );
        }
        Ok(())
    }
}

/// Threads that append and call `fsync`.
fn append_and_sync(threads: u32) -> Calls {
    let (on, change, call) = (On::Ext4, Change::Append, Call::Fsync);
    Calls { on, change, call, threads, cores: None, other: None, aged_percent: 0 }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (ssd, plp, pc) = (Profile::builtin("sata-ssd")?, Profile::builtin("sata-plp")?, Host::builtin("pc")?);
    let mut fua = Case::of("with FUA", &ssd, &pc);
    fua.host.no_fua = None;
    fua.table_1()?;
    fua.figure_13(&[1, 6])?;
    for command_us in [15, 20, 25, 30] {
        let what = format!("command {command_us} us");
        let mut slow = Case::of(&what, &plp, &pc);
        slow.device.host.command_ns = command_us * 1_000;
        slow.figure_13(&[4, 6, 8, 12])?;
    }
    Ok(())
}
