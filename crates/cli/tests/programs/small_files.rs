//! A tree of small files that a program replaces and removes, each time with all that POSIX asks for: the file is
//! synchronised, renamed, and its directory is synchronised.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use super::trial::{Trial, is_able, rounds, shell};
use crate::support::text;

/// Says on a line of its own what is durable: the version, and the file that has it, or a dash if it was removed.
const PROGRAM: &str = r#"
import os, random, sys
told, version = open(sys.argv[2], "a", buffering=1), int(sys.argv[1])
while True:
    version += 1
    file = random.randrange(int(sys.argv[3]))
    directory = f"mounted/tree/{file % 3}/{file % 7}"
    os.makedirs(directory, exist_ok=True)
    path = f"{directory}/{file}"
    removes = version % 6 == 0 and os.path.exists(path)
    if removes:
        os.unlink(path)
    else:
        descriptor = os.open("mounted/new", os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
        os.write(descriptor, f"{version} ".encode() * (1 + version % 700))
        os.fsync(descriptor)
        os.close(descriptor)
        os.rename("mounted/new", path)
    descriptor = os.open(directory, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    told.write(f"{version} {file} {'-' if removes else path}\n")
"#;

const FILES: u64 = 150;

/// The version of a file, which is whole; none if it is not there.
fn version_of(root: &Path, file: u64) -> Option<u64> {
    let path = root.join(format!("tree/{}/{}/{file}", file % 3, file % 7));
    let content = text(&fs::read(&path).ok()?);
    let version: u64 = content.split(' ').next().unwrap().parse().unwrap();
    let whole = format!("{version} ").repeat(1 + version as usize % 700);
    assert_eq!(content, whole, "{} is not whole", path.display());
    Some(version)
}

#[test]
fn small_files_are_as_they_were_synchronised() {
    if !is_able("python3") {
        return;
    }
    let mut trial = Trial::new("small files", "96M");
    let beside = trial.place.path().to_owned();
    fs::write(beside.join("program.py"), PROGRAM).unwrap();
    fs::write(beside.join("told"), "").unwrap();
    // What each file has been found to hold.
    let mut state: BTreeMap<u64, u64> = BTreeMap::new();
    let mut version = 0;
    for round in 0..rounds() {
        fs::write(beside.join("told"), "").unwrap();
        trial.cut(
            Duration::from_millis(800),
            shell(&beside, &format!("python3 program.py {version} told {FILES}")),
        );
        let told = fs::read_to_string(beside.join("told")).unwrap();
        for line in told.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let file = words[1].parse().unwrap();
            version = words[0].parse().unwrap();
            match words[2] {
                "-" => state.remove(&file),
                _ => state.insert(file, version),
            };
        }
        trial.acknowledged += told.lines().count() as u64;
        // The call that the kill has met is done or not.
        version += 1;
        let found: BTreeMap<u64, u64> = trial
            .unharmed(|root| (0..FILES).filter_map(|file| Some((file, version_of(root, file)?))).collect());
        let differs = |file: &u64| found.get(file) != state.get(file);
        let others: Vec<u64> = (0..FILES).filter(differs).collect();
        let is_last = |file: &u64| found.get(file).is_none_or(|found| *found == version);
        assert!(
            others.len() <= 1 && others.iter().all(is_last),
            "round {round}: files {others:?} have other versions than were acknowledged: {state:?}, found {found:?}"
        );
        state = found;
    }
    trial.end();
}
