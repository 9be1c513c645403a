//! *Directories* that programs read.
//!
//! The kernel does not say that a program opens or closes one: the answer ENOSYS to OPENDIR ends both requests for the mount
//! (`FUSE_NO_OPENDIR_SUPPORT`). It keeps what it has read of a directory until a name changes there, and asks only for the rest.
//! So what readers share hangs on the directory's inode.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use weir_format::FileType;
use weir_vfs::InodeNumber;

use crate::calls::Calls;
use crate::convert;
use crate::errno::errno;
use crate::positions::{PlacedEntry, Positions, REMEMBERED_MAX};
use crate::protocol::{DirectoryName, Names};

/// Directories that are remembered, those that were read last.
pub(crate) const DIRECTORIES_MAX: usize = 64;

/// What is remembered of the readers of a directory.
#[derive(Default)]
struct Reading {
    positions: Positions,
    /// Names that were read and did not fit into an answer, and the position of the last that did.
    left: (u64, VecDeque<PlacedEntry>),
}

/// What a server tells the next one of the readers of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DirectoryState {
    inode: InodeNumber,
    /// As [`Positions::list`] has them.
    positions: [Vec<(u64, u64)>; 2],
}

impl DirectoryState {
    pub(crate) fn new(inode: InodeNumber, positions: [Vec<(u64, u64)>; 2]) -> DirectoryState {
        DirectoryState { inode, positions }
    }

    /// Whether it has no more positions than are remembered.
    pub(crate) fn is_bounded(&self) -> bool {
        self.positions.iter().all(|given| given.len() <= REMEMBERED_MAX)
    }
}

/// The directories that were read last, the latest at the end.
#[derive(Default)]
pub(crate) struct Directories(RefCell<VecDeque<(InodeNumber, Rc<RefCell<Reading>>)>>);

impl Directories {
    /// What the next server has to know. Names that did not fit into an answer are read again.
    pub(crate) fn list(&self) -> Vec<DirectoryState> {
        let all = self.0.borrow();
        let state = |(inode, reading): &(InodeNumber, Rc<RefCell<Reading>>)| {
            DirectoryState::new(*inode, reading.borrow().positions.list())
        };
        all.iter().map(state).collect()
    }

    /// Goes on with what the server before has listed.
    pub(crate) fn restore(&self, list: &[DirectoryState]) {
        for DirectoryState { inode, positions } in list {
            self.reading(*inode).borrow_mut().positions = Positions::from_list(positions);
        }
    }

    fn reading(&self, inode: InodeNumber) -> Rc<RefCell<Reading>> {
        let mut all = self.0.borrow_mut();
        let known = all.iter().rposition(|(other, _)| *other == inode);
        let reading = known.and_then(|nth| all.remove(nth)).map(|(_, reading)| reading).unwrap_or_default();
        if all.len() == DIRECTORIES_MAX {
            all.pop_front();
        }
        all.push_back((inode, Rc::clone(&reading)));
        reading
    }
}

impl Reading {
    /// The names kept for a reader that continues behind `last`. One that begins has them read again.
    fn take_left(&mut self, last: u64) -> Option<VecDeque<PlacedEntry>> {
        let (behind, names) = std::mem::take(&mut self.left);
        (last != 0 && behind == last && !names.is_empty()).then_some(names)
    }
}

impl Directories {
    /// Fills `names` with those of a directory behind `offset`, for a program that has opened it with these flags; and with what each
    /// stands for, `with_attributes`.
    pub(crate) async fn read(
        &self,
        calls: &Calls,
        inode: InodeNumber,
        (offset, flags): (u64, i32),
        names: &mut Names,
        with_attributes: bool,
    ) -> Result<(), Errno> {
        calls.note_access(inode, flags).await;
        let reading = self.reading(inode);
        let mut last = offset;
        loop {
            let left = reading.borrow_mut().take_left(last);
            // What a name that was read before stands for may be gone, and its number be another one's.
            let mut entries = match left.filter(|_| !with_attributes) {
                Some(left) => left,
                None => {
                    let after = reading.borrow_mut().positions.cookie_of(last);
                    let read = calls.filesystem.read_directory(inode, after).await;
                    let read = read.map_err(|error| errno(&error))?;
                    reading.borrow_mut().positions.place_entries(last, read)
                }
            };
            if entries.is_empty() {
                return Ok(());
            }
            while let Some(placed) = entries.pop_front() {
                if !add_name(calls, names, &placed, with_attributes).await {
                    entries.push_front(placed);
                    reading.borrow_mut().left = (last, entries);
                    return Ok(());
                }
                last = placed.position;
            }
        }
    }
}

/// Adds a name, unless there is no room left for it: whether there was. The kernel keeps the names of a directory from changing
/// while it reads them.
async fn add_name(calls: &Calls, names: &mut Names, placed: &PlacedEntry, with_attributes: bool) -> bool {
    let PlacedEntry { position, entry } = placed;
    if !names.have_room(&entry.name, with_attributes) {
        return false;
    }
    let name = DirectoryName {
        node: convert::number(entry.target.inode, calls.filesystem.root()),
        position: *position,
        kind: entry.target.kind.unwrap_or(FileType::Regular),
        name: &entry.name,
    };
    if !with_attributes {
        names.add(&name);
        return true;
    }
    // The kernel counts no reference to "." and "..". It looks up a name whose node the answer does not have.
    let is_dot = matches!(entry.name.as_slice(), b"." | b"..");
    let found = match is_dot {
        true => None,
        false => calls.entry_of(calls.filesystem.hold(entry.target.inode).await).await.ok(),
    };
    names.add_entry(&name, found);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directories_that_were_read_last_are_remembered() {
        let directories = Directories::default();
        let first = directories.reading(2);
        first.borrow_mut().left = (7, VecDeque::new());
        for inode in 3..2 + DIRECTORIES_MAX as InodeNumber {
            directories.reading(inode);
        }
        assert!(Rc::ptr_eq(&first, &directories.reading(2)));
        directories.reading(1000);
        assert_eq!(directories.0.borrow().len(), DIRECTORIES_MAX);
        assert!(Rc::ptr_eq(&first, &directories.reading(2)));
        for inode in 2000..2000 + DIRECTORIES_MAX as InodeNumber {
            directories.reading(inode);
        }
        assert!(!Rc::ptr_eq(&first, &directories.reading(2)));
    }
}
