//! Power cuts: what synchronisation calls promised is there after each, and the check finds nothing.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use weir_f2fs::NodeId;
use weir_lfs::F2fsOptions;
use weir_runtime::Handle;
use weir_storage::{AdversaryDisk, AdversaryOptions, Image, Storage};
use weir_vfs::SyncCall;

use crate::histories::{History, judge_histories, version_page};
use crate::support::{judge_disk, mounted, mounted_on, options, play, regular};

const ROOT: u32 = NodeId::ROOT.0;
/// Blocks of the disk: 64 MiB.
const BLOCKS: u64 = 16_384;
/// Files of a run.
const FILES: usize = 6;

/// States that power cuts leave, with what may be in them.
type Left = Rc<RefCell<Vec<(Image, Vec<History>)>>>;

/// Takes a state at some events of the disk, in the middle of calls.
fn sample_events(clock: &Handle, disk: &AdversaryDisk, histories: &Rc<RefCell<Vec<History>>>) -> Left {
    let left = Left::default();
    let random = RefCell::new(clock.random("cuts"));
    disk.observe(Box::new({
        let (left, histories) = (Rc::clone(&left), Rc::clone(histories));
        move |disk| {
            let mut random = random.borrow_mut();
            if random.below(30) == 0 {
                let image = disk.crash_states().sample(&mut random);
                left.borrow_mut().push((image, histories.borrow().clone()));
            }
        }
    }));
    left
}

/// One run of random calls; states of power cuts are judged on the way.
async fn run(clock: Handle, disk: AdversaryOptions, mount: F2fsOptions, judged: &RefCell<u32>) {
    let mut random = clock.random("script");
    let (disk, fs) = mounted_on(&clock, disk, mount).await;
    let histories = Rc::new(RefCell::new(vec![History::default(); FILES]));
    let left = sample_events(&clock, &disk, &histories);
    let mut inodes = [0; FILES];
    for step in 0..60_u8 {
        let nth = random.below(FILES as u64) as usize;
        let name = format!("file-{nth}");
        let is_made = histories.borrow()[nth].is_made;
        if !is_made {
            inodes[nth] = fs.create(ROOT, name.as_bytes(), &regular()).await.expect("made");
            histories.borrow_mut()[nth].is_made = true;
        }
        let inode = inodes[nth];
        match random.below(10) {
            0..6 => {
                let index = random.below(1200) as usize;
                histories.borrow_mut()[nth].note_write(index, step + 1);
                fs.write(inode, index as u64 * 4096, &version_page(step + 1)).await.expect("written");
            }
            6 => fs.synchronise(inode, SyncCall::Fbarrier).await.expect("ordered"),
            7 => {
                fs.synchronise(inode, SyncCall::Fsync).await.expect("durable");
                histories.borrow_mut()[nth].make_durable();
            }
            8 => {
                fs.fdatasync(inode).await.expect("durable");
                histories.borrow_mut()[nth].make_durable();
            }
            _ => {
                fs.sync().await.expect("durable");
                let mut all = histories.borrow_mut();
                all.iter_mut().filter(|history| history.is_made).for_each(History::make_durable);
            }
        }
        let states: Vec<_> = left.borrow_mut().drain(..).collect();
        for (image, histories) in states {
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

/// Runs the script on a disk with barriers, and on one that has none and tears blocks.
#[test]
fn what_was_promised_is_there_after_a_power_cut() {
    let judged = RefCell::new(0);
    let mut torn = options(BLOCKS, false);
    torn.capabilities.tear_unit_bytes = 512;
    for (disk, seeds) in [(options(BLOCKS, true), 0..20), (torn, 20..40)] {
        for seed in seeds {
            // A page that is overwritten in place is torn, too.
            let in_place_pages = if seed % 2 == 0 && seed < 20 { 8 } else { 0 };
            let mount = F2fsOptions { in_place_pages, ..F2fsOptions::default() };
            play(seed, async |clock| run(clock, disk.clone(), mount, &judged).await);
        }
    }
    assert!(judged.into_inner() > 200);
}
