//! The io_uring on real files: what is read is what was written, and the kernel never owns freed memory.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use weir_runtime::{Buffer, Event, Outcome, Ring, RingFull, Runtime, Wall, channel};

const PAGE: usize = 4096;

fn wall(ring_entries: u32) -> (Runtime, Ring) {
    let runtime = Runtime::wall(Wall { ring_entries, ..Wall::default() }).unwrap();
    let ring = runtime.handle().ring().unwrap();
    (runtime, ring)
}

/// Awaits one operation's outcome.
async fn outcome<F>(start: F) -> Outcome
where
    F: FnOnce(Box<dyn FnOnce(Outcome)>) -> Result<(), RingFull>,
{
    let (sender, receiver) = channel(1);
    start(Box::new(move |outcome| drop(sender.try_send(outcome)))).unwrap();
    receiver.recv().await.unwrap()
}

async fn write(ring: &Ring, file: &Arc<File>, buffer: &Rc<Buffer>, offset: u64, dsync: bool) -> Outcome {
    outcome(|done| ring.write(file, buffer.clone(), 0..buffer.len(), offset, dsync, done)).await
}

async fn read(ring: &Ring, file: &Arc<File>, buffer: Buffer, offset: u64) -> (u32, Buffer) {
    let bytes = buffer.len();
    let outcome = outcome(|done| ring.read(file, buffer, bytes, offset, done)).await;
    (outcome.result.unwrap(), outcome.buffer.unwrap())
}

/// Direct I/O where the filesystem has it (tmpfs may not).
fn open_direct(path: &Path) -> Arc<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let direct = options.clone().custom_flags(libc::O_DIRECT).open(path);
    Arc::new(direct.or_else(|_| options.open(path)).unwrap())
}

fn pattern(buffer: &mut Buffer, salt: usize) {
    for (place, byte) in buffer.iter_mut().enumerate() {
        *byte = (place / 512 * 31 + place * 7 + salt) as u8;
    }
}

fn round_trip(direct: bool, registered: bool) {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("disk");
    File::create(&path).unwrap();
    let file = if direct {
        open_direct(&path)
    } else {
        Arc::new(OpenOptions::new().read(true).write(true).open(&path).unwrap())
    };
    let (runtime, ring) = wall(8);
    let mut buffers: Vec<Buffer> = (0..4).map(|_| Buffer::new(4 * PAGE)).collect();
    if registered {
        ring.register(&mut buffers).unwrap();
        assert!(buffers.iter().all(Buffer::is_registered));
    }
    runtime
        .block_on(async {
            for (index, mut buffer) in buffers.drain(..).enumerate() {
                pattern(&mut buffer, index);
                let expected = buffer.to_vec();
                let offset = (index * 4 * PAGE) as u64;
                let buffer = Rc::new(buffer);
                let written = write(&ring, &file, &buffer, offset, index % 2 == 0).await;
                assert_eq!(written.result.unwrap(), 4 * PAGE as u32);
                let mut buffer = Rc::try_unwrap(buffer).expect("the ring gave its share up");
                buffer.fill(0);
                let (bytes, buffer) = read(&ring, &file, buffer, offset).await;
                assert_eq!(bytes as usize, 4 * PAGE);
                assert!(*buffer == *expected);
            }
            let synced = outcome(|done| ring.fdatasync(&file, done)).await;
            assert_eq!(synced.result.unwrap(), 0);
        })
        .unwrap();
    // What the kernel says without the ring agrees.
    let mut expected = Buffer::new(4 * PAGE);
    pattern(&mut expected, 3);
    let mut plain = vec![0; 4 * PAGE];
    File::open(&path).unwrap().read_exact_at(&mut plain, 12 * PAGE as u64).unwrap();
    assert!(*expected == *plain);
    assert_eq!(ring.in_flight(), 0);
}

#[test]
fn what_is_written_is_read_back() {
    for direct in [false, true] {
        for registered in [false, true] {
            round_trip(direct, registered);
        }
    }
}

#[test]
fn parts_of_a_buffer_are_written_many_at_once() {
    let file = Arc::new(tempfile::tempfile().unwrap());
    let (runtime, ring) = wall(64);
    let mut buffer = [Buffer::new(64 * PAGE)];
    ring.register(&mut buffer).unwrap();
    let [mut buffer] = buffer;
    pattern(&mut buffer, 1);
    let buffer = Rc::new(buffer);
    let done = Rc::new(RefCell::new(0));
    let event = Rc::new(Event::new());
    // The last page goes first, so that offsets and ranges cannot be confused.
    for page in 0..64 {
        let (done, event) = (done.clone(), event.clone());
        let range = page * PAGE..(page + 1) * PAGE;
        let offset = ((63 - page) * PAGE) as u64;
        ring.write(&file, buffer.clone(), range, offset, false, move |outcome| {
            assert_eq!(outcome.result.unwrap() as usize, PAGE);
            *done.borrow_mut() += 1;
            event.notify(1);
        })
        .unwrap();
    }
    assert_eq!((ring.in_flight(), ring.room()), (64, 0));
    runtime
        .block_on(async {
            loop {
                let listener = event.listen();
                if *done.borrow() == 64 {
                    break;
                }
                listener.await;
            }
        })
        .unwrap();
    let mut page = vec![0; PAGE];
    for index in 0..64 {
        file.read_exact_at(&mut page, ((63 - index) * PAGE) as u64).unwrap();
        assert!(page == buffer[index * PAGE..(index + 1) * PAGE], "page {index}");
    }
}

#[test]
fn a_read_past_the_end_is_short() {
    let file = Arc::new(tempfile::tempfile().unwrap());
    file.write_all_at(&[9; 1000], 0).unwrap();
    let (runtime, ring) = wall(4);
    runtime
        .block_on(async {
            let (bytes, buffer) = read(&ring, &file, Buffer::new(PAGE), 0).await;
            assert_eq!(bytes, 1000);
            assert!(buffer[..1000].iter().all(|&byte| byte == 9));
            assert!(buffer[1000..].iter().all(|&byte| byte == 0));
            assert_eq!(read(&ring, &file, buffer, 5000).await.0, 0);
        })
        .unwrap();
}

#[test]
fn errors_of_the_kernel_arrive() {
    let path = tempfile::NamedTempFile::new().unwrap();
    let read_only = Arc::new(File::open(path.path()).unwrap());
    let write_only = Arc::new(OpenOptions::new().write(true).open(path.path()).unwrap());
    let (runtime, ring) = wall(4);
    runtime
        .block_on(async {
            let written = write(&ring, &read_only, &Rc::new(Buffer::new(PAGE)), 0, false).await;
            assert_eq!(written.result.unwrap_err().raw_os_error(), Some(libc::EBADF));
            let read = outcome(|done| ring.read(&write_only, Buffer::new(PAGE), PAGE, 0, done)).await;
            assert_eq!(read.result.unwrap_err().raw_os_error(), Some(libc::EBADF));
            assert_eq!(read.buffer.map(|buffer| buffer.len()), Some(PAGE));
            let punched = outcome(|done| ring.punch_hole(&read_only, 0, 4096, done)).await;
            assert_eq!(punched.result.unwrap_err().raw_os_error(), Some(libc::EBADF));
        })
        .unwrap();
}

#[test]
fn a_punched_hole_reads_as_zeroes_and_the_size_stays() {
    let file = Arc::new(tempfile::tempfile().unwrap());
    file.write_all_at(&[7; 4 * PAGE], 0).unwrap();
    let (runtime, ring) = wall(4);
    let punched = outcome(|done| ring.punch_hole(&file, PAGE as u64, 2 * PAGE as u64, done));
    runtime.block_on(punched).unwrap().result.unwrap();
    let mut bytes = vec![1; 4 * PAGE];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes[..PAGE].iter().chain(&bytes[3 * PAGE..]).all(|&byte| byte == 7));
    assert!(bytes[PAGE..3 * PAGE].iter().all(|&byte| byte == 0));
    assert_eq!(file.metadata().unwrap().size(), 4 * PAGE as u64);
}

/// A file whose reads stay in flight until something is written to the other end.
fn pipe() -> (Arc<File>, File) {
    let (reader, writer) = std::io::pipe().unwrap();
    (Arc::new(File::from(OwnedFd::from(reader))), File::from(OwnedFd::from(writer)))
}

/// Buffers that may have got the memory of one that was freed, marked.
fn poisoned() -> Vec<Buffer> {
    let mut buffers: Vec<Buffer> = (0..64).map(|_| Buffer::new(PAGE)).collect();
    buffers.iter_mut().for_each(|buffer| buffer.fill(0xa5));
    buffers
}

fn intact(buffers: &[Buffer]) -> bool {
    buffers.iter().all(|buffer| buffer.iter().all(|&byte| byte == 0xa5))
}

#[test]
fn cancelling_a_task_frees_nothing_the_kernel_owns() {
    let (runtime, ring) = wall(4);
    let handle = runtime.handle();
    let (reader, mut writer) = pipe();
    let (sender, receiver) = channel(1);
    let (task_ring, file) = (ring.clone(), reader.clone());
    let task = handle.spawn(async move {
        let buffer = Buffer::new(PAGE);
        task_ring.read(&file, buffer, PAGE, 0, move |outcome| sender.try_send(outcome).unwrap()).unwrap();
        drop(file);
        std::future::pending::<()>().await;
    });
    runtime.block_on(handle.sleep(Duration::from_millis(1))).unwrap();
    task.cancel();
    assert_eq!(ring.in_flight(), 1);
    assert_eq!(Arc::strong_count(&reader), 2, "the ring keeps the file open");
    let poison = poisoned();
    writer.write_all(&[0x5a; PAGE]).unwrap();
    let outcome = runtime.block_on(receiver.recv()).unwrap().unwrap();
    assert_eq!(outcome.result.unwrap() as usize, PAGE);
    assert!(outcome.buffer.unwrap().iter().all(|&byte| byte == 0x5a));
    assert!(intact(&poison));
    assert_eq!((ring.in_flight(), Arc::strong_count(&reader)), (0, 1));
}

#[test]
fn dropping_the_runtime_waits_for_or_cancels_what_is_in_flight() {
    let (runtime, ring) = wall(4);
    let (reader, mut writer) = pipe();
    let called = Rc::new(RefCell::new(false));
    let seen = called.clone();
    // The callback owns the ring that owns it: closing must break the circle.
    let own = ring.clone();
    ring.read(&reader, Buffer::new(PAGE), PAGE, 0, move |_| {
        assert_eq!(own.in_flight(), 0);
        *seen.borrow_mut() = true;
    })
    .unwrap();
    let file = Arc::new(tempfile::tempfile().unwrap());
    let mut page = Buffer::new(PAGE);
    page.fill(3);
    ring.write(&file, Rc::new(page), 0..PAGE, 0, false, |_| ()).unwrap();
    drop(runtime);
    assert_eq!(Arc::strong_count(&reader), 1, "the read was cancelled, not leaked");
    assert_eq!(Rc::strong_count(&called), 1);
    assert!(!*called.borrow());
    let poison = poisoned();
    writer.write_all(&[0x5a; PAGE]).unwrap();
    assert!(intact(&poison));
    let mut written = vec![0; PAGE];
    file.read_exact_at(&mut written, 0).unwrap();
    assert!(written.iter().all(|&byte| byte == 3), "the write was not lost");
    assert_eq!(ring.room(), 0);
    let refused = ring.read(&file, Buffer::new(PAGE), PAGE, 0, |_| ()).unwrap_err();
    assert!(refused.buffer.is_some());
}

#[test]
fn a_full_ring_refuses_and_gives_the_buffer_back() {
    let (runtime, ring) = wall(2);
    let (reader, mut writer) = pipe();
    let (sender, receiver) = channel(4);
    for _ in 0..2 {
        let sender = sender.clone();
        ring.read(&reader, Buffer::new(PAGE), 1, 0, move |outcome| sender.try_send(outcome).unwrap())
            .unwrap();
    }
    let mut buffer = Buffer::new(PAGE);
    buffer[0] = 77;
    let refused = ring.read(&reader, buffer, 1, 0, |_| unreachable!("refused")).unwrap_err();
    assert_eq!(refused.buffer.unwrap()[0], 77);
    assert_eq!(ring.room(), 0);
    writer.write_all(&[1, 2]).unwrap();
    // Also while full, other threads can wake the runtime.
    assert_eq!(runtime.block_on(runtime.handle().blocking(|| 5)).unwrap(), Ok(5));
    runtime
        .block_on(async {
            receiver.recv().await.unwrap();
            receiver.recv().await.unwrap();
        })
        .unwrap();
    assert_eq!(ring.room(), 2);
}

#[test]
fn a_callback_may_queue_the_next_operation() {
    fn chain(ring: &Ring, file: &Arc<File>, buffer: Buffer, left: u32, end: Rc<Event>) {
        let (next_ring, next_file) = (ring.clone(), file.clone());
        ring.read(file, buffer, PAGE, 0, move |outcome| match left {
            0 => drop(end.notify(1)),
            _ => chain(&next_ring, &next_file, outcome.buffer.unwrap(), left - 1, end),
        })
        .unwrap();
    }
    let file = Arc::new(tempfile::tempfile().unwrap());
    file.write_all_at(&[1; PAGE], 0).unwrap();
    let (runtime, ring) = wall(1);
    let end = Rc::new(Event::new());
    let listener = end.listen();
    chain(&ring, &file, Buffer::new(PAGE), 500, end);
    runtime.block_on(listener).unwrap();
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a thread stands for another process")]
fn a_waiter_is_told_of_something_to_read_and_of_the_end() {
    let (runtime, ring) = wall(4);
    let (reader, mut writer) = pipe();
    let waiting = outcome(|done| ring.readable(&reader, done));
    let writing = runtime.handle().blocking(move || {
        std::thread::sleep(Duration::from_millis(2));
        writer.write_all(&[1, 2]).unwrap();
        writer
    });
    let (told, writer) = runtime.block_on(async { (waiting.await, writing.await.unwrap()) }).unwrap();
    told.result.unwrap();
    assert!(told.buffer.is_none());
    // Nothing was taken out, so there is still something to read.
    runtime.block_on(outcome(|done| ring.readable(&reader, done))).unwrap().result.unwrap();
    let (bytes, _) = runtime.block_on(read(&ring, &reader, Buffer::new(PAGE), 0)).unwrap();
    assert_eq!(bytes, 2);
    let waiting = outcome(|done| ring.readable(&reader, done));
    drop(writer);
    runtime.block_on(waiting).unwrap().result.unwrap();
    let (bytes, _) = runtime.block_on(read(&ring, &reader, Buffer::new(PAGE), 0)).unwrap();
    assert_eq!(bytes, 0, "the end");
}

/// What only waits for others is no reason to wait.
#[test]
fn dropping_the_runtime_ends_waits_at_once() {
    let (runtime, ring) = wall(4);
    let (reader, _writer) = pipe();
    for _ in 0..2 {
        ring.readable(&reader, |_| unreachable!("cancelled")).unwrap();
    }
    let handle = runtime.handle();
    // One of them is with the kernel, or both.
    runtime.block_on(handle.sleep(Duration::from_millis(1))).unwrap();
    ring.readable(&reader, |_| unreachable!("cancelled")).unwrap();
    let start = handle.now();
    drop(runtime);
    assert!(handle.now().since(start) < Duration::from_secs(1));
    assert_eq!(Arc::strong_count(&reader), 1);
}

/// A registration is of one ring; on another the same place may be other memory.
#[test]
fn a_buffer_registered_elsewhere_is_used_as_a_plain_one() {
    let file = Arc::new(tempfile::tempfile().unwrap());
    file.write_all_at(&[4; PAGE], 0).unwrap();
    let (_first_runtime, first) = wall(4);
    let (runtime, second) = wall(4);
    let mut decoy = [Buffer::new(PAGE)];
    second.register(&mut decoy).unwrap();
    let mut buffers = [Buffer::new(PAGE)];
    first.register(&mut buffers).unwrap();
    let [buffer] = buffers;
    let (bytes, buffer) = runtime.block_on(read(&second, &file, buffer, 0)).unwrap();
    assert_eq!(bytes as usize, PAGE);
    assert!(buffer.iter().all(|&byte| byte == 4));
    assert!(decoy[0].iter().all(|&byte| byte == 0));
}

#[test]
fn places_of_dropped_buffers_are_used_again() {
    let file = Arc::new(tempfile::tempfile().unwrap());
    file.write_all_at(&[6; PAGE], 0).unwrap();
    let (runtime, ring) = wall(4);
    // Three times as many buffers as there are places, a few at a time.
    for _ in 0..48 {
        let mut buffers: Vec<Buffer> = (0..64).map(|_| Buffer::new(PAGE)).collect();
        ring.register(&mut buffers).unwrap();
        let buffer = buffers.pop().unwrap();
        let (_, buffer) = runtime.block_on(read(&ring, &file, buffer, 0)).unwrap();
        assert!(buffer.iter().all(|&byte| byte == 6));
    }
    let mut too_many: Vec<Buffer> = (0..1025).map(|_| Buffer::new(PAGE)).collect();
    assert!(ring.register(&mut too_many).is_err());
    assert_eq!(too_many.iter().filter(|buffer| buffer.is_registered()).count(), 1024);
    let plain = too_many.pop().unwrap();
    assert!(runtime.block_on(read(&ring, &file, plain, 0)).unwrap().1.iter().all(|&byte| byte == 6));
}

/// Looks at the ring when it is dropped, as a guard that passes room on to a waiting task may.
struct LooksAtRing(Ring, Rc<RefCell<usize>>);

impl Drop for LooksAtRing {
    fn drop(&mut self) {
        *self.1.borrow_mut() = self.0.room() + 1;
    }
}

#[test]
fn a_refused_callback_may_use_the_ring_while_it_is_dropped() {
    let (_runtime, ring) = wall(1);
    let (reader, _writer) = pipe();
    ring.fdatasync(&reader, |_| ()).unwrap();
    let seen = Rc::new(RefCell::new(0));
    let guard = LooksAtRing(ring.clone(), seen.clone());
    ring.fdatasync(&reader, move |_| drop(guard)).unwrap_err();
    assert_eq!(*seen.borrow(), 1);
}
