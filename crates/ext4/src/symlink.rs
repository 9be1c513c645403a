//! Symbolic links: a target of up to 59 bytes lies in the inode's block area, a longer one in a block of
//! its own, with a zero byte behind it.

use weir_format::{BLOCK_BYTES, FormatError, Place, Structure};

use crate::inode::{BLOCK_AREA_BYTES, Inode, inode_flags};

/// The longest target: one block, less the zero byte.
pub const TARGET_MAX: usize = BLOCK_BYTES - 1;

/// The target in the inode; `None` if it has a block.
///
/// # Errors
///
/// [`FormatError::Corrupt`] for a length that cannot be, and for a zero byte in the target.
pub fn short_target(inode: &Inode, number: u32) -> Result<Option<Vec<u8>>, FormatError> {
    let size = check_size(inode, number)?;
    if inode.has_flag(inode_flags::EXTENTS) {
        return Ok(None);
    }
    match inode.block_area.get(..size) {
        Some(target) if size < BLOCK_AREA_BYTES => checked(number, target).map(Some),
        _ => Err(corrupt(number, "a target longer than the inode's room for it")),
    }
}

/// Puts a target and its length into an inode; false, and nothing done, if it needs a block.
pub fn set_short_target(inode: &mut Inode, target: &[u8]) -> bool {
    if target.len() >= BLOCK_AREA_BYTES {
        return false;
    }
    inode.block_area.fill(0);
    inode.block_area[..target.len()].copy_from_slice(target);
    inode.set_flag(inode_flags::EXTENTS, false);
    inode.set_size(target.len() as u64);
    true
}

/// The target in the block of an inode.
///
/// # Errors
///
/// [`FormatError::Corrupt`] for a length that cannot be, and for a zero byte in the target.
pub fn long_target(inode: &Inode, number: u32, block: &[u8]) -> Result<Vec<u8>, FormatError> {
    let size = check_size(inode, number)?;
    match block.get(..size) {
        Some(target) => checked(number, target),
        None => Err(corrupt(number, "a target longer than a block")),
    }
}

/// Puts a target into its block; the inode gets its length.
///
/// # Errors
///
/// [`FormatError::Invalid`] for an empty target, or one longer than 4,095 bytes.
pub fn set_long_target(inode: &mut Inode, block: &mut [u8], target: &[u8]) -> Result<(), FormatError> {
    if target.is_empty() || target.len() > TARGET_MAX || block.len() != BLOCK_BYTES {
        return Err(FormatError::Invalid { what: "the target of a symbolic link has 1 to 4,095 bytes" });
    }
    block.fill(0);
    block[..target.len()].copy_from_slice(target);
    inode.set_size(target.len() as u64);
    Ok(())
}

fn check_size(inode: &Inode, number: u32) -> Result<usize, FormatError> {
    match usize::try_from(inode.size()) {
        Ok(size @ 1..=TARGET_MAX) => Ok(size),
        _ => Err(corrupt(number, "length of the target")),
    }
}

/// No path has a zero byte, and the kernel would end the target there.
fn checked(number: u32, target: &[u8]) -> Result<Vec<u8>, FormatError> {
    if target.contains(&0) {
        return Err(corrupt(number, "a zero byte in the target"));
    }
    Ok(target.to_vec())
}

fn corrupt(number: u32, what: &'static str) -> FormatError {
    FormatError::corrupt(Structure::SymlinkTarget, Place::Inode(number), what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_format::FileType;

    #[test]
    fn targets_are_stored_and_read() {
        let mut inode = Inode::new(FileType::Symlink, 0o777);
        for length in [1, 59] {
            assert!(set_short_target(&mut inode, &vec![b'x'; length]));
            assert_eq!(short_target(&inode, 12), Ok(Some(vec![b'x'; length])));
        }
        assert!(!set_short_target(&mut inode, &[b'x'; 60]));
        let mut block = [1; BLOCK_BYTES];
        inode.set_flag(inode_flags::EXTENTS, true);
        for length in [60, TARGET_MAX] {
            set_long_target(&mut inode, &mut block, &vec![b'y'; length]).expect("fits");
            assert_eq!(short_target(&inode, 12), Ok(None));
            assert_eq!(long_target(&inode, 12, &block), Ok(vec![b'y'; length]));
            assert_eq!(block[length], 0);
        }
        set_long_target(&mut inode, &mut block, &[b'y'; 4096]).expect_err("no room for the zero byte");
        for size in [0, 4096, 1 << 40] {
            inode.set_size(size);
            short_target(&inode, 12).expect_err("a length that cannot be");
            long_target(&inode, 12, &block).expect_err("a length that cannot be");
        }
        inode.set_flag(inode_flags::EXTENTS, false);
        inode.set_size(60);
        short_target(&inode, 12).expect_err("more than its room");
    }
}
