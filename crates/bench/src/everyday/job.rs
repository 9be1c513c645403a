//! A *job*: one thing that people do with files, and the program that does it.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::BenchError;
use crate::everyday::plan::EverydayPlan;

/// What is done. Later ones need what earlier ones have made in the same directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    /// `tar xf` of the tree.
    Unpack,
    /// `diff -r` of two trees that were just compared.
    CompareWarm,
    /// `find` by size over a tree that was just looked at.
    FindWarm,
    /// `grep -r` for a word that is nowhere, in a tree that was just read.
    GrepWarm,
    /// `cp -r` of the tree.
    Copy,
    /// `git clone` of a local repository with the tree.
    GitClone,
    /// `git add` of a changed line in every twentieth file, and `git commit`.
    GitCommit,
    /// Files of 500 bytes, one after the other.
    SmallFiles,
    /// `diff -r` of two trees that are in no cache.
    CompareCold,
    /// A large file that is in no cache.
    ReadCold,
    /// A large file, and `fsync`.
    WriteSync,
    /// `rm -r` of all that the other jobs have made.
    Remove,
}

/// Who fails: a program of the system, or a file.
pub(super) fn failed(program: &'static str) -> impl Fn(io::Error) -> BenchError {
    move |source| BenchError::Job { program, told: source.to_string() }
}

/// Runs a program in a directory; what it prints is not kept.
fn run(program: &'static str, arguments: &[&str], directory: &Path) -> Result<(), BenchError> {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(directory).stdin(Stdio::null()).stdout(Stdio::null());
    // Neither the user's settings nor the time of day are part of the work.
    for (name, value) in [
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_CONFIG_SYSTEM", "/dev/null"),
        ("GIT_AUTHOR_NAME", "bench"),
        ("GIT_AUTHOR_EMAIL", "bench@localhost"),
        ("GIT_COMMITTER_NAME", "bench"),
        ("GIT_COMMITTER_EMAIL", "bench@localhost"),
    ] {
        command.env(name, value);
    }
    let output = command.stderr(Stdio::piped()).output().map_err(failed(program))?;
    // `grep` says by 1 that it has found nothing.
    if output.status.success() || program == "grep" && output.status.code() == Some(1) {
        return Ok(());
    }
    Err(BenchError::Job { program, told: String::from_utf8_lossy(&output.stderr).trim().to_owned() })
}

impl Job {
    /// All, in the order in which they are done.
    pub const ALL: [Job; 12] = [
        Job::Unpack,
        Job::CompareWarm,
        Job::FindWarm,
        Job::GrepWarm,
        Job::Copy,
        Job::GitClone,
        Job::GitCommit,
        Job::SmallFiles,
        Job::CompareCold,
        Job::ReadCold,
        Job::WriteSync,
        Job::Remove,
    ];

    /// The name that scripts rely on.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Job::Unpack => "unpack",
            Job::CompareWarm => "compare_warm",
            Job::FindWarm => "find_warm",
            Job::GrepWarm => "grep_warm",
            Job::Copy => "copy",
            Job::GitClone => "git_clone",
            Job::GitCommit => "git_commit",
            Job::SmallFiles => "small_files",
            Job::CompareCold => "compare_cold",
            Job::ReadCold => "read_cold",
            Job::WriteSync => "write_sync",
            Job::Remove => "remove",
        }
    }

    /// What it does, in a few words.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Job::Unpack => "tar xf",
            Job::CompareWarm => "diff -r, warm",
            Job::FindWarm => "find, warm",
            Job::GrepWarm => "grep -r, warm",
            Job::Copy => "cp -r",
            Job::GitClone => "git clone",
            Job::GitCommit => "git add, git commit",
            Job::SmallFiles => "small files",
            Job::CompareCold => "diff -r, cold",
            Job::ReadCold => "read a large file, cold",
            Job::WriteSync => "write a large file, fsync",
            Job::Remove => "rm -r",
        }
    }

    /// Whether the kernel's caches are dropped before, which only the superuser may do.
    pub(super) fn is_cold(self) -> bool {
        matches!(self, Job::CompareCold | Job::ReadCold)
    }

    /// Files that it works on, by which requests are counted; MiB of a large file.
    pub(super) fn units(self, plan: &EverydayPlan) -> u64 {
        match self {
            Job::SmallFiles => plan.small_files.into(),
            Job::ReadCold | Job::WriteSync => plan.large_bytes >> 20,
            // Three trees and the small files.
            Job::Remove => 3 * u64::from(plan.files) + u64::from(plan.small_files),
            _ => plan.files.into(),
        }
    }

    /// What is done before, and not measured.
    pub(super) fn prepare(self, root: &Path) -> Result<(), BenchError> {
        match self {
            Job::CompareWarm => {
                // The first time reads, and the second asks for the times of access that have changed.
                compare(root)?;
                compare(root)
            }
            Job::FindWarm => find(root),
            Job::GrepWarm => grep(root),
            Job::GitCommit => change_files(&root.join("clone")).map_err(failed("a change of files")),
            _ => Ok(()),
        }
    }

    /// Does it in a directory in which `archive` lies beside `kept`, a tree, `repository` and `large`.
    pub(super) fn run(self, root: &Path, plan: &EverydayPlan) -> Result<(), BenchError> {
        match self {
            Job::Unpack => run("tar", &["xf", "archive"], root),
            Job::CompareWarm | Job::CompareCold => compare(root),
            Job::FindWarm => find(root),
            Job::GrepWarm => grep(root),
            Job::Copy => run("cp", &["-r", "tree", "copy"], root),
            Job::GitClone => run("git", &["clone", "-q", "--no-hardlinks", "repository", "clone"], root),
            Job::GitCommit => {
                run("git", &["add", "-A"], &root.join("clone"))?;
                run("git", &["commit", "-q", "-m", "change"], &root.join("clone"))
            }
            Job::SmallFiles => make_small_files(root, plan.small_files).map_err(failed("small files")),
            Job::ReadCold => read_file(&root.join("large")).map_err(failed("a large file")),
            Job::WriteSync => {
                write_file(&root.join("written"), plan.large_bytes).map_err(failed("a large file"))
            }
            Job::Remove => run("rm", &["-r", "tree", "copy", "clone", "small", "written"], root),
        }
    }
}

fn compare(root: &Path) -> Result<(), BenchError> {
    run("diff", &["-r", "tree", "kept"], root)
}

fn find(root: &Path) -> Result<(), BenchError> {
    run("find", &["tree", "-size", "+1000000"], root)
}

fn grep(root: &Path) -> Result<(), BenchError> {
    run("grep", &["-r", "a word that is nowhere", "tree"], root)
}

/// Makes what all jobs of a directory begin with: the archive is there already.
pub(super) fn prepare_root(root: &Path, plan: &EverydayPlan) -> Result<(), BenchError> {
    run("tar", &["xf", "archive"], root)?;
    std::fs::rename(root.join("tree"), root.join("kept")).map_err(failed("a tree"))?;
    run("cp", &["-r", "kept", "repository"], root)?;
    let repository = root.join("repository");
    run("git", &["init", "-q"], &repository)?;
    run("git", &["add", "-A"], &repository)?;
    run("git", &["commit", "-q", "-m", "tree"], &repository)?;
    write_file(&root.join("large"), plan.large_bytes).map_err(failed("a large file"))
}

/// Packs the tree that lies in a directory.
pub(super) fn pack(directory: &Path, archive: &str) -> Result<(), BenchError> {
    run("tar", &["cf", archive, "tree"], directory)
}

fn make_small_files(root: &Path, count: u32) -> io::Result<()> {
    let directory = root.join("small");
    std::fs::create_dir(&directory)?;
    (0..count).try_for_each(|nth| std::fs::write(directory.join(nth.to_string()), [b'x'; 500]))
}

fn read_file(path: &Path) -> io::Result<()> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; 1 << 20];
    while file.read(&mut buffer)? > 0 {}
    Ok(())
}

/// Bytes that no disk compresses well: each MiB begins with its number.
fn write_file(path: &Path, bytes: u64) -> io::Result<()> {
    let mut file = File::create(path)?;
    let mut buffer: Vec<u8> =
        (0..1_u32 << 18).flat_map(|nth| nth.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect();
    for nth in 0..bytes >> 20 {
        buffer[..8].copy_from_slice(&nth.to_le_bytes());
        file.write_all(&buffer)?;
    }
    file.sync_all()
}

/// Appends a line to the first file of every directory of a checkout, as far as it has one.
fn change_files(checkout: &Path) -> io::Result<()> {
    for part in std::fs::read_dir(checkout)? {
        let part = part?.path();
        if !part.is_dir() || part.ends_with(".git") {
            continue;
        }
        for unit in std::fs::read_dir(part)? {
            let mut file = File::options().append(true).open(unit?.path().join("file0.rs"))?;
            file.write_all(b"another line\n")?;
        }
    }
    Ok(())
}
