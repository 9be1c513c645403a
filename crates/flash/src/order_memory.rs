//! The memory that order-preserving recovery needs in addition to that of every device (OPTR paper, section 7).

use serde::Serialize;

use crate::geometry::Geometry;
use crate::map::Change;
use crate::profile::{Mechanism, Profile};

/// What an entry of the cache is tagged with: the number of its request, 8 bytes, and the size of that, 4.
const TAG_BYTES: u64 = 12;

/// Memory in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct OrderMemory {
    /// The tags of the cache's entries.
    pub tags: u64,
    /// Changes of the map that wait for the next increment.
    pub increments: u64,
    /// Coalescing records that wait for the next page of them.
    pub records: u64,
}

impl Profile {
    /// What order-preserving recovery takes on this device; nothing with another mechanism.
    #[must_use]
    pub fn order_memory(&self) -> Option<OrderMemory> {
        if self.barrier.mechanism != Mechanism::OrderPreservingRecovery {
            return None;
        }
        let geometry = Geometry::new(self);
        // A checkpoint is due after so many pages, and each slot of them is a change; or when its buffer is full.
        let due = (f64::from(geometry.pages()) * self.ftl.checkpoint_share).max(1.0) as u64;
        let changes = due * u64::from(geometry.slots_per_page) * Change::ENTRY_BYTES;
        let buffer = self.ftl.layout.log_buffer_bytes;
        Some(OrderMemory {
            tags: self.cache_places() * TAG_BYTES,
            increments: if buffer == 0 { changes } else { buffer.min(changes) },
            records: geometry.page_bytes(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_order_preserving_recovery_takes_memory() {
        let ordinary = Profile::builtin("sata-ssd").unwrap();
        assert_eq!(ordinary.order_memory(), None);
        let ordered = ordinary.with_mechanism(Mechanism::OrderPreservingRecovery).order_memory().unwrap();
        // 32 MiB of cache in blocks of 4 KiB, pages of two planes of 8 KiB.
        assert_eq!((ordered.tags, ordered.records), (8192 * 12, 16_384));
        // The paper's drive: 8 MiB of cache in pages of 16 KiB.
        let paper = Profile::builtin("openssd").unwrap().order_memory().unwrap();
        assert_eq!(paper, OrderMemory { tags: 512 * 12, increments: 256 << 10, records: 16 << 10 });
    }
}
