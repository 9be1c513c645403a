//! Segments: who is live, who may be written again, and the *runway*, the ordered list of segments that
//! the log will use next.
//!
//! **The gate** (V3). A segment may be written again only when no state that a crash can leave needs what
//! is in it: every version in it is superseded, the superseding records are durable, and recovery does not
//! replay it. [`Segments::gate`] is the one place that decides, and says what is missing.
//!
//! **The runway** (V4). Recovery finds the log by the runway in the checkpoint and by the records that
//! lengthen it, and reads no other segment. So a segment joins the runway in one of two ways: with the
//! checkpoint that names it, or by a record in the log that comes before its first chunk.

use std::collections::VecDeque;

/// What a segment is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Written before the last checkpoint; holds live blocks, or waits for the next checkpoint.
    Settled,
    /// Part of the log since the last checkpoint; replayed by recovery.
    Log,
    /// On the runway, empty.
    Runway,
}

/// What stands between a segment and its being written again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    /// Live blocks: clean it first.
    Live,
    /// Empty, but recovery would replay it: a checkpoint comes first.
    NeedsCheckpoint,
    /// Empty, but a crash could still take back what superseded its blocks: a flush comes first.
    NeedsFlush,
    /// Nothing: it may join the runway.
    Free,
    /// It is on the runway already.
    Runway,
}

/// All segments of a volume.
pub(crate) struct Segments {
    live: Vec<u16>,
    role: Vec<Role>,
    /// Sequence number of the last record that changed the segment: while it is live, the youngest in it (its
    /// age); once it is empty, the one that emptied it.
    changed: Vec<u64>,
    runway: VecDeque<u32>,
    /// Segments taken from the runway since the last checkpoint began, oldest first.
    log: Vec<u32>,
    live_total: u64,
}

impl Segments {
    pub(crate) fn new(segments: u32) -> Segments {
        let count = segments as usize;
        Segments {
            live: vec![0; count],
            role: vec![Role::Settled; count],
            changed: vec![0; count],
            runway: VecDeque::new(),
            log: Vec::new(),
            live_total: 0,
        }
    }

    pub(crate) fn count(&self) -> u32 {
        self.live.len() as u32
    }

    /// Live blocks of all segments.
    pub(crate) fn live_total(&self) -> u64 {
        self.live_total
    }

    pub(crate) fn live(&self, segment: u32) -> u16 {
        self.live[segment as usize]
    }

    pub(crate) fn changed(&self, segment: u32) -> u64 {
        self.changed[segment as usize]
    }

    #[inline]
    pub(crate) fn add_live(&mut self, segment: u32, blocks: u16) {
        self.live[segment as usize] += blocks;
        self.live_total += u64::from(blocks);
    }

    #[inline]
    pub(crate) fn drop_live(&mut self, segment: u32, sequence: u64) {
        self.live[segment as usize] -= 1;
        self.live_total -= 1;
        if self.live[segment as usize] == 0 {
            self.changed[segment as usize] = sequence;
        }
    }

    /// A chunk whose last record is `sequence` was sealed in the segment.
    pub(crate) fn sealed(&mut self, segment: u32, sequence: u64) {
        self.changed[segment as usize] = sequence;
    }

    /// The gate: may this segment be written again, everything up to `durable` being durable?
    pub(crate) fn gate(&self, segment: u32, durable: u64) -> Gate {
        let index = segment as usize;
        match self.role[index] {
            Role::Runway => Gate::Runway,
            _ if self.live[index] > 0 => Gate::Live,
            Role::Log => Gate::NeedsCheckpoint,
            Role::Settled if self.changed[index] > durable => Gate::NeedsFlush,
            Role::Settled => Gate::Free,
        }
    }

    /// No block in it is live, and it is not on the runway.
    pub(crate) fn is_empty(&self, segment: u32) -> bool {
        self.live[segment as usize] == 0 && self.role[segment as usize] != Role::Runway
    }

    /// Segments left on the runway.
    pub(crate) fn runway(&self) -> usize {
        self.runway.len()
    }

    /// The segment that comes next, taken into the log. (`off_the_runway`, for a mutant: an empty one that
    /// no checkpoint names.)
    pub(crate) fn take(&mut self, off_the_runway: bool) -> Option<u32> {
        let segment = if off_the_runway { self.empty(None).last() } else { None };
        let segment = segment.or_else(|| self.runway.pop_front())?;
        self.role[segment as usize] = Role::Log;
        self.log.push(segment);
        Some(segment)
    }

    /// Segments written since the last checkpoint began, the open one included.
    pub(crate) fn log(&self) -> &[u32] {
        &self.log
    }

    /// Recovery has replayed the log: it and the old runway wait for the checkpoint that ends recovery.
    pub(crate) fn settle_all(&mut self) {
        self.role.fill(Role::Settled);
        self.runway.clear();
        self.log.clear();
    }

    /// Segments that hold nothing live and may sooner or later join the runway, in order of address, `open`
    /// never.
    pub(crate) fn empty(&self, open: Option<u32>) -> impl Iterator<Item = u32> {
        (0..self.count()).filter(move |s| Some(*s) != open && self.is_empty(*s))
    }

    /// A segment joins the runway, by a record that is in the log before anything is written to it.
    pub(crate) fn join(&mut self, segment: u32) {
        self.role[segment as usize] = Role::Runway;
        self.runway.push_back(segment);
    }

    /// Begins a checkpoint: the runway that it will name, `open` first, and how many of its last segments
    /// join with it.
    pub(crate) fn plan_runway(&self, open: Option<u32>, limit: usize) -> (Vec<u32>, usize) {
        let mut runway: Vec<u32> = open.into_iter().chain(self.runway.iter().copied()).collect();
        let joining = limit.saturating_sub(runway.len());
        let before = runway.len();
        runway.extend(self.empty(open).take(joining));
        let joined = runway.len() - before;
        (runway, joined)
    }

    /// The checkpoint is durable: `joined` may be written, and the log begins with the last of the
    /// `log_before` segments that the log had when the checkpoint began (the open one).
    pub(crate) fn commit(&mut self, joined: &[u32], log_before: usize) {
        for segment in self.log.drain(..log_before.saturating_sub(1)) {
            self.role[segment as usize] = Role::Settled;
        }
        for segment in joined {
            debug_assert_eq!(self.live[*segment as usize], 0, "an empty segment stays empty");
            self.join(*segment);
        }
    }
}
