//! Bitmaps: of tables and checkpoints, whose first bit is the highest of the first byte, and of names, where it is the lowest.

/// Bit `index` of a bitmap, whose first bit is the highest of the first byte. `false` beyond its end.
pub(crate) fn get_bit(bitmap: &[u8], index: u32) -> bool {
    bitmap.get(index as usize / 8).is_some_and(|byte| byte & (0x80 >> (index % 8)) != 0)
}

/// Changes bit `index` of a bitmap; nothing beyond its end.
pub(crate) fn set_bit(bitmap: &mut [u8], index: u32, on: bool) {
    if let Some(byte) = bitmap.get_mut(index as usize / 8) {
        let bit = 0x80 >> (index % 8);
        *byte = if on { *byte | bit } else { *byte & !bit };
    }
}

/// Bit `index` of a bitmap, whose first bit is the lowest of the first byte. `false` beyond its end.
pub(crate) fn get_low_bit(bitmap: &[u8], index: usize) -> bool {
    bitmap.get(index / 8).is_some_and(|byte| byte & 1 << (index % 8) != 0)
}

/// Changes bit `index` of a bitmap, whose first bit is the lowest of the first byte; nothing beyond its end.
pub(crate) fn set_low_bit(bitmap: &mut [u8], index: usize, on: bool) {
    if let Some(byte) = bitmap.get_mut(index / 8) {
        let bit = 1 << (index % 8);
        *byte = if on { *byte | bit } else { *byte & !bit };
    }
}
