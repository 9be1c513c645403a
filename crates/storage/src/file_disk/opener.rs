//! This process as an [`Opener`], and what the system knows of others.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use super::below::Place;
use crate::opener::{HOST_BYTES, Opener, Standing};

/// Where the system lists processes.
const PROC: &str = "/proc";

/// This process, with its disk at `place`. Where the system does not list it, its boot is `unknown`, a random number:
/// then no other process takes it for one that has ended, and it challenges each other one.
pub(super) fn this_process(place: Place, unknown: u128) -> Opener {
    describe_process(Path::new(PROC), place).unwrap_or(Opener {
        boot: unknown,
        device: place.device,
        inode: place.inode,
        namespace: 0,
        process: std::process::id(),
        began: 0,
        host: host(b"an unknown host"),
    })
}

fn describe_process(proc: &Path, place: Place) -> Option<Opener> {
    let boot = fs::read_to_string(proc.join("sys/kernel/random/boot_id")).ok()?;
    let boot = u128::from_str_radix(&boot.trim().replace('-', ""), 16).ok()?;
    let name = fs::read(proc.join("sys/kernel/hostname")).unwrap_or_default();
    let ProcessStart::Began(began) = find_start(proc, "self") else { return None };
    Some(Opener {
        boot,
        device: place.device,
        inode: place.inode,
        namespace: fs::metadata(proc.join("self/ns/pid")).ok()?.ino(),
        process: std::process::id(),
        began,
        host: host(name.trim_ascii()),
    })
}

fn host(name: &[u8]) -> [u8; HOST_BYTES] {
    let mut host = [0; HOST_BYTES];
    host.iter_mut().zip(name).for_each(|(to, from)| *to = *from);
    host
}

/// What is known of `other`, by one who has the lock of its own disk. The kernel gives the lock of one place to one
/// process, so an opener of the same place and the same boot has ended.
pub(super) fn standing(own: &Opener, other: &Opener) -> Standing {
    standing_by(Path::new(PROC), own, other)
}

/// Only what proves that a process has ended counts as that (V8):
///
/// - No process has its number. What `/proc` does not show may be hidden, so the kernel is asked by a signal.
/// - The process with its number is a zombie.
/// - That one began at another time, by a clock with the same zero. A time namespace has a zero of its own.
fn standing_by(proc: &Path, own: &Opener, other: &Opener) -> Standing {
    if own.boot != other.boot {
        return Standing::Unknown;
    }
    if (own.device, own.inode) == (other.device, other.inode) {
        return Standing::Ended;
    }
    if own.namespace != other.namespace {
        return Standing::Unknown;
    }
    let Some(number) = i32::try_from(other.process).ok().and_then(Pid::from_raw) else {
        return Standing::Unknown;
    };
    if test_kill_process(number) == Err(Errno::SRCH) {
        return Standing::Ended;
    }
    let process = other.process.to_string();
    match find_start(proc, &process) {
        ProcessStart::Ended => Standing::Ended,
        ProcessStart::Began(began) if began == other.began => Standing::Running,
        ProcessStart::Began(_) if have_same_clock(proc, &process) => Standing::Ended,
        ProcessStart::Began(_) | ProcessStart::Unknown => Standing::Unknown,
    }
}

/// A process, as `/proc` lists it.
enum ProcessStart {
    Ended,
    /// When it began, in clock ticks since the boot, by the clock of this process.
    Began(u64),
    /// Nothing: it may be hidden from this user.
    Unknown,
}

/// When a process began: the 22nd word of its line. The second word, its name, is in parentheses and
/// may hold any character; the third is its state, Z or X for one that has ended and whose parent was not told yet.
fn find_start(proc: &Path, process: &str) -> ProcessStart {
    let began = || {
        let line = fs::read_to_string(proc.join(process).join("stat")).ok()?;
        let mut words = line.rsplit_once(')')?.1.split_whitespace();
        if matches!(words.next()?, "Z" | "X") {
            return Some(ProcessStart::Ended);
        }
        words.nth(18)?.parse().ok().map(ProcessStart::Began)
    };
    began().unwrap_or(ProcessStart::Unknown)
}

/// Whether a process is in the time namespace of this one. A kernel without time namespaces says nothing, and counts as
/// one where they differ.
fn have_same_clock(proc: &Path, process: &str) -> bool {
    let namespace = |process| fs::read_link(proc.join(process).join("ns/time")).ok();
    namespace(process).is_some_and(|theirs| namespace("self") == Some(theirs))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const PLACE: Place = Place { device: 1, inode: 2 };

    fn here() -> Opener {
        describe_process(Path::new(PROC), PLACE).expect("Linux tells")
    }

    #[test]
    fn what_is_known_of_an_opener() {
        let own = here();
        let elsewhere = Opener { inode: 3, ..own };
        let cases = [
            (own, Standing::Ended),
            (Opener { boot: own.boot ^ 1, ..own }, Standing::Unknown),
            (elsewhere, Standing::Running),
            (Opener { began: own.began + 1, ..elsewhere }, Standing::Ended),
            (Opener { namespace: own.namespace ^ 1, ..elsewhere }, Standing::Unknown),
            (Opener { process: 0, ..elsewhere }, Standing::Unknown),
            (Opener { process: u32::MAX, ..elsewhere }, Standing::Unknown),
            (Opener { process: i32::MAX as u32, ..elsewhere }, Standing::Ended),
        ];
        for (other, expected) in cases {
            assert_eq!(standing(&own, &other), expected, "{other:?}");
        }
    }

    /// A `/proc` in which this process began at `began` and is in the time namespace `clock`, as far as they are given.
    fn proc_that_shows(began: Option<u64>, clock: Option<&str>) -> tempfile::TempDir {
        let proc = tempfile::tempdir().expect("a directory");
        let process = proc.path().join(std::process::id().to_string());
        fs::create_dir_all(process.join("ns")).expect("a process");
        fs::create_dir_all(proc.path().join("self/ns")).expect("this process");
        symlink("time:[1]", proc.path().join("self/ns/time")).expect("a namespace");
        if let Some(began) = began {
            let line = format!("1 (a) b) S {}{began} 0\n", "0 ".repeat(18));
            fs::write(process.join("stat"), line).expect("a line");
        }
        if let Some(clock) = clock {
            symlink(clock, process.join("ns/time")).expect("a namespace");
        }
        proc
    }

    #[test]
    fn an_opener_that_lives_has_ended_only_if_that_is_proved() {
        let own = here();
        let other = Opener { inode: 3, began: 7, ..own };
        let cases = [
            (None, None, Standing::Unknown, "hidden by hidepid=2"),
            (Some(7), None, Standing::Running, "the same start"),
            (Some(8), None, Standing::Unknown, "a namespace that another user may not read"),
            (Some(8), Some("time:[2]"), Standing::Unknown, "another time namespace"),
            (Some(8), Some("time:[1]"), Standing::Ended, "a later process with the number"),
        ];
        for (began, clock, expected, why) in cases {
            let proc = proc_that_shows(began, clock);
            assert_eq!(standing_by(proc.path(), &own, &other), expected, "{why}");
        }
    }

    #[test]
    fn an_opener_without_proc_is_unknown_to_all_and_knows_of_none() {
        let empty = tempfile::tempdir().expect("a directory");
        assert_eq!(describe_process(empty.path(), PLACE), None);
        let (own, one) = (here(), this_process(PLACE, 5));
        assert_eq!(one, own, "/proc is there");
        let unknown = Opener { boot: 5, ..own };
        for (own, other) in [(own, unknown), (unknown, own), (Opener { boot: 6, ..unknown }, unknown)] {
            assert_eq!(standing(&own, &other), Standing::Unknown);
        }
    }
}
