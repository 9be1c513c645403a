//! A *metric* is a number that an experiment gives, by its name and with its unit. A *meter* reads one from what a run
//! has shown; experiments share lists of meters.

/// The name and the unit of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// The name, as `figure.toml` has it for `measure`.
    pub name: &'static str,
    /// The unit.
    pub unit: &'static str,
    /// Whether it is counted over the window: a shorter one has less of it.
    pub(crate) is_total: bool,
}

impl Metric {
    pub(crate) const fn new(name: &'static str, unit: &'static str) -> Metric {
        Metric { name, unit, is_total: false }
    }

    /// One that is counted over the window.
    pub(crate) const fn total(name: &'static str, unit: &'static str) -> Metric {
        Metric { name, unit, is_total: true }
    }
}

/// Writes a second.
pub(crate) const WRITES: Metric = Metric::new("iops", "writes/s");
/// Operations a second: of a mail server; rounds of an application; inserts.
pub(crate) const OPERATIONS: Metric = Metric::new("operations", "operations/s");
/// The length of the window.
pub(crate) const SECONDS: Metric = Metric::total("seconds", "s");
/// How many megabytes less are written in a second than by another run.
pub(crate) const OVERHEAD: Metric = Metric::new("overhead", "% less");

/// A metric, and how it is read.
pub(crate) struct Meter<T: 'static> {
    pub(crate) metric: Metric,
    pub(crate) read: fn(&T) -> f64,
}

/// A meter of this name and unit.
pub(crate) const fn meter<T>(name: &'static str, unit: &'static str, read: fn(&T) -> f64) -> Meter<T> {
    Meter { metric: Metric::new(name, unit), read }
}

/// A meter of what is counted over the window.
pub(crate) const fn total<T>(name: &'static str, unit: &'static str, read: fn(&T) -> f64) -> Meter<T> {
    Meter { metric: Metric::total(name, unit), read }
}

/// What meters read.
pub(crate) fn metrics_of<T>(meters: &'static [Meter<T>]) -> impl Iterator<Item = Metric> {
    meters.iter().map(|meter| meter.metric)
}
