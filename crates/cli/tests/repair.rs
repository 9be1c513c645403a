//! Damage to a volume file: what repair, check and salvage say and leave, and what a mount tells of it. Where FUSE is not to be had,
//! what takes a mount is skipped.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::Output;

use crate::support::{Place, error_of, mounts, text, wait_until, weir, works};

const BLOCK: usize = 4096;
const FILE_BLOCKS: usize = 10;
/// The block of a file that is damaged.
const DAMAGED_BLOCK: usize = 2;
const NAMES: [&str; 3] = ["one", "two", "three"];

/// What the file of this name holds: no block of it is the same as another one.
fn content(name: &str) -> Vec<u8> {
    let block = |nth: usize| format!("{name} {nth} ").into_bytes().into_iter().cycle().take(BLOCK);
    (0..FILE_BLOCKS).flat_map(block).collect()
}

/// A volume with some files, closed.
struct Damaged {
    place: Place,
    whole: Vec<u8>,
}

impl Damaged {
    fn new() -> Damaged {
        Damaged::with_size("64M")
    }

    fn with_size(size: &str) -> Damaged {
        Damaged::with_format("ext4", size)
    }

    fn with_format(format: &str, size: &str) -> Damaged {
        let place = Place::new();
        works(&["mkfs", "--volume", "--type", format, place.volume().to_str().unwrap(), "--size", size]);
        for name in NAMES {
            let file = place.path().join(name);
            fs::write(&file, content(name)).unwrap();
            works(&["put", place.volume().to_str().unwrap(), file.to_str().unwrap(), "/"]);
        }
        let whole = fs::read(place.volume()).unwrap();
        Damaged { place, whole }
    }

    /// A number in the superblock (docs/format/volume.md).
    fn field(&self, at: usize, width: usize) -> usize {
        number(&self.whole[at..][..width])
    }

    fn checkpoint(&self, slot: usize) -> usize {
        (self.field(48, 8) + slot * self.field(56, 4)) * BLOCK
    }

    /// Where the newest checkpoint is.
    fn newest_checkpoint(&self) -> usize {
        let slots = [0, 1].map(|slot| self.checkpoint(slot));
        slots.into_iter().max_by_key(|at| number(&self.whole[at + 16..][..8])).unwrap()
    }

    /// Where the page of the map is that the newest checkpoint names first.
    fn map_page(&self) -> usize {
        let newest = self.newest_checkpoint();
        let states = newest + 64 + 4 * number(&self.whole[newest + 52..][..4]);
        let (pages, start) = (self.field(60, 4), self.field(64, 8));
        let area = |page: usize| usize::from(self.whole[states + page / 4] >> (page % 4 * 2) & 3);
        let page = (0..pages).find(|page| area(*page) != 0).unwrap();
        (start + (area(page) - 1) * pages + page) * BLOCK
    }

    /// Where a block of a file is.
    fn data(&self, name: &str, block: usize) -> usize {
        let content = content(name);
        let wanted = &content[block * BLOCK..][..BLOCK];
        self.whole.chunks_exact(BLOCK).position(|found| found == wanted).unwrap() * BLOCK
    }

    /// Flips one bit of the volume as it was when it was closed.
    fn flip(&self, at: usize) {
        let file = File::options().write(true).open(self.place.volume()).unwrap();
        file.write_all_at(&self.whole, 0).unwrap();
        file.write_all_at(&[self.whole[at] ^ 4], at as u64).unwrap();
    }

    fn run(&self, arguments: &[&str]) -> Output {
        weir(arguments).arg(self.place.volume()).output().unwrap()
    }

    /// A command ends with this code, and says these words.
    #[track_caller]
    fn says(&self, arguments: &[&str], code: i32, words: &[&str]) {
        let output = self.run(arguments);
        let told = text(&output.stdout) + &error_of(&output);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {told}");
        for word in words {
            assert!(told.contains(word), "{arguments:?}: no {word:?} in {told}");
        }
    }

    /// Copies all files by `weir get`, with this exit code and these words; the files are right but for `lost`.
    #[track_caller]
    fn is_copied(&self, more: &[&str], code: i32, lost: Option<(&str, bool)>) {
        let target = tempfile::tempdir_in(self.place.path()).unwrap();
        let output =
            weir(&["get", "-r"]).args(more).arg(self.place.volume()).arg("/").arg(target.path()).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", error_of(&output));
        for name in NAMES {
            let mut expected = content(name);
            if let Some((lost, is_kept)) = lost.filter(|(lost, _)| *lost == name) {
                assert!(error_of(&output).contains(&format!("/{lost} in ")), "{}", error_of(&output));
                if !is_kept {
                    continue;
                }
                expected[DAMAGED_BLOCK * BLOCK..][..BLOCK].fill(0);
            }
            assert!(fs::read(target.path().join(name)).unwrap() == expected, "{name} is wrong");
        }
    }

    /// A mount has every file, but one block of `lost`.
    #[track_caller]
    fn is_mounted(&self, lost: Option<&str>) {
        if !mounts() {
            return;
        }
        let root = self.place.mount(&[]);
        for name in NAMES {
            self.is_read(root.join(name), name, lost == Some(name));
        }
        self.place.umount();
    }

    /// A file is right, but for its damaged block, which is an error to read.
    #[track_caller]
    fn is_read(&self, path: PathBuf, name: &str, is_damaged: bool) {
        let file = File::open(path).unwrap();
        for (nth, expected) in content(name).chunks_exact(BLOCK).enumerate() {
            let mut block = [0; BLOCK];
            let read = file.read_exact_at(&mut block, (nth * BLOCK) as u64);
            if is_damaged && nth == DAMAGED_BLOCK {
                assert_eq!(read.unwrap_err().raw_os_error(), Some(5), "{name}, block {nth}");
            } else {
                read.unwrap();
                assert!(block == expected, "{name}, block {nth} is wrong");
            }
        }
    }
}

fn number(bytes: &[u8]) -> usize {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
}

/// Of structures nothing is lost, and after a repair nothing is damaged. A page of the map that is damaged is one that a closed
/// volume has twice; `finding` is what is said of the damage.
#[track_caller]
fn a_structure_is_repaired(damaged: &Damaged, at: usize, finding: &str) {
    damaged.flip(at);
    let before = fs::read(damaged.place.volume()).unwrap();
    damaged.says(&["volume", "repair"], 1, &[finding, "nothing is lost", "`--write` repairs it"]);
    damaged.is_copied(&["--salvage"], 0, None);
    assert!(fs::read(damaged.place.volume()).unwrap() == before, "{finding}: changed without --write");
    damaged.says(&["volume", "repair", "--write"], 0, &[finding, "repaired; nothing is lost"]);
    damaged.says(&["volume", "repair"], 0, &["clean"]);
    damaged.says(&["volume", "check"], 0, &["clean"]);
    damaged.says(&["fsck"], 0, &["clean"]);
    damaged.is_copied(&[], 0, None);
    damaged.is_mounted(None);
}

#[test]
fn a_flipped_bit_in_a_structure_is_repaired() {
    structures_are_repaired(&Damaged::new());
}

#[test]
fn a_flipped_bit_in_a_structure_below_f2fs_is_repaired() {
    structures_are_repaired(&Damaged::with_format("f2fs", "64M"));
}

#[track_caller]
fn structures_are_repaired(damaged: &Damaged) {
    a_structure_is_repaired(damaged, damaged.map_page() + 200, "of the map is damaged; it was made anew");
    a_structure_is_repaired(damaged, damaged.newest_checkpoint() + 40, "the checkpoint at");
    for copy in 0..2 {
        let finding = format!("a copy of the superblock at block {copy} is damaged");
        a_structure_is_repaired(damaged, copy * BLOCK + 50, &finding);
    }
}

/// The block with ext4's superblock is damaged, in all places where a copy of it was: the filesystem's own copy takes its
/// place for what only reads.
#[test]
fn files_are_rescued_by_a_copy_of_the_superblock_of_ext4() {
    const GROUP_AT: usize = 1024 + 0x5A;
    const MAGIC_AT: usize = 1024 + 0x38;
    let damaged = Damaged::with_size("192M");
    let is_primary =
        |block: &[u8]| block[MAGIC_AT..][..2] == [0x53, 0xEF] && block[GROUP_AT..][..2] == [0; 2];
    let file = File::options().write(true).open(damaged.place.volume()).unwrap();
    let primaries = damaged.whole.chunks_exact(BLOCK).enumerate().filter(|(_, block)| is_primary(block));
    for (nth, block) in primaries {
        file.write_all_at(&[block[GROUP_AT + 100] ^ 4], (nth * BLOCK + GROUP_AT + 100) as u64).unwrap();
    }
    damaged.says(&["volume", "repair"], 1, &["1 block is lost"]);
    damaged.is_copied(&["--salvage"], 0, None);
    damaged.is_copied(&[], 0, None);
    damaged.says(&["fsck"], 8, &["block 0 is damaged"]);
}

#[test]
fn a_flipped_bit_in_data_is_told_by_file() {
    damaged_data_is_told_by_file(&Damaged::new());
}

#[test]
fn a_flipped_bit_in_data_of_f2fs_is_told_by_file() {
    damaged_data_is_told_by_file(&Damaged::with_format("f2fs", "64M"));
}

#[track_caller]
fn damaged_data_is_told_by_file(damaged: &Damaged) {
    damaged.flip(damaged.data("two", DAMAGED_BLOCK) + 7);
    let before = fs::read(damaged.place.volume()).unwrap();
    let named = "lost in /two: 1 block, the first one at byte 8192";
    damaged.says(&["volume", "check"], 1, &[named, "1 live block"]);
    damaged.says(&["volume", "repair"], 1, &[named, "1 block is lost"]);
    damaged.is_copied(&["--salvage"], 2, Some(("two", true)));
    assert!(fs::read(damaged.place.volume()).unwrap() == before, "changed without --write");
    damaged.says(&["volume", "repair", "--write"], 1, &[named]);
    damaged.says(&["fsck"], 0, &["clean"]);
    damaged.is_copied(&[], 2, Some(("two", false)));
    damaged.is_mounted(Some("two"));
    if !mounts() {
        return;
    }
    // What is written again is whole: F2FS, too, overwrites few pages where they lie.
    let root = damaged.place.mount(&[]);
    let again = File::options().write(true).open(root.join("two")).unwrap();
    again
        .write_all_at(&content("two")[DAMAGED_BLOCK * BLOCK..][..BLOCK], (DAMAGED_BLOCK * BLOCK) as u64)
        .unwrap();
    again.sync_all().unwrap();
    drop(again);
    damaged.place.umount();
    damaged.says(&["volume", "check"], 0, &["clean"]);
    damaged.is_copied(&[], 0, None);
}

#[test]
fn a_mount_tells_damage_that_is_met_on_reading() {
    if !mounts() {
        return;
    }
    let damaged = Damaged::new();
    damaged.flip(damaged.data("two", DAMAGED_BLOCK) + 7);
    let log = damaged.place.path().join("log");
    let root = damaged.place.mount(&["--log", log.to_str().unwrap()]);
    let status = || weir(&["status", root.to_str().unwrap()]).output().unwrap();
    damaged.is_read(root.join("one"), "one", false);
    assert_eq!(status().status.code(), Some(0));
    damaged.is_read(root.join("two"), "two", true);
    let told = status();
    assert_eq!(told.status.code(), Some(1));
    let told = text(&told.stdout);
    let line = told.lines().next().unwrap();
    assert!(line.contains("NOT HEALTHY") && line.contains("of damaged blocks"), "{line}");
    let json = damaged.place.status();
    assert_eq!(json["health"]["findings"][0]["cause"], "failed_reads");
    assert!(json["storage"]["damage"]["damaged_reads"].as_u64().unwrap() > 0, "{json}");
    assert_eq!(json["storage"]["damage"]["failed_reads"], 0);
    let block = format!("block={}", json["storage"]["damage"]["first_block"]);
    let inode = {
        use std::os::unix::fs::MetadataExt as _;
        format!("inode={}", fs::metadata(root.join("two")).unwrap().ino())
    };
    wait_until("the log has block, inode and offset", || {
        let log = fs::read_to_string(&log).unwrap();
        log.lines().any(|line| [&block[..], &inode, "offset=8192"].iter().all(|word| line.contains(*word)))
    });
    damaged.is_read(root.join("three"), "three", false);
    // However often it is read.
    damaged.is_read(root.join("two"), "two", true);
    let told = fs::read_to_string(&log).unwrap();
    assert_eq!(told.lines().filter(|line| line.contains("inode=")).count(), 1, "{told}");
    damaged.place.umount();
}

/// A mount of F2FS names the inode whose node cannot be read.
#[test]
fn a_mount_of_f2fs_tells_of_a_damaged_node() {
    const NAME_AT: usize = 92;
    const NUMBER_AT: usize = BLOCK - 24;
    if !mounts() {
        return;
    }
    let damaged = Damaged::with_format("f2fs", "64M");
    let log = damaged.place.path().join("log");
    let of_two = |block: &[u8]| block[NAME_AT..].starts_with(b"two\0");
    let blocks = damaged.whole.chunks_exact(BLOCK).enumerate().filter(|(_, block)| of_two(block));
    let file = File::options().write(true).open(damaged.place.volume()).unwrap();
    let mut inode = 0;
    for (nth, block) in blocks {
        inode = number(&block[NUMBER_AT..][..4]);
        file.write_all_at(&[block[NAME_AT] ^ 1], (nth * BLOCK + NAME_AT) as u64).unwrap();
    }
    let root = damaged.place.mount(&["--log", log.to_str().unwrap()]);
    assert_eq!(fs::metadata(root.join("two")).unwrap_err().raw_os_error(), Some(5));
    let inode = format!("inode={inode} ");
    wait_until("the log names the inode", || fs::read_to_string(&log).unwrap().contains(&inode));
    damaged.is_read(root.join("one"), "one", false);
    damaged.place.umount();
}

/// A directory is a file, too: the log names its inode, however many other blocks were damaged before.
#[test]
fn a_mount_tells_of_a_damaged_directory() {
    use std::os::unix::fs::MetadataExt as _;
    if !mounts() {
        return;
    }
    let place = Place::with_volume("64M");
    let root = place.mount(&[]);
    fs::create_dir(root.join("d")).unwrap();
    (0..300).for_each(|nth| fs::write(root.join(format!("d/quite_a_long_name_{nth}")), "x").unwrap());
    // Two hundred blocks that no other block is equal to.
    let blocks =
        (0..200).flat_map(|nth| format!("block {nth:04} ").into_bytes().repeat(BLOCK / 8)[..BLOCK].to_vec());
    fs::write(root.join("file"), blocks.collect::<Vec<_>>()).unwrap();
    place.umount();
    let whole = fs::read(place.volume()).unwrap();
    let file = File::options().write(true).open(place.volume()).unwrap();
    for (nth, block) in whole.chunks_exact(BLOCK).enumerate() {
        let is_of_directory = block.windows(17).any(|bytes| bytes == b"quite_a_long_name");
        if is_of_directory || block.starts_with(b"block 0") {
            file.write_all_at(&[block[5] ^ 1], (nth * BLOCK + 5) as u64).unwrap();
        }
    }
    drop(file);
    let log = place.path().join("log");
    let root = place.mount(&["--log", log.to_str().unwrap()]);
    let file = File::open(root.join("file")).unwrap();
    (0..200).for_each(|nth| assert!(file.read_exact_at(&mut [0; BLOCK], nth * BLOCK as u64).is_err()));
    let listed = fs::read_dir(root.join("d")).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    assert_eq!(listed.unwrap_err().raw_os_error(), Some(5));
    let [inode, of_file] =
        ["d", "file"].map(|name| format!("inode={} ", fs::metadata(root.join(name)).unwrap().ino()));
    wait_until("the log names the directory", || fs::read_to_string(&log).unwrap().contains(&inode));
    let told = fs::read_to_string(&log).unwrap();
    assert_eq!(told.lines().filter(|line| line.contains(&of_file)).count(), 200, "{told}");
    drop(file);
    place.umount();
}
