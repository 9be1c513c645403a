//! *Block owners*: which file of a mounted filesystem has which bytes of its disk.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use weir_crash::system;

use crate::disk_ground::{DiskFilesystem, DiskGround};
use crate::tree::BLOCK_BYTES;

/// Files that are asked for at most, and how many at one time.
const FILES_MAX: usize = 4096;
const FILES_AT_ONCE: usize = 128;
const BLOCK: u64 = BLOCK_BYTES as u64;

/// What has a piece of the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Extent {
    end: u64,
    /// The file, and the offset in it; none in the filesystem's own.
    owner: String,
    offset: Option<u64>,
    /// It is data of a file, and not names or the filesystem's own.
    is_data: bool,
}

/// The pieces of a disk that are known, by where they begin.
#[derive(Clone, Debug, Default)]
pub(crate) struct BlockOwners {
    known: BTreeMap<u64, Extent>,
    /// Who says what these do not.
    others: Option<Box<BlockOwners>>,
}

impl BlockOwners {
    /// Those of a mounted filesystem, and of its image; as far as the programs `filefrag` and `debugfs` are there and say them.
    pub(crate) fn find(ground: &DiskGround, directory: &Path, image: &Path) -> BlockOwners {
        let mut owners = BlockOwners::default();
        if !ground.filesystem.tells_places() {
            return owners;
        }
        let mut files = Vec::new();
        list_files(directory, &mut files);
        for some in files.chunks(FILES_AT_ONCE) {
            let told = system("filefrag").args(["-v", "-b4096"]).args(some).env("LC_ALL", "C").output();
            if let Ok(told) = told {
                owners.take_in(&String::from_utf8_lossy(&told.stdout), directory);
            }
        }
        if ground.filesystem == DiskFilesystem::Ext4 {
            // The inode of the journal.
            let told = system("debugfs").args(["-R", "blocks <8>"]).arg(image).output();
            let told =
                told.map(|told| String::from_utf8_lossy(&told.stdout).into_owned()).unwrap_or_default();
            for block in told.split_whitespace().filter_map(|block| block.parse::<u64>().ok()) {
                owners.add(block..block + 1, ("the journal of ext4".to_owned(), false), None);
            }
        }
        owners
    }

    /// Adds what others know, where nothing is known.
    pub(crate) fn or(mut self, others: BlockOwners) -> BlockOwners {
        self.others = Some(Box::new(others));
        self
    }

    fn add(&mut self, blocks: Range<u64>, (owner, is_data): (String, bool), offset: Option<u64>) {
        let (start, end) = (blocks.start.saturating_mul(BLOCK), blocks.end.saturating_mul(BLOCK));
        self.known.entry(start).or_insert(Extent { end, owner, offset, is_data });
    }

    /// Whether a file has the byte at an offset.
    pub(crate) fn has_data(&self, offset: u64) -> bool {
        self.find_extent(offset).is_some_and(|(_, extent)| extent.is_data)
    }

    fn find_extent(&self, offset: u64) -> Option<(&u64, &Extent)> {
        let known = self.known.range(..=offset).next_back().filter(|(_, extent)| offset < extent.end);
        known.or_else(|| self.others.as_ref()?.find_extent(offset))
    }

    /// Takes in what `filefrag -v` prints.
    fn take_in(&mut self, told: &str, directory: &Path) {
        let mut path = None;
        for line in told.lines() {
            if let Some(rest) = line.strip_prefix("File size of ") {
                // A name may have words of its own: the last ones count.
                let whole = rest.rsplit_once(" is ").map(|(path, _)| Path::new(path));
                path = whole.map(|path| {
                    let name = path.strip_prefix(directory).unwrap_or(path);
                    let name = if name.as_os_str().is_empty() { Path::new(".") } else { name };
                    (format!("`{}`", name.display()), !path.is_dir())
                });
            } else if let (Some(owner), Some((blocks, logical))) = (&path, parse_extent(line)) {
                self.add(blocks, owner.clone(), Some(logical * BLOCK));
            }
        }
    }

    /// Whose bytes from an offset on are, for a person.
    pub(crate) fn describe(&self, offset: u64) -> String {
        let owner = self.owner(offset);
        match self.find_extent(offset) {
            Some((start, Extent { offset: Some(first), .. })) => {
                format!("{owner} at {}", first + (offset - start))
            }
            _ => owner,
        }
    }

    /// The same without the place in a file.
    pub(crate) fn owner(&self, offset: u64) -> String {
        match self.find_extent(offset) {
            Some((_, extent)) => extent.owner.clone(),
            None => "blocks of the filesystem's own, or of a file that is gone".to_owned(),
        }
    }
}

/// The files and directories below a directory, not more than are asked for.
fn list_files(directory: &Path, files: &mut Vec<PathBuf>) {
    files.push(directory.to_owned());
    let mut left = vec![directory.to_owned()];
    while let Some(place) = left.pop() {
        let mut entries: Vec<PathBuf> =
            fs::read_dir(&place).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        entries.sort();
        for entry in entries {
            let Ok(metadata) = fs::symlink_metadata(&entry) else { continue };
            if files.len() >= FILES_MAX {
                return;
            }
            if metadata.is_dir() {
                left.push(entry.clone());
            }
            if metadata.is_dir() || metadata.is_file() && metadata.blocks() > 0 {
                files.push(entry);
            }
        }
    }
}

/// An extent as `filefrag -v` prints it: its blocks on the disk, and its first block in the file.
fn parse_extent(line: &str) -> Option<(Range<u64>, u64)> {
    let mut fields = line.split(':').map(str::trim);
    let number = |text: &str| text.trim().parse::<u64>().ok();
    number(fields.next()?)?;
    let (logical, _) = fields.next()?.split_once("..")?;
    let (first, last) = fields.next()?.split_once("..")?;
    Some((number(first)?..number(last)?.checked_add(1)?, number(logical)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_filefrag_prints_says_whose_a_block_is() {
        let told = "Filesystem type is: ef53
File size of /m/a is b is 8193 (3 blocks of 4096 bytes)
 ext:     logical_offset:        physical_offset: length:   expected: flags:
   0:        0..       1:        100..       101:      2:
   1:        5..       5:        300..       300:      1:        102: last,eof
/m/a is b: 2 extents found
";
        let mut owners = BlockOwners::default();
        owners.take_in(told, Path::new("/m"));
        owners.add(7..8, ("the journal of ext4".to_owned(), false), None);
        let whose = |block: u64| owners.describe(block * BLOCK + 512);
        assert_eq!(
            [whose(101), whose(300), whose(7)],
            ["`a is b` at 4608", "`a is b` at 20992", "the journal of ext4"]
        );
        // What others say of a part of an extent does not hide it.
        let mut others = BlockOwners::default();
        others.take_in(
            &told.replace("100..       101", "101..       103").replace("a is b", "c"),
            Path::new("/m"),
        );
        let both = owners.clone().or(others);
        let whose_of_both = |block: u64| both.describe(block * BLOCK);
        assert_eq!([whose_of_both(101), whose_of_both(103)], ["`a is b` at 4096", "`c` at 8192"]);
        assert!(whose(102).starts_with("blocks of the filesystem's own") && whose(99) == whose(102));
    }
}
