//! Caches that drop one rule each. A rule without a mutant that tests kill is not implemented.

use weir_storage::Rules;

/// The rules that a cache keeps.
pub type CacheRules = Rules<CacheMutant>;

/// What a mutant does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "mutants"), allow(dead_code, reason = "named where the rule is kept"))]
pub enum CacheMutant {
    /// E7: what is on its way without order joins the epoch only where the file has no dirty pages.
    PromotesOnlyIfClean,
    /// E7: of several writes on their way, only the first joins the epoch.
    PromotesFirstWriteOnly,
    /// J3: writeback decides whether it keeps order before it has its turn.
    WritebackDecidesEarly,
    /// Units: the pages of a unit that are in memory change before the others are there.
    UnitInParts,
    /// Units: a request ends in the middle of one.
    UnitInTwoRequests,
    /// errors: a failed write of a page is reported once, and forgotten.
    WriteErrorForgotten,
    /// pages: a page that is changed while its write waits for queue space counts as clean.
    CleansChangedPages,
    /// reads: what a read brings counts, also of blocks that were freed while it was under way.
    ReadsOutliveBlocks,
}
