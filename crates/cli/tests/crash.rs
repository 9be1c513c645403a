//! `weir crash`: what it says of workloads that are kept and of those that are not, and that a failure replays.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::support::weir_program;

/// What a disk without order breaks.
const RENAMES: &str = "mkdir /A\ncreate /A/foo\nwrite /A/foo 0 20K\nfsync /A/foo\nrename /A/foo /bar\nsync\n";

fn weir(directory: &Path, line: &str) -> Output {
    let words = line.split_whitespace();
    Command::new(weir_program()).args(words).current_dir(directory).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A document, without what differs from run to run.
fn document(output: &Output) -> Value {
    let mut document: Value = serde_json::from_slice(&output.stdout).unwrap();
    for key in ["seconds", "workloads_per_minute"] {
        assert!(
            document.as_object_mut().unwrap().remove(key).is_some_and(|value| value.is_number()),
            "{key}"
        );
    }
    document
}

#[test]
fn a_workload_that_is_kept_is_counted_and_replays() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("w"), RENAMES).unwrap();
    for line in [
        "crash run w --json",
        "crash run w w --ground legacy --json",
        "crash generate --length 1 --limit 9 --run --json",
    ] {
        let (first, second) = (weir(directory.path(), line), weir(directory.path(), line));
        assert_eq!(first.status.code(), Some(0), "{}", text(&first.stderr));
        let document = document(&first);
        assert_eq!(document, self::document(&second), "{line}");
        assert_eq!(document["failures"], 0);
        let counted = |key: &str| document[key].as_u64().unwrap();
        for key in ["workloads", "cuts", "states"] {
            assert!(counted(key) > 0, "{key}: {document}");
        }
        for (some, all) in [("exhaustive", "cuts"), ("events_exhaustive", "events")] {
            assert!(0 < counted(some) && counted(some) < counted(all), "{some} of {all}: {document}");
        }
        assert_eq!(document["trace_hash"].as_str().unwrap().len(), 16);
    }
    let other = weir(directory.path(), "crash run w --json --seed 2");
    let first = weir(directory.path(), "crash run w --json");
    assert_ne!(document(&other)["trace_hash"], document(&first)["trace_hash"]);
}

#[test]
fn a_failure_is_small_is_told_and_replays_by_the_command_that_it_names() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("w"), RENAMES).unwrap();
    let run = weir(directory.path(), "crash run w --ground legacy --engine jbd2-nobarrier --json");
    assert_eq!(run.status.code(), Some(1), "{}", text(&run.stderr));
    let document = document(&run);
    assert_eq!(document["failures"], 1);
    let command = document["replays"][0].as_str().unwrap();
    assert!(text(&run.stderr).contains(&format!("# replay: {command}")), "{}", text(&run.stderr));
    let told = fs::read_to_string(directory.path().join("weir-crash-1.txt")).unwrap();
    let operations = told.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).count();
    assert!((1..6).contains(&operations) && told.starts_with("# Failure found by "), "{told}");
    let again = weir(directory.path(), command.strip_prefix("weir ").unwrap());
    assert_eq!(again.status.code(), Some(1), "{}", text(&again.stderr));
    assert_eq!(text(&again.stdout).trim_end(), told.trim_end());
    // Another engine keeps that state.
    let kept = command.replace("jbd2-nobarrier", "jbd2");
    let kept = weir(directory.path(), kept.strip_prefix("weir ").unwrap());
    assert_eq!(kept.status.code(), Some(0), "{}", text(&kept.stdout));
}

/// What a failure goes to is looked at first: a failure that comes after hours has to find its place.
#[test]
fn files_of_failures_are_looked_at_before_the_first_workload() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("w"), RENAMES).unwrap();
    fs::create_dir(directory.path().join("mine")).unwrap();
    fs::write(directory.path().join("mine/weir-crash-5.txt"), "of mine").unwrap();
    for (failures, expected) in [
        ("absent", "cannot create absent/weir-crash-1.txt"),
        ("mine", "weir-crash-5.txt exists, and is no report"),
    ] {
        let line = format!("crash run w --ground legacy --engine jbd2-nobarrier --failures {failures}");
        let refused = weir(directory.path(), &line);
        assert_eq!(refused.status.code(), Some(2));
        assert!(text(&refused.stderr).contains(expected), "{}", text(&refused.stderr));
    }
    assert_eq!(fs::read_dir(directory.path().join("mine")).unwrap().count(), 1);
}

/// A failure whose file cannot be written is a failure all the same: the exit code and the document say so, and standard error
/// has what the file would have.
#[test]
fn a_failure_counts_although_its_file_cannot_be_written() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("w"), RENAMES).unwrap();
    let run = |options: &str| {
        let line = format!(
            "ulimit -f 0; {} crash run w --ground legacy --engine jbd2-nobarrier {options}",
            weir_program()
        );
        Command::new("sh").args(["-c", &line]).current_dir(directory.path()).output().unwrap()
    };
    let failed = run("--json");
    let told = text(&failed.stderr);
    assert_eq!(failed.status.code(), Some(1), "{told}");
    assert!(told.contains("weir: cannot write ./weir-crash-1.txt: "), "{told}");
    assert!(told.contains("# Failure found by "), "{told}");
    let document = document(&failed);
    assert_eq!((&document["failures"], &document["replays"]), (&1.into(), &Value::Array(Vec::new())));
    assert!(text(&run("").stdout).contains("1 workload fails"));
}

/// A cut that no play has is a mistake in the command, and no state that is allowed.
#[test]
fn a_power_cut_that_is_not_there_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("w"), RENAMES).unwrap();
    let run = |cut: &str| weir(directory.path(), &format!("crash run w --ground legacy --cut {cut}"));
    for cut in ["0/kept/0:", "99999/kept/0:", "1/kept/9999:1", "1/drawn/1"] {
        let refused = run(cut);
        assert_eq!(refused.status.code(), Some(2), "{cut}: {}", text(&refused.stdout));
        let expected = format!("weir: w: no such power cut: {cut};");
        assert!(text(&refused.stderr).starts_with(&expected), "{}", text(&refused.stderr));
    }
    let there = run("1/kept/0:");
    assert_eq!(there.status.code(), Some(0), "{}", text(&there.stderr));
    assert!(text(&there.stdout).contains("leaves an allowed state"), "{}", text(&there.stdout));
}

/// The command of a failure is one for a shell, and a workload comes from a pipe as well.
#[test]
fn the_command_of_a_failure_goes_to_a_shell_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("it's here")).unwrap();
    fs::write(directory.path().join("w"), RENAMES).unwrap();
    let shell = |command: &str| {
        let weir = format!("weir() {{ {} \"$@\"; }}\n", weir_program());
        let line = format!("{weir}{command}");
        Command::new("sh").args(["-c", &line]).current_dir(directory.path()).output().unwrap()
    };
    let run = "weir crash run - --ground legacy --engine jbd2-nobarrier --json --failures \"it's here\" < w";
    let failed = shell(run);
    assert_eq!(failed.status.code(), Some(1), "{}", text(&failed.stderr));
    let document = document(&failed);
    let command = document["replays"][0].as_str().unwrap();
    assert!(command.contains(r"'it'\''s here/weir-crash-1.txt'"), "{command}");
    let again = shell(command);
    assert_eq!(again.status.code(), Some(1), "{}", text(&again.stderr));
    let told = fs::read_to_string(directory.path().join("it's here/weir-crash-1.txt")).unwrap();
    assert_eq!(text(&again.stdout).trim_end(), told.trim_end());
    // A workload has an end.
    let endless = shell("weir crash run - < /dev/zero");
    assert_eq!(endless.status.code(), Some(2));
    assert!(text(&endless.stderr).contains("at most 1 MiB"), "{}", text(&endless.stderr));
}

#[test]
fn what_cannot_be_read_or_played_says_where_and_why() {
    let directory = tempfile::tempdir().unwrap();
    let fails = |workload: &[u8], options: &str| {
        fs::write(directory.path().join("w"), workload).unwrap();
        let output = weir(directory.path(), &format!("crash run w {options}"));
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stdout));
        text(&output.stderr)
    };
    assert!(fails(b"sync\nwrite /a", "").starts_with("weir: w: line 2: usage: write PATH OFFSET LENGTH"));
    let refused = fails(b"# nothing\nsync\nunlink /a", "");
    assert!(
        refused.starts_with("weir: w: line 3: unlink /a: /a does not exist; create what it needs"),
        "{refused}"
    );
    assert!(fails(b"# nothing\n", "").starts_with("weir: w: it has no operation: write one a line"));
    // No name reaches a terminal as it is: neither one of a workload nor that of its file.
    let escaped = fails(b"sync\nsync\ncreate /a\x1b[31m", "");
    let expected = "weir: w: line 3: \"/a\\u{1b}[31m\": a name is text in UTF-8 without spaces";
    assert!(escaped.starts_with(expected), "{escaped}");
    let unplayable = "a\x1b]0;x\x07b";
    fs::write(directory.path().join(unplayable), "unlink /a").unwrap();
    let named = text(&weir(directory.path(), &format!("crash run {unplayable}")).stderr);
    assert!(named.contains("a\\033]0;x\\007b: line 1: unlink /a") && !named.contains('\x1b'), "{named:?}");
    assert!(fails(b"\xff\x00", "").contains("unknown operation"));
    assert!(
        fails(b"sync", "--ground legacy --engine dual").contains("cannot make a filesystem on the ground")
    );
    assert!(fails(b"sync", "--ground floppy").contains("[possible values: adversary, legacy,"));
    assert!(fails(b"sync", "--cut 1").contains("is not the name of a power cut"));
    let absent = weir(directory.path(), "crash run nothing");
    assert!(text(&absent.stderr).contains("cannot read nothing"), "{}", text(&absent.stderr));
}

#[test]
fn blocks_are_torn_and_recoveries_cut_if_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("w"), RENAMES).unwrap();
    let run =
        |options: &str| weir(directory.path(), &format!("crash run w --json --ground legacy {options}"));
    let counted = |options: &str| {
        let run = run(options);
        assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
        document(&run)
    };
    let plain = counted("");
    assert_eq!(plain["states_recovery"], 0);
    assert_ne!(counted("--tear 512")["trace_hash"], plain["trace_hash"]);
    assert!(counted("--cut-recovery 2")["states_recovery"].as_u64().unwrap() > 0);
    // A failure's command has them, too.
    let failed = run("--engine jbd2-nobarrier --tear 512 --cut-recovery 4");
    assert_eq!(failed.status.code(), Some(1), "{}", text(&failed.stderr));
    let document = document(&failed);
    let command = document["replays"][0].as_str().unwrap();
    assert!(command.contains(" --tear 512 --cut-recovery 1"), "{command}");
    assert_eq!(weir(directory.path(), command.strip_prefix("weir ").unwrap()).status.code(), Some(1));
    let refused = weir(directory.path(), "crash run w --tear 512");
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        text(&refused.stderr)
            .contains("a power cut on volume cannot tear blocks at multiples of 512 bytes: use 4096")
    );
}

/// The filesystem has less than 4 MiB for files.
#[test]
fn what_finds_no_space_is_said_and_counted() {
    let directory = tempfile::tempdir().unwrap();
    let full = "create /a\ncreate /b\nfalloc /a 0 3M\nfalloc /b 0 3M\nsync\n";
    fs::write(directory.path().join("w"), full).unwrap();
    let run = weir(directory.path(), "crash run w");
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    assert!(
        text(&run.stderr).contains(
            "weir: w: 1 of 5 operations found no space, the first in line 4, falloc /b 0 3M: they were not done"
        ),
        "{}",
        text(&run.stderr)
    );
    let told = text(&run.stdout);
    assert!(!told.contains("e2fsck"), "nobody asked for it: {told}");
    assert!(told.starts_with("1 workload (1 of 5 operations found no space), "), "{told}");
    let counted = document(&weir(directory.path(), "crash run w --json"));
    assert_eq!((&counted["operations"], &counted["operations_no_space"]), (&5.into(), &1.into()));
}

#[test]
fn workloads_are_printed_or_written() {
    let directory = tempfile::tempdir().unwrap();
    let printed = text(&weir(directory.path(), "crash generate --length 1 --limit 3").stdout);
    assert_eq!(printed.matches("# length-1-").count(), 3, "{printed}");
    let halves: Vec<usize> = ["1/2", "2/2", "1/1"]
        .iter()
        .map(|part| {
            let line = format!("crash generate --length 1 --write {} --part {part}", part.replace('/', "-"));
            assert_eq!(weir(directory.path(), &line).status.code(), Some(0));
            fs::read_dir(directory.path().join(part.replace('/', "-"))).unwrap().count()
        })
        .collect();
    assert!(halves[0] > 70 && halves[0] + halves[1] == halves[2], "{halves:?}");
    let ran = weir(directory.path(), "crash run 1-1/length-1-000001.txt");
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
    assert!(text(&ran.stdout).contains("all as promised"), "{}", text(&ran.stdout));
}

#[test]
fn a_part_without_workloads_has_nothing_to_fail() {
    let directory = tempfile::tempdir().unwrap();
    let output = weir(directory.path(), "crash generate --length 1 --part 1/400 --run");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && told.starts_with("0 workloads"), "{told}");
}
