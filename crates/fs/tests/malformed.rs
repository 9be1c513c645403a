//! Damaged images with good checksums: the fields of every structure are changed, and sealed again so that the
//! change is reached. Whatever comes of it is an error, a read-only mount, or a filesystem that goes on; never a
//! panic, never without end, and never without bound in memory. The check ends on the same images, and so does a copy
//! of all that is in them, which changes nothing outside of its target.

mod support;

use std::collections::BTreeMap;
use std::ops::Range;

use support::hostile::{Outcome, Part, Scratch, Seed, Seeds, checked, live, play_corpus, within_memory};
use support::{disk, mount, simulated};
use weir_ext4::{INODE_BYTES, Inode, JOURNAL_INODE, Kind, ROOT_INODE, SUPERBLOCK_OFFSET};
use weir_format::{BLOCK_BYTES, FormatError};
use weir_fs::{BarrierFs, MountOptions};
use weir_storage::{Image, Lba};
use weir_vfs::{FsError, RenameFlags};
use zerocopy::{FromBytes, IntoBytes};

/// What each pair of bytes is set to.
const VALUES: [u16; 3] = [0, 1, 0xFFFF];
/// The same for the journal, whose numbers are big-endian.
const JOURNAL_VALUES: [u16; 3] = [0, 0x0100, 0xFFFF];

thread_local! {
    /// Where images are copied to.
    static SCRATCH: Scratch = Scratch::new();
}

/// What came of a number of changed images.
#[derive(Debug, Default)]
struct Tally {
    refused: usize,
    failed: usize,
    unmounted: usize,
    /// The check had nothing to say against so many.
    clean: usize,
    /// So many could be mounted to be read, and were copied to the host.
    copied: usize,
}

impl Tally {
    fn total(&self) -> usize {
        self.refused + self.failed + self.unmounted
    }

    /// Sets each pair of bytes of `bytes` to each of `values`, one at a time.
    fn change(&mut self, seed: &Seed, block: u64, bytes: impl IntoIterator<Item = usize>, values: &[u16]) {
        for at in bytes {
            for value in values {
                self.set(seed, block, at, &value.to_le_bytes());
            }
        }
    }

    /// Sets some bytes of a block, and lives with it.
    fn set(&mut self, seed: &Seed, block: u64, at: usize, value: &[u8]) {
        let Some(image) = seed.with(block, at, value) else { return };
        match live(&image) {
            Outcome::Refused(_) => self.refused += 1,
            Outcome::Failed => self.failed += 1,
            Outcome::Unmounted => self.unmounted += 1,
        }
        self.clean += usize::from(checked(&image).is_ok_and(|report| report.is_clean()));
        let copied = SCRATCH
            .with(|scratch| scratch.copy(&image, MountOptions::default(), weir_image::GetOptions::default()));
        self.copied += usize::from(copied.is_some());
        within_memory();
    }
}

/// Every other byte of a range.
fn pairs(bytes: Range<usize>) -> impl Iterator<Item = usize> {
    bytes.step_by(2)
}

#[test]
fn seeds_are_sound_and_seals_are_right() {
    for seed in [Seed::plain(), Seed::crashed(), Seed::deep(), Seed::scattered()] {
        let report = checked(&seed.image).expect("a filesystem");
        assert!(report.is_clean(), "{:?}", report.findings);
        assert_eq!(live(&seed.image), Outcome::Unmounted);
        if report.transactions == 0 {
            support::judge(&seed.image);
        }
        for (&block, part) in &seed.parts {
            let mut image = seed.image.clone();
            seed.seal(&mut image, block);
            assert!(image.hash() == seed.image.hash(), "block {block}, {part:?}");
        }
    }
    // Without the seal, a change is no more than a wrong checksum.
    let plain = Seed::plain();
    for block in plain.blocks(|part| part != Part::Whole(Kind::SymlinkTarget)) {
        let at = if block == 0 { SUPERBLOCK_OFFSET + 120 } else { 20 };
        let mut bytes = plain.image.read(Lba(block));
        bytes[at] ^= 1;
        let mut image = plain.image.clone();
        image.write(Lba(block), &bytes);
        assert!(!checked(&image).is_ok_and(|report| report.is_clean()), "block {block}");
    }
    let log = Seed::crashed();
    let report = checked(&log.image).expect("a filesystem");
    assert!(report.transactions > 1 && report.orphans == 3, "{report:?}");
    assert!(
        log.blocks(|part| part == Part::Log).len() > 2 && log.blocks(|part| part == Part::Commit).len() > 1
    );
}

#[test]
fn a_changed_superblock() {
    let mut tally = Tally::default();
    // The part behind byte 0x280 means nothing.
    tally.change(&Seed::plain(), 0, pairs(SUPERBLOCK_OFFSET..SUPERBLOCK_OFFSET + 0x280), &VALUES);
    assert!(tally.refused > 100, "sizes and features matter: {tally:?}");
    assert!(tally.unmounted > 100, "labels and times do not: {tally:?}");
}

#[test]
fn changed_descriptors_and_bitmaps() {
    let seed = Seed::plain();
    let mut tally = Tally::default();
    for block in seed.blocks(|part| part == Part::Descriptors) {
        tally.change(&seed, block, pairs(0..64), &VALUES);
    }
    assert!(tally.refused > 30, "places matter: {tally:?}");
    let mut tally = Tally::default();
    for block in seed.blocks(|part| matches!(part, Part::BlockBitmap(_) | Part::InodeBitmap(_))) {
        tally.change(&seed, block, (0..512).step_by(24), &VALUES);
    }
    assert_eq!(tally.clean, 0, "every bit counts: {tally:?}");
}

#[test]
fn changed_inodes() {
    let seed = Seed::plain();
    let mut tally = Tally::default();
    let mut change = |number: u32, fields: Range<usize>| {
        let (block, place) = seed.place(number);
        tally.change(&seed, block, pairs(place.start + fields.start..place.start + fields.end), &VALUES);
    };
    for number in [ROOT_INODE, JOURNAL_INODE] {
        change(number, 0..INODE_BYTES);
    }
    // Where blocks are, and attributes in the inode.
    for name in ["names", "sparse"] {
        change(of(&seed, name), 28..100);
    }
    for name in ["short link", "long link"] {
        change(of(&seed, name), 0..64);
    }
    change(of(&seed, "file"), 100..112);
    change(of(&seed, "empty"), 128..200);
    change(of(&seed, "fifo"), 0..2);
    assert!(tally.refused > 30 && tally.failed > 30 && tally.total() > 900, "{tally:?}");
    assert!(tally.copied > 500, "{tally:?}");
}

#[test]
fn changed_blocks_of_names() {
    let seed = Seed::plain();
    let mut tally = Tally::default();
    let linear = seed.blocks(|part| matches!(part, Part::Whole(Kind::Directory { inode: ROOT_INODE, .. })));
    let nodes = seed.blocks(|part| matches!(part, Part::Whole(Kind::DirectoryIndex { .. })));
    let leaves = seed.blocks(
        |part| matches!(part, Part::Whole(Kind::Directory { inode, .. }) if inode == of(&seed, "names")),
    );
    assert!(linear.len() == 1 && nodes.len() == 1 && leaves.len() > 2);
    tally.change(&seed, linear[0], pairs(0..64).chain(pairs(BLOCK_BYTES - 12..BLOCK_BYTES - 4)), &VALUES);
    // The names that hide the index, what the root says of it, and the first of its entries.
    tally.change(&seed, nodes[0], pairs(0..56), &VALUES);
    for leaf in &leaves[..2] {
        tally.change(&seed, *leaf, pairs(0..16).chain(60..64), &VALUES);
        // The same entries twice: a leaf in two places, a leaf instead of a node.
        let content = seed.image.read(Lba(*leaf));
        tally.set(&seed, leaves[2], 0, &content);
        tally.set(&seed, nodes[0], 0, &content);
        tally.set(&seed, linear[0], 0, &content);
    }
    assert!(tally.total() > 200 && tally.clean * 4 < tally.total(), "{tally:?}");
}

/// Changes nodes of trees: what they hold, and where they lead to, which becomes one of these places.
fn change_nodes(seed: &Seed, nodes: [u64; 2], places: [u64; 3]) {
    let mut tally = Tally::default();
    for block in nodes {
        tally.change(seed, block, pairs(0..40), &[0, 1, 0xFFFF]);
        // Nodes that lead to nodes above them, to each other, and to blocks of names.
        for place in places {
            for at in [16, 28] {
                tally.set(seed, block, at, &(place as u32).to_le_bytes());
            }
        }
    }
    assert!(tally.total() > 100 && tally.clean * 4 < tally.total(), "{tally:?}");
}

/// The nodes of directories' indices, an inner node of an extent tree, and a leaf of one.
fn nodes_of(seed: &Seed) -> (Vec<u64>, u64, u64) {
    let nodes = seed.blocks(|part| matches!(part, Part::Whole(Kind::DirectoryIndex { .. })));
    let extents = seed.blocks(|part| matches!(part, Part::Whole(Kind::Extents { .. })));
    let depth = |block: &u64| seed.image.read(Lba(*block))[6];
    let inner = extents.iter().copied().find(|block| depth(block) == 1).expect("a tree of two levels");
    let leaf = extents.iter().copied().find(|block| depth(block) == 0).expect("a leaf");
    (nodes, inner, leaf)
}

#[test]
fn changed_inner_nodes_of_an_index() {
    let seed = Seed::deep();
    let (nodes, inner, leaf) = nodes_of(&seed);
    assert!(nodes.len() > 2, "a root and inner nodes");
    change_nodes(&seed, [nodes[0], nodes[1]], [nodes[0], inner, leaf]);
}

#[test]
fn changed_inner_nodes_of_an_extent_tree() {
    let seed = Seed::scattered();
    let (nodes, inner, leaf) = nodes_of(&seed);
    change_nodes(&seed, [inner, leaf], [nodes[0], inner, leaf]);
}

#[test]
fn changed_extents() {
    let seed = Seed::plain();
    let mut tally = Tally::default();
    let nodes = seed.blocks(|part| matches!(part, Part::Whole(Kind::Extents { .. })));
    assert!(!nodes.is_empty(), "a tree of one level");
    for block in nodes {
        tally.change(&seed, block, pairs(0..48), &VALUES);
        // Extents over what belongs to others, the format and the node itself.
        for place in seed.parts.keys().copied().step_by(7).chain([block]) {
            tally.set(&seed, block, 20, &(place as u32).to_le_bytes());
        }
    }
    assert!(tally.clean * 4 < tally.total(), "{tally:?}");
}

#[test]
fn changed_attribute_blocks_and_targets_of_links() {
    let seed = Seed::plain();
    let mut tally = Tally::default();
    let attributes = seed.blocks(|part| part == Part::Whole(Kind::Attributes));
    let target = seed.blocks(|part| part == Part::Whole(Kind::SymlinkTarget));
    assert!(attributes.len() == 1 && target.len() == 1);
    tally.change(&seed, attributes[0], pairs(0..72).chain((4000..BLOCK_BYTES).step_by(16)), &VALUES);
    assert!(tally.clean * 4 < tally.total(), "{tally:?}");
    tally.change(&seed, target[0], (0..400).step_by(50), &VALUES);
}

#[test]
fn a_changed_journal() {
    let seed = Seed::crashed();
    let mut tally = Tally::default();
    for block in seed.blocks(|part| part == Part::JournalSuperblock) {
        tally.change(&seed, block, pairs(0..96), &JOURNAL_VALUES);
        tally.change(&seed, block, [252, 254], &JOURNAL_VALUES);
    }
    let own = seed.blocks(|part| matches!(part, Part::Log | Part::Commit));
    for block in own.into_iter().take(8) {
        tally.change(&seed, block, pairs(0..64), &JOURNAL_VALUES);
    }
    assert!(tally.refused > 100 && tally.unmounted > 100, "{tally:?}");
    // What is in the log goes home under good checksums.
    let copies = seed.blocks(|part| matches!(part, Part::Copy { .. }));
    for block in copies {
        tally.change(&seed, block, (0..40).step_by(6), &[0xFFFF]);
    }
}

#[test]
fn changed_orphans() {
    let seed = Seed::crashed();
    let mut tally = Tally::default();
    let first_of = |home: u64| seed.blocks(|part| matches!(part, Part::Copy { home: at, .. } if at == home));
    // The head of the chain, in every superblock that the log holds.
    for block in first_of(0).into_iter().chain([0]) {
        for number in [0, 1, ROOT_INODE, JOURNAL_INODE, 12, 13, 172, 173, 3072, 3073, u32::MAX] {
            tally.set(&seed, block, SUPERBLOCK_OFFSET + 0xE8, &number.to_le_bytes());
        }
    }
    // Each orphan's next one, and its links.
    let mut orphans = 0;
    for block in seed.blocks(|part| matches!(part, Part::Copy { .. })) {
        let Part::Copy { home, .. } = seed.parts[&block] else { continue };
        let Some(Part::InodeTable(first)) = seed.parts.get(&home).copied() else { continue };
        for (bytes, number) in seed.image.read(Lba(block)).chunks_exact(INODE_BYTES).zip(first..) {
            let inode = Inode::read_from_bytes(bytes).expect("the right length");
            if inode.links.get() > 0 || inode.mode.get() == 0 {
                continue;
            }
            orphans += 1;
            let at = (number - first) as usize * INODE_BYTES;
            for next in [0, number, ROOT_INODE, JOURNAL_INODE, 12, 171, 172, u32::MAX] {
                tally.set(&seed, block, at + 20, &next.to_le_bytes());
            }
            tally.change(&seed, block, [at, at + 26, at + 32, at + 34], &VALUES);
        }
    }
    assert!(orphans > 3 && tally.failed + tally.refused > 20, "{orphans} orphans, {tally:?}");
}

/// What the fuzz target has found worth keeping: each case a file of bytes that edit a seed.
#[test]
fn cases_of_the_fuzz_target() {
    let seeds = Seeds::new();
    play_corpus("hostile_image", |case| {
        seeds.play(case);
    });
}

/// What e2fsck finds, the check finds: a sample of the changes above, in the structures of files and groups.
#[test]
fn the_check_finds_what_e2fsck_finds() {
    let seed = Seed::plain();
    let mut changes: Vec<(u64, usize)> = Vec::new();
    for (&block, &part) in &seed.parts {
        let (bytes, step) = match part {
            Part::Descriptors => (0..64, 6),
            Part::BlockBitmap(_) | Part::InodeBitmap(_) => (0..400, 200),
            Part::InodeTable(1) => (10 * INODE_BYTES..11 * INODE_BYTES, 10),
            Part::InodeTable(_) => (0..BLOCK_BYTES, 602),
            Part::JournalSuperblock => (0..36, 6),
            Part::Whole(Kind::Attributes) => (0..80, 6),
            Part::Whole(Kind::SymlinkTarget) => (200..400, 100),
            Part::Whole(_) => (0..40, 10),
            _ => continue,
        };
        changes.extend(bytes.step_by(step).map(|at| (block, at)));
    }
    let (mut both, mut ours) = (0, 0);
    for ((block, at), value) in changes.into_iter().zip([[1, 0], [0, 0], [0xFF, 0xFF]].into_iter().cycle()) {
        let Some(image) = seed.with(block, at, &value) else { continue };
        let file = support::store(&image);
        let path = file.path().to_str().expect("a plain path");
        let Some(output) = support::run("e2fsck", &["-fn", path]) else { return };
        let clean = checked(&image).is_ok_and(|report| report.is_clean());
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() || !clean, "{:?}, byte {at}: {told}", seed.parts[&block]);
        both += usize::from(!output.status.success());
        ours += usize::from(!clean);
    }
    assert!(both > 50 && ours < 2 * both, "{both} are damage for both, {ours} for the check");
}

#[test]
fn a_name_of_a_deleted_inode_is_damage() {
    let seed = Seed::plain();
    let (block, place) = seed.place(of(&seed, "empty"));
    let image = seed.with(block, place.start + 26, &[0, 0]).expect("it had links");
    let (old, new) = ((ROOT_INODE, &b"empty"[..]), (ROOT_INODE, &b"other"[..]));
    with_filesystem(&image, async |fs| {
        assert_eq!(fs.attributes(of(&seed, "empty")).await.map(drop), Err(FsError::NotFound));
        assert_damage(fs.unlink(old.0, old.1).await);
        assert_damage(fs.rename(old, new, RenameFlags::default()).await);
        assert_damage(fs.rename((ROOT_INODE, b"file"), old, RenameFlags::default()).await);
        assert_damage(fs.rmdir(old.0, old.1).await);
    });
}

#[test]
fn a_directory_below_itself_is_damage() {
    let seed = Seed::plain();
    let tree = of(&seed, "tree");
    let blocks =
        seed.blocks(|part| matches!(part, Part::Whole(Kind::Directory { inode, .. }) if inode == tree));
    let sub = entries(&seed.image.read(Lba(blocks[0])))["sub"];
    let image = seed.with(blocks[0], 12, &sub.to_le_bytes()).expect("it was elsewhere");
    with_filesystem(&image, async |fs| {
        let to = fs.lookup(sub, b"sub").await.expect("a directory");
        assert_damage(fs.rename((ROOT_INODE, b"names"), (to, b"names"), RenameFlags::default()).await);
    });
}

#[test]
fn a_directory_larger_than_the_filesystem_is_damage() {
    let seed = Seed::plain();
    let bare = of(&seed, "bare");
    let (block, place) = seed.place(bare);
    // The upper half of the size.
    let image = seed.with(block, place.start + 108, &2000_u32.to_le_bytes()).expect("it was small");
    with_filesystem(&image, async |fs| assert_damage(fs.lookup(bare, b"name").await.map(drop)));
}

#[test]
fn a_file_longer_than_extents_can_map_is_damage() {
    let seed = Seed::plain();
    let file = of(&seed, "file");
    let (block, place) = seed.place(file);
    let mut bytes = [1; 200];
    let of_size = |size: u64| {
        let mut inode = seed.inode(file);
        inode.set_size(size);
        seed.with(block, place.start, inode.as_bytes()).expect("it was shorter")
    };
    with_filesystem(&of_size(1 << 44), async |fs| {
        assert_damage(fs.read(file, (1 << 44) - 4096, &mut bytes).await.map(drop));
    });
    with_filesystem(&of_size((1 << 44) - 4096), async |fs| {
        let end = (1 << 44) - 4096;
        assert_eq!(fs.read(file, end - 100, &mut bytes).await, Ok(100));
        assert_eq!(bytes[..101], [&[0; 100][..], &[1]].concat());
        assert_eq!(fs.write(file, end, b"far").await, Err(FsError::TooLarge));
        fs.truncate(file, 5).await.expect("shorter");
    });
}

/// A log of many blocks on few of the disk would be read, and what it lists be kept, many times.
#[test]
fn a_journal_with_a_block_in_two_places_is_damage() {
    for seed in [Seed::plain(), Seed::crashed()] {
        let (block, place) = seed.place(JOURNAL_INODE);
        let mut area = seed.inode(JOURNAL_INODE).block_area;
        // The second half of the only extent becomes one of its own, where the first half is.
        assert_eq!((area[2], u16::from_le_bytes([area[16], area[17]])), (1, 1024));
        area.copy_within(12..24, 24);
        area[2] = 2;
        area[16..18].copy_from_slice(&512_u16.to_le_bytes());
        area[24..30].copy_from_slice(&[0, 2, 0, 0, 0, 2]);
        let image = seed.with(block, place.start + 40, &area).expect("it was whole");
        let refused = matches!(live(&image), Outcome::Refused(FsError::Format(FormatError::Corrupt { .. })));
        assert!(refused, "{:?}", live(&image));
        assert!(!checked(&image).expect("a report").is_clean());
    }
}

fn with_filesystem(image: &Image, script: impl AsyncFnOnce(&BarrierFs)) {
    simulated(async |clock| {
        let disk = disk(&clock, image, true);
        let fs = mount(&clock, &disk, MountOptions::default()).await.expect("mounted");
        script(&fs).await;
    });
}

#[track_caller]
fn assert_damage(done: Result<(), FsError>) {
    assert!(matches!(done, Err(FsError::Format(FormatError::Corrupt { .. }))), "{done:?}");
}

/// The number of an inode in the root directory.
fn of(seed: &Seed, name: &str) -> u32 {
    let root = seed.blocks(|part| matches!(part, Part::Whole(Kind::Directory { inode: ROOT_INODE, .. })));
    entries(&seed.image.read(Lba(root[0])))[name]
}

/// The names in a block of a directory, and their inodes.
fn entries(block: &[u8]) -> BTreeMap<String, u32> {
    let mut found = BTreeMap::new();
    let mut at = 0;
    while at < BLOCK_BYTES {
        let number = u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]);
        let name = &block[at + 8..at + 8 + usize::from(block[at + 6])];
        found.insert(String::from_utf8_lossy(name).into_owned(), number);
        at += usize::from(u16::from_le_bytes([block[at + 4], block[at + 5]]));
    }
    found
}
