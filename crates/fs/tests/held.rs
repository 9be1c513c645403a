//! Inodes that are held: they live without a name and without an open file until they are let go, and a crash or an
//! unmount leaves nothing of them.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use weir_format::{Cookie, FileType};
use weir_vfs::{AttributeChanges, Device, Expect, FsError, InodeNumber, NewNode, RenameFlags};

use crate::support::{BLOCKS, disk, judge, mount, new_image, on_image, simulated};
use weir_ext4::ROOT_INODE;
use weir_fs::{BarrierFs, FsMutant, MountOptions};
use weir_runtime::Handle;
use weir_storage::Rules;

const FILE: NewNode = node(FileType::Regular, 0o644);
const REPLACE: RenameFlags = RenameFlags { no_replace: false, exchange: false, whiteout: false };

const fn node(kind: FileType, permissions: u16) -> NewNode {
    NewNode { kind, permissions, umask: 0, uid: 0, gid: 0, device: Device { major: 1, minor: 3 } }
}

/// Makes something of this name, and holds it.
async fn make_held(fs: &BarrierFs, name: &[u8], kind: FileType) -> InodeNumber {
    let made = match kind {
        FileType::Symlink => fs.symlink_held(ROOT_INODE, name, &[b'x'; 100], (0, 0)).await,
        kind => fs.create_held(ROOT_INODE, name, &node(kind, 0o755)).await,
    };
    made.expect("made").keep()
}

const KINDS: [FileType; 7] = [
    FileType::Regular,
    FileType::Directory,
    FileType::Symlink,
    FileType::CharacterDevice,
    FileType::BlockDevice,
    FileType::Fifo,
    FileType::Socket,
];

/// All that can be asked of an inode that is held and has no name.
async fn use_nameless(fs: &BarrierFs, inode: InodeNumber, kind: FileType) {
    let found = fs.attributes(inode).await.expect("held");
    assert_eq!((found.kind, found.links), (kind, 0));
    let changes = AttributeChanges { permissions: Some(0o700), uid: Some(7), ..AttributeChanges::default() };
    fs.set_attributes(inode, &changes).await.expect("changed");
    fs.set_extended_attribute(inode, b"trusted.a", &[7; 3000], Expect::Absent).await.expect("set");
    assert_eq!(fs.extended_attribute(inode, b"trusted.a").await.map(|value| value.len()), Ok(3000));
    assert_eq!(fs.attributes(inode).await.map(|found| (found.permissions, found.uid)), Ok((0o700, 7)));
    match kind {
        FileType::Regular => {
            assert_eq!(fs.write(inode, 0, &[7; 50_000]).await, Ok(50_000));
            fs.truncate(inode, 40_000).await.expect("cut");
            fs.open(inode).await.expect("opened again");
            let mut bytes = [0; 50_000];
            assert_eq!(fs.read(inode, 0, &mut bytes).await, Ok(40_000));
            assert!(bytes[..40_000].iter().all(|byte| *byte == 7));
            fs.fsync(inode).await.expect("durable");
            fs.release(inode).await.expect("closed");
            assert_eq!(fs.link(inode, ROOT_INODE, b"again").await, Err(FsError::NotFound));
        }
        FileType::Directory => {
            assert_eq!(fs.read_directory(inode, Cookie(0)).await.map(|names| names.len()), Ok(0));
            assert_eq!(fs.lookup(inode, b"name").await, Err(FsError::NotFound));
            assert_eq!(fs.lookup(inode, b"..").await, Err(FsError::NotFound));
            assert_eq!(fs.create(inode, b"name", &FILE).await, Err(FsError::NotFound));
            let moved = fs.rename((ROOT_INODE, b"stays"), (inode, b"name"), REPLACE).await;
            assert_eq!(moved, Err(FsError::NotFound));
        }
        FileType::Symlink => assert_eq!(fs.read_link(inode).await, Ok(vec![b'x'; 100])),
        _ => {}
    }
}

#[test]
fn what_is_held_lives_without_a_name_until_it_is_let_go() {
    on_image(&new_image(BLOCKS), async |fs| {
        fs.create(ROOT_INODE, b"stays", &FILE).await.expect("made");
        let free = fs.statfs().await;
        for kind in KINDS {
            let inode = make_held(fs, b"name", kind).await;
            assert_eq!(fs.lookup_held(ROOT_INODE, b"name").await.expect("there").keep(), inode);
            match kind {
                FileType::Directory => fs.rmdir(ROOT_INODE, b"name").await.expect("removed"),
                _ => fs.unlink(ROOT_INODE, b"name").await.expect("removed"),
            }
            use_nameless(fs, inode, kind).await;
            fs.let_go(inode, 1);
            assert_eq!(fs.hold(inode).await.expect("held once still").keep(), inode);
            // While it is open, it exists without a hold.
            fs.open(inode).await.expect("opened");
            fs.let_go(inode, 2);
            assert_eq!(fs.attributes(inode).await.map(|found| found.links), Ok(0));
            drop(fs.hold(inode).await.expect("open"));
            assert!(fs.attributes(inode).await.is_ok());
            fs.release(inode).await.expect("closed");
            assert_eq!(fs.attributes(inode).await.map(drop), Err(FsError::NotFound));
            assert_eq!(fs.hold(inode).await.map(|hold| hold.inode()), Err(FsError::NotFound));
            assert_eq!(fs.statfs().await, free, "{kind:?}: all of it is free again");
        }
    });
}

#[test]
fn what_is_replaced_by_a_rename_lives_until_it_is_let_go() {
    on_image(&new_image(BLOCKS), async |fs| {
        let free = fs.statfs().await;
        for kind in KINDS {
            let old = make_held(fs, b"name", kind).await;
            let new = make_held(fs, b"new", kind).await;
            fs.rename((ROOT_INODE, b"new"), (ROOT_INODE, b"name"), REPLACE).await.expect("replaced");
            assert_eq!(fs.lookup(ROOT_INODE, b"name").await, Ok(new));
            assert_eq!(fs.attributes(old).await.map(|found| found.links), Ok(0));
            assert_eq!(fs.held_inodes(), 2);
            fs.let_go(old, 1);
            fs.let_go(new, 1);
            assert_eq!(fs.held_inodes(), 0);
            match kind {
                FileType::Directory => fs.rmdir(ROOT_INODE, b"name").await.expect("removed"),
                _ => fs.unlink(ROOT_INODE, b"name").await.expect("removed"),
            }
            assert_eq!(fs.statfs().await, free, "{kind:?}");
        }
    });
}

/// A file that was made without a name gets its first as long as it is open or held.
#[test]
fn what_is_held_gets_its_first_name() {
    on_image(&new_image(BLOCKS), async |fs| {
        let free = fs.statfs().await;
        let made = fs.create_unnamed_held(ROOT_INODE, &FILE).await.expect("made").keep();
        fs.release(made).await.expect("closed");
        assert!(fs.attributes(made).await.is_ok_and(|found| found.takes_first_name));
        fs.link(made, ROOT_INODE, b"name").await.expect("named");
        fs.let_go(made, 1);
        assert_eq!(fs.lookup(ROOT_INODE, b"name").await, Ok(made));
        fs.unlink(ROOT_INODE, b"name").await.expect("removed");
        // Without one it goes with the hold.
        let made = fs.create_unnamed_held(ROOT_INODE, &FILE).await.expect("made").keep();
        fs.release(made).await.expect("closed");
        fs.let_go(made, 1);
        assert_eq!(fs.link(made, ROOT_INODE, b"late").await, Err(FsError::NotFound));
        assert_eq!(fs.statfs().await, free);
    });
}

#[test]
fn more_is_let_go_than_was_held() {
    on_image(&new_image(BLOCKS), async |fs| {
        let inode = make_held(fs, b"name", FileType::Regular).await;
        for (number, count) in
            [(inode, 0), (inode, u64::MAX), (inode, 1), (0, 1), (u32::MAX, u64::MAX), (ROOT_INODE, 9)]
        {
            fs.let_go(number, count);
        }
        assert_eq!(fs.held_inodes(), 0);
        assert_eq!(fs.lookup(ROOT_INODE, b"name").await, Ok(inode));
        // A number that was let go and is another file's now: nothing becomes of that.
        fs.unlink(ROOT_INODE, b"name").await.expect("removed");
        let held = make_held(fs, b"first", FileType::Regular).await;
        fs.unlink(ROOT_INODE, b"first").await.expect("removed");
        fs.let_go(held, 1);
        fs.let_go(held, 1);
        let unnamed = fs.create_unnamed(ROOT_INODE, &FILE).await.expect("made");
        fs.statfs().await;
        assert!(fs.attributes(unnamed).await.is_ok());
        fs.release(unnamed).await.expect("closed");
    });
}

/// Removes many files that are held, and lets them go in the order in which a kernel does: first to last.
#[test]
fn many_are_let_go_from_the_far_end_of_the_list_of_orphans() {
    on_image(&new_image(BLOCKS), async |fs| {
        let free = fs.statfs().await;
        let mut held = Vec::new();
        for nth in 0..3000 {
            let name = format!("{nth}").into_bytes();
            held.push(make_held(fs, &name, FileType::Regular).await);
            fs.write(held[nth], 0, &[1; 4096]).await.expect("written");
            fs.unlink(ROOT_INODE, &name).await.expect("removed");
        }
        let now = fs.statfs().await;
        assert_eq!((free.free_blocks - now.free_blocks, free.free_inodes - now.free_inodes), (3000, 3000));
        // Some of the middle first.
        (1000..1100).rev().for_each(|nth| fs.let_go(held[nth], 1));
        held.iter().for_each(|inode| fs.let_go(*inode, 1));
        assert_eq!(fs.statfs().await, free);
    });
}

/// What is let go and not deleted yet is neither missed nor told as taken.
#[test]
fn space_that_was_let_go_is_there_for_the_next_call() {
    on_image(&new_image(BLOCKS), async |fs| {
        let client = Rc::new(Cell::new(None));
        let (shared, door) = (Rc::clone(&client), fs.clone());
        fs.on_reclaim(Box::new(move || {
            if let Some(inode) = shared.take() {
                door.let_go(inode, 1);
            }
            Box::pin(async {})
        }));
        let available = fs.statfs().await.available_blocks;
        let large = make_held(fs, b"large", FileType::Regular).await;
        fs.fallocate(large, weir_vfs::Fallocate::Allocate { keep_size: false }, 0, (available - 500) * 4096)
            .await
            .expect("room");
        for round in 0..3 {
            let next = fs.create_held(ROOT_INODE, b"next", &FILE).await.expect("made").keep();
            let old = fs.lookup(ROOT_INODE, b"large").await.expect("there");
            fs.unlink(ROOT_INODE, b"large").await.expect("removed");
            // Its client has forgotten it, and the door does not know yet.
            client.set(Some(old));
            let all = weir_vfs::Fallocate::Allocate { keep_size: false };
            fs.fallocate(next, all, 0, (available - 500) * 4096).await.expect("room");
            assert_eq!(client.take(), None, "{round}");
            fs.rename((ROOT_INODE, b"next"), (ROOT_INODE, b"large"), REPLACE).await.expect("named");
            let told = fs.statfs().await.available_blocks;
            assert!(told <= 500, "{told}");
            client.set(None);
        }
        let old = fs.lookup(ROOT_INODE, b"large").await.expect("there");
        fs.unlink(ROOT_INODE, b"large").await.expect("removed");
        client.set(Some(old));
        assert!(fs.statfs().await.available_blocks + 10 >= available);
    });
}

/// A client that lets go of an inode that it still uses waits for one second.
#[test]
fn a_call_that_looks_for_space_waits_for_no_lock_of_its_own() {
    on_image(&new_image(BLOCKS), async |fs| {
        let available = fs.statfs().await.available_blocks;
        let inode = make_held(fs, b"name", FileType::Regular).await;
        fs.unlink(ROOT_INODE, b"name").await.expect("removed");
        let (door, all) = (fs.clone(), weir_vfs::Fallocate::Allocate { keep_size: false });
        fs.on_reclaim(Box::new(move || {
            door.let_go(inode, 1);
            Box::pin(async {})
        }));
        assert_eq!(fs.fallocate(inode, all, 0, 2 * available * 4096).await, Err(FsError::NoSpace));
        assert!(fs.statfs().await.available_blocks + 10 >= available);
        assert_eq!(fs.attributes(inode).await.map(drop), Err(FsError::NotFound));
    });
}

/// Whether a power cut leaves nothing of a file that is held: its space is free after the next mount.
fn is_gone_after_a_crash(rename: bool, mutant: Option<FsMutant>) -> bool {
    let left = simulated(async |clock: Handle| {
        let disk = disk(&clock, &new_image(BLOCKS), true);
        let options = MountOptions { rules: Rules::but(mutant), ..MountOptions::default() };
        let fs = mount(&clock, &disk, options).await.expect("mounted");
        let file = make_held(&fs, b"name", FileType::Regular).await;
        for nth in 0..1000 {
            fs.write(file, nth * 8192, &[7; 4096]).await.expect("written");
        }
        match rename {
            true => {
                let new = fs.create(ROOT_INODE, b"new", &FILE).await.expect("made");
                fs.rename((ROOT_INODE, b"new"), (ROOT_INODE, b"name"), REPLACE).await.expect("replaced");
                fs.fsync(new).await.expect("durable");
            }
            false => fs.unlink(ROOT_INODE, b"name").await.expect("removed"),
        }
        fs.fsync(file).await.expect("durable");
        drop(fs);
        let fs = mount(&clock, &disk, MountOptions::default()).await.expect("mounted again");
        let found = fs.statfs().await;
        fs.unmount().await.expect("unmounted");
        (found.free_inodes == found.inodes - 11 - u32::from(rename)).then(|| disk.image())
    });
    left.inspect(|left| judge(left)).is_some()
}

#[test]
fn a_crash_leaves_nothing_of_what_is_held() {
    for rename in [false, true] {
        assert!(is_gone_after_a_crash(rename, None));
        let mutant = Some(FsMutant::HeldIsNoOrphan);
        assert!(!is_gone_after_a_crash(rename, mutant), "the mutant was not noticed");
    }
}

/// Whether a name that is replaced again and again always leads to a file, for callers that look it up meanwhile.
fn a_replaced_name_always_leads_to_a_file(seed: u64, mutant: Option<FsMutant>) -> Result<(), String> {
    crate::support::simulated_with(seed, async |clock: Handle| {
        let disk = disk(&clock, &new_image(BLOCKS), true);
        let options = MountOptions { rules: Rules::but(mutant), ..MountOptions::default() };
        let fs = mount(&clock, &disk, options).await.expect("mounted");
        let first = make_held(&fs, b"name", FileType::Regular).await;
        fs.let_go(first, 1);
        let is_over = Rc::new(Cell::new(false));
        let mut tasks = Vec::new();
        for _ in 0..4 {
            let (fs, clock, is_over) = (fs.clone(), clock.clone(), Rc::clone(&is_over));
            tasks.push(clock.clone().spawn(async move {
                let mut random = clock.random("reader");
                while !is_over.get() {
                    let failed = |what: &'static str| move |error: FsError| format!("{what}: {error}");
                    let inode = fs.lookup_held(ROOT_INODE, b"name").await.map_err(failed("lookup"))?.keep();
                    clock.sleep(Duration::from_micros(random.below(300))).await;
                    fs.open(inode).await.map_err(failed("open"))?;
                    let mut bytes = [0; 8];
                    fs.read(inode, 0, &mut bytes).await.map_err(failed("read"))?;
                    fs.release(inode).await.map_err(failed("close"))?;
                    fs.set_attributes(inode, &AttributeChanges::default()).await.map_err(failed("change"))?;
                    fs.let_go(inode, 1);
                }
                Ok::<_, String>(())
            }));
        }
        for nth in 0..60_u64 {
            let new = fs.create_held(ROOT_INODE, b"new", &FILE).await.expect("made").keep();
            fs.write(new, 0, &nth.to_le_bytes()).await.expect("written");
            fs.rename((ROOT_INODE, b"new"), (ROOT_INODE, b"name"), REPLACE).await.expect("replaced");
            fs.let_go(new, 1);
            clock.sleep(Duration::from_micros(200)).await;
        }
        is_over.set(true);
        for task in tasks {
            task.await.expect("it ends")?;
        }
        let found = fs.statfs().await;
        assert_eq!(fs.held_inodes(), 0);
        fs.unmount().await.expect("unmounted");
        judge(&disk.image());
        match found.inodes - found.free_inodes {
            12 => Ok(()),
            used => Err(format!("{used} inodes are used")),
        }
    })
}

#[test]
fn a_name_that_is_replaced_leads_to_the_old_or_the_new_file() {
    for seed in 0..8 {
        assert_eq!(a_replaced_name_always_leads_to_a_file(seed, None), Ok(()), "{seed}");
    }
    let mutant = Some(FsMutant::FreedWhileHeld);
    let noticed = (0..8).any(|seed| a_replaced_name_always_leads_to_a_file(seed, mutant).is_err());
    assert!(noticed, "the mutant was not noticed");
}

/// An unmount deletes what is held, and does not wait for its holders.
#[test]
fn an_unmount_leaves_nothing_of_what_is_held() {
    on_image(&new_image(BLOCKS), async |fs| {
        for nth in 0..40 {
            let name = format!("{nth}").into_bytes();
            let inode = make_held(fs, &name, KINDS[nth % KINDS.len()]).await;
            match KINDS[nth % KINDS.len()] {
                FileType::Directory => fs.rmdir(ROOT_INODE, &name).await.expect("removed"),
                _ => fs.unlink(ROOT_INODE, &name).await.expect("removed"),
            }
            // Of some the deletion has begun.
            fs.let_go(inode, u64::from(nth % 3 == 0));
        }
    });
}
