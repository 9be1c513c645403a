//! Crash states: everything that may be left on the medium if the power is cut now.
//!
//! The states come in *layers*, oldest first: on a legacy device there is one, on a barrier device one
//! for each epoch, on a prefix device one for each request. A state is a layer k and what is kept of it:
//! all layers before k are applied and none after it (S3), and each *choice* of layer k is made
//! independently of the others (S4). A choice is either one tear unit with its versions, or one atomic
//! piece that is kept or lost as a whole.

use weir_runtime::Random;

use super::image::{Image, Unit};

/// One thing that a power cut decides.
pub(super) enum Choice {
    /// One tear unit: its old content (digit 0), or one of these versions, oldest first.
    Unit { number: u32, versions: Vec<Unit> },
    /// Several units, all or none. Pieces are in the order in which the device had them.
    Piece(Vec<(u32, Unit)>),
}

impl Choice {
    /// The highest digit: everything kept, the newest version.
    fn newest(&self) -> usize {
        match self {
            Choice::Unit { versions, .. } => versions.len(),
            Choice::Piece(_) => 1,
        }
    }

    fn apply(&self, digit: usize, image: &mut Image) {
        match self {
            Choice::Unit { number, versions } if digit > 0 => image.set(*number, versions[digit - 1].clone()),
            Choice::Piece(units) if digit > 0 => {
                for (number, unit) in units {
                    image.set(*number, unit.clone());
                }
            }
            _ => {}
        }
    }
}

/// The states that a power cut may leave.
pub struct CrashStates {
    base: Image,
    layers: Vec<Vec<Choice>>,
}

impl CrashStates {
    /// `layers` oldest first; empty ones say nothing and are left out.
    pub(super) fn new(base: Image, mut layers: Vec<Vec<Choice>>) -> CrashStates {
        layers.retain(|layer| !layer.is_empty());
        CrashStates { base, layers }
    }

    /// How many states there are, equal content counted as often as it can come about; saturates.
    /// "All of a layer" and "nothing of the next" are one state.
    #[must_use]
    pub fn count(&self) -> u128 {
        let states = |layer: &Vec<Choice>| {
            layer.iter().fold(1u128, |product, choice| product.saturating_mul(choice.newest() as u128 + 1))
        };
        self.layers.iter().fold(1, |sum: u128, layer| sum.saturating_add(states(layer) - 1))
    }

    /// Every state, in an order that depends on nothing but the states. Meant for counts up to some
    /// ten thousand; it ends, but perhaps not in your lifetime.
    pub fn all(&self) -> impl Iterator<Item = Image> + '_ {
        let mut applied = self.base.clone();
        let mut depth = 0;
        let mut digits = self.layers.first().map(|layer| vec![0; layer.len()]);
        std::iter::from_fn(move || {
            let current = digits.as_mut()?;
            let Some(layer) = self.layers.get(depth) else {
                digits = None;
                return Some(applied.clone());
            };
            let image = decide(layer, current, &applied);
            if !count_up(layer, current) {
                applied = keep_all(layer, &applied);
                depth += 1;
                *current = self.layers.get(depth).map_or(Vec::new(), |next| vec![0; next.len()]);
            }
            Some(image)
        })
        .chain(self.layers.is_empty().then(|| self.base.clone()))
    }

    /// One state, drawn with a bias that differs wildly from call to call: fair coins alone would
    /// almost never lose exactly one unit, or keep exactly one.
    pub fn sample(&self, random: &mut Random) -> Image {
        let layers = self.layers.len() as u64;
        if layers == 0 {
            return self.base.clone();
        }
        let depth = if random.below(2) == 0 { layers - 1 } else { random.below(layers) } as usize;
        let applied =
            self.layers[..depth].iter().fold(self.base.clone(), |image, layer| keep_all(layer, &image));
        let layer = &self.layers[depth];
        let digits = Bias::draw(random, layer.len()).digits(layer, random);
        decide(layer, &digits, &applied)
    }
}

fn decide(layer: &[Choice], digits: &[usize], applied: &Image) -> Image {
    let mut image = applied.clone();
    for (choice, &digit) in layer.iter().zip(digits) {
        choice.apply(digit, &mut image);
    }
    image
}

fn keep_all(layer: &[Choice], applied: &Image) -> Image {
    let mut image = applied.clone();
    for choice in layer {
        choice.apply(choice.newest(), &mut image);
    }
    image
}

/// Moves on to the next combination; false when that would be "everything kept", which belongs to the
/// layer behind.
fn count_up(layer: &[Choice], digits: &mut [usize]) -> bool {
    for (choice, digit) in layer.iter().zip(digits.iter_mut()) {
        if *digit < choice.newest() {
            *digit += 1;
            break;
        }
        *digit = 0;
    }
    layer.iter().zip(digits).any(|(choice, digit)| *digit < choice.newest())
}

/// How a sample decides.
enum Bias {
    NothingKept,
    EverythingKept,
    OneLost(usize),
    OneKept(usize),
    /// Each newest version is kept with this many chances in a thousand, otherwise any version.
    Coins(u64),
    OldPreferred,
    /// Choices before the place are kept (true) or lost, the rest the other way round.
    Split(usize, bool),
}

impl Bias {
    fn draw(random: &mut Random, choices: usize) -> Bias {
        let place = random.below(choices as u64) as usize;
        match random.below(12) {
            0 => Bias::NothingKept,
            1 => Bias::EverythingKept,
            2 | 3 => Bias::OneLost(place),
            4 | 5 => Bias::OneKept(place),
            6 | 7 => Bias::Coins(random.below(1001)),
            8 => Bias::OldPreferred,
            9 => Bias::Split(place, true),
            _ => Bias::Split(place, false),
        }
    }

    fn digits(&self, layer: &[Choice], random: &mut Random) -> Vec<usize> {
        layer.iter().enumerate().map(|(i, choice)| self.digit(i, choice.newest(), random)).collect()
    }

    fn digit(&self, i: usize, newest: usize, random: &mut Random) -> usize {
        let mut any = |below: usize| random.below(below as u64) as usize;
        match *self {
            Bias::NothingKept => 0,
            Bias::EverythingKept => newest,
            Bias::OneLost(place) if i == place => any(newest),
            Bias::OneLost(_) => newest,
            Bias::OneKept(place) if i == place => 1 + any(newest),
            Bias::OneKept(_) => 0,
            Bias::Coins(chances) if (any(1000) as u64) < chances => newest,
            Bias::Coins(_) => any(newest + 1),
            Bias::OldPreferred => any(newest + 1).min(any(newest + 1)),
            Bias::Split(place, kept_before) => {
                if (i < place) == kept_before {
                    newest
                } else {
                    0
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use weir_runtime::{Runtime, Simulation};

    use super::super::image::split;
    use super::*;

    fn unit(fill: u8) -> Unit {
        split(&[fill; 4096], 4096).next().flatten()
    }

    /// Two epochs: two versions of unit 0 beside one of unit 1, then an atomic piece over both.
    fn states() -> CrashStates {
        let first = vec![
            Choice::Unit { number: 0, versions: vec![unit(1), unit(2)] },
            Choice::Unit { number: 1, versions: vec![unit(3)] },
        ];
        let second = vec![Choice::Piece(vec![(0, unit(4)), (1, unit(5))])];
        CrashStates::new(Image::zeroed(4, 4096), vec![first, Vec::new(), second])
    }

    #[test]
    fn all_states_are_enumerated_once() {
        let states = states();
        let found: Vec<(u8, u8)> =
            states.all().map(|image| (image.read(crate::Lba(0))[0], image.read(crate::Lba(1))[0])).collect();
        assert_eq!(found, [(0, 0), (1, 0), (2, 0), (0, 3), (1, 3), (2, 3), (4, 5)]);
        assert_eq!(states.count(), 7);
    }

    #[test]
    fn nothing_pending_is_one_state() {
        let states = CrashStates::new(Image::zeroed(1, 512), Vec::new());
        assert_eq!((states.count(), states.all().count()), (1, 1));
    }

    #[test]
    fn samples_reach_every_state_and_no_other() {
        let states = states();
        let legal: BTreeSet<u64> = states.all().map(|image| image.hash()).collect();
        let mut random = Runtime::simulated(Simulation::default()).handle().random("samples");
        let seen: BTreeSet<u64> = (0..500).map(|_| states.sample(&mut random).hash()).collect();
        assert_eq!(seen, legal);
    }
}
