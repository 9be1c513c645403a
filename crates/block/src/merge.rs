//! Merging: a write that continues a queued one leaves as part of it. The merged request is order-preserving
//! if one part is (E4), keeps the place of its first part, and never joins two streams.

use weir_storage::{Lba, RequestId, Rules, WriteFlags};

use crate::mutants::BlockMutant;
use crate::queue::{Pending, Queue, Stage, Work};

/// The queued request that `new` continues, if it may become part of it. A command has `most` blocks at most.
pub(crate) fn target(
    queue: &Queue,
    new: &Pending,
    most: u64,
    rules: Rules<BlockMutant>,
) -> Option<RequestId> {
    let candidate = queue.iter().find(|queued| continues(queued, new, most, rules))?;
    // The merged request leaves in its first part's place, so `new` must not pass an overlap on the way (S6).
    let overlaps = queue.iter().any(|queued| queued.id != new.id && queued.work.conflicts(&new.work));
    (!overlaps).then_some(candidate.id)
}

fn continues(queued: &Pending, new: &Pending, most: u64, rules: Rules<BlockMutant>) -> bool {
    let (Some(end), Some(start)) = (plain_end(queued), plain_start(new)) else { return false };
    queued.id != new.id
        && queued.stage == Stage::Ready
        && end == start
        && (queued.stream == new.stream || rules.drops(BlockMutant::MergeCrossesStreams))
        && queued.work.blocks() + new.work.blocks() <= most
}

/// Where a write without flags ends; flags are promises about one request and not to be spread.
fn plain_end(pending: &Pending) -> Option<Lba> {
    match &pending.work {
        Work::Write { parts, flags } if *flags == WriteFlags::default() => Some(parts.last()?.extent().end()),
        _ => None,
    }
}

fn plain_start(pending: &Pending) -> Option<Lba> {
    match &pending.work {
        Work::Write { parts, flags } if *flags == WriteFlags::default() => {
            Some(parts.first()?.extent().start)
        }
        _ => None,
    }
}

/// Makes `new` a part of `queued`; says whether `queued` became order-preserving by it.
pub(crate) fn absorb(queued: &mut Pending, new: Pending, rules: Rules<BlockMutant>) -> bool {
    let became_ordered =
        queued.epoch.is_none() && new.epoch.is_some() && !rules.drops(BlockMutant::MergeDropsOrder);
    if became_ordered {
        queued.epoch = new.epoch;
    }
    queued.tags.extend(new.tags);
    queued.owners.extend(new.owners);
    queued.tickets.extend(new.tickets);
    if let (Work::Write { parts, .. }, Work::Write { parts: more, .. }) = (&mut queued.work, new.work) {
        parts.extend(more);
    }
    became_ordered
}
