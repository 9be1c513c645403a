//! Page-aligned memory for direct I/O.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

use crate::slabs::Piece;

/// Page-aligned (4,096 bytes) memory of a fixed length.
///
/// That alignment is what O_DIRECT asks of any disk with sectors up to 4 KiB. A buffer of one page takes a page of
/// memory, and a longer one up to twice its length in addresses.
///
/// A buffer may be registered with a [`Ring`](crate::Ring), which then reads and writes it without mapping
/// its pages anew each time.
pub struct Buffer {
    /// It never moves.
    memory: Piece,
    pub(crate) registration: Option<Registration>,
}

impl Buffer {
    /// A zeroed buffer of `bytes` bytes.
    pub fn new(bytes: usize) -> Self {
        Buffer { memory: Piece::zeroed(bytes), registration: None }
    }

    /// A buffer of `bytes` bytes that hold whatever its memory held before: for a reader that fills all of it, or
    /// gives nothing of it to anybody.
    pub fn unfilled(bytes: usize) -> Self {
        Buffer { memory: Piece::unfilled(bytes), registration: None }
    }

    /// A buffer with these bytes.
    pub fn copy_of(bytes: &[u8]) -> Self {
        Buffer { memory: Piece::copy_of(bytes), registration: None }
    }

    /// Whether a ring holds this buffer registered.
    pub fn is_registered(&self) -> bool {
        self.registration.is_some()
    }
}

impl Clone for Buffer {
    /// A copy of the bytes, not registered.
    fn clone(&self) -> Self {
        Buffer::copy_of(self)
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.memory.bytes()
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.memory.bytes_mut()
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let registered = self.registration.as_ref().map(|registration| registration.index);
        formatter
            .debug_struct("Buffer")
            .field("bytes", &self.len())
            .field("registered", &registered)
            .finish_non_exhaustive()
    }
}

/// A buffer's place in a ring's table of registered buffers; free again when the buffer is dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    pub(crate) table: Arc<Table>,
    pub(crate) index: u16,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.table.free().push(self.index);
    }
}

/// The free places of one ring's table. Shared with the buffers, so that a place says which ring it is of:
/// on another ring the same index would mean other memory.
#[derive(Debug)]
pub(crate) struct Table(Mutex<Vec<u16>>);

impl Table {
    pub(crate) fn new(places: u16) -> Arc<Self> {
        Arc::new(Table(Mutex::new((0..places).rev().collect())))
    }

    pub(crate) fn take(self: &Arc<Self>) -> Option<Registration> {
        let index = self.free().pop()?;
        Some(Registration { table: self.clone(), index })
    }

    fn free(&self) -> std::sync::MutexGuard<'_, Vec<u16>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slabs::PAGE;

    #[test]
    fn buffers_are_aligned_and_zeroed() {
        for bytes in [0, 1, 512, 4096, 4097, 1 << 20] {
            let mut buffer = Buffer::new(bytes);
            assert_eq!(buffer.len(), bytes);
            assert_eq!(buffer.as_ptr().align_offset(PAGE), 0);
            assert!(buffer.iter().all(|&byte| byte == 0));
            buffer.fill(7);
            assert!(buffer.iter().all(|&byte| byte == 7));
            let copy = Buffer::copy_of(&buffer);
            buffer.fill(8);
            assert_eq!((copy.len(), copy.as_ptr().align_offset(PAGE)), (bytes, 0));
            assert!(copy.iter().all(|&byte| byte == 7));
        }
    }

    #[test]
    fn a_dropped_buffer_frees_its_place() {
        let table = Table::new(1);
        let first = table.take();
        assert!(first.is_some() && table.take().is_none());
        drop(first);
        assert!(table.take().is_some());
    }
}
