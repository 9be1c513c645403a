//! *Lost writes*: pages that the kernel handed over and that could not be written: of shared mappings, and of all files
//! where it keeps a writeback cache.
//!
//! No program waits for such a write, so none gets its error: the kernel reports it to the next `fsync` or `msync` of the
//! file, if there is one, and the first `syncfs` of the mount, whatever became of the file since. What files lack is
//! remembered here instead, until they are written again, cut, or deleted. So every `fsync` tells of it, also after the
//! file was closed: the kernel's cache may show the pages to the next program that opens it. The unmount reports what
//! is on the disk.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;

use rustix::io::Errno;
use weir_vfs::{Filesystem, FsError, InodeNumber};

/// Files that are remembered one by one; of more it is only known that there are some.
const FILES_MAX: usize = 1 << 16;
/// Ranges of one file; of more, all between the first and the last. So all take 10 MiB at most.
const RANGES_MAX: usize = 8;

/// What is lost now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Writes of pages that failed since the mount.
    pub failed: u64,
    /// Files that lack what such a write had, now.
    pub files: u64,
    /// The inode of one of them.
    pub first: Option<InodeNumber>,
}

/// What a file lacks.
struct Lack {
    generation: u32,
    ranges: Vec<Range<u64>>,
    cause: Errno,
}

/// The lost writes of a mount.
#[derive(Default)]
pub(crate) struct LostWrites {
    failed: Cell<u64>,
    files: RefCell<BTreeMap<InodeNumber, Lack>>,
    /// Why a write failed of a file that found no room here.
    others: Cell<Option<Errno>>,
}

impl LostWrites {
    /// A write of pages has failed.
    pub(crate) fn add(&self, inode: InodeNumber, generation: u32, range: Range<u64>, cause: Errno) {
        self.failed.set(self.failed.get() + 1);
        let mut files = self.files.borrow_mut();
        if files.len() >= FILES_MAX && !files.contains_key(&inode) {
            self.others.set(Some(cause));
            return;
        }
        let fresh = || Lack { generation, ranges: Vec::new(), cause };
        let lack = files.entry(inode).or_insert_with(fresh);
        if lack.generation != generation {
            *lack = fresh();
        }
        lack.take_away(&range);
        lack.ranges.push(range);
        if lack.ranges.len() > RANGES_MAX {
            let start = lack.ranges.iter().map(|range| range.start).min().unwrap_or_default();
            let end = lack.ranges.iter().map(|range| range.end).max().unwrap_or_default();
            lack.ranges.clear();
            lack.ranges.push(start..end);
        }
    }

    /// A file was written.
    pub(crate) fn written(&self, inode: InodeNumber, range: &Range<u64>) {
        let mut files = self.files.borrow_mut();
        if let Some(lack) = files.get_mut(&inode) {
            lack.take_away(range);
            if lack.ranges.is_empty() {
                files.remove(&inode);
            }
        }
    }

    /// The size of a file was set.
    pub(crate) fn cut(&self, inode: InodeNumber, size: u64) {
        self.written(inode, &(size..u64::MAX));
    }

    /// Forgets what an earlier file with this inode number lacked.
    pub(crate) async fn forget_earlier(&self, filesystem: &Filesystem, inode: InodeNumber) {
        let generation = self.files.borrow().get(&inode).map(|lack| lack.generation);
        if let Some(generation) = generation
            && filesystem.attributes(inode).await.is_ok_and(|found| found.generation != generation)
        {
            self.files.borrow_mut().remove(&inode);
        }
    }

    /// What `fsync` of a file adds to its answer.
    ///
    /// # Errors
    /// Why a write failed, if the file lacks something, or may: once more files do than are remembered, each may be one.
    pub(crate) fn fails_sync(&self, inode: InodeNumber) -> Result<(), Errno> {
        let known = self.files.borrow().get(&inode).map(|lack| lack.cause);
        known.or(self.others.get()).map_or(Ok(()), Err)
    }

    /// What is lost now: files that were deleted meanwhile lack nothing.
    pub(crate) async fn found(&self, filesystem: &Filesystem) -> Lost {
        let remembered: Vec<_> =
            self.files.borrow().iter().map(|(inode, lack)| (*inode, lack.generation)).collect();
        for (inode, generation) in remembered {
            let is_gone = match filesystem.attributes(inode).await {
                Ok(found) => {
                    let is_nameless = found.links == 0 && !found.takes_first_name;
                    found.generation != generation || is_nameless
                }
                Err(error) => error == FsError::NotFound,
            };
            if is_gone {
                self.files.borrow_mut().remove(&inode);
            }
        }
        let files = self.files.borrow();
        Lost {
            failed: self.failed.get(),
            files: files.len() as u64 + u64::from(self.others.get().is_some()),
            first: files.keys().next().copied(),
        }
    }

    /// Fails if files lack something.
    ///
    /// # Errors
    /// Why one of the writes failed.
    pub(crate) async fn check(&self, filesystem: &Filesystem) -> Result<(), Errno> {
        self.found(filesystem).await;
        let of_file = self.files.borrow().values().next().map(|lack| lack.cause);
        of_file.or(self.others.get()).map_or(Ok(()), Err)
    }
}

impl Lack {
    fn take_away(&mut self, range: &Range<u64>) {
        let left = |lacking: Range<u64>| {
            let before = lacking.start..lacking.end.min(range.start);
            let behind = lacking.start.max(range.end)..lacking.end;
            [before, behind].into_iter().filter(|part| !part.is_empty())
        };
        self.ranges = std::mem::take(&mut self.ranges).into_iter().flat_map(left).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: InodeNumber = 12;

    /// The ends of the ranges that the file lacks.
    fn lacking(lost: &LostWrites) -> Vec<(u64, u64)> {
        let ends = |lack: &Lack| lack.ranges.iter().map(|range| (range.start, range.end)).collect();
        lost.files.borrow().get(&FILE).map(ends).unwrap_or_default()
    }

    #[test]
    fn what_is_written_again_is_not_lost() {
        let lost = LostWrites::default();
        lost.add(FILE, 1, 0..100, Errno::NOSPC);
        lost.written(13, &(0..100));
        lost.written(FILE, &(40..60));
        assert_eq!(lacking(&lost), [(0, 40), (60, 100)]);
        lost.written(FILE, &(0..50));
        lost.cut(FILE, 80);
        assert_eq!(lacking(&lost), [(60, 80)]);
        lost.add(FILE, 1, 70..90, Errno::NOSPC);
        assert_eq!(lacking(&lost), [(60, 70), (70, 90)]);
        lost.written(FILE, &(0..1000));
        assert!(lost.files.borrow().is_empty());
        assert_eq!(lost.failed.get(), 2);
    }

    #[test]
    fn fsync_fails_until_the_file_is_whole() {
        let lost = LostWrites::default();
        lost.add(FILE, 1, 0..100, Errno::NOSPC);
        assert_eq!((lost.fails_sync(FILE), lost.fails_sync(13)), (Err(Errno::NOSPC), Ok(())));
        lost.written(FILE, &(0..90));
        assert_eq!(lost.fails_sync(FILE), Err(Errno::NOSPC));
        lost.add(FILE, 1, 0..1, Errno::IO);
        assert_eq!(lost.fails_sync(FILE), Err(Errno::NOSPC));
        lost.cut(FILE, 0);
        assert_eq!(lost.fails_sync(FILE), Ok(()));
    }

    #[test]
    fn another_file_of_the_same_number_lacks_nothing_of_the_first() {
        let lost = LostWrites::default();
        lost.add(FILE, 1, 0..100, Errno::NOSPC);
        lost.add(FILE, 2, 200..300, Errno::NOSPC);
        assert_eq!(lacking(&lost), [(200, 300)]);
    }

    #[test]
    fn the_bounds_hold_and_nothing_is_forgotten() {
        let lost = LostWrites::default();
        for nth in 0..1000 {
            lost.add(FILE, 1, nth * 10..nth * 10 + 1, Errno::NOSPC);
            assert!(lacking(&lost).len() <= RANGES_MAX);
            assert!(lacking(&lost).iter().any(|(start, end)| (*start..*end).contains(&(nth * 10))));
        }
        for inode in 0..2 * FILES_MAX as u32 {
            lost.add(inode, 1, 0..1, Errno::IO);
        }
        assert_eq!(lost.files.borrow().len(), FILES_MAX);
        assert_eq!(lost.others.get(), Some(Errno::IO));
    }
}
