//! `weir crash program`: the small programs of `examples/crash`, each with its one mistake found, explained and replayed, and the
//! right version of each without a failure; what it says of tests that cannot find anything; and SQLite.
//!
//! Where FUSE or Python are not to be had, this says that it was skipped.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::support::{error_of, is_there, mounts, text, weir_program};

/// Each small program, what its explanation has to say, and of what.
const MISTAKES: [(&str, &str, &str); 14] = [
    ("acknowledged_early", "`log` was never synchronised", "it was acknowledged by \"0\""),
    ("append_without_length", "to `log` is not there", "`log` was"),
    (
        "commit_mark_in_one_block",
        "the write of 1 byte at 3584 to `log` is there",
        "the write of 3000 bytes at 0 to `log`",
    ),
    (
        "commit_mark_in_one_sync",
        "the write of 1 byte at 0 to `log` is there",
        "the write of 4000 bytes at 4096 to `log`",
    ),
    ("directory_not_synced", "`create(a)` before it is not", "the directory `.` was never synchronised"),
    (
        "fsync_retried",
        "the write of 100 bytes at 0 to `log` is not there",
        "`log` was synchronised again after an `fsync` of it had failed",
    ),
    ("index_before_data", "nothing is missing", "right behind the write of 2 bytes at 0 to `index`"),
    ("journal_deleted_early", "`unlink(journal)` is there", "`table` was never synchronised"),
    ("old_directory_synced", "`unlink(new/1)` is there", "the directory `cur` was never synchronised"),
    ("overwrite_in_place", "of the write of 8192 bytes at 0 to `table`", "`table` was never synchronised"),
    ("parent_not_synced", "`mkdir(mail)` before it is not", "the directory `.` was never synchronised"),
    (
        "rename_without_sync",
        "`rename(tmp, data)` is there, the write of 6000 bytes at 0 to `tmp`",
        "`tmp` was never synchronised",
    ),
    (
        "truncate_then_write",
        "the write of 14 bytes at 0 to `config` is not there",
        "`config` was never synchronised",
    ),
    ("wrong_descriptor", "to `log.2` is not there", "`log.2` was never synchronised"),
];

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/crash").canonicalize().unwrap()
}

/// Runs the command in a directory of its own.
fn weir(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(weir_program());
    // The system's Python starts at once; one that is chosen by a script does not.
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("/usr/bin:{path}")).args(arguments).current_dir(directory).output().unwrap()
}

fn document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", error_of(output)))
}

fn is_skipped() -> bool {
    let is_skipped = !mounts() || !is_there("python3");
    if is_skipped {
        eprintln!("skipped: there is no FUSE, or no python3");
    }
    is_skipped
}

fn causes(document: &Value) -> String {
    let failures = document["failures"].as_array().unwrap().iter();
    failures.map(|failure| failure["causes"].to_string().replace("\\\"", "\"")).collect()
}

#[test]
fn each_mistake_is_found_and_explained_and_the_right_program_is_clean() {
    if is_skipped() {
        return;
    }
    for (name, first, second) in MISTAKES {
        let directory = tempfile::tempdir().unwrap();
        let file = examples().join(format!("mistakes/{name}.toml"));
        let file = file.to_str().unwrap();
        let wrong = weir(directory.path(), &["crash", "program", file, "--json", "--states", "30"]);
        assert_eq!(wrong.status.code(), Some(1), "{name}: {}", error_of(&wrong));
        let found = causes(&document(&wrong));
        assert!(found.contains(first) && found.contains(second), "{name}: {found}");
        let [run, check] =
            ["run", "check"].map(|what| format!("python3 -SEB $WEIR_HERE/{name}.py {what} right"));
        let more = ["--run", &run, "--check", &check, "--json", "--states", "30"];
        let right = weir(directory.path(), &[&["crash", "program", file], &more[..]].concat());
        assert_eq!(
            right.status.code(),
            Some(0),
            "{name}: {} {}",
            causes(&document(&right)),
            error_of(&right)
        );
        assert!(document(&right)["distinct"].as_u64().unwrap() > 3, "{name}");
    }
}

#[test]
fn a_failure_replays_from_its_trace_and_a_seed_gives_the_same_states() {
    if is_skipped() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = examples().join("mistakes/rename_without_sync.toml");
    let arguments = [
        "crash",
        "program",
        file.to_str().unwrap(),
        "--json",
        "--states",
        "30",
        "--junit",
        "junit.xml",
        "--html",
        "page.html",
    ];
    let found = document(&weir(directory.path(), &arguments));
    let junit = fs::read_to_string(directory.path().join("junit.xml")).unwrap();
    assert!(junit.contains("<failure message=") && junit.contains("failures=\"1\""), "{junit}");
    let page = fs::read_to_string(directory.path().join("page.html")).unwrap();
    let is_row = |words: &str, fate: &str| {
        page.split("<tr").any(|row| row.contains(words) && row.contains(&format!("<td>{fate}</td>")))
    };
    // Its size is there, and its data is not.
    assert!(is_row("the write of 6000 bytes at 0 to tmp", "partly"), "{page}");
    assert!(is_row("rename(tmp, data)", "durable") && page.contains("The power is cut."), "{page}");
    let replay =
        found["failures"][0]["replay"].as_str().unwrap().strip_prefix("weir ").unwrap().replace('\'', "");
    let replay: Vec<&str> = replay.split_whitespace().collect();
    let again = weir(directory.path(), &[&replay[..], &["--json"]].concat());
    assert_eq!(again.status.code(), Some(1), "{}", error_of(&again));
    for key in ["state", "ending", "output", "missing", "causes"] {
        assert_eq!(document(&again)[key], found["failures"][0][key], "{key}");
    }
    // All states of the trace, twice, and with another check.
    let all = |more: &[&str]| {
        let output =
            weir(directory.path(), &[&["crash", "replay", "weir-crash.trace", "--json"], more].concat());
        let document = document(&output);
        (output.status.code(), ["states", "distinct", "failing"].map(|key| document[key].clone()))
    };
    assert_eq!(all(&["--states", "30"]), all(&["--states", "30"]));
    assert_eq!(all(&["--states", "30", "--check", "true"]).0, Some(0));
    // Under the promises of ext4 the data comes before the new name, so the mistake is none.
    assert_eq!(all(&["--states", "30", "--promises", "ext4-ordered"]).0, Some(0));
    let written = weir(directory.path(), &[&replay[..], &["--write", "state"]].concat());
    assert_eq!(written.status.code(), Some(0), "{}", error_of(&written));
    assert!(directory.path().join("state/data").exists());
    fs::write(directory.path().join("weir-crash.trace"), "no trace").unwrap();
    let refused = weir(directory.path(), &["crash", "replay", "weir-crash.trace"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(error_of(&refused).contains("it is no trace"), "{}", error_of(&refused));
    let kept = weir(directory.path(), &arguments);
    assert!(error_of(&kept).contains("weir-crash.trace"), "a file that is no trace is not overwritten");
}

#[test]
fn a_trace_replays_where_its_directory_is_not_there() {
    if !mounts() {
        eprintln!("skipped: there is no FUSE");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (old, new) = (directory.path().join("old"), directory.path().join("new"));
    fs::create_dir(&old).unwrap();
    fs::write(old.join("check.sh"), "test ! -s $WEIR_ACKED -o -s f\n").unwrap();
    let run = "echo a >f; echo done >>\"$WEIR_ACK\"";
    let check = "sh \"$WEIR_HERE\"/check.sh";
    let test = ["crash", "program", "--run", run, "--check", check, "--check-limit", "50", "--json"];
    let found = document(&weir(&old, &test));
    let replay = found["failures"][0]["replay"].as_str().unwrap().replace('\'', "");
    assert!(replay.contains(" --check-limit 50 "), "{replay}");
    let replay: Vec<&str> = replay.split_whitespace().skip(1).collect();
    fs::rename(&old, &new).unwrap();
    let again = weir(&new, &replay);
    assert_eq!(again.status.code(), Some(1), "{}", error_of(&again));
    assert!(error_of(&again).contains("is not there: WEIR_HERE is"), "{}", error_of(&again));
    // Without the script, nothing is said of the state.
    fs::remove_file(new.join("check.sh")).unwrap();
    assert_eq!(weir(&new, &replay).status.code(), Some(2));
    let endless = weir(&new, &["crash", "replay", "/dev/zero"]);
    assert!(endless.status.code() == Some(2) && error_of(&endless).contains("it is no trace"));
}

/// Says whether a state is what another directory holds, once the program has ended.
const SAME: &str = r#"[ -s "$WEIR_ACKED" ] || exit 0
list() { find . -printf '%P %m %n %y %l\n' | sort; }
list >"$WEIR_ACKED.here"; (cd "$OTHER" && list) | diff "$WEIR_ACKED.here" - && diff -r --no-dereference . "$OTHER""#;

/// The record of a run without a cut is what another filesystem has after the same calls, a thousand random ones.
#[test]
fn what_is_recorded_is_what_was_done() {
    if is_skipped() {
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/recorded_calls.py");
    for seed in 1..4 {
        let directory = tempfile::tempdir().unwrap();
        let other = directory.path().join("other");
        fs::DirBuilder::new().mode(0o755).create(&other).unwrap();
        let run = format!("python3 -SEB {} {seed} {} 1000", script.display(), other.display());
        let check = format!("OTHER={}; {SAME}", other.display());
        let arguments = [
            "crash", "program", "--run", &run, "--check", &check, "--states", "1", "--json", "--trace",
            "kept",
        ];
        let output = weir(directory.path(), &arguments);
        // What the run has left is checked before any power cut; the state behind that may be wrong.
        assert_ne!(output.status.code(), Some(2), "{seed}: {}", error_of(&output));
        let document = document(&output);
        assert!(document["calls"].as_u64().unwrap() > 300 && document["distinct"] == 1, "{document}");
        // The control: another file is found.
        fs::write(other.join("more"), "").unwrap();
        let wrong = weir(directory.path(), &["crash", "replay", "kept", "--check", &check]);
        assert!(error_of(&wrong).contains("fails before any power cut"), "{}", error_of(&wrong));
    }
}

#[test]
fn a_test_that_cannot_find_anything_is_told() {
    if !mounts() {
        eprintln!("skipped: there is no FUSE");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let told = |arguments: &[&str]| {
        let output = weir(directory.path(), &[&["crash", "program"], arguments].concat());
        (output.status.code(), text(&output.stdout) + &error_of(&output))
    };
    let ack = "echo a >f; \"$WEIR_PROGRAM\" crash ack done";
    let ack = ack.replace("$WEIR_PROGRAM", weir_program());
    for (arguments, code, words) in [
        (vec!["--run", "true", "--check", "true"], 2, "changed nothing"),
        (vec!["--run", "echo a >f", "--check", "echo no; false"], 2, "fails before any power cut"),
        (vec!["--run", "exit 7", "--check", "true"], 2, "--run failed: exit status 7"),
        (vec!["--run", "sleep 100", "--check", "true", "--run-limit", "1"], 2, "not within 1 s"),
        (vec!["--run", "echo a >f", "--record-bytes", "1", "--check", "true"], 2, "more than 1 bytes"),
        (vec!["--run", "echo a >f", "--check", "true"], 0, "the check accepts an empty directory"),
        (vec!["--run", "echo a >f", "--check", "true"], 0, "never synchronised anything"),
        (vec!["--run", &ack, "--check", "test ! -s $WEIR_ACKED -o -s f"], 1, "acknowledged by \"done\""),
        (
            vec![
                "--run",
                "echo a >f; echo id 17 ok",
                "--ack-pattern",
                "id ([0-9]+)",
                "--check",
                "test ! -s $WEIR_ACKED -o -s f",
            ],
            1,
            "acknowledged by \"17\"",
        ),
        (vec!["--run", "echo a >f", "--check", "true", "--time", "0"], 2, "no state was checked"),
        (vec!["--run", "echo a >f", "--check", "true", "--states", "0"], 2, "no state was checked"),
        (vec!["--check", "true"], 2, "--run and --check"),
        (vec!["none.toml"], 2, "none.toml"),
    ] {
        let (status, text) = told(&arguments);
        assert!(status == Some(code) && text.contains(words), "{arguments:?}: {status:?}: {text}");
    }
    // The command that runs interrupts the test.
    let (_, words) = told(&["--run", "kill -INT $PPID; sleep 1000", "--check", "true", "--scratch", "."]);
    assert!(words.contains("ended by a signal"), "{words}");
    // The sixth check interrupts the command, which ends it: it is no failure.
    let check =
        "echo >>\"$WEIR_HERE\"/n; test $(wc -l <\"$WEIR_HERE\"/n) -lt 6 && exit; kill -INT $PPID; sleep 50";
    let run = "echo a >f; echo b >g; echo c >h";
    let (status, words) = told(&["--run", run, "--check", check, "--jobs", "1"]);
    assert!(
        status == Some(2) && words.contains("interrupted: nothing was found so far"),
        "{status:?}: {words}"
    );
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(directory.path().to_str().unwrap()), "{mounts}");
    fs::write(directory.path().join("a.toml"), "run = 'true'\ncheck = 'true'\nchek = 'x'\n").unwrap();
    let (status, text) = told(&["a.toml"]);
    assert!(status == Some(2) && text.contains("chek"), "{text}");
}

#[test]
fn what_a_run_leaves_running_keeps_nothing() {
    if !mounts() || !is_there("setsid") {
        eprintln!("skipped: there is no FUSE, or no setsid");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    // Each keeps a file, the output, or both, and one has forgotten its environment.
    for (command, words) in [
        ("setsid sleep 600 >kept 2>&1 &", "left running was ended: "),
        ("setsid sh -c 'sleep 600; echo' & setsid sleep 600 >kept &", "left running was ended: "),
        ("setsid env -i sleep 600 >kept 2>&1 &", "keeps files of the mount open"),
    ] {
        for pattern in [&[][..], &["--ack-pattern", "never"]] {
            let run = format!("echo a >f; {command} sleep 0.3");
            let test = ["crash", "program", "--states", "3", "--run", &run, "--check", "true"];
            let output = weir(directory.path(), &[&test, pattern].concat());
            assert_eq!(output.status.code(), Some(0), "{command}: {}", error_of(&output));
            assert!(error_of(&output).contains(words), "{command}: {}", error_of(&output));
        }
    }
}

#[test]
fn faults_strike_calls_of_the_run() {
    if is_skipped() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = "import os, sys\nf = os.open('log', os.O_RDWR | os.O_CREAT)\ntry:\n    print('wrote', os.write(f, b'r' * 3000))\n    \
                   os.fsync(f)\n    os.posix_fadvise(f, 0, 0, os.POSIX_FADV_DONTNEED)\n    os.pread(f, 10, 0)\nexcept OSError as error:\n    \
                   print(error.strerror)\n    sys.exit(3)\n";
    fs::write(directory.path().join("program.py"), program).unwrap();
    let run = "python3 -SE \"$WEIR_HERE\"/program.py >\"$WEIR_HERE\"/printed";
    for (fault, printed, met, words) in [
        (
            "fsync:1:log",
            "wrote 3000\nInput/output error\n",
            "fsync of `log`",
            "failed after a fault: exit status 3",
        ),
        ("write:1", "Input/output error\n", "write of `log`", "exit status 3"),
        ("short-write:1+", "wrote 1500\n", "short-write of `log`", ""),
        ("space:1000", "wrote 1000\n", "space at a write to `log`", ""),
        ("read:1", "wrote 3000\nInput/output error\n", "read of `log`", "exit status 3"),
        ("fsync:2", "wrote 3000\n", "", "met no such call, so no fault: fsync:2"),
    ] {
        let test = ["crash", "program", "--run", run, "--check", "true", "--fault", fault, "--json"];
        let output = weir(directory.path(), &test);
        assert_eq!(output.status.code(), Some(0), "{fault}: {}", error_of(&output));
        let found = document(&output)["faults"].to_string();
        assert!(
            error_of(&output).contains(words) && found.contains(met),
            "{fault}: {found} {}",
            error_of(&output)
        );
        assert_eq!(fs::read_to_string(directory.path().join("printed")).unwrap(), printed, "{fault}");
    }
    // In a file as a table, whose mistakes are told.
    let file = |fault: &str| {
        let text = format!("run = 'echo a >f; sync f'\ncheck = 'true'\n{fault}");
        fs::write(directory.path().join("a.toml"), text).unwrap();
        weir(directory.path(), &["crash", "program", "a.toml"])
    };
    let struck = file("[[fault]]\ncall = 'fsync'\nnth = 1\nlasts = true\npath = '*'\n");
    assert!(text(&struck.stdout).contains("faults: fsync of `f`"), "{}", error_of(&struck));
    for wrong in ["fault = ['fsink']", "[[fault]]\ncall = 'space'\n", "[[fault]]\nnth = 1\n"] {
        assert_eq!(file(wrong).status.code(), Some(2), "{wrong}");
    }
}

#[test]
fn a_slow_synchronisation_finds_a_program_that_does_not_wait_for_it() {
    if !mounts() {
        eprintln!("skipped: there is no FUSE");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    // The line comes in time, mostly, but from a process that does not know whether it does.
    let run = "echo a >f; (sleep 0.5; echo 1 >>\"$WEIR_ACK\") & sync f; wait";
    let check = "[ ! -s \"$WEIR_ACKED\" ] || [ -s f ] || { echo early; exit 1; }";
    let program = ["crash", "program", "--run", run, "--check", check, "--promises", "ext4-ordered"];
    let right = weir(directory.path(), &program);
    assert_eq!(right.status.code(), Some(0), "{} {}", text(&right.stdout), error_of(&right));
    let slow = weir(directory.path(), &[&program[..], &["--fault", "slow-fsync=2000:1"]].concat());
    let printed = text(&slow.stdout);
    assert_eq!(slow.status.code(), Some(1), "{printed} {}", error_of(&slow));
    assert!(printed.contains("early") && printed.contains("faults: slow-fsync of `f`"), "{printed}");
}

/// Counts on from what is there, forever.
const COUNTER: &str = r#"n=$(cat data 2>/dev/null || echo 0)
while true; do
    n=$((n + 1)); echo $n >new; SYNC; mv new data; sync .; echo $n >>"$WEIR_ACK"
done"#;

#[test]
fn a_machine_that_crashes_comes_back_with_what_was_acknowledged() {
    if !mounts() {
        eprintln!("skipped: there is no FUSE");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let check = "test \"$(cat data 2>&1)\" -ge $(tail -n 1 \"$WEIR_ACKED\" | grep . || echo 0) || test ! -s \"$WEIR_ACKED\"";
    let cut = |sync: &str, at: &str, cuts: &str| {
        let run = COUNTER.replace("SYNC", sync);
        let test =
            ["crash", "program", "--run", &run, "--check", check, "--cut-at", at, "--cuts", cuts, "--json"];
        weir(directory.path(), &test)
    };
    for at in ["fsync", "before-rename:3", "ack:2", "before-fsync:4:."] {
        let output = cut("sync new", at, "5");
        assert_eq!(output.status.code(), Some(0), "{at}: {} {}", text(&output.stdout), error_of(&output));
        let found = document(&output);
        assert!(found["cuts"] == 5 && found["at_end"] == 0, "{at}: {found}");
        if at == "ack:2" {
            // Lines go on where the round before has ended.
            assert_eq!(found["acknowledged"], 10, "{found}");
        }
    }
    // Without the sync, the name is there without the data after some cut; the record of that round replays.
    let output = cut("true", "fsync", "60");
    assert_eq!(output.status.code(), Some(1), "{} {}", text(&output.stdout), error_of(&output));
    let found = document(&output);
    assert!(causes(&found).contains("`new` was never synchronised"), "{found}");
    let replay = found["failures"][0]["replay"].as_str().unwrap().replace('\'', "");
    let again = weir(directory.path(), &replay.split_whitespace().skip(1).collect::<Vec<_>>());
    assert_eq!(again.status.code(), Some(1), "{}", error_of(&again));
    assert_eq!(document(&cut("true", "fsync", "60"))["cuts"], found["cuts"], "a seed gives the same cuts");
}

#[test]
fn a_signal_cuts_the_power() {
    if !mounts() {
        eprintln!("skipped: there is no FUSE");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let run = "echo a >f; sync f; kill -USR1 $PPID; sleep 1000";
    let test = ["crash", "program", "--cuts", "1", "--run", run, "--check", "true"];
    let output = weir(directory.path(), &test);
    let printed = text(&output.stdout);
    assert!(printed.contains("the power was cut 1 time, "), "{printed} {}", error_of(&output));
}

#[test]
fn a_hangup_unmounts_and_reports_are_tried_before_the_run() {
    if !mounts() {
        eprintln!("skipped: there is no FUSE");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let run = "kill -HUP $PPID; sleep 1000";
    let test = ["crash", "program", "--run", run, "--check", "true", "--scratch", "."];
    let ended = weir(directory.path(), &test);
    assert!(error_of(&ended).contains("ended by a signal"), "{}", error_of(&ended));
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(directory.path().to_str().unwrap()), "{mounts}");
    fs::write(directory.path().join("other"), "something else").unwrap();
    for junit in ["none/junit.xml", "other"] {
        let test = ["crash", "program", "--run", "touch \"$WEIR_HERE\"/ran", "--check", "true"];
        let output = weir(directory.path(), &[&test[..], &["--junit", junit]].concat());
        assert_eq!(output.status.code(), Some(2), "{junit}: {}", error_of(&output));
        assert!(error_of(&output).contains(junit) && !directory.path().join("ran").exists(), "{junit}");
    }
}

#[test]
fn a_bare_file_name_has_its_directory_as_weir_here() {
    if !mounts() {
        eprintln!("skipped: there is no FUSE");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let test = "run = 'cp \"$WEIR_HERE\"/source f'\ncheck = 'test -e \"$WEIR_HERE\"/source'\n";
    fs::write(directory.path().join("a.toml"), test).unwrap();
    fs::write(directory.path().join("source"), "content").unwrap();
    for file in ["a.toml", "./a.toml", directory.path().join("a.toml").to_str().unwrap()] {
        let output = weir(directory.path(), &["crash", "program", file]);
        assert_eq!(output.status.code(), Some(0), "{file}: {}", error_of(&output));
    }
}

/// Runs the test of a program with other options: whether no failure was found, of at most so many states.
fn is_clean(file: &str, options: &[&str], states: &str) -> bool {
    let directory = tempfile::tempdir().unwrap();
    let file = examples().join(file);
    let all =
        [&["crash", "program", file.to_str().unwrap()], options, &["--json", "--states", states]].concat();
    let output = weir(directory.path(), &all);
    let document = document(&output);
    assert!(document["acknowledged"].as_u64().unwrap() > 2, "{document}");
    assert_eq!(document["failing"] == 0, output.status.code() == Some(0), "{document}");
    output.status.success()
}

#[test]
fn sqlite_is_safe_where_it_says_so() {
    if !mounts() || !is_there("sqlite3") {
        eprintln!("skipped: there is no FUSE, or no sqlite3");
        return;
    }
    for (mode, is_safe) in
        [("delete extra", true), ("wal full", true), ("delete off", false), ("wal off", false)]
    {
        let run = format!("\"$WEIR_HERE\"/sqlite.sh run {mode}");
        assert_eq!(is_clean("sqlite.toml", &["--run", &run], "200"), is_safe, "{mode}");
    }
}

#[test]
fn git_is_whole_only_with_its_syncs() {
    if !mounts() || !is_there("git") {
        eprintln!("skipped: there is no FUSE, or no git");
        return;
    }
    assert!(is_clean("git.toml", &[], "80"));
    assert!(!is_clean("git.toml", &["--setup", "\"$WEIR_HERE\"/git.sh setup default"], "80"));
    // The directory of the branch's name is not synchronised.
    assert!(!is_clean("git.toml", &["--check", "\"$WEIR_HERE\"/git.sh check durable"], "200"));
}
