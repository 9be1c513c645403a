//! The chain of orphans in memory: each knows its neighbours, so that what leaves the middle costs no search. A kernel
//! forgets inodes in about the order in which it removed them, which is from the far end of the chain.

use std::collections::BTreeMap;

/// The elements before and behind one.
type Neighbours = (Option<u32>, Option<u32>);

/// Numbers of inodes, each once.
#[derive(Default)]
pub(super) struct Chain {
    first: Option<u32>,
    elements: BTreeMap<u32, Neighbours>,
}

impl Chain {
    /// The one that the superblock names.
    pub(super) fn first(&self) -> Option<u32> {
        self.first
    }

    pub(super) fn contains(&self, number: u32) -> bool {
        self.elements.contains_key(&number)
    }

    /// What is before and behind an element.
    pub(super) fn neighbours(&self, number: u32) -> Option<Neighbours> {
        self.elements.get(&number).copied()
    }

    /// Adds an element that is not there.
    pub(super) fn push_front(&mut self, number: u32) {
        let next = self.first.replace(number);
        self.join(Some(number), next);
        self.elements.insert(number, (None, next));
    }

    pub(super) fn remove(&mut self, number: u32) {
        let Some((before, next)) = self.elements.remove(&number) else { return };
        self.join(before, next);
        if before.is_none() {
            self.first = next;
        }
    }

    fn join(&mut self, before: Option<u32>, next: Option<u32>) {
        if let Some(element) = before.and_then(|number| self.elements.get_mut(&number)) {
            element.1 = next;
        }
        if let Some(element) = next.and_then(|number| self.elements.get_mut(&number)) {
            element.0 = before;
        }
    }
}

impl FromIterator<u32> for Chain {
    /// Of its elements, last to first.
    fn from_iter<T: IntoIterator<Item = u32>>(numbers: T) -> Chain {
        let mut chain = Chain::default();
        numbers.into_iter().for_each(|number| chain.push_front(number));
        chain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(chain: &Chain) -> Vec<u32> {
        let next = |number: &u32| chain.neighbours(*number).and_then(|(_, next)| next);
        std::iter::successors(chain.first(), next).collect()
    }

    #[test]
    fn elements_leave_from_anywhere() {
        let mut chain: Chain = [4, 3, 2, 1].into_iter().collect();
        assert_eq!(all(&chain), [1, 2, 3, 4]);
        assert_eq!(chain.neighbours(2), Some((Some(1), Some(3))));
        for (number, left) in [(3, vec![1, 2, 4]), (1, vec![2, 4]), (4, vec![2]), (9, vec![2]), (2, vec![])] {
            chain.remove(number);
            assert_eq!(all(&chain), left);
        }
        chain.push_front(3);
        assert_eq!((chain.neighbours(3), chain.contains(2)), (Some((None, None)), false));
    }
}
