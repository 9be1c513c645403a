//! *Reserves*: how few free segments make upkeep start, how many it aims for, and how many each writer leaves to the others.

use weir_storage::{Rejected, Rules, StorageError};

use crate::common::Common;
use crate::geometry::Geometry;
use crate::marks::MarkState;
use crate::mutants::VolumeMutant;
use crate::segments::Segments;

/// The writer of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writer {
    /// The user. Leaves the last segments of the free-segment list to the cleaner.
    User,
    /// The cleaner, which gives back more than it takes.
    Cleaner,
    /// What takes no block: segments that become free, and marks.
    Upkeep,
}

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

    /// Segments on the free-segment list that a writer leaves alone: users leave the cleaner's, and what is kept for a mark; the
    /// cleaner, while users have to place a mark, what they need for that, and itself behind it (V13).
    pub(crate) fn kept_from(&self, writer: Writer, marks: Option<&MarkState>) -> usize {
        match (writer, marks) {
            // Nothing else brings the mark about that upkeep waits for.
            (Writer::User, Some(marks)) if marks.upkeep_waits_for_user() => 0,
            (Writer::User, Some(marks)) => self.of_cleaner() + marks.room_kept_from_users(),
            (Writer::User, None) => self.of_cleaner(),
            (Writer::Cleaner, Some(marks)) if marks.is_changed() => self.of_cleaner() + self.of_marks,
            (Writer::Cleaner, _) | (Writer::Upkeep, _) => 0,
        }
    }

    /// What a writer is told for whom no segment is left: that the volume is full, if it is a user for whom nothing more becomes
    /// free, as cleaning [is stuck](crate::log::Log::set_stuck) or upkeep waits for that user's mark (V13).
    pub(crate) fn refusal(writer: Writer, marks: Option<&MarkState>, is_stuck: bool) -> Rejected {
        let is_last = is_stuck || marks.is_some_and(MarkState::upkeep_waits_for_user);
        match writer {
            Writer::User if is_last => Rejected::Failed(StorageError::NoSpace),
            Writer::User | Writer::Cleaner | Writer::Upkeep => Rejected::Busy,
        }
    }

    /// Segments on the free-segment list that only the cleaner may take.
    pub(crate) fn of_cleaner(&self) -> usize {
        let reserve = self.geometry.reserve() as usize / 3;
        // The free-segment list has a limit, however large the volume is, and most of it is for writers.
        let most = self.geometry.free_list_limit() / 8;
        if self.rules.drops(VolumeMutant::ReserveUnbounded) { reserve } else { reserve.min(most).max(2) }
    }
}
