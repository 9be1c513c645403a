//! `weir restart`: the server of a mount hands over to the next one, and programs that use the mount do not notice. Where FUSE is not to
//! be had, these tests say that they were skipped.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "it measures what programs wait, and waits for what other processes do"
)]

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::fs::{XattrFlags, setxattr};

use crate::support::service_manager::ServiceManager;
use crate::support::{
    Place, error_of, fails, is_there, mounts, runs, text, told_by_status, wait_until, weir, weir_program,
    works,
};

/// Restarts under load; the long run takes 50.
fn rounds() -> u64 {
    std::env::var("WEIR_PROGRAM_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(20)
}

/// No call takes longer for a restart.
const LONGEST_CALL: Duration = Duration::from_secs(1);

/// A program that keeps a working directory, a mapping, and files without names on the mount, and checks them again and again.
const HOLDER: &str = r#"
import fcntl, mmap, os, sys, time
FBARRIER = 0x5701
os.chdir(sys.argv[1])
os.mkdir("cwd"); os.chdir("cwd")
mapped = os.open("mapped", os.O_RDWR | os.O_CREAT); os.truncate(mapped, 1 << 20)
mapping = mmap.mmap(mapped, 1 << 20)
gone = os.open("gone", os.O_RDWR | os.O_CREAT); os.unlink("gone")
unnamed = os.open(".", os.O_RDWR | os.O_TMPFILE); os.write(unnamed, b"unnamed")
os.mkdir("removed"); removed = os.open("removed", os.O_PATH); os.rmdir("removed")
round, longest = 0, 0
print("begun", flush=True)
while not os.path.exists("stop"):
    began = time.monotonic()
    mapping[4096 * (round % 256):][:1]
    mapping[4096 * (round % 256)] = round % 251
    if round % 16 == 0: mapping.flush()
    if round % 4 == 0: fcntl.ioctl(mapped, FBARRIER)
    assert os.pwrite(gone, round.to_bytes(8, "little"), 8 * round) == 8
    assert os.pread(gone, 8, 8 * round) == round.to_bytes(8, "little")
    assert os.fstat(gone).st_nlink == 0 and os.fstat(removed).st_nlink == 0
    assert os.getcwd().endswith("cwd") and os.stat(".").st_nlink == 2
    longest = max(longest, time.monotonic() - began)
    round += 1
os.fsync(gone)
assert os.pread(gone, 8 * round, 0) == b"".join(nth.to_bytes(8, "little") for nth in range(round))
os.link(f"/proc/self/fd/{unnamed}", "named", src_dir_fd=unnamed, follow_symlinks=True)
assert open("named").read() == "unnamed"
mapping.flush()
for page in range(min(round, 256)):
    last = (round - 1 - page) // 256 * 256 + page
    assert mapping[4096 * page] == last % 251 == os.pread(mapped, 1, 4096 * page)[0], page
print(longest, flush=True)
"#;

struct Holder {
    process: Child,
    told: BufReader<std::process::ChildStdout>,
    stop: PathBuf,
}

impl Holder {
    fn begin(root: &Path) -> Holder {
        let mut command = Command::new("python3");
        command.args(["-c", HOLDER]).arg(root).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut told = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        told.read_line(&mut line).unwrap();
        assert_eq!(line, "begun\n");
        Holder { process, told, stop: root.join("cwd/stop") }
    }

    /// The longest round of it.
    fn end(mut self) -> Duration {
        File::create(&self.stop).unwrap();
        let mut line = String::new();
        self.told.read_line(&mut line).unwrap();
        assert!(self.process.wait().unwrap().success());
        Duration::from_secs_f64(line.trim().parse().unwrap())
    }
}

/// Programs that do this until they are told to stop; each gives its longest call.
#[derive(Default)]
struct Load {
    stops: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<Duration>>,
}

impl Load {
    fn add(&mut self, mut call: impl FnMut(u64) + Send + 'static) {
        let stops = Arc::clone(&self.stops);
        self.tasks.push(thread::spawn(move || {
            let mut longest = Duration::ZERO;
            for round in 0.. {
                if stops.load(Ordering::Relaxed) {
                    break;
                }
                let began = Instant::now();
                call(round);
                longest = longest.max(began.elapsed());
            }
            longest
        }));
    }

    fn end(self) -> Duration {
        self.stops.store(true, Ordering::Relaxed);
        self.tasks.into_iter().map(|task| task.join().unwrap()).max().unwrap()
    }
}

/// Appends numbers, and has each durable before the next; how many there are.
fn add_writer(load: &mut Load, path: &Path, data_only: bool) -> Arc<AtomicU64> {
    let mut file = File::create(path).unwrap();
    let durable = Arc::<AtomicU64>::default();
    let count = Arc::clone(&durable);
    load.add(move |round| {
        file.write_all(&round.to_le_bytes()).unwrap();
        if data_only { file.sync_data() } else { file.sync_all() }.unwrap();
        count.store(round + 1, Ordering::Release);
    });
    durable
}

/// Numbers from 0 on, so many at least.
fn check_numbers(bytes: &[u8], at_least: u64) {
    for (nth, number) in bytes.chunks(8).enumerate() {
        assert_eq!(number, (nth as u64).to_le_bytes(), "number {nth} of {}", bytes.len() / 8);
    }
    assert!(bytes.len() as u64 / 8 >= at_least, "{} of {at_least} numbers", bytes.len() / 8);
}

/// Restarts the server again and again under all kinds of programs; the longest of their calls.
fn restart_under_load(place: &Place, source: &Path, more: &[&str], rounds: u64) -> Duration {
    let root = place.mountpoint();
    let mount = ["mount", source.to_str().unwrap(), root.to_str().unwrap()];
    runs(&mut weir(&[&mount, more].concat()));
    let process = place.status()["pid"].clone();
    let holder = Holder::begin(&root);
    let mut load = Load::default();
    let writers = [("fsync", false), ("fdatasync", true)];
    let durable = writers.map(|(name, data_only)| add_writer(&mut load, &root.join(name), data_only));
    // In place, with a mark of its round in each block.
    let overwritten =
        File::options().read(true).write(true).create_new(true).open(root.join("over")).unwrap();
    load.add(move |round| {
        let block = [(round % 250) as u8; 4096];
        overwritten.write_all_at(&block, round % 64 * 4096).unwrap();
        if round % 8 == 0 {
            overwritten.sync_data().unwrap();
        }
        let mut found = [0; 4096];
        overwritten.read_exact_at(&mut found, round % 64 * 4096).unwrap();
        assert!(found == block);
    });
    fs::create_dir(root.join("names")).unwrap();
    (0..500).for_each(|nth| drop(File::create(root.join(format!("names/{nth}"))).unwrap()));
    let names = root.join("names");
    load.add(move |_| assert_eq!(fs::read_dir(&names).unwrap().map(Result::unwrap).count(), 500));
    let made = root.join("made");
    load.add(move |round| {
        let renamed = made.with_file_name("renamed");
        fs::write(&made, round.to_le_bytes()).unwrap();
        fs::rename(&made, &renamed).unwrap();
        assert_eq!(fs::read(&renamed).unwrap(), round.to_le_bytes());
        fs::remove_file(&renamed).unwrap();
    });
    for round in 1..=rounds {
        works(&["restart", root.to_str().unwrap()]);
        let status = place.status();
        assert_eq!((status["restarts"].as_u64(), &status["pid"]), (Some(round), &process));
        assert_eq!(status["health"]["healthy"], true);
    }
    let (longest, held) = (load.end(), holder.end());
    for ((name, _), durable) in writers.iter().zip(&durable) {
        let durable = durable.load(Ordering::Acquire);
        check_numbers(&fs::read(root.join(name)).unwrap(), durable);
        assert!(durable > rounds, "{name} was written {durable} times");
    }
    let status = told_by_status(&[root.to_str().unwrap()]);
    assert!(status.contains("restarts of the server"), "{status}");
    place.umount();
    for ((name, _), durable) in writers.iter().zip(&durable) {
        let kept = weir(&["cat", source.to_str().unwrap(), &format!("/{name}")]).output().unwrap();
        check_numbers(&kept.stdout, durable.load(Ordering::Acquire));
    }
    works(&["fsck", source.to_str().unwrap()]);
    longest.max(held)
}

/// No call takes too long while the server of such a mount is restarted so often. A busy machine delays calls, too, so
/// it may be once more.
fn require_short_calls(of: &str, rounds: u64, restart: impl Fn() -> Duration) {
    let within_bar = || {
        let longest = restart();
        eprintln!("{of}: the longest call over {rounds} restarts: {} ms", longest.as_millis());
        longest < LONGEST_CALL
    };
    assert!(within_bar() || within_bar(), "{of}: calls waited {LONGEST_CALL:?} and longer, twice");
}

/// The same of a mount of a volume with these options.
fn require_short_calls_on_volume(more: &[&str], rounds: u64) {
    require_short_calls(&format!("{more:?}"), rounds, || {
        let place = Place::with_volume("256M");
        restart_under_load(&place, &place.volume(), more, rounds)
    });
}

#[test]
fn programs_do_not_notice_a_restart() {
    if mounts() && is_there("python3") {
        require_short_calls_on_volume(&[], rounds());
    }
}

/// With each option that changes what the server has to hand over.
#[test]
fn programs_do_not_notice_a_restart_of_other_mounts() {
    if !mounts() || !is_there("python3") {
        return;
    }
    let cases: [&[&str]; 4] =
        [&["--writeback-cache"], &["--no-open-requests"], &["--moment", "50ms"], &["--sync", "order"]];
    for more in cases {
        require_short_calls_on_volume(more, 4);
    }
    require_short_calls("a plain image", 4, || {
        let place = Place::new();
        let image = place.path().join("plain.img");
        works(&["mkfs", image.to_str().unwrap(), "--size", "256M"]);
        restart_under_load(&place, &image, &[], 4)
    });
}

/// A process with a number of its own choice in another namespace, which says when it gets the signal; and a restart
/// there.
const ELSEWHERE: &str = r#"
said=$1 weir=$2 root=$3 number=$4
echo $((number - 1)) > /proc/sys/kernel/ns_last_pid || exit 99
python3 -c '
import os, signal
signal.signal(signal.SIGUSR2, lambda *_: os.write(1, b"signalled\n"))
os.write(1, b"ready\n")
while True: signal.pause()
' > "$said" &
[ $! = "$number" ] || exit 99
until grep -q ready "$said"; do sleep 0.01; done
"$weir" restart "$root" 2>&1
cat "$said"
"#;

/// In another namespace of processes the server's number may be that of another process, which takes the signal for
/// something else.
#[test]
fn another_process_with_the_servers_number_gets_no_signal() {
    if !mounts() || !is_there("python3") {
        return;
    }
    let place = Place::with_volume("64M");
    let root = place.mount(&[]);
    let number = place.status()["pid"].to_string();
    let mut elsewhere = Command::new("unshare");
    elsewhere
        .args(["--pid", "--fork", "--mount-proc", "sh", "-c", ELSEWHERE, "sh"])
        .arg(place.path().join("said"));
    let output = elsewhere.arg(weir_program()).arg(&root).arg(number).output().unwrap();
    if output.status.code() == Some(99) {
        eprintln!("skipped: a process cannot be given a number here");
        return;
    }
    let told = text(&output.stdout);
    assert!(told.contains("its server cannot be restarted") && told.ends_with("ready\n"), "{told}");
    place.umount();
}

/// Says of an open file that its `fsync` orders, has the server restarted, and calls it; a lock of another process is there still.
const SAYER: &str = r#"
import fcntl, os, struct, subprocess, sys
WEIR, root = sys.argv[1:]
SET_SYNC, ORDER_WRITES = 0x40045703, 0x5704
f = os.open(root + "/said", os.O_RDWR | os.O_CREAT)
fcntl.ioctl(f, SET_SYNC, struct.pack("I", 1))
fcntl.ioctl(f, ORDER_WRITES)
os.write(f, bytes(8192))
fcntl.flock(f, fcntl.LOCK_EX); fcntl.lockf(f, fcntl.LOCK_EX)
for round in range(2): subprocess.run([WEIR, "restart", root], check=True)
for round in range(3): os.fsync(f)
for round in range(5): os.pwrite(f, b"order", 100)
other = os.open(root + "/said", os.O_RDWR)
try: fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB); sys.exit("the lock is lost")
except BlockingIOError: pass
unsaid = os.open(root + "/unsaid", os.O_RDWR | os.O_CREAT); os.fsync(unsaid)
"#;

#[test]
fn what_was_said_of_an_open_file_holds_in_the_next_server() {
    if !mounts() || !is_there("python3") {
        return;
    }
    for more in [&[][..], &["--no-open-requests"]] {
        let place = Place::with_volume("64M");
        let root = place.mount(more);
        runs(Command::new("python3").args(["-c", SAYER, weir_program()]).arg(&root));
        let status = place.status();
        let calls = |name: &str| status[name].as_u64().unwrap();
        assert_eq!((calls("calls_ordered"), calls("calls_durable")), (8, 1), "{more:?}");
        place.umount();
        place.check();
    }
}

/// The server is killed at any time of a handover: what was acknowledged is there after the next mount, and nothing is
/// damaged; with each option that changes what is handed over.
#[test]
fn a_kill_in_a_handover_loses_nothing_that_is_durable() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let mut restarted = 0;
    let options: [&[&str]; 4] = [&[], &["--moment", "50ms"], &["--writeback-cache"], &["--no-open-requests"]];
    for round in 0..rounds().min(16) {
        let mut server = place.serve_as(options[round as usize % options.len()]);
        let file = place.mountpoint().join("numbers");
        let gone = File::create(place.mountpoint().join("gone")).unwrap();
        gone.write_all_at(&[7; 40_000], 0).unwrap();
        fs::remove_file(place.mountpoint().join("gone")).unwrap();
        let durable = Arc::<AtomicU64>::default();
        let (count, written) = (Arc::clone(&durable), file.clone());
        let writer = thread::spawn(move || {
            let mut file = File::create(written).unwrap();
            for number in 0_u64.. {
                if file.write_all(&number.to_le_bytes()).and_then(|()| file.sync_data()).is_err() {
                    break;
                }
                count.store(number + 1, Ordering::Release);
            }
        });
        wait_until("it writes", || durable.load(Ordering::Acquire) > 10);
        runs(Command::new("kill").args(["-USR2", &server.process().id().to_string()]));
        thread::sleep(Duration::from_millis(5 * round));
        server.kill();
        drop(gone);
        writer.join().unwrap();
        let root = place.mountpoint();
        works(&["umount", root.to_str().unwrap()]);
        place.mount(&[]);
        check_numbers(&fs::read(&file).unwrap(), durable.load(Ordering::Acquire));
        assert!(!root.join("gone").exists());
        restarted += u64::from(place.status()["restarts"].as_u64() == Some(0));
        place.umount();
        place.check();
    }
    assert_eq!(restarted, rounds().min(16));
}

/// A copy of the program, to be replaced.
fn own_program(place: &Place) -> PathBuf {
    let program = place.path().join("weir");
    install(&program, &fs::read(weir_program()).unwrap());
    program
}

/// As a package manager does it: the new file takes the name of the old one. Another process writes it: the children that other tests
/// start have it open for a moment otherwise, and what is open for writing cannot be started.
fn install(program: &Path, content: &[u8]) {
    let (source, new) = (program.with_extension("source"), program.with_extension("new"));
    fs::write(&source, content).unwrap();
    runs(Command::new("cp").args([&source, &new]));
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(&new, program).unwrap();
}

/// The next program is found by the path that the first one was started by, whatever a link in it leads to by then.
#[test]
fn a_link_that_was_turned_leads_to_the_next_program() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let (volume, root) = (place.volume(), place.mountpoint());
    let program = |version: &str| place.path().join(version).join("weir");
    for version in ["one", "two"] {
        fs::create_dir(place.path().join(version)).unwrap();
        install(&program(version), &fs::read(weir_program()).unwrap());
    }
    let link = place.path().join("current");
    let by_path = format!("PATH={}:$PATH; weir \"$@\"", link.display());
    let by_helper = place.path().join("mount.weir");
    symlink("current/weir", &by_helper).unwrap();
    let (volume, root) = (volume.to_str().unwrap(), root.to_str().unwrap());
    let linked = program("current");
    let ways: [&[&str]; 3] = [
        &[linked.to_str().unwrap(), "mount", volume, root],
        &["sh", "-c", &by_path, "sh", "mount", volume, root],
        &[by_helper.to_str().unwrap(), volume, root],
    ];
    for way in ways {
        symlink("one", &link).unwrap();
        runs(Command::new(way[0]).args(&way[1..]));
        fs::remove_file(&link).unwrap();
        symlink("two", &link).unwrap();
        works(&["restart", root]);
        let process = fs::read_link(format!("/proc/{}/exe", place.status()["pid"])).unwrap();
        assert_eq!(process, program("two"), "{way:?}");
        place.umount();
        fs::remove_file(&link).unwrap();
    }
}

#[test]
fn a_broken_program_leaves_the_old_server_serving() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let program = own_program(&place);
    let (volume, root) = (place.volume(), place.mountpoint());
    runs(Command::new(&program).args(["mount", volume.to_str().unwrap(), root.to_str().unwrap()]));
    let kept = File::options().read(true).write(true).create_new(true).open(root.join("kept")).unwrap();
    kept.write_all_at(b"kept", 0).unwrap();
    let goes_on = |restarts: u64| {
        let mut bytes = [0; 4];
        kept.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"kept");
        fs::write(root.join("new"), "new").unwrap();
        assert_eq!(place.status()["restarts"], restarts);
    };
    let broken: [(&[u8], &str); 3] = [
        (b"no program", "Exec format error"),
        (b"#!/bin/sh\necho what is that >&2; exit 2\n", "what is that"),
        (b"#!/bin/sh\nkill -9 $$\n", "signal: 9"),
    ];
    for (content, told) in broken {
        install(&program, content);
        fails(&["restart", root.to_str().unwrap()], &["the server was not restarted, and goes on", told]);
        goes_on(0);
        assert!(place.status()["restart_refused"].as_str().unwrap().contains(told));
    }
    fs::remove_file(&program).unwrap();
    fails(&["restart", root.to_str().unwrap()], &["No such file"]);
    goes_on(0);
    // One that vanishes between the check and the start: the old program goes on, in its next life.
    install(&program, b"#!/bin/sh\nrm \"$0\"\n");
    works(&["restart", root.to_str().unwrap()]);
    goes_on(1);
    install(&program, &fs::read(weir_program()).unwrap());
    works(&["restart", root.to_str().unwrap()]);
    goes_on(2);
    drop(kept);
    place.umount();
    place.check();
}

#[test]
fn what_cannot_be_handed_over_is_refused_by_its_name() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let root = place.mount(&[]);
    let directory = root.to_str().unwrap();
    let atomic = File::create(root.join("atomic")).unwrap();
    setxattr(root.join("atomic"), "user.weir.atomic", b"1", XattrFlags::empty()).unwrap();
    atomic.write_all_at(b"half", 0).unwrap();
    fails(&["restart", directory], &["the atomic file with inode", "update that is not finished"]);
    atomic.sync_all().unwrap();
    works(&["restart", directory]);
    drop(atomic);
    assert_eq!(fs::read(root.join("atomic")).unwrap(), b"half");
    place.umount();

    let place = Place::new();
    let directory = place.mountpoint();
    works(&["mount", "--device", "ufs20", "--size", "64M", directory.to_str().unwrap()]);
    fails(&["restart", directory.to_str().unwrap()], &["an emulated device is in the memory"]);
    place.umount();
    let image = place.path().join("f2fs.img");
    works(&["mkfs", "--type", "f2fs", image.to_str().unwrap(), "--size", "128M"]);
    works(&["mount", image.to_str().unwrap(), directory.to_str().unwrap()]);
    fails(&["restart", directory.to_str().unwrap()], &["only that of an ext4 filesystem"]);
    place.umount();
    fails(&["restart", place.path().to_str().unwrap()], &["no filesystem of Weir is mounted there"]);
}

/// A service manager sees one process that says again that it is ready, and metrics are served by the next server.
/// The next server opens a path. What is mounted may have been moved since, and another volume be there.
#[test]
fn a_volume_that_was_moved_is_not_looked_for() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let root = place.mount(&[]);
    let directory = root.to_str().unwrap();
    let file = File::create(root.join("file")).unwrap();
    let (volume, moved) = (place.volume(), place.path().join("moved"));
    fs::rename(&volume, &moved).unwrap();
    fails(&["restart", directory], &["is not at its path any more"]);
    works(&["mkfs", "--volume", volume.to_str().unwrap(), "--size", "64M"]);
    fails(&["restart", directory], &["is not at its path any more"]);
    file.write_all_at(b"goes on", 0).unwrap();
    fs::rename(&moved, &volume).unwrap();
    works(&["restart", directory]);
    file.write_all_at(b"still", 0).unwrap();
    drop(file);
    assert_eq!(fs::read(root.join("file")).unwrap(), b"stillon");
    place.umount();
    place.check();
}

#[test]
fn monitors_go_on() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let (metrics, log) = (place.path().join("metrics"), place.path().join("log"));
    let manager = ServiceManager::in_directory(place.path(), Duration::from_secs(30));
    let address = format!("unix:{}", metrics.display());
    let arguments = ["--metrics", &address, "--log", log.to_str().unwrap()];
    let mut server = place.serve_in(&arguments, &[manager.variable()]);
    assert_eq!(manager.next_message(), "READY=1\n");
    let root = place.mountpoint();
    works(&["restart", root.to_str().unwrap()]);
    assert_eq!(manager.next_message(), "READY=1\n");
    assert_eq!(place.status()["pid"], server.process().id());
    let mut stream = std::os::unix::net::UnixStream::connect(&metrics).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let answer = std::io::read_to_string(&mut stream).unwrap();
    assert!(answer.contains("weir_healthy 1"), "{answer}");
    let written = fs::read_to_string(&log).unwrap();
    assert!(written.contains("goes on with the mount"), "{written}");
    // The signal of the end, and a second restart in one.
    let process = server.process().id().to_string();
    runs(Command::new("kill").args(["-USR2", &process]));
    runs(Command::new("kill").args(["-TERM", &process]));
    assert!(server.wait());
    place.check();
}

#[test]
fn the_next_server_takes_nothing_that_no_server_has_sent() {
    let place = Place::new();
    let (volume, root) = (place.volume(), place.mountpoint());
    for option in ["--take-over", "--check-take-over"] {
        let arguments = ["mount", option, "--foreground", volume.to_str().unwrap(), root.to_str().unwrap()];
        let output = weir(&arguments).stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(error_of(&output).contains("standard input is no socket"), "{}", error_of(&output));
    }
}
