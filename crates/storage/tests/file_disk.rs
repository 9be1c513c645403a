//! What a file disk is beside a storage: how it opens, locks, creates, keeps its data, and fails.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::fs::{self, File, Permissions};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::host::{self, LoopDevice, Mount};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use weir_runtime::{Runtime, Simulation, Wall};
use weir_storage::{
    BLOCK_BYTES, Command, CommandKind, Extent, FileDisk, FileDiskError, FileDiskMutant, FileDiskOptions, Lba,
    Order, Part, Readers, Recorder, Rejected, Rules, Storage, StorageError, Tag, Ticket, Write, WriteFlags,
    flush, read, write,
};

const BYTES: u64 = 64 * 4096;

struct Place {
    runtime: Runtime,
    directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        Place { runtime: Runtime::wall(Wall::default()).unwrap(), directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn create(&self, name: &str) -> Rc<FileDisk> {
        let options = FileDiskOptions::default();
        FileDisk::create(&self.runtime.handle(), &self.path(name), BYTES, options).unwrap()
    }

    fn open(&self, path: &Path, options: FileDiskOptions) -> Result<Rc<FileDisk>, FileDiskError> {
        FileDisk::open(&self.runtime.handle(), path, options)
    }

    fn open_error(&self, path: &Path) -> FileDiskError {
        self.open(path, FileDiskOptions::default()).err().unwrap()
    }

    fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future).unwrap()
    }
}

/// Whatever the user's mask lets through: here it is the test's own, which is hardly 0o077.
#[test]
fn what_is_created_is_its_owners_alone() {
    let place = Place::new();
    let disk = place.create("private");
    let path = place.path("private");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let readers = || place.run(disk.facts()).unwrap().readers;
    assert_eq!(readers(), Readers::default());
    for (mode, group, others) in [(0o640, true, false), (0o604, false, true), (0o633, false, false)] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        assert_eq!(readers(), Readers { group, others }, "{mode:o}");
    }
}

fn block(fill: u8) -> Vec<u8> {
    vec![fill; BLOCK_BYTES]
}

fn submit_write(disk: &FileDisk, at: u64, fill: u8, flags: WriteFlags) -> Result<Ticket, Rejected> {
    let data = block(fill);
    let parts = [Part::bytes(Lba(at), &data)];
    disk.submit(Command::Write(Write { flags, ..Write::new(&parts) }))
}

#[test]
fn opening_names_what_is_wrong() {
    let place = Place::new();
    let missing = place.path("missing");
    assert!(matches!(place.open_error(&missing), FileDiskError::Missing { path } if path == missing));
    assert!(matches!(place.open_error(place.directory.path()), FileDiskError::Directory { .. }));
    assert!(matches!(place.open_error(Path::new("/dev/null")), FileDiskError::NotADisk { .. }));
    let small = place.path("small");
    fs::write(&small, [0; 4095]).unwrap();
    assert!(matches!(place.open_error(&small), FileDiskError::TooSmall { bytes: 4095, .. }));
    fs::write(&small, [0; 4096]).unwrap();
    assert_eq!(place.open(&small, FileDiskOptions::default()).unwrap().blocks(), 1);
    for (queue_depth, tear_unit_bytes) in [(0, 512), (1025, 512), (64, 0), (64, 1024)] {
        let options = FileDiskOptions { queue_depth, tear_unit_bytes, ..FileDiskOptions::default() };
        assert!(matches!(place.open(&small, options), Err(FileDiskError::Option { .. })));
    }
    let simulation = Runtime::simulated(Simulation::default());
    let refused = FileDisk::open(&simulation.handle(), &small, FileDiskOptions::default());
    assert!(matches!(refused, Err(FileDiskError::NoRing)));
}

#[test]
fn creation_overwrites_nothing() {
    let place = Place::new();
    let path = place.path("precious");
    fs::write(&path, "precious").unwrap();
    let handle = place.runtime.handle();
    let refused = FileDisk::create(&handle, &path, BYTES, FileDiskOptions::default());
    assert!(matches!(refused, Err(FileDiskError::Exists { .. })));
    assert_eq!(fs::read(&path).unwrap(), b"precious");
    let nowhere = FileDisk::create(&handle, &place.path("no/where"), BYTES, FileDiskOptions::default());
    assert!(matches!(nowhere, Err(FileDiskError::Io { action: "create", .. })));
    let small = FileDisk::create(&handle, &place.path("small"), 4095, FileDiskOptions::default());
    assert!(matches!(small, Err(FileDiskError::TooSmall { .. })));
    assert!(!place.path("small").exists());
    let huge = FileDisk::create(&handle, &place.path("huge"), 1 << 62, FileDiskOptions::default());
    assert!(matches!(huge, Err(FileDiskError::NoSpace { .. })));
    assert!(!place.path("huge").exists(), "a file that could not be allocated stayed behind");
}

#[test]
fn a_writer_is_alone_and_readers_share() {
    let place = Place::new();
    let writer = place.create("disk");
    let path = place.path("disk");
    let read_only = FileDiskOptions { read_only: true, ..FileDiskOptions::default() };
    assert!(matches!(place.open_error(&path), FileDiskError::Locked { .. }));
    assert!(matches!(place.open(&path, read_only.clone()), Err(FileDiskError::Locked { .. })));
    drop(writer);
    let handle = place.runtime.handle();
    let reader = place.run(host::open_soon(&handle, &path, &read_only));
    let second = place.open(&path, read_only).unwrap();
    assert!(matches!(place.open_error(&path), FileDiskError::Locked { .. }));
    drop((reader, second));
    place.run(host::open_soon(&handle, &path, &FileDiskOptions::default()));
}

#[test]
fn a_read_only_disk_reads_and_refuses_to_change() {
    let place = Place::new();
    fs::write(place.path("disk"), [0; BYTES as usize]).unwrap();
    let options = FileDiskOptions { read_only: true, ..FileDiskOptions::default() };
    let disk = place.open(&place.path("disk"), options).unwrap();
    let refused = submit_write(&disk, 5, 1, WriteFlags::default());
    let cause = ErrorKind::ReadOnlyFilesystem;
    let expected = StorageError::Device { command: CommandKind::Write, at: Lba(5), cause };
    assert_eq!(refused.err(), Some(Rejected::Failed(expected)));
    place.run(async {
        assert_eq!(&read(&*disk, Extent::new(Lba(5), 1)).await.unwrap()[..], block(0));
        flush(&*disk).await.unwrap();
    });
}

#[test]
fn data_survives_reopening_and_the_partial_block_is_left_alone() {
    let place = Place::new();
    let path = place.path("disk");
    let tail = vec![7; 100];
    fs::write(&path, [vec![0; BYTES as usize], tail.clone()].concat()).unwrap();
    let disk = place.open(&path, FileDiskOptions::default()).unwrap();
    assert_eq!((disk.blocks(), disk.unused_bytes()), (64, 100));
    place.run(async {
        for at in [0, 63] {
            write(&*disk, Part::bytes(Lba(at), &block(at as u8 + 1))).await.unwrap();
        }
        flush(&*disk).await.unwrap();
    });
    drop(disk);
    let bytes = fs::read(&path).unwrap();
    assert_eq!(bytes[..BLOCK_BYTES], block(1));
    assert_eq!(bytes[63 * BLOCK_BYTES..64 * BLOCK_BYTES], block(64));
    assert_eq!(bytes[BYTES as usize..], tail);
}

#[test]
fn a_dropped_disk_finishes_what_is_in_flight_and_keeps_its_lock_until_then() {
    let place = Place::new();
    let disk = place.create("disk");
    let path = place.path("disk");
    let handle = place.runtime.handle();
    place.run(async {
        let ticket = submit_write(&disk, 9, 3, WriteFlags::default()).unwrap();
        drop(disk);
        assert!(matches!(place.open_error(&path), FileDiskError::Locked { .. }));
        ticket.transferred().await.unwrap();
        let disk = host::open_soon(&handle, &path, &FileDiskOptions::default()).await;
        assert_eq!(&read(&*disk, Extent::new(Lba(9), 1)).await.unwrap()[..], block(3));
    });
}

/// Another process that opens it at once does not find it in use, though the ring lets go of files later. Other
/// descriptors of what the disk has opened stand for the ring.
#[test]
fn a_dropped_disk_is_free_at_once() {
    let place = Place::new();
    let path = place.path("disk");
    let disk = place.create("disk");
    let held = opened_again(&path);
    assert!(!held.is_empty(), "the disk has its file open");
    place.run(async { write(&*disk, Part::bytes(Lba(0), &block(1))).await.unwrap() });
    assert!(File::open(&path).unwrap().try_lock().is_err());
    drop(disk);
    File::open(&path).unwrap().try_lock().unwrap();
}

/// One more descriptor of each of this process's open files that is at `path`.
fn opened_again(path: &Path) -> Vec<OwnedFd> {
    let this = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
    let descriptors = fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().path());
    let at_path = descriptors.filter(|link| fs::read_link(link).is_ok_and(|target| target == path));
    let number = |link: PathBuf| link.file_name().unwrap().to_str().unwrap().parse().unwrap();
    at_path.map(|link| pidfd_getfd(&this, number(link), PidfdGetfdFlags::empty()).unwrap()).collect()
}

#[test]
fn a_runtime_that_ends_answers_gone() {
    let place = Place::new();
    let disk = place.create("disk");
    let ticket = submit_write(&disk, 9, 3, WriteFlags::default()).unwrap();
    let flush = disk.submit(Command::Flush).unwrap();
    drop(place.runtime);
    assert_eq!(ticket.poll_transferred(), Some(Err(StorageError::Gone)));
    assert_eq!(flush.poll_transferred(), Some(Err(StorageError::Gone)));
    let late = submit_write(&disk, 9, 3, WriteFlags::default());
    assert!(!matches!(late.map(|ticket| ticket.poll_transferred()), Ok(Some(Ok(())))));
}

#[test]
fn a_file_cut_short_is_an_error_and_not_zeroes() {
    let place = Place::new();
    let disk = place.create("disk");
    File::options().write(true).open(place.path("disk")).unwrap().set_len(BYTES / 2).unwrap();
    place.run(async {
        for extent in [Extent::new(Lba(31), 2), Extent::new(Lba(40), 1)] {
            let cause = ErrorKind::UnexpectedEof;
            let expected = StorageError::Device { command: CommandKind::Read, at: extent.start, cause };
            assert_eq!(read(&*disk, extent).await.err(), Some(Rejected::Failed(expected)));
        }
        assert!(read(&*disk, Extent::new(Lba(31), 1)).await.is_ok());
    });
}

#[test]
fn two_disks_share_a_ring_of_one_entry() {
    let wall = Wall { ring_entries: 1, ..Wall::default() };
    let place = Place { runtime: Runtime::wall(wall).unwrap(), ..Place::new() };
    let disks = [place.create("one"), place.create("two")];
    place.run(async {
        let mut tickets = Vec::new();
        for at in 0..32 {
            for disk in &disks {
                tickets.push(submit_write(disk, at, at as u8, WriteFlags::default()).unwrap());
            }
        }
        for ticket in tickets {
            ticket.transferred().await.unwrap();
        }
    });
}

#[test]
fn the_recorder_sees_transfers_and_what_a_flush_covers() {
    let place = Place::new();
    let disk = place.create("disk");
    let recorder = Recorder::new();
    disk.set_recorder(Rc::clone(&recorder));
    let data = block(1);
    let submit = |at, fua| {
        let tag = Tag { request: recorder.next_request(), order: Order::Orderless };
        recorder.issued(tag);
        let flags = WriteFlags { fua, ..WriteFlags::default() };
        let parts = [Part::bytes(Lba(at), &data)];
        let ticket = disk.submit(Command::Write(Write { flags, tags: &[tag], ..Write::new(&parts) }));
        recorder.dispatched(&[tag]);
        ticket.unwrap()
    };
    let passed = || {
        let counts = recorder.check().unwrap();
        (counts.transferred, counts.persisted)
    };
    place.run(async {
        submit(0, false).transferred().await.unwrap();
        assert_eq!(passed(), (1, 0));
        let flush_first = disk.submit(Command::Flush).unwrap();
        submit(1, false).transferred().await.unwrap();
        flush_first.transferred().await.unwrap();
        // The second write was not transferred when the flush was submitted.
        assert_eq!(passed(), (2, 1));
        submit(2, true).transferred().await.unwrap();
        assert_eq!(passed(), (3, 2));
        flush(&*disk).await.unwrap();
        assert_eq!((passed(), recorder.retained()), ((3, 3), 0));
    });
}

#[test]
fn a_mounted_device_is_busy() {
    let place = Place::new();
    let image = place.path("image");
    File::create(&image).unwrap().set_len(8 << 20).unwrap();
    let at = place.path("mounted");
    fs::create_dir(&at).unwrap();
    let mounted = LoopDevice::attach(&image).and_then(|device| Ok((Mount::ext4(&device, &at)?, device)));
    let (mount, device) = match mounted {
        Ok(mounted) => mounted,
        Err(reason) => return host::skip(&reason),
    };
    assert!(matches!(place.open_error(device.path()), FileDiskError::Busy { .. }));
    let error = place.open_error(&image);
    assert!(
        matches!(&error, FileDiskError::Attached { device: found, .. } if found == device.path()),
        "{error}"
    );
    let names = ["hard", "soft", "bound"].map(|name| place.path(name));
    fs::hard_link(&image, &names[0]).unwrap();
    std::os::unix::fs::symlink(&image, &names[1]).unwrap();
    File::create(&names[2]).unwrap();
    let bound = Mount::bind(&image, &names[2]).unwrap();
    for name in &names {
        let error = place.open_error(name);
        let is_found =
            matches!(&error, FileDiskError::Attached { device: found, .. } if found == device.path());
        assert!(is_found, "{}: {error}", name.display());
    }
    drop(bound);
    // Another file of the same filesystem is free.
    let other = place.path("other");
    File::create(&other).unwrap().set_len(BYTES).unwrap();
    drop(place.open(&other, FileDiskOptions::default()).unwrap());
    drop(mount);
    place.run(host::open_soon(&place.runtime.handle(), device.path(), &FileDiskOptions::default()));
}

#[test]
fn fua_and_flush_reach_the_device_and_a_plain_write_flushes_nothing() {
    let place = Place::new();
    let image = place.path("image");
    File::create(&image).unwrap().set_len(BYTES).unwrap();
    let device = match LoopDevice::attach(&image) {
        Ok(device) => device,
        Err(reason) => return host::skip(&reason),
    };
    let disk = place.open(device.path(), FileDiskOptions::default()).unwrap();
    place.run(async {
        let before = device.flushes();
        submit_write(&disk, 0, 1, WriteFlags::default()).unwrap().transferred().await.unwrap();
        assert_eq!(device.flushes(), before);
        let fua = WriteFlags { fua: true, ..WriteFlags::default() };
        submit_write(&disk, 1, 1, fua).unwrap().transferred().await.unwrap();
        assert_eq!(device.flushes(), before + 1, "a loop device has no FUA: the kernel adds a flush");
        flush(&*disk).await.unwrap();
        assert_eq!(device.flushes(), before + 2);
    });
}

/// A block device that runs out of space behind its back: a loop device over a sparse file of 4 MiB in a
/// tmpfs of 1 MiB. Writes beyond fail when they are written back.
struct Failing {
    device: LoopDevice,
    _mount: Mount,
    _directory: tempfile::TempDir,
}

impl Failing {
    fn new() -> Result<Failing, String> {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let mount = Mount::tmpfs(directory.path(), 1 << 20)?;
        let image = directory.path().join("image");
        File::create(&image).unwrap().set_len(4 << 20).unwrap();
        Ok(Failing { device: LoopDevice::attach(&image)?, _mount: mount, _directory: directory })
    }
}

/// Negative control: with one `fdatasync` a flush instead of one at a time, the second of two flushes here
/// is acknowledged over lost data.
#[test]
fn a_failed_flush_poisons_and_no_flush_beside_it_lies() {
    let failing = match Failing::new() {
        Ok(failing) => failing,
        Err(reason) => return host::skip(&reason),
    };
    let place = Place::new();
    let options = FileDiskOptions { buffered: true, ..FileDiskOptions::default() };
    let disk = place.open(failing.device.path(), options).unwrap();
    place.run(async {
        for at in (0..1024).step_by(64) {
            write(&*disk, Part::bytes(Lba(at), &vec![1; 64 * BLOCK_BYTES])).await.unwrap();
        }
        let flushes = (0..6).map(|_| disk.submit(Command::Flush).unwrap()).collect::<Vec<_>>();
        for (i, flush) in flushes.iter().enumerate() {
            let result = flush.transferred().await;
            assert!(result.is_err(), "flush {i} was acknowledged over lost data");
            assert_eq!(i > 0, result == Err(StorageError::Poisoned), "flush {i}: {result:?}");
        }
        let poisoned = Some(Rejected::Failed(StorageError::Poisoned));
        assert_eq!(disk.submit(Command::Flush).err(), poisoned);
        assert_eq!(submit_write(&disk, 0, 1, WriteFlags::default()).err(), poisoned);
        read(&*disk, Extent::new(Lba(0), 1)).await.unwrap();
    });
}

#[test]
fn a_failed_fua_write_poisons_and_a_failed_plain_write_does_not() {
    let failing = match Failing::new() {
        Ok(failing) => failing,
        Err(reason) => return host::skip(&reason),
    };
    let place = Place::new();
    let disk = place.open(failing.device.path(), FileDiskOptions::default()).unwrap();
    assert!(disk.direct());
    place.run(async {
        let mut failed = 0;
        for at in 0..1024 {
            let ticket = submit_write(&disk, at, 1, WriteFlags::default()).unwrap();
            failed += u32::from(ticket.transferred().await.is_err());
        }
        assert!(failed > 0, "the device did not run out of space");
        flush(&*disk).await.unwrap();
        let fua = WriteFlags { fua: true, ..WriteFlags::default() };
        let ticket = submit_write(&disk, 1023, 1, fua).unwrap();
        assert!(ticket.transferred().await.is_err() && ticket.durable().await.is_err());
        assert_eq!(disk.submit(Command::Flush).err(), Some(Rejected::Failed(StorageError::Poisoned)));
    });
}

/// How often a flush that came while an `fdatasync` was running had no answer yet when that one was over, of 50. (One of
/// its own may be over as soon, but not every time.)
fn waited_for_its_own(mutant: Option<FileDiskMutant>) -> u32 {
    let place = Place::new();
    fs::write(place.path("disk"), [0; BYTES as usize]).unwrap();
    let options = FileDiskOptions { rules: Rules::but(mutant), ..FileDiskOptions::default() };
    let disk = place.open(&place.path("disk"), options).unwrap();
    let ring = place.runtime.handle().ring().unwrap();
    let mut waited = 0;
    for round in 0..50 {
        place.run(async {
            write(&*disk, Part::bytes(Lba(round % 64), &block(round as u8))).await.unwrap();
            let first = disk.submit(Command::Flush).unwrap();
            ring.submit();
            let second = disk.submit(Command::Flush).unwrap();
            first.transferred().await.unwrap();
            waited += u32::from(second.poll_transferred().is_none());
            second.transferred().await.unwrap();
        });
    }
    waited
}

/// S2: the kernel may have looked for dirty pages before the write that the second caller wants durable.
#[test]
fn a_flush_under_way_is_not_the_flush_of_who_comes_later() {
    assert!(waited_for_its_own(None) > 0);
    assert_eq!(waited_for_its_own(Some(FileDiskMutant::JoinsFlush)), 0);
}
