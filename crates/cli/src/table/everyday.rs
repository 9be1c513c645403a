//! Everyday work on the host's filesystem and on a mount, for people.

use weir_bench::{EverydayReport, JobReport};

use super::{Grid, figure, page, place, range};

/// The result of the benchmark of everyday work.
pub(crate) fn everyday(report: &EverydayReport) -> String {
    page([jobs(report)], &notes(report), &verdict(report), &report.setting.machine)
}

const RATIO: &str = "host / mount: the host's time divided by the mount's, the median of the rounds: 1 where both are as fast, less where the mount is slower.";
const REQUESTS: &str = "requests: of the kernel to the mount's server, for each file that the job works on, and for each MiB of a large file; only the superuser can count them.";

fn jobs(report: &EverydayReport) -> String {
    let mut grid = Grid::new(&[
        ("job", 0, ""),
        ("host s", 0, ""),
        ("mount s", 0, ""),
        ("host / mount", 0, RATIO),
        ("min..max", 2, ""),
        ("requests", 0, REQUESTS),
        ("name in --json", 1, ""),
    ]);
    for job in &report.jobs {
        grid.row(row(report, job));
    }
    grid.text()
}

fn row(report: &EverydayReport, job: &JobReport) -> Vec<String> {
    let spread = report.spread.get(job.name);
    let requests = report.requests.get(job.name);
    vec![
        job.title.to_owned(),
        format!("{:.2}", job.host_seconds.median),
        format!("{:.2}", job.mount_seconds.median),
        spread.map_or_else(|| "-".to_owned(), |spread| figure(spread.median)),
        spread.map_or_else(|| "-".to_owned(), |spread| range(report.setting.plan.rounds, spread, figure)),
        requests.map_or_else(|| "-".to_owned(), |requests| format!("{requests:.2}")),
        job.name.to_owned(),
    ]
}

fn notes(report: &EverydayReport) -> String {
    let machine = report.setting.machine.line() + ".";
    place(&report.setting).into_iter().chain([machine]).collect::<Vec<_>>().join("\n")
}

/// What to take home: the slowest and the fastest.
fn verdict(report: &EverydayReport) -> String {
    let mut ratios: Vec<(&str, f64)> =
        report.jobs.iter().filter_map(|job| Some((job.title, *report.ratios.get(job.name)?))).collect();
    ratios.sort_by(|one, other| one.1.total_cmp(&other.1));
    match (ratios.first(), ratios.last()) {
        (Some((slowest, least)), Some((fastest, most))) => format!(
            "Beside the host's filesystem, the mount has {} of its speed at the least ({slowest}), and {} at the most ({fastest}).",
            figure(*least),
            figure(*most)
        ),
        _ => String::new(),
    }
}
