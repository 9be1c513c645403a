//! The way from a page of a file to its address: which nodes lead to it.
//!
//! The addresses of the first pages lie in the inode. Behind them come two direct nodes, two indirect nodes, which lead to 1,018
//! direct nodes each, and a double indirect node, which leads to 1,018 indirect nodes. All nodes of a file are counted in
//! that order, each before those that it leads to; the count is their *place*, and 0 is the inode.

use crate::node::ADDRESSES_PER_NODE;

/// Nodes that lie on the longest way, without the inode.
const DEPTH_MAX: usize = 3;
/// Pages below an indirect node.
const INDIRECT: u64 = ADDRESSES_PER_NODE as u64 * ADDRESSES_PER_NODE as u64;
/// Places: of the first direct node, the first indirect node, and so on.
const FIRST_DIRECT: u32 = 1;
const FIRST_INDIRECT: u32 = 3;
/// Places that an indirect node takes, with those below it.
const INDIRECT_PLACES: u32 = 1 + ADDRESSES_PER_NODE;
const DOUBLE: u32 = FIRST_INDIRECT + 2 * INDIRECT_PLACES;

/// A node on the way, and which of the words of the one before leads to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Which of the five nodes of the inode, or which word of an indirect node.
    pub word: u32,
    /// The place of the node.
    pub place: u32,
}

/// The way to the address of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodePath {
    steps: [Step; DEPTH_MAX],
    depth: usize,
    /// The word of the last node, or of the inode, that is the address.
    pub word: u32,
}

impl NodePath {
    /// The way to page `page` of a file with so many addresses in its inode; `None` for a page that no file has.
    pub fn new(page: u64, in_inode: u32) -> Option<Self> {
        let node = u64::from(ADDRESSES_PER_NODE);
        let way = |steps: &[(u64, u64)], word: u64| {
            let mut path =
                Self { steps: [Step::default(); DEPTH_MAX], depth: steps.len(), word: word as u32 };
            for (step, (word, place)) in path.steps.iter_mut().zip(steps) {
                *step = Step { word: *word as u32, place: *place as u32 };
            }
            Some(path)
        };
        let Some(left) = page.checked_sub(u64::from(in_inode)) else { return way(&[], page) };
        if left < 2 * node {
            let nth = left / node;
            return way(&[(nth, u64::from(FIRST_DIRECT) + nth)], left % node);
        }
        let left = left - 2 * node;
        if left < 2 * INDIRECT {
            let (nth, below) = (left / INDIRECT, left % INDIRECT);
            let indirect = u64::from(FIRST_INDIRECT) + nth * u64::from(INDIRECT_PLACES);
            return way(&[(2 + nth, indirect), (below / node, indirect + 1 + below / node)], below % node);
        }
        let left = left - 2 * INDIRECT;
        if left >= INDIRECT * node {
            return None;
        }
        let (nth, below) = (left / INDIRECT, left % INDIRECT);
        let indirect = u64::from(DOUBLE) + 1 + nth * u64::from(INDIRECT_PLACES);
        let steps = [(4, u64::from(DOUBLE)), (nth, indirect), (below / node, indirect + 1 + below / node)];
        way(&steps, below % node)
    }

    /// The page behind the last one below the node at `depth` of the way to `page`.
    pub(crate) fn end_below(&self, page: u64, depth: usize) -> u64 {
        let node = u64::from(ADDRESSES_PER_NODE);
        let below = self.steps().get(depth + 1..).unwrap_or_default();
        let at = below.iter().fold(0, |at, step| at * node + u64::from(step.word));
        let within = at * node + u64::from(self.word);
        page - within + below.iter().fold(node, |pages, _| pages * node)
    }

    /// The nodes on the way, behind the inode.
    pub fn steps(&self) -> &[Step] {
        &self.steps[..self.depth]
    }
}

/// The first page below the direct node with this place, in a file with so many addresses in its inode; `None` if it is no direct
/// node's place.
pub fn first_page(place: u32, in_inode: u32) -> Option<u64> {
    let (node, base) = (u64::from(ADDRESSES_PER_NODE), u64::from(in_inode));
    if place < FIRST_INDIRECT {
        return Some(base + u64::from(place.checked_sub(FIRST_DIRECT)?) * node);
    }
    let (start, pages, root) = match place {
        ..DOUBLE => (FIRST_INDIRECT, base + 2 * node, false),
        _ => (DOUBLE + 1, base + 2 * node + 2 * INDIRECT, true),
    };
    let at = place.checked_sub(start)?;
    let (nth, below) = (at / INDIRECT_PLACES, at % INDIRECT_PLACES);
    if below == 0 || (root && nth >= ADDRESSES_PER_NODE) {
        return None;
    }
    Some(pages + u64::from(nth) * INDIRECT + u64::from(below - 1) * node)
}

/// Pages that a file with so many addresses in its inode can have.
pub fn pages_max(in_inode: u32) -> u64 {
    let node = u64::from(ADDRESSES_PER_NODE);
    u64::from(in_inode) + 2 * node + 2 * INDIRECT + INDIRECT * node
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_has_a_way_and_every_direct_node_its_first_page() {
        let node = u64::from(ADDRESSES_PER_NODE);
        for in_inode in [923, 873, 864] {
            let base = u64::from(in_inode);
            let edges = [
                0,
                base,
                base + node,
                base + 2 * node,
                base + 2 * node + INDIRECT,
                base + 2 * node + 2 * INDIRECT,
            ];
            let edges = edges.into_iter().chain([pages_max(in_inode)]);
            for page in edges.flat_map(|edge| edge.saturating_sub(node + 2)..edge + node + 2) {
                let Some(path) = NodePath::new(page, in_inode) else {
                    assert!(page >= pages_max(in_inode));
                    continue;
                };
                assert!(page < pages_max(in_inode));
                match path.steps().last() {
                    Some(last) => {
                        assert_eq!(first_page(last.place, in_inode), Some(page - u64::from(path.word)))
                    }
                    None => assert_eq!(u64::from(path.word), page),
                }
            }
        }
    }

    #[test]
    fn what_is_below_a_node_ends_where_the_next_begins() {
        let (base, node) = (923, u64::from(ADDRESSES_PER_NODE));
        let end = |page, depth| NodePath::new(page, 923).map(|path| path.end_below(page, depth));
        assert_eq!(end(base + 5, 0), Some(base + node));
        let indirect = base + 2 * node;
        assert_eq!(end(indirect + node + 7, 0), Some(indirect + INDIRECT));
        assert_eq!(end(indirect + node + 7, 1), Some(indirect + 2 * node));
        let double = indirect + 2 * INDIRECT;
        let page = double + INDIRECT + 3 * node + 9;
        assert_eq!(end(page, 0), Some(double + INDIRECT * node));
        assert_eq!(end(page, 1), Some(double + 2 * INDIRECT));
        assert_eq!(end(page, 2), Some(double + INDIRECT + 4 * node));
    }

    #[test]
    fn places_are_those_that_the_format_counts() {
        let places = |page| {
            NodePath::new(page, 923)
                .map(|path| path.steps().iter().map(|step| step.place).collect::<Vec<_>>())
        };
        let node = 1018;
        assert_eq!(places(922), Some(vec![]));
        assert_eq!(places(923), Some(vec![1]));
        assert_eq!(places(923 + node), Some(vec![2]));
        assert_eq!(places(923 + 2 * node), Some(vec![3, 4]));
        assert_eq!(places(923 + 2 * node + node * node), Some(vec![1022, 1023]));
        assert_eq!(places(923 + 2 * node + 2 * node * node), Some(vec![2041, 2042, 2043]));
        assert_eq!(first_page(3, 923), None, "an indirect node");
        assert_eq!(first_page(2042, 923), None, "an indirect node below the double one");
        assert_eq!(first_page(u32::MAX, 923), None);
    }
}
