//! The check, with e2fsck as judge: what is clean for one is clean for the other, and so is what is not.

#![allow(dead_code, reason = "each test uses a part of the shared helpers")]

use weir_format::{BLOCK_BYTES, FormatError, ImageReader, Structure};

use crate::judge;
use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use crate::image::{Image, Scratch, now};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use weir_ext4::{Descriptor, Layout, Mkfs, Superblock};
use weir_ext4::{check::Finding, check::Problem, check::Report, check::check};
use zerocopy::{FromBytes, IntoBytes};

impl ImageReader for Image {
    type Error = FormatError;

    fn blocks(&self) -> u64 {
        Image::blocks(self)
    }

    async fn read(&self, block: u64, bytes: &mut [u8]) -> Result<(), FormatError> {
        let at = block as usize * BLOCK_BYTES;
        bytes.copy_from_slice(&self.bytes[at..at + bytes.len()]);
        Ok(())
    }
}

/// The exit code of e2fsck, which changes nothing, and what it said.
fn judge(path: &Path) -> Option<(i32, String)> {
    let path = path.to_str().expect("a plain path");
    let output = judge::run("e2fsck", &["-fn", path], b"")?;
    Some((output.status.code().unwrap_or(99), String::from_utf8_lossy(&output.stdout).into_owned()))
}

fn assert_clean(image: &Image, what: &str) {
    let report = now(check(image)).expect("a filesystem");
    let said: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    assert!(report.is_clean(), "{what}: {said:#?}");
}

/// An image with a bit of everything: directories with and without an index, attributes in inodes and in
/// blocks, links, symlinks of both kinds, special files, a file of many extents.
fn busy_image(options: &[&str]) -> Option<Image> {
    // The same image always, so that the same bits are flipped.
    let id = "11111111-2222-4333-8444-555555555555";
    let seed = "hash_seed=66666666-7777-4888-9999-aaaaaaaaaaaa";
    let made = Image::make(&[&["-U", id, "-E", seed], options].concat(), "16M")?;
    let file = made.store("busy");
    let source = Scratch::new("source");
    std::fs::write(source.path(), vec![0x77; 5 * BLOCK_BYTES + 100]).expect("room");
    let sparse = Scratch::new("sparse");
    let holes = File::create(sparse.path()).expect("room");
    for block in 0..400 {
        holes.write_all_at(&[0x79; 100], block * 2 * BLOCK_BYTES as u64).expect("room");
    }
    let (source, sparse) = (source.path().display(), sparse.path().display());
    let mut script = format!("write {source} /file\nwrite {sparse} /sparse\nmkdir /folder\nmkdir /small\n");
    for _ in 0..30 {
        script += "expand_dir /folder\n";
    }
    for number in 0..900 {
        script += &format!("ln /file /folder/name-{number}-{}\n", "y".repeat(number % 90));
    }
    script += "sif /file links_count 901\n";
    script += "mkdir /small/a\nmkdir /small/a/b\nln /sparse /small/second\nsif /sparse links_count 2\n";
    script += &format!("symlink /short target\nsymlink /long {}\n", "t".repeat(200));
    script += "mknod /pipe p\nmknod /device b 7 3\n";
    script += "ea_set /file user.small 12345\nea_set /small user.directory abc\n";
    script += &format!("ea_set /sparse user.large {}\n", "v".repeat(2000));
    script += "quit\n";
    judge::debugfs_script(Some(file.path()), script.as_bytes())?;
    // Makes the index, and mends the counts that debugfs leaves behind.
    judge::run("e2fsck", &["-fyD", file.path().to_str().expect("a plain path")], b"")?;
    let (code, said) = judge(file.path())?;
    assert_eq!(code, 0, "the image is clean to begin with: {said}");
    Some(Image::load(file.path()))
}

const KINDS: [&[&str]; 4] = [
    &["-N", "512"],
    &["-N", "512", "-O", "^metadata_csum,^64bit"],
    &["-N", "512", "-O", "^metadata_csum,^orphan_file,^resize_inode"],
    &["-N", "512", "-O", "^dir_index,^has_journal", "-g", "1024"],
];

#[test]
fn clean_images_are_clean() {
    for options in KINDS {
        let Some(image) = busy_image(options) else { return };
        assert_clean(&image, &format!("{options:?}"));
        let report = now(check(&image)).expect("a filesystem");
        assert_eq!((report.directories, report.orphans, report.transactions), (6, 0, 0));
        let free = image.superblock().free_blocks();
        assert_eq!(report.blocks, image.blocks() - free);
    }
}

/// An image in a file, as large ones are.
struct LargeImage {
    file: File,
    blocks: u64,
}

impl ImageReader for LargeImage {
    type Error = FormatError;

    fn blocks(&self) -> u64 {
        self.blocks
    }

    async fn read(&self, block: u64, bytes: &mut [u8]) -> Result<(), FormatError> {
        self.file.read_exact_at(bytes, block * BLOCK_BYTES as u64).expect("within the image");
        Ok(())
    }
}

#[test]
fn large_images_are_clean() {
    let kinds: [(&[&str], &str); 4] = [
        (&[], "40G"),
        (&[], "3G"),
        (&["-O", "^flex_bg"], "1G"),
        (&["-O", "^sparse_super,^resize_inode"], "1G"),
    ];
    for (options, size) in kinds {
        let scratch = Scratch::new("large");
        let path = scratch.path().to_str().expect("a plain path");
        let arguments = [&["-q", "-F", "-b", "4096"], options, &[path, size]].concat();
        let Some(output) = judge::run("mkfs.ext4", &arguments, b"") else { return };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let file = File::open(scratch.path()).expect("the image");
        let blocks = file.metadata().expect("a length").len() / BLOCK_BYTES as u64;
        let report = now(check(&LargeImage { file, blocks })).expect("a filesystem");
        assert!(report.is_clean(), "{options:?} {size}: {:?}", report.findings);
    }
}

#[test]
fn our_own_images_are_clean() {
    for blocks in [2048, 5000, 40_000, 300_000] {
        let made = Mkfs::new(blocks, [5; 16], [6; 16], 1_700_000_000).plan().expect("an image");
        let mut image = Image { bytes: vec![0; blocks as usize * BLOCK_BYTES] };
        for (block, bytes) in made.writes() {
            image.block_mut(block).copy_from_slice(&bytes[..]);
        }
        assert_clean(&image, &format!("{blocks} blocks"));
    }
}

/// The blocks that hold metadata: known places, and those that begin with the magic number of an extent node,
/// an attribute block or a block of directory entries.
fn metadata(image: &Image) -> Vec<(u64, std::ops::Range<usize>)> {
    let layout = Layout::new(&image.superblock()).expect("a layout");
    let whole = 0..BLOCK_BYTES;
    let mut found = vec![(0, 1024..2048), (1, 0..layout.groups() as usize * layout.descriptor_bytes())];
    for group in 0..layout.groups() {
        let (block, range) = layout.descriptor_place(group).expect("a group");
        let descriptor = Descriptor::read(&image.block(block)[range], group, &layout).expect("a descriptor");
        found.push((descriptor.block_bitmap(), whole.clone()));
        found.push((descriptor.inode_bitmap(), whole.clone()));
        for at in 0..u64::from(layout.table_blocks()) {
            let bytes = image.block(descriptor.inode_table() + at);
            for (slot, inode) in bytes.chunks(256).enumerate() {
                // Inodes that are used, several times, as that is where most fields are.
                if inode.iter().any(|byte| *byte != 0) {
                    let range = slot * 256..slot * 256 + 256;
                    found.extend(vec![(descriptor.inode_table() + at, range); 3]);
                }
            }
        }
    }
    for block in 2..image.blocks() {
        let bytes = image.block(block);
        let length = u16::from_le_bytes([bytes[4], bytes[5]]);
        let names =
            (12..=4096).contains(&length) && length.is_multiple_of(4) && u16::from(bytes[6]) + 8 <= length;
        let node = bytes[..2] == 0xF30A_u16.to_le_bytes();
        let attributes = bytes[..4] == 0xEA02_0000_u32.to_le_bytes();
        let journal = bytes[..4] == 0xC03B_3998_u32.to_be_bytes();
        if journal {
            found.push((block, 0..256));
        } else if node || attributes || names {
            found.push((block, whole.clone()));
            found.push((block, 0..64));
        }
    }
    found
}

/// What became of random bit flips.
#[derive(Default)]
struct Tally {
    neither: u32,
    both: u32,
    only_we: Vec<String>,
    only_they: Vec<String>,
}

fn flip(image: &Image, seed: u64, count: u32) -> Option<Tally> {
    let places = metadata(image);
    let mut random = Pcg64::seed_from_u64(seed);
    let scratch = image.store("flips");
    let file = File::options().write(true).open(scratch.path()).expect("the image");
    let mut tally = Tally::default();
    let mut ours = image.clone();
    for _ in 0..count {
        let (block, range) = &places[random.random_range(0..places.len())];
        let at = *block * BLOCK_BYTES as u64 + random.random_range(range.clone()) as u64;
        let bit = random.random_range(0..8);
        let before = ours.bytes[at as usize];
        let after = before ^ 1 << bit;
        ours.bytes[at as usize] = after;
        file.write_all_at(&[after], at).expect("room");
        let (code, said) = judge(scratch.path())?;
        let report = now(check(&ours));
        let (we, they) = (report.as_ref().map_or(true, |report| !report.is_clean()), code != 0);
        let said: Vec<&str> = said.lines().skip(1).filter(|line| !line.is_empty()).take(4).collect();
        let place = format!("block {block} byte {} bit {bit}", at % BLOCK_BYTES as u64);
        match (we, they) {
            (true, true) => tally.both += 1,
            (false, false) => tally.neither += 1,
            (true, false) => tally.only_we.push(format!("{place}: {:?}", first_of(&report))),
            (false, true) => tally.only_they.push(format!("{place}: {said:?}")),
        }
        ours.bytes[at as usize] = before;
        file.write_all_at(&[before], at).expect("room");
    }
    Some(tally)
}

fn first_of(report: &Result<Report, FormatError>) -> String {
    match report {
        Ok(report) => report.findings.first().map(ToString::to_string).unwrap_or_default(),
        Err(error) => error.to_string(),
    }
}

/// What e2fsck complains of and we do not, by its words, and why.
const ONLY_THEY: [(&str, &str); 1] =
    [("is not NULL terminated", "the byte behind the name \".\" is no part of any name")];

/// What we complain of and e2fsck ends with 0 over, by our words, and why as far as its behaviour tells.
const ONLY_WE: [(&str, &str); 15] = [
    ("differs from the original", "it looks at copies only when it needs one"),
    ("the checksum of the group descriptor", "it names them, and ends with 0 if nothing else is wrong"),
    ("unknown flags", "it has no opinion"),
    ("number of unused inodes", "without checksums no program reads the number"),
    ("number of its group", "it has no opinion on the primary superblock's"),
    ("has another type than what it stands for", "it lets entries without a type pass"),
    ("a name without a prefix", "it does not look at names of attributes in inodes"),
    ("a zero byte in a name", "likewise"),
    ("the extent node is damaged", "it believes a node's depth, where Linux compares it"),
    ("which is not supported", "it looks where the flag would lead, we refuse it"),
    ("superblock is damaged: number of free", "it believes the groups"),
    ("the journal superblock is damaged", "it looks only when there is something to recover"),
    ("inode 1: ", "it reads the blocks of inode 1 and few other fields"),
    ("inode 7: ", "it takes numbers of blocks in the reserve that stay in the reserve"),
    ("inode 8: ", "it takes the journal's blocks and few other fields"),
];

/// A number of a thorough run, from the environment.
fn setting(name: &str, otherwise: u32) -> u32 {
    std::env::var(name).ok().and_then(|number| number.parse().ok()).unwrap_or(otherwise)
}

#[test]
fn flipped_bits_are_found_by_both_or_by_neither() {
    let count = setting("WEIR_FLIPS", 60);
    let first = setting("WEIR_SEED", 1);
    let mut both = 0;
    for (seed, options) in (first..).zip(KINDS) {
        let Some(image) = busy_image(options) else { return };
        let Some(tally) = flip(&image, seed.into(), count) else { return };
        eprintln!("{options:?}: {} both, {} neither", tally.both, tally.neither);
        eprintln!("only we: {:#?}", tally.only_we);
        eprintln!("only they: {:#?}", tally.only_they);
        both += tally.both;
        let unexplained = |lines: &[String], known: &[(&str, &str)]| -> Vec<String> {
            let known = |line: &&String| !known.iter().any(|(words, _)| line.contains(words));
            lines.iter().filter(known).cloned().collect()
        };
        assert_eq!(
            unexplained(&tally.only_they, &ONLY_THEY),
            Vec::<String>::new(),
            "{options:?} seed {seed}"
        );
        assert_eq!(unexplained(&tally.only_we, &ONLY_WE), Vec::<String>::new(), "{options:?} seed {seed}");
    }
    assert!(both > count, "most damage is found: {both}");
}

/// Gives all blocks that have a checksum the right one, as an attacker would.
fn seal(image: &mut Image) {
    let Ok(superblock) = Superblock::read_from_bytes(&image.bytes[1024..2048]) else { return };
    let mut superblock = superblock;
    superblock.update_checksum();
    image.bytes[1024..2048].copy_from_slice(superblock.as_bytes());
}

#[test]
fn hostile_images_end() {
    // Without checksums, damage is reached wherever it is. Nothing panics, and nothing goes on for ever: the
    // image counts what is read of it.
    for (seed, options) in (0..).zip(&KINDS[1..]) {
        let Some(image) = busy_image(options) else { return };
        let places = metadata(&image);
        let mut random = Pcg64::seed_from_u64(seed);
        for _ in 0..setting("WEIR_HOSTILE", 150) {
            let mut hostile = Counted { image: image.clone(), reads: Cell::new(0) };
            for _ in 0..random.random_range(1..200) {
                let (block, range) = &places[random.random_range(0..places.len())];
                let at = *block as usize * BLOCK_BYTES + random.random_range(range.clone());
                // A superblock that is refused teaches nothing.
                if *block > 0 || random.random_range(0..20) == 0 {
                    let near = hostile.image.bytes[at].wrapping_add(1);
                    hostile.image.bytes[at] = if random.random() { random.random() } else { near };
                }
            }
            seal(&mut hostile.image);
            if let Ok(report) = now(check(&hostile)) {
                assert!(report.findings.len() <= 1_000);
            }
            let bound = 20 * image.blocks();
            assert!(hostile.reads.get() < bound, "{} blocks read", hostile.reads.get());
        }
    }
}

/// An image that counts the blocks that are read.
struct Counted {
    image: Image,
    reads: Cell<u64>,
}

impl ImageReader for Counted {
    type Error = FormatError;

    fn blocks(&self) -> u64 {
        self.image.blocks()
    }

    async fn read(&self, block: u64, bytes: &mut [u8]) -> Result<(), FormatError> {
        self.reads.set(self.reads.get() + (bytes.len() / BLOCK_BYTES) as u64);
        ImageReader::read(&self.image, block, bytes).await
    }
}

#[test]
fn a_journal_is_replayed_in_memory() {
    let Some(image) = Image::make(&["-N", "512"], "16M") else { return };
    let Some(places) = image.blocks_of("<8>") else { return };
    // In the journal, the inode bitmap of group 0 has one inode more; its descriptor does not know.
    let layout = Layout::new(&image.superblock()).expect("a layout");
    let (block, range) = layout.descriptor_place(0).expect("a group");
    let descriptor = Descriptor::read(&image.block(block)[range], 0, &layout).expect("a descriptor");
    let mut bitmap = image.block(descriptor.inode_bitmap()).to_vec();
    bitmap[40] = 0xFF;
    let contents = Scratch::new("contents");
    std::fs::write(contents.path(), &bitmap).expect("room");
    let file = image.store("journal");
    let script =
        format!("jo -c\njw -b {} {}\njc\nquit\n", descriptor.inode_bitmap(), contents.path().display());
    judge::debugfs_script(Some(file.path()), script.as_bytes()).expect("debugfs is installed");
    let left = Image::load(file.path());
    assert_eq!(left.block(descriptor.inode_bitmap()), image.block(descriptor.inode_bitmap()));
    let before = left.bytes.clone();
    let report = now(check(&left)).expect("a filesystem");
    assert_eq!(report.transactions, 1);
    let marked = |finding: &Finding| {
        matches!(finding.problem, Problem::MarkedUsed { structure: Structure::InodeBitmap, count: 8, .. })
    };
    assert!(report.findings.iter().any(marked), "{:?}", report.findings);
    assert_eq!(left.bytes, before, "nothing is written");
    // A log that cannot be read is a finding, too.
    let mut torn = left.clone();
    torn.block_mut(places[0])[20] ^= 1;
    let report = now(check(&torn)).expect("a filesystem");
    assert!(!report.is_clean() && report.transactions == 0);
}

/// Mounts an image; false, with a word on it, where this machine cannot.
fn mount(file: &Path, directory: &Path) -> bool {
    let path = |path: &Path| path.to_str().expect("a plain path").to_owned();
    let mounted = judge::run("mount", &["-o", "loop,commit=1", &path(file), &path(directory)], b"");
    let mounted = mounted.is_some_and(|output| output.status.success());
    if !mounted {
        eprintln!("skipped: this machine cannot mount a loop device");
    }
    mounted
}

/// Unmounts. Other tests start programs meanwhile, and a child holds every file that was open here until it is a
/// program: so the mount may be busy for a moment with no program on it, and only that is waited for, for 10 s.
#[expect(clippy::disallowed_methods, reason = "it waits for what other processes do")]
fn unmount(path: &str) {
    for _ in 0..500 {
        let output = judge::run("umount", &[path], b"").expect("umount is installed");
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            return;
        }
        assert!(said.contains("busy"), "umount: {said}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("{path} stays busy");
}

#[test]
fn what_the_kernel_leaves_is_clean() {
    for options in [&["-O", "^orphan_file"][..], &[]] {
        let Some(image) = Image::make(options, "64M") else { return };
        let (file, directory) = (image.store("kernel"), Scratch::new("mount"));
        std::fs::create_dir(directory.path()).expect("a mount point");
        if !mount(file.path(), directory.path()) {
            std::fs::remove_dir(directory.path()).expect("an empty directory");
            return;
        }
        let busy = || -> std::io::Result<[File; 2]> {
            for round in 0..4 {
                let folder = directory.path().join(format!("folder-{round}"));
                std::fs::create_dir(&folder)?;
                for number in 0..150 {
                    std::fs::write(folder.join(format!("{number}-{}", "n".repeat(100))), vec![number; 9000])?;
                }
            }
            std::fs::remove_dir_all(directory.path().join("folder-2"))?;
            std::os::unix::fs::symlink("t".repeat(300), directory.path().join("long"))?;
            // A file without a name that a program has open.
            let open = File::create(directory.path().join("open"))?;
            open.write_all_at(&[1; 50_000], 0)?;
            std::fs::remove_file(directory.path().join("open"))?;
            open.sync_all()?;
            // And a directory.
            std::fs::create_dir(directory.path().join("open"))?;
            let removed = File::open(directory.path().join("open"))?;
            std::fs::remove_dir(directory.path().join("open"))?;
            removed.sync_all()?;
            Ok([open, removed])
        };
        let worked = busy();
        let crashed = Image::load(file.path());
        drop(worked);
        let path = directory.path().to_str().expect("a plain path");
        unmount(path);
        std::fs::remove_dir(directory.path()).expect("an empty directory");
        let report = now(check(&crashed)).expect("a filesystem");
        assert!(report.transactions > 0 && report.is_clean(), "{options:?}: {:?}", report.findings);
        // The two that are open; on a busy machine the kernel may be about to free others that were deleted.
        assert!(report.orphans >= 2, "{options:?}: {} orphans", report.orphans);
        assert_eq!(report.directories, 5, "{options:?}");
        assert_clean(&Image::load(file.path()), "after unmount");
        // The judge replays, deletes the orphan, and leaves what is clean for us, too.
        let copy = crashed.store("judged");
        let path = copy.path().to_str().expect("a plain path");
        judge::run("e2fsck", &["-fy", path], b"").expect("e2fsck is installed");
        assert_clean(&Image::load(copy.path()), "after e2fsck");
    }
}

/// A truncation takes many transactions where a file has many extents: the size is the first thing to be set.
#[test]
fn a_file_that_is_being_cut_short_has_blocks_behind_its_end() {
    let Some(image) = busy_image(KINDS[2]) else { return };
    let inode = |path: &str| -> Option<u32> {
        let file = image.store("stat");
        let told = judge::debugfs_script(Some(file.path()), format!("stat {path}\nquit\n").as_bytes())?;
        told.split("Inode: ").nth(1)?.split_whitespace().next()?.parse().ok()
    };
    let number = inode("/sparse").expect("debugfs tells");
    let file = image.store("cut");
    judge::debugfs_script(Some(file.path()), b"sif /sparse size 0\nquit\n").expect("debugfs is installed");
    let sizes = |image: &Image| {
        let report = now(check(image)).expect("a filesystem");
        let sizes =
            report.findings.iter().filter(|found| matches!(found.problem, Problem::Size { .. })).count();
        (sizes as u64, report.total, report.orphans)
    };
    assert_eq!(sizes(&Image::load(file.path())), (1, 1, 0), "no call is cutting it");
    let script = format!("ssv last_orphan {number}\nquit\n");
    judge::debugfs_script(Some(file.path()), script.as_bytes()).expect("debugfs is installed");
    assert_eq!(sizes(&Image::load(file.path())), (0, 0, 1));
    // The judge goes on with it, and finds nothing else.
    let path = file.path().to_str().expect("a plain path");
    judge::run("e2fsck", &["-fy", path], b"").expect("e2fsck is installed");
    assert_eq!(judge(file.path()).map(|(code, _)| code), Some(0));
    assert_clean(&Image::load(file.path()), "after e2fsck");
}

#[test]
fn what_is_no_filesystem_cannot_be_checked() {
    for bytes in [vec![0; 64 * BLOCK_BYTES], vec![0xFF; 64 * BLOCK_BYTES], vec![]] {
        now(check(&Image { bytes })).expect_err("no filesystem");
    }
    let Some(image) = Image::make(&["-O", "inline_data"], "16M") else { return };
    let error = now(check(&image)).expect_err("refused");
    assert_eq!(error, FormatError::Feature { name: "inline_data" });
    let Some(mut image) = Image::make(&[], "300M") else { return };
    let whole = image.bytes.len();
    image.bytes[1024] ^= 1;
    let report = now(check(&image)).expect("a copy of the superblock tells");
    assert!(report.directories == 2, "{:?}", report.findings);
    // What only the copy says is no damage of the image.
    assert_eq!(report.superblock_copy, Some(32_768));
    assert_eq!(report.findings.len(), 1, "{:?}", report.findings);
    image.bytes[1024] ^= 1;
    let layout = Layout::new(&image.superblock()).expect("a layout");
    let damaged = |at: usize| {
        let mut image = Image { bytes: image.bytes.clone() };
        image.bytes[at] ^= 1;
        now(check(&image)).expect("a filesystem").findings
    };
    let (block, range) = layout.descriptor_place(0).expect("a place");
    let descriptor = damaged(block as usize * BLOCK_BYTES + range.start + 0x0C);
    let first =
        descriptor.iter().filter(|finding| finding.problem == Problem::Checksum(Structure::Descriptor));
    assert_eq!(first.count(), 1, "{descriptor:?}");
    assert!(!descriptor.iter().any(|finding| finding.to_string().contains("root is no")), "{descriptor:?}");
    image.bytes.truncate(whole / 2);
    let report = now(check(&image)).expect("a filesystem");
    assert!(matches!(report.findings[0].problem, Problem::Truncated { .. }));
}

/// e2fsck does not look into access control lists.
#[test]
fn an_access_control_list_that_is_none_is_found() {
    let Some(made) = Image::make(&[], "16M") else { return };
    let file = made.store("lists");
    let [good, bad, large] = ["good", "bad", "large"].map(Scratch::new);
    let users = (0..100_u32).flat_map(|id| [&[2, 0, 6, 0][..], &id.to_le_bytes()].concat());
    let list = |owner: u8| [&[1, 0, 0, 0, 1, 0, owner, 0, 4, 0, 5, 0][..], &[0x20, 0, 0, 0]].concat();
    let long =
        [&list(7)[..8], &users.collect::<Vec<_>>(), &[4, 0, 5, 0, 0x10, 0, 9, 0, 0x20, 0, 0, 0]].concat();
    for (at, value) in [(&good, list(7)), (&bad, list(8)), (&large, long)] {
        std::fs::write(at.path(), value).expect("room");
    }
    let set = |name: &str, attribute: &str, value: &Scratch| {
        format!(
            "mkdir /{name}\nea_set -r -f {} /{name} system.posix_acl_{attribute}\n",
            value.path().display()
        )
    };
    let script =
        set("good", "access", &good) + &set("bad", "default", &bad) + &set("large", "access", &large);
    if judge::debugfs_script(Some(file.path()), script.as_bytes()).is_none() {
        return;
    }
    let image = Image::load(file.path());
    let report = now(check(&image)).expect("a filesystem");
    let said: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    assert_eq!(said.len(), 2, "{said:#?}");
    assert!(said.iter().all(|said| said.contains("access control list")), "{said:#?}");
}
