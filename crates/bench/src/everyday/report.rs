//! What the benchmark of everyday work found.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::everyday::bench::JobTurn;
use crate::everyday::job::Job;
use crate::everyday::plan::EverydayPlan;
use crate::statistics::Spread;
use crate::summary::{Setting, medians};

/// The result; serialised, it is the document that scripts read.
#[derive(Clone, Debug, Serialize)]
pub struct EverydayReport {
    /// What was run, and where.
    #[serde(flatten)]
    pub setting: Setting<EverydayPlan>,
    /// The host's time over the mount's, by job: 1 where both are as fast, less where the mount is slower. Medians of the rounds.
    pub ratios: BTreeMap<&'static str, f64>,
    /// Requests of the kernel to the mount's server by job, for each file that it works on, and for each MiB of a large file; those
    /// that could be counted.
    pub requests: BTreeMap<&'static str, f64>,
    /// The jobs, in the order in which they are done.
    pub jobs: Vec<JobReport>,
    /// Medians, smallest and largest of the ratios.
    pub spread: BTreeMap<&'static str, Spread>,
}

/// The figures of one job.
#[derive(Clone, Debug, Serialize)]
pub struct JobReport {
    /// Its name.
    pub name: &'static str,
    /// What it does, in a few words.
    pub title: &'static str,
    /// Seconds on the host's filesystem.
    pub host_seconds: Spread,
    /// Seconds on the mount.
    pub mount_seconds: Spread,
}

impl EverydayReport {
    pub(super) fn new(setting: Setting<EverydayPlan>, turns: &[JobTurn]) -> EverydayReport {
        let plan = setting.plan;
        let of = |job: Job| turns.iter().filter(move |turn| turn.job == job);
        let seconds = |job: Job| -> [Vec<f64>; 2] {
            [
                of(job).map(|turn| turn.host.as_secs_f64()).collect(),
                of(job).map(|turn| turn.mount.as_secs_f64()).collect(),
            ]
        };
        let ratio = |job: Job| {
            let [host, mount] = seconds(job);
            Some((job.name(), Spread::of_ratios(&host, &mount)?))
        };
        let requests = |job: Job| {
            let counted = of(job).filter_map(|turn| turn.requests).map(|count| count as f64);
            Some((job.name(), Spread::of(counted)?.median / job.units(&plan).max(1) as f64))
        };
        let report = |job: Job| {
            let [host, mount] = seconds(job).map(Spread::of);
            Some(JobReport {
                name: job.name(),
                title: job.title(),
                host_seconds: host?,
                mount_seconds: mount?,
            })
        };
        let spread: BTreeMap<_, _> = Job::ALL.into_iter().filter_map(ratio).collect();
        EverydayReport {
            setting,
            ratios: medians(&spread),
            requests: Job::ALL.into_iter().filter_map(requests).collect(),
            jobs: Job::ALL.into_iter().filter_map(report).collect(),
            spread,
        }
    }
}
