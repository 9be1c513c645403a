//! *Candidates*: which of the states that a cut may leave are looked at: all when they are few, and otherwise those that
//! experience prefers, then random ones.

use std::collections::BTreeMap;

use weir_runtime::Random;
use weir_vfs::InodeNumber;

use crate::state::StateName;
use crate::unit::{Unit, UnitKind, UnitNumber, union_of_sectors};
use crate::units::{MomentKind, Units};

/// All states of a moment are looked at if there are so many at most, tears apart.
const ALL_MAX: usize = 64;
/// Of each kind of candidates that a moment has many of, so many, which are drawn.
const OF_KIND_MAX: usize = 256;

/// A way to choose what is missing.
#[derive(Clone, Debug)]
enum Recipe {
    /// These, by their places among the pending ones, and what needs them.
    Without(Vec<usize>),
    /// All but these, and what they need.
    Only(Vec<usize>),
    /// All from this one on.
    Until(usize),
    /// A block is torn.
    Torn(Tear),
}

/// A block that is torn: these sectors are there of these units, which write to it one after the other. All others are there,
/// or only those that they need.
#[derive(Clone, Debug)]
struct Tear {
    units: Vec<usize>,
    sectors: u8,
    alone: bool,
}

/// The candidates of a moment, the preferred ones first, without an end where the states are many.
pub struct Candidates<'a> {
    units: &'a Units,
    moment: usize,
    pending: &'a [UnitNumber],
    recipes: std::vec::IntoIter<Recipe>,
    /// There are more than the recipes.
    has_more: bool,
    random: Random,
}

impl<'a> Candidates<'a> {
    /// Those of a moment at which these units are pending.
    #[must_use]
    pub fn new(
        units: &'a Units,
        moment: usize,
        pending: &'a [UnitNumber],
        mut random: Random,
    ) -> Candidates<'a> {
        let window = Window { units, pending };
        let (recipes, has_more) = match window.all_states() {
            _ if units.moments[moment].kind == MomentKind::Acknowledgement => {
                (vec![Recipe::Without(Vec::new())], false)
            }
            Some(all) => {
                let mut recipes: Vec<Recipe> = all.into_iter().map(Recipe::Without).collect();
                recipes.extend(window.tears(&mut random));
                (recipes, false)
            }
            None => (window.preferred(&mut random), true),
        };
        Candidates { units, moment, pending, recipes: recipes.into_iter(), has_more, random }
    }

    fn name(&self, recipe: Recipe) -> StateName {
        let window = Window { units: self.units, pending: self.pending };
        let mut torn = Vec::new();
        let is_missing = match recipe {
            Recipe::Without(places) => window.without(&places),
            Recipe::Only(places) => window.only(&places),
            Recipe::Until(end) => (0..self.pending.len()).map(|place| place >= end).collect(),
            Recipe::Torn(Tear { units, sectors, alone }) => {
                torn.extend(units.last().map(|last| (self.pending[*last], sectors)));
                let mut is_missing = if alone { window.only(&units) } else { window.without(&units) };
                units.iter().for_each(|unit| is_missing[*unit] = true);
                is_missing
            }
        };
        let missing = self.pending.iter().zip(&is_missing).filter(|(_, missing)| **missing);
        StateName { moment: self.moment, missing: missing.map(|(unit, _)| *unit).collect(), torn }
    }

    /// A random one: calls or units with some probability, and sometimes one that is torn.
    fn draw(&mut self) -> Recipe {
        let window = Window { units: self.units, pending: self.pending };
        let percent = [10, 30, 50, 70, 90][self.random.below(5) as usize];
        if self.random.below(5) == 0 && self.units.has_tears {
            let data: Vec<usize> = window.data().collect();
            if !data.is_empty() {
                let last = data[self.random.below(data.len() as u64) as usize];
                let block = window.unit(last).block();
                let of_block = data.into_iter().filter(|at| *at <= last && window.unit(*at).block() == block);
                let mut units: Vec<usize> = of_block.collect();
                units.drain(..self.random.below(units.len() as u64) as usize);
                let sectors = window.sectors(&units) & self.random.below(256) as u8;
                return Recipe::Torn(Tear { units, sectors, alone: self.random.below(2) == 0 });
            }
        }
        let by_call = self.random.below(2) == 0;
        let mut last = (usize::MAX, false);
        let mut places = Vec::new();
        for at in 0..self.pending.len() {
            let call = window.unit(at).operation;
            if !by_call || last.0 != call {
                last = (call, self.random.below(100) < percent);
            }
            if last.1 {
                places.push(at);
            }
        }
        match self.random.below(2) {
            0 => Recipe::Without(places),
            _ => Recipe::Only(places),
        }
    }
}

impl Iterator for Candidates<'_> {
    type Item = StateName;

    fn next(&mut self) -> Option<StateName> {
        let recipe = match self.recipes.next() {
            Some(recipe) => recipe,
            None if self.has_more => self.draw(),
            None => return None,
        };
        Some(self.name(recipe))
    }
}

/// What is pending at a moment.
struct Window<'a> {
    units: &'a Units,
    pending: &'a [UnitNumber],
}

impl Window<'_> {
    fn unit(&self, place: usize) -> &Unit {
        &self.units.all[self.pending[place]]
    }

    /// The places of what a unit needs.
    fn needs(&self, place: usize) -> impl Iterator<Item = usize> + '_ {
        self.unit(place).needs.iter().filter_map(|need| self.pending.binary_search(need).ok())
    }

    /// What is missing without these: they, and what needs them.
    fn without(&self, places: &[usize]) -> Vec<bool> {
        let mut is_missing = vec![false; self.pending.len()];
        places.iter().for_each(|place| is_missing[*place] = true);
        for place in 0..self.pending.len() {
            is_missing[place] |= self.needs(place).any(|need| is_missing[need]);
        }
        is_missing
    }

    /// What is missing where only these are there, and what they need.
    fn only(&self, places: &[usize]) -> Vec<bool> {
        let mut is_missing = vec![true; self.pending.len()];
        places.iter().for_each(|place| is_missing[*place] = false);
        for place in (0..self.pending.len()).rev() {
            if !is_missing[place] {
                let needs: Vec<usize> = self.needs(place).collect();
                needs.into_iter().for_each(|need| is_missing[need] = false);
            }
        }
        is_missing
    }

    /// All states, as what is missing: whole and empty first; none if there are many.
    fn all_states(&self) -> Option<Vec<Vec<usize>>> {
        let mut states: Vec<Vec<bool>> = vec![Vec::new()];
        for place in 0..self.pending.len() {
            let mut next = Vec::with_capacity(2 * states.len());
            for state in states {
                if !self.needs(place).any(|need| state[need]) {
                    next.push([&state[..], &[false]].concat());
                }
                next.push([&state[..], &[true]].concat());
            }
            if next.len() > ALL_MAX {
                return None;
            }
            states = next;
        }
        states.sort_by_key(|state| {
            let missing = state.iter().filter(|missing| **missing).count();
            missing.min(state.len() - missing)
        });
        let places = |state: Vec<bool>| (0..state.len()).filter(|place| state[*place]).collect();
        Some(states.into_iter().map(places).collect())
    }

    fn data(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.pending.len()).filter(|place| matches!(self.unit(*place).kind, UnitKind::Data { .. }))
    }

    /// The sectors that these write to.
    fn sectors(&self, places: &[usize]) -> u8 {
        union_of_sectors(places.iter().map(|place| self.unit(*place)))
    }

    /// The units of each block, in their order.
    fn by_block(&self) -> BTreeMap<(InodeNumber, u64), Vec<usize>> {
        let mut blocks: BTreeMap<(InodeNumber, u64), Vec<usize>> = BTreeMap::new();
        for place in 0..self.pending.len() {
            if let Some(block) = self.unit(place).block() {
                blocks.entry(block).or_default().push(place);
            }
        }
        blocks
    }

    /// Each piece of data torn in the middle: its first half is there, or its second. Of a block that several calls write to,
    /// also a later one there without all before it, or without the one before it.
    fn tears(&self, random: &mut Random) -> Vec<Recipe> {
        if !self.units.has_tears {
            return Vec::new();
        }
        let blocks: Vec<Vec<usize>> = self.by_block().into_values().collect();
        let mut tears = Vec::new();
        for (block, units) in blocks.iter().enumerate() {
            let (mut of_one_before, mut of_all_before) = (0, 0);
            for last in 0..units.len() {
                let own = self.unit(units[last]).sectors();
                let half = first_half(own);
                let halves = [(last, half, own), (last, own & !half, own)];
                let before = [(0, of_all_before), (last.saturating_sub(1), of_one_before)];
                // Of two, the one before is all before.
                let overtakes =
                    before[..last.min(2)].iter().map(|(first, before)| (*first, own, own | before));
                for (first, sectors, all) in halves.into_iter().chain(overtakes) {
                    if sectors != 0 && sectors != all {
                        tears.extend([false, true].map(|alone| (block, first..=last, sectors, alone)));
                    }
                }
                (of_one_before, of_all_before) = (own, of_all_before | own);
            }
        }
        draw_some(tears.len(), random, |nth| {
            let (block, units, sectors, alone) = tears[nth].clone();
            Recipe::Torn(Tear { units: blocks[block][units].to_vec(), sectors, alone })
        })
    }

    /// What is preferred where the states are many.
    fn preferred(&self, random: &mut Random) -> Vec<Recipe> {
        let all: Vec<usize> = (0..self.pending.len()).collect();
        let is_name = |place: &usize| matches!(self.unit(*place).kind, UnitKind::Names(_));
        let names: Vec<usize> = all.iter().copied().filter(is_name).collect();
        let others: Vec<usize> = all.iter().copied().filter(|place| !is_name(place)).collect();
        let data: Vec<usize> = self.data().collect();
        let mut recipes =
            vec![Recipe::Without(Vec::new()), Recipe::Without(all.clone()), Recipe::Without(others.clone())];
        recipes.extend([Recipe::Without(names), Recipe::Only(others), Recipe::Without(data)]);
        let mut calls: Vec<Vec<usize>> = Vec::new();
        for place in all {
            match calls.last_mut() {
                Some(call) if self.unit(call[0]).operation == self.unit(place).operation => call.push(place),
                _ => calls.push(vec![place]),
            }
        }
        let by_file = self.by_file();
        let prefixes = calls.len().saturating_sub(1);
        let lists = [
            draw_some(by_file.len(), random, |nth| by_file[nth].clone()),
            draw_some(calls.len(), random, |nth| Recipe::Without(calls[nth].clone())),
            draw_some(prefixes, random, |nth| Recipe::Until(calls[nth + 1][0])),
            draw_some(calls.len(), random, |nth| Recipe::Only(calls[nth].clone())),
            self.tears(random),
            draw_some(self.pending.len(), random, |place| Recipe::Without(vec![place])),
        ];
        let mut lists = lists.map(Vec::into_iter);
        loop {
            let before = recipes.len();
            lists.iter_mut().for_each(|list| recipes.extend(list.next()));
            if recipes.len() == before {
                return recipes;
            }
        }
    }

    /// For each file and directory: all of it missing, or only that there.
    fn by_file(&self) -> Vec<Recipe> {
        let inodes_of = |place: usize| -> Vec<InodeNumber> {
            match &self.unit(place).kind {
                UnitKind::Names(names) => names.iter().map(|(place, _)| place.directory).collect(),
                kind => kind.inode().into_iter().collect(),
            }
        };
        let mut places_of: BTreeMap<InodeNumber, Vec<usize>> = BTreeMap::new();
        for place in 0..self.pending.len() {
            for inode in inodes_of(place) {
                let own = places_of.entry(inode).or_default();
                // A rename within a directory has two names of it.
                if own.last() != Some(&place) {
                    own.push(place);
                }
            }
        }
        let recipes =
            places_of.into_values().flat_map(|own| [Recipe::Without(own.clone()), Recipe::Only(own)]);
        recipes.take(2 * OF_KIND_MAX).collect()
    }
}

/// The first half of these sectors.
fn first_half(sectors: u8) -> u8 {
    let bits = (0..8).map(|sector| 1 << sector).filter(|bit| sectors & bit != 0);
    bits.take(sectors.count_ones() as usize / 2).fold(0, |bits, bit| bits | bit)
}

/// Some of so many in random order. Only what is drawn is built: a recipe may be as long as what is pending.
fn draw_some(count: usize, random: &mut Random, build: impl Fn(usize) -> Recipe) -> Vec<Recipe> {
    let mut all: Vec<usize> = (0..count).collect();
    for nth in 0..count.min(OF_KIND_MAX) {
        let other = nth + random.below((count - nth) as u64) as usize;
        all.swap(nth, other);
    }
    all.into_iter().take(OF_KIND_MAX).map(build).collect()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::BTreeSet;

    use weir_runtime::{Runtime, Simulation};

    use super::*;

    #[test]
    fn only_what_is_drawn_is_built() {
        let mut random = Runtime::simulated(Simulation::default()).handle().random("drawn");
        for (count, expected) in [(0, 0), (3, 3), (100_000, OF_KIND_MAX)] {
            let built = Cell::new(0);
            let drawn = draw_some(count, &mut random, |place| {
                built.set(built.get() + 1);
                Recipe::Without(vec![place])
            });
            let place = |recipe: &Recipe| match recipe {
                Recipe::Without(places) => places[0],
                other => panic!("{other:?}"),
            };
            let different: BTreeSet<usize> = drawn.iter().map(place).collect();
            assert_eq!((built.get(), different.len()), (expected, expected));
        }
    }
}
