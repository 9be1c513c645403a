//! Programs as they are, on a mount: git, cargo, tar, fio, SQLite's shell, MariaDB, and one that keeps small files. First unharmed, and what they made is
//! compared; then again and again with a server that is killed in the middle. After each kill e2fsck and the
//! kernel's rules of replay find nothing to mend, and what a program was promised is there.
//!
//! `WEIR_PROGRAM_ROUNDS` says how many times each is killed; 2 if it is not set. Where FUSE or a program is not to be
//! had, these tests say that they were skipped.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod mariadb;
mod replicated;
mod small_files;
mod sqlite;
mod trial;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::support::{runs, text};
use trial::{Trial, is_able, rounds, shell, synchronise};

/// The sources of this workspace: some hundred files to copy about.
fn tree() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

#[test]
fn git_keeps_what_it_has_committed() {
    if !is_able("git") {
        return;
    }
    let mut trial = Trial::new("git", "96M");
    let origin = trial.place.path().join("origin");
    let copy = format!("git init -q {0} && cp -r {1}/cli {1}/ext4 {0}", origin.display(), tree().display());
    runs(&mut shell(trial.place.path(), &copy));
    runs(&mut shell(&origin, "git add -A; git commit -qm all; git rm -q -r ext4; git commit -qm less"));
    trial.unharmed(|root| {
        let clone = format!("git clone -q file://{} copy; cd copy; git gc -q", origin.display());
        runs(&mut shell(root, &clone));
        let copy = root.join("copy");
        let look = "git fsck --full --strict 2>&1; git rev-parse HEAD 'HEAD~^{tree}'; git status --porcelain";
        assert_eq!(runs(&mut shell(&copy, look)), runs(&mut shell(&origin, look)));
        runs(&mut shell(root, &format!("diff -r -x .git copy {}", origin.display())));
        runs(&mut shell(&copy, "git config core.fsync all; git config core.fsyncMethod fsync"));
    });

    // Beside the mount: what the program was told.
    let told = trial.place.path().join("told");
    let commits = format!(
        "cd mounted/copy; for i in $(seq 100000); do echo $i >> numbers; echo $RANDOM > $((i % 17)); git add -A; \
         git commit -qm $i; git rev-parse HEAD >> {}; [ $((i % 8)) != 0 ] || git gc -q --prune=now; done",
        told.display()
    );
    for _ in 0..rounds() {
        let copy = trial.place.mountpoint().join("copy");
        File::create(&told).unwrap();
        trial.cut(Duration::from_millis(1200), shell(trial.place.path(), &commits));
        let told = fs::read_to_string(&told).unwrap();
        trial.acknowledged += told.lines().count() as u64;
        let mut told = told.lines().rev();
        let (last, before) = (told.next(), told.next());
        trial.unharmed(|_| {
            // What git asks its user to remove after a crash.
            let locks = "find .git '(' -name '*.lock' -o -name packed-refs.new -o -name gc.pid ')' -delete";
            runs(&mut shell(&copy, &format!("{locks}; git fsck --full --strict")));
            // All of a commit was synchronised before it returned, but the rename that makes it the newest: git
            // synchronises no directory. The next one's calls have that one in them.
            if let Some(last) = last {
                runs(&mut shell(&copy, &format!("git rev-list --objects {last}")));
            }
            if let Some(before) = before {
                runs(&mut shell(&copy, &format!("git merge-base --is-ancestor {before} HEAD")));
            }
            runs(&mut shell(&copy, "git reset -q --hard; git status --porcelain"));
        });
    }
    trial.end();
}

#[test]
fn cargo_builds_what_runs() {
    if !is_able(env!("CARGO")) {
        return;
    }
    let mut trial = Trial::new("cargo", "128M");
    let build = "export CARGO_TARGET_DIR=$PWD/target; unset RUSTFLAGS; cd project; $CARGO build -q --offline";
    let run = "target/debug/project";
    let command = |root: &Path, line: &str| {
        let mut command = shell(root, line);
        command.env("CARGO", env!("CARGO"));
        command
    };
    trial.unharmed(|root| {
        let source = root.join("project/src");
        fs::create_dir_all(&source).unwrap();
        fs::write(
            root.join("project/Cargo.toml"),
            "[package]\nname = 'project'\nedition = '2021'\n[workspace]\n",
        )
        .unwrap();
        fs::write(source.join("main.rs"), "mod part;\nfn main() { println!(\"{}\", part::sum(10)) }\n")
            .unwrap();
        fs::write(source.join("part.rs"), "pub fn sum(to: u64) -> u64 { (1..=to).sum() }\n").unwrap();
        runs(&mut command(root, build));
        assert_eq!(runs(&mut command(root, run)), "55\n");
        synchronise(root);
    });
    let sources = |root: &Path| runs(&mut shell(root, "sha256sum project/Cargo.toml project/src/*"));
    let before = trial.unharmed(sources);
    for _ in 0..rounds() {
        let again = format!("while true; do touch project/src/part.rs; ({build}); {run}; rm -r target; done");
        let mounted = trial.place.path().to_owned();
        trial.cut(Duration::from_millis(1200), command(&mounted, &format!("cd mounted; {again}")));
        trial.unharmed(|root| {
            assert_eq!(sources(root), before);
            // What cargo makes it does not synchronise: nothing was promised but that it can be read or removed.
            runs(&mut command(root, &format!("rm -rf target; ({build})")));
            assert_eq!(runs(&mut command(root, run)), "55\n");
        });
    }
    trial.end();
}

#[test]
fn tar_packs_and_unpacks_a_tree() {
    if !is_able("tar") {
        return;
    }
    let mut trial = Trial::new("tar", "96M");
    // Beside the mount, as the user may change the sources meanwhile.
    let sources = trial.place.path().join("sources");
    runs(Command::new("cp").arg("-r").arg(tree()).arg(&sources));
    let tree = sources;
    let unpack = |to: &str| format!("mkdir {to}; tar -C {} -cf - . | tar -C {to} -xf -", tree.display());
    trial.unharmed(|root| {
        runs(&mut shell(root, &unpack("first")));
        runs(&mut shell(root, &format!("diff -r --no-dereference first {}", tree.display())));
        runs(&mut shell(root, "tar -C first -cf packed.tar .; tar -C first --compare -f packed.tar"));
        synchronise(root);
    });
    for _ in 0..rounds() {
        let line = format!("cd mounted; {}; rm -r more", unpack("more"));
        let beside = trial.place.path().to_owned();
        trial.cut(Duration::from_millis(1000), shell(&beside, &format!("while true; do ({line}); done")));
        trial.unharmed(|root| {
            runs(&mut shell(root, &format!("diff -r --no-dereference first {}", tree.display())));
            runs(&mut shell(root, "tar -C first --compare -f packed.tar"));
            // What was not synchronised may be there or not, and each file that is there can be read.
            runs(&mut shell(root, "mkdir -p more; tar -C more -cf /dev/null .; rm -r more"));
        });
    }
    trial.end();
}

#[test]
fn fio_reads_what_it_wrote() {
    if !is_able("fio") {
        return;
    }
    let mut trial = Trial::new("fio", "128M");
    let fio = |root: &Path, more: &[&str]| {
        let mut command = Command::new("fio");
        // It leaves behind how far it came, beside the mount.
        let beside = format!("--aux-path={}", root.parent().unwrap().display());
        command.args(["--minimal", "--rw=randwrite", "--bs=4k", "--verify=crc32c", "--verify_fatal=1"]);
        command.arg(format!("--directory={}", root.display())).arg(beside).args(more);
        command
    };
    let engines = [
        ("psync", 0),
        ("psync", 1),
        ("libaio", 0),
        ("libaio", 1),
        ("io_uring", 0),
        ("io_uring", 1),
        ("mmap", 0),
    ];
    let job = |(engine, direct): (&str, u8)| {
        let depth = if engine.ends_with("ync") || engine == "mmap" { 1 } else { 16 };
        [
            format!("--ioengine={engine}"),
            format!("--direct={direct}"),
            format!("--iodepth={depth}"),
            format!("--name={engine}{direct}"),
        ]
    };
    trial.unharmed(|root| {
        for engine in engines {
            let job = job(engine);
            let job = [&job.each_ref().map(String::as_str)[..], &["--size=1M", "--end_fsync=1"]].concat();
            let told = fio(root, &job).output().unwrap();
            if text(&told.stderr).contains("engine") && !told.status.success() {
                eprintln!("without {engine:?}, which this fio or kernel has not: {}", text(&told.stderr));
                continue;
            }
            assert!(told.status.success(), "{engine:?}: {}{}", text(&told.stdout), text(&told.stderr));
        }
    });
    // What was made durable before; and each write that has returned, as fio remembers it, since those are durable
    // when they return.
    let kept = |root: &Path| {
        runs(&mut fio(root, &["--name=kept", "--size=4M", "--end_fsync=1", "--verify_only"]));
    };
    trial.unharmed(|root| {
        runs(&mut fio(root, &["--name=kept", "--size=4M", "--end_fsync=1", "--do_verify=0"]));
        synchronise(root);
    });
    for round in 0..rounds() {
        let file = format!("--name=cut{round}");
        let root = trial.place.mountpoint();
        let state = trial.place.path().join(format!("local-cut{round}-0-verify.state"));
        let direct = format!("--direct={}", round % 2);
        let write = [&file, "--size=12M", "--do_verify=0", "--ioengine=psync", "--sync=dsync", &direct];
        trial.cut(Duration::from_millis(800), fio(&root, &write));
        let is_there = state.exists();
        trial.acknowledged += u64::from(is_there);
        trial.unharmed(|root| {
            kept(root);
            if is_there {
                let look = [file.as_str(), "--size=12M", "--verify_only", "--verify_state_load=1"];
                runs(&mut fio(root, &look));
            }
            let _ = fs::remove_file(root.join(format!("cut{round}.0.0")));
        });
    }
    trial.end();
}
