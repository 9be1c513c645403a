//! Bad input: damaged, truncated and foreign images, full disks, and disks that fail. Always a typed error
//! or right data; never a panic, a hang, or an acknowledged write that is gone.

#![allow(clippy::print_stdout, reason = "counts belong in the log of a test run")]

use std::cell::RefCell;
use std::rc::Rc;

use crate::bench::{
    BLOCKS, FORMAT, disk_options, disk_with, get, made, made_on, open, put, record_cuts, simulate,
};
use weir_crash::{Model, Verdict};
use weir_runtime::Handle;
use weir_storage::{
    AdversaryDisk, BLOCK_BYTES, Command, Extent, Fault, Faults, Image, Lba, Rejected, StorageError, flush,
    submit_when_free,
};
use weir_volume::{Damage, Format, Volume, VolumeError, VolumeOptions, check};

/// Blocks that the requests use.
const USED: u64 = 18;

/// Requests one after the other, each flush acknowledged: what was asked for, and what was promised.
struct History {
    model: Model,
    promised: u64,
}

impl History {
    fn new() -> History {
        History { model: Model::new(USED), promised: 0 }
    }

    /// Writes `requests` single blocks with a flush behind every third, until something fails.
    async fn go_on(&mut self, volume: &Volume, requests: u64) -> Result<(), Rejected> {
        for _ in 0..requests {
            let stamp = self.model.next_stamp();
            let block = stamp * 7 % USED;
            self.model.write(vec![block]);
            put(volume, block, stamp).await?;
            if stamp.is_multiple_of(3) {
                flush(volume).await?;
                self.promised = self.model.requests();
            }
        }
        Ok(())
    }
}

async fn read_all(volume: &Volume) -> Result<Vec<u64>, VolumeError> {
    let mut stamps = Vec::new();
    for block in 0..USED {
        let found = get(volume, block).await.map_err(VolumeError::Disk)?;
        stamps.push(found.expect("what is read back is checked, and everybody's pages are whole"));
    }
    Ok(stamps)
}

/// What is on an image: the stamps, or a typed error from opening or from reading.
fn open_image(image: &Image) -> Result<Vec<u64>, VolumeError> {
    simulate(9, async |handle| {
        let disk = disk_with(&handle, image, Faults::default());
        let looked = check(&*disk).await;
        let volume = open(&handle, &disk, &VolumeOptions::default()).await?;
        assert!(looked.is_ok(), "a check finds no fault that recovery does not: {looked:?}");
        read_all(&volume).await
    })
}

/// A volume with some checkpoints behind it and a log in front: its image, and what it must hold. The last
/// request is not promised: nothing behind it could say that it was durable (V2).
fn used_image() -> (Image, History) {
    used_image_of(BLOCKS, 61)
}

fn used_image_of(blocks: u64, requests: u64) -> (Image, History) {
    simulate(8, async |handle| {
        let disk = made_on(&handle, blocks).await;
        let options = VolumeOptions { checkpoint_segments: 3, ..VolumeOptions::default() };
        let volume = open(&handle, &disk, &options).await.expect("the volume is whole");
        let mut history = History::new();
        history.go_on(&volume, requests).await.expect("nothing fails");
        assert!(volume.stats().checkpoints > 1, "{:?}", volume.stats());
        let promised = history.promised;
        flush(&volume).await.expect("nothing fails");
        history.promised = promised;
        (disk.image(), history)
    })
}

fn flipped(image: &Image, block: u64, bit: u64) -> Image {
    let mut image = image.clone();
    image.flip_bit(block * BLOCK_BYTES as u64 + bit / 8, (bit % 8) as u32);
    image
}

/// Bits of the superblock that mean something.
const SUPERBLOCK_BITS: u64 = 88 * 8;

#[test]
fn one_superblock_may_be_damaged_anywhere() {
    let (image, history) = used_image();
    for bit in 0..SUPERBLOCK_BITS {
        for copy in 0..2 {
            let found = open_image(&flipped(&image, copy, bit)).expect("the other copy is whole");
            assert_eq!(history.model.judge(&found, history.promised), Ok(history.model.requests()));
        }
    }
}

#[test]
fn two_damaged_superblocks_are_an_error_in_every_field() {
    let (image, _) = used_image();
    for bit in 0..SUPERBLOCK_BITS {
        let error = open_image(&flipped(&flipped(&image, 0, bit), 1, bit)).expect_err("damaged");
        let named = match error {
            VolumeError::Foreign => bit < 64,
            VolumeError::Damaged { what: Damage::Superblock, .. } => bit >= 64,
            _ => false,
        };
        assert!(named, "bit {bit}: {error}");
    }
}

/// One bit anywhere: an error, or all that was promised.
fn is_honest(image: &Image, history: &History) -> Result<bool, Verdict> {
    match open_image(image) {
        Err(VolumeError::Damaged { .. } | VolumeError::Disk(Rejected::Failed(StorageError::Damaged(_)))) => {
            Ok(false)
        }
        Err(error) => panic!("not the right error for damage: {error}"),
        Ok(found) => history.model.judge(&found, history.promised).map(|_| true),
    }
}

#[test]
fn a_flipped_bit_in_checkpoints_maps_and_headers_is_no_silent_loss() {
    // Room to spare, and so little that cleaning never ends; a short log and a long one.
    let lengths = [40, 97, 211];
    for (blocks, requests) in [BLOCKS, 8 + 9 * 8].into_iter().flat_map(|b| lengths.map(|r| (b, r))) {
        let (image, history) = used_image_of(blocks, requests);
        let (opened, refused) = flip_metadata(&image, &history);
        println!(
            "{blocks} blocks, {requests} requests: {opened} opened with everything promised, {refused} refused"
        );
        assert!(opened > 0 && refused > 0);
    }
}

fn flip_metadata(image: &Image, history: &History) -> (u64, u64) {
    let (mut opened, mut refused) = (0, 0);
    // Blocks 2 to 5 hold the checkpoints and the map pages; bits of what follows their heads are sampled.
    let heads = (2..6).flat_map(|block| {
        (0..64 * 8).chain((512..BLOCK_BYTES as u64 * 8).step_by(397)).map(move |bit| (block, bit))
    });
    let headers = (8..image.blocks()).flat_map(|block| (0..64 * 8).step_by(13).map(move |bit| (block, bit)));
    for (block, bit) in heads.chain(headers) {
        let honest = is_honest(&flipped(image, block, bit), history);
        let whole = honest.unwrap_or_else(|verdict| panic!("block {block} bit {bit}: {verdict}"));
        (opened, refused) = (opened + u64::from(whole), refused + u64::from(!whole));
    }
    (opened, refused)
}

#[test]
fn random_flips_never_panic() {
    let (image, history) = used_image();
    let random =
        &mut weir_runtime::Runtime::simulated(weir_runtime::Simulation::default()).handle().random("flips");
    for round in 0..2_000 {
        let mut image = image.clone();
        for _ in 0..=random.below(4) {
            image.flip_bit(random.below(BLOCKS * BLOCK_BYTES as u64), random.below(8) as u32);
        }
        if let Ok(found) = open_image(&image) {
            let left = history.model.judge(&found, 0);
            assert!(left.is_ok(), "round {round}: {left:?}");
        }
    }
}

/// Power cuts while a volume is made where another one was.
#[test]
fn a_volume_half_made_is_the_old_one_the_new_one_or_none() {
    let (old, history) = used_image();
    let cuts: Rc<RefCell<Vec<Image>>> = Rc::default();
    simulate(3, async |handle| {
        let disk = disk_with(&handle, &old, Faults::default());
        let kept = Rc::clone(&cuts);
        record_cuts(&handle, &disk, move |image| kept.borrow_mut().push(image));
        let format = Format { overwrite: true, ..FORMAT };
        Volume::create(&handle, &*disk, format).await.expect("a volume fits");
        kept_last(&disk, &cuts);
    });
    let (mut olds, mut news, mut none) = (0, 0, 0);
    for image in cuts.borrow().iter() {
        match open_image(image) {
            Ok(found) if found.iter().all(|stamp| *stamp == 0) => news += 1,
            Ok(found) => {
                assert_eq!(history.model.judge(&found, history.promised), Ok(history.model.requests()));
                olds += 1;
            }
            Err(VolumeError::Foreign | VolumeError::Damaged { .. }) => none += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(olds > 0 && news > 0 && none > 0, "{olds} {news} {none}");
}

/// The volume is made: now it is there whatever happens.
fn kept_last(disk: &AdversaryDisk, cuts: &RefCell<Vec<Image>>) {
    cuts.borrow_mut().extend(disk.crash_states().all().take(16));
}

fn truncated(image: &Image, blocks: u64) -> Image {
    let mut short = Image::zeroed(blocks, 512);
    (0..blocks).for_each(|block| short.write(Lba(block), &image.read(Lba(block))));
    short
}

#[test]
fn a_truncated_volume_says_so() {
    let (image, _) = used_image();
    for blocks in 1..BLOCKS {
        let expected = VolumeError::Truncated { needed: BLOCKS, found: blocks };
        assert_eq!(open_image(&truncated(&image, blocks)), Err(expected));
    }
}

#[test]
fn foreign_data_is_neither_opened_nor_overwritten() {
    let mut foreign = Image::zeroed(BLOCKS, 512);
    assert_eq!(open_image(&foreign), Err(VolumeError::Foreign));
    foreign.write(Lba(70), &[7; BLOCK_BYTES]);
    assert_eq!(open_image(&foreign), Err(VolumeError::Foreign));
    let create = |image: &Image, format: Format| {
        simulate(1, async |handle| {
            let disk = disk_with(&handle, image, Faults::default());
            let outcome = Volume::create(&handle, &*disk, format).await;
            (outcome, disk.image().hash() == image.hash())
        })
    };
    assert_eq!(create(&foreign, FORMAT), (Err(VolumeError::NotEmpty(Lba(70))), true));
    assert_eq!(create(&used_image().0, FORMAT), (Err(VolumeError::VolumeExists), true));
    assert_eq!(create(&foreign, Format { overwrite: true, ..FORMAT }), (Ok(()), false));
}

#[test]
fn a_full_volume_says_so_and_keeps_what_it_has() {
    simulate(4, async |handle| {
        let disk = AdversaryDisk::new(&handle, disk_options(Faults::default()));
        let thin = Format { logical_blocks: 500, ..FORMAT };
        Volume::create(&handle, &*disk, thin).await.expect("a volume fits");
        let volume = open(&handle, &disk, &VolumeOptions::default()).await.expect("the volume is whole");
        let mut written = 0;
        let refusal = loop {
            match put(&volume, written, written + 1).await {
                Ok(()) => written += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(refusal, Rejected::Failed(StorageError::NoSpace));
        assert!(written >= volume.stats().usable_blocks, "{written} of {}", volume.stats().usable_blocks);
        // Overwriting takes no space, and what was discarded gives some back.
        put(&volume, 5, 1_000).await.expect("block 5 has its place");
        let ticket = submit_when_free(&volume, Command::Discard(&[Extent::new(Lba(0), 2)])).await;
        ticket.expect("a discard needs no space").transferred().await.expect("nothing fails");
        put(&volume, written, written + 1).await.expect("two blocks are free");
        flush(&volume).await.expect("nothing fails");
        for block in 2..=written {
            let stamp = if block == 5 { 1_000 } else { block + 1 };
            assert_eq!(get(&volume, block).await, Ok(Some(stamp)));
        }
    });
}

/// Requests to a disk that fails.
const REQUESTS: u64 = 150;

/// What a disk with these faults does to a volume, and what it leaves: every promise has to be there.
/// Whether anybody noticed.
fn with_faults(seed: u64, faults: Faults) -> bool {
    let (image, history, noticed) = simulate(seed, async |handle: Handle| {
        let empty = made(&handle).await.image();
        let disk = disk_with(&handle, &empty, faults);
        let mut history = History::new();
        let noticed = fail(&handle, &disk, &mut history).await;
        (disk.crash_states().sample(&mut handle.random("cut")), history, noticed)
    });
    let found = open_image(&image).unwrap_or_else(|error| panic!("seed {seed}, {faults:?}: {error}"));
    let left = history.model.judge(&found, history.promised);
    assert!(left.is_ok(), "seed {seed}, {faults:?}: {left:?}");
    noticed
}

/// Writes until the disk's failure shows; afterwards nothing is acknowledged as durable any more.
async fn fail(handle: &Handle, disk: &Rc<AdversaryDisk>, history: &mut History) -> bool {
    let options = VolumeOptions { checkpoint_segments: 3, ..VolumeOptions::default() };
    let volume = match open(handle, disk, &options).await {
        Ok(volume) => volume,
        Err(error) => {
            let cause = matches!(error, VolumeError::Disk(Rejected::Failed(StorageError::Device { .. })));
            assert!(cause, "it names the cause: {error}");
            return true;
        }
    };
    let Err(error) = history.go_on(&volume, REQUESTS).await else { return false };
    assert!(matches!(error, Rejected::Failed(StorageError::Device { .. })), "it names the cause: {error}");
    for _ in 0..3 {
        assert!(flush(&volume).await.is_err(), "durable again after {error}");
    }
    assert!(volume.close().await.is_err(), "closed as if nothing had happened");
    true
}

#[test]
fn a_disk_that_fails_once_loses_nothing_acknowledged() {
    for (nth, seed) in (1..=50).flat_map(|nth| (0..3).map(move |seed| (nth, seed))) {
        let once = Fault::Nth(nth);
        assert!(with_faults(seed, Faults { write_error: once, ..Faults::default() }), "write {nth}");
        assert!(with_faults(seed, Faults { flush_error: once, ..Faults::default() }), "flush {nth}");
        // Only opening and cleaning read here.
        with_faults(seed, Faults { read_error: once, ..Faults::default() });
    }
}

#[test]
fn a_disk_that_becomes_read_only_loses_nothing_acknowledged() {
    for writes in 0..50 {
        let faults = Faults { read_only_after: Some(writes), ..Faults::default() };
        assert!(with_faults(writes, faults), "read-only after {writes} writes");
    }
}
