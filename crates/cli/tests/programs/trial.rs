//! A program on a mount whose server is killed again and again.

#![expect(clippy::disallowed_methods, reason = "it waits for what other processes do")]

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;
use rustix::fs::{XattrFlags, setxattr};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::support::{Place, e2fsck_judges, is_so_within, is_there, mounts};

/// How long a program may go on after its mount has died.
const GIVES_UP: Duration = Duration::from_secs(3);

/// How many times the server is killed under each program.
pub fn rounds() -> u64 {
    std::env::var("WEIR_PROGRAM_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(2)
}

/// Whether this machine mounts and has the program; says so if not.
pub fn is_able(program: &str) -> bool {
    mounts() && is_there(program)
}

/// A line of the shell, in a directory; it ends at the first command that fails.
pub fn shell(directory: &Path, line: &str) -> Command {
    let mut command = Command::new("bash");
    command.args(["-ec", line]).current_dir(directory);
    // The user has settings of their own.
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    for who in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{who}_NAME"), "a").env(format!("GIT_{who}_EMAIL"), "a@localhost");
    }
    command
}

/// Makes everything on a mount durable.
pub fn synchronise(root: &Path) {
    setxattr(root, "user.weir.status", b"sync", XattrFlags::empty()).unwrap();
}

/// A volume whose server is killed now and then.
pub struct Trial {
    pub place: Place,
    random: Pcg64,
    pub name: &'static str,
    /// Programs that were still running when their server was killed.
    pub cut: u64,
    /// Commits, or whole runs, of which they were told by then what is durable.
    pub acknowledged: u64,
    /// How long a program may go on after that.
    pub gives_up: Duration,
    /// How it is mounted while it is cut.
    pub options: &'static [&'static str],
}

impl Trial {
    pub fn new(name: &'static str, size: &str) -> Trial {
        let seed = name.bytes().fold(0, |seed, byte| seed << 8 ^ u64::from(byte));
        Trial {
            place: Place::with_volume(size),
            random: Pcg64::seed_from_u64(seed),
            name,
            cut: 0,
            acknowledged: 0,
            gives_up: GIVES_UP,
            options: &[],
        }
    }

    /// Mounts it for `work`, which nothing disturbs.
    pub fn unharmed<T>(&self, work: impl FnOnce(&Path) -> T) -> T {
        let root = self.place.mount(&[]);
        let done = work(&root);
        self.place.umount();
        done
    }

    /// Starts a program on it, and kills the server within `most` of that.
    pub fn cut(&mut self, most: Duration, program: Command) {
        let mut server = self.place.serve_as(self.options);
        self.interrupt(most, program, || server.kill());
        e2fsck_judges(&self.place);
    }

    /// Starts a program on what is mounted, and has something killed within `most` of that. The program ends, and the mount.
    pub fn interrupt(&mut self, most: Duration, mut program: Command, kill: impl FnOnce()) {
        let said = self.place.path().join("said");
        let output = File::create(&said).unwrap();
        program.stdout(output.try_clone().unwrap()).stderr(output);
        let mut running = program.process_group(0).spawn().unwrap();
        std::thread::sleep(most.mul_f64(self.random.random()));
        match running.try_wait().unwrap() {
            None => self.cut += 1,
            Some(ended) => assert!(ended.success(), "{}: {}", self.name, fs::read_to_string(&said).unwrap()),
        }
        kill();
        self.ended(&mut running);
    }

    /// Gives a program time to meet the dead mount, and takes that away. It is killed if it does not give up: git reads a
    /// directory again for as long as that fails.
    fn ended(&self, running: &mut Child) {
        is_so_within(self.gives_up, || running.try_wait().unwrap().is_some());
        // Its children too, if there are any left.
        let _ = kill_process_group(Pid::from_child(running), Signal::KILL);
        running.wait().unwrap();
        self.place.unmount();
    }

    /// Some were cut, or nothing was tried.
    pub fn end(&self) {
        let (cut, acknowledged) = (self.cut, self.acknowledged);
        eprintln!("{}: cut {cut} times of {}, {acknowledged} acknowledged", self.name, rounds());
        assert!(self.cut > 0, "{}: no program was running when its server was killed", self.name);
    }
}
