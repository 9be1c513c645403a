//! The machine under the benchmark, and whether other programs used it.

use std::path::Path;
use std::time::Duration;

use rustix::thread::sched_getaffinity;
use serde::Serialize;
use weir_runtime::{CpuLatencyGuard, Handle, Instant};

use crate::error::BenchError;

/// Above this many cores used by others, on average, the machine counts as busy. Below it may be the kernel,
/// which works for the benchmark in threads of its own.
const BUSY_CORES: f64 = 0.25;

/// Above this share of time stolen by the hypervisor, it does too.
const BUSY_STEAL: f64 = 0.02;

/// A moment's totals, for a difference.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    at: Instant,
    own: Duration,
    ticks: Option<Ticks>,
}

/// What the kernel has counted since boot, in ticks over all cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ticks {
    total: u64,
    idle: u64,
    steal: u64,
}

/// How the processor was used over some rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    seconds: f64,
    others: f64,
    stolen: f64,
    unknown: bool,
}

impl Load {
    /// The totals now.
    #[must_use]
    pub fn now(handle: &Handle) -> Load {
        let cpu = handle.cpu_time();
        let ticks = std::fs::read_to_string("/proc/stat").ok().and_then(|stat| parse(&stat));
        let children = std::fs::read_to_string("/proc/self/stat").ok().and_then(|stat| parse_children(&stat));
        let own = cpu.user + cpu.system + children.unwrap_or_default();
        Load { at: handle.now(), own, ticks }
    }

    /// How the processor was used from `self` until now.
    #[must_use]
    pub fn until_now(&self, handle: &Handle) -> Usage {
        let now = Load::now(handle);
        let seconds = now.at.since(self.at).as_secs_f64();
        let own = now.own.saturating_sub(self.own).as_secs_f64();
        let (Some(before), Some(after)) = (self.ticks, now.ticks) else {
            return Usage { seconds, unknown: true, ..Usage::default() };
        };
        let total = after.total.saturating_sub(before.total).max(1) as f64;
        let idle = after.idle.saturating_sub(before.idle) as f64;
        let steal = after.steal.saturating_sub(before.steal) as f64;
        // A share of the ticks is a share of all cores' time, so the length of a tick does not matter.
        let core_seconds = seconds * cores() as f64;
        let others = core_seconds * (total - idle - steal) / total - own;
        Usage { seconds, others, stolen: core_seconds * steal / total, unknown: false }
    }
}

impl Usage {
    /// Adds another round's usage.
    pub fn add(&mut self, other: Usage) {
        self.seconds += other.seconds;
        self.others += other.others;
        self.stolen += other.stolen;
        self.unknown |= other.unknown;
    }

    /// Cores that other programs used, on average.
    fn other_cores(&self) -> f64 {
        (self.others / self.seconds.max(1e-9)).max(0.0)
    }

    /// Share of the time that was stolen, 0 to 1.
    fn steal(&self) -> f64 {
        self.stolen / (self.seconds.max(1e-9) * cores() as f64)
    }

    fn busy(&self) -> bool {
        !self.unknown && (self.other_cores() > BUSY_CORES || self.steal() > BUSY_STEAL)
    }

    /// Whether no other program used the machine; false where that is not known.
    pub(crate) fn quiet(&self) -> bool {
        !self.unknown && !self.busy()
    }
}

/// The machine, as a report describes it.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Cores that the process may use: fewer than there are if it was started so (`taskset`).
    pub cores: usize,
    /// The kernel's release.
    pub kernel: String,
    /// Cores that other processes (and the kernel's own writeback) used during the rounds, on average.
    pub other_cores: f64,
    /// Share of the time that the hypervisor gave to other machines, 0 to 1.
    pub steal: f64,
    /// Whether that is too much to trust the figures.
    pub busy: bool,
    /// Whether idle processors were kept from sleeping, for all that was measured.
    pub awake: bool,
}

impl Machine {
    /// The machine, and how it was used.
    #[must_use]
    pub fn seen(usage: Usage) -> Machine {
        let kernel = std::fs::read_to_string(Path::new("/proc/sys/kernel/osrelease")).unwrap_or_default();
        Machine {
            cores: sched_getaffinity(None).map_or_else(|_| cores(), |set| set.count() as usize),
            kernel: kernel.trim().to_owned(),
            other_cores: usage.other_cores(),
            steal: usage.steal(),
            busy: usage.busy(),
            awake: CpuLatencyGuard::is_kept(),
        }
    }

    /// One line about whether the machine was busy.
    #[must_use]
    pub fn line(&self) -> String {
        let verdict = if self.busy {
            "the machine was BUSY with other programs: trust the ratios less, and the absolute figures not at all"
        } else {
            "the machine was otherwise idle"
        };
        let sleep = if self.awake { ", kept from sleeping" } else { "" };
        let cores = if self.cores == 1 { "core" } else { "cores" };
        format!(
            "{} {cores}{sleep}, Linux {}; other programs used {:.2} cores, {:.1} % of the time was stolen: {verdict}",
            self.cores,
            self.kernel,
            self.other_cores,
            self.steal * 100.0,
        )
    }
}

/// Empties the kernel's caches of files and names, as the superuser may.
///
/// # Errors
/// [`BenchError::Job`].
pub(crate) fn drop_caches() -> Result<(), BenchError> {
    let dropped = std::fs::write("/proc/sys/vm/drop_caches", "3");
    dropped.map_err(|source| BenchError::Job { program: "drop_caches", told: source.to_string() })
}

/// Cores of the whole machine, as /proc/stat counts them.
fn cores() -> usize {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let numbered = |line: &&str| {
        line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    stat.lines().filter(numbered).count().max(1)
}

/// Reads the first line of /proc/stat (proc_stat(5)): user nice system idle iowait irq softirq steal.
fn parse(stat: &str) -> Option<Ticks> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let fields: Vec<u64> = line.split_whitespace().take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
    let [_, _, _, idle, iowait, _, _, steal] = fields[..] else { return None };
    Some(Ticks { total: fields.iter().sum(), idle: idle + iowait, steal })
}

/// Reads the processor time of children that were waited for, from /proc/self/stat (proc_pid_stat(5)): fields 16 and 17, in
/// ticks. The second field is a name in parentheses, which may hold anything.
fn parse_children(stat: &str) -> Option<Duration> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(13);
    let ticks: u64 = fields.next()?.parse::<u64>().ok()?.checked_add(fields.next()?.parse().ok()?)?;
    Some(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second().max(1) as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_is_read() {
        let ticks = parse("cpu  1 2 3 40 5 6 7 8 9 10\ncpu0 1 1 1 1\n").unwrap();
        assert_eq!(ticks, Ticks { total: 72, idle: 45, steal: 8 });
        assert_eq!(parse("cpu0 1 2 3"), None);
        assert_eq!(parse(""), None);
        assert_eq!(parse("cpu  1 2 x 4 5 6 7 8"), None);
    }

    #[test]
    fn the_time_of_children_is_read() {
        let stat = "1 (a) b) S 4 5 6 7 8 9 10 11 12 13 14 15 100 17 18 19";
        let second = rustix::param::clock_ticks_per_second() as f64;
        // Each number but the sixteenth is that of its field.
        assert_eq!(parse_children(stat), Some(Duration::from_secs_f64((100.0 + 17.0) / second)));
        assert_eq!(parse_children("1 (a) S 3"), None);
        assert!(parse_children(&std::fs::read_to_string("/proc/self/stat").unwrap()).is_some());
    }

    #[test]
    fn busy_is_said() {
        let usage = Usage { seconds: 10.0, others: 0.1, stolen: 0.0, unknown: false };
        assert!(!Machine::seen(usage).busy);
        let mut busy = usage;
        busy.add(Usage { seconds: 10.0, others: 9.0, stolen: 0.0, unknown: false });
        let machine = Machine::seen(busy);
        assert!(machine.busy && machine.line().contains("BUSY"));
        assert!(Machine::seen(Usage { stolen: 100.0, ..usage }).busy);
        assert!(usage.quiet() && !busy.quiet());
        assert!(!Usage { unknown: true, ..usage }.quiet(), "what is not known is not quiet");
    }
}
