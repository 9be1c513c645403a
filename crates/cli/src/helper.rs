//! This program by the names under which `mount` and `umount` of the system look for it.
//!
//! `mount -t weir SOURCE DIRECTORY -o OPTIONS`, and a line of `fstab`, run `/sbin/mount.weir SOURCE DIRECTORY -o
//! OPTIONS`. The kernel calls the mount `fuse.weir`, so `umount DIRECTORY` runs `/sbin/umount.fuse.weir DIRECTORY`. Both
//! are links to `weir`. Options become those of `weir mount`; options that are for `mount` itself are left out, and any
//! other is refused by name.

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::{CommandFactory as _, Parser, ValueEnum as _};

use crate::journal_engine::JournalEngine;
use crate::journal_mode::JournalName;
use crate::moment::parse_moment;
use crate::size::Size;
use crate::successor::program_of_this_process;

/// The exit codes of `mount`: wrong arguments, and a mount that failed.
const WRONG_USE: u8 = 1;
const FAILED: u8 = 32;

/// What this program is called.
const NAME: &str = "weir";
/// Links that are followed, as by the kernel.
const LINKS_MAX: usize = 40;

const OPTIONS: &str = "\
Options behind -o, separated by commas; `weir mount --help` explains each:
  ro, noexec                      --read-only, --no-exec
  allow_other, awake, no_awake    --allow-other, --awake, --no-awake
  sync=durable, sync=order        --sync durable, --sync order
  engine=NAME, journal=MODE       --engine NAME, --journal MODE
  journal_coalition               --journal-coalition
  forced_commits                  --forced-commits
  discard, nodiscard              --discard, --no-discard
  moment=TIME                     --moment=TIME
  discard_below                   --discard-below
  noatime, writeback_cache        --noatime, --writeback-cache
  no_open_requests                --no-open-requests
  no_file_handles                 --no-file-handles
  log=FILE, memory=LIMIT          --log FILE, --memory LIMIT
  log_format=json                 --log-format json

Options that are for mount and systemd are accepted: defaults, rw, noauto, nofail,
_netdev, user, x-*, comment=TEXT. Any other is refused, unless -s is given.";

/// What `mount` runs.
#[derive(Debug, Parser)]
#[command(
    name = "mount.weir",
    version,
    about = "What `mount -t weir` runs: the same as `weir mount`",
    after_help = OPTIONS
)]
struct MountHelper {
    /// A volume or a filesystem image, in a file or on a block device
    source: PathBuf,
    /// The directory to mount on
    directory: PathBuf,
    /// Options, as of `mount` and fstab
    #[arg(short)]
    options: Vec<String>,
    /// Ignore options that are not known
    #[arg(short)]
    sloppy: bool,
    /// Do all but mount
    #[arg(short)]
    fake: bool,
    /// Passed by `mount`; it makes no difference
    #[arg(short)]
    no_table: bool,
    /// Passed by `mount`; it makes no difference
    #[arg(short)]
    verbose: bool,
    /// The type of filesystem that `mount` was asked for
    #[arg(short)]
    type_of: Option<String>,
}

/// What `umount` runs.
#[derive(Debug, Parser)]
#[command(name = "umount.fuse.weir", version, about = "What `umount` runs: the same as `weir umount`")]
struct UmountHelper {
    /// The directory that it is mounted on
    directory: PathBuf,
    /// Unmount it even if programs use it, and wait for nothing
    #[arg(short)]
    lazy: bool,
    /// Do not wait for the server
    #[arg(short)]
    force: bool,
    /// Passed by `umount`; it makes no difference
    #[arg(short)]
    no_table: bool,
    /// Passed by `umount`; it makes no difference
    #[arg(short)]
    read_only: bool,
    /// Passed by `umount`; it makes no difference
    #[arg(short)]
    verbose: bool,
    /// The type of filesystem that `umount` has found
    #[arg(short)]
    type_of: Option<String>,
}

/// Runs the helper by whose name this program was called; none if it was called by a name of its own.
pub(crate) fn run() -> Option<ExitCode> {
    let name = std::env::args_os().next()?;
    let is = |helper: &str| Path::new(&name).file_name() == Some(OsStr::new(helper));
    if is("mount.weir") || is("mount.fuse.weir") {
        return Some(MountHelper::try_parse().map_or_else(|error| wrong(&error), |asked| asked.run()));
    }
    is("umount.fuse.weir")
        .then(|| UmountHelper::try_parse().map_or_else(|error| wrong(&error), |asked| asked.run()))
}

/// What the helpers take, for their manual pages.
pub(crate) fn commands() -> [clap::Command; 2] {
    [MountHelper::command(), UmountHelper::command()]
}

/// Prints what is wrong with the arguments, or the help that they ask for.
fn wrong(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    if error.use_stderr() { ExitCode::from(WRONG_USE) } else { ExitCode::SUCCESS }
}

impl MountHelper {
    fn run(&self) -> ExitCode {
        let options = self.options.iter().flat_map(|options| options.split(','));
        let arguments = match mount_arguments(options, self.sloppy) {
            Ok(arguments) => arguments,
            Err(refused) => {
                let _ = writeln!(std::io::stderr(), "mount.weir: {refused}");
                return ExitCode::from(WRONG_USE);
            }
        };
        if self.fake {
            return ExitCode::SUCCESS;
        }
        let arguments = arguments.into_iter().map(OsString::from);
        let places = ["--".into(), OsString::from(&self.source), OsString::from(&self.directory)];
        command("mount", arguments.chain(places))
    }
}

impl UmountHelper {
    fn run(&self) -> ExitCode {
        if !self.lazy && !self.force {
            return command("umount", ["--".into(), OsString::from(&self.directory)]);
        }
        // The kernel's own way, which reports no error of the server.
        let how = [(self.lazy, "-l"), (self.force, "-f")];
        let how = how.into_iter().filter_map(|(asked, flag)| asked.then_some(flag));
        run_as(Command::new("umount").arg("-i").args(how).arg("--").arg(&self.directory))
    }
}

/// Runs a command of this program.
fn command(name: &str, arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    run_as(Command::new("/proc/self/exe").arg0(find_program()).arg(name).args(arguments))
}

/// This program by its own name: what a helper is linked to, by one link after the other.
fn find_program() -> PathBuf {
    let mut path = program_of_this_process();
    for _ in 0..LINKS_MAX {
        match path.read_link() {
            _ if path.file_name() == Some(OsStr::new(NAME)) => return path,
            Ok(target) => path = path.parent().unwrap_or(Path::new("/")).join(target),
            Err(_) => break,
        }
    }
    NAME.into()
}

/// Runs a program that reports its errors itself.
fn run_as(command: &mut Command) -> ExitCode {
    match command.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(FAILED),
        Err(error) => {
            let program = String::from_utf8_lossy(command.get_program().as_bytes()).into_owned();
            let _ = writeln!(std::io::stderr(), "weir: cannot run {program}: {error}");
            ExitCode::from(FAILED)
        }
    }
}

/// The arguments of `weir mount` that stand for options of `mount`.
///
/// # Errors
/// Why an option is refused. With `sloppy` those that are not known are left out.
pub(crate) fn mount_arguments<'a>(
    options: impl Iterator<Item = &'a str>,
    sloppy: bool,
) -> Result<Vec<String>, String> {
    let mut read_only = false;
    let mut arguments = Vec::new();
    for option in options {
        match (option, of_option(option)) {
            // Of these two, the last counts.
            ("ro", _) => read_only = true,
            ("rw", _) => read_only = false,
            ("remount", _) => {
                return Err("a mount cannot be changed: unmount it, and mount it again".to_owned());
            }
            (_, Meaning::WrongValue(known)) => return Err(format!("\"{option}\": write {known}")),
            (_, Meaning::Argument(argument)) => arguments.push(argument),
            (_, Meaning::Mounts) => {}
            (_, Meaning::Unknown) if sloppy => {}
            (_, Meaning::Unknown) => {
                return Err(format!(
                    "\"{option}\" is no option of a mount of Weir; `mount.weir --help` lists them"
                ));
            }
        }
    }
    arguments.extend(read_only.then(|| "--read-only".to_owned()));
    Ok(arguments)
}

/// What an option of `mount` is.
#[derive(Debug, PartialEq, Eq)]
enum Meaning {
    /// An argument of `weir mount`.
    Argument(String),
    /// For `mount` and its like, or true in any case.
    Mounts,
    /// Known, but not with this value: what it may be.
    WrongValue(&'static str),
    /// None of these.
    Unknown,
}

fn of_option(option: &str) -> Meaning {
    let (name, value) = option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
    let argument = |text: &str| Meaning::Argument(text.to_owned());
    match (name, value) {
        ("allow_other", None) => argument("--allow-other"),
        ("awake", None) => argument("--awake"),
        ("no_awake", None) => argument("--no-awake"),
        ("discard", None) => argument("--discard"),
        ("discard_below", None) => argument("--discard-below"),
        ("nodiscard", None) => argument("--no-discard"),
        ("noexec", None) => argument("--no-exec"),
        ("noatime", None) => argument("--noatime"),
        ("writeback_cache", None) => argument("--writeback-cache"),
        ("no_open_requests", None) => argument("--no-open-requests"),
        ("no_file_handles", None) => argument("--no-file-handles"),
        ("moment", Some(time)) if parse_moment(time).is_ok() => argument(&format!("--{option}")),
        ("moment", _) => Meaning::WrongValue("moment=TIME, such as moment=100ms: 10ms to 1min"),
        ("sync", Some("durable" | "order")) => argument(&format!("--{option}")),
        ("sync", _) => Meaning::WrongValue("sync=durable or sync=order"),
        ("engine", Some(value)) if JournalEngine::from_str(value, false).is_ok() => {
            argument(&format!("--{option}"))
        }
        ("engine", _) => Meaning::WrongValue("engine=dual, engine=dual-list, engine=jbd2, engine=jbd2-nobarrier, engine=async-commit, engine=optfs, engine=prefix or engine=flush-ahead"),
        ("journal", Some(value)) if JournalName::from_str(value, false).is_ok() => {
            argument(&format!("--{option}"))
        }
        ("journal", _) => {
            Meaning::WrongValue("journal=writeback, journal=ordered, journal=data, journal=soj or journal=sdj")
        }
        ("journal_coalition", None) => argument("--journal-coalition"),
        ("forced_commits", None) => argument("--forced-commits"),
        ("log_format", Some(value @ ("text" | "json"))) => argument(&format!("--log-format={value}")),
        ("log_format", _) => Meaning::WrongValue("log_format=text or log_format=json"),
        ("log", Some(value)) => Meaning::Argument(format!("--log={value}")),
        ("memory", Some(value)) if value.parse::<Size>().is_ok() => argument(&format!("--{option}")),
        ("memory", _) => Meaning::WrongValue("memory=LIMIT, as memory=256M"),
        ("" | "defaults" | "ro" | "rw" | "auto" | "noauto" | "nofail" | "_netdev", None)
        | ("user" | "users" | "nouser" | "owner" | "noowner" | "group" | "nogroup", _)
        // True in any case.
        | ("async" | "exec" | "nosuid" | "nodev" | "relatime" | "nodiratime", None)
        | ("comment", Some(_)) => Meaning::Mounts,
        _ if name.starts_with("x-") || name.starts_with("X-") => Meaning::Mounts,
        _ => Meaning::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(options: &str) -> Result<Vec<String>, String> {
        mount_arguments(options.split(','), false)
    }

    #[test]
    fn options_of_mount_become_those_of_the_program() {
        let given = "rw,allow_other,sync=order,engine=prefix,journal=sdj,journal_coalition,forced_commits,discard,moment=100ms,discard_below,awake,noexec,noatime,writeback_cache,no_open_requests,no_file_handles,log=/var/log/weir,log_format=json,memory=256M,nosuid,nodev";
        let expected = [
            "--allow-other",
            "--sync=order",
            "--engine=prefix",
            "--journal=sdj",
            "--journal-coalition",
            "--forced-commits",
            "--discard",
            "--moment=100ms",
            "--discard-below",
            "--awake",
            "--no-exec",
            "--noatime",
            "--writeback-cache",
            "--no-open-requests",
            "--no-file-handles",
        ];
        let expected: Vec<_> = expected
            .into_iter()
            .chain(["--log=/var/log/weir", "--log-format=json", "--memory=256M"])
            .collect();
        assert_eq!(arguments(given).unwrap(), expected);
        assert_eq!(arguments("ro,nodiscard").unwrap(), ["--no-discard", "--read-only"]);
        assert_eq!(arguments("ro,rw").unwrap(), [""; 0]);
        let own = "defaults,relatime,noauto,nofail,_netdev,user=me,users,x-systemd.automount,X-mount.mkdir=0700,comment=a,,";
        assert_eq!(arguments(own).unwrap(), [""; 0]);
    }

    #[test]
    fn help_lists_the_options() {
        let help = MountHelper::command().render_help().to_string();
        for known in
            ["allow_other", "sync=order", "nodiscard", "discard_below", "writeback_cache", "log=FILE"]
        {
            assert!(help.contains(known), "{help}");
            let known = known.replace("FILE", "/log");
            assert!(arguments(&known).unwrap()[0].starts_with("--"));
        }
    }

    #[test]
    fn options_that_are_not_known_are_refused_by_name() {
        for unknown in ["suid", "dev", "dirsync", "data=journal", "allow_other=1", "sync_", "xyz"] {
            let told = arguments(&format!("rw,{unknown},ro")).unwrap_err();
            assert!(told.contains(&format!("\"{unknown}\"")), "{told}");
            assert_eq!(mount_arguments([unknown, "ro"].into_iter(), true).unwrap(), ["--read-only"]);
        }
        for wrong in ["sync", "sync=maybe"] {
            let told = arguments(&format!("rw,{wrong}")).unwrap_err();
            assert!(told.contains(&format!("\"{wrong}\": write sync=durable or sync=order")), "{told}");
        }
        for wrong in ["engine", "engine=ext4"] {
            let told = arguments(wrong).unwrap_err();
            assert!(told.contains(&format!("\"{wrong}\": write engine=dual")), "{told}");
        }
        for wrong in ["journal", "journal=none"] {
            let told = arguments(wrong).unwrap_err();
            assert!(told.contains(&format!("\"{wrong}\": write journal=writeback")), "{told}");
        }
        assert!(arguments("remount,ro").unwrap_err().contains("unmount it"));
        mount_arguments(["remount"].into_iter(), true).unwrap_err();
    }
}
