//! The *pieces* of objects that a mounted replica has in memory: runs of their data blocks, the least recently used of which go
//! first when there are more bytes than allowed.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use weir_storage::BLOCK_BYTES;

/// Data blocks of a piece; the last piece of an object may have fewer. A request to a store takes as long as 64 KiB of its answer.
pub(crate) const PIECE_BLOCKS: u32 = 16;
/// The same in bytes.
pub(crate) const PIECE_BYTES: usize = PIECE_BLOCKS as usize * BLOCK_BYTES;

/// The data blocks of a piece.
pub(crate) type Piece = Rc<[u8]>;

/// Which piece of which object, by its number in the table of the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PieceId {
    pub object: u32,
    pub piece: u32,
}

/// A piece, and when it was used.
struct Cached {
    data: Piece,
    used: u64,
}

#[derive(Default)]
struct Inner {
    pieces: BTreeMap<PieceId, Cached>,
    by_use: BTreeMap<u64, PieceId>,
    uses: u64,
    bytes: usize,
}

/// Pieces in memory.
pub(crate) struct PieceCache {
    bytes_max: usize,
    inner: RefCell<Inner>,
}

impl Inner {
    fn remove(&mut self, id: PieceId) {
        if let Some(Cached { data, used }) = self.pieces.remove(&id) {
            self.bytes -= data.len();
            self.by_use.remove(&used);
        }
    }
}

impl PieceCache {
    /// An empty one, for so many bytes at most.
    pub(crate) fn new(bytes_max: usize) -> PieceCache {
        PieceCache { bytes_max, inner: RefCell::default() }
    }

    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    pub(crate) fn bytes(&self) -> usize {
        self.inner.borrow().bytes
    }

    /// A piece, which is used by that.
    pub(crate) fn get(&self, id: PieceId) -> Option<Piece> {
        let inner = &mut *self.inner.borrow_mut();
        let found = inner.pieces.get_mut(&id)?;
        inner.by_use.remove(&found.used);
        inner.uses += 1;
        found.used = inner.uses;
        inner.by_use.insert(inner.uses, id);
        Some(Rc::clone(&found.data))
    }

    /// Adds a piece, and gives up the least recently used ones until there is room.
    pub(crate) fn insert(&self, id: PieceId, data: Piece) {
        let inner = &mut *self.inner.borrow_mut();
        inner.remove(id);
        if data.len() > self.bytes_max {
            return;
        }
        while inner.bytes + data.len() > self.bytes_max
            && let Some((_, oldest)) = inner.by_use.first_key_value()
        {
            let oldest = *oldest;
            inner.remove(oldest);
        }
        inner.uses += 1;
        inner.bytes += data.len();
        inner.by_use.insert(inner.uses, id);
        inner.pieces.insert(id, Cached { data, used: inner.uses });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_piece_goes_first() {
        let cache = PieceCache::new(3 * 10);
        let id = |piece| PieceId { object: 1, piece };
        let has = |piece| cache.get(id(piece)).is_some();
        for piece in 0..3 {
            cache.insert(id(piece), Rc::from([0; 10]));
        }
        assert!(has(0));
        cache.insert(id(3), Rc::from([3; 10]));
        assert!(has(0) && !has(1) && has(2) && has(3));
        assert_eq!(cache.bytes(), 30);
        cache.insert(id(3), Rc::from([4; 20]));
        assert_eq!((cache.bytes(), cache.get(id(3)).as_deref()), (30, Some(&[4; 20][..])));
        cache.insert(id(4), Rc::from([0; 31]));
        assert!(!has(4) && has(3), "a piece for which there is never room takes none");
    }
}
