//! Sizes as people write them: `64M`, `4G`, `1.5T`; powers of 1,024. The crates `parse-size` and `bytesize` are not used: they read
//! `1 2M` as 12M, and `4G` as 4e9.

use std::fmt;

use weir_storage::BLOCK_BYTES;

/// Units by letter, smallest first.
const UNITS: [(char, u32); 5] = [('K', 10), ('M', 20), ('G', 30), ('T', 40), ('P', 50)];

/// Digits of a fraction at most: more would say nothing of a size in bytes.
const FRACTION_DIGITS_MAX: usize = 18;

/// A size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Size(pub(crate) u64);

/// Why a text is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "write a size such as 64M, 1.5G or 4TiB (powers of 1,024: K, M, G, T or P, alone or with i, B or iB)"
)]
pub(crate) struct NotASize;

impl Size {
    /// That of so many blocks.
    pub(crate) fn of_blocks(blocks: u64) -> Size {
        Size(blocks.saturating_mul(BLOCK_BYTES as u64))
    }

    /// Whole blocks in it.
    pub(crate) fn blocks(self) -> u64 {
        self.0 / BLOCK_BYTES as u64
    }
}

impl std::str::FromStr for Size {
    type Err = NotASize;

    /// Reads `NUMBER[UNIT]`. NUMBER is decimal digits, with a fraction where a unit follows: `1.5G`. UNIT is `B`, or one of
    /// the letters K, M, G, T and P, alone or followed by `i`, `B` or `iB`, in either case. A fraction of a byte is cut off.
    fn from_str(text: &str) -> Result<Size, NotASize> {
        let text = text.trim();
        let number = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let shift = unit_shift(&text[number.len()..]).ok_or(NotASize)?;
        let (whole, fraction) = match number.split_once('.') {
            Some((whole, fraction)) if shift > 0 => (digits(whole)?, Some(fraction)),
            Some(_) => return Err(NotASize),
            None => (digits(number)?, None),
        };
        let scaled = |count: u128| count << shift;
        let fraction = match fraction {
            Some(text) if text.len() <= FRACTION_DIGITS_MAX => {
                scaled(digits(text)?) / 10_u128.pow(text.len() as u32)
            }
            Some(_) => return Err(NotASize),
            None => 0,
        };
        u64::try_from(scaled(whole) + fraction).map(Size).map_err(|_| NotASize)
    }
}

/// The power of two that a unit stands for; none for what is no unit.
fn unit_shift(unit: &str) -> Option<u32> {
    let unit = unit.to_ascii_uppercase();
    if matches!(unit.as_str(), "" | "B") {
        return Some(0);
    }
    let is_named = |&&(letter, _): &&(char, u32)| {
        unit.strip_prefix(letter).is_some_and(|rest| matches!(rest, "" | "I" | "B" | "IB"))
    };
    UNITS.iter().find(is_named).map(|(_, shift)| *shift)
}

/// Decimal digits alone: no sign, no space, no exponent.
fn digits(text: &str) -> Result<u128, NotASize> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(NotASize);
    }
    text.parse::<u64>().map(u128::from).map_err(|_| NotASize)
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
            ("64Mi", 64 << 20),
            ("64mib", 64 << 20),
            ("64 ", 64),
            ("512B", 512),
            ("1.5G", 3 << 29),
            ("0.0001K", 0),
            ("2.999999999999999999P", (3 << 50) - 1),
            ("16383P", 16383 << 50),
            ("18446744073709551615", u64::MAX),
            ("0", 0),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in [
            "",
            "M",
            "-1",
            "+1",
            "1.5",
            "1.5B",
            ".5G",
            "5.G",
            "1.2.3G",
            "4X",
            "4GG",
            "64MM",
            "4Gii",
            "4iB",
            "4BG",
            "1e999G",
            "1e3G",
            "nanG",
            "infG",
            "0x10",
            "1_000",
            "1,000",
            "99999999999999999999",
            "99999999P",
            "16384P",
            "1 2M",
            "1 M",
            "1.0000000000000000000M",
            "\u{664}G",
            "4\u{212A}",
        ] {
            assert_eq!(text.parse::<Size>(), Err(NotASize), "{text}");
        }
    }

    /// By an oracle that builds the text from its parts: every spelling of a unit reads as the same size.
    #[test]
    fn every_spelling_of_a_size_is_the_same_size() {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        for round in 0..20_000_u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(round);
            let count = state >> (11 + state % 53);
            for (letter, shift) in UNITS {
                let expected = u64::try_from(u128::from(count) << shift).map(Size).map_err(|_| NotASize);
                for suffix in ["", "i", "I", "b", "B", "iB", "IB", "ib"] {
                    for letter in [letter, letter.to_ascii_lowercase()] {
                        assert_eq!(
                            format!("{count}{letter}{suffix}").parse(),
                            expected,
                            "{count}{letter}{suffix}"
                        );
                    }
                }
            }
        }
    }

    /// Texts of these characters are a size if, and only if, the grammar says so.
    #[test]
    fn short_texts_are_sizes_by_the_grammar_alone() {
        const LETTERS: [char; 9] = ['0', '7', '.', 'K', 'g', 'i', 'B', ' ', '-'];
        let is_size = |text: &str| {
            let text = text.trim_matches(' ');
            let number = text.find(|letter: char| !"07.".contains(letter)).unwrap_or(text.len());
            let (number, unit) = text.split_at(number);
            let parts: Vec<&str> = number.split('.').collect();
            let unit = unit.to_lowercase();
            let scaled = matches!(unit.as_str(), "k" | "g" | "ki" | "gi" | "kb" | "gb" | "kib" | "gib");
            let plain = unit.is_empty() || unit == "b";
            parts.iter().all(|part| !part.is_empty())
                && (parts.len() == 1 && plain || parts.len() <= 2 && scaled)
        };
        let mut texts = vec![String::new()];
        for _ in 0..5 {
            let longer = texts.iter().flat_map(|text| LETTERS.map(|letter| format!("{text}{letter}")));
            texts = longer.collect();
            for text in &texts {
                assert_eq!(text.parse::<Size>().is_ok(), is_size(text), "{text:?}");
            }
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
