//! `weir figures` as scripts and people meet it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, Output};

use crate::support::weir_program;

const NAMES: &[&str] = &[
    "fast18-fig01",
    "fast18-fig05-ablations",
    "fast18-fig09",
    "fast18-fig10",
    "fast18-table1",
    "fast18-table2",
    "fast18-fig08",
    "fast18-fig11",
    "fast18-fig12",
    "fast18-fig13",
    "fast18-fig14",
    "fast18-fig15",
    "optr-fig03",
    "optr-fig06",
    "optr-fig09",
    "optr-fig10",
    "optr-fig11",
    "optr-fig12",
    "optr-fig13",
    "optr-recovery",
    "optr-memory",
    "share-fig2a",
    "share-fig2b",
    "share-fig3",
    "share-fig4",
    "share-fig4-linkbench",
    "emmc-table4",
    "emmc-fig12",
    "emmc-fig13",
    "emmc-fig14",
];

fn figures(arguments: &[&str]) -> Output {
    Command::new(weir_program()).arg("figures").args(arguments).output().unwrap()
}

fn printed(arguments: &[&str]) -> String {
    let output = figures(arguments);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Where no terminal says otherwise, there are 80 columns.
fn fits_a_terminal(output: &str) {
    for line in output.lines() {
        assert!(line.chars().count() <= 80, "{} columns: {line}", line.chars().count());
    }
}

/// Of all figures, this one has the longest names of series.
#[test]
fn a_table_fits_a_terminal() {
    let text = printed(&["fast18-fig09", "--quick"]);
    assert!(text.contains("sata-plp") && text.contains("fitted"), "{text}");
    fits_a_terminal(&text);
}

#[test]
fn all_figures_are_listed() {
    let text = printed(&["--list"]);
    assert!(NAMES.iter().all(|name| text.contains(name)), "{text}");
    fits_a_terminal(&text);
    let list: Vec<String> = serde_json::from_str(&printed(&["--list", "--json"])).unwrap();
    assert_eq!(list, NAMES);
}

/// Minutes of work are not begun by chance.
#[test]
fn without_a_name_the_figures_are_listed_with_what_to_type() {
    let text = printed(&[]);
    assert!(NAMES.iter().all(|name| text.contains(name)), "{text}");
    assert!(text.contains("weir figures fast18-fig10") && text.contains("weir figures --all"), "{text}");
    fits_a_terminal(&text);
    let list: Vec<String> = serde_json::from_str(&printed(&["--json"])).unwrap();
    assert_eq!(list, NAMES);
    for option in [&["--quick"][..], &["--spread"], &["--kernel"], &["--html", "report.html"]] {
        let output = figures(option);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains("--all"), "{error}");
    }
    assert_eq!(figures(&["--all", "fast18-fig10"]).status.code(), Some(2));
}

#[test]
fn an_unknown_figure_is_an_error_that_names_the_known_ones() {
    let output = figures(&["fast18-fig99"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(NAMES.iter().all(|name| error.contains(name)), "{error}");
    assert!(output.stdout.is_empty());
}

#[test]
fn a_figure_is_a_list_of_rows_and_the_same_for_the_same_seed() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let report = directory.path().join("report.html");
    let arguments = ["fast18-fig10", "--quick", "--json", "--html", report.to_str().unwrap()];
    let (text, page) = (printed(&arguments), std::fs::read(&report).unwrap());
    assert_eq!((printed(&arguments), std::fs::read(&report).unwrap()), (text.clone(), page));
    let rows: serde_json::Value = serde_json::from_str(&text).unwrap();
    let value = |device: &str, series: &str| {
        let mut rows = rows.as_array().unwrap().iter();
        let row = rows.find(|row| row["device"] == device && row["series"] == series).unwrap();
        assert_eq!(row["figure"], "fast18-fig10");
        row["ours"].as_f64().unwrap()
    };
    for (device, depth) in [("sata-ssd", 32.0), ("ufs20", 16.0)] {
        assert_eq!(value(device, "X, at most"), 1.0, "{device}");
        assert_eq!(value(device, "B, at most"), depth, "{device}");
        assert!(value(device, "B, on average") > 0.95 * depth, "{device}");
    }
}

/// What was recorded is summed up in a moment.
#[test]
fn recorded_figures_are_summed_up_without_a_run() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../figures");
    let arguments = ["--summary", "--recorded", folder];
    let summary: serde_json::Value =
        serde_json::from_str(&printed(&[&arguments[..], &["--json"]].concat())).unwrap();
    let count = |name: &str| summary[name].as_u64().unwrap();
    assert!(count("numbers") > 150 && count("bounds") > 30 && count("orders") > 40, "{summary}");
    assert_eq!(count("within_25") + count("beyond"), count("numbers"));
    // In words it is what is broken or far off, by name. Without a terminal a row is a line, and no cell is broken.
    let words = printed(&arguments);
    assert_eq!(words.contains("Bounds that are broken:"), count("broken") > 0, "{words}");
    assert!(words.lines().count() < 120 && words.contains("--rows"), "{words}");
    let of_one = printed(&[&arguments[..], &["optr-fig09", "--rows"]].concat());
    assert!(of_one.contains("optr-fig09") && !of_one.contains("fast18"), "{of_one}");
    let is_whole = |line: &str| line.contains("OPTR, mode 2 over baseline") && line.contains("285");
    assert!(of_one.lines().any(is_whole), "{of_one}");
    let output = figures(&["--summary", "--recorded", "nowhere"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("nowhere/fast18-fig01/ours.json"), "{error}");
    // Without a summary there is nothing to show, and a seed changes nothing.
    for more in [&["--all"][..], &["--summary", "--seed", "2"]] {
        assert_eq!(figures(&[&["--recorded", folder], more].concat()).status.code(), Some(2), "{more:?}");
    }
}

#[test]
fn a_report_that_cannot_be_written_is_an_error_that_names_the_file() {
    let output = figures(&["fast18-fig10", "--quick", "--html", "nowhere/report.html"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("nowhere/report.html"), "{error}");
}
