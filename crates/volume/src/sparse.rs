//! An array that takes memory only around what was set (V6). What belongs to a volume's segments and map pages is
//! kept in it, so that a large volume with little in it takes little.

/// Elements that get memory together.
pub(crate) const GROUP: usize = 1024;

/// Elements that are their default until they are set.
#[derive(Clone)]
pub(crate) struct Sparse<T> {
    groups: Vec<Option<Box<[T; GROUP]>>>,
}

impl<T> Default for Sparse<T> {
    fn default() -> Sparse<T> {
        Sparse { groups: Vec::new() }
    }
}

impl<T: Default> Sparse<T> {
    /// `count` elements, none of them set.
    pub(crate) fn new(count: usize) -> Sparse<T> {
        Sparse { groups: (0..count.div_ceil(GROUP)).map(|_| None).collect() }
    }

    /// The element, if its group has memory. `index` is below the count, rounded up to whole groups.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        self.groups[index / GROUP].as_ref().map(|group| &group[index % GROUP])
    }

    /// The element, to be set: its group gets memory.
    #[inline]
    pub(crate) fn get_mut(&mut self, index: usize) -> &mut T {
        let group =
            self.groups[index / GROUP].get_or_insert_with(|| Box::new(std::array::from_fn(|_| T::default())));
        &mut group[index % GROUP]
    }

    /// The elements from `from` on that have memory, with their indices.
    pub(crate) fn iter_from(&self, from: usize) -> impl Iterator<Item = (usize, &T)> {
        let groups = self.groups.iter().enumerate().skip(from / GROUP);
        let present = groups.filter_map(|(number, group)| Some((number, group.as_deref()?)));
        present.flat_map(move |(number, group)| {
            let skipped = if number == from / GROUP { from % GROUP } else { 0 };
            group.iter().enumerate().skip(skipped).map(move |(i, element)| (number * GROUP + i, element))
        })
    }

    /// Elements that it has, rounded up to whole groups.
    pub(crate) fn capacity(&self) -> usize {
        self.groups.len() * GROUP
    }

    /// Bytes of memory that it takes, without what its elements point to.
    pub(crate) fn bytes(&self) -> usize {
        let present = self.groups.iter().flatten().count();
        size_of_val(self.groups.as_slice()) + present * size_of::<[T; GROUP]>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_follows_what_is_set() {
        let mut sparse = Sparse::<u64>::new(1 << 24);
        let empty = sparse.bytes();
        *sparse.get_mut(5) = 7;
        *sparse.get_mut(10_000_000) = 8;
        assert_eq!((sparse.get(5), sparse.get(6), sparse.get(5000)), (Some(&7), Some(&0), None));
        assert_eq!(sparse.bytes() - empty, 2 * GROUP * 8);
        let set = |from| sparse.iter_from(from).filter(|(_, t)| **t > 0).map(|(i, _)| i).collect::<Vec<_>>();
        assert_eq!(set(0), [5, 10_000_000]);
        assert_eq!(set(6), [10_000_000]);
        assert_eq!(set(10_000_001), [0; 0]);
    }
}
