//! A *backing file* holds the bytes of a device's blocks, so that they need no memory.
//!
//! Every block that enters the device gets a *place* of its own in the file. It keeps it in the cache, on the
//! chips, and wherever cleaning moves it, until the last that refers to it is gone; so what a power cut leaves
//! can share the file with the device that goes on. Versions, spare areas and the map stay in memory, some 10
//! bytes a block.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use weir_storage::BLOCK_BYTES;

/// A file for the bytes of one or more devices.
///
/// It is scratch: its content means nothing once the devices are gone. It grows as needed, to what the devices'
/// flash and caches hold at most. Reads and writes of it take the program's time, not the device's; a file whose
/// pages do not stay in the kernel's cache makes a device in wall time slower than its profile.
#[derive(Debug)]
pub struct Backing {
    file: File,
    /// Places that were ever used.
    places: Cell<u64>,
    /// The free ones among them.
    free: RefCell<Vec<u64>>,
}

impl Backing {
    /// Uses `file`, open for reading and writing. What is in it is overwritten.
    #[must_use]
    pub fn new(file: File) -> Rc<Backing> {
        Rc::new(Backing { file, places: Cell::new(0), free: RefCell::default() })
    }

    /// Blocks that lie in the file now.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.places.get() - self.free.borrow().len() as u64
    }

    /// Gives the bytes of one block a place.
    pub(crate) fn put(self: &Rc<Backing>, bytes: &[u8]) -> io::Result<Rc<BackedBlock>> {
        let nth = self.free.borrow_mut().pop().unwrap_or_else(|| self.places.replace(self.places.get() + 1));
        // Made first: whatever fails, the place is given back.
        let place = BackedBlock { backing: Rc::clone(self), nth };
        self.file.write_all_at(bytes, place.offset())?;
        Ok(Rc::new(place))
    }
}

/// Where the bytes of one block lie.
#[derive(Debug)]
pub(crate) struct BackedBlock {
    backing: Rc<Backing>,
    nth: u64,
}

impl BackedBlock {
    fn offset(&self) -> u64 {
        self.nth * BLOCK_BYTES as u64
    }

    /// Reads the block back.
    pub(crate) fn read(&self, bytes: &mut [u8]) -> io::Result<()> {
        self.backing.file.read_exact_at(bytes, self.offset())
    }
}

impl Drop for BackedBlock {
    fn drop(&mut self) {
        self.backing.free.borrow_mut().push(self.nth);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(byte: u8) -> Vec<u8> {
        vec![byte; BLOCK_BYTES]
    }

    #[test]
    fn a_place_is_used_again_once_nobody_refers_to_it() {
        let backing = Backing::new(tempfile::tempfile().unwrap());
        let first = backing.put(&block(1)).unwrap();
        let second = backing.put(&block(2)).unwrap();
        let copy = Rc::clone(&first);
        drop(first);
        let third = backing.put(&block(3)).unwrap();
        let mut found = block(0);
        for (place, byte) in [(&copy, 1), (&second, 2), (&third, 3)] {
            place.read(&mut found).unwrap();
            assert_eq!(found, block(byte));
        }
        assert_eq!(backing.blocks(), 3);
        drop((copy, third));
        let _again = backing.put(&block(4)).unwrap();
        assert_eq!((backing.blocks(), backing.places.get()), (2, 3));
    }

    #[test]
    fn a_file_that_cannot_be_written_is_an_error_and_keeps_no_place() {
        let backing = Backing::new(File::open("/dev/null").unwrap());
        backing.put(&block(1)).unwrap_err();
        assert_eq!(backing.blocks(), 0);
    }
}
