//! Programs as they are, on a mount: git, cargo, tar, fio and SQLite's shell. First unharmed, and what they made is
//! compared; then again and again with a server that is killed in the middle. After each kill e2fsck and the
//! kernel's rules of replay find nothing to mend, and what a program was promised is there.
//!
//! `WEIR_PROGRAM_ROUNDS` says how many times each is killed; 2 if it is not set. Where FUSE or a program is not to be
//! had, these tests say that they were skipped.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;
use rustix::fs::{XattrFlags, setxattr};
use rustix::process::{Pid, Signal, kill_process_group};
use support::{Place, e2fsck_judges, mounts, runs, text, wait_until, works};

/// How long a program may go on after its mount has died.
const GIVES_UP: Duration = Duration::from_secs(3);

/// How many times the server is killed under each program.
fn rounds() -> u64 {
    std::env::var("WEIR_PROGRAM_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(2)
}

/// Whether this machine mounts and has the program; says so if not.
fn is_able(program: &str, asked: &str) -> bool {
    let is_there = Command::new(program).arg(asked).output().is_ok_and(|output| output.status.success());
    if !is_there {
        eprintln!("skipped: this takes {program}");
    }
    mounts() && is_there
}

/// A line of the shell, in a directory; it ends at the first command that fails.
fn shell(directory: &Path, line: &str) -> Command {
    let mut command = Command::new("bash");
    command.args(["-ec", line]).current_dir(directory);
    // Who runs the tests has settings of their own.
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    for who in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{who}_NAME"), "a").env(format!("GIT_{who}_EMAIL"), "a@localhost");
    }
    command
}

/// The sources of this workspace: some hundred files to copy about.
fn tree() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Makes everything on a mount durable.
fn synchronise(root: &Path) {
    setxattr(root, "user.weir.status", b"sync", XattrFlags::empty()).unwrap();
}

/// A volume whose server is killed now and then.
struct Trial {
    place: Place,
    random: Pcg64,
    name: &'static str,
    /// Programs that were still running when their server was killed.
    cut: u64,
    /// Commits, or whole runs, of which they were told by then what is durable.
    acknowledged: u64,
    /// How it is mounted while it is cut.
    options: &'static [&'static str],
}

impl Trial {
    fn new(name: &'static str, size: &str) -> Trial {
        let seed = name.bytes().fold(0, |seed, byte| seed << 8 ^ u64::from(byte));
        Trial {
            place: Place::with_volume(size),
            random: Pcg64::seed_from_u64(seed),
            name,
            cut: 0,
            acknowledged: 0,
            options: &[],
        }
    }

    /// Mounts it for `work`, which nothing disturbs.
    fn unharmed<T>(&self, work: impl FnOnce(&Path) -> T) -> T {
        let root = self.place.mount(&[]);
        let done = work(&root);
        works(&["umount", root.to_str().unwrap()]);
        done
    }

    /// Starts a program on it, and kills the server within `most` of that.
    fn cut(&mut self, most: Duration, mut program: Command) {
        let mut server = self.place.serve_as(self.options);
        let said = self.place.path().join("said");
        let output = File::create(&said).unwrap();
        program.stdout(output.try_clone().unwrap()).stderr(output);
        let mut running = program.process_group(0).spawn().unwrap();
        std::thread::sleep(most.mul_f64(self.random.random()));
        match running.try_wait().unwrap() {
            None => self.cut += 1,
            Some(ended) => assert!(ended.success(), "{}: {}", self.name, fs::read_to_string(&said).unwrap()),
        }
        server.kill();
        self.ended(&mut running);
        e2fsck_judges(&self.place);
    }

    /// Gives a program time to meet the dead mount, and takes that away. It is killed if it does not give up: git reads a
    /// directory again for as long as that fails.
    fn ended(&self, running: &mut Child) {
        let began = Instant::now();
        while running.try_wait().unwrap().is_none() && began.elapsed() < GIVES_UP {
            std::thread::sleep(Duration::from_millis(20));
        }
        // Its children too, if there are any left.
        let _ = kill_process_group(Pid::from_child(running), Signal::KILL);
        running.wait().unwrap();
        let unmount = || Command::new("umount").arg(self.place.mountpoint()).output().unwrap();
        wait_until("nobody uses the dead mount", || unmount().status.success());
    }

    /// Some were cut, or nothing was tried.
    fn end(&self) {
        let (cut, acknowledged) = (self.cut, self.acknowledged);
        eprintln!("{}: cut {cut} times of {}, {acknowledged} acknowledged", self.name, rounds());
        assert!(self.cut > 0, "{}: no program was running when its server was killed", self.name);
    }
}

#[test]
fn git_keeps_what_it_has_committed() {
    if !is_able("git", "--version") {
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
    if !is_able(env!("CARGO"), "--version") {
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
    if !is_able("tar", "--version") {
        return;
    }
    let mut trial = Trial::new("tar", "96M");
    // Beside the mount, as who runs the tests may change the sources meanwhile.
    let sources = trial.place.path().join("sources");
    runs(Command::new("cp").arg("-r").arg(tree()).arg(&sources));
    let tree = sources;
    let unpack = |to: &str| format!("mkdir {to}; tar -C {} -cf - . | tar -C {to} -xf -", tree.display());
    trial.unharmed(|root| {
        runs(&mut shell(root, &unpack("first")));
        runs(&mut shell(root, &format!("diff -r first {}", tree.display())));
        runs(&mut shell(root, "tar -C first -cf packed.tar .; tar -C first --compare -f packed.tar"));
        synchronise(root);
    });
    for _ in 0..rounds() {
        let line = format!("cd mounted; {}; rm -r more", unpack("more"));
        let beside = trial.place.path().to_owned();
        trial.cut(Duration::from_millis(1000), shell(&beside, &format!("while true; do ({line}); done")));
        trial.unharmed(|root| {
            runs(&mut shell(root, &format!("diff -r first {}", tree.display())));
            runs(&mut shell(root, "tar -C first --compare -f packed.tar"));
            // What was not synchronised may be there or not, and each file that is there can be read.
            runs(&mut shell(root, "mkdir -p more; tar -C more -cf /dev/null .; rm -r more"));
        });
    }
    trial.end();
}

#[test]
fn fio_reads_what_it_wrote() {
    if !is_able("fio", "--version") {
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

/// Journal modes of SQLite in which a COMMIT that returned is durable: with the shell as it is, without the extension.
/// DELETE is none: its commit is an unlink, and where the directory cannot be opened any more to synchronise that,
/// SQLite goes on as if it had been.
const JOURNALS: [&str; 3] = [
    "PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=20; PRAGMA synchronous=FULL;",
    "PRAGMA journal_mode=PERSIST; PRAGMA synchronous=FULL;",
    "PRAGMA journal_mode=TRUNCATE; PRAGMA synchronous=FULL;",
];

/// Makes a database with an empty table.
fn make(root: &Path, name: &str, journal: &str) {
    runs(&mut shell(root, &format!("sqlite3 {name} '{journal} CREATE TABLE t(writer, a, b)'")));
}

/// What starts two writers of a database, in the directory above the mount. Each says on a line of its own what is
/// committed.
fn writers(beside: &Path, name: &str, journal: &str, count: u64) -> Command {
    for writer in [1, 2] {
        let mut script = format!(".bail on\n.timeout 20000\n{journal}\n");
        for a in 1..=count {
            script += &format!("INSERT INTO t VALUES({writer}, {a}, randomblob(700));\nSELECT 'done {a}';\n");
        }
        fs::write(beside.join(format!("script{writer}")), script).unwrap();
        File::create(beside.join(format!("told{writer}"))).unwrap();
    }
    let line = format!(
        "cd mounted; sqlite3 {name} < ../script1 > ../told1 2>&1 & one=$!; \
         sqlite3 {name} < ../script2 > ../told2 2>&1; wait $one"
    );
    shell(beside, &line)
}

/// How many transactions each writer was told are committed.
fn told(beside: &Path) -> [u64; 2] {
    [1, 2].map(|writer| {
        let told = text(&fs::read(beside.join(format!("told{writer}"))).unwrap());
        told.lines().filter_map(|line| line.strip_prefix("done ")?.parse().ok()).max().unwrap_or(0)
    })
}

/// How many rows of each writer are there, in a database that is not damaged: all from the first to the last.
fn found(root: &Path, name: &str) -> [u64; 2] {
    [1, 2].map(|writer| {
        let ask = format!(
            "sqlite3 {name} 'PRAGMA integrity_check; SELECT count(*), coalesce(max(a), 0), count(DISTINCT a) FROM t \
             WHERE writer = {writer}'"
        );
        let told = runs(&mut shell(root, &ask));
        let (sound, rows) = told.trim_end().split_once('\n').unwrap();
        let rows: Vec<u64> = rows.split('|').map(|number| number.parse().unwrap()).collect();
        assert_eq!((sound, rows[0], rows[0]), ("ok", rows[1], rows[2]), "{name}, writer {writer}");
        rows[0]
    })
}

/// Kills the server under two writers: what each was told, and what is found.
fn cut_writers(trial: &mut Trial, journal: &str) -> ([u64; 2], [u64; 2]) {
    trial.unharmed(|root| {
        for end in ["", "-wal", "-shm", "-journal"] {
            let _ = fs::remove_file(root.join(format!("cut{end}")));
        }
        make(root, "cut", journal);
        synchronise(root);
    });
    let beside = trial.place.path().to_owned();
    trial.cut(Duration::from_millis(800), writers(&beside, "cut", journal, 3000));
    let told = told(&beside);
    trial.acknowledged += told.iter().sum::<u64>();
    (told, trial.unharmed(|root| found(root, "cut")))
}

#[test]
fn two_shells_of_sqlite_share_a_database() {
    if !is_able("sqlite3", "--version") {
        return;
    }
    let mut trial = Trial::new("sqlite", "96M");
    trial.unharmed(|root| {
        for (nth, journal) in JOURNALS.iter().enumerate() {
            let name = format!("unharmed{nth}");
            make(root, &name, journal);
            runs(&mut writers(trial.place.path(), &name, journal, 20));
            assert_eq!((told(trial.place.path()), found(root, &name)), ([20, 20], [20, 20]), "{journal}");
        }
    });
    for round in 0..rounds() {
        let journal = JOURNALS[(round % 3) as usize];
        let (told, found) = cut_writers(&mut trial, journal);
        for (told, found) in told.iter().zip(found) {
            assert!((*told..=told + 1).contains(&found), "{journal} told {told}, found {found}");
        }
    }
    trial.end();
}

/// The check above sees what is lost where `fsync` only orders.
#[test]
fn a_mount_that_only_orders_is_found_out() {
    if !is_able("sqlite3", "--version") {
        return;
    }
    let mut trial = Trial { options: &["--sync", "order"], ..Trial::new("sqlite in order", "96M") };
    let is_seen = |trial: &mut Trial| {
        let (told, found) = cut_writers(trial, JOURNALS[0]);
        told.iter().zip(found).any(|(told, found)| found < *told)
    };
    assert!((0..20).any(|_| is_seen(&mut trial)), "nothing was lost");
}
