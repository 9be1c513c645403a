//! `weir serve`: clients of other projects as judges, a server that is killed and comes back, clients that send nonsense,
//! and what the command says. Where a program is not to be had, these tests say that they were skipped.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::disallowed_methods, reason = "it ends a server that is busy")]

mod client;
mod vhost_user;

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Place, error_of, fails, is_there, run, runs, system, text, wait_until, weir, works};
use client::{Client, FUA};

/// A volume that is served by a socket beside it, until dropped.
struct Served {
    place: Place,
    server: Child,
    /// Kept open, so that the server can say something.
    told: BufReader<ChildStderr>,
    protocol: &'static str,
    more: Vec<&'static str>,
}

impl Served {
    fn new(size: &str, more: &[&'static str]) -> Served {
        Served::by("--nbd", size, more)
    }

    fn by(protocol: &'static str, size: &str, more: &[&'static str]) -> Served {
        let place = Place::new();
        works(&["volume", "create", place.volume().to_str().unwrap(), "--size", size]);
        let (server, told) = serve_by(protocol, &place, more);
        Served { place, server, told, protocol, more: more.to_vec() }
    }

    fn socket(&self) -> PathBuf {
        self.place.path().join("socket")
    }

    fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket().display())
    }

    fn client(&self) -> Client {
        Client::connect(&self.socket()).unwrap()
    }

    /// Kills the server and starts another one.
    fn restart(&mut self) {
        self.server.kill().unwrap();
        self.server.wait().unwrap();
        (self.server, self.told) = serve_by(self.protocol, &self.place, &self.more);
    }

    /// Ends the server by SIGTERM; whether it was content.
    fn end(&mut self) -> bool {
        kill_process(Pid::from_child(&self.server), Signal::TERM).unwrap();
        self.server.wait().unwrap().success()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn serve(place: &Place, more: &[&str]) -> (Child, BufReader<ChildStderr>) {
    serve_by("--nbd", place, more)
}

/// Starts a server and waits until clients can connect. One that was killed before may hold on to the volume and to its
/// socket for a moment, by processes that other tests are starting.
fn serve_by(protocol: &str, place: &Place, more: &[&str]) -> (Child, BufReader<ChildStderr>) {
    let (volume, socket) = (place.volume(), place.path().join("socket"));
    let address = format!("unix:{}", socket.display());
    let arguments = ["serve", "--foreground", volume.to_str().unwrap(), protocol, &address];
    let mut served = None;
    wait_until("it serves", || {
        let mut server = weir(&[&arguments[..], more].concat()).stderr(Stdio::piped()).spawn().unwrap();
        let mut messages = BufReader::new(server.stderr.take().unwrap());
        let mut told = String::new();
        while messages.read_line(&mut told).unwrap() > 0 && !told.contains("serving on") {}
        if told.contains("serving on") {
            served = Some((server, messages));
            return true;
        }
        server.wait().unwrap();
        assert!(told.contains("in use") || told.contains("listens there"), "{told}");
        false
    });
    served.unwrap()
}

fn shell(command: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-e", "-c", command]);
    shell
}

#[test]
fn tools_of_qemu_read_what_they_wrote() {
    if !is_there("qemu-img") || !is_there("qemu-io") {
        return;
    }
    let mut served = Served::new("128M", &[]);
    let (uri, directory) = (served.uri(), served.place.path().display().to_string());
    let source = format!("{directory}/source");
    let mut content = vec![0; 40 << 20];
    Pcg64::seed_from_u64(1).fill(&mut content[3 << 20..5 << 20]);
    Pcg64::seed_from_u64(2).fill(&mut content[30_000_000..30_010_000]);
    fs::write(&source, &content).unwrap();
    runs(&mut shell(&format!("qemu-img convert -n -f raw -O raw {source} '{uri}'")));
    let map: serde_json::Value =
        serde_json::from_str(&runs(&mut shell(&format!("qemu-img map --output=json '{uri}'")))).unwrap();
    let data = map.as_array().unwrap().iter().filter(|extent| extent["data"] == true);
    let data_bytes: u64 = data.map(|extent| extent["length"].as_u64().unwrap()).sum();
    assert!((2 << 20..4 << 20).contains(&data_bytes), "{data_bytes} bytes of data: {map}");
    let by_qemu_io = "-c 'write -P 7 1 4999' -c 'write -f -P 8 65536 65536' -c flush -c 'discard 65536 32768' \
                      -c 'write -z 100 50' -c 'read -P 0 65536 32768' -c 'read -P 8 98304 32768' -c 'read -P 0 100 50'";
    let told = runs(&mut shell(&format!("qemu-io -f raw --cache=none {by_qemu_io} '{uri}'")));
    assert!(!told.contains("failed"), "{told}");
    content[1..5000].fill(7);
    content[100..150].fill(0);
    content[98304..131_072].fill(8);
    let mut client = served.client();
    for (nth, expected) in content.chunks(1 << 20).enumerate() {
        assert!(client.read((nth as u64) << 20, 1 << 20).unwrap() == expected, "MiB {nth}");
    }
    assert!(served.end(), "it ends well");
    assert!(!served.socket().exists());
    works(&["volume", "check", served.place.volume().to_str().unwrap()]);
}

#[test]
fn tools_of_libnbd_and_nbdkit_agree() {
    if !is_there("nbdinfo") || !is_there("nbdcopy") || !is_there("nbdkit") {
        return;
    }
    let served = Served::new("128M", &[]);
    let (uri, directory) = (served.uri(), served.place.path().display().to_string());
    let told: serde_json::Value =
        serde_json::from_str(&runs(Command::new("nbdinfo").args(["--json", &uri]))).unwrap();
    let export = &told["exports"][0];
    for can in ["can_flush", "can_fua", "can_multi_conn", "can_trim", "can_zero", "can_fast_zero", "can_df"] {
        assert_eq!(export[can], true, "{can} of {told}");
    }
    assert_eq!((&told["structured"], &export["is_read_only"]), (&true.into(), &false.into()));
    let mut content = vec![0; 40 << 20];
    Pcg64::seed_from_u64(3).fill(&mut content[1_000_000..9_000_000]);
    fs::write(format!("{directory}/source"), &content).unwrap();
    // nbdkit reads back what is written through it, and compares; nbdcopy has several connections.
    let checked = "nbdkit -U - --filter=checkwrite nbd";
    runs(&mut shell(&format!("nbdcopy --flush {directory}/source '{uri}'")));
    runs(&mut shell(&format!("{checked} uri='{uri}' --run 'nbdcopy --flush {directory}/source $uri'")));
    runs(&mut shell(&format!("nbdcopy '{uri}' {directory}/copy")));
    let copy = fs::read(format!("{directory}/copy")).unwrap();
    assert!(copy[..content.len()] == content && copy[content.len()..].iter().all(|&byte| byte == 0));
    let map = runs(Command::new("nbdinfo").args(["--map", "--totals", &uri]));
    assert!(map.contains("data") && map.contains("hole,zero"), "{map}");
}

#[test]
fn fio_verifies_what_it_wrote() {
    if !is_there("fio") || !run("fio", &["--enghelp=nbd".as_ref()]).0 {
        return;
    }
    let served = Served::new("128M", &[]);
    let job = "--name=j --ioengine=nbd --rw=randrw --bsrange=512-64k --iodepth=32 --size=32M --verify=crc32c --fsync=32";
    runs(&mut shell(&format!("fio {job} --verify_fatal=1 --verify_state_save=0 --uri='{}'", served.uri())));
}

/// What a client wrote last to each block, and what of it has to be there when the server was killed.
struct Ledger {
    written: Vec<u64>,
    kept: Vec<u64>,
    /// All has to be there that was answered, not only what was flushed.
    keeps_answered: bool,
}

/// Writes until the server is killed, by FUA, or flushing now and then; counts what is answered.
fn write_until_killed(
    client: &mut Client,
    ledger: &mut Ledger,
    random: &mut Pcg64,
    (version, answers): (&mut u64, &AtomicU64),
) {
    loop {
        *version += 1;
        let (block, fua) = (random.random_range(0..ledger.written.len()), random.random_range(0..4) == 0);
        let content = version.to_le_bytes().repeat(512);
        // It may be there although no message has said so.
        ledger.written[block] = *version;
        let Ok(error) = client.write(block as u64 * 4096, &content, if fua { FUA } else { 0 }) else {
            return;
        };
        assert_eq!(error, 0);
        answers.fetch_add(1, Ordering::Relaxed);
        if fua || ledger.keeps_answered {
            ledger.kept[block] = *version;
        }
        if random.random_range(0..8) == 0 {
            let before = ledger.written.clone();
            match client.flush() {
                Ok(error) => assert_eq!(error, 0),
                Err(_) => return,
            }
            ledger.kept = before;
        }
    }
}

/// The process ends and the disk goes on: what was answered as durable is there, and connections are taken up again.
#[test]
fn a_killed_server_comes_back_with_all_that_was_durable() {
    let kept = kill_a_server(&[], false);
    assert!(kept.is_ok_and(|kept| kept > 100));
}

/// Without a flush, too. The control: a server that answers what is only in its memory loses some of that.
#[test]
fn a_killed_server_that_answers_from_the_disk_comes_back_with_all_that_was_answered() {
    let kept = kill_a_server(&["--answer", "disk"], true);
    assert!(kept.is_ok_and(|kept| kept > 100));
    // A busy machine may need some attempts.
    let error = (0..5).find_map(|_| kill_a_server(&[], true).err());
    assert!(error.is_some_and(|error| error.contains("block")), "nothing is lost that was in memory only");
}

/// Kills a server some times while a client writes; how many blocks had to be there, or what was not.
#[expect(clippy::disallowed_methods, reason = "it kills a server while a client writes")]
fn kill_a_server(options: &[&'static str], keeps_answered: bool) -> Result<usize, String> {
    let mut served = Served::new("128M", options);
    let mut random = Pcg64::seed_from_u64(4);
    let mut ledger = Ledger { written: vec![0; 200], kept: vec![0; 200], keeps_answered };
    let (mut version, mut kept) = (0, 0);
    for round in 0..6 {
        let (mut client, answers) = (served.client(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let counts = (&mut version, &answers);
            let writing = scope.spawn(|| write_until_killed(&mut client, &mut ledger, &mut random, counts));
            std::thread::sleep(Duration::from_millis(100 + 70 * round));
            // However busy the machine is, the client has just got an answer.
            let before = answers.load(Ordering::Relaxed);
            wait_until("some are answered", || answers.load(Ordering::Relaxed) > before.max(40));
            served.restart();
            writing.join().unwrap();
        });
        let mut client = served.client();
        for (block, (written, must)) in ledger.written.iter_mut().zip(&mut ledger.kept).enumerate() {
            let content = client.read(block as u64 * 4096, 4096).unwrap();
            let found = u64::from_le_bytes(content[..8].try_into().unwrap());
            assert!(content == found.to_le_bytes().repeat(512), "block {block} is of two versions");
            if !(*must..=*written).contains(&found) {
                return Err(format!("block {block}: {found}, of {must} to {written}"));
            }
            (*written, *must) = (found, found);
        }
        kept += ledger.kept.iter().filter(|version| **version > 0).count();
    }
    Ok(kept)
}

#[test]
fn clients_that_send_nonsense_are_dropped_and_others_served() {
    let served = Served::new("128M", &[]);
    let mut client = served.client();
    for nth in 0..40_u64 {
        let mut other = UnixStream::connect(served.socket()).unwrap();
        let nonsense = [b"\0\0\0\x03GET / HTTP/1.1\r\n\r\n".to_vec(), vec![0xFF; 100], vec![]];
        let _ = other.write_all(&nonsense[nth as usize % 3]);
        assert_eq!(client.write(nth * 4096, &[nth as u8; 4096], FUA).unwrap(), 0);
        if !nonsense[nth as usize % 3].is_empty() {
            // The greeting, and the end.
            let _ = other.read_to_end(&mut Vec::new());
        }
    }
    for nth in 0..40_u64 {
        assert_eq!(client.read(nth * 4096, 4096).unwrap(), [nth as u8; 4096]);
    }
}

#[test]
fn a_socket_is_for_its_user_and_replaced_when_nobody_listens() {
    let mut served = Served::new("128M", &[]);
    assert_eq!(fs::metadata(served.socket()).unwrap().permissions().mode() & 0o777, 0o600);
    let other = served.place.path().join("b.weir");
    works(&["volume", "create", other.to_str().unwrap(), "--size", "128M"]);
    let refused = |address: &str, words: &str| {
        let output = weir(&["serve", "-f", other.to_str().unwrap(), "--nbd", address]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", error_of(&output));
        assert!(error_of(&output).contains(words), "{}", error_of(&output));
    };
    let address = format!("unix:{}", served.socket().display());
    refused(&address, "a server listens there already");
    refused("udp:1", "unix:PATH");
    let file = served.place.path().join("file");
    File::create(&file).unwrap();
    refused(&format!("unix:{}", file.display()), "is no socket");
    // Alone it would fit.
    refused(&format!("unix:{}", "a".repeat(101)), "101 bytes, and 100 fit");
    // It was killed, so its socket is still there.
    served.restart();
    served.client().write(0, &[1; 4096], 0).unwrap();
}

#[test]
fn a_server_in_the_background_answers_until_sigterm() {
    let place = Place::new();
    let volume = place.volume();
    works(&["volume", "create", volume.to_str().unwrap(), "--size", "128M"]);
    let (socket, log) = (place.path().join("socket"), place.path().join("log"));
    let address = format!("unix:{}", socket.display());
    let arguments = ["serve", volume.to_str().unwrap(), "--nbd", &address, "--sync", "order"];
    let output = weir(&arguments).arg("--log").arg(&log).output().unwrap();
    assert!(output.status.success(), "{}", error_of(&output));
    assert!(error_of(&output).contains("nbd+unix:///?socket=/"), "{}", error_of(&output));
    let mut client = Client::connect(&socket).unwrap();
    for nth in 0..100_u64 {
        assert_eq!(client.write(nth * 4096, &[5; 4096], 0).unwrap(), 0);
        assert_eq!(client.flush().unwrap(), 0);
    }
    let by_name = format!("serve.*{}", volume.display());
    let found = system("pgrep").args(["-f", &by_name]).output().unwrap();
    let pid: i32 = text(&found.stdout).lines().next().unwrap().trim().parse().unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
    wait_until("the socket is gone", || !socket.exists());
    let (mut server, _told) = serve(&place, &["--read-only"]);
    let mut client = Client::connect(&socket).unwrap();
    assert_eq!(client.read(99 * 4096, 4096).unwrap(), [5; 4096]);
    const EPERM: u32 = 1;
    assert_eq!(client.write(0, &[1; 4096], 0).unwrap(), EPERM);
    server.kill().unwrap();
    server.wait().unwrap();
}

/// What `weir status` says of the server of a socket, for scripts and for people.
#[test]
fn a_server_says_how_it_serves() {
    let mut served = Served::new("64M", &["--answer", "disk"]);
    let address = format!("unix:{}", served.socket().display());
    let status =
        || -> serde_json::Value { serde_json::from_str(&works(&["status", &address, "--json"])).unwrap() };
    assert_eq!(status()["served"]["clients"], 0);
    let mut client = served.client();
    assert_eq!(client.write(0, &[5; 4096], FUA).unwrap(), 0);
    let told = status();
    assert_eq!(told["pid"], served.server.id());
    let of_server = &told["served"];
    assert_eq!((&of_server["clients"], &of_server["clients_max"]), (&1.into(), &32.into()));
    assert_eq!((&of_server["sync"], &of_server["answer"]), (&"durable".into(), &"disk".into()));
    assert_eq!(of_server["read_only"], false);
    assert!(of_server["bytes"].as_u64().unwrap() > 50 << 20);
    assert_eq!((&told["health"]["healthy"], &told["storage"]["kind"]), (&true.into(), &"a volume".into()));
    assert!(
        told["storage"]["flushes"].as_u64().unwrap() > 0 && told["requests"]["under_way_max"] == 1,
        "{told}"
    );
    assert!(told.get("blocks").is_none(), "the space is the guest's to know");
    let told = works(&["status", &address]);
    for words in ["healthy", "when the disk has it", "1, at most 32", "loss window so far"] {
        assert!(told.contains(words), "{words}: {told}");
    }
    let by_path = served.socket().display().to_string();
    assert!(told.contains("0 now, 1 at the highest") && told.contains("\nopening "), "{told}");
    let link = served.place.path().join("link");
    symlink("socket", &link).unwrap();
    for named in [&by_path, &format!("{by_path}.status"), &format!("{address}.status")] {
        assert_eq!(works(&["status", named]).lines().next(), told.lines().next(), "{named}");
    }
    for named in [link.display().to_string(), format!("unix:{}", link.display())] {
        assert_eq!(works(&["status", &named]).lines().next(), told.lines().next(), "{named}");
    }
    fails(&["umount", &by_path], &["is served by `weir serve`"]);
    served.server.kill().unwrap();
    served.server.wait().unwrap();
    fails(&["status", &by_path], &["no `weir serve` listens there"]);
    served.restart();
    assert!(served.end());
    fails(&["status", &address], &["no `weir serve` listens there"]);
    for command in [&["status"][..], &["umount"], &["volume", "grow"]] {
        for port in ["tcp:10809", "tcp:127.0.0.1:80", "tcp:999999", "tcp:x"] {
            let words = [&format!("{port}: a server by TCP"), "ps -C weir", "unix:PATH"];
            fails(&[command, &[port]].concat(), &words);
        }
        fails(&[command, &["unix:"]].concat(), &["lacks the path", "unix:PATH"]);
    }
    assert!(!served.place.path().join("socket.status").exists());
}

/// A program of another kind has the sockets.
#[test]
fn a_server_that_is_no_weir_is_told_apart() {
    let place = Place::new();
    let other = UnixListener::bind(place.path().join("other.status")).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| other.accept().unwrap().0.write_all(b"HTTP/1.1 400 Bad Request").unwrap());
        let address = format!("unix:{}", place.path().join("other").display());
        fails(&["status", &address], &["what listens there is no `weir serve`", "another version"]);
    });
}

#[test]
fn what_is_no_volume_is_not_served_and_the_message_says_how_it_can_be() {
    let place = Place::new();
    let path = |name: &str| place.path().join(name).display().to_string();
    let (image, unknown, socket) = (path("image"), path("unknown"), format!("unix:{}", path("socket")));
    works(&["mkfs", &image, "--size", "64M"]);
    fs::write(&unknown, [7; 1 << 20]).unwrap();
    for file in [&image, &unknown] {
        fails(&["serve", "-f", file, "--nbd", &socket], &["weir volume create", "qemu-img convert"]);
    }
    let url = format!("file://{}", path("store"));
    fails(&["serve", &url, "--nbd", &socket], &["a URL cannot be served", "weir restore"]);
    let volume = path("volume");
    works(&["volume", "create", &volume, "--size", "64M"]);
    fails(&["ls", &volume], &["it holds no ext4 filesystem", "weir serve", "weir mkfs --volume"]);
}

/// What a client has flushed is in the store before the answer with `--sync remote`; the rest when the server has ended.
#[test]
fn a_served_volume_is_shipped() {
    let place = Place::new();
    let volume = place.volume().to_str().unwrap().to_owned();
    works(&["volume", "create", &volume, "--size", "64M"]);
    let store = place.path().join("store");
    fs::create_dir(&store).unwrap();
    let url = format!("file://{}", store.display());
    let restored = |name: &str| {
        let copy = place.path().join(name).to_str().unwrap().to_owned();
        works(&["restore", &url, &copy]);
        let copies = Place::new();
        fs::rename(&copy, copies.volume()).unwrap();
        let (mut server, _told) = serve(&copies, &["--read-only"]);
        let read = Client::connect(&copies.path().join("socket")).unwrap().read(0, 8192).unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
        read
    };
    let (mut server, _told) = serve(&place, &["--replicate", &url, "--sync", "remote"]);
    let mut client = Client::connect(&place.path().join("socket")).unwrap();
    assert_eq!(client.write(0, &[7; 4096], 0).unwrap(), 0);
    assert_eq!(client.flush().unwrap(), 0);
    assert_eq!(restored("first"), [[7; 4096], [0; 4096]].concat());
    assert_eq!(client.write(4096, &[8; 4096], 0).unwrap(), 0);
    let address = format!("unix:{}", place.path().join("socket").display());
    let told: serde_json::Value = serde_json::from_str(&works(&["status", &address, "--json"])).unwrap();
    assert!(
        told["replication"]["shipped"].as_u64().unwrap() > 0 && told["served"]["sync"] == "remote",
        "{told}"
    );
    assert_eq!(told["replication"]["url"], url);
    let told = works(&["status", &address]);
    assert!(told.contains(&format!("{:<24}{url}\n", "object store")), "{told}");
    kill_process(Pid::from_child(&server), Signal::TERM).unwrap();
    assert!(server.wait().unwrap().success());
    assert_eq!(restored("second"), [[7; 4096], [8; 4096]].concat());
    fails(&["serve", "-f", &volume, "--nbd", &address, "--sync", "remote"], &["--replicate"]);
    works(&["volume", "check", &volume]);
}

/// A sparse volume on a disk of the host that runs full.
#[test]
fn a_full_disk_below_is_told_as_no_space() {
    const ENOSPC: u32 = 28;
    let place = Place::new();
    let below = place.path().join("below");
    fs::create_dir(&below).unwrap();
    let mounted = system("mount").args(["-t", "tmpfs", "-o", "size=48M", "none"]).arg(&below).status();
    if !mounted.is_ok_and(|status| status.success()) {
        eprintln!("skipped: this takes a mount of tmpfs");
        return;
    }
    let volume = below.join("a.weir");
    File::create(&volume).unwrap().set_len(400 << 20).unwrap();
    works(&["volume", "create", volume.to_str().unwrap()]);
    let socket = place.path().join("socket");
    let address = format!("unix:{}", socket.display());
    let arguments = ["serve", "-f", volume.to_str().unwrap(), "--nbd", &address];
    let mut server = weir(&arguments).stderr(Stdio::null()).spawn().unwrap();
    wait_until("it listens", || Client::connect(&socket).is_ok());
    let mut client = Client::connect(&socket).unwrap();
    let content = vec![3; 1 << 20];
    let error = (0..100).map(|nth| client.write(nth << 20, &content, FUA).unwrap()).find(|error| *error != 0);
    assert_eq!(error, Some(ENOSPC));
    server.kill().unwrap();
    server.wait().unwrap();
    let _ = system("umount").arg("-l").arg(&below).status();
}

#[test]
fn a_served_volume_grows_and_clients_see_it_when_they_connect_again() {
    let mut served = Served::new("64M", &[]);
    let mut client = served.client();
    let before = client.bytes();
    client.write(0, &[7; 8192], 0).unwrap();
    let asked = format!("unix:{}", served.socket().display());
    let told = works(&["volume", "grow", &asked, "--size", "1G"]);
    assert!(told.contains("a volume of 95"), "{told}");
    // The one that was there goes on.
    assert_eq!(client.read(0, 8192).unwrap(), [7; 8192]);
    let mut again = served.client();
    assert!(again.bytes() > before * 10, "{before} and {}", again.bytes());
    again.write(again.bytes() - 4096, &[8; 4096], 0).unwrap();
    assert!(works(&["volume", "grow", &asked]).contains("this size already"));
    fails(&["volume", "grow", &asked, "--size", "64M"], &["larger than that"]);
    let status: serde_json::Value = serde_json::from_str(&works(&["status", &asked, "--json"])).unwrap();
    assert_eq!(status["served"]["bytes"], again.bytes());
    assert!(served.end());
    works(&["volume", "check", served.place.volume().to_str().unwrap()]);
}

/// What is served read-only lies in memory as far as it is changed, so growing it would be forgotten.
#[test]
fn a_volume_that_is_served_read_only_does_not_grow() {
    let place = Place::new();
    let volume = place.volume();
    works(&["volume", "create", volume.to_str().unwrap(), "--size", "64M"]);
    File::options().write(true).open(&volume).unwrap().set_len(256 << 20).unwrap();
    let (server, told) = serve(&place, &["--read-only"]);
    let mut served = Served { place, server, told, protocol: "--nbd", more: vec!["--read-only"] };
    let before = served.client().bytes();
    let asked = format!("unix:{}", served.socket().display());
    for more in [&[][..], &["--size", "256M"], &["--size", "1G"]] {
        fails(&[&["volume", "grow", &asked], more].concat(), &["only read"]);
    }
    assert_eq!(served.client().bytes(), before);
    assert!(served.end());
    assert_eq!(fs::metadata(&volume).unwrap().len(), 256 << 20);
    assert!(works(&["volume", "info", volume.to_str().unwrap()]).contains("on disk           64 MiB"));
}

/// SIGTERM while a volume is being made larger ends the server when it is.
#[test]
fn a_server_that_is_ended_while_its_volume_grows_ends_well() {
    for milliseconds in [2, 5, 10, 20, 40, 80] {
        let mut served = Served::new("64M", &[]);
        let socket = format!("unix:{}", served.socket().display());
        let grow = ["volume", "grow", &socket, "--size", "8G"];
        let mut growing = weir(&grow).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(milliseconds));
        assert!(served.end(), "ended after {milliseconds} ms");
        growing.wait().unwrap();
        works(&["volume", "check", served.place.volume().to_str().unwrap()]);
    }
}

/// What is no request gets the status, and too much gets no answer that helps.
#[test]
fn what_else_is_sent_to_the_socket_of_the_status_does_no_harm() {
    let served = Served::new("64M", &[]);
    let socket = served.place.path().join("socket.status");
    for sent in [&b"nonsense"[..], b"grow", b"grow 1 2 3", b"create a", &[0xFF; 5000], b""] {
        let mut stream = UnixStream::connect(&socket).unwrap();
        let _ = stream.write_all(sent);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut told = Vec::new();
        let _ = stream.read_to_end(&mut told);
        assert!(!told.starts_with(b"done"), "{sent:?}");
    }
    // One that sends nothing and does not say so waits a moment.
    let mut told = Vec::new();
    UnixStream::connect(&socket).unwrap().read_to_end(&mut told).unwrap();
    assert!(told.starts_with(b"{"));
}
