//! Figure 14 with other parameters: `cargo run --release -p weir-figures --example what_if_servers`. The README of the figure
//! prints these runs, all on `sata-ssd`. What else a run has is the figure's.
//!
//! - *OptFS* in OLTP-insert: its `osync` looks at all dirty pages, and a page in the log stays dirty until a notice of
//!   durability comes, so a run has to be long, and the journal's size counts.
//! - *Groups* in varmail: sixteen threads share commits as one group, or as several that wait for each other. Which it is
//!   depends on little: seeds, and the time of a context switch.

#![allow(clippy::print_stdout, reason = "an example prints")]

use weir_figures::{Figure, Host, Outcome, Run, Way};
use weir_flash::Profile;

type Failed = Box<dyn std::error::Error>;

/// The figure, the drive, and the host.
struct Setting {
    figure: Figure,
    drive: Profile,
    pc: Host,
}

impl Setting {
    fn new() -> Result<Setting, Failed> {
        let figure = Figure::named("fast18-fig14")?;
        let drive = Profile::builtin("sata-ssd")?.with_capacity(figure.config.capacity_blocks);
        Ok(Setting { figure, drive, pc: Host::builtin("pc")? })
    }

    /// The two ways of a row that is a ratio.
    fn ratio(&self, series: &str) -> Result<[Way; 2], Failed> {
        let found = self.figure.config.series.iter().find(|known| known.name == series);
        let ways = found.and_then(|series| Some([series.way, series.over?]));
        Ok(ways.ok_or_else(|| format!("figure 14 has no ratio {series:?}"))?)
    }

    fn measured(&self, host: &Host, way: Way, calls: u64, seed: u64) -> Result<Outcome, Failed> {
        let run = Run {
            device: self.drive.clone(),
            host: host.clone(),
            way,
            erased: false,
            span: self.figure.config.span_blocks,
            writes: calls,
            warm_up_max: calls / 4,
            sample_ns: 1_000_000_000,
        };
        Ok(run.outcome(seed)?)
    }

    /// OptFS beside EXT4-OD in OLTP-insert, with a journal of so many MiB, in runs so many times as long as the figure's, where
    /// looking at a page costs so many times what the host has.
    fn optfs(&self, logs: &str, journal_mib: u32, longer: u64, scan: f64) -> Result<(), Failed> {
        let Some(host) = self.pc.scaled("scan_us", scan) else { return Ok(()) };
        let transactions = longer * self.figure.config.writes_waiting;
        let with_journal = |way| match way {
            Way::InnoDb(mut innodb) => {
                innodb.on.journal_mib = Some(journal_mib);
                Way::InnoDb(innodb)
            }
            way => way,
        };
        let [optfs, ext4] = self
            .ratio(&format!("OptFS over EXT4-OD, OLTP-insert{logs}"))?
            .map(|way| self.measured(&host, with_journal(way), transactions, 1));
        let (optfs, ext4) = (optfs?, ext4?);
        println!(
            "OLTP-insert{logs}, journal of {journal_mib} MiB, {transactions} transactions, {:.1} us a page: \
             OptFS over EXT4-OD {:.3} (OptFS runs for {:.1} s, its second half has {:.2} times the rate of its first)",
            host.scan_us.value,
            optfs.iops / ext4.iops,
            optfs.seconds,
            optfs.drift
        );
        Ok(())
    }

    /// BFS-DR beside EXT4-DR in varmail, for five seeds.
    fn groups(&self, cores: &str, switch: f64) -> Result<(), Failed> {
        let Some(host) = self.pc.scaled("context_switch_us", switch) else { return Ok(()) };
        let ways = self.ratio(&format!("BFS-DR over EXT4-DR, varmail{cores}"))?;
        let mut ratios = Vec::new();
        for seed in 1..=5 {
            let [barrier, ext4] =
                ways.map(|way| self.measured(&host, way, self.figure.config.writes_waiting, seed));
            ratios.push(format!("{:.2}", barrier?.iops / ext4?.iops));
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
    let setting = Setting::new()?;
    for cores in ["", ", 12 cores"] {
        for switch in [0.8, 1.0, 1.2] {
            setting.groups(cores, switch)?;
        }
    }
    for logs in ["", ", no binary log"] {
        for (journal_mib, longer, scan) in
            [(128, 1, 1.0), (128, 10, 1.0), (128, 10, 5.0), (64, 10, 1.0), (64, 10, 5.0)]
        {
            setting.optfs(logs, journal_mib, longer, scan)?;
        }
    }
    Ok(())
}
