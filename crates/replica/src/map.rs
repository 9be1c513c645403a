//! The *map* of a replica: which block of which object each logical block reads, as of a request. Twelve bytes a block, in
//! pages that take memory while something in them is mapped. A copy shares the pages until one of the two changes them.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_storage::Rules;
use weir_volume::{Change, LogEntry};

use crate::key::LogPlace;
use crate::log_object::LogObject;
use crate::mutants::ReplicaMutant;

const PAGE: usize = 512;

/// Where the content of a logical block is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Content {
    /// Number of the object in the map's table, from 1; 0: nowhere, it reads zeros.
    pub object: u32,
    /// Which data block of the object.
    pub block: u32,
    /// Content checksum.
    pub checksum: u32,
}

/// The map of a replica.
#[derive(Clone)]
pub(crate) struct ReplicaMap {
    pages: BTreeMap<u32, Arc<[Content; PAGE]>>,
    objects: Vec<LogPlace>,
    /// Numbers of objects that no block reads any more, for others.
    free: Vec<u32>,
    rules: Rules<ReplicaMutant>,
}

impl ReplicaMap {
    /// Nothing is mapped.
    pub(crate) fn new(rules: Rules<ReplicaMutant>) -> ReplicaMap {
        ReplicaMap { pages: BTreeMap::new(), objects: Vec::new(), free: Vec::new(), rules }
    }

    /// Adds an object to the table, and returns its number.
    pub(crate) fn add_object(&mut self, place: LogPlace) -> u32 {
        if let Some(number) = self.free.pop() {
            self.objects[number as usize - 1] = place;
            return number;
        }
        self.objects.push(place);
        self.objects.len() as u32
    }

    /// Gives the numbers of objects to others: those [that no block read](Self::unread) in the newest copy of this map of which that was
    /// told.
    pub(crate) fn free_objects(&mut self, unread: Vec<u32>) {
        self.free.extend(unread);
    }

    /// The objects that have no number in its [table](Self::table), by those in the map, but for the numbers that are free already.
    pub(crate) fn unread(&self, numbers: &[u32]) -> Vec<u32> {
        let mut free = self.free.clone();
        free.sort_unstable();
        let unread = (1..).zip(numbers).filter(|(_, in_table)| **in_table == 0).map(|(number, _)| number);
        unread.filter(|number| free.binary_search(number).is_err()).collect()
    }

    /// The object with this number.
    pub(crate) fn object(&self, number: u32) -> Option<LogPlace> {
        self.objects.get((number as usize).checked_sub(1)?).copied()
    }

    /// Bytes of memory that it takes.
    pub(crate) fn memory(&self) -> usize {
        self.pages.len() * size_of::<[Content; PAGE]>() + self.objects.len() * size_of::<LogPlace>()
    }

    /// What a logical block reads.
    pub(crate) fn get(&self, lba: u32) -> Content {
        let page = self.pages.get(&(lba / PAGE as u32));
        page.map_or(Content::default(), |page| page[lba as usize % PAGE])
    }

    pub(crate) fn set(&mut self, lba: u32, content: Content) {
        let number = lba / PAGE as u32;
        if content.object == 0 && !self.pages.contains_key(&number) {
            return;
        }
        let page = self.pages.entry(number).or_insert_with(|| Arc::new([Content::default(); PAGE]));
        Arc::make_mut(page)[lba as usize % PAGE] = content;
    }

    /// The blocks from `first` on, below `end`, that are mapped, in order.
    pub(crate) fn mapped(&self, first: u64, end: u64) -> impl Iterator<Item = (u32, Content)> {
        let start = (first / PAGE as u64) as u32;
        let pages = self.pages.range(start..);
        let entries = pages.flat_map(move |(number, page)| {
            let skipped = if *number == start { first as usize % PAGE } else { 0 };
            let entries = page.iter().enumerate().skip(skipped);
            entries.map(move |(i, content)| (number * PAGE as u32 + i as u32, *content))
        });
        entries.take_while(move |(lba, _)| u64::from(*lba) < end).filter(|(_, content)| content.object != 0)
    }

    /// Carries out what an object says, up to the request `to`.
    pub(crate) fn apply(&mut self, object: &LogObject, to: u64) {
        let number = self.add_object(object.place);
        for (entries, first_block) in object.requests(to) {
            self.apply_request(number, entries, first_block as u32);
        }
    }

    fn apply_request(&mut self, object: u32, entries: &[LogEntry], first_block: u32) {
        let mut block = first_block;
        let mut shares = Vec::new();
        for entry in entries {
            match entry.change {
                Change::Write(checksum) => {
                    self.set(entry.lba, Content { object, block, checksum });
                    block += 1;
                }
                Change::Discard(blocks) => self.discard(entry.lba, blocks),
                Change::Share(from) => {
                    if self.rules.drops(ReplicaMutant::SharesInTurn) {
                        let content = self.get(from);
                        self.set(entry.lba, content);
                    } else {
                        shares.push((entry.lba, self.get(from)));
                    }
                }
                Change::Nothing => {}
            }
        }
        for (to, content) in shares {
            self.set(to, content);
        }
    }

    fn discard(&mut self, first: u32, blocks: u32) {
        if blocks == 0 || self.rules.drops(ReplicaMutant::CheckpointKeepsDiscarded) {
            return;
        }
        let end = u64::from(first) + u64::from(blocks);
        let mapped: Vec<u32> = self.mapped(u64::from(first), end).map(|(lba, _)| lba).collect();
        for lba in mapped {
            self.set(lba, Content::default());
        }
        // A page with nothing in it takes no memory, and no time of a search for the next block.
        let pages = self.pages.range(first / PAGE as u32..=(end.saturating_sub(1) / PAGE as u64) as u32);
        let is_empty = |page: &[Content; PAGE]| page.iter().all(|content| content.object == 0);
        let empty: Vec<u32> = pages.filter(|(_, page)| is_empty(page)).map(|(number, _)| *number).collect();
        empty.iter().for_each(|number| drop(self.pages.remove(number)));
    }

    /// The objects that are read, in the order of the first blocks that read them; and their numbers in that table, from 1, by those
    /// here, 0 of those that are not read.
    pub(crate) fn table(&self) -> (Vec<LogPlace>, Vec<u32>) {
        let (mut table, mut numbers) = (Vec::new(), vec![0; self.objects.len()]);
        for (_, content) in self.mapped(0, u64::MAX) {
            let at = content.object as usize - 1;
            if numbers[at] == 0 {
                table.push(self.objects[at]);
                numbers[at] = table.len() as u32;
            }
        }
        (table, numbers)
    }

    /// The blocks of each object that are read, with the logical blocks that read them, objects in order.
    pub(crate) fn by_object(&self) -> BTreeMap<LogPlace, Vec<(u32, Content)>> {
        let mut found: BTreeMap<LogPlace, Vec<(u32, Content)>> = BTreeMap::new();
        for (lba, content) in self.mapped(0, u64::MAX) {
            if let Some(place) = self.object(content.object) {
                found.entry(place).or_default().push((lba, content));
            }
        }
        found
    }
}

impl PartialEq for ReplicaMap {
    fn eq(&self, other: &ReplicaMap) -> bool {
        let resolved = |map: &ReplicaMap| -> Vec<(u32, Option<LogPlace>, u32, u32)> {
            let mapped = map.mapped(0, u64::MAX);
            mapped.map(|(lba, c)| (lba, map.object(c.object), c.block, c.checksum)).collect()
        };
        resolved(self) == resolved(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The memory of a map that goes on for years follows the objects that blocks read, and those of some checkpoints.
    #[test]
    fn numbers_of_objects_that_no_block_reads_are_given_to_others() {
        let mut map = ReplicaMap::new(Rules::all());
        let place = |first| LogPlace { first, part: 0 };
        let write = |map: &mut ReplicaMap, first: u64| {
            let object = map.add_object(place(first));
            map.set((first % 4) as u32, Content { object, block: 0, checksum: 0 });
        };
        for round in 0..100 {
            (1..=10).for_each(|i| write(&mut map, 20 * round + i));
            let copy = map.clone();
            // It is written, and what it does not read is known later.
            (11..=20).for_each(|i| write(&mut map, 20 * round + i));
            map.free_objects(copy.unread(&copy.table().1));
            let reads: Vec<Option<LogPlace>> = (0..4).map(|lba| map.object(map.get(lba).object)).collect();
            assert_eq!(reads, [20, 17, 18, 19].map(|i| Some(place(20 * round + i))));
        }
        assert!(map.objects.len() < 50, "{} objects", map.objects.len());
    }
}
