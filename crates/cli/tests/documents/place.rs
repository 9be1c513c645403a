//! Where commands run: a directory like the repository, with mounts and processes of its own.

use std::fmt::Write as _;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::blocks::{Block, How};
use super::root;
use crate::support::{library, mounts, weir_program};

/// What a document may take, and the word that says so.
const PROGRAMS: [&str; 8] =
    ["gcc", "sqlite3", "setfattr", "losetup", "mkfs.ext4", "e2fsck", "taskset", "python3"];
/// Seconds that a document's commands may take; they take a tenth of that on an idle machine.
const SECONDS_MAX: u32 = 200;
/// What stands for cargo: it runs what was built with this test.
const CARGO: &str = r#"#!/bin/sh
set -e
case "$*" in
"build --release") test -x target/release/weir ;;
"run --release -p weir-"*" --example "*" -- "*)
    built=$EXAMPLES/$6
    test -f "crates/${4#weir-}/examples/$6.rs"
    shift 7
    exec "$built" "$@"
    ;;
"run --release -- "*)
    shift 3
    exec target/release/weir "$@"
    ;;
*)
    echo "what stands for cargo does not know: $*" >&2
    exit 1
    ;;
esac
"#;

/// What every script begins with. Whatever is still mounted at its end is taken away as documents say it.
const BEGINNING: &str = r#"set -eo pipefail
finish() {
    status=$?
    set +ex
    [ $status = 0 ] || echo "$block: ended with $status" >&2
    ! mountpoint -q /mnt/files || umount /mnt/files
    for device in $([ ! -e /mnt/weir/disk ] || losetup -n -O NAME -j /mnt/weir/disk); do
        losetup --detach "$device"
    done
    ! mountpoint -q /mnt/weir || weir umount /mnt/weir || status=1
    exit $status
}
trap finish EXIT
trap 'exit 143' TERM
mount -t tmpfs none /mnt
set -x
"#;

/// Benchmarks and figures are tried with the least that they take; tests of their own try them as they are.
fn shorter(line: &str) -> String {
    match line.split_whitespace().take(2).collect::<Vec<_>>()[..] {
        ["weir", "bench"] if !line.contains("--virtual") => line.replace("--quick", "--tiny"),
        ["weir", "figures"] => line.replace("weir figures", "weir figures --quick"),
        _ => line.to_owned(),
    }
}

/// The commands of a document.
pub fn script(document: &str, blocks: &[Block]) -> String {
    let mut script = BEGINNING.to_owned();
    if document != "README.md" {
        script.push_str("export PATH=$PWD/target/release:$PATH\n");
    }
    for block in blocks {
        if let How::Run(commands) = &block.how {
            let commands: Vec<String> = commands.lines().map(shorter).collect();
            writeln!(script, "block={document}:{}\n{}", block.line, commands.join("\n")).unwrap();
        }
    }
    script
}

fn found(program: &str) -> bool {
    path().split(':').any(|folder| Path::new(folder).join(program).exists())
}

fn path() -> String {
    format!("/usr/sbin:/sbin:/usr/bin:/bin:{}", std::env::var("PATH").unwrap_or_default())
}

/// What these blocks take that this machine has not.
pub fn lacks(blocks: &[Block]) -> Option<String> {
    let commands: Vec<&str> = blocks
        .iter()
        .filter_map(|block| match &block.how {
            How::Run(commands) => Some(commands.as_str()),
            How::NotRun(_) => None,
        })
        .collect();
    let commands = commands.join("\n");
    if !mounts() {
        return Some("/dev/fuse and the superuser".to_owned());
    }
    let taken = PROGRAMS.into_iter().filter(|program| commands.contains(program));
    if let Some(program) = taken.chain(["unshare", "timeout"]).find(|program| !found(program)) {
        return Some(program.to_owned());
    }
    let works = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.env("PATH", path()).args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let python = ["-c", "import sqlite3; sqlite3.Connection.enable_load_extension"];
    let examples = commands.split("--example ").skip(1).filter_map(|rest| rest.split_whitespace().next());
    let lacking = [
        (commands.contains("losetup") && !works("losetup", &["--find"]), "a loop device"),
        (commands.contains("taskset") && !works("taskset", &["-c", "1", "true"]), "a second processor"),
        (commands.contains("python3 ") && !works("python3", &python), "a Python with SQLite's extensions"),
        (!works("unshare", &["--mount", "--pid", "--fork", "--mount-proc", "true"]), "namespaces"),
        (
            examples.into_iter().any(|example| !examples_folder().join(example).exists()),
            "the examples, as cargo test builds them in the whole workspace",
        ),
    ];
    lacking.into_iter().find(|(lacks, _)| *lacks).map(|(_, what)| what.to_owned())
}

/// Where cargo puts the examples that it builds.
fn examples_folder() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_weir")).with_file_name("examples")
}

/// A directory like the repository.
fn arrange(place: &Path) {
    for entry in fs::read_dir(root()).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name() != "target" {
            symlink(entry.path(), place.join(entry.file_name())).unwrap();
        }
    }
    let release = place.join("target/release");
    fs::create_dir_all(&release).unwrap();
    symlink(weir_program(), release.join("weir")).unwrap();
    for name in ["libweir.so", "libweir_preload.so", "libweir_sqlite.so"] {
        symlink(library(name), release.join(name)).unwrap();
    }
}

/// Runs a script in such a directory: what it said, also where it failed.
pub fn run(script: &str) -> Result<String, String> {
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let [place, tools, file, log] = ["place", "tools", "script", "log"].map(|name| scratch.path().join(name));
    [&place, &tools].into_iter().for_each(|folder| fs::create_dir(folder).unwrap());
    arrange(&place);
    fs::write(tools.join("cargo"), CARGO).unwrap();
    fs::set_permissions(tools.join("cargo"), Permissions::from_mode(0o755)).unwrap();
    fs::write(&file, script).unwrap();
    // A file, since servers in the background keep a pipe open.
    let said = File::create(&log).unwrap();
    let mut command = Command::new("timeout");
    command.arg("--kill-after=20").arg(SECONDS_MAX.to_string());
    // With the last process of its own, its mounts are gone.
    command
        .args(["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash"])
        .arg(&file);
    command.current_dir(&place).stdin(Stdio::null()).stdout(said.try_clone().unwrap()).stderr(said);
    command.env("PATH", format!("{}:{}", tools.display(), path())).env("EXAMPLES", examples_folder());
    let ended = command.status().unwrap();
    let log = String::from_utf8_lossy(&fs::read(&log).unwrap()).into_owned();
    if ended.success() { Ok(log) } else { Err(format!("{ended}\n{log}")) }
}
