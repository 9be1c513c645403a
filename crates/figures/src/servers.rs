//! *Servers* are series of one program on several filesystems, each with the call that synchronises there, and of one
//! filesystem beside another (`[servers]` in `figure.toml`).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use toml::Value;
use weir_flash::Changes;

use crate::experiment::Experiment;
use crate::host::HostChanges;
use crate::registry::from_value;
use crate::series::Series;

/// The filesystems, what is run on each, and which are compared.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Servers {
    /// The filesystems, by the name that they have in the paper.
    pub systems: BTreeMap<String, System>,
    /// The filesystems whose rates are rows, in their order.
    pub rates: Vec<String>,
    /// Two filesystems: a row is the rate of the first in percent of that of the second.
    pub ratios: Vec<[String; 2]>,
    /// What is run.
    pub workloads: Vec<Workload>,
}

/// A filesystem, and what a program calls there where it synchronises; both by their names in experiments.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct System {
    /// The filesystem.
    pub on: String,
    /// The call.
    pub call: String,
}

/// A program with its parameters.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// What it is called in the names of series.
    pub name: String,
    /// The program, an experiment; the filesystem and the call are those of the systems.
    pub way: Value,
    /// The name of the metric that is shown.
    pub measure: String,
    /// Whether ratios alone are rows.
    #[serde(default)]
    pub ratios_alone: bool,
    /// Fewer ratios than all.
    #[serde(default)]
    pub ratios: Option<Vec<[String; 2]>>,
    /// As [`Series::devices`].
    #[serde(default)]
    pub devices: Option<Vec<String>>,
    /// As [`Series::vary`].
    #[serde(default)]
    pub vary: Changes,
    /// As [`Series::host_vary`].
    #[serde(default)]
    pub host_vary: HostChanges,
    /// Calls that it makes in place of those of the systems.
    #[serde(default)]
    pub calls: BTreeMap<String, String>,
}

impl Servers {
    /// The series that a figure has in its place. Those that name a filesystem that is not described are left out.
    ///
    /// # Errors
    /// A program that is no experiment, or none with such a filesystem and call.
    pub(crate) fn all(&self) -> Result<Vec<Series>, toml::de::Error> {
        let of_each: Result<Vec<Vec<Series>>, _> =
            self.workloads.iter().map(|workload| self.of(workload)).collect();
        Ok(of_each?.into_iter().flatten().collect())
    }

    fn of(&self, workload: &Workload) -> Result<Vec<Series>, toml::de::Error> {
        let mut series = Vec::new();
        let rates = if workload.ratios_alone { &[] } else { self.rates.as_slice() };
        for name in rates {
            if let Some(system) = self.systems.get(name) {
                series.push(workload.series(name, workload.on(system)?));
            }
        }
        for [of, over] in workload.ratios.as_ref().unwrap_or(&self.ratios) {
            if let (Some(system), Some(over_system)) = (self.systems.get(of), self.systems.get(over)) {
                let ratio = workload.series(&format!("{of} over {over}"), workload.on(system)?);
                let over_experiment = Some(workload.on(over_system)?);
                series.push(Series { over: over_experiment, over_name: Some(over.clone()), ..ratio });
            }
        }
        Ok(series)
    }
}

impl Workload {
    /// The program on this filesystem.
    fn on(&self, system: &System) -> Result<Arc<dyn Experiment>, toml::de::Error> {
        let call = self.calls.get(&system.call).unwrap_or(&system.call);
        let mut way = self.way.clone();
        for (_, parameters) in way.as_table_mut().into_iter().flatten() {
            if let Some(parameters) = parameters.as_table_mut() {
                parameters.insert("call".to_owned(), Value::String(call.clone()));
                if let Some(mounting) = parameters.get_mut("on").and_then(Value::as_table_mut) {
                    mounting.insert("on".to_owned(), Value::String(system.on.clone()));
                }
            }
        }
        from_value(way)
    }

    fn series(&self, name: &str, experiment: Arc<dyn Experiment>) -> Series {
        Series {
            devices: self.devices.clone(),
            vary: self.vary.clone(),
            host_vary: self.host_vary.clone(),
            ..Series::new(format!("{name}, {}", self.name), experiment, &self.measure)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::{Call, On};
    use crate::mounting::Mounting;
    use crate::varmail::Varmail;

    const SERVERS: &str = r#"
rates = ["EXT4-DR", "BFS-OD"]
ratios = [["BFS-OD", "EXT4-DR"]]

[systems]
EXT4-DR = { on = "EXT4", call = "fsync" }
BFS-OD = { on = "BarrierFS", call = "fdatabarrier" }

[[workloads]]
name = "mail"
way = { Varmail = { on = { mode = "OJ" }, files = 10, threads = 2 } }
measure = "operations"

[[workloads]]
name = "mail, fbarrier"
way = { Varmail = { on = { mode = "OJ" }, files = 10, threads = 2 } }
measure = "operations"
ratios_alone = true
calls = { fdatabarrier = "fbarrier" }
"#;

    #[test]
    fn a_workload_has_a_row_for_each_filesystem_and_ratio() {
        let servers: Servers = toml::from_str(SERVERS).unwrap();
        let all = servers.all().unwrap();
        let names: Vec<&str> = all.iter().map(|series| series.name.as_str()).collect();
        let ratios = ["BFS-OD over EXT4-DR, mail", "BFS-OD over EXT4-DR, mail, fbarrier"];
        assert_eq!(names, ["EXT4-DR, mail", "BFS-OD, mail", ratios[0], ratios[1]]);
        let mail = |on, call| {
            let on = Mounting { on, ..Mounting::of(On::Ext4) };
            let (files, threads, append_bytes, operation_us) = (10, 2, 16 << 10, 0);
            let mail = Varmail { on, files, threads, call, append_bytes, operation_us, cores: None };
            format!("{mail:?}")
        };
        let seen = |experiment: &Arc<dyn Experiment>| format!("{experiment:?}");
        assert_eq!(seen(&all[2].experiment), mail(On::BarrierFs, Call::Fdatabarrier));
        assert_eq!(all[2].over.as_ref().map(seen), Some(mail(On::Ext4, Call::Fsync)));
        assert_eq!(seen(&all[3].experiment), mail(On::BarrierFs, Call::Fbarrier));
        assert_eq!(all[3].unit(), "% of EXT4-DR");
    }
}
