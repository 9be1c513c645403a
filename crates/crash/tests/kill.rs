//! `kill -9` on a real disk, a few rounds; the example `kill_loop` does as many as you like.

#![allow(clippy::print_stdout, reason = "counts belong in the log of a test run")]

#[path = "../examples/kill_loop/rounds.rs"]
mod rounds;

use std::path::Path;
use std::process::Command;

const PATH: &str = "WEIR_KILL_PATH";
const ROUND: &str = "WEIR_KILL_ROUND";

#[test]
fn what_was_acknowledged_survives_kill_9() {
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch directory");
    let program = std::env::current_exe().expect("this test");
    let totals = rounds::kill_rounds(scratch.path(), 5, 1, |path, round| {
        let mut command = Command::new(&program);
        command.args(["kill::the_process_to_be_killed", "--exact", "--ignored", "--nocapture"]);
        command.env(PATH, path).env(ROUND, round.to_string());
        command
    });
    let totals = totals.expect("prefix, and all that was acknowledged");
    println!("{totals:?}");
    assert!(totals.rounds == 5 && totals.requests > 0, "{totals:?}");
}

#[test]
#[ignore = "the other test starts it, and kills it"]
fn the_process_to_be_killed() {
    let variable = |name| std::env::var(name).expect("the other test says what to write");
    let round = variable(ROUND).parse().expect("a number");
    rounds::write_on(Path::new(&variable(PATH)), round).expect("it writes until it is killed");
}
