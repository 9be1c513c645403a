//! What some rows of the FAST 2018 paper would be with other parameters: `cargo run -p weir-figures --example what_if`. The
//! READMEs of figures 11, 12 and 13 and of table 1 print these runs. Nothing is fitted by them: the profiles stay as they are.

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::sync::Arc;

use weir_figures::{BlockWrites, Call, Calls, Change, Experiment, FigureError, Host, On, Outcome, Run};
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

    fn run(&self, on: On, change: Change) -> Result<Outcome, FigureError> {
        let calls = Calls { on, change, call: Call::Fsync, threads: 1, cores: None };
        self.measured(Arc::new(calls), if change == Change::Append { 1 } else { 16_384 }, 20_000)
    }

    fn measured(
        &self,
        experiment: Arc<dyn Experiment>,
        span: u64,
        writes: u64,
    ) -> Result<Outcome, FigureError> {
        let run = Run {
            device: self.device.with_capacity(4_194_304),
            host: self.host.clone(),
            experiment,
            erased: false,
            span,
            writes,
            warm_up_max: 5_000,
            sample_ns: 1_000_000,
            asks_kernel: false,
        };
        run.outcome(1)
    }

    /// Means of `fsync` behind an append, in ms, the deepest queue in `fsync` behind an overwrite, and how many writes a
    /// second are transferred and flushed.
    fn table_1(&self) -> Result<(), FigureError> {
        let mean = |on| Ok::<f64, FigureError>(self.run(on, Change::Append)?.value("latency-mean"));
        let [full, checksums, barrier] = [mean(On::Ext4)?, mean(On::Ext4Async)?, mean(On::BarrierFs)?];
        let depth = self.run(On::BarrierFs, Change::Overwrite)?.value("depth-max");
        let xnf = self.measured(Arc::new(BlockWrites::XnF), 262_144, 2_000)?.value("iops");
        println!(
            "{}, {}: EXT4 with full flush {full:.3} ms, with async commit {checksums:.3} ms; BFS {barrier:.3} ms; \
             fsync has {depth} commands in the queue at most; XnF {xnf:.0} writes/s",
            self.device.name, self.what
        );
        Ok(())
    }

    /// Context switches of the caller for each `fsync` behind an overwrite.
    fn figure_11(&self) -> Result<(), FigureError> {
        let seen = self.run(On::BarrierFs, Change::Overwrite)?;
        let (switches, mean) = (seen.value("switches"), seen.value("latency-mean"));
        println!("{}, {}: BFS-DR {switches:.2} switches, fsync {mean:.2} ms", self.device.name, self.what);
        Ok(())
    }

    /// Calls a second of threads that append and call `fsync`, each on a core.
    fn figure_13(&self, cores: &[u32]) -> Result<(), FigureError> {
        for &threads in cores {
            let rate = |on| {
                let (change, call, cores) = (Change::Append, Call::Fsync, Some(threads));
                let calls = Arc::new(Calls { on, change, call, threads, cores });
                Ok::<f64, FigureError>(self.measured(calls, 1, 6_000)?.value("iops"))
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

/// A host that costs nothing.
fn free(host: &Host) -> Host {
    let keys = ["context_switch_us", "write_us", "sync_us", "dispatch_us", "completion_us", "compose_us"];
    keys.iter().fold(host.clone(), |host, key| host.scaled(key, 0.0).unwrap_or(host))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (ufs, phone) = (Profile::builtin("ufs20")?, Host::builtin("phone")?);
    let (ssd, plp, pc) = (Profile::builtin("sata-ssd")?, Profile::builtin("sata-plp")?, Host::builtin("pc")?);
    Case::of("as fitted", &ufs, &phone).table_1()?;
    let mut quick = Case::of("command 46 us, switch 30 us", &ufs, &phone);
    (quick.device.host.command_ns, quick.device.host.latency_ns) = (46_000, 10_350);
    quick.host.context_switch_us.value = 30.0;
    // Of the 160 us between D and JD, composing three blocks takes the rest.
    quick.host.compose_us.value = (160.0 - 30.0 - quick.host.dispatch_us.value) / 3.0;
    quick.table_1()?;
    quick.what = "command 46 us, switch 30 us, composing free";
    quick.host.compose_us.value = 0.0;
    quick.table_1()?;
    quick.what = "command 46 us, switch 30 us, composing free, program 100 us";
    quick.device.nand.program_ns.iter_mut().for_each(|ns| *ns = 100_000);
    quick.table_1()?;
    Case { host: free(&phone), ..Case::of("a host that costs nothing", &ufs, &phone) }.table_1()?;
    Case { host: free(&pc), ..Case::of("a host that costs nothing", &plp, &pc) }.table_1()?;
    Case::of("as fitted", &ssd, &pc).figure_11()?;
    let mut ticks = Case::of("1,000 ticks a second", &ssd, &pc);
    ticks.host.timer_hz.value = 1000.0;
    ticks.figure_11()?;
    let mut slow = Case::of("the flush 0.65 ms longer", &ssd, &pc);
    slow.device.flush.fixed_ns += 650_000;
    slow.figure_11()?;
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
