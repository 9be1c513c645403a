//! Atomic writes: an update is there after a power cut as a whole or not at all, whatever else goes on; it is read as it was written, and
//! taken back as if it had never been begun.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use weir_f2fs::NodeId;
use weir_lfs::{F2fs, F2fsOptions};
use weir_runtime::Handle;
use weir_storage::{AdversaryDisk, AdversaryOptions, Image, Storage};
use weir_vfs::{Fallocate, FsError, InodeNumber, SyncCall};

use crate::support::{
    PAGE, content, judge_disk, mounted, mounted_on, options, play, regular, unmount_and_judge,
};

const ROOT: u32 = NodeId::ROOT.0;
/// Blocks of the disk: 64 MiB.
const BLOCKS: u64 = 16_384;
/// Pages of a file at first: the inode leads to most, and a node to the rest.
const PAGES: u64 = 930;

/// Mounts on which everything that could put a part of an update on the disk is quick.
fn hasty() -> F2fsOptions {
    F2fsOptions {
        checkpoint_interval: Duration::from_millis(1),
        dirty_background_bytes: 1,
        ..F2fsOptions::default()
    }
}

/// A state that a power cut leaves, with the updates of which each file may show one: those from the last durable one on.
type Left = (Image, [std::ops::RangeInclusive<u8>; 2]);

/// Two files, updated one by one and together, beside one that is made durable all the time.
struct Updates {
    clock: Handle,
    fs: F2fs,
    files: [InodeNumber; 2],
    /// The last update of each file that is durable, and the one that is being written.
    between: Rc<[Cell<(u8, u8)>; 2]>,
}

impl Updates {
    /// Makes the files, of ones, durable.
    async fn new(clock: &Handle, fs: &F2fs) -> Updates {
        let mut files = [0; 2];
        for (file, name) in files.iter_mut().zip([b"a", b"b"]) {
            *file = fs.create(ROOT, name, &regular()).await.expect("made");
            write_all(fs, *file, 0, &vec![1; PAGES as usize * PAGE]).await;
        }
        fs.sync().await.expect("durable");
        Updates {
            clock: clock.clone(),
            fs: fs.clone(),
            files,
            between: Rc::new([(); 2].map(|()| Cell::new((1, 1)))),
        }
    }

    /// Writes an update of a file, which makes it longer, with time for others in between.
    async fn write(&self, nth: usize, version: u8) {
        let (fs, file) = (&self.fs, self.files[nth]);
        fs.begin_update(file).await.expect("begun");
        for page in places(version) {
            fs.write(file, page * PAGE as u64, &[version; PAGE]).await.expect("written");
            if page % 3 == 0 {
                self.clock.sleep(Duration::from_millis(2)).await;
            }
        }
        assert_eq!(fs.synchronise(file, SyncCall::Fsync).await, Err(FsError::UpdateOpen));
    }

    /// Ends the updates of some files, and makes them durable or orders them.
    async fn end(&self, nths: &[usize], version: u8, call: SyncCall) {
        let files: Vec<_> = nths.iter().map(|nth| self.files[*nth]).collect();
        for nth in nths {
            self.between[*nth].set((self.between[*nth].get().0, version));
        }
        self.fs.end_updates(&files).await.expect("ended");
        self.clock.sleep(Duration::from_micros(u64::from(version) * 100)).await;
        for (nth, file) in nths.iter().zip(files) {
            self.fs.synchronise(file, call).await.expect("synchronised");
            if matches!(call, SyncCall::Fsync | SyncCall::Fdatasync) {
                self.between[*nth].set((version, version));
            }
        }
    }

    /// All of them.
    async fn play(&self, call: SyncCall) {
        let other = self.fs.create(ROOT, b"other", &regular()).await.expect("made");
        for version in 2..6 {
            self.fs.write(other, u64::from(version) * PAGE as u64, &[7; PAGE]).await.expect("written");
            self.fs.fsync(other).await.expect("durable");
            if version % 2 == 0 {
                for nth in 0..2 {
                    self.write(nth, version).await;
                    self.end(&[nth], version, call).await;
                }
            } else {
                self.write(0, version).await;
                self.write(1, version).await;
                self.end(&[0, 1], version, call).await;
            }
        }
    }
}

/// The pages that an update writes, in an order that no disk would choose.
fn places(version: u8) -> impl Iterator<Item = u64> {
    [0, 1, 500, PAGES - 1].into_iter().chain(PAGES..PAGES + u64::from(version)).rev()
}

async fn write_all(fs: &F2fs, file: InodeNumber, offset: u64, bytes: &[u8]) {
    let mut done = 0;
    while done < bytes.len() {
        done += fs.write(file, offset + done as u64, &bytes[done..]).await.expect("written");
    }
}

/// Which update a file shows as a whole.
fn update_of(content: &[u8]) -> Result<u8, String> {
    let version = content.first().copied().unwrap_or(0);
    let pages = if version == 1 { PAGES } else { PAGES + u64::from(version) };
    let shows = |page: u64, version: u8| {
        content
            .get(page as usize * PAGE..(page as usize + 1) * PAGE)
            .is_some_and(|page| page.iter().all(|byte| *byte == version))
    };
    // Each update overwrites the pages of the one before, and adds one.
    let is_whole = content.len() as u64 == pages * PAGE as u64
        && places(version).filter(|page| *page < pages).all(|page| shows(page, version))
        && (2..500).all(|page| shows(page, 1));
    if is_whole {
        Ok(version)
    } else {
        Err(format!("{} pages, of {version} and others", content.len() / PAGE))
    }
}

/// Mounts what is left, and tells which update each file shows.
async fn judge_state(clock: &Handle, disk: &AdversaryOptions, (image, allowed): Left) {
    let disk = AdversaryDisk::from_image(clock, disk.clone(), &image);
    let fs = F2fs::mount(clock, Rc::clone(&disk) as Rc<dyn Storage>, F2fsOptions::default()).await;
    let fs = fs.expect("mounted");
    let mut shown = [0; 2];
    for ((name, allowed), shown) in [b"a", b"b"].into_iter().zip(&allowed).zip(&mut shown) {
        let file = fs.lookup(ROOT, name).await.expect("there");
        *shown = update_of(&content(&fs, file).await.expect("read")).expect("whole");
        assert!(allowed.contains(shown), "{shown} is none of {allowed:?}");
    }
    // Of a version that was ended together, both files have all.
    let together = |version: u8| version > 1 && version % 2 == 1;
    let (first, second) = (shown[0], shown[1]);
    assert!(
        !(together(first) && second < first || together(second) && first < second),
        "{shown:?}: half of a group"
    );
    fs.unmount().await.expect("unmounted");
    judge_disk(disk as Rc<dyn Storage>).await;
}

#[test]
fn an_update_is_there_as_a_whole_or_not_at_all() {
    let mut judged = 0;
    for (barriers, mount) in [(true, hasty()), (false, hasty()), (true, F2fsOptions::default())] {
        for (seed, call) in [(1, SyncCall::Fsync), (2, SyncCall::Fdatabarrier), (3, SyncCall::Fdatasync)] {
            play(seed, async |clock| {
                let disk_options = AdversaryOptions { latency_ns_max: 200_000, ..options(BLOCKS, barriers) };
                let (disk, fs) = mounted_on(&clock, disk_options.clone(), mount).await;
                let updates = Updates::new(&clock, &fs).await;
                let states: Rc<RefCell<Vec<Left>>> = Rc::default();
                let random = RefCell::new(clock.random("cuts"));
                disk.observe(Box::new({
                    let (states, between) = (Rc::clone(&states), Rc::clone(&updates.between));
                    move |disk| {
                        let mut random = random.borrow_mut();
                        if random.below(4) == 0 {
                            let allowed = [0, 1].map(|nth| {
                                let (durable, newest) = between[nth].get();
                                durable..=newest
                            });
                            states.borrow_mut().push((disk.crash_states().sample(&mut random), allowed));
                        }
                    }
                }));
                updates.play(call).await;
                for state in states.take() {
                    judged += 1;
                    judge_state(&clock, &disk_options, state).await;
                }
            });
        }
    }
    assert!(judged > 300, "{judged} states");
}

/// An update is seen by those that read, and what is taken back was never there.
#[test]
fn an_update_is_read_and_taken_back() {
    play(4, async |clock| {
        let (disk, fs) = mounted(&clock, BLOCKS, hasty()).await;
        let file = fs.create(ROOT, b"file", &regular()).await.expect("made");
        fs.write(file, 0, b"small").await.expect("written");
        assert!(matches!(fs.end_updates(&[file]).await, Err(FsError::Invalid(_))), "none was begun");
        fs.begin_update(file).await.expect("begun");
        assert_eq!(fs.begin_update(file).await, Err(FsError::UpdateOpen));
        fs.write(file, 2, b"xx").await.expect("written");
        fs.write(file, 3 * PAGE as u64 + 1, b"far").await.expect("written");
        let mut expected = b"smxxl".to_vec();
        expected.resize(3 * PAGE + 1, 0);
        expected.extend(b"far");
        assert_eq!(content(&fs, file).await.expect("read"), expected);
        assert_eq!(fs.truncate(file, 1).await, Err(FsError::UpdateOpen));
        let hole = fs.fallocate(file, Fallocate::PunchHole, 0, PAGE as u64).await;
        assert_eq!(hole, Err(FsError::UpdateOpen));
        fs.abandon_update(file).await.expect("abandoned");
        assert_eq!(content(&fs, file).await.expect("read"), b"small");
        fs.begin_update(file).await.expect("begun");
        fs.truncate(file, 10).await.expect("longer");
        fs.write(file, 2, b"yy").await.expect("written");
        fs.end_updates(&[file]).await.expect("ended");
        assert_eq!(content(&fs, file).await.expect("read"), b"smyyl\0\0\0\0\0");
        fs.fsync(file).await.expect("durable");
        // One that is begun and not ended is gone with the mount.
        fs.begin_update(file).await.expect("begun");
        fs.write(file, 0, b"gone").await.expect("written");
        unmount_and_judge(&disk, fs).await;
        let fs = F2fs::mount(&clock, disk as Rc<dyn Storage>, F2fsOptions::default()).await.expect("mounted");
        assert_eq!(content(&fs, file).await.expect("read"), b"smyyl\0\0\0\0\0");
    });
}

/// The program that began an update has closed the file.
#[test]
fn an_update_ends_with_its_program() {
    play(5, async |clock| {
        let (_disk, fs) = mounted(&clock, BLOCKS, F2fsOptions::default()).await;
        let file = fs.create(ROOT, b"file", &regular()).await.expect("made");
        fs.open(file).await.expect("open");
        fs.begin_update(file).await.expect("begun");
        fs.write(file, 0, b"half").await.expect("written");
        fs.release(file).await.expect("closed");
        assert_eq!(content(&fs, file).await.expect("read"), b"");
        fs.fsync(file).await.expect("durable");
    });
}

/// Updates have a bound over all files, and one that does not fit the disk leaves the file as it was.
#[test]
fn an_update_that_is_too_large_is_refused() {
    play(6, async |clock| {
        let (disk, fs) = mounted(&clock, BLOCKS, F2fsOptions::default()).await;
        let mut files = Vec::new();
        for name in [b"a", b"b"] {
            let file = fs.create(ROOT, name, &regular()).await.expect("made");
            fs.write(file, 0, b"old").await.expect("written");
            fs.begin_update(file).await.expect("begun");
            files.push(file);
        }
        let chunk = vec![1; 512 * PAGE];
        for nth in 0..8 {
            write_all(&fs, files[nth % 2], (nth / 2) as u64 * chunk.len() as u64, &chunk).await;
        }
        let refused = fs.write(files[0], 4 * chunk.len() as u64, &chunk).await;
        assert_eq!(refused, Err(FsError::UpdateTooLarge { most: 4096 }));
        fs.abandon_update(files[1]).await.expect("abandoned");
        write_all(&fs, files[0], 4 * chunk.len() as u64, &chunk).await;
        // The disk is filled meanwhile.
        let full = fs.create(ROOT, b"full", &regular()).await.expect("made");
        let mut offset = 0;
        while let Ok(written) = fs.write(full, offset, &chunk).await {
            offset += written as u64;
        }
        assert_eq!(fs.end_updates(&[files[0]]).await, Err(FsError::NoSpace));
        fs.abandon_update(files[0]).await.expect("abandoned");
        assert_eq!(content(&fs, files[0]).await.expect("read"), b"old");
        // Few pages that have places are overwritten on a full disk, too.
        fs.begin_update(full).await.expect("begun");
        write_all(&fs, full, 0, &vec![2; 4 * PAGE]).await;
        fs.end_updates(&[full]).await.expect("ended");
        fs.fsync(full).await.expect("durable");
        unmount_and_judge(&disk, fs).await;
    });
}

/// The largest update ends on a small filesystem: there is room, or it is told that there is none, and nothing of it is left.
#[test]
fn a_large_update_ends_or_leaves_no_trace() {
    play(7, async |clock| {
        let (disk, fs) = mounted(&clock, BLOCKS, F2fsOptions::default()).await;
        let file = fs.create(ROOT, b"file", &regular()).await.expect("made");
        fs.write(file, 0, b"old").await.expect("written");
        fs.fsync(file).await.expect("durable");
        let chunk = vec![1; 256 * PAGE];
        for chunks in 1..=16 {
            let before = fs.statfs().await.available_blocks;
            fs.begin_update(file).await.expect("begun");
            // Far apart, so that each needs a node.
            for nth in 0..chunks {
                write_all(&fs, file, nth * (4 << 20), &chunk).await;
            }
            match fs.end_updates(&[file]).await {
                Ok(()) => {
                    fs.fsync(file).await.expect("durable");
                    fs.truncate(file, 3).await.expect("shorter");
                    fs.sync().await.expect("durable");
                }
                Err(error) => {
                    assert_eq!(error, FsError::NoSpace, "{chunks} chunks");
                    fs.abandon_update(file).await.expect("abandoned");
                    fs.sync().await.expect("durable");
                    let lost = before - fs.statfs().await.available_blocks;
                    assert!(lost <= 2 * chunks, "{lost} blocks are gone after {chunks} chunks");
                }
            }
        }
        unmount_and_judge(&disk, fs).await;
    });
}

/// A file with an update is deleted, and closed.
#[test]
fn an_update_of_a_deleted_file_goes_with_it() {
    play(8, async |clock| {
        let (disk, fs) = mounted(&clock, BLOCKS, F2fsOptions::default()).await;
        for nth in 0..3 {
            let file = fs.create(ROOT, b"file", &regular()).await.expect("made");
            fs.open(file).await.expect("open");
            fs.begin_update(file).await.expect("begun");
            // Each takes more than half of what all updates may have.
            for piece in 0..5 {
                let bytes = vec![nth; 512 * PAGE];
                write_all(&fs, file, piece * bytes.len() as u64, &bytes).await;
            }
            assert_eq!(fs.seek_data(file, 7).await, Ok(Some(7)));
            assert_eq!(fs.seek_hole(file, 7).await, Ok(Some(5 * 512 * PAGE as u64)));
            fs.unlink(ROOT, b"file").await.expect("deleted");
            fs.release(file).await.expect("closed");
        }
        unmount_and_judge(&disk, fs).await;
    });
}
