//! A mount with the kernel's writeback cache: what programs write stays with the kernel for a while, and whatever is
//! promised holds all the same. A killed server loses what it was not handed. Where FUSE is not to be had, or python3,
//! these tests say that they were skipped.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod support;

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::{OFlags, XattrFlags, setxattr, syncfs};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use support::{Place, Server, error_of, is_there, mounts, runs, weir};

const CACHED: &[&str] = &["--writeback-cache"];
const BLOCK: u64 = 4096;

/// One test at a time: to start a program closes copies of all files that this process has open, and closing hands over.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn place() -> Option<Place> {
    mounts().then(|| Place::with_volume("256M"))
}

/// A server with the cache, and two files of two pages each that are durable.
fn served(more: &[&str]) -> Option<(Place, Server, [File; 2])> {
    let place = place()?;
    let server = place.serve_as(&[CACHED, more].concat());
    let files = ["first", "later"].map(|name| {
        let mut options = File::options();
        let file =
            options.read(true).write(true).create(true).truncate(true).open(place.mountpoint().join(name));
        let file = file.unwrap();
        file.write_all_at(&[1; 2 * BLOCK as usize], 0).unwrap();
        file.sync_all().unwrap();
        file
    });
    Some((place, server, files))
}

/// What a killed server has left of both files. Those that are open are closed when it is dead.
fn left<F>(place: &Place, mut server: Server, files: F) -> [Vec<u8>; 2] {
    server.kill();
    drop(files);
    place.unmount();
    place.mount(&[]);
    let left = ["first", "later"].map(|name| fs::read(place.mountpoint().join(name)).unwrap());
    place.end();
    left
}

/// Another program, which calls an ioctl on the first file when it is told to. It is started before anything is written,
/// and lives until the server is dead: to start a program closes files in it, which hands over, and so does to end it.
struct Other(Child, BufReader<ChildStdout>);

impl Other {
    fn start(root: &Path) -> Other {
        let story = r#"
import fcntl, os, sys
fd = os.open("first", os.O_RDONLY)
print("ready", flush=True)
for line in sys.stdin:
    fcntl.ioctl(fd, int(line, 16))
    print("done", flush=True)
"#;
        let mut command = Command::new("python3");
        command.args(["-c", story]).current_dir(root).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut other = Other(child, output);
        assert_eq!(other.told(), "ready");
        other
    }

    fn told(&mut self) -> String {
        let mut line = String::new();
        self.1.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn calls(&mut self, number: &str) {
        writeln!(self.0.stdin.as_mut().unwrap(), "{number}").unwrap();
        assert_eq!(self.told(), "done");
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Has the server make durable what it has, and only that: the kernel hands over nothing for it.
fn make_durable(place: &Place) {
    setxattr(place.mountpoint(), "user.weir.status", b"sync", XattrFlags::empty()).unwrap();
}

/// The first file is written and ordered, in one way or the other, then the second is written and made durable: the first
/// is there. What `start` gives lives until the server is dead.
#[track_caller]
fn is_ordered_with<T>(more: &[&str], start: impl Fn(&Path) -> T, order: impl Fn(&File, &mut T)) {
    let Some((place, server, [first, later])) = served(more) else { return };
    let mut started = start(&place.mountpoint());
    first.write_all_at(&[2; 100], 0).unwrap();
    first.write_all_at(&[2; 100], 5 * BLOCK).unwrap();
    order(&first, &mut started);
    later.write_all_at(&[3; 100], 0).unwrap();
    later.sync_all().unwrap();
    make_durable(&place);
    let [first, later] = left(&place, server, (first, later, started));
    assert_eq!(later[..100], [3; 100]);
    assert_eq!(first.len() as u64, 5 * BLOCK + 100);
    assert_eq!(
        (&first[..101], &first[5 * BLOCK as usize..]),
        (&[&[2; 100][..], &[1]].concat()[..], &[2; 100][..])
    );
}

#[track_caller]
fn is_ordered_by(more: &[&str], order: impl Fn(&File)) {
    is_ordered_with(more, |_| (), |file, ()| order(file));
}

/// Without that, what was written is with the kernel, and lost: else the others would prove nothing.
#[test]
fn what_nothing_orders_stays_with_the_kernel() {
    let _alone = alone();
    let Some((place, server, [first, later])) = served(&[]) else { return };
    first.write_all_at(&[2; 100], 0).unwrap();
    make_durable(&place);
    let [first, _] = left(&place, server, [first, later]);
    assert_eq!(first, [1; 2 * BLOCK as usize]);
}

#[test]
fn synchronised_is_durable() {
    let _alone = alone();
    is_ordered_by(&[], |file| file.sync_all().unwrap());
    is_ordered_by(&[], |file| file.sync_data().unwrap());
}

#[test]
fn the_librarys_barriers_order() {
    let _alone = alone();
    is_ordered_by(&[], |file| assert_eq!(weir::fbarrier(file.as_raw_fd()), 0));
    is_ordered_by(&[], |file| assert_eq!(weir::fdatabarrier(file.as_raw_fd()), 0));
}

#[test]
fn the_ioctls_order_for_who_knows_nothing_of_the_cache() {
    let _alone = alone();
    if is_there("python3") {
        is_ordered_with(&[], Other::start, |_, other| other.calls("0x5701"));
        is_ordered_with(&[], Other::start, |_, other| other.calls("0x5702"));
    }
}

#[test]
fn fsync_that_orders_only_hands_over_what_is_written() {
    let _alone = alone();
    is_ordered_by(&["--sync", "order"], |file| file.sync_data().unwrap());
    is_ordered_by(&[], |file| {
        rustix::fs::fsetxattr(file, "user.weir.sync", b"order", XattrFlags::empty()).unwrap();
        file.sync_all().unwrap();
    });
}

/// Closing hands over; that is no promise of `close`, but many count on it.
#[test]
fn closing_hands_over_what_is_written() {
    let _alone = alone();
    is_ordered_by(&[], |file| drop(file.try_clone().unwrap()));
}

#[test]
fn o_dsync_is_durable_and_direct_writes_go_past_the_cache() {
    let _alone = alone();
    for (flags, is_direct) in
        [(OFlags::from_bits_retain(0o10000), false), (OFlags::SYNC, false), (OFlags::DIRECT, true)]
    {
        let Some((place, server, files)) = served(&[]) else { return };
        let path = place.mountpoint().join("first");
        let before = files[0].metadata().unwrap().modified().unwrap();
        a_tick_later();
        let file = File::options().write(true).custom_flags(flags.bits().cast_signed()).open(&path).unwrap();
        file.write_all_at(&[2; BLOCK as usize], BLOCK).unwrap();
        let mut seen = [0; BLOCK as usize];
        files[0].read_exact_at(&mut seen, BLOCK).unwrap();
        assert_eq!(seen, [2; BLOCK as usize], "a reader through the cache sees it");
        assert!(files[0].metadata().unwrap().modified().unwrap() > before);
        assert_eq!(
            weir::order_writes(file.as_raw_fd()),
            is_direct,
            "writes that come one by one can be ordered"
        );
        if is_direct {
            let ordered = || place.status()["calls_ordered"].as_u64().unwrap();
            let before = ordered();
            file.write_all_at(&[2; BLOCK as usize], BLOCK).unwrap();
            assert_eq!(ordered(), before + 1);
            make_durable(&place);
        }
        drop(file);
        let [first, _] = left(&place, server, files);
        assert_eq!((&first[..BLOCK as usize], &first[BLOCK as usize..]), (&[1; 4096][..], &[2; 4096][..]));
    }
}

/// Requires that a file which is written under the name `new`, without `fsync`, and then named `first` by this, brings its content: a
/// crash leaves it whole.
fn require_content(name_first: impl FnOnce(&Path)) {
    let _alone = alone();
    let Some((place, server, files)) = served(&[]) else { return };
    let root = place.mountpoint();
    let mut new = File::create(root.join("new")).unwrap();
    new.write_all(&[7; 10_000]).unwrap();
    name_first(&root);
    make_durable(&place);
    let [first, _] = left(&place, server, (files, new));
    assert_eq!(first, [7; 10_000]);
}

/// A program that replaces a file without `fsync`, as many do, finds the old or the new one after a crash, as on ext4.
#[test]
fn a_file_that_takes_anothers_place_brings_its_content() {
    require_content(|root| fs::rename(root.join("new"), root.join("first")).unwrap());
}

/// So does a program that writes a file without a name (`O_TMPFILE`) or under another name, and links it when it is complete.
#[test]
fn a_file_that_gets_a_name_brings_its_content() {
    require_content(|root| {
        fs::remove_file(root.join("first")).unwrap();
        fs::hard_link(root.join("new"), root.join("first")).unwrap();
    });
}

/// `cp` of a file that a program writes looks for holes first.
#[test]
fn a_search_for_holes_finds_what_was_written() {
    let _alone = alone();
    let Some(place) = place() else { return };
    let root = place.mount(CACHED);
    let file = File::create(root.join("file")).unwrap();
    file.write_all_at(&[7; 100], 40 * BLOCK).unwrap();
    let other = File::open(root.join("file")).unwrap();
    let found = |from| rustix::fs::seek(&other, from).unwrap();
    assert_eq!(found(rustix::fs::SeekFrom::Data(0)), 40 * BLOCK);
    assert_eq!(found(rustix::fs::SeekFrom::Hole(40 * BLOCK)), 40 * BLOCK + 100);
    file.write_all_at(&[8; 10_000], 0).unwrap();
    runs(Command::new("cp").args(["file", "copy"]).current_dir(&root));
    assert_eq!(fs::read(root.join("copy")).unwrap(), fs::read(root.join("file")).unwrap());
    drop((file, other));
    place.end();
}

/// Sizes, times to the nanosecond.
fn told(path: &Path) -> (u64, [(i64, i64); 2]) {
    let found = fs::metadata(path).unwrap();
    (found.len(), [(found.mtime(), found.mtime_nsec()), (found.ctime(), found.ctime_nsec())])
}

/// The kernel keeps them, and says them to the server; the filesystem has the same when it is mounted again.
#[test]
fn times_are_those_that_programs_were_told() {
    let _alone = alone();
    let Some(place) = place() else { return };
    let root = place.mount(CACHED);
    let names = ["closed", "synchronised", "set", "linked", "cut"].map(|name| root.join(name));
    let [_, synchronised, set, linked, cut] = &names;
    let files = names.each_ref().map(|path| {
        fs::write(path, [1; 10_000]).unwrap();
        File::options().write(true).open(path).unwrap()
    });
    a_tick_later();
    for file in &files {
        file.write_all_at(b"later", 20_000).unwrap();
    }
    a_tick_later();
    File::open(synchronised).unwrap().sync_all().unwrap();
    let times = fs::FileTimes::new().set_modified(UNIX_EPOCH + Duration::from_nanos(1_234_567_890_123));
    File::open(set).unwrap().set_times(times).unwrap();
    fs::hard_link(linked, root.join("other")).unwrap();
    File::options().write(true).open(cut).unwrap().set_len(5).unwrap();
    drop(files);
    let before = names.each_ref().map(|path| told(path));
    assert_eq!(before[2].1[0], (1234, 567_890_123));
    place.umount();
    place.mount(&[]);
    assert_eq!(names.each_ref().map(|path| told(path)), before);
    place.end();
}

/// The kernel says times also of files that are gone. An error would be told by the next `syncfs`, and so by `weir umount`;
/// and another file may have the number by then.
#[test]
fn files_that_are_gone_trouble_nobody() {
    let _alone = alone();
    if !is_there("python3") {
        return;
    }
    let Some(place) = place() else { return };
    let root = place.mount(CACHED);
    let directory = File::open(&root).unwrap();
    let story = r#"
import os, sys
for nth in range(200):
    fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
    os.write(fd, b"%d" % nth)
    if nth % 2: os.close(fd)
    os.unlink(sys.argv[1])
    if nth % 2 == 0:
        os.pwrite(fd, b"nobody sees it", 5000)
        os.close(fd)
"#;
    side_by_side(&root, 4, story);
    syncfs(&directory).unwrap();
    drop(directory);
    let output = weir(&["umount", root.to_str().unwrap()]).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", error_of(&output));
    place.check();
}

/// Until the clock of the kernel's times has moved.
fn a_tick_later() {
    runs(Command::new("sleep").arg("0.02"));
}

/// Runs a script as so many processes at one time; each is told its number.
fn side_by_side(root: &Path, count: u32, script: &str) {
    let start = |nth: u32| {
        let mut command = Command::new("python3");
        command.args(["-c", script, &nth.to_string()]).current_dir(root).spawn().unwrap()
    };
    let processes: Vec<_> = (0..count).map(start).collect();
    for mut process in processes {
        assert!(process.wait().unwrap().success());
    }
}

fn script(root: &Path, script: &str) -> String {
    runs(Command::new("timeout").args(["120", "python3", "-c", script]).current_dir(root))
}

/// By two descriptors and a mapping, appended and cut, against the same in memory; then as it is without the cache.
#[test]
fn all_ways_to_a_file_see_one_content() {
    let _alone = alone();
    if !is_there("python3") {
        return;
    }
    let Some(place) = place() else { return };
    let root = place.mount(CACHED);
    let story = r#"
import mmap, os, random
random.seed(11)
PAGES = 64 * 4096
first = os.open("file", os.O_RDWR | os.O_CREAT)
other = os.open("file", os.O_RDWR)
ends = [os.open("file", os.O_WRONLY | os.O_APPEND) for _ in range(2)]
model = bytearray()
def grow(size):
    if len(model) < size: model.extend(bytes(size - len(model)))
for step in range(4000):
    what, at, length = random.randrange(10), random.randrange(PAGES), random.randrange(1, 9000)
    part = bytes([step % 251 + 1]) * length
    if what < 4:
        assert os.pwrite(random.choice((first, other)), part, at) == length
        grow(at + length); model[at:at + length] = part
    elif what < 6 and len(model) < PAGES:
        assert os.write(random.choice(ends), part) == length
        model += part
    elif what == 6:
        os.ftruncate(first, at)
        grow(at); del model[at:]
    elif what == 7 and len(model) > 0:
        mapping = mmap.mmap(other, len(model))
        end = min(at + length, len(model))
        if at < end: mapping[at:end] = part[:end - at]; model[at:end] = part[:end - at]
        mapping.close()
    elif what == 8:
        assert os.lseek(other, 0, os.SEEK_END) == len(model) == os.fstat(first).st_size
        os.fdatasync(first)
    else:
        assert os.pread(other, length, at) == bytes(model[at:at + length]), step
open("model", "wb").write(model)
assert open("file", "rb").read() == model
"#;
    script(&root, story);
    let same = || fs::read(root.join("file")).unwrap() == fs::read(root.join("model")).unwrap();
    assert!(same());
    place.end();
    place.mount(&[]);
    assert!(same(), "as it is without the kernel's cache");
    place.end();
}

#[test]
fn two_who_append_overwrite_nothing() {
    let _alone = alone();
    if !is_there("python3") {
        return;
    }
    let Some(place) = place() else { return };
    let root = place.mount(CACHED);
    let path = root.join("log");
    let story = r#"
import os, sys
fd = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
for _ in range(5000): os.write(fd, bytes([int(sys.argv[1])]) * 100)
"#;
    side_by_side(&root, 2, story);
    place.umount();
    place.mount(&[]);
    let content = fs::read(&path).unwrap();
    assert_eq!(content.len(), 1_000_000);
    assert!(content.chunks(100).all(|part| part.iter().all(|byte| *byte == part[0])));
    assert_eq!(content.iter().filter(|byte| **byte == 1).count(), 500_000);
    place.end();
}

/// Programs are still in it: the mount goes out of sight, and what they had written is there.
#[test]
fn a_server_that_is_told_to_end_is_handed_everything_first() {
    let _alone = alone();
    let Some(place) = place() else { return };
    let mut server = place.serve_as(CACHED);
    let root = place.mountpoint();
    let file = File::create(root.join("file")).unwrap();
    // More than the kernel has handed over by the time that it is asked.
    let content = vec![7; 96 << 20];
    file.write_all_at(&content, 0).unwrap();
    kill_process(Pid::from_child(server.process()), Signal::TERM).unwrap();
    assert!(server.wait());
    place.mount(&[]);
    assert!(fs::read(root.join("file")).unwrap() == content);
    drop(file);
    place.end();
}

fn full() -> Option<(Place, PathBuf)> {
    let place = (mounts() && is_there("python3")).then(|| Place::with_volume("64M"))?;
    let root = place.mount(CACHED);
    Some((place, root))
}

/// What finds no room is told by `close` and `fsync`, and by a write soon after: no program writes for ever.
#[test]
fn a_program_that_fills_it_is_told_at_the_latest_by_close() {
    let _alone = alone();
    let Some((place, root)) = full() else { return };
    let dd = ["300", "dd", "if=/dev/zero", "of=full", "bs=64k", "count=100000", "status=none"];
    let output = Command::new("timeout").args(dd).current_dir(&root).output().unwrap();
    assert!(!output.status.success() && error_of(&output).contains("error writing"), "{}", error_of(&output));
    let story = r#"
import errno, os
def told(call):
    try: call(); return "well"
    except OSError as error: return errno.errorcode[error.errno]
one, other = (os.open(name, os.O_RDWR | os.O_CREAT) for name in ("one", "other"))
for fd in one, other: os.pwrite(fd, b"x" * 4096, 0)
print(told(lambda: os.fsync(one)), told(lambda: os.fsync(one)), told(lambda: os.close(other)))
"#;
    assert_eq!(script(&root, story).trim(), "ENOSPC ENOSPC ENOSPC");
    let umount = weir(&["umount", root.to_str().unwrap()]).output().unwrap();
    assert!(error_of(&umount).contains("files lack"), "{}", error_of(&umount));
    let story = r#"
import os
os.truncate("full", 1 << 20)
for name in "one", "other":
    fd = os.open(name, os.O_RDWR)
    os.pwrite(fd, b"y" * 4096, 0)
    # The kernel tells of what only a close was told, once more.
    try: os.fsync(fd)
    except OSError: pass
    os.fsync(fd)
    os.close(fd)
"#;
    script(&root, story);
    place.umount();
    place.mount(&[]);
    assert_eq!(fs::read(root.join("one")).unwrap(), [b'y'; 4096]);
    place.end();
}

/// As on any mount: what has its place is written, in a full filesystem too, and its end can be asked for.
#[test]
fn what_is_allocated_is_written_without_space() {
    let _alone = alone();
    let Some((place, root)) = full() else { return };
    let story = r#"
import os
fd = os.open("allocated", os.O_RDWR | os.O_CREAT)
os.posix_fallocate(fd, 0, 4 << 20)
try:
    ballast = os.open("ballast", os.O_WRONLY | os.O_CREAT)
    while True: os.write(ballast, b"x" * 4096)
except OSError: pass
for page in range(0, 1024, 3): assert os.pwrite(fd, b"y" * 4096, page * 4096) == 4096
os.fsync(fd)
assert os.lseek(fd, 0, os.SEEK_END) == 4 << 20 and os.pread(fd, 10, 4 << 20) == b""
os.close(fd)
os.unlink("ballast")
"#;
    script(&root, story);
    place.umount();
    place.mount(&[]);
    let content = fs::read(root.join("allocated")).unwrap();
    for (page, bytes) in content.chunks(4096).enumerate() {
        assert!(bytes.iter().all(|byte| *byte == if page % 3 == 0 { b'y' } else { 0 }), "page {page}");
    }
    place.end();
}

/// An update that is larger than the journal: the kernel takes all of it, and loses what the mount refuses.
#[test]
fn an_update_that_lacks_what_the_kernel_could_not_hand_over_is_not_ended() {
    let _alone = alone();
    if !is_there("python3") {
        return;
    }
    let Some((place, mut server, files)) = served(&[]) else { return };
    drop(files);
    let script = "import errno, fcntl, os
file = os.open('first', os.O_RDWR)
def write(byte):
    for piece in range(40): os.pwrite(file, byte * (1 << 20), piece << 20)
write(b'1')
os.fsync(file)
os.setxattr('first', 'user.weir.atomic', b'1')
def control(number):
    while True:
        try: return fcntl.ioctl(file, number)
        except OSError as error:
            # Too many lost writes are being told of.
            if error.errno != errno.EAGAIN: return error.errno
print(control(0x5707), end=' ')
write(b'2')
print(control(0x5708), control(0x5709), os.pread(file, 1, 0)[0], end=' ')
print(control(0x5707), os.pwrite(file, b'3', 0), control(0x5708))
# The kernel tells once of what it has lost.
try: os.fsync(file)
except OSError: os.fsync(file)
";
    let mut program = Command::new("python3");
    let told = runs(program.args(["-c", script]).current_dir(place.mountpoint()));
    assert_eq!(told, "0 27 0 49 0 1 0\n", "the update is refused with EFBIG and taken back");
    server.kill();
    place.unmount();
    place.mount(&[]);
    let left = fs::read(place.mountpoint().join("first")).unwrap();
    let rest = left[1..].iter().all(|byte| *byte == b'1');
    assert!(left.len() == 40 << 20 && left[0] == b'3' && rest, "{}", left.len());
    place.end();
}

/// The kernel takes a write behind the largest size that a file can have; it is not lost in silence.
#[test]
fn a_write_behind_the_largest_size_is_told_by_fsync_until_the_file_is_cut() {
    let _alone = alone();
    let Some((place, _server, [first, _later])) = served(&[]) else { return };
    for offset in [u64::from(u32::MAX) * BLOCK, 1 << 50] {
        if first.write_all_at(&[2; BLOCK as usize], offset).is_ok() {
            for _ in 0..2 {
                assert_eq!(first.sync_all().unwrap_err().raw_os_error(), Some(Errno::FBIG.raw_os_error()));
            }
        }
        first.set_len(2 * BLOCK).unwrap();
        first.sync_all().unwrap();
        let mut bytes = [0; 10];
        first.read_exact_at(&mut bytes, 2 * BLOCK - 10).unwrap();
        assert_eq!(bytes, [1; 10]);
    }
    drop((first, _later));
    place.umount();
}
