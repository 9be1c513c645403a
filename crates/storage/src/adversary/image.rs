//! An *image* is the content of a disk at one moment: what is left on the medium after a power cut, or
//! what reads would find. Images share everything that they have in common, so that a campaign can hold
//! and compare hundreds of thousands of them.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::address::{BLOCK_BYTES, Lba};

/// Tear units that are copied together when one of them changes.
const CHUNK_UNITS: usize = 64;

/// An odd constant with well spread bits (2^64 divided by the golden ratio).
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The bytes of one tear unit, or `None` for zeroes, so that equal content has one form.
pub(super) type Unit = Option<Content>;

/// The bytes of a tear unit that is not all zeroes: a part of a block's payload, and its hash.
#[derive(Clone)]
pub(super) struct Content {
    payload: Rc<[u8]>,
    offset: usize,
    hash: u64,
}

type Chunk = [Unit; CHUNK_UNITS];

/// Splits one block into tear units.
pub(super) fn split(block: &[u8], unit_bytes: usize) -> impl Iterator<Item = Unit> {
    let payload: Rc<[u8]> = Rc::from(block);
    (0..block.len() / unit_bytes).map(move |i| {
        let offset = i * unit_bytes;
        let hash = content_hash(&payload[offset..offset + unit_bytes]);
        hash.map(|hash| Content { payload: Rc::clone(&payload), offset, hash })
    })
}

/// Puts a unit into as many bytes.
pub(super) fn put_unit(unit: &Unit, bytes: &mut [u8]) {
    match unit {
        Some(content) => bytes.copy_from_slice(content.bytes(bytes.len())),
        None => bytes.fill(0),
    }
}

/// One unit with the first half of `front` and the second half of `back`.
pub(super) fn spliced(front: &Unit, back: &Unit, unit_bytes: usize) -> Unit {
    let mut bytes = vec![0; unit_bytes];
    let (first, second) = bytes.split_at_mut(unit_bytes / 2);
    if let Some(content) = front {
        first.copy_from_slice(&content.bytes(unit_bytes)[..unit_bytes / 2]);
    }
    if let Some(content) = back {
        second.copy_from_slice(&content.bytes(unit_bytes)[unit_bytes / 2..]);
    }
    split(&bytes, unit_bytes).next().flatten()
}

/// Bytes of a sector, which a cut may garble by itself.
const SECTOR_BYTES: usize = 512;

/// One unit of which a cut has left some sectors as they were, some new, and some as garbage; at least one of these.
pub(super) fn garbled(old: &Unit, new: &Unit, unit_bytes: usize) -> Unit {
    let mut bytes = vec![0; unit_bytes];
    let seed = new.as_ref().map_or(SPREAD, |content| content.hash);
    for (i, sector) in bytes.chunks_exact_mut(SECTOR_BYTES).enumerate() {
        let from = i * SECTOR_BYTES;
        let source = match i % 3 {
            0 => {
                let words = (1..).map(|word| finish(seed ^ (from as u64 + word).wrapping_mul(SPREAD)));
                let words = words.flat_map(u64::to_le_bytes);
                sector.iter_mut().zip(words).for_each(|(byte, garbage)| *byte = garbage);
                continue;
            }
            1 => new,
            _ => old,
        };
        if let Some(content) = source {
            sector.copy_from_slice(&content.bytes(unit_bytes)[from..from + SECTOR_BYTES]);
        }
    }
    split(&bytes, unit_bytes).next().flatten()
}

impl Content {
    pub(super) fn bytes(&self, unit_bytes: usize) -> &[u8] {
        &self.payload[self.offset..self.offset + unit_bytes]
    }
}

/// A hash of content; `None` for zeroes. It does not resist content that is chosen to collide.
pub(super) fn content_hash(bytes: &[u8]) -> Option<u64> {
    let words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()));
    if words.clone().all(|word| word == 0) {
        return None;
    }
    Some(finish(words.fold(SPREAD, |hash, word| (hash.rotate_left(23) ^ word).wrapping_mul(SPREAD))))
}

fn finish(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 32)).wrapping_mul(SPREAD);
    hash ^ (hash >> 29)
}

/// What a unit adds to the hash of its image: nothing while it is zero.
fn place(number: u32, unit: &Unit) -> u64 {
    unit.as_ref()
        .map_or(0, |content| finish(content.hash ^ u64::from(number).wrapping_add(1).wrapping_mul(SPREAD)))
}

/// The content of a disk. Cheap to clone, compare (by [`Image::hash`]) and change. It takes memory for what is not zero,
/// so that a disk may be as large as its units can be numbered: 2^32 of them.
#[derive(Clone)]
pub struct Image {
    /// Chunks that were ever written; all others are zeroes.
    chunks: BTreeMap<u32, Rc<Chunk>>,
    blocks: u64,
    unit_bytes: usize,
    hash: u64,
}

impl Image {
    /// An image of zeroes with `blocks` blocks, torn at `unit_bytes` (512 to 4,096, a power of two;
    /// anything else counts as 4,096).
    #[must_use]
    pub fn zeroed(blocks: u64, unit_bytes: u32) -> Image {
        let unit_bytes = match unit_bytes as usize {
            bytes @ (512 | 1024 | 2048) => bytes,
            _ => BLOCK_BYTES,
        };
        Image { chunks: BTreeMap::new(), blocks, unit_bytes, hash: 0 }
    }

    /// Capacity in blocks.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// A hash of the whole content, kept up to date: equal content, equal hash.
    #[must_use]
    pub fn hash(&self) -> u64 {
        finish(self.hash)
    }

    /// The content of one block; zeroes behind the last block.
    #[must_use]
    pub fn read(&self, block: Lba) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK_BYTES];
        self.read_into(block, &mut bytes);
        bytes
    }

    /// Puts the content of one block into as many bytes; zeroes behind the last block.
    pub fn read_into(&self, block: Lba, bytes: &mut [u8]) {
        let units = self.units_of(block);
        let Some(chunk) = self.chunks.get(&(units.start / CHUNK_UNITS as u32)).filter(|_| !units.is_empty())
        else {
            return bytes.fill(0);
        };
        // The units of a block are all in one chunk.
        let units = &chunk[units.start as usize % CHUNK_UNITS..][..units.len()];
        for (unit, bytes) in units.iter().zip(bytes.chunks_exact_mut(self.unit_bytes)) {
            put_unit(unit, bytes);
        }
    }

    /// The first block from `from` on that may not be zeroes: whole chunks that were never written are.
    pub(super) fn next_data(&self, from: Lba) -> Option<Lba> {
        let per_block = (BLOCK_BYTES / self.unit_bytes) as u64;
        let first = u32::try_from(from.0 * per_block / CHUNK_UNITS as u64).ok()?;
        let (chunk, _) = self.chunks.range(first..).next()?;
        let block = u64::from(*chunk) * CHUNK_UNITS as u64 / per_block;
        Some(Lba(block.max(from.0))).filter(|lba| lba.0 < self.blocks)
    }

    /// Replaces the content from `block` on, for tests that damage or build an image. Whole blocks are
    /// written; what is left of `bytes` behind them, or behind the last block, is ignored.
    pub fn write(&mut self, block: Lba, bytes: &[u8]) {
        let unit_bytes = self.unit_bytes;
        for (i, bytes) in bytes.chunks_exact(BLOCK_BYTES).enumerate() {
            for (number, unit) in self.units_of(block.offset(i as u64)).zip(split(bytes, unit_bytes)) {
                self.set(number, unit);
            }
        }
    }

    /// Inverts bit `bit % 8` of byte `byte` of the disk; nothing behind the last block.
    pub fn flip_bit(&mut self, byte: u64, bit: u32) {
        let block = Lba(byte / BLOCK_BYTES as u64);
        let mut bytes = self.read(block);
        bytes[(byte % BLOCK_BYTES as u64) as usize] ^= 1 << (bit % 8);
        self.write(block, &bytes);
    }

    /// The same content, torn at another unit.
    pub(super) fn with_units(&self, unit_bytes: u32) -> Image {
        let mut image = Image::zeroed(self.blocks, unit_bytes);
        if image.unit_bytes == self.unit_bytes {
            return self.clone();
        }
        let per_block = (BLOCK_BYTES / self.unit_bytes) as u32;
        let written = self.chunks.keys().flat_map(|chunk| {
            let units = CHUNK_UNITS as u32;
            chunk * units / per_block..((chunk * units).saturating_add(units - 1)) / per_block + 1
        });
        for block in written.map(|block| Lba(u64::from(block))) {
            if self.units_of(block).any(|unit| self.unit(unit).is_some()) {
                image.write(block, &self.read(block));
            }
        }
        image
    }

    pub(super) fn unit_bytes(&self) -> usize {
        self.unit_bytes
    }

    /// The numbers of the units of a block; none behind the last block.
    pub(super) fn units_of(&self, block: Lba) -> std::ops::Range<u32> {
        let per_block = (BLOCK_BYTES / self.unit_bytes) as u32;
        if block.0 >= self.blocks {
            return 0..0;
        }
        let first = u32::try_from(block.0).unwrap_or(u32::MAX).saturating_mul(per_block);
        first..first.saturating_add(per_block)
    }

    pub(super) fn unit(&self, number: u32) -> &Unit {
        let chunk = self.chunks.get(&(number / CHUNK_UNITS as u32));
        chunk.map_or(&None, |chunk| &chunk[number as usize % CHUNK_UNITS])
    }

    /// The hash of a unit's content; `None` for zeroes.
    pub(super) fn unit_hash(&self, number: u32) -> Option<u64> {
        self.unit(number).as_ref().map(|content| content.hash)
    }

    /// The hash of everything but these units.
    pub(super) fn hash_without<'a>(&self, units: impl Iterator<Item = &'a u32>) -> u64 {
        units.fold(self.hash, |hash, &number| hash.wrapping_sub(place(number, self.unit(number))))
    }

    pub(super) fn set(&mut self, number: u32, unit: Unit) {
        let zeroes = || Rc::new([const { None }; CHUNK_UNITS]);
        let chunk = self.chunks.entry(number / CHUNK_UNITS as u32).or_insert_with(zeroes);
        let chunk = Rc::make_mut(chunk);
        let place_of = &mut chunk[number as usize % CHUNK_UNITS];
        self.hash = self.hash.wrapping_sub(place(number, place_of)).wrapping_add(place(number, &unit));
        *place_of = unit;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_content_has_an_equal_hash_however_it_came_about() {
        let mut image = Image::zeroed(20, 512);
        let empty = image.hash();
        image.write(Lba(7), &[3; BLOCK_BYTES * 2]);
        assert_eq!((image.read(Lba(7)), image.read(Lba(9))), (vec![3; BLOCK_BYTES], vec![0; BLOCK_BYTES]));
        let written = image.hash();
        let copy = image.clone();
        image.flip_bit(7 * 4096 + 1000, 3);
        assert_eq!(image.read(Lba(7))[1000], 3 ^ 8);
        assert!(image.hash() != written && copy.hash() == written);
        image.flip_bit(7 * 4096 + 1000, 3);
        assert_eq!(image.hash(), written);
        image.write(Lba(7), &[0; BLOCK_BYTES * 2]);
        assert_eq!(image.hash(), empty);
    }

    #[test]
    fn content_in_another_place_is_another_image() {
        let (mut a, mut b) = (Image::zeroed(4, 4096), Image::zeroed(4, 4096));
        a.write(Lba(1), &[9; BLOCK_BYTES]);
        b.write(Lba(2), &[9; BLOCK_BYTES]);
        assert_ne!(a.hash(), b.hash());
        assert_eq!(a.with_units(512).read(Lba(1)), vec![9; BLOCK_BYTES]);
    }

    #[test]
    fn a_disk_of_16_tib_takes_memory_for_what_is_written() {
        let mut image = Image::zeroed((1 << 32) - 2, 4096);
        for block in [0, 1 << 31, (1 << 32) - 3] {
            image.write(Lba(block), &[9; BLOCK_BYTES]);
            assert_eq!(image.read(Lba(block)), vec![9; BLOCK_BYTES]);
        }
        assert_eq!(image.chunks.len(), 3);
    }

    #[test]
    fn behind_the_last_block_there_is_nothing() {
        let mut image = Image::zeroed(2, 512);
        image.write(Lba(1), &[1; BLOCK_BYTES * 3]);
        image.write(Lba(u64::MAX), &[1; BLOCK_BYTES]);
        image.flip_bit(1 << 40, 1);
        assert_eq!(image.read(Lba(2)), vec![0; BLOCK_BYTES]);
        assert_eq!(image.read(Lba(1)), vec![1; BLOCK_BYTES]);
    }
}
