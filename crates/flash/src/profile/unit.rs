//! Numbers with units, as profiles write them: `"3.8 ms"`, `"512 MiB"`, `"550 MB/s"`.

/// A unit, and how many of the base unit it is.
type Unit = (&'static str, f64);

const TIMES: [Unit; 4] = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
const SIZES: [Unit; 8] = [
    ("B", 1.0),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("TiB", 1_099_511_627_776.0),
    ("MB", 1e6),
    ("GB", 1e9),
    ("TB", 1e12),
];
const RATES: [Unit; 2] = [("MB/s", 1e6), ("GB/s", 1e9)];

/// What a number measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quantity {
    Time,
    Size,
    Rate,
}

impl Quantity {
    fn units(self) -> &'static [Unit] {
        match self {
            Quantity::Time => &TIMES,
            Quantity::Size => &SIZES,
            Quantity::Rate => &RATES,
        }
    }

    /// The units that it may have, for messages.
    pub(super) fn names(self) -> String {
        let names: Vec<&str> = self.units().iter().map(|(name, _)| *name).collect();
        names.join(", ")
    }

    /// A number of base units as a profile may write it, in the largest unit that leaves no fraction.
    pub(super) fn text(self, base: u64) -> String {
        let whole = |(_, factor): &&Unit| base > 0 && base.is_multiple_of(*factor as u64);
        let largest = self.units().iter().filter(whole).max_by(|one, other| one.1.total_cmp(&other.1));
        let (name, factor) = largest.unwrap_or(&self.units()[0]);
        format!("{} {name}", base as f64 / factor)
    }

    /// Reads a number with its unit, in base units: nanoseconds, bytes, bytes a second. None if it is neither,
    /// negative, or 2^53 and more.
    pub(super) fn read(self, text: &str) -> Option<u64> {
        let split = text.find(|c: char| c.is_ascii_alphabetic())?;
        let number: f64 = text[..split].trim().parse().ok()?;
        let (_, factor) = self.units().iter().find(|(name, _)| *name == text[split..].trim())?;
        let base = (number * factor).round();
        (base.is_finite() && (0.0..9_007_199_254_740_992.0).contains(&base)).then_some(base as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_need_a_unit_of_their_kind() {
        assert_eq!(Quantity::Time.read("3.8 ms"), Some(3_800_000));
        assert_eq!(Quantity::Size.read("4KiB"), Some(4096));
        assert_eq!(Quantity::Rate.read("550 MB/s"), Some(550_000_000));
        for wrong in ["", "3", "ms", "3 KiB", "-1 ms", "nan ms", "inf s", "1e300 s", "3 m s", "µs"] {
            assert_eq!(Quantity::Time.read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn numbers_are_written_as_they_are_read() {
        let written =
            [Quantity::Time.text(1_000_000_000), Quantity::Size.text(4096), Quantity::Rate.text(100_000)];
        assert_eq!(written, ["1 s", "4 KiB", "0.1 MB/s"]);
        assert_eq!([Quantity::Time.text(0), Quantity::Time.text(14_500)], ["0 ns", "14500 ns"]);
    }
}
