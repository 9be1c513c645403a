//! Extended attributes: names with values, kept with a file.
//!
//! Small ones lie in the inode behind its newer fields; the rest share one block. Both hold the same kind of
//! list: entries from the start, values from the end, four zero bytes at least between them. In the block
//! entries are sorted and hashed, so that files with the same attributes can share it; such a block is read
//! here like any other, and code that changes it looks at [`references`] first and writes a block of its own.

use std::ops::Range;

use weir_format::{AttributeName, Attributes, BLOCK_BYTES, FormatError, Place, Structure};

const MAGIC: [u8; 4] = 0xEA02_0000_u32.to_le_bytes();
/// The bytes of an attribute block that count its references, little-endian.
pub const REFERENCES: Range<usize> = 4..8;
/// What comes before the entries in an inode: the magic number.
const AREA_HEADER: usize = 4;
/// What comes before the entries in a block.
const BLOCK_HEADER: usize = 32;
/// Bytes of an entry before its name.
const ENTRY: usize = 16;
/// The zero that ends the entries.
const END: usize = 4;

/// The two things that hold a list: where entries begin, what value offsets count from, what to call it.
#[derive(Clone, Copy)]
struct Holder<'a> {
    bytes: &'a [u8],
    first: usize,
    base: usize,
    place: Place,
}

impl Holder<'_> {
    /// The bytes of the value of the entry at `at`; `None` if they, or what fills their last four, lie beyond
    /// the end.
    fn value(&self, at: usize) -> Option<Range<usize>> {
        let size = u32_at(self.bytes, at + 8) as usize;
        let start = self.base + usize::from(u16::from_le_bytes([self.bytes[at + 2], self.bytes[at + 3]]));
        let end = start.checked_add(size.checked_next_multiple_of(4)?)?;
        match size {
            0 => Some(0..0),
            _ => (end <= self.bytes.len()).then_some(start..start + size),
        }
    }
}

/// Reads the attributes of an inode: what is behind its newer fields, and its attribute block with its
/// number if it has one.
///
/// # Errors
///
/// [`FormatError::Corrupt`] for damage, [`FormatError::Feature`] for a value in an inode of its own.
pub fn read_attributes(
    inode: u32,
    area: &[u8],
    block: Option<(u64, &[u8])>,
) -> Result<Attributes, FormatError> {
    let mut attributes = Attributes::default();
    if area.starts_with(&MAGIC) {
        let place = Place::Inode(inode);
        read_list(&mut attributes, Holder { bytes: area, first: AREA_HEADER, base: AREA_HEADER, place })?;
    }
    if let Some((number, bytes)) = block {
        references(number, bytes)?;
        let place = Place::Block(number);
        read_list(&mut attributes, Holder { bytes, first: BLOCK_HEADER, base: 0, place })?;
    }
    Ok(attributes)
}

fn read_list(attributes: &mut Attributes, holder: Holder<'_>) -> Result<(), FormatError> {
    let Holder { bytes, place, .. } = holder;
    let corrupt = |what| FormatError::corrupt(Structure::Attributes, place, what);
    let end = list_end(bytes, holder.first).ok_or_else(|| corrupt("its entries do not end"))?;
    let mut at = holder.first;
    let mut places: Vec<Range<usize>> = Vec::new();
    while at < end {
        let prefix = bytes[at + 1];
        let rest = &bytes[at + ENTRY..at + ENTRY + usize::from(bytes[at])];
        if u32_at(bytes, at + 4) != 0 {
            return Err(FormatError::Feature { name: "ea_inode" });
        }
        if prefix == 0 {
            return Err(corrupt("a name without a prefix"));
        }
        if rest.contains(&0) {
            return Err(corrupt("a zero byte in a name"));
        }
        let value = holder.value(at).filter(|value| value.is_empty() || value.start >= end + END);
        let value = value.ok_or_else(|| corrupt("the place of a value"))?;
        if !value.is_empty() {
            places.push(value.clone());
        }
        let value = &bytes[value];
        at += ENTRY + rest.len().next_multiple_of(4);
        let name = AttributeName::from_stored(prefix, rest);
        if attributes.get(&name).is_some() {
            return Err(corrupt("a name twice"));
        }
        attributes.set(name, value.to_vec());
    }
    places.sort_by_key(|value| value.start);
    if places.windows(2).any(|two| two[0].end.next_multiple_of(4) > two[1].start) {
        return Err(corrupt("values that overlap"));
    }
    Ok(())
}

/// Stores all attributes: in order, what fits into the inode's `area`, and the rest in a block with one
/// reference, which is returned if there has to be one, not yet sealed with its checksum.
///
/// # Errors
///
/// [`FormatError::Full`] when they do not fit; then `area` is as it was.
pub fn store_attributes(
    attributes: &Attributes,
    area: &mut [u8],
) -> Result<Option<Box<[u8; BLOCK_BYTES]>>, FormatError> {
    let mut room = area.len().saturating_sub(AREA_HEADER + END);
    let mut fits = |name: &AttributeName, value: &[u8]| {
        let needed = entry_bytes(name, value);
        let fits = needed <= room;
        room -= if fits { needed } else { 0 };
        fits
    };
    let (mut inside, mut outside): (Vec<_>, Vec<_>) = (Vec::new(), Vec::new());
    for (name, value) in attributes.iter() {
        if fits(name, value) { &mut inside } else { &mut outside }.push((name, value));
    }
    let needed: usize = outside.iter().map(|(name, value)| entry_bytes(name, value)).sum();
    if needed > BLOCK_BYTES - BLOCK_HEADER - END {
        return Err(FormatError::Full { what: "a file's attributes fill its inode and one block" });
    }
    area.fill(0);
    if !inside.is_empty() {
        area[..AREA_HEADER].copy_from_slice(&MAGIC);
        put_list(area, AREA_HEADER, AREA_HEADER, &inside, false);
    }
    Ok((!outside.is_empty()).then(|| encode_block(&outside)))
}

/// How many inodes share an attribute block; the header is checked.
///
/// # Errors
///
/// [`FormatError::Corrupt`] for what is not an attribute block.
pub fn references(block: u64, bytes: &[u8]) -> Result<u32, FormatError> {
    let corrupt = |what| FormatError::corrupt(Structure::Attributes, Place::Block(block), what);
    if bytes.len() != BLOCK_BYTES || !bytes.starts_with(&MAGIC) {
        return Err(corrupt("magic number"));
    }
    if u32_at(bytes, 8) != 1 {
        return Err(corrupt("number of blocks"));
    }
    match u32_at(bytes, REFERENCES.start) {
        0 => Err(corrupt("number of references")),
        references => Ok(references),
    }
}

/// Compares the hashes of entries with what they are of. Those in an inode may be missing: then they are 0.
/// The arguments are those of [`read_attributes`].
///
/// # Errors
///
/// [`FormatError::Corrupt`] if one differs, or if the entries do not end.
pub fn check_hashes(inode: u32, area: &[u8], block: Option<(u64, &[u8])>) -> Result<(), FormatError> {
    if area.starts_with(&MAGIC) {
        let place = Place::Inode(inode);
        check_list(Holder { bytes: area, first: AREA_HEADER, base: AREA_HEADER, place }, true)?;
    }
    if let Some((number, bytes)) = block {
        check_list(Holder { bytes, first: BLOCK_HEADER, base: 0, place: Place::Block(number) }, false)?;
    }
    Ok(())
}

fn check_list(holder: Holder<'_>, may_be_missing: bool) -> Result<(), FormatError> {
    let Holder { bytes, place, .. } = holder;
    let corrupt = |what| FormatError::corrupt(Structure::Attributes, place, what);
    let end = list_end(bytes, holder.first).ok_or_else(|| corrupt("its entries do not end"))?;
    let mut at = holder.first;
    while at < end {
        let name = &bytes[at + ENTRY..at + ENTRY + usize::from(bytes[at])];
        let value = holder.value(at).ok_or_else(|| corrupt("the place of a value"))?;
        let value = &bytes[value];
        let stored = u32_at(bytes, at + 12);
        // Machines whose characters are signed have hashed names with other bits above 127.
        let missing = may_be_missing && stored == 0;
        if !missing && stored != entry_hash(name, value) && stored != signed_entry_hash(name, value) {
            return Err(corrupt("the hash of an entry"));
        }
        at += ENTRY + name.len().next_multiple_of(4);
    }
    Ok(())
}

/// Where the entries end; `None` if they do not, or not within the bytes.
fn list_end(bytes: &[u8], first: usize) -> Option<usize> {
    let mut at = first;
    loop {
        let head = bytes.get(at..at + END)?;
        if head == [0; END] {
            return Some(at);
        }
        at += ENTRY + usize::from(head[0]).next_multiple_of(4);
    }
}

fn entry_bytes(name: &AttributeName, value: &[u8]) -> usize {
    ENTRY + name.rest().len().next_multiple_of(4) + value.len().next_multiple_of(4)
}

/// Writes entries from `first` on, values from the end; value offsets count from `base`. The bytes are zero
/// before, and large enough.
fn put_list(bytes: &mut [u8], first: usize, base: usize, list: &[(&AttributeName, &[u8])], hashed: bool) {
    let mut at = first;
    let mut values = bytes.len() & !3;
    for &(name, value) in list {
        values -= value.len().next_multiple_of(4);
        bytes[values..values + value.len()].copy_from_slice(value);
        let offset = if value.is_empty() { 0 } else { values - base };
        bytes[at] = name.rest().len() as u8;
        bytes[at + 1] = name.prefix();
        bytes[at + 2..at + 4].copy_from_slice(&(offset as u16).to_le_bytes());
        bytes[at + 8..at + 12].copy_from_slice(&(value.len() as u32).to_le_bytes());
        let hash = if hashed { entry_hash(name.rest(), value) } else { 0 };
        bytes[at + 12..at + 16].copy_from_slice(&hash.to_le_bytes());
        bytes[at + ENTRY..at + ENTRY + name.rest().len()].copy_from_slice(name.rest());
        at += ENTRY + name.rest().len().next_multiple_of(4);
    }
}

fn encode_block(list: &[(&AttributeName, &[u8])]) -> Box<[u8; BLOCK_BYTES]> {
    let mut block = Box::new([0; BLOCK_BYTES]);
    put_list(&mut block[..], BLOCK_HEADER, 0, list, true);
    // Magic number, one reference, one block, and the hash of all entries.
    block[..4].copy_from_slice(&MAGIC);
    block[REFERENCES].copy_from_slice(&1_u32.to_le_bytes());
    block[8..12].copy_from_slice(&1_u32.to_le_bytes());
    let hashes = list.iter().map(|(name, value)| entry_hash(name.rest(), value));
    let hash = hashes.fold(0_u32, |all, hash| all.rotate_left(16) ^ hash);
    block[12..16].copy_from_slice(&hash.to_le_bytes());
    block
}

fn entry_hash(name: &[u8], value: &[u8]) -> u32 {
    hash_on(name.iter().fold(0, |hash: u32, &byte| hash.rotate_left(5) ^ u32::from(byte)), value)
}

fn signed_entry_hash(name: &[u8], value: &[u8]) -> u32 {
    let extended = |byte: u8| i32::from(byte.cast_signed()).cast_unsigned();
    hash_on(name.iter().fold(0, |hash: u32, &byte| hash.rotate_left(5) ^ extended(byte)), value)
}

fn hash_on(hash: u32, value: &[u8]) -> u32 {
    value.chunks(4).fold(hash, |hash, chunk| {
        let mut word = [0; 4];
        word[..chunk.len()].copy_from_slice(chunk);
        hash.rotate_left(16) ^ u32::from_le_bytes(word)
    })
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(full: &str) -> AttributeName {
        AttributeName::parse(full.as_bytes()).expect("a name")
    }

    #[test]
    fn what_is_stored_is_read_again() {
        let mut attributes = Attributes::default();
        for (full, length) in [("user.b", 3), ("user.a", 0), ("security.c", 20), ("user.long", 1000)] {
            attributes.set(name(full), (0..length).map(|at| at as u8).collect());
        }
        let mut area = [0xFF; 96];
        let block = store_attributes(&attributes, &mut area).expect("room").expect("a block");
        assert_eq!(references(5, &block[..]), Ok(1));
        assert_eq!(read_attributes(9, &area, Some((5, &block[..]))), Ok(attributes.clone()));
        attributes.remove(&name("user.long"));
        assert!(
            store_attributes(&attributes, &mut area).expect("room").is_none(),
            "the rest fits in the inode"
        );
        assert_eq!(read_attributes(9, &area, None), Ok(attributes.clone()));
        attributes.set(name("user.long"), vec![1; 4096]);
        let before = area;
        assert!(matches!(store_attributes(&attributes, &mut area), Err(FormatError::Full { .. })));
        assert_eq!(area, before, "what did not fit changed nothing");
    }

    #[test]
    fn every_flipped_bit_is_an_error_or_another_list() {
        let mut attributes = Attributes::default();
        attributes.set(name("user.abc"), vec![7; 20]);
        attributes.set(name("trusted.de"), vec![8; 9]);
        let mut area = [0; 96];
        store_attributes(&attributes, &mut area).expect("room");
        let block = store_attributes(&attributes, &mut []).expect("room").expect("a block");
        let mut errors = 0;
        for at in 0..96 * 8 {
            let mut bad = area;
            bad[at / 8] ^= 1 << (at % 8);
            errors += u32::from(read_attributes(9, &bad, None).is_err());
            let mut bad = block.clone();
            bad[at / 8] ^= 1 << (at % 8);
            errors += u32::from(read_attributes(9, &[], Some((5, &bad[..]))).is_err());
        }
        assert!(errors > 100, "most damage of the fields is noticed: {errors}");
    }
    #[test]
    fn hostile_lists_are_read_or_refused() {
        use rand::{RngExt, SeedableRng};
        let mut random = rand_pcg::Pcg64::seed_from_u64(1);
        let (mut read, mut refused) = (0, 0);
        for round in 0..20_000 {
            // Few different bytes, small ones mostly, so that many lists make some sense.
            let mut area = [0; 96];
            let mut block = [0; BLOCK_BYTES];
            let used = if round % 2 == 0 { BLOCK_HEADER + 200 } else { BLOCK_BYTES };
            for bytes in [&mut area[..], &mut block[..used]] {
                bytes.fill_with(|| [0, 0, 0, 1, 4, 7, 16, random.random()][random.random_range(0..8)]);
                bytes[..4].copy_from_slice(&MAGIC);
            }
            block[4..12].copy_from_slice(&[1, 0, 0, 0, 1, 0, 0, 0]);
            for block in [None, Some((7, &block[..]))] {
                // An error or not, it ends.
                let _ = check_hashes(9, &area, block);
                match read_attributes(9, if block.is_some() { &[][..] } else { &area }, block) {
                    Ok(attributes) => {
                        read += 1;
                        let mut area = [0; 96];
                        let block = store_attributes(&attributes, &mut area).expect("it fitted before");
                        let block = block.as_ref().map(|block| (7, &block[..]));
                        assert_eq!(read_attributes(9, &area, block), Ok(attributes));
                    }
                    Err(_) => refused += 1,
                }
            }
        }
        assert!(read > 100 && refused > 10_000, "{read} read, {refused} refused");
    }
}
