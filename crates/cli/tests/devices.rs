//! `weir devices` as scripts and people meet it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::process::{Command, Output};

use crate::support::weir_program;

const NAMES: [&str; 10] = [
    "emmc45",
    "emmc50",
    "ufs20",
    "sata-ssd",
    "sata-plp",
    "openssd",
    "nvme",
    "nvme-share",
    "pcie",
    "flash-array",
];

fn devices(arguments: &[&str]) -> Output {
    Command::new(weir_program()).arg("devices").args(arguments).output().unwrap()
}

fn printed(arguments: &[&str]) -> String {
    let output = devices(arguments);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// One line on standard error that holds all of `words`, exit code 2, and nothing on standard output.
fn refused(argument: &str, words: &[&str]) {
    let output = devices(&[argument]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert_eq!(error.trim_end().lines().count(), 1, "{error}");
    assert!(words.iter().all(|word| error.contains(word)), "no {words:?} in {error}");
    assert!(output.stdout.is_empty());
}

#[test]
fn every_device_is_listed_with_the_kinds_of_its_numbers() {
    let text = printed(&[]);
    assert!(NAMES.iter().all(|name| text.contains(name)), "{text}");
    let list: serde_json::Value = serde_json::from_str(&printed(&["--json"])).unwrap();
    let names: Vec<&str> = list.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, NAMES);
    for (name, row) in NAMES.iter().zip(list.as_array().unwrap()) {
        let device: serde_json::Value = serde_json::from_str(&printed(&[name, "--json"])).unwrap();
        let parameters = device["parameters"].as_array().unwrap();
        for kind in ["sourced", "fitted", "assumed"] {
            let of_kind = parameters.iter().filter(|parameter| parameter["kind"] == kind);
            assert_eq!(row[kind], of_kind.count(), "{name}: {kind}");
        }
    }
}

#[test]
fn a_device_is_shown_with_the_source_of_every_number() {
    let text = printed(&["ufs20"]);
    let mut lines = text.lines().skip_while(|line| *line != "host.queue_depth: 16 (sourced)");
    let source = lines.nth(1).unwrap();
    assert!(source.starts_with("  ") && source.contains("FAST 2018"), "{text}");
    assert!(text.contains("nand.program: 200 us (fitted)"), "{text}");
    assert!(text.contains("ftl.gc_free_blocks: 4 (assumed, 3 to 8)"), "{text}");
}

#[test]
fn a_profile_of_your_own_is_shown_or_refused_with_the_reason() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("mine.toml");
    let path = path.to_str().unwrap();
    let text = include_str!("../../flash/profiles/sata-ssd.toml");
    fs::write(path, text.replace("\"sata-ssd\"", "\"mine\"")).unwrap();
    assert!(printed(&[path]).starts_with("mine: SATA SSD"));
    for (from, to, words) in [
        ("value = 32,", "value = 0,", ["host.queue_depth", "from 1 to"]),
        ("queue_depth =", "queue_depht =", ["host.queue_depht", "host.queue_depth"]),
        ("\"3.8 ms\"", "\"3.8 MB\"", ["nand.erase", "ns, us, ms, s"]),
        ("\"238 GiB\"", "\"300 GiB\"", ["device.capacity", "nand.blocks_per_plane"]),
        ("[nand]", "[nand", ["mine.toml", "line "]),
    ] {
        fs::write(path, text.replacen(from, to, 1)).unwrap();
        refused(path, &words);
    }
    refused("floppy", &NAMES);
    refused("nowhere/mine.toml", &["nowhere/mine.toml"]);
}

/// Only a drive that keeps requests in order pays for it with memory.
#[test]
fn the_memory_that_order_takes_is_shown() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("mine.toml");
    let path = path.to_str().unwrap();
    let text = include_str!("../../flash/profiles/sata-ssd.toml");
    fs::write(path, text.replace("\"in-order-recovery\"", "\"order-preserving-recovery\"")).unwrap();
    let shown = printed(&[path]);
    // 12 bytes for each block of a cache of 32 MiB; a page of two planes of 8 KiB.
    assert!(shown.contains("memory.tags: 96 KiB") && shown.contains("memory.records: 16 KiB"), "{shown}");
    let device: serde_json::Value = serde_json::from_str(&printed(&[path, "--json"])).unwrap();
    assert_eq!(device["order_memory"]["tags"], 96 << 10);
    assert!(!printed(&["sata-ssd"]).contains("memory."));
}

/// A file that cannot be made is named, and so is a device that keeps no barriers.
#[test]
fn trace_names_what_is_wrong() {
    let trace = |arguments: &[&str]| {
        let output = Command::new(weir_program()).arg("trace").args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let error = trace(&["nowhere/trace.json"]);
    assert!(error.contains("nowhere/trace.json") && error.contains("create"), "{error}");
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let profile = concat!(env!("CARGO_MANIFEST_DIR"), "/../flash/profiles/ufs20.toml");
    let legacy = fs::read_to_string(profile).unwrap().replace("\"in-order-recovery\"", "\"none\"");
    let volume = directory.path().join("a.weir");
    fs::write(&volume, "what a volume begins with").unwrap();
    let error = trace(&[volume.to_str().unwrap()]);
    assert!(error.contains("a.weir") && error.contains("name another file"), "{error}");
    assert_eq!(fs::read(&volume).unwrap(), b"what a volume begins with");
    // A device that no driver has: what is on one is not looked at.
    let device = directory.path().join("device");
    if Command::new("mknod").arg(&device).args(["b", "199", "0"]).status().is_ok_and(|ended| ended.success())
    {
        let error = trace(&[device.to_str().unwrap()]);
        assert!(error.contains("name another file"), "{error}");
    } else {
        eprintln!("skipped: it takes the superuser to make a device");
    }
    let (legacy_file, file) = (directory.path().join("legacy.toml"), directory.path().join("trace.json"));
    fs::write(&legacy_file, legacy).unwrap();
    let error = trace(&["--device", legacy_file.to_str().unwrap(), file.to_str().unwrap()]);
    assert!(error.contains("ufs20 keeps no barriers"), "{error}");
    assert!(!file.exists(), "a file for nothing");
}

/// A timeline of the filesystem shows each commit's three writes, and with barriers all before the first is over.
#[test]
fn a_timeline_shows_the_journal() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = directory.path().join("trace.json");
    let arguments = ["trace", "--calls", "fsync", "--writes", "20", file.to_str().unwrap()];
    let output = Command::new(weir_program()).args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let timeline: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let times = |name: &str, phase: &str| -> Vec<f64> {
        let events = timeline["traceEvents"].as_array().unwrap().iter();
        events.filter(|e| e["name"] == name && e["ph"] == phase).map(|e| e["ts"].as_f64().unwrap()).collect()
    };
    // Each transfer says what it is about; a barrier ends its epoch.
    let events = timeline["traceEvents"].as_array().unwrap();
    let transfers = events.iter().filter(|e| e["name"] == "transfer").map(|e| &e["args"]);
    // Reads are of no epoch.
    let transfers: Vec<_> = transfers.filter(|args| args["epoch"].is_u64()).collect();
    assert!(transfers.iter().all(|args| args["block"].is_u64() && args["blocks"].as_u64() > Some(0)));
    for pair in transfers.windows(2) {
        let (one, next) = (pair[0]["epoch"].as_u64().unwrap(), pair[1]["epoch"].as_u64().unwrap());
        // There are barriers without data, too.
        assert!(next >= one + u64::from(pair[0]["barrier"] == true), "{pair:?}");
    }
    assert!(transfers.iter().any(|args| args["barrier"] == true));
    assert!(events.iter().any(|e| e["name"] == "program" && e["args"]["block"].is_u64()));
    for write in ["D", "JD", "JC"] {
        assert_eq!((times(write, "b").len(), times(write, "e").len()), (20, 20), "{write}");
    }
    for ((data, log), commit) in times("D", "e").iter().zip(times("JD", "e")).zip(times("JC", "b")) {
        assert!(commit < *data && commit < log, "JC was not dispatched before D and JD were transferred");
    }
    for (log, commit) in times("JD", "e").iter().zip(times("JC", "e")) {
        assert!(*log <= commit, "JC overtook JD");
    }
}

/// A quick look at a full device comes as far as cleaning.
#[test]
fn a_full_device_cleans_in_a_quick_look_too() {
    let arguments = ["bench", "device", "sata-ssd", "--virtual", "--quick", "--preconditioned", "--json"];
    let output = Command::new(weir_program()).args(arguments).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["erases"].as_u64().unwrap() > 0, "{report}");
    assert!(report["write_amplification"].as_f64().unwrap() > 1.5, "{report}");
}

/// Nothing that lies on a device holds up its reads.
#[test]
fn reads_of_a_device_are_measured() {
    let arguments = ["bench", "device", "nvme", "--virtual", "--reads", "--size", "4M"];
    let output = Command::new(weir_program()).args(arguments).arg("--json").output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rates = report["rates"].as_array().unwrap();
    assert_eq!(rates.len(), 4);
    assert!(rates.iter().all(|rates| rates["random_ratio"].as_f64().unwrap() > 0.8), "{report}");
    let output = Command::new(weir_program()).args(arguments).output().unwrap();
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("BarrierFS on a volume"), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
}
