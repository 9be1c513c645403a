//! Varmail of figure 14 with other seeds, and with other times of a context switch: `cargo run --release -p weir-figures --example
//! what_if_servers`. The README of the figure prints these runs, all on `sata-ssd`. What else a run has is the figure's.
//!
//! Sixteen threads share commits as one group, or as several that wait for each other. Which it is depends on little.

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
    fn new() -> Result<Setting, Failed> {
        let figure = Figure::named("fast18-fig14")?;
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
    let setting = Setting::new()?;
    for cores in ["", ", 12 cores"] {
        for switch in [0.8, 1.0, 1.2] {
            setting.groups(cores, switch)?;
        }
    }
    Ok(())
}
