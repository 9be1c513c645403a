//! The hash of a name, by which a directory finds it.

use weir_format::name_hash::{START, absorb, tea, unsigned};

/// The hash of a name: 0 for "." and "..", and else 16 rounds of TEA over all of it, without a seed.
pub fn hash_name(name: &[u8]) -> u32 {
    match name {
        b"." | b".." => 0,
        name => absorb::<4>(name, unsigned, START, tea)[0],
    }
}
