//! A mounted filesystem that grows: under programs that use it, and with a power cut at any event of it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use weir_ext4::{Feature, ROOT_INODE};
use weir_format::FileType;
use weir_fs::{BarrierFs, FsMutant, MountOptions};
use weir_runtime::Handle;
use weir_storage::{AdversaryDisk, AdversaryOptions, Image, Lba, Rules};
use weir_vfs::{FsError, NewNode};

use crate::support::hostile::checked;
use crate::support::{
    capabilities, content, image_by_mke2fs, judge, mount, new_image, read_file, simulated, simulated_with,
    superblock, write_file,
};

const MIB: u64 = 1 << 8;

/// A filesystem, on a disk with more.
fn image_with_room(made: &Image, disk_blocks: u64) -> Image {
    let blocks = made.blocks();
    let mut image = Image::zeroed(disk_blocks, 4096);
    for block in (0..blocks).map(Lba) {
        let bytes = made.read(block);
        if bytes.iter().any(|byte| *byte != 0) {
            image.write(block, &bytes);
        }
    }
    image
}

fn disk_of(clock: &Handle, image: &Image) -> Rc<AdversaryDisk> {
    let capabilities = capabilities(true);
    let options = AdversaryOptions { capabilities, latency_ns_max: 100_000, ..AdversaryOptions::default() };
    AdversaryDisk::from_image(clock, options, image)
}

/// Makes files and synchronises each, until `stopped` is set; the names of those that are durable go to `durable`.
async fn make_files(
    fs: BarrierFs,
    writer: u32,
    stopped: Rc<Cell<bool>>,
    durable: Rc<RefCell<BTreeSet<String>>>,
) -> Result<(), FsError> {
    for number in 0.. {
        if stopped.get() {
            break;
        }
        let name = format!("{writer} {number}");
        let inode = fs.create(ROOT_INODE, name.as_bytes(), &NewNode::new(FileType::Regular, 0o644)).await?;
        fs.write(inode, 0, &content(30_000)).await?;
        fs.fsync(inode).await?;
        durable.borrow_mut().insert(name);
    }
    Ok(())
}

/// What a power cut may leave at some event, and what is to be there.
type Left = (Image, BTreeSet<String>);

/// Grows a filesystem under two programs; what a power cut may leave meanwhile, and what is there at the end.
async fn grow_under_programs(
    clock: &Handle,
    (from, to): (u64, u64),
    mutant: Option<FsMutant>,
) -> (Vec<Left>, Image) {
    let disk = disk_of(clock, &image_with_room(&new_image(from), to));
    let options = MountOptions { rules: Rules::but(mutant), ..MountOptions::default() };
    let fs = mount(clock, &disk, options).await.expect("mounted");
    let (stopped, durable) = (Rc::new(Cell::new(false)), Rc::new(RefCell::default()));
    let writers: Vec<_> = (0..2)
        .map(|writer| clock.spawn(make_files(fs.clone(), writer, stopped.clone(), Rc::clone(&durable))))
        .collect();
    clock.sleep(Duration::from_millis(2)).await;
    let left = Rc::new(RefCell::new(Vec::new()));
    let (observed, random) = (Rc::clone(&left), RefCell::new(clock.random("left")));
    let names = Rc::clone(&durable);
    disk.observe(Box::new(move |disk| {
        let image = disk.crash_states().sample(&mut random.borrow_mut());
        observed.borrow_mut().push((image, names.borrow().clone()));
    }));
    let free = fs.statfs().await.free_blocks;
    let grown = fs.grow(to).await.expect("grown");
    assert!(grown > from && to - grown < 64 * MIB, "{grown} of {to}");
    assert!(fs.statfs().await.free_blocks + 1000 > free + (grown - from) * 9 / 10);
    // The log has blocks of new groups before the superblock with their number is written in place.
    for number in 0..6 {
        let name = format!("directory {number}");
        let directory = NewNode::new(FileType::Directory, 0o755);
        let made = fs.mkdir(ROOT_INODE, name.as_bytes(), &directory).await.expect("made");
        let file = fs.create(made, b"file", &NewNode::new(FileType::Regular, 0o644)).await.expect("made");
        fs.write(file, 0, &content(40_000)).await.expect("written");
        fs.fsync(file).await.expect("durable");
    }
    disk.observe(Box::new(|_| {}));
    stopped.set(true);
    for writer in writers {
        writer.await.expect("not cancelled").expect("no call fails");
    }
    write_file(&fs, b"large", &content(8 << 20)).await;
    fs.unmount().await.expect("unmounted");
    let left = left.borrow_mut().drain(..).collect();
    (left, disk.image())
}

/// Mounts what is left, which has one of two sizes, and all that was durable; then it can grow.
async fn require_whole(
    clock: &Handle,
    (image, durable): &Left,
    (from, to): (u64, u64),
    mutant: Option<FsMutant>,
) -> bool {
    let disk = disk_of(clock, image);
    let options = MountOptions { rules: Rules::but(mutant), ..MountOptions::default() };
    let fs = mount(clock, &disk, options).await.expect("mounted");
    for name in durable {
        assert!(read_file(&fs, name.as_bytes()).await.expect("there") == content(30_000), "{name}");
    }
    let blocks = fs.statfs().await.blocks;
    fs.unmount().await.expect("unmounted");
    let report = checked(&disk.image()).expect("a filesystem");
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    let is_old = superblock(&disk.image()).blocks() == from;
    assert!(is_old == (blocks < from));
    let fs = mount(clock, &disk, MountOptions::default()).await.expect("mounted");
    fs.grow(to).await.expect("grown");
    write_file(&fs, b"later", b"later").await;
    fs.unmount().await.expect("unmounted");
    assert!(checked(&disk.image()).expect("a filesystem").findings.is_empty());
    is_old
}

/// By less than a group, by some groups, and beyond what its descriptors describe.
const SIZES: [(u64, u64); 3] = [(40 * MIB, 64 * MIB), (100 * MIB, 1000 * MIB), (60 * MIB, 8400 * MIB)];

#[test]
fn a_filesystem_grows_under_programs_and_a_power_cut_leaves_one_of_the_two_sizes() {
    let (mut old, mut new) = (0, 0);
    for (seed, sizes) in (0..).zip(SIZES) {
        simulated_with(seed, async |clock| {
            let (left, end) = grow_under_programs(&clock, sizes, None).await;
            judge(&end);
            for left in left.iter().step_by((left.len() / 12).max(1)) {
                match require_whole(&clock, left, sizes, None).await {
                    true => old += 1,
                    false => new += 1,
                }
            }
        });
    }
    assert!(old > 3 && new > 5, "{old} old, {new} new");
}

#[test]
fn each_mutant_of_growth_is_found() {
    let sizes = SIZES[1];
    for mutant in [FsMutant::GroupsDescribedLate, FsMutant::ReplayEndsAtOldSize] {
        let run = || {
            simulated_with(7, async |clock| {
                let (left, _) = grow_under_programs(&clock, sizes, Some(mutant)).await;
                for left in &left {
                    require_whole(&clock, left, sizes, Some(mutant)).await;
                }
            });
        };
        assert!(std::panic::catch_unwind(run).is_err(), "{mutant:?}");
    }
}

#[test]
fn a_filesystem_grows_to_what_fits_and_again() {
    let end = simulated(async |clock| {
        let disk = disk_of(&clock, &image_with_room(&new_image(20 * MIB), 300 * MIB));
        let fs = mount(&clock, &disk, MountOptions::default()).await.expect("mounted");
        assert_eq!(fs.grow(20 * MIB).await, Ok(20 * MIB));
        assert_eq!(fs.grow(10 * MIB).await, Ok(20 * MIB));
        // A rest too small for a group is left out.
        assert_eq!(fs.grow(128 * MIB + 20).await, Ok(128 * MIB));
        assert_eq!(fs.grow(129 * MIB).await, Ok(128 * MIB));
        assert_eq!(fs.grow(300 * MIB).await, Ok(300 * MIB));
        write_file(&fs, b"file", &content(60 << 20)).await;
        fs.unmount().await.expect("unmounted");
        disk.image()
    });
    judge(&end);
}

/// The inode that `mke2fs` made to hold blocks for descriptors would have to name those of new copies.
#[test]
fn a_filesystem_with_a_reserve_for_descriptors_grows_in_its_last_group_only() {
    let Some(made) = image_by_mke2fs(&[], "64M") else { return };
    let found = superblock(&made);
    assert!(found.reserved_descriptor_blocks.get() > 0 && found.features().has(Feature::RESIZE_INODE));
    let end = simulated(async |clock| {
        let disk = disk_of(&clock, &image_with_room(&made, 1000 * MIB));
        let fs = mount(&clock, &disk, MountOptions::default()).await.expect("mounted");
        let before = fs.statfs().await.blocks;
        let refused = fs.grow(1000 * MIB).await.expect_err("group 1 has copies");
        assert!(refused.to_string().contains("resize2fs"), "{refused}");
        assert_eq!(fs.statfs().await.blocks, before);
        assert_eq!(fs.grow(100 * MIB).await, Ok(100 * MIB));
        write_file(&fs, b"file", &content(60 << 20)).await;
        fs.unmount().await.expect("unmounted");
        disk.image()
    });
    judge(&end);
}
