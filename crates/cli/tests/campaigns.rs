//! `weir crash campaign`: each campaign passes and replays byte for byte, its control fails, and what cannot be is refused.

use serde_json::Value;

use crate::support::{error_of, text, weir};

const NAMES: [&str; 11] = [
    "volume",
    "streams",
    "flash",
    "vst",
    "fs",
    "f2fs",
    "workload",
    "sqlite",
    "moment",
    "updates",
    "replicate",
];

/// What a campaign prints with `--json`, without what depends on the machine, and its exit code.
fn run(arguments: &str) -> (Value, Option<i32>) {
    let arguments: Vec<&str> =
        ["crash", "campaign"].into_iter().chain(arguments.split_whitespace()).collect();
    let output = weir(&arguments).arg("--json").output().unwrap();
    let mut document: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{arguments:?}: {error}: {}", error_of(&output)));
    for part in document["parts"].as_array_mut().into_iter().flatten() {
        part.as_object_mut().unwrap().remove("states_per_minute");
    }
    (document, output.status.code())
}

/// A short campaign of this name.
fn short(name: &str) -> String {
    let options = match name {
        "volume" | "streams" => "--states 1000",
        "replicate" | "moment" => "--states 300",
        "vst" => "--flush-every 100 --states 200",
        "flash" => "--mechanism in-order-recovery --states 1000",
        "fs" => "--ground volume --states 500 --outside 100",
        "sqlite" => "--sqlite-journal wal --mode order --ground volume --states 100",
        _ => "--ground volume --states 200",
    };
    format!("{name} --seed 7 {options}")
}

#[test]
fn every_campaign_passes_and_replays() {
    for name in NAMES {
        let (first, code) = run(&short(name));
        assert_eq!((code, &first["failures"]), (Some(0), &Value::from(0)), "{name}: {first:#}");
        assert!(first["states"].as_u64() >= Some(100), "{name}: {first:#}");
        assert_eq!(first["trace_hash"].as_str().map(str::len), Some(16));
        assert_eq!(run(&short(name)).0, first, "{name} does not replay");
        let other = short(name).replace("--seed 7", "--seed 8");
        assert_ne!(run(&other).0["trace_hash"], first["trace_hash"], "{name}: the seed does not count");
    }
}

#[test]
fn every_control_fails_and_its_failure_is_replayed_by_the_command_that_is_printed() {
    for name in NAMES {
        let (found, code) = run(&format!("{name} --control --seed 1 --states 20000"));
        assert_eq!((code, &found["failures"]), (Some(0), &Value::from(1)), "{name}: {found:#}");
        let replay = found["parts"][0]["replay"].as_str().unwrap().to_owned();
        let replay = replay.strip_prefix("weir crash campaign ").unwrap();
        let (again, code) = run(replay);
        assert_eq!((code, &again["failures"]), (Some(0), &Value::from(1)), "{replay}: {again:#}");
    }
}

/// Threads share nothing, so what they find does not depend on how they are scheduled. Runs of two campaigns take ten times as
/// long as others: they share the loop of all, and the storage and filesystems of `updates`.
#[test]
fn a_campaign_that_is_shared_by_threads_replays() {
    for name in NAMES.into_iter().filter(|name| !["moment", "f2fs"].contains(name)) {
        let shared = format!("{} --shards 2", short(name));
        let (first, code) = run(&shared);
        assert_eq!((code, &first["failures"]), (Some(0), &Value::from(0)), "{name}: {first:#}");
        assert_eq!(run(&shared).0, first, "{name} does not replay");
    }
}

#[test]
fn the_list_names_every_campaign() {
    let output = weir(&["crash", "campaign", "--list", "--json"]).output().unwrap();
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<&str> =
        list.as_array().unwrap().iter().filter_map(|entry| entry["name"].as_str()).collect();
    assert_eq!(names, NAMES);
    let printed = text(&weir(&["crash", "campaign", "--list"]).output().unwrap().stdout);
    let help = text(&weir(&["crash", "campaign", "--help"]).output().unwrap().stdout);
    for name in NAMES {
        assert!(printed.contains(name) && help.contains(name), "no {name} in {printed} or {help}");
    }
}

#[test]
fn an_engine_is_refused_on_a_ground_that_does_not_keep_what_it_needs() {
    let refused = [
        ("dual", "legacy", "needs barriers"),
        ("dual", "none", "needs barriers"),
        ("dual-list", "emmc", "needs barriers"),
        ("prefix", "adversary", "needs the order of receipt"),
        ("prefix", "in-order-recovery", "needs the order of receipt"),
        ("flush-ahead", "none", "needs packed writes"),
    ];
    for (engine, ground, words) in refused {
        let output =
            weir(&["crash", "campaign", "fs", "--engine", engine, "--ground", ground]).output().unwrap();
        let told = error_of(&output);
        assert_eq!(output.status.code(), Some(2), "{told}");
        for words in [engine, ground, words, "--engine jbd2"] {
            assert!(told.contains(words), "no {words:?} in {told}");
        }
    }
    let output = weir(&["crash", "campaign", "fs", "--ground", "bogus"]).output().unwrap();
    assert!(output.status.code() == Some(2) && error_of(&output).contains("order-preserving-recovery"));
}

/// The options of a part are those of its replay.
#[test]
fn a_replay_names_every_option_that_changes_a_run() {
    let given =
        "--engine jbd2 --journal data --ground legacy --flush-faults --discard --tear 512 --outside 0";
    let (all, _) = run(&format!("fs {given} --seed 8 --states 1"));
    let part = &all["parts"][0];
    let words = [("engine", "jbd2"), ("journal", "data"), ("ground", "legacy"), ("flush-faults", "yes")];
    for (name, value) in words.into_iter().chain([("discard", "yes")]) {
        assert_eq!(part[name], value, "{part:#}");
    }
    for (name, number) in [("tear", 512), ("outside", 0)] {
        assert_eq!(part[name].as_u64(), Some(number), "{part:#}");
    }
}

/// What does not fit together is a mistake in the command, and no state that is wrong.
#[test]
fn options_that_do_not_fit_are_refused_before_the_first_run() {
    let refused = [
        (
            "sqlite --prefix --ground legacy",
            "needs the order of receipt, which legacy does not keep: leave out --prefix",
        ),
        (
            "workload --ground legacy --engine dual",
            "needs barriers, which legacy does not keep: take --engine jbd2",
        ),
        ("volume --blocks 1", "a large volume takes 2048 to 4294967294 blocks: use so many, or 0"),
        ("volume --blocks 4294967295", "a large volume takes"),
        ("vst --flush-every 0", "0 is not in"),
        ("vst --trace-of src1_0", "possible values: hm_0, mds_0"),
        ("vst --trace trace.csv --trace-of hm_0", "cannot be used with"),
        ("vst --without-cuts much", "write a size such as"),
        ("vst --control --trace-of hm_0", "cannot be used with"),
        ("fs --ground volume --tear 512", "on volume cannot tear blocks"),
        ("fs --engine prefix --tear 512", "cannot tear blocks"),
        ("fs --engine optfs --coalition", "leave out --coalition"),
        ("volume --control --shares", "cannot be used with"),
        ("flash --control --mechanism plp", "cannot be used with"),
        ("vst --control --flush-every 9", "cannot be used with"),
        ("fs --control --tear 512", "cannot be used with"),
        ("workload --ground volume --control", "cannot be used with"),
        ("sqlite --extra --control", "cannot be used with"),
        ("updates --control --journal data", "cannot be used with"),
    ];
    for (line, words) in refused {
        let arguments: Vec<&str> = ["crash", "campaign"].into_iter().chain(line.split_whitespace()).collect();
        let output = weir(&arguments).output().unwrap();
        let told = error_of(&output);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{line}: {told}");
        assert!(told.contains(words), "{line}: no {words:?} in {told}");
    }
}

/// Without a named ground, a campaign runs on those that fit its options.
#[test]
fn the_options_choose_the_grounds() {
    let grounds = |line: &str| -> Vec<String> {
        let (document, code) = run(&format!("{line} --states 1"));
        assert_eq!(code, Some(0), "{document:#}");
        let parts = document["parts"].as_array().unwrap();
        parts.iter().map(|part| part["ground"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(grounds("fs --tear 512"), ["adversary"]);
    assert_eq!(grounds("fs --engine jbd2 --tear 512"), ["legacy"]);
    let keep_prefix = ["volume", "prefix", "order-preserving-recovery"];
    assert_eq!(grounds("sqlite --prefix --sqlite-journal wal --mode order"), keep_prefix);
}

/// What a person reads.
#[test]
fn a_campaign_says_how_it_ended() {
    let told = |line: &str| {
        let arguments: Vec<&str> = ["crash", "campaign"].into_iter().chain(line.split_whitespace()).collect();
        let output = weir(&arguments).output().unwrap();
        (text(&output.stdout), error_of(&output), output.status.code())
    };
    let (passed, ..) = told("volume --only 0");
    assert!(passed.ends_with(" of 1 run: all as promised\n"), "{passed}");
    let (control, failure, code) = told("volume --control");
    assert_eq!(code, Some(0), "{failure}");
    assert!(control.ends_with(": it fails, as a control must\n"), "{control}");
    let event = failure.split(" event ").nth(1).unwrap();
    assert!(!event.contains("power cut at event"), "the event is said twice: {failure}");
    let (.., failure, _) = told("flash --control");
    assert!(failure.contains("something of a later epoch is there"), "{failure}");
    // One failure, the smaller one.
    let (_, failure, _) = told("workload --control --only 0");
    let found = failure.lines().find_map(|line| line.strip_prefix("# Failure found by ")).unwrap();
    let last = failure.lines().find(|line| line.starts_with("workload: claims")).unwrap();
    assert!(last.ends_with(found), "{last:?} is not {found:?}");
}
