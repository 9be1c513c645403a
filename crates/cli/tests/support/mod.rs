//! What tests of the program share: running it, a volume and the place where it is mounted, and the server of a mount.

#![allow(dead_code, reason = "each test uses a part of this")]
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "it waits for what other processes do"
)]

pub mod kernel_mount;
pub mod lag;
pub mod overlay;
pub mod seaweed;
pub mod service_manager;

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The program that is tested: `WEIR_TESTED`, such as `target/release/weir`, or the one that cargo builds beside the tests. That
/// one has the mutants of all tests compiled in, and nothing that switches one on.
pub fn weir_program() -> &'static str {
    static PROGRAM: OnceLock<String> = OnceLock::new();
    PROGRAM.get_or_init(|| match std::env::var("WEIR_TESTED") {
        Ok(program) => {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(program);
            fs::canonicalize(&path).expect("WEIR_TESTED").to_str().unwrap().to_owned()
        }
        Err(_) => env!("CARGO_BIN_EXE_weir").to_owned(),
    })
}

pub fn weir(arguments: &[&str]) -> Command {
    let mut command = Command::new(weir_program());
    // Whoever runs the tests may debug with it.
    command.args(arguments).env_remove("RUST_LOG");
    command
}

/// `weir` with the credentials of a store.
pub fn weir_in(seaweed: &seaweed::Seaweed, arguments: &[&str]) -> Command {
    let mut command = weir(arguments);
    command.envs(seaweed.environment());
    command
}

pub fn weir_as(seaweed: &seaweed::Seaweed, key: &str, secret: &str, arguments: &[&str]) -> Command {
    let mut command = weir_in(seaweed, arguments);
    command.env("AWS_ACCESS_KEY_ID", key).env("AWS_SECRET_ACCESS_KEY", secret);
    command
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn error_of(output: &Output) -> String {
    text(&output.stderr)
}

/// Runs `weir`, which succeeds; what it prints.
#[track_caller]
pub fn works(arguments: &[&str]) -> String {
    runs(&mut weir(arguments))
}

/// What `weir status` prints, of a mount that is healthy or not.
#[track_caller]
pub fn told_by_status(arguments: &[&str]) -> String {
    let output = weir(&[&["status"], arguments].concat()).output().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 1)), "{arguments:?}: {}", error_of(&output));
    text(&output.stdout)
}

/// What else to mount with, for every mount of a campaign: such as `--writeback-cache`.
fn of_campaign() -> Vec<String> {
    let arguments = std::env::var("WEIR_MOUNT_ARGUMENTS").unwrap_or_default();
    arguments.split_whitespace().map(str::to_owned).collect()
}

/// Runs any program, which succeeds; what it prints.
#[track_caller]
pub fn runs(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}{}", text(&output.stdout), error_of(&output));
    text(&output.stdout)
}

/// The command ends with code 2, and with one line on standard error that holds all of `words`.
#[track_caller]
pub fn fails(arguments: &[&str], words: &[&str]) {
    ends_with(&mut weir(arguments), &[2], words);
}

/// The command ends with one of these codes, and with one line on standard error that holds all of `words`; what it prints.
#[track_caller]
pub fn ends_with(command: &mut Command, codes: &[i32], words: &[&str]) -> String {
    let output = command.output().unwrap();
    let error = error_of(&output);
    let code = output.status.code();
    assert!(code.is_some_and(|code| codes.contains(&code)), "{code:?}: {command:?}: {error}");
    assert_eq!(error.trim_end().lines().count(), 1, "{command:?}: {error}");
    assert!(error.starts_with("weir: "), "{command:?}: {error}");
    for word in words {
        assert!(error.contains(word), "{command:?}: no {word:?} in {error}");
    }
    text(&output.stdout)
}

/// Bytes that no compression makes less, others for each seed.
pub fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

/// Whether a program is to be had; says so if not.
pub fn is_there(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("skipped: this takes {program}");
    }
    found
}

/// A file or directory of this project.
pub fn of_project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Where a library of this project is built: beside the program that tests it.
pub fn library(name: &str) -> PathBuf {
    std::env::current_exe().unwrap().with_file_name(name)
}

/// Whether this machine mounts through FUSE; says so if not.
pub fn mounts() -> bool {
    let usable = File::options().read(true).write(true).open("/dev/fuse").is_ok()
        && rustix::process::geteuid().is_root();
    if !usable {
        eprintln!("skipped: mounting takes /dev/fuse and the superuser");
    }
    usable
}

pub fn is_mountpoint(path: &Path) -> bool {
    let above = path.parent().unwrap();
    fs::metadata(path).is_ok_and(|found| found.dev() != fs::metadata(above).unwrap().dev())
}

#[track_caller]
pub fn wait_until(what: &str, is_so: impl FnMut() -> bool) {
    assert!(is_so_within(Duration::from_secs(30), is_so), "waited in vain until {what}");
}

pub fn is_so_within(most: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let began = Instant::now();
    loop {
        if is_so() {
            return true;
        }
        if began.elapsed() >= most {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A directory with room for a volume, and a place to mount it on; unmounted when dropped.
pub struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Place {
        Place::within(Path::new(env!("CARGO_TARGET_TMPDIR")))
    }

    /// Where every user gets to, which is not said of the target directory.
    pub fn for_everybody() -> Place {
        let place = Place::within(&std::env::temp_dir());
        fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
        place
    }

    fn within(above: &Path) -> Place {
        let place = Place { directory: tempfile::tempdir_in(above).unwrap() };
        fs::create_dir(place.mountpoint()).unwrap();
        place
    }

    /// With a filesystem on a volume of this size.
    pub fn with_volume(size: &str) -> Place {
        let place = Place::new();
        works(&["mkfs", "--volume", place.volume().to_str().unwrap(), "--size", size]);
        place
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    pub fn volume(&self) -> PathBuf {
        self.path().join("a.weir")
    }

    pub fn mountpoint(&self) -> PathBuf {
        self.path().join("mounted")
    }

    /// Mounts it, with a server in the background.
    pub fn mount(&self, more: &[&str]) -> PathBuf {
        let (volume, mountpoint) = (self.volume(), self.mountpoint());
        let arguments = ["mount", volume.to_str().unwrap(), mountpoint.to_str().unwrap()];
        runs(weir(&[&arguments, more].concat()).args(of_campaign()));
        mountpoint
    }

    /// Mounts it, with a server that can be killed. One that was killed before may hold on to the volume for a
    /// moment.
    pub fn serve(&self) -> Server {
        self.serve_as(&[])
    }

    /// The same, with more arguments.
    pub fn serve_as(&self, more: &[&str]) -> Server {
        self.serve_in(more, &[])
    }

    /// The same, and more variables of the environment.
    pub fn serve_in(&self, more: &[&str], environment: &[(&str, String)]) -> Server {
        self.serve_source(self.volume().to_str().unwrap(), more, environment)
    }

    /// The same of something else than its volume.
    pub fn serve_source(&self, source: &str, more: &[&str], environment: &[(&str, String)]) -> Server {
        let mountpoint = self.mountpoint();
        let arguments = ["mount", "--foreground", source, mountpoint.to_str().unwrap()];
        let mut told = String::new();
        for _ in 0..1000 {
            let mut process = weir(&arguments)
                .args(more)
                .args(of_campaign())
                .envs(environment.iter().cloned())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let mut messages = BufReader::new(process.stderr.take().unwrap());
            told.clear();
            // It may warn before that.
            while messages.read_line(&mut told).unwrap() > 0 && !told.contains("mounted on") {}
            if told.contains("mounted on") {
                return Server { process, messages: Some(messages) };
            }
            process.wait().unwrap();
            if !told.contains("in use") {
                break;
            }
        }
        panic!("{told}");
    }

    /// Unmounts, as the system does it.
    pub fn unmount(&self) {
        self.end_by(|| Command::new("umount").arg(self.mountpoint()).output().unwrap());
    }

    /// Unmounts, and waits until the volume is free.
    pub fn umount(&self) {
        self.end_by(|| weir(&["umount", self.mountpoint().to_str().unwrap()]).output().unwrap());
    }

    /// Children that other tests are starting have files open for a moment that are closed here.
    fn end_by(&self, unmount: impl Fn() -> Output) {
        wait_until("no program uses the mount", || {
            let output = unmount();
            let told = error_of(&output);
            let is_busy = ["busy", "have files open"].iter().any(|word| told.contains(word));
            assert!(is_busy || output.status.success(), "{told}");
            !is_busy
        });
    }

    /// What the server says of what is mounted.
    pub fn status(&self) -> serde_json::Value {
        serde_json::from_str(&told_by_status(&["--json", self.mountpoint().to_str().unwrap()])).unwrap()
    }

    /// Unmounts, and checks what is left.
    pub fn end(&self) {
        self.unmount();
        self.check();
    }

    /// Waits until no server has the volume any more, and checks it.
    pub fn check(&self) {
        let volume = self.volume();
        let check = || weir(&["fsck", volume.to_str().unwrap()]).output().unwrap();
        // If a server keeps the volume, the check fails, and its message names that server.
        is_so_within(Duration::from_secs(60), || check().status.code() != Some(8));
        let output = check();
        assert!(output.status.success(), "{}{}", text(&output.stdout), error_of(&output));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Lazily, so that a test that failed leaves nothing behind.
        let _ = Command::new("umount").arg("-l").arg(self.mountpoint()).stderr(Stdio::null()).status();
    }
}

/// A server in the foreground; killed when dropped.
pub struct Server {
    process: Child,
    /// Kept open, so that the server can say something.
    messages: Option<BufReader<ChildStderr>>,
}

impl Server {
    pub fn process(&self) -> &Child {
        &self.process
    }

    /// What it says from here on.
    pub fn take_messages(&mut self) -> BufReader<ChildStderr> {
        self.messages.take().unwrap()
    }

    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.wait();
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.process.try_wait().unwrap().is_some()
    }

    /// Waits until it has ended; whether it was content.
    pub fn wait(&mut self) -> bool {
        self.process.wait().unwrap().success()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub use weir_crash::system;

/// Runs a program of the system; whether it ended well, and what it said.
pub fn run(program: &str, arguments: &[&OsStr]) -> (bool, String) {
    match system(program).args(arguments).output() {
        Ok(output) => (output.status.success(), text(&[output.stdout, output.stderr].concat())),
        Err(error) => (false, format!("{program}: {error}")),
    }
}

/// What e2fsck finds wrong with what a crash has left, once it has replayed the journal. It may find nothing to mend
/// then: with `-f`, "journal_only" would check and mend everything, and no damage would ever be seen.
pub fn by_e2fsck(disk: &OsStr) -> Result<(), String> {
    let replay = ["-y", "-E", "journal_only"].map(OsStr::new);
    let (replayed, told) = run("e2fsck", &[&replay[..], &[disk]].concat());
    if replayed { by_looking(disk) } else { Err(told) }
}

/// What e2fsck finds wrong without changing anything; totals, which ext4 keeps lazily, are not wrong.
pub fn by_looking(disk: &OsStr) -> Result<(), String> {
    let (clean, told) = run("e2fsck", &["-fn".as_ref(), disk]);
    if clean { Ok(()) } else { Err(told) }
}

/// The filesystem of a volume that is not mounted, as e2fsck sees it: on a copy, with the journal replayed by
/// e2fsck; and on the volume, with it replayed by Weir. There is nothing to mend in either.
pub fn e2fsck_judges(place: &Place) {
    if system("e2fsck").arg("-V").output().is_err() {
        eprintln!("not judged by e2fsck, which is missing");
        return;
    }
    let copy = place.path().join("copy.weir");
    fs::copy(place.volume(), &copy).unwrap();
    as_disk(place, &copy, |disk| by_e2fsck(disk.as_os_str()).unwrap());
    fs::remove_file(&copy).unwrap();
    place.mount(&[]);
    place.umount();
    as_disk(place, &place.volume(), |disk| by_looking(disk.as_os_str()).unwrap());
}

/// Shows a volume as one file, for a time.
fn as_disk(place: &Place, volume: &Path, look: impl FnOnce(&Path)) {
    let mountpoint = place.mountpoint();
    works(&["disk", mountpoint.to_str().unwrap(), "--volume", volume.to_str().unwrap()]);
    look(&mountpoint.join("disk"));
    place.umount();
}
