//! Sizes as people write them: `64M`, `4G`, `1.5T`; powers of 1,024.

use std::fmt;

use weir_storage::BLOCK_BYTES;

/// Units by letter, smallest first.
const UNITS: [(char, u32); 5] = [('K', 10), ('M', 20), ('G', 30), ('T', 40), ('P', 50)];

/// A size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Size(pub(crate) u64);

/// Why a text is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write a size such as 64M, 4G or 1T (powers of 1,024)")]
pub(crate) struct NotASize;

impl Size {
    /// That of so many blocks.
    pub(crate) fn of_blocks(blocks: u64) -> Size {
        Size(blocks.saturating_mul(BLOCK_BYTES as u64))
    }
}

impl std::str::FromStr for Size {
    type Err = NotASize;

    fn from_str(text: &str) -> Result<Size, NotASize> {
        let text = text.trim().to_ascii_uppercase();
        let text = text.strip_suffix("IB").or(text.strip_suffix('B')).unwrap_or(&text);
        let unit = UNITS.iter().find(|(letter, _)| text.ends_with(*letter));
        let (digits, shift) =
            unit.map_or((text, 0), |&(letter, shift)| (text.trim_end_matches(letter), shift));
        if let Ok(count) = digits.parse::<u64>() {
            return count.checked_mul(1 << shift).map(Size).ok_or(NotASize);
        }
        let count: f64 = digits.parse().map_err(|_| NotASize)?;
        let bytes = count * (1_u64 << shift) as f64;
        let usable = bytes.is_finite() && bytes >= 0.0 && bytes < u64::MAX as f64 && shift > 0;
        usable.then_some(Size(bytes as u64)).ok_or(NotASize)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match UNITS.iter().rev().find(|(_, shift)| self.0 >= 1 << shift) {
            Some((letter, shift)) if self.0.is_multiple_of(1 << shift) => {
                write!(f, "{} {letter}iB", self.0 >> shift)
            }
            Some((letter, shift)) => write!(f, "{:.2} {letter}iB", self.0 as f64 / (1_u64 << shift) as f64),
            None => write!(f, "{} B", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        for (text, bytes) in [
            ("4096", 4096),
            ("64M", 64 << 20),
            ("4g", 4 << 30),
            ("1T", 1 << 40),
            ("2KiB", 2048),
            ("3MB", 3 << 20),
            ("1.5G", 3 << 29),
            ("0", 0),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in
            ["", "M", "-1", "1.5", "4X", "1e999G", "nanG", "99999999999999999999", "99999999P", "1 2M"]
        {
            assert_eq!(text.parse::<Size>(), Err(NotASize), "{text}");
        }
    }

    #[test]
    fn sizes_are_written() {
        for (bytes, text) in
            [(0, "0 B"), (512, "512 B"), (64 << 20, "64 MiB"), (3 << 29, "1.50 GiB"), (1 << 40, "1 TiB")]
        {
            assert_eq!(Size(bytes).to_string(), text);
        }
    }
}
