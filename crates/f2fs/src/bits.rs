//! Bitmaps in both orders that the format uses: the highest bit of a byte first for tables, the lowest first for directories.

/// Whether bit `at` is set, the highest bit of a byte first. A bit beyond the end is not.
pub(crate) fn has_high_first(bits: &[u8], at: usize) -> bool {
    bits.get(at / 8).is_some_and(|byte| byte & 0x80 >> (at % 8) != 0)
}

/// Sets or clears bit `at`, the highest bit of a byte first. A bit beyond the end stays what it is.
pub(crate) fn set_high_first(bits: &mut [u8], at: usize, value: bool) {
    if let Some(byte) = bits.get_mut(at / 8) {
        let bit = 0x80 >> (at % 8);
        *byte = if value { *byte | bit } else { *byte & !bit };
    }
}

/// Whether bit `at` is set, the lowest bit of a byte first. A bit beyond the end is not.
pub(crate) fn has_low_first(bits: &[u8], at: usize) -> bool {
    bits.get(at / 8).is_some_and(|byte| byte & 1 << (at % 8) != 0)
}

/// Sets or clears bit `at`, the lowest bit of a byte first. A bit beyond the end stays what it is.
pub(crate) fn set_low_first(bits: &mut [u8], at: usize, value: bool) {
    if let Some(byte) = bits.get_mut(at / 8) {
        let bit = 1 << (at % 8);
        *byte = if value { *byte | bit } else { *byte & !bit };
    }
}
