//! Figure 14 with other parameters: `cargo run --release -p weir-figures --example what_if_servers`. The README of the figure
//! prints these runs, all on `sata-ssd`. What else a run has is the figure's.
//!
//! - *OptFS* in OLTP-insert: its `osync` looks at all dirty pages, and a page in the log stays dirty until a notice of
//!   durability comes, so a run has to be long, and the journal's size counts.
//! - *Groups* in varmail: sixteen threads share commits as one group, or as several that wait for each other. Which it is
//!   depends on little: seeds, and the time of a context switch.

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::sync::Arc;

use weir_figures::{Experiment, Figure, Host, Outcome, Run};
use weir_flash::Profile;

type Failed = Box<dyn std::error::Error>;

/// The figure, the drive, and the host.
struct Setting {
    figure: Figure,
    drive: Profile,
    pc: Host,
}

impl Setting {
    /// With this in the place of the mode of the journal.
    fn new(mode: &str) -> Result<Setting, Failed> {
        let text = include_str!("../figures/fast18-fig14/figure.toml").replace("mode = \"OJ\"", mode);
        let figure = Figure::parse("fast18-fig14", &text, "row = []", "")?;
        let drive = Profile::builtin("sata-ssd")?.with_capacity(figure.config.capacity_blocks);
        Ok(Setting { figure, drive, pc: Host::builtin("pc")? })
    }

    /// The two experiments of a row that is a ratio.
    fn ratio(&self, series: &str) -> Result<[Arc<dyn Experiment>; 2], Failed> {
        let found = self.figure.config.series.iter().find(|known| known.name == series);
        let both = found.and_then(|series| Some([Arc::clone(&series.experiment), series.over.clone()?]));
        Ok(both.ok_or_else(|| format!("figure 14 has no ratio {series:?}"))?)
    }

    fn measured(
        &self,
        host: &Host,
        experiment: &Arc<dyn Experiment>,
        calls: u64,
        seed: u64,
    ) -> Result<Outcome, Failed> {
        let run = Run {
            device: self.drive.clone(),
            host: host.clone(),
            experiment: Arc::clone(experiment),
            erased: false,
            span: self.figure.config.span_blocks,
            writes: calls,
            warm_up_max: calls / 4,
            sample_ns: 1_000_000_000,
            asks_kernel: false,
        };
        Ok(run.outcome(seed)?)
    }

    /// OptFS beside EXT4-OD in OLTP-insert, with a journal of so many MiB, in runs so many times as long as the figure's, where
    /// looking at a page costs so many times what the host has.
    fn optfs(&self, logs: &str, journal_mib: u32, longer: u64, scan: f64) -> Result<(), Failed> {
        let Some(host) = self.pc.scaled("scan_us", scan) else { return Ok(()) };
        let transactions = longer * self.figure.config.writes_waiting;
        let [optfs, ext4] = self
            .ratio(&format!("OptFS over EXT4-OD, OLTP-insert{logs}"))?
            .map(|way| self.measured(&host, &way, transactions, 1));
        let (optfs, ext4) = (optfs?, ext4?);
        println!(
            "OLTP-insert{logs}, journal of {journal_mib} MiB, {transactions} transactions, {:.1} us a page: \
             OptFS over EXT4-OD {:.3} (OptFS runs for {:.1} s, its second half has {:.2} times the rate of its first)",
            host.scan_us.value,
            optfs.value("transactions") / ext4.value("transactions"),
            optfs.value("seconds"),
            optfs.drift
        );
        Ok(())
    }

    /// BFS-DR beside EXT4-DR in varmail, for five seeds.
    fn groups(&self, cores: &str, switch: f64) -> Result<(), Failed> {
        let Some(host) = self.pc.scaled("context_switch_us", switch) else { return Ok(()) };
        let both = self.ratio(&format!("BFS-DR over EXT4-DR, varmail{cores}"))?;
        let mut ratios = Vec::new();
        for seed in 1..=5 {
            let [barrier, ext4] =
                both.each_ref().map(|way| self.measured(&host, way, self.figure.config.writes_waiting, seed));
            ratios.push(format!("{:.2}", barrier?.value("operations") / ext4?.value("operations")));
        }
        println!(
            "varmail{cores}, context switches of {:.1} us, seeds 1 to 5: BFS-DR over EXT4-DR {}",
            host.context_switch_us.value,
            ratios.join(", ")
        );
        Ok(())
    }
}

fn main() -> Result<(), Failed> {
    let setting = Setting::new("mode = \"OJ\"")?;
    for cores in ["", ", 12 cores"] {
        for switch in [0.8, 1.0, 1.2] {
            setting.groups(cores, switch)?;
        }
    }
    for logs in ["", ", no binary log"] {
        for (journal_mib, longer, scan) in
            [(128, 1, 1.0), (128, 10, 1.0), (128, 10, 5.0), (64, 10, 1.0), (64, 10, 5.0)]
        {
            Setting::new(&format!("mode = \"OJ\", journal_mib = {journal_mib}"))?.optfs(
                logs,
                journal_mib,
                longer,
                scan,
            )?;
        }
    }
    Ok(())
}
