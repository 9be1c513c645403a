//! Extent trees against a model that maps one file block at a time.

use std::collections::BTreeMap;
use std::ops::Range;

use weir_format::FormatError;

use crate::image::now;
use crate::nodes::{Memory, MemoryError};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use weir_ext4::{BLOCK_AREA_BYTES, Extent, ExtentTree};

const LIMIT: u64 = 1 << 40;

/// File block to disk block, and whether it is written.
type Model = BTreeMap<u32, (u64, bool)>;

struct Tested {
    memory: Memory,
    root: [u8; BLOCK_AREA_BYTES],
    model: Model,
    nodes: i64,
}

impl Tested {
    fn new() -> Self {
        let root = ExtentTree::<Memory>::empty_root();
        Self { memory: Memory::new(LIMIT), root, model: Model::new(), nodes: 0 }
    }

    /// Runs `operation` on the tree, and keeps count of its nodes.
    fn with<T>(&mut self, operation: impl AsyncFnOnce(&mut ExtentTree<'_, Memory>) -> T) -> T {
        let mut tree = ExtentTree::new(&self.memory, &mut self.root, 12, 7, LIMIT);
        let result = now(operation(&mut tree));
        self.nodes += tree.nodes_gained();
        result
    }

    fn insert(&mut self, extent: Extent) -> Result<(), MemoryError> {
        let result = self.with(async |tree| tree.insert(extent).await);
        let mapped = self.model.range(extent.logical..extent.end()).next().is_some();
        let overlap =
            Err(MemoryError::Format(FormatError::Invalid { what: "an extent over mapped file blocks" }));
        assert_eq!(mapped, result == overlap);
        if result.is_ok() {
            for at in 0..extent.length {
                self.model.insert(extent.logical + at, (extent.physical + u64::from(at), extent.written));
            }
        }
        result
    }

    /// Unmaps a range; the blocks that come back are those that were mapped there.
    fn remove(&mut self, range: Range<u32>) -> Result<(), MemoryError> {
        let mut last = range.end;
        while let Some(removed) = self.with(async |tree| tree.remove_last(range.clone()).await)? {
            assert!(removed.end() <= last && removed.logical >= range.start, "{removed:?} of {range:?}");
            last = removed.logical;
            for at in 0..removed.length {
                let mapped = self.model.remove(&(removed.logical + at));
                assert_eq!(mapped, Some((removed.physical + u64::from(at), removed.written)));
            }
        }
        assert_eq!(self.model.range(range).next(), None, "all is unmapped");
        Ok(())
    }

    fn mark(&mut self, range: Range<u32>, written: bool) -> Result<(), MemoryError> {
        self.with(async |tree| tree.mark(range.clone(), written).await)?;
        self.model.range_mut(range).for_each(|(_, mapped)| mapped.1 = written);
        Ok(())
    }

    /// All extents in order.
    fn extents(&mut self) -> Vec<Extent> {
        self.with(async |tree| {
            let mut found: Vec<Extent> = Vec::new();
            let mut from = 0;
            while let Some(extent) = tree.next(from).await.expect("a sound tree") {
                from = extent.end();
                found.push(extent);
            }
            found
        })
    }

    /// The tree maps what the model maps, and has exactly the nodes that are in use.
    fn check(&mut self) {
        let mut mapped = Model::new();
        for extent in self.extents() {
            for at in 0..extent.length {
                mapped.insert(extent.logical + at, (extent.physical + u64::from(at), extent.written));
            }
        }
        assert!(mapped == self.model, "the tree and the model differ");
        let mut nodes = self.with(async |tree| tree.node_blocks().await).expect("a sound tree");
        nodes.sort_unstable();
        let in_use: Vec<u64> = self.memory.blocks.borrow().keys().copied().collect();
        assert_eq!(nodes, in_use);
        assert_eq!(self.nodes, nodes.len() as i64, "nodes gained");
    }

    fn lookup(&mut self, logical: u32) -> Option<(u64, bool)> {
        let found = self.with(async |tree| tree.lookup(logical).await).expect("a sound tree");
        found.map(|extent| (extent.physical + u64::from(logical - extent.logical), extent.written))
    }
}

fn run(logical: u32, length: u32, physical: u64, written: bool) -> Extent {
    Extent { logical, length, physical, written }
}

/// A random operation on the first `space` file blocks. Small lengths make deep trees.
fn step(tested: &mut Tested, random: &mut Pcg64, space: u32, longest: u32) -> Result<(), MemoryError> {
    let logical = random.random_range(0..space);
    let length = random.random_range(1..=longest);
    let range = logical..logical + length;
    match random.random_range(0..10) {
        0..6 => {
            // Half of the runs continue what comes before them, so that neighbours are joined.
            let before = logical.checked_sub(1).and_then(|before| tested.model.get(&before).copied());
            let physical = match before {
                Some((physical, _)) if random.random() => physical + 1,
                _ => random.random_range(1..LIMIT - 100_000),
            };
            match tested.insert(run(logical, length, physical, random.random())) {
                Err(MemoryError::Format(_)) => Ok(()),
                other => other,
            }
        }
        6..8 => tested.remove(range),
        _ => tested.mark(range, random.random()),
    }
}

#[test]
fn random_operations_agree_with_the_model() {
    for seed in 0..30 {
        let mut random = Pcg64::seed_from_u64(seed);
        let space = [60, 5_000, 40_000][seed as usize % 3];
        let longest = [1, 3, 40][seed as usize / 3 % 3];
        let mut tested = Tested::new();
        for at in 0..6_000 {
            step(&mut tested, &mut random, space, longest).expect("space enough");
            let logical = random.random_range(0..space);
            let expected = tested.model.get(&logical).copied();
            assert_eq!(tested.lookup(logical), expected, "seed {seed}, step {at}");
            if at % 500 == 0 {
                tested.check();
            }
        }
        tested.check();
        tested.remove(0..u32::MAX).expect("nothing needs space");
        tested.check();
        assert_eq!(tested.root, ExtentTree::<Memory>::empty_root(), "seed {seed}: nothing is left");
    }
}

/// A full disk stops an operation, and takes nothing away.
#[test]
fn without_space_nothing_is_lost() {
    let mut stopped = 0;
    for seed in 0..8 {
        let mut random = Pcg64::seed_from_u64(seed);
        let mut tested = Tested::new();
        tested.memory.room.set(seed);
        for _ in 0..5_000 {
            let (space, longest) = (4_000, 4);
            let mut again = random.clone();
            if step(&mut tested, &mut random, space, longest).is_err() {
                stopped += 1;
                // A mark or a removal may have got half of the way: the tree says how far. What is outside of its
                // range the model never changes.
                let logical = again.random_range(0..space);
                let length = again.random_range(1..=longest);
                let touched = logical..logical + length;
                let left: Model = tested.extents().iter().flat_map(blocks).collect();
                let same = |model: &Model| -> Model {
                    model.iter().filter(|(at, _)| !touched.contains(at)).map(|(at, to)| (*at, *to)).collect()
                };
                assert!(same(&left) == same(&tested.model), "seed {seed}: only what was asked for changes");
                tested.model = left;
            }
        }
        tested.memory.room.set(100);
        tested.check();
    }
    assert!(stopped > 1_000, "{stopped} operations met a full disk");
}

fn blocks(extent: &Extent) -> Vec<(u32, (u64, bool))> {
    (0..extent.length)
        .map(|at| (extent.logical + at, (extent.physical + u64::from(at), extent.written)))
        .collect()
}

/// A file of half a million extents has three levels of inner nodes; files that grow have full nodes.
#[test]
fn a_deep_tree_is_built_and_taken_down() {
    let mut tested = Tested::new();
    tested.memory.verified = false;
    let extents = 480_000_u32;
    for at in 0..extents {
        let extent = run(at * 2, 1, u64::from(at) * 3 + 1, true);
        tested.with(async |tree| tree.insert(extent).await).expect("space enough");
    }
    assert_eq!(tested.root[6], 3, "depth");
    assert!(tested.nodes < i64::from(extents / 339 + 20), "{} nodes", tested.nodes);
    for at in (0..extents).step_by(777) {
        assert_eq!(tested.lookup(at * 2), Some((u64::from(at) * 3 + 1, true)));
        assert_eq!(tested.lookup(at * 2 + 1), None);
    }
    assert_eq!(tested.extents().len(), extents as usize);
    let mut removed = 0;
    while tested.with(async |tree| tree.remove_last(0..u32::MAX).await).expect("sound").is_some() {
        removed += 1;
    }
    assert_eq!((removed, tested.nodes), (extents, 0));
}

/// J8: what grows at its end changes few bytes of its nodes.
#[test]
fn a_change_names_few_bytes() {
    let mut tested = Tested::new();
    for at in 0..300 {
        tested.insert(run(at * 2, 1, u64::from(at) * 3 + 1, true)).expect("space enough");
    }
    tested.memory.changed_bytes.set(0);
    tested.insert(run(599, 1, 299 * 3 + 2, true)).expect("continues the last extent");
    assert_eq!(tested.memory.changed_bytes.get(), 12, "one entry");
    tested.mark(0..1, false).expect("a state changes in its place");
    assert_eq!(tested.memory.changed_bytes.get(), 24, "one entry");
    tested.check();
}

#[test]
fn what_cannot_be_mapped_is_refused() {
    let mut tested = Tested::new();
    let refused = [
        run(0, 0, 1, true),
        run(0, 32_769, 1, true),
        run(0, 32_768, 1, false),
        run(u32::MAX, 1, 1, true),
        run(0, 1, 0, true),
        run(0, 1, LIMIT, true),
    ];
    for extent in refused {
        let error = tested.insert(extent).expect_err("refused");
        assert!(matches!(error, MemoryError::Format(FormatError::Invalid { .. })), "{error:?}");
    }
    tested.insert(run(u32::MAX - 1, 1, 1, true)).expect("the last file block");
    tested.check();
}

#[test]
fn longest_extents_are_marked_in_parts() {
    let mut tested = Tested::new();
    tested.insert(run(0, 32_768, 1000, true)).expect("space enough");
    tested.mark(0..32_768, false).expect("space enough");
    let unwritten = [run(0, 32_767, 1000, false), run(32_767, 1, 33_767, false)];
    assert_eq!(tested.extents(), unwritten);
    tested.mark(0..40_000, true).expect("space enough");
    assert_eq!(tested.extents(), [run(0, 32_768, 1000, true)]);
}

/// With the root as the only node, and no block for another: single blocks of one unwritten extent can be marked as
/// written for ever, if what is marked may be longer.
#[test]
fn what_is_markable_needs_no_node() {
    let mut random = Pcg64::seed_from_u64(1);
    let mut wider = 0;
    for _ in 0..200 {
        let mut tested = Tested::new();
        tested.memory.room.set(0);
        tested.insert(run(10, 1000, 5000, false)).expect("fits into the root");
        for _ in 0..100 {
            let at = random.random_range(10..1010);
            if tested.model[&at].1 {
                continue;
            }
            let found = tested.with(async |tree| tree.markable(at..at + 1, 1010).await).expect("sound");
            let found = found.expect("no end is in the way");
            assert!(found.contains(&at) && found.clone().all(|at| !tested.model[&at].1), "{found:?}");
            wider += u32::from(found.len() > 1);
            tested.mark(found, true).expect("no node is needed");
        }
        tested.check();
        assert_eq!(tested.nodes, 0);
    }
    assert!(wider > 200, "{wider}");
}

#[test]
fn what_is_markable_ends_at_the_end() {
    let mut tested = Tested::new();
    tested.memory.room.set(0);
    for extent in [run(0, 1, 100, true), run(2, 1, 200, true), run(4, 1, 300, true), run(10, 8, 400, false)] {
        tested.insert(extent).expect("fits into the root");
    }
    let mut markable = |range, end| tested.with(async |tree| tree.markable(range, end).await).expect("sound");
    assert_eq!(markable(12..13, 18), Some(10..18), "all of it, as any part takes one entry more");
    assert_eq!(markable(12..13, 17), None);
    assert_eq!(markable(12..18, 5), Some(10..18), "up to the end of the range itself, at least");
    assert_eq!(markable(2..3, 18), None, "written");
    assert_eq!(markable(9..12, 18), None, "a hole");
    tested.remove(4..5).expect("no node is needed");
    let mut markable = |range, end| tested.with(async |tree| tree.markable(range, end).await).expect("sound");
    assert_eq!(markable(12..13, 18), Some(10..13), "the shorter of two");
    assert_eq!(markable(15..16, 18), Some(15..18), "the shorter of two");
    assert_eq!(markable(15..16, 16), Some(10..16), "the one before the end");
}

/// Bytes from an attacker: an error or a wrong answer, never a panic or an endless loop.
#[test]
fn damaged_trees_end_in_errors() {
    let mut errors = 0;
    for seed in 0..3_000 {
        let mut random = Pcg64::seed_from_u64(seed);
        let mut tested = damaged(&mut random);
        for _ in 0..20 {
            errors += u32::from(touch(&mut tested, &mut random).is_err());
        }
        let mut steps = 0;
        while let Ok(Some(_)) = tested.with(async |tree| tree.remove_last(0..u32::MAX).await) {
            steps += 1;
            assert!(steps < 10_000, "seed {seed}: a removal without end");
        }
    }
    assert!(errors > 1_000, "{errors} errors");
}

/// A sound tree with random bytes in a node or in its root.
fn damaged(random: &mut Pcg64) -> Tested {
    let mut tested = Tested::new();
    tested.memory.verified = false;
    for at in 0..random.random_range(3..3_000) {
        let extent = run(at * 3, 1 + at % 2, u64::from(at) * 7 + 1, at % 5 > 0);
        tested.with(async |tree| tree.insert(extent).await).expect("space enough");
    }
    let keys: Vec<u64> = tested.memory.blocks.borrow().keys().copied().collect();
    for _ in 0..random.random_range(1..6) {
        let byte: u8 = random.random();
        // Headers, and the first entries, decide most.
        let reach = if random.random() { 60 } else { 4096 };
        let at = random.random_range(0..reach);
        if keys.is_empty() || random.random_ratio(1, 4) {
            tested.root[at % 60] = byte;
        } else {
            let block = keys[random.random_range(0..keys.len())];
            tested.memory.blocks.borrow_mut().get_mut(&block).expect("in use").1[at] = byte;
        }
    }
    tested
}

fn touch(tested: &mut Tested, random: &mut Pcg64) -> Result<(), MemoryError> {
    let logical = random.random_range(0..10_000);
    let range = logical..logical + random.random_range(0..400);
    match random.random_range(0..5) {
        0 => tested.with(async |tree| tree.lookup(logical).await).map(|_| ()),
        1 => tested.with(async |tree| tree.remove_last(range).await).map(|_| ()),
        2 => tested.with(async |tree| tree.mark(range, logical % 2 == 0).await),
        3 => tested.with(async |tree| tree.node_blocks().await).map(|_| ()),
        _ => tested.with(async |tree| tree.insert(run(logical, 3, 5_000_000, true)).await),
    }
}
