//! A *host profile* says what the processor's side of a write costs: calls, dispatch, completions, context
//! switches. It drives the simulated cores of the runtime.
//!
//! One thread writes. A call's time is spent on its core before the request is issued; a completion's is spent
//! when the thread has been brought back by a context switch. Completions that no thread waits for are taken by
//! another core, as interrupts are on all three machines, and cost the writer nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use weir_flash::Kind;
use weir_runtime::Cores;

use crate::error::FigureError;
use crate::parameter::Parameter;

/// The files, embedded so that the program needs no checkout.
const HOSTS: [(&str, &str); 6] = [
    ("phone", include_str!("../figures/hosts/phone.toml")),
    ("phone-2013", include_str!("../figures/hosts/phone-2013.toml")),
    ("pc", include_str!("../figures/hosts/pc.toml")),
    ("desktop", include_str!("../figures/hosts/desktop.toml")),
    ("workstation", include_str!("../figures/hosts/workstation.toml")),
    ("server", include_str!("../figures/hosts/server.toml")),
];

/// Other values of a host's parameters, by name.
pub type HostChanges = BTreeMap<String, f64>;

/// What the host's side of a write costs.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// The name it is chosen by.
    pub name: String,
    /// The machine that it stands for.
    pub title: String,
    /// Cores, 1 and more.
    pub cores: Parameter,
    /// Bringing a sleeping thread back onto a core, from the wake-up to its first instruction.
    pub context_switch_us: Parameter,
    /// `write()` of 4 KiB into the page cache.
    pub write_us: Parameter,
    /// A synchronisation call (`fdatasync`, `fdatabarrier`) without dispatch and waiting.
    pub sync_us: Parameter,
    /// From the block layer to the device, for each command.
    pub dispatch_us: Parameter,
    /// The interrupt, and ending the request, for each command that a thread waits for.
    pub completion_us: Parameter,
    /// To make one log block of a commit, for the commit task.
    pub compose_us: Parameter,
    /// SQLite's own instructions for a transaction with one insert, given as text: all but its calls into the kernel.
    pub sqlite_insert_us: Parameter,
    /// To look at one dirty page, where a call looks at all of them (OptFS).
    #[serde(default = "scan")]
    pub scan_us: Parameter,
    /// A system call that moves few bytes or none: a lock, a file's size, a read of some bytes.
    pub small_call_us: Parameter,
    /// Ticks of the timer a second: the granularity of inode times.
    pub timer_hz: Parameter,
    /// Why its kernel flushes after a write in place of FUA, whatever the device has; if it does.
    #[serde(default)]
    pub no_fua: Option<String>,
}

/// What hosts have that say nothing else.
fn scan() -> Parameter {
    Parameter {
        value: 0.2,
        kind: Kind::Assumed,
        source: "look-up of a page by its tag, its lock, and its buffer heads, of which some are in no cache"
            .to_owned(),
        range: Some([0.05, 1.0]),
    }
}

impl Host {
    /// The names of all host profiles.
    #[must_use]
    pub fn names() -> Vec<&'static str> {
        HOSTS.iter().map(|(name, _)| *name).collect()
    }

    /// The built-in host profile of this name.
    ///
    /// # Errors
    /// [`FigureError::Name`] if there is none, [`FigureError::File`] if its file is damaged.
    pub fn builtin(name: &str) -> Result<Host, FigureError> {
        let Some((_, text)) = HOSTS.iter().find(|(known, _)| *known == name) else {
            return Err(FigureError::Name {
                file: "hosts".to_owned(),
                what: "host",
                name: name.to_owned(),
                known: Host::names().join(", "),
            });
        };
        toml::from_str(text).map_err(|source| FigureError::File {
            file: format!("hosts/{name}.toml"),
            source: Box::new(source),
        })
    }

    /// All its parameters, by name.
    #[must_use]
    pub fn parameters(&self) -> [(&'static str, &Parameter); 11] {
        [
            ("cores", &self.cores),
            ("context_switch_us", &self.context_switch_us),
            ("write_us", &self.write_us),
            ("sync_us", &self.sync_us),
            ("dispatch_us", &self.dispatch_us),
            ("completion_us", &self.completion_us),
            ("compose_us", &self.compose_us),
            ("sqlite_insert_us", &self.sqlite_insert_us),
            ("scan_us", &self.scan_us),
            ("small_call_us", &self.small_call_us),
            ("timer_hz", &self.timer_hz),
        ]
    }

    /// The same host with one parameter times `factor`; `None` if there is no such parameter.
    #[must_use]
    pub fn scaled(&self, parameter: &str, factor: f64) -> Option<Host> {
        let mut host = self.clone();
        host.parameter_mut(parameter)?.value *= factor;
        Some(host)
    }

    /// The same host with other values, which count as assumed.
    ///
    /// # Errors
    /// [`FigureError::Name`] if it has no such parameter.
    pub fn with_changes(&self, changes: &HostChanges) -> Result<Host, FigureError> {
        let mut host = self.clone();
        for (name, &value) in changes {
            let unknown = || FigureError::Name {
                file: format!("hosts/{}.toml", self.name),
                what: "parameter",
                name: name.clone(),
                known: self.parameters().map(|(known, _)| known).join(", "),
            };
            *host.parameter_mut(name).ok_or_else(unknown)? = Parameter {
                value,
                kind: Kind::Assumed,
                source: "changed for this run".to_owned(),
                range: Some([value, value]),
            };
        }
        Ok(host)
    }

    fn parameter_mut(&mut self, name: &str) -> Option<&mut Parameter> {
        Some(match name {
            "cores" => &mut self.cores,
            "context_switch_us" => &mut self.context_switch_us,
            "write_us" => &mut self.write_us,
            "sync_us" => &mut self.sync_us,
            "dispatch_us" => &mut self.dispatch_us,
            "completion_us" => &mut self.completion_us,
            "compose_us" => &mut self.compose_us,
            "sqlite_insert_us" => &mut self.sqlite_insert_us,
            "scan_us" => &mut self.scan_us,
            "small_call_us" => &mut self.small_call_us,
            "timer_hz" => &mut self.timer_hz,
            _ => return None,
        })
    }

    /// The processor that a run is simulated on.
    pub(crate) fn simulated(&self) -> Cores {
        Cores {
            count: self.cores.value.round().max(1.0) as usize,
            context_switch: microseconds(self.context_switch_us.value),
            dispatch: microseconds(self.dispatch_us.value),
            completion: microseconds(self.completion_us.value),
            compose: microseconds(self.compose_us.value),
            scan: microseconds(self.scan_us.value),
        }
    }
}

/// A duration that may have come from a file: what makes no sense there is no time.
pub(crate) fn microseconds(value: f64) -> Duration {
    Duration::try_from_secs_f64(value / 1e6).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_hosts_say_where_their_numbers_come_from() {
        for name in Host::names() {
            let host = Host::builtin(name).unwrap();
            assert_eq!(host.name, name);
            for (key, parameter) in host.parameters() {
                assert!(parameter.value > 0.0 || key == "compose_us", "{name} {key}");
                assert!(parameter.source.len() > 10, "{name} {key}");
                assert_eq!(parameter.kind == Kind::Assumed, parameter.range.is_some(), "{name} {key}");
                if let Some([low, high]) = parameter.range {
                    assert!(low <= parameter.value && parameter.value <= high, "{name} {key}");
                }
            }
        }
    }

    /// A what-if changes what it names, and is no source.
    #[test]
    fn a_changed_parameter_counts_as_assumed() {
        let host = Host::builtin("pc").unwrap();
        let changed = host.with_changes(&HostChanges::from([("timer_hz".to_owned(), 1000.0)])).unwrap();
        assert_eq!((changed.timer_hz.value, changed.timer_hz.kind), (1000.0, Kind::Assumed));
        assert_eq!(Host { timer_hz: host.timer_hz.clone(), ..changed }, host);
        let unknown = host.with_changes(&HostChanges::from([("ticks".to_owned(), 1.0)])).unwrap_err();
        assert!(unknown.to_string().contains("timer_hz"), "{unknown}");
    }

    #[test]
    fn every_parameter_can_be_scaled() {
        let host = Host::builtin("pc").unwrap();
        for (key, parameter) in host.parameters() {
            let scaled = host.scaled(key, 2.0).unwrap();
            let now = scaled.parameters().into_iter().find(|(other, _)| *other == key).unwrap().1.value;
            assert!((now - 2.0 * parameter.value).abs() < 1e-9, "{key}");
        }
        assert_eq!(host.scaled("weight", 2.0), None);
    }

    #[test]
    fn an_unknown_host_is_an_error_that_names_the_known_ones() {
        let error = Host::builtin("mainframe").unwrap_err().to_string();
        assert!(
            error.contains("mainframe")
                && error.contains("phone, phone-2013, pc, desktop, workstation, server"),
            "{error}"
        );
    }
}
