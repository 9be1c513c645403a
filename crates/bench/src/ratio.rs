//! What is divided by what, and what that means.

use crate::mode::Mode;
use crate::statistics::Spread;
use crate::turn::Turn;

/// What a ratio depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// Weir alone: both sides go through it.
    Weir,
    /// This disk, this filesystem, this machine.
    ThisDisk,
}

/// A ratio of two modes, and what it means.
#[derive(Clone, Copy, Debug)]
pub struct Ratio {
    /// The name that scripts rely on.
    pub name: &'static str,
    /// What it is called.
    pub title: &'static str,
    /// What it means, in plain words.
    pub meaning: &'static str,
    /// What it depends on.
    pub about: About,
    pub(crate) over: Mode,
    pub(crate) under: Mode,
    pub(crate) of: Quantity,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quantity {
    Writes,
    Bytes,
}

impl Ratio {
    /// Both sides are measured in every round: pair them.
    pub(crate) fn spread(&self, turns: &[Turn]) -> Option<Spread> {
        let rate = if self.of == Quantity::Bytes { Turn::bytes_per_second } else { Turn::iops };
        let rates = |mode: Mode| Turn::of(mode, turns).map(rate).collect::<Vec<f64>>();
        Spread::of_ratios(&rates(self.over), &rates(self.under))
    }
}
