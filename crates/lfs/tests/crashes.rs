//! Power cuts: what synchronisation calls promised is there after each, and the check finds nothing.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use weir_f2fs::NodeId;
use weir_lfs::F2fsOptions;
use weir_runtime::Handle;
use weir_storage::{AdversaryOptions, Storage};
use weir_vfs::SyncCall;

use crate::histories::{History, judge_histories, version_page};
use crate::support::{judge_disk, mounted, mounted_on, options, play, regular};

const ROOT: u32 = NodeId::ROOT.0;
/// Blocks of the disk: 64 MiB.
const BLOCKS: u64 = 16_384;
/// Files of a run.
const FILES: usize = 6;

/// One run of random calls; states of power cuts are judged on the way.
async fn run(clock: Handle, mount: F2fsOptions, judged: &RefCell<u32>) {
    let mut random = clock.random("script");
    let (disk, fs) = mounted(&clock, BLOCKS, mount).await;
    let mut histories = vec![History::default(); FILES];
    let mut inodes = [0; FILES];
    for step in 0..60_u8 {
        let nth = random.below(FILES as u64) as usize;
        let name = format!("file-{nth}");
        if !histories[nth].is_made {
            inodes[nth] = fs.create(ROOT, name.as_bytes(), &regular()).await.expect("made");
            histories[nth].is_made = true;
        }
        let inode = inodes[nth];
        match random.below(10) {
            0..6 => {
                let index = random.below(1200) as usize;
                fs.write(inode, index as u64 * 4096, &version_page(step + 1)).await.expect("written");
                histories[nth].note_write(index, step + 1);
            }
            6 => fs.synchronise(inode, SyncCall::Fbarrier).await.expect("ordered"),
            7 => {
                fs.synchronise(inode, SyncCall::Fsync).await.expect("durable");
                histories[nth].make_durable();
            }
            8 => fs.fdatasync(inode).await.map(|()| histories[nth].make_durable()).expect("durable"),
            _ => {
                fs.sync().await.expect("durable");
                histories.iter_mut().filter(|history| history.is_made).for_each(History::make_durable);
            }
        }
        if random.below(3) == 0 {
            let image = disk.crash_states().sample(&mut random);
            *judged.borrow_mut() += 1;
            judge_histories(&clock, &image, &histories, mount).await;
        }
    }
}

/// A file is deleted while a checkpoint that has it comes to the disk, and another is made durable behind it.
#[test]
fn a_number_that_is_freed_during_a_checkpoint_waits_for_the_next() {
    play(30, async |clock| {
        let slow = AdversaryOptions { latency_ns_max: 1_000_000, ..options(BLOCKS, false) };
        let (disk, fs) = mounted_on(&clock, slow, F2fsOptions::default()).await;
        let first = fs.create(ROOT, b"first", &regular()).await.expect("made");
        fs.write(first, 0, &version_page(1)).await.expect("written");
        let checkpoint = clock.spawn_thread("checkpoint", {
            let fs = fs.clone();
            async move { fs.sync().await }
        });
        // Behind the layout, before the footer.
        clock.sleep(Duration::from_micros(300)).await;
        fs.unlink(ROOT, b"first").await.expect("deleted");
        checkpoint.await.expect("ended").expect("durable");
        // Its number would be the next.
        for nth in 0..500 {
            let name = format!("second-{nth}");
            let second = fs.create(ROOT, name.as_bytes(), &regular()).await.expect("made");
            assert_ne!(second, first, "the number of a file that the newest checkpoint has");
        }
        fs.unmount().await.expect("unmounted");
        judge_disk(disk as Rc<dyn Storage>).await;
    });
}

/// A checkpoint has failed: what was changed is not durable, and no call says that it is.
#[test]
fn no_call_lies_after_a_checkpoint_that_failed() {
    play(31, async |clock| {
        let (disk, fs) = mounted(&clock, BLOCKS, F2fsOptions::default()).await;
        let file = fs.create(ROOT, b"file", &regular()).await.expect("made");
        disk.cut_power();
        assert!(fs.sync().await.is_err());
        assert!(fs.fsync(file).await.is_err());
        assert!(fs.sync().await.is_err());
        assert!(fs.unmount().await.is_err());
    });
}

#[test]
fn what_was_promised_is_there_after_a_power_cut() {
    let judged = RefCell::new(0);
    for seed in 0..20 {
        let mount =
            F2fsOptions { in_place_pages: if seed % 2 == 0 { 8 } else { 0 }, ..F2fsOptions::default() };
        play(seed, async |clock| run(clock, mount, &judged).await);
    }
    assert!(judged.into_inner() > 200);
}
