//! `weir crash program --ground`: programs on filesystems over the worst legal disk: what was synchronised is there,
//! what was not is found missing, a failure names the blocks and replays, and a filesystem that is not mounted is a failure.
//!
//! Where loop devices are not to be had, this says that it was skipped.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::support::{error_of, is_there, mounts, of_project, text, weir_program};

/// Saves numbers, each acknowledged when it is saved.
const SAVE: &str = r#"for n in 1 2 3 4; do
    seq $n 1500 >new; SYNC; mv new data; echo "$n" >>"$WEIR_ACK"
done"#;
/// The file is there, whole, and not older than what was acknowledged.
const CHECK: &str = r#"n=$(tail -n 1 "$WEIR_ACKED"); [ -n "$n" ] || exit 0
[ "$(head -n 1 data)" -ge "$n" ] && [ "$(tail -n 1 data)" = 1500 ] || { echo "lost $n"; exit 1; }"#;

fn is_skipped(filesystem: &str) -> bool {
    let is_known = fs::read_to_string("/proc/filesystems").is_ok_and(|known| known.contains(filesystem));
    let can_loop = rustix::process::geteuid().is_root() && Path::new("/dev/loop-control").exists();
    let maker = format!("mkfs.{filesystem}");
    let is_made = ["/sbin", "/usr/sbin"].iter().any(|place| Path::new(place).join(&maker).exists());
    let is_skipped = !mounts() || !can_loop || !is_known || !is_made;
    if is_skipped {
        eprintln!("skipped: there is no FUSE, no loop device, no {filesystem} in the kernel, or no {maker}");
    }
    is_skipped
}

/// Runs the command in a directory.
fn weir(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(weir_program()).args(arguments).current_dir(directory).output().unwrap()
}

/// The same with a test of a program, and its document.
fn test(directory: &Path, ground: &str, [run, check]: [&str; 2], more: &[&str]) -> (Option<i32>, Value) {
    let test = ["crash", "program", "--ground", ground, "--run", run, "--check", check, "--json"];
    let output = weir(directory, &[&test[..], more].concat());
    let document = serde_json::from_slice(&output.stdout);
    (output.status.code(), document.unwrap_or_else(|_| panic!("{}", error_of(&output))))
}

#[test]
fn what_was_synchronised_survives_on_each_filesystem() {
    for (ground, size) in
        [("ext4", "32M"), ("xfs", "320M"), ("btrfs", "128M"), ("barrierfs", "64M"), ("f2fs", "64M")]
    {
        let is_of_weir = ["barrierfs", "f2fs"].contains(&ground);
        if is_of_weir && !mounts() || !is_of_weir && is_skipped(ground) {
            continue;
        }
        let directory = tempfile::tempdir().unwrap();
        let limits = ["--disk-size", size, "--states", "60"];
        let run = SAVE.replace("SYNC", "sync new").replace("; echo", "; sync .; echo");
        let (status, right) = test(directory.path(), ground, [&run, CHECK], &limits);
        assert_eq!(status, Some(0), "{ground}: {right}");
        assert!(right["distinct"].as_u64().unwrap() > 20 && right["acknowledged"] == 4, "{ground}: {right}");
        assert_eq!((&right["ground"], &right["promises"]), (&Value::from(ground), &Value::Null));
        // Nothing of it is on the disk when the run ends.
        let (status, wrong) = test(directory.path(), ground, [&SAVE.replace("SYNC", "true"), CHECK], &limits);
        assert_eq!(status, Some(1), "{ground}: {wrong}");
        let output = wrong["failures"][0]["output"].as_str().unwrap();
        assert!(output.contains("lost "), "{ground}: {wrong}");
    }
}

/// Makes a file, overwrites one in place, and replaces one by a rename, in steps, and synchronises nothing.
const STEPS: &str = r#"for n in 1 2 3 4 5 6 7 8 9 10 11 12; do
    seq $n 1500 >made-$n; seq $n 1500 >newest; seq $n 1500 >new; mv new renamed; sleep 0.02
done"#;
/// What is there is what was there at some time between the calls of the steps.
const CHECK_STEPS: &str = r#"whole() { [ "$(head -n 1 $1)" = $2 ] && [ "$(tail -n 1 $1)" = 1500 ]; }
fail() { echo "$1"; exit 1; }
n=1; while [ -e made-$((n + 1)) ]; do
    whole made-$n $n || fail "made-$((n + 1)) is there, and made-$n is not whole"; n=$((n + 1))
done
[ -e made-$n ] || exit 0
renamed=0; [ ! -e renamed ] || renamed=$(head -n 1 renamed)
[ $renamed = 0 ] || whole renamed $renamed || fail "renamed is torn"
[ $renamed -ge $((n - 1)) ] || fail "made-$n is there, and renamed is of step $renamed"
[ $renamed -lt $n ] || whole newest $n || fail "renamed is of step $n, and newest is not"
[ $renamed -lt $n ] || whole made-$n $n || fail "renamed is of step $n, and made-$n is not""#;

/// With moments a crash leaves the tree as of one time (J11), of a program that synchronises nothing. The kernel's ext4, the
/// control, leaves trees that never were.
#[test]
fn a_mount_with_moments_leaves_one_moment_and_ext4_does_not() {
    let directory = tempfile::tempdir().unwrap();
    if mounts() {
        let options = ["--mount-options", "moment=30ms", "--disk-size", "64M", "--states", "150"];
        let (status, right) = test(directory.path(), "barrierfs", [STEPS, CHECK_STEPS], &options);
        assert_eq!(status, Some(0), "{right}");
        assert!(right["distinct"].as_u64().unwrap() > 50, "{right}");
    }
    if !is_skipped("ext4") {
        let options = ["--mount-options", "commit=1", "--disk-size", "32M", "--states", "150"];
        // Slowly, so that it commits in the middle.
        let steps = STEPS.replace("sleep 0.02", "sleep 0.3");
        let (status, wrong) = test(directory.path(), "ext4", [&steps, CHECK_STEPS], &options);
        assert_eq!(status, Some(1), "{wrong}");
    }
}

/// A write that went to the disk and was not flushed is missing, and is named by its file; and the state replays from the trace.
#[test]
fn a_missing_write_is_named_by_its_file_and_replays() {
    if is_skipped("ext4") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let run = "printf %4096s b | dd of=table bs=4096 iflag=fullblock oflag=direct conv=notrunc 2>/dev/null; SYNC; \
               echo 1 >>\"$WEIR_ACK\"";
    let check =
        "[ ! -s \"$WEIR_ACKED\" ] || [ \"$(head -c 4096 table | tail -c 1)\" = b ] || { echo old; exit 1; }";
    let limits = ["--setup", "printf %8192s a >table", "--disk-size", "32M", "--states", "60"];
    let (status, right) =
        test(directory.path(), "ext4", [&run.replace("SYNC", "sync table"), check], &limits);
    assert_eq!(status, Some(0), "{right}");
    let (status, found) = test(directory.path(), "ext4", [&run.replace("SYNC", "true"), check], &limits);
    assert_eq!(status, Some(1), "{found}");
    let missing = found["failures"][0]["missing"].to_string();
    assert!(missing.contains("of the disk, to `table` at 0"), "{found}");
    let cause = found["failures"][0]["causes"].to_string().replace("\\\"", "\"");
    assert!(cause.contains("not flushed behind what is missing") && cause.contains("\"1\" was"), "{cause}");
    let failure = &found["failures"][0];
    assert!(failure["moment"].as_str().unwrap().contains(" to the disk, "), "{failure}");
    let replay = failure["replay"].as_str().unwrap().strip_prefix("weir ").unwrap().replace('\'', "");
    let replay: Vec<&str> = replay.split_whitespace().collect();
    let again = weir(directory.path(), &[&replay[..], &["--json"]].concat());
    assert_eq!(again.status.code(), Some(1), "{}", error_of(&again));
    let again: Value = serde_json::from_slice(&again.stdout).unwrap();
    for key in ["state", "ending", "output", "missing", "causes", "moment"] {
        assert_eq!(again[key], failure[key], "{key}");
    }
    let shown = weir(directory.path(), &["crash", "replay", "weir-crash.trace", "--show"]);
    assert!(text(&shown.stdout).contains("ground:       ext4, of 33554432 bytes"), "{}", text(&shown.stdout));
    let promised = weir(directory.path(), &["crash", "replay", "weir-crash.trace", "--promises", "posix"]);
    assert!(error_of(&promised).contains("makes its own"), "{}", error_of(&promised));
}

/// Tests SQLite on ext4: the exit status, and what is printed.
fn test_sqlite(directory: &Path, more: &[&str]) -> (Option<i32>, String) {
    let file = of_project("examples/crash/sqlite.toml");
    let test = ["crash", "program", file.to_str().unwrap(), "--ground", "ext4"];
    let limits = ["--states", "80", "--disk-size", "32M"];
    let output = weir(directory, &[&test[..], &limits, more].concat());
    (output.status.code(), text(&output.stdout) + &error_of(&output))
}

#[test]
fn sqlite_loses_what_its_settings_say() {
    if is_skipped("ext4") || !is_there("sqlite3") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let with = |settings: &str| {
        let run = format!("\"$WEIR_HERE\"/sqlite.sh run {settings}");
        test_sqlite(directory.path(), &["--run", &run])
    };
    let (status, printed) = with("wal full");
    assert!(
        status == Some(0) && printed.contains("no failure with ext4 on the worst legal disk"),
        "{printed}"
    );
    let (status, printed) = with("delete off");
    assert!(status == Some(1) && printed.contains("10 lines are acknowledged"), "{printed}");
}

/// Without flushes, capacitors keep what was written, and a cache does not.
#[test]
fn a_drive_below_the_disk_chooses_what_is_missing() {
    if is_skipped("ext4") || !is_there("sqlite3") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let with =
        |drive: &str| test_sqlite(directory.path(), &["--mount-options", "nobarrier", "--drive", drive]);
    let (status, printed) = with("sata-plp");
    assert!(
        status == Some(0) && printed.contains("no failure with ext4 (nobarrier) on sata-plp"),
        "{printed}"
    );
    let (status, printed) = with("sata-ssd");
    assert!(status == Some(1) && printed.contains("was committed"), "{printed}");
    let replay = |more: &[&str]| {
        let output = weir(directory.path(), &[&["crash", "replay", "weir-crash.trace"], more].concat());
        (output.status.code(), text(&output.stdout) + &error_of(&output))
    };
    let (status, printed) = replay(&["--drive", "sata-plp", "--states", "80"]);
    assert!(status == Some(0) && printed.contains("on sata-plp"), "{printed}");
    // Without another one, it is the drive that it was found on.
    let (status, printed) = replay(&["--states", "80", "--json"]);
    assert!(status == Some(1) && printed.contains("\"drive\": \"sata-ssd\""), "{printed}");
    assert!(replay(&["--show"]).1.contains(", on sata-ssd"));
    let (status, printed) = replay(&["--drive", "nvme", "--state", "0/"]);
    assert!(status == Some(2) && printed.contains("give one of them"), "{printed}");
    let (status, printed) = with("emmc45");
    assert!(status == Some(2) && printed.contains("choose another --drive"), "{printed}");
    let mount = ["crash", "program", "--run", "true", "--check", "true", "--drive", "nvme"];
    assert!(error_of(&weir(directory.path(), &mount)).contains("--drive goes with a disk"));
}

#[test]
fn mount_options_reach_the_kernel_and_mistakes_are_told() {
    if is_skipped("ext4") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let options = "grep \" $WEIR_DIR ext4 \" /proc/self/mounts | grep -q data=journal || exit 9; echo a >f";
    for (more, code, words) in [
        (&["--mount-options", "data=journal"][..], 0, "ext4 (data=journal)"),
        (&["--mount-options", "data=none"], 2, "cannot mount it"),
        (&["--mount-options", "noatime,errors=panic"], 2, "the mount option \"errors=panic\" cannot be used"),
        (&["--mount-options", "loop=/dev/null"], 2, "cannot be used in a test on ext4"),
        (&["--disk-size", "1M"], 2, "choose another --disk-size"),
        (&["--sector-bytes", "100"], 2, "sectors of 512 or 4096 bytes"),
        (&["--promises", "posix"], 2, "goes with --ground mount"),
        (&["--ground", "mount", "--disk-size", "32M"], 2, "go with a disk"),
    ] {
        let ground: &[&str] = if more[0] == "--ground" { &[] } else { &["--ground", "ext4"] };
        let program = ["crash", "program", "--run", options, "--check", "true", "--states", "3"];
        let output = weir(directory.path(), &[&program[..], ground, more].concat());
        let printed = text(&output.stdout) + &error_of(&output);
        assert!(output.status.code() == Some(code) && printed.contains(words), "{more:?}: {printed}");
    }
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(directory.path().to_str().unwrap()), "{mounts}");
}

/// XFS takes it that a block of its own is written whole: where it is not, that is no failure of the program.
#[test]
fn a_torn_block_of_a_filesystem_is_no_failure_of_the_program() {
    if is_skipped("xfs") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let run = r#"name=$(printf %0200d 0)
for n in $(seq 60); do : >$name$n; done; sync .; echo 1 >>"$WEIR_ACK"
for n in $(seq 60); do mv $name$n new$name$n; done; sync .; echo 2 >>"$WEIR_ACK""#;
    let check = r#"[ ! -s "$WEIR_ACKED" ] || [ "$(ls | wc -l)" = 60 ] || { ls | wc -l; exit 1; }"#;
    for sectors in [&[][..], &["--sector-bytes", "512"]] {
        let (status, found) =
            test(directory.path(), "xfs", [run, check], &[&["--states", "250"], sectors].concat());
        assert_eq!(status, Some(0), "{sectors:?}: {found}");
    }
}

/// `weir umount` synchronises, which a disk whose power is cut refuses: nothing stays behind all the same.
#[test]
fn a_cut_disk_of_weir_leaves_no_mount_behind() {
    if !mounts() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let scratch = directory.path().join("scratch");
    fs::create_dir(&scratch).unwrap();
    let run =
        r#"for n in 1 2 3 4 5; do echo $n >new; sync new; mv new data; sync .; echo $n >>"$WEIR_ACK"; done"#;
    for ground in ["barrierfs", "f2fs"] {
        let more = ["--scratch", scratch.to_str().unwrap(), "--cut-at", "ack:2", "--cuts", "2"];
        let (status, found) = test(directory.path(), ground, [run, "true"], &more);
        assert!(status == Some(0) && found["cuts"] == 2, "{ground}: {found}");
        assert_eq!(fs::read_dir(&scratch).unwrap().count(), 0, "{ground}");
    }
    // A check that always fails says nothing of a cut.
    let never = ["crash", "program", "--run", run, "--check", "exit 1", "--cut-at", "ack:2"];
    assert_eq!(weir(directory.path(), &never).status.code(), Some(2));
}

#[test]
fn a_disk_is_cut_and_goes_on_and_may_fail() {
    if is_skipped("ext4") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let run = r#"n=$(cat data 2>/dev/null || echo 0)
while true; do n=$((n + 1)); echo $n >new; sync new; mv new data; sync .; echo $n >>"$WEIR_ACK"; done"#;
    let check = r#"n=$(tail -n 1 "$WEIR_ACKED"); [ -z "$n" ] || [ "$(cat data)" -ge "$n" ]"#;
    let cuts = ["--disk-size", "32M", "--cut-at", "ack:2", "--cuts", "3"];
    let (status, found) = test(directory.path(), "ext4", [run, check], &cuts);
    assert_eq!(status, Some(0), "{found}");
    assert!(found["cuts"] == 3 && found["at_end"] == 0 && found["acknowledged"] == 6, "{found}");
    let run = "echo a >f; sync f && echo 1 >>\"$WEIR_ACK\"";
    let fault = ["--disk-size", "32M", "--fault", "fsync:1", "--states", "20"];
    let (status, found) =
        test(directory.path(), "ext4", [run, "[ ! -s \"$WEIR_ACKED\" ] || [ -s f ]"], &fault);
    assert!(status == Some(0) && found["faults"][0] == "fsync of `disk`", "{found}");
    assert_eq!(found["acknowledged"], 0, "the kernel tells the program that the disk has failed");
}
