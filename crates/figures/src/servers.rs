//! *Servers* are series of one program on several filesystems, each with the call that synchronises there, and of one
//! filesystem beside another (`[servers]` in `figure.toml`).

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::calls::{Call, On};
use crate::innodb::InnoDb;
use crate::measure::Measure;
use crate::series::Series;
use crate::varmail::Varmail;
use crate::way::Way;

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

/// A filesystem, and what a program calls there where it synchronises.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct System {
    /// The filesystem.
    pub on: On,
    /// The call.
    pub call: Call,
}

/// A program with its parameters.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// What it is called in the names of series.
    pub name: String,
    /// The program; the filesystem and the call are those of the systems.
    pub way: Way,
    /// What is shown.
    pub measure: Measure,
    /// Whether ratios alone are rows.
    #[serde(default)]
    pub ratios_alone: bool,
    /// Calls that it makes in place of those of the systems.
    #[serde(default)]
    pub calls: BTreeMap<Call, Call>,
}

impl Servers {
    /// The series that a figure has in its place. Those that name a filesystem that is not described are left out.
    pub(crate) fn all(&self) -> Vec<Series> {
        self.workloads.iter().flat_map(|workload| self.of(workload)).collect()
    }

    fn of(&self, workload: &Workload) -> Vec<Series> {
        let way = |name: &String| self.systems.get(name).map(|system| workload.on(*system));
        let rates = if workload.ratios_alone { &[] } else { self.rates.as_slice() };
        let rates = rates.iter().filter_map(|name| Some(workload.series(name.clone(), way(name)?, None)));
        let ratios = self.ratios.iter().filter_map(|[of, over]| {
            let beside = Some((over.clone(), way(over)?));
            Some(workload.series(format!("{of} over {over}"), way(of)?, beside))
        });
        rates.chain(ratios).collect()
    }
}

impl Workload {
    /// The program on this filesystem.
    fn on(&self, System { on, call }: System) -> Way {
        let call = self.calls.get(&call).copied().unwrap_or(call);
        match self.way {
            Way::Varmail(varmail) => {
                Way::Varmail(Varmail { on: varmail.on.with_engine(on), call, ..varmail })
            }
            Way::InnoDb(innodb) => Way::InnoDb(InnoDb { on: innodb.on.with_engine(on), call, ..innodb }),
            way => way,
        }
    }

    fn series(&self, name: String, way: Way, over: Option<(String, Way)>) -> Series {
        let (over_name, over) = over.unzip();
        let series = Series::new(format!("{name}, {}", self.name), way, self.measure);
        Series { over, over_name, ..series }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let all = servers.all();
        let names: Vec<&str> = all.iter().map(|series| series.name.as_str()).collect();
        let ratios = ["BFS-OD over EXT4-DR, mail", "BFS-OD over EXT4-DR, mail, fbarrier"];
        assert_eq!(names, ["EXT4-DR, mail", "BFS-OD, mail", ratios[0], ratios[1]]);
        let call = |way| match way {
            Some(Way::Varmail(varmail)) => Some((varmail.on.on, varmail.call)),
            _ => None,
        };
        assert_eq!(call(Some(all[2].way)), Some((On::BarrierFs, Call::Fdatabarrier)));
        assert_eq!(call(all[2].over), Some((On::Ext4, Call::Fsync)));
        assert_eq!(call(Some(all[3].way)), Some((On::BarrierFs, Call::Fbarrier)));
        assert_eq!(all[3].unit(), "% of EXT4-DR");
    }
}
