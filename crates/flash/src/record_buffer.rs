//! The buffer of coalescing records (OPTR paper, section 3.2), as large as a page. It goes to flash when it is full and
//! at each flush.
//!
//! What is lost with it at a power cut makes requests incomplete, never complete (`recovery_point`): a record says that
//! blocks of a request are *not* to be looked for on flash. So a record may come to flash later than the page of the
//! later request, but no flush is answered before its records are there.

use std::collections::BTreeSet;
use std::rc::Rc;

use crate::mutants::{FlashMutant, FlashRules};
use crate::recovery_point::{Coalescing, Receipt};

/// What a record takes: two numbers of requests, 8 bytes each, and the size of the earlier one, 4 (OPTR paper, section 7).
const RECORD_BYTES: u64 = 20;

/// A page of records, with its number.
pub(crate) type RecordPage = (u64, Rc<Vec<Coalescing>>);

pub(crate) struct RecordBuffer {
    waiting: Vec<Coalescing>,
    /// Records that a page holds.
    capacity: usize,
    /// Pages are numbered from 1.
    last: u64,
    /// Pages that are on their way to flash.
    under_way: BTreeSet<u64>,
    rules: FlashRules,
}

impl RecordBuffer {
    pub(crate) fn new(page_bytes: u64, rules: FlashRules) -> RecordBuffer {
        let capacity = (page_bytes / RECORD_BYTES) as usize;
        RecordBuffer { waiting: Vec::new(), capacity, last: 0, under_way: BTreeSet::new(), rules }
    }

    /// One more block of the later request took the place of one of the earlier.
    pub(crate) fn add(&mut self, earlier: Receipt, later: Receipt) {
        if self.rules.drops(FlashMutant::CoalescingUnrecorded) {
            return;
        }
        match self.waiting.last_mut().filter(|last| (last.earlier, last.later) == (earlier, later.wid)) {
            Some(last) => last.blocks += 1,
            None => self.waiting.push(Coalescing { earlier, later: later.wid, blocks: 1 }),
        }
    }

    /// Takes a page of records out; one that is not full only if all are to be written.
    pub(crate) fn take(&mut self, all: bool) -> Option<RecordPage> {
        let count = self.waiting.len().min(self.capacity);
        if count == 0 || (count < self.capacity && !all) {
            return None;
        }
        self.last += 1;
        self.under_way.insert(self.last);
        Some((self.last, Rc::new(self.waiting.drain(..count).collect())))
    }

    /// A page is on flash.
    pub(crate) fn written(&mut self, number: u64) {
        self.under_way.remove(&number);
    }

    /// The number of the last page that was taken.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// All pages up to this one are on flash.
    pub(crate) fn written_to(&self) -> u64 {
        if self.rules.drops(FlashMutant::RecordsLate) {
            return u64::MAX;
        }
        self.under_way.first().map_or(self.last, |first| first - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_one_pair_share_a_record_and_pages_settle_in_order() {
        let mut buffer = RecordBuffer::new(4096, FlashRules::all());
        let receipt = |wid| Receipt { wid, size: 4 };
        assert!(buffer.take(true).is_none());
        buffer.add(receipt(1), receipt(2));
        buffer.add(receipt(1), receipt(2));
        assert!(buffer.take(false).is_none());
        let (first, page) = buffer.take(true).unwrap_or_default();
        assert_eq!(*page, [Coalescing { earlier: receipt(1), later: 2, blocks: 2 }]);
        (3..300).for_each(|wid| buffer.add(receipt(wid), receipt(wid + 1)));
        let (second, full) = buffer.take(false).unwrap_or_default();
        assert!(full.len() == 4096 / 20 && buffer.take(false).is_none());
        assert_eq!((first, second, buffer.last(), buffer.written_to()), (1, 2, 2, 0));
        buffer.written(2);
        assert_eq!(buffer.written_to(), 0);
        buffer.written(1);
        assert_eq!(buffer.written_to(), 2);
    }
}
