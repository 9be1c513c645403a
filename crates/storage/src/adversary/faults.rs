//! Faults: what a disk may do beyond the contract's power cuts. All are off unless asked for.

use weir_runtime::Random;

/// When a fault strikes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// Never.
    #[default]
    Never,
    /// Once, at the nth occasion (1 is the first).
    Nth(u64),
    /// At each occasion with so many chances in a million.
    PerMillion(u32),
}

/// The faults of an [`AdversaryDisk`](super::AdversaryDisk).
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Reads that fail.
    pub read_error: Fault,
    /// Writes, discards and shares that fail, leaving any mixture of old and new units (a prefix
    /// device: all or nothing).
    pub write_error: Fault,
    /// Flushes that fail, and may have lost what they covered.
    pub flush_error: Fault,
    /// Commands that take longer, by [`Faults::delay_ns`].
    pub delay: Fault,
    /// How much longer a delayed command takes, in nanoseconds.
    pub delay_ns: u64,
    /// Writes whose first block lands elsewhere, and which are acknowledged all the same.
    pub misdirected_write: Fault,
    /// Reads that return one inverted bit.
    pub flip_on_read: Fault,
    /// Commands after which one bit of the medium is inverted.
    pub flip_at_rest: Fault,
    /// Submissions that are answered `Busy` though slots are free. No slot is announced for them: the
    /// host has to try again by itself.
    pub busy: Fault,
    /// After this many accepted writes the disk is read-only.
    pub read_only_after: Option<u64>,
}

/// An occasion for a fault.
#[derive(Clone, Copy)]
pub(super) enum Occasion {
    Read,
    Write,
    Flush,
    Delay,
    Misdirect,
    FlipOnRead,
    FlipAtRest,
    Busy,
}

/// Counts the occasions.
pub(super) struct FaultClock {
    faults: Faults,
    seen: [u64; 8],
    writes: u64,
}

impl FaultClock {
    pub(super) fn new(faults: Faults) -> FaultClock {
        FaultClock { faults, seen: [0; 8], writes: 0 }
    }

    /// Whether the fault strikes at this occasion.
    pub(super) fn strikes(&mut self, occasion: Occasion, random: &mut Random) -> bool {
        let faults = &self.faults;
        let fault = match occasion {
            Occasion::Read => faults.read_error,
            Occasion::Write => faults.write_error,
            Occasion::Flush => faults.flush_error,
            Occasion::Delay => faults.delay,
            Occasion::Misdirect => faults.misdirected_write,
            Occasion::FlipOnRead => faults.flip_on_read,
            Occasion::FlipAtRest => faults.flip_at_rest,
            Occasion::Busy => faults.busy,
        };
        self.seen[occasion as usize] += 1;
        match fault {
            Fault::Never => false,
            Fault::Nth(nth) => self.seen[occasion as usize] == nth,
            Fault::PerMillion(chances) => random.below(1_000_000) < u64::from(chances),
        }
    }

    /// Counts a write; false once the disk is read-only.
    pub(super) fn may_write(&mut self) -> bool {
        let read_only = self.faults.read_only_after.is_some_and(|limit| self.writes >= limit);
        self.writes += u64::from(!read_only);
        !read_only
    }

    pub(super) fn delay_ns(&self) -> u64 {
        self.faults.delay_ns
    }
}
