//! A server in a group of processes (cgroup) with a limit of memory, or of the processors' time: it lives under load, answers, and says
//! that it lives. Where groups or FUSE are not to be had, these tests say that they were skipped.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and tells what it measured"
)]
#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "it measures what programs wait")]

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::memory::peak_under_load;
use crate::support::service_manager::ServiceManager;
use crate::support::{Place, mounts, runs, wait_until, weir_program};

/// No call may take longer, nor may the server be silent: systemd kills one that is silent for `WatchdogSec=`.
const PATIENCE: Duration = Duration::from_secs(3);

/// A group of processes; removed when dropped, when it is empty.
struct Group {
    directory: PathBuf,
    is_new: bool,
}

impl Group {
    /// With these limits, of version 1 or 2 of the interface; none if no group can be made.
    fn new(controller: &str, one: &[(&str, &str)], two: &[(&str, &str)]) -> Option<Group> {
        let name = format!("weir-test-{}-{controller}", std::process::id());
        let root = Path::new("/sys/fs/cgroup");
        let versions = [(root.join(controller), one, false), (root.to_owned(), two, true)];
        let made = versions.into_iter().find_map(|(above, limits, is_new)| {
            let group = Group { directory: above.join(&name), is_new };
            // Of version 2 each directory above has to name what its groups are limited in.
            let _ = is_new.then(|| fs::write(above.join("cgroup.subtree_control"), format!("+{controller}")));
            fs::create_dir(&group.directory).ok()?;
            let set = |(file, limit): &(&str, &str)| {
                File::options()
                    .write(true)
                    .open(group.directory.join(file))
                    .and_then(|mut file| std::io::Write::write_all(&mut file, limit.as_bytes()))
            };
            limits.iter().all(|limit| set(limit).is_ok()).then_some(group)
        });
        if made.is_none() {
            eprintln!("skipped: this takes groups of processes that can be made");
        }
        made
    }

    /// A number of the group.
    fn number(&self, one: &str, two: &str) -> u64 {
        let file = self.directory.join(if self.is_new { two } else { one });
        fs::read_to_string(file).unwrap().trim().parse().unwrap()
    }

    /// A mount whose server is in the group, in the foreground.
    fn serve(&self, place: &Place, environment: &[(&str, String)]) -> Child {
        let script = r#"echo $$ >"$1/cgroup.procs" && exec "$2" mount --foreground "$3" "$4""#;
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(&self.directory).arg(weir_program());
        command.args([place.volume(), place.mountpoint()]).envs(environment.iter().cloned());
        let mut server = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut messages = BufReader::new(server.stderr.take().unwrap());
        let mut told = String::new();
        while messages.read_line(&mut told).unwrap() > 0 && !told.contains("mounted on") {}
        assert!(told.contains("mounted on"), "{told}");
        server
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.directory);
    }
}

/// The limit of the group is found, and the server stays below it with what the kernel keeps in its name.
#[test]
fn a_group_with_a_limit_of_memory_keeps_its_server() {
    if !mounts() {
        return;
    }
    let limit = (256 << 20).to_string();
    let limits = (&[("memory.limit_in_bytes", limit.as_str())], &[("memory.max", limit.as_str())]);
    let Some(group) = Group::new("memory", limits.0, limits.1) else { return };
    let place = Place::with_volume("2G");
    let mut server = group.serve(&place, &[]);
    let bound = place.status()["memory_bound_bytes"].as_u64().unwrap();
    assert!(bound <= 192 << 20, "{bound}");
    let peak = peak_under_load(&place, bound);
    let most = group.number("memory.max_usage_in_bytes", "memory.peak");
    println!("a bound of {bound} bytes: {peak} at most in the status, {most} in the group of {limit}");
    assert_eq!(place.status()["pid"], server.id());
    place.umount();
    assert!(server.wait().unwrap().success());
}

/// A fifth of a processor: calls are slower, none takes long, and the service manager hears of the server in time.
#[test]
fn a_quota_of_processors_leaves_calls_and_the_watchdog_in_time() {
    if !mounts() {
        return;
    }
    let two = [("cpu.max", "20000 100000")];
    let one = [("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "20000")];
    let Some(group) = Group::new("cpu", &one, &two) else { return };
    let place = Place::with_volume("256M");
    let manager = ServiceManager::in_directory(place.path(), PATIENCE);
    let watchdog = PATIENCE.as_micros().to_string();
    let environment = [manager.variable(), ("WATCHDOG_USEC", watchdog)];
    let mut server = group.serve(&place, &environment);
    let root = place.mountpoint();
    let loads: Vec<_> = (0..2)
        .map(|seed| {
            let file = File::create(root.join(seed.to_string())).unwrap();
            std::thread::spawn(move || longest_call(&file, Duration::from_secs(6)))
        })
        .collect();
    let mut heard = 0;
    while loads.iter().any(|load| !load.is_finished()) {
        manager.next_message();
        heard += 1;
    }
    let calls: Vec<_> = loads.into_iter().map(|load| load.join().unwrap()).collect();
    println!(
        "{calls:?} calls, and the longest, with a fifth of a processor; heard {heard} times of the server"
    );
    assert!(
        heard >= 5 && calls.iter().all(|(count, longest)| *count > 100 && *longest < PATIENCE),
        "{heard}, {calls:?}"
    );
    runs(Command::new("kill").arg(server.id().to_string()));
    wait_until("it has ended", || server.try_wait().unwrap().is_some());
    place.check();
}

/// Writes 64 KiB again and again, and makes each tenth durable; the number of calls, and the longest.
fn longest_call(file: &File, time: Duration) -> (u64, Duration) {
    let (began, bytes) = (Instant::now(), vec![7; 64 << 10]);
    let (mut calls, mut longest) = (0, Duration::ZERO);
    while began.elapsed() < time {
        let call = Instant::now();
        file.write_all_at(&bytes, calls % 256 * bytes.len() as u64).unwrap();
        if calls % 10 == 9 {
            file.sync_data().unwrap();
        }
        longest = longest.max(call.elapsed());
        calls += 1;
    }
    (calls, longest)
}
