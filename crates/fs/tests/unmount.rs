//! Calls that run beside unmount, and calls whose future is dropped in the middle: what was acknowledged is there
//! afterwards, and nothing is done by half.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use weir_format::FileType;
use weir_vfs::{Expect, Fallocate, FsError, InodeNumber, NewNode, ReadOnlyReason, RenameFlags};

use crate::support::{
    BLOCKS, content, disk, judge, mount, new_image, read_file, simulated, simulated_with, store, verdict,
    write_file,
};
use weir_ext4::ROOT_INODE;
use weir_fs::{BarrierFs, Conflicts, Engine, MountOptions};
use weir_runtime::Handle;
use weir_storage::AdversaryDisk;

const ENGINES: [Engine; 3] = [
    Engine::Dual { conflicts: Conflicts::Copy },
    Engine::Dual { conflicts: Conflicts::List },
    Engine::Jbd2 { barrier: true },
];

fn with(engine: Engine) -> MountOptions {
    MountOptions { engine: Some(engine), ..MountOptions::default() }
}

/// Metadata is hardly cached, so that every change waits for reads in its middle.
fn forgetful(engine: Engine) -> MountOptions {
    MountOptions { cache_metadata_blocks: 2, ..with(engine) }
}

fn directory() -> NewNode {
    NewNode::new(FileType::Directory, 0o755)
}

/// A directory with so many names that it has several blocks.
async fn full_directory(fs: &BarrierFs, name: &[u8]) -> InodeNumber {
    let inode = fs.mkdir(ROOT_INODE, name, &directory()).await.expect("made");
    for number in 0..300_u32 {
        let name = format!("a name of a file with the number {number:040}");
        let new = NewNode::new(FileType::Regular, 0o644);
        fs.create(inode, name.as_bytes(), &new).await.expect("created");
    }
    inode
}

#[test]
fn an_overwrite_acknowledged_during_unmount_is_there() {
    let unmounted = FsError::ReadOnly(ReadOnlyReason::Unmounted);
    for seed in 0..30_u64 {
        let engine = ENGINES[(seed % 3) as usize];
        let (image, acknowledged) = simulated_with(seed, async |clock| {
            let disk = disk(&clock, &new_image(BLOCKS), true);
            let fs = mount(&clock, &disk, with(engine)).await.expect("mounted");
            let small = write_file(&fs, b"small", &[0; 4096]).await;
            let large = write_file(&fs, b"large", &content(2_000_000)).await;
            fs.sync().await.expect("synchronised");
            fs.write(large, 0, &content(2_000_000)).await.expect("written");
            let last = Rc::new(Cell::new(0));
            let (writer, wrote, sleeper) = (fs.clone(), Rc::clone(&last), clock.clone());
            let task = clock.spawn(async move {
                for value in 1..250 {
                    if let Err(error) = writer.write(small, 0, &[value; 4096]).await {
                        return error;
                    }
                    wrote.set(value);
                    sleeper.sleep(Duration::from_micros(20)).await;
                }
                panic!("unmount did not end the writes");
            });
            clock.sleep(Duration::from_micros(seed * 7)).await;
            fs.unmount().await.expect("unmounted");
            assert_eq!(task.await.expect("it ends"), unmounted);
            (disk.image(), last.get())
        });
        simulated(async |clock| {
            let fs = mount(&clock, &disk(&clock, &image, true), with(engine)).await.expect("mounted");
            let found = read_file(&fs, b"small").await.expect("there");
            assert_eq!(found[0], acknowledged, "seed {seed}, {engine:?}");
        });
    }
}

#[test]
fn a_file_created_during_unmount_is_there_or_refused() {
    let (mut created, mut refused) = (0, 0);
    for seed in 0..60_u64 {
        let engine = ENGINES[(seed % 3) as usize];
        let (image, done) = simulated_with(seed, async |clock| {
            let disk = disk(&clock, &new_image(BLOCKS), true);
            let fs = mount(&clock, &disk, with(engine)).await.expect("mounted");
            let inside = full_directory(&fs, b"x").await;
            fs.unmount().await.expect("unmounted");
            let fs = mount(&clock, &disk, forgetful(engine)).await.expect("mounted");
            let creator = fs.clone();
            let late = clock.spawn(async move {
                creator.create(inside, b"late", &NewNode::new(FileType::Regular, 0o644)).await
            });
            clock.sleep(Duration::from_micros(seed * 10)).await;
            fs.unmount().await.expect("unmounted");
            let image = disk.image();
            let done = late.await.expect("it ends");
            clock.sleep(Duration::from_secs(60)).await;
            assert_eq!(disk.image().hash(), image.hash(), "seed {seed}, {engine:?}: written after unmount");
            (image, done)
        });
        judge(&image);
        simulated(async |clock| {
            let fs = mount(&clock, &disk(&clock, &image, true), with(engine)).await.expect("mounted");
            let inside = fs.lookup(ROOT_INODE, b"x").await.expect("there");
            let found = fs.lookup(inside, b"late").await;
            match &done {
                Ok(_) => created += 1,
                Err(_) => refused += 1,
            }
            assert_eq!(found.is_ok(), done.is_ok(), "seed {seed}, {engine:?}: {done:?}, then {found:?}");
        });
    }
    assert!(created > 10 && refused > 0, "{created} created, {refused} refused");
}

/// Inodes for [`call`].
#[derive(Clone, Copy)]
struct Inodes {
    x: InodeNumber,
    y: InodeNumber,
    file: InodeNumber,
}

const CALLS: u32 = 8;

/// One of all kinds of calls that take several steps.
async fn call(fs: BarrierFs, kind: u32, Inodes { x, y, file }: Inodes) -> Result<(), FsError> {
    match kind {
        0 => fs.rename((x, b"sub"), (y, b"moved"), RenameFlags::default()).await,
        1 => fs.truncate(file, 100).await,
        2 => fs.unlink(ROOT_INODE, b"file").await,
        3 => fs.mkdir(y, b"new", &directory()).await.map(drop),
        4 => fs.write(file, 10_000_000, &[7; 900_000]).await.map(drop),
        5 => fs.fallocate(file, Fallocate::PunchHole, 4096, 1_000_000).await,
        6 => fs.link(file, y, b"linked").await,
        _ => fs.remove_extended_attribute(file, b"user.3").await,
    }
}

/// What [`call`] needs, cleanly unmounted.
async fn prepare(clock: &Handle) -> (Rc<AdversaryDisk>, Inodes) {
    let disk = disk(clock, &new_image(BLOCKS), true);
    let fs = mount(clock, &disk, with(ENGINES[0])).await.expect("mounted");
    let (x, y) = (full_directory(&fs, b"x").await, full_directory(&fs, b"y").await);
    fs.mkdir(x, b"sub", &directory()).await.expect("made");
    let file = write_file(&fs, b"file", &content(2_000_000)).await;
    for part in 0..40 {
        fs.write(file, 4_000_000 + part * 20_000, &content(4096)).await.expect("written");
    }
    for number in 0..30_u32 {
        let name = format!("user.{number}");
        let set = fs.set_extended_attribute(file, name.as_bytes(), &[1; 60], Expect::Anything);
        set.await.expect("set");
    }
    fs.unmount().await.expect("unmounted");
    (disk, Inodes { x, y, file })
}

/// Polls a future so often, each time that it wants to be, and drops it.
async fn poll_and_drop(mut work: Pin<Box<impl Future>>, polls: u32) {
    let mut left = polls;
    poll_fn(|context| {
        if left == 0 || work.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        left -= 1;
        Poll::Pending
    })
    .await;
}

#[test]
fn a_call_that_is_dropped_in_its_middle_is_not_committed_by_half() {
    let (mut whole, mut abandoned) = (0, 0);
    for kind in 0..CALLS {
        for polls in 1..14 {
            let image = simulated(async |clock| {
                let (disk, inodes) = prepare(&clock).await;
                let fs = mount(&clock, &disk, forgetful(ENGINES[0])).await.expect("mounted");
                poll_and_drop(Box::pin(call(fs.clone(), kind, inodes)), polls).await;
                clock.sleep(Duration::from_secs(10)).await;
                match fs.unmount().await {
                    Ok(()) => whole += 1,
                    Err(error) => {
                        abandoned += 1;
                        assert_eq!(error, FsError::ReadOnly(ReadOnlyReason::Abandoned));
                        let again = mount(&clock, &disk, with(ENGINES[0])).await.expect("mounted again");
                        again.unmount().await.expect("unmounted");
                    }
                }
                disk.image()
            });
            if let Err(complaint) = verdict(store(&image).path()) {
                panic!("call {kind}, polled {polls} times: {complaint}");
            }
        }
    }
    assert!(whole > 10 && abandoned > 10, "{whole} whole, {abandoned} abandoned");
}
