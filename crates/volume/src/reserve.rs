//! *Reserves*: how few free segments make upkeep start, how many it aims for, and how many only the cleaner may take.

use weir_storage::Rules;

use crate::common::Common;
use crate::geometry::Geometry;
use crate::marks::MarkState;
use crate::mutants::VolumeMutant;
use crate::segments::Segments;

/// The reserves of a volume.
#[derive(Clone, Copy)]
pub(crate) struct Reserve {
    geometry: Geometry,
    rules: Rules<VolumeMutant>,
    /// Segments that are kept for a mark (V13).
    of_marks: usize,
}

impl Reserve {
    pub(crate) fn of(common: &Common) -> Reserve {
        let of_marks = common.marks.as_ref().map_or(0, |marks: &MarkState| marks.room);
        Reserve { geometry: common.geometry, rules: common.options.rules, of_marks }
    }

    /// Segments that would be free if everything live were packed together.
    fn spare(&self, segments: &Segments) -> usize {
        let packed = segments.live_total().div_ceil(u64::from(self.geometry.data_blocks_per_segment() - 1));
        (self.geometry.segments as usize).saturating_sub(packed as usize)
    }

    /// Free segments, on the free-segment list or before the reclaim check, that upkeep aims for. The more of the
    /// spare space is kept free, the less of it is in the segments to be cleaned, and the dearer cleaning is.
    pub(crate) fn upkeep_goal(&self, segments: &Segments) -> usize {
        let goal = (self.spare(segments) / 3).clamp(4, self.geometry.free_list_limit().max(8) / 2);
        goal.max(self.upkeep_below(segments) + 1)
    }

    /// Upkeep starts when so few segments are left on the free-segment list: early enough that writers need not wait,
    /// and where they have to in any case, since what is left is the cleaner's.
    pub(crate) fn upkeep_below(&self, segments: &Segments) -> usize {
        let below = (self.spare(segments) / 6).clamp(3, self.geometry.free_list_limit().max(12) / 4);
        below.max(self.of_cleaner() + self.of_marks)
    }

    /// Segments on the free-segment list that only the cleaner may take.
    pub(crate) fn of_cleaner(&self) -> usize {
        let reserve = self.geometry.reserve() as usize / 3;
        // The free-segment list has a limit, however large the volume is, and most of it is for writers.
        let most = self.geometry.free_list_limit() / 8;
        if self.rules.drops(VolumeMutant::ReserveUnbounded) { reserve } else { reserve.min(most).max(2) }
    }
}
