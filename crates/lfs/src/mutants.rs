//! Filesystems that drop one rule each. A rule without a mutant that tests kill is not implemented.

use weir_storage::Rules;

/// The rules that a filesystem keeps.
pub type LfsRules = Rules<LfsMutant>;

/// What a mutant does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "mutants"), allow(dead_code, reason = "named where the rule is kept"))]
pub enum LfsMutant {
    /// L1: the footer of a checkpoint is in the epoch of the rest.
    FooterNotBehind,
    /// L1: on storage without barriers, the rest of a checkpoint is not flushed before its footer.
    FooterNotFlushed,
    /// L2: a segment without a block in use is free at once.
    SegmentReusedEarly,
    /// L2: the number of a deleted node is free at once.
    NumberReusedEarly,
    /// L3: the pages of a synchronisation call are in the epoch of its nodes.
    NodesWithPages,
    /// L4: a mount writes no checkpoint.
    ChainGoesOn,
    /// L5: nothing waits for share commands.
    ShareNotAwaited,
    /// L6: roll-forward takes nodes, and not where their pages are.
    AddressNotRolledForward,
    /// L6: roll-forward gives new files no name.
    InodeWithoutName,
    /// L6: every node of a synchronisation call has the mark of its last one.
    MarkOnEveryNode,
    /// L6: pages of an update are overwritten in place.
    UpdateInPlace,
    /// L7: a checkpoint lists no inodes without a name.
    OrphanKept,
    /// L8: a summary names the index behind that of the address of a page.
    SummaryLies,
}
