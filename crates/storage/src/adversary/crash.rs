//! Crash states: everything that may be left on the medium if the power is cut now.
//!
//! The states come in *layers*, oldest first: on a legacy device there is one, on a barrier device one
//! for each epoch, on a prefix device one for each request. A state is a layer k and what is kept of it:
//! all layers before k are applied and none after it (S3), and each *choice* of layer k is made
//! independently of the others (S4). A choice is either one tear unit with its versions, or one atomic
//! piece that is kept or lost as a whole.

use weir_runtime::Random;

use super::image::{Image, Unit};
use super::kept::Kept;
use crate::address::{BLOCK_BYTES, Lba};

/// One thing that a power cut decides.
#[derive(Clone)]
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

    /// The units that it decides about.
    fn units(&self) -> Vec<u32> {
        match self {
            Choice::Unit { number, .. } => vec![*number],
            Choice::Piece(units) => units.iter().map(|(number, _)| *number).collect(),
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
        self.image(&self.draw(random))
    }

    /// The name of one state, drawn as [`sample`](Self::sample) does.
    pub fn draw(&self, random: &mut Random) -> Kept {
        let layers = self.layers.len() as u64;
        if layers == 0 {
            return Kept { layer: 0, versions: Vec::new() };
        }
        let depth = if random.below(2) == 0 { layers - 1 } else { random.below(layers) } as usize;
        let layer = &self.layers[depth];
        Kept { layer: depth, versions: Bias::draw(random, layer.len()).digits(layer, random) }
    }

    /// The names of all states, in the order of [`all`](Self::all).
    pub fn names(&self) -> impl Iterator<Item = Kept> + '_ {
        let mut next = Some(Kept { layer: 0, versions: self.zeros(0) });
        std::iter::from_fn(move || {
            let kept = next.take()?;
            next = self.layers.get(kept.layer).map(|layer| {
                let mut versions = kept.versions.clone();
                if count_up(layer, &mut versions) {
                    return Kept { versions, ..kept };
                }
                Kept { layer: kept.layer + 1, versions: self.zeros(kept.layer + 1) }
            });
            Some(kept)
        })
    }

    /// Whether a state has this name: there are such a layer, and such a version of each of its choices.
    #[must_use]
    pub fn has(&self, kept: &Kept) -> bool {
        kept.layer <= self.layers.len()
            && kept.versions.len() == self.zeros(kept.layer).len()
            && kept.versions == self.clamped(kept)
    }

    /// The content of a state. What the name says of layers and choices that are not there is ignored.
    #[must_use]
    pub fn image(&self, kept: &Kept) -> Image {
        let depth = kept.layer.min(self.layers.len());
        let applied =
            self.layers[..depth].iter().fold(self.base.clone(), |image, layer| keep_all(layer, &image));
        self.layers.get(depth).map_or(applied.clone(), |layer| decide(layer, &self.clamped(kept), &applied))
    }

    /// The blocks of which a state has lost something, each named once: writes of its layer that are not there in their
    /// newest version, and those of all layers behind.
    #[must_use]
    pub fn lost(&self, kept: &Kept) -> Vec<Lba> {
        let depth = kept.layer.min(self.layers.len());
        let versions = self.clamped(kept);
        let of_layer = self.layers.get(depth).into_iter().flatten().zip(&versions);
        let older =
            of_layer.filter(|(choice, version)| **version < choice.newest()).map(|(choice, _)| choice);
        let later = self.layers.iter().skip(depth + 1).flatten();
        let units = older.chain(later).flat_map(Choice::units);
        let per_block = (BLOCK_BYTES / self.base.unit_bytes()) as u64;
        let mut blocks: Vec<Lba> = units.map(|unit| Lba(u64::from(unit) / per_block)).collect();
        blocks.sort_unstable();
        blocks.dedup();
        blocks
    }

    /// The states that lose less than `kept`, the most promising first: those that lose nothing but one write, of the last
    /// layer first; those that lose whole layers, from the last; and `kept` with one write less lost.
    pub fn smaller<'a>(&'a self, kept: &'a Kept) -> impl Iterator<Item = Kept> + 'a {
        let losing_one = (kept.layer..self.layers.len()).rev().flat_map(|depth| {
            let newest: Vec<usize> = self.layers[depth].iter().map(Choice::newest).collect();
            (0..newest.len()).map(move |place| {
                let mut versions = newest.clone();
                versions[place] = 0;
                Kept { layer: depth, versions }
            })
        });
        let losing_layers = (kept.layer + 1..self.layers.len())
            .rev()
            .map(|layer| Kept { layer, versions: self.zeros(layer) });
        let less = self.clamped(kept);
        let layer = self.layers.get(kept.layer).map_or(&[][..], Vec::as_slice);
        let losing_less = layer.iter().enumerate().filter_map(move |(place, choice)| {
            let mut versions = less.clone();
            let lost = std::mem::replace(&mut versions[place], choice.newest()) < choice.newest();
            lost.then_some(Kept { layer: kept.layer, versions })
        });
        let most = self.lost(kept).len();
        let all = losing_one.chain(losing_layers).chain(losing_less);
        all.filter(move |state| self.lost(state).len() < most)
    }

    fn zeros(&self, layer: usize) -> Vec<usize> {
        vec![0; self.layers.get(layer).map_or(0, Vec::len)]
    }

    /// A version for each choice of the layer that `kept` names, and no other.
    fn clamped(&self, kept: &Kept) -> Vec<usize> {
        let layer = self.layers.get(kept.layer).into_iter().flatten();
        let version = |place: usize| kept.versions.get(place).copied().unwrap_or(0);
        layer.enumerate().map(|(place, choice)| version(place).min(choice.newest())).collect()
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
            states.all().map(|image| (image.read(Lba(0))[0], image.read(Lba(1))[0])).collect();
        assert_eq!(found, [(0, 0), (1, 0), (2, 0), (0, 3), (1, 3), (2, 3), (4, 5)]);
        assert_eq!(states.count(), 7);
    }

    #[test]
    fn nothing_pending_is_one_state() {
        let states = CrashStates::new(Image::zeroed(1, 512), Vec::new());
        assert_eq!((states.count(), states.all().count(), states.names().count()), (1, 1, 1));
    }

    #[test]
    fn a_name_stands_for_its_state() {
        let states = states();
        let named: Vec<u64> = states.names().map(|kept| states.image(&kept).hash()).collect();
        assert_eq!(named, states.all().map(|image| image.hash()).collect::<Vec<_>>());
        let (nothing, beyond) =
            (Kept { layer: 7, versions: vec![9] }, Kept { layer: 0, versions: vec![9, 9, 9] });
        assert!(states.names().all(|kept| states.has(&kept)));
        for absent in ["7:9", "3:", "0:9.0", "0:1", "0:1.1.0", "1:", "2:0"] {
            assert!(!states.has(&absent.parse().expect("a name")), "{absent}");
        }
        assert_eq!(states.image(&nothing).hash(), named[6]);
        assert_eq!(states.image(&beyond).hash(), named[5]);
    }

    #[test]
    fn what_is_smaller_loses_fewer_blocks() {
        let states = states();
        let lost = |text: &str| states.lost(&text.parse().expect("a name")).len();
        assert_eq!((lost("0:0.0"), lost("0:1.1"), lost("1:0"), lost("2:")), (2, 2, 2, 0));
        let one = CrashStates::new(states.base.clone(), states.layers[..1].to_vec());
        let smaller = |text: &str| -> Vec<String> {
            one.smaller(&text.parse().expect("a name")).map(|kept| kept.to_string()).collect()
        };
        assert_eq!(smaller("0:1.0"), ["0:0.1", "0:2.0", "0:2.0", "0:1.1"]);
        assert_eq!(smaller("0:2.0"), ["0:2.1"]);
        assert_eq!(smaller("0:2.1"), Vec::<String>::new());
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
