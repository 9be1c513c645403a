//! Figure 14 with other parameters: `cargo run --release -p weir-figures --example what_if_servers`. The README of the figure
//! prints these runs, all on `sata-ssd`.
//!
//! - *OptFS* in OLTP-insert: its `osync` looks at all dirty pages, and a page in the log stays dirty until a notice of
//!   durability comes, so a run has to be long, and the journal's size counts.
//! - *Groups* in varmail: sixteen threads share commits as one group, or as several that wait for each other. Which it is
//!   depends on little: seeds, and the time of a context switch.

#![allow(clippy::print_stdout, reason = "an example prints")]

use weir_figures::{Call, FigureError, Host, InnoDb, Mode, Mounting, On, Outcome, Pages, Run, Varmail, Way};
use weir_flash::Profile;

/// Calls of the figure's runs.
const CALLS: u64 = 26_000;

fn measured(host: &Host, way: Way, calls: u64, seed: u64) -> Result<Outcome, FigureError> {
    let run = Run {
        device: Profile::builtin("sata-ssd")?.with_capacity(4_194_304),
        host: host.clone(),
        way,
        erased: false,
        span: 1,
        writes: calls,
        warm_up_max: calls / 4,
        sample_ns: 1_000_000_000,
    };
    run.outcome(seed)
}

/// A server's OLTP-insert.
#[derive(Clone, Copy)]
struct Oltp {
    binary_log_bytes: u32,
    journal_mib: u32,
}

impl Oltp {
    fn on(self, on: On, call: Call) -> Way {
        Way::InnoDb(InnoDb {
            on: Mounting { on, mode: Mode::OJ, journal_mib: Some(self.journal_mib) },
            pages: Pages::Doublewrite,
            tables: 1,
            table_pages: 2_048,
            threads: 16,
            transaction_us: 72,
            pages_of_hundred: 4,
            log_bytes: 470,
            batch: 64,
            cleaners: 1,
            durable: true,
            binary_log_bytes: self.binary_log_bytes,
            call,
            cores: None,
        })
    }

    /// OptFS beside EXT4-OD, for so many transactions, where looking at a page costs so many times what the host has.
    fn optfs(self, pc: &Host, transactions: u64, scan: f64) -> Result<(), FigureError> {
        let Some(host) = pc.scaled("scan_us", scan) else { return Ok(()) };
        let optfs = measured(&host, self.on(On::OptFs, Call::Fbarrier), transactions, 1)?;
        let ext4 = measured(&host, self.on(On::Ext4Unbarriered, Call::Fsync), transactions, 1)?;
        println!(
            "OLTP-insert, {} bytes of binary log, journal of {} MiB, {transactions} transactions, {:.1} us a page: \
             OptFS over EXT4-OD {:.3} (OptFS runs for {:.1} s, its second half has {:.2} times the rate of its first)",
            self.binary_log_bytes,
            self.journal_mib,
            host.scan_us.value,
            optfs.iops / ext4.iops,
            optfs.seconds,
            optfs.drift
        );
        Ok(())
    }
}

/// BFS-DR beside EXT4-DR in varmail, for five seeds.
fn groups(pc: &Host, cores: Option<u32>, switch: f64) -> Result<(), FigureError> {
    let Some(host) = pc.scaled("context_switch_us", switch) else { return Ok(()) };
    let way = |on| {
        Way::Varmail(Varmail {
            on: Mounting { on, mode: Mode::OJ, journal_mib: None },
            files: 1_000,
            threads: 16,
            call: Call::Fsync,
            append_bytes: 16 << 10,
            operation_us: 0,
            cores,
        })
    };
    let ratio = |seed| {
        let rate = |on| Ok::<f64, FigureError>(measured(&host, way(on), CALLS, seed)?.iops);
        Ok(rate(On::BarrierFs)? / rate(On::Ext4)?)
    };
    let ratios: Vec<String> = (1..=5)
        .map(|seed| ratio(seed).map(|ratio| format!("{ratio:.2}")))
        .collect::<Result<_, FigureError>>()?;
    let cores = cores.map_or(host.cores.value, f64::from);
    println!(
        "varmail, {cores} cores, context switches of {:.1} us, seeds 1 to 5: BFS-DR over EXT4-DR {}",
        host.context_switch_us.value,
        ratios.join(", ")
    );
    Ok(())
}

fn main() -> Result<(), FigureError> {
    let pc = Host::builtin("pc")?;
    for cores in [None, Some(12)] {
        for switch in [0.8, 1.0, 1.2] {
            groups(&pc, cores, switch)?;
        }
    }
    for binary_log_bytes in [414, 0] {
        for (journal_mib, transactions, scan) in [
            (128, CALLS, 1.0),
            (128, 10 * CALLS, 1.0),
            (128, 10 * CALLS, 5.0),
            (64, 10 * CALLS, 1.0),
            (64, 10 * CALLS, 5.0),
        ] {
            Oltp { binary_log_bytes, journal_mib }.optfs(&pc, transactions, scan)?;
        }
    }
    Ok(())
}
