//! The command line of the example `fs_crash`: what cannot be is refused as that, and no failure is made of it.

#[path = "../examples/fs_crash/arguments.rs"]
#[allow(dead_code, reason = "the campaign itself is not run here")]
mod arguments;

use arguments::Arguments;

fn read(options: &str) -> Result<Arguments, clap::Error> {
    Arguments::read(["fs_crash"].into_iter().chain(options.split_whitespace()))
}

#[test]
fn an_engine_that_needs_barriers_is_refused_where_there_are_none() {
    for (engine, ground) in [("dual", "legacy"), ("dual", "none"), ("dual", "emmc"), ("dual-list", "legacy")]
    {
        let refused = read(&format!("--engine {engine} --ground {ground}")).unwrap_err().to_string();
        for words in [engine, ground, "needs barriers", "--engine jbd2"] {
            assert!(refused.contains(words), "no {words:?} in {refused}");
        }
        assert!(read(&format!("--engine jbd2 --ground {ground}")).is_ok());
    }
    for ground in ["legacy", "adversary", "in-order-recovery"] {
        let refused = read(&format!("--engine prefix --ground {ground}")).unwrap_err().to_string();
        for words in ["prefix", ground, "order of receipt", "--engine jbd2"] {
            assert!(refused.contains(words), "no {words:?} in {refused}");
        }
    }
    for ground in ["none", "in-order-recovery"] {
        let refused = read(&format!("--engine flush-ahead --ground {ground}")).unwrap_err().to_string();
        for words in ["flush-ahead", ground, "packed writes", "--engine jbd2"] {
            assert!(refused.contains(words), "no {words:?} in {refused}");
        }
    }
    assert_eq!(read("--engine flush-ahead").unwrap().grounds().len(), 5);
    assert_eq!(read("--engine prefix").unwrap().grounds().len(), 3);
    assert_eq!(read("").unwrap().grounds().len(), 7);
    assert!(read("--engine jbd2").unwrap().grounds().iter().any(|ground| ground.name() == "legacy"));
}

#[test]
fn an_unknown_ground_is_told_the_known_ones() {
    let refused = read("--ground bogus").unwrap_err().to_string();
    for name in ["bogus", "adversary", "legacy", "prefix", "volume", "plp", "in-order-recovery", "none"] {
        assert!(refused.contains(name), "no {name} in {refused}");
    }
}

#[test]
fn a_replay_is_a_command_with_every_option_that_matters() {
    let given = "--engine jbd2 --journal data --ground legacy --seed 8 --flush-faults --discard --tear 512 --outside 7";
    let arguments = read(given).unwrap();
    let replay = arguments.replay(arguments.grounds()[0], 98);
    let options = replay.strip_prefix("cargo run --release -p weir-crash --example fs_crash -- ").unwrap();
    let again = read(options).unwrap();
    assert_eq!(again.only, Some(98));
    assert_eq!(again.replay(again.grounds()[0], 98), replay);
    for option in given.split(" --").map(|option| option.trim_start_matches("--")) {
        assert!(options.contains(option), "no {option} in {options}");
    }
}
