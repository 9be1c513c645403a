//! The *conformance suite*: what every [`Storage`] must do, checked from outside, as far as its
//! capabilities call for it. What is left after a power loss (S3, S4) cannot be seen from here; power-loss
//! tests judge that.
//!
//! Each rule is checked on a fresh storage, and a lost answer is a failure too: no check waits longer than
//! [`Expectations::patience`].

mod content;
mod data;
mod queue;
mod refusal;
mod remap;

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use thiserror::Error;
use weir_runtime::Handle;

use crate::contract::Storage;
use content::Subject;

/// The smallest storage that the suite can work on, in blocks.
pub const CONFORMANCE_BLOCKS_MIN: u64 = 64;

/// The smallest "largest transfer" that the suite can work with, in blocks.
pub const CONFORMANCE_TRANSFER_MIN: u32 = 4;

/// The smallest "largest share" that the suite can work with, in blocks, where there is a share at all.
pub const CONFORMANCE_SHARE_MIN: u32 = 2;

/// What is checked, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// Capacity and capabilities are in range and make sense together.
    Description,
    /// A block that was never written reads zero, where that is expected.
    Fresh,
    /// What was written is read, at both ends of the storage and up to the largest transfer.
    ReadBack,
    /// Every part of a write arrives in its place.
    Parts,
    /// Commands that break the contract are refused with the error that says how, and change nothing.
    Bounds,
    /// What the device cannot do is refused with the feature's name; what it says it can do works.
    Features,
    /// No more commands in flight than the queue is deep, and every refused submitter gets its turn.
    Depth,
    /// S6: a write carries its data as of submission.
    AsSubmitted,
    /// Both phases of a ticket are answered; a dropped ticket changes nothing.
    Tickets,
    /// S2: a flush completes, and what was transferred before it is durable then.
    Flush,
    /// S2: a FUA write is durable when it is transferred.
    Fua,
    /// S3: barriers, as a flag and bare, where the device has them.
    Barrier,
    /// S1: an ordered command is serviced after all before it and before all after it.
    OrderedService,
    /// S7: what a discarded block reads; its neighbours keep their content.
    Discard,
    /// S7: a shared block reads what its source read, whatever becomes of the source.
    Share,
    /// S7: every write of a packed write arrives.
    Packed,
    /// Many writes at once that do not overlap all arrive.
    Concurrency,
}

impl Rule {
    /// All rules, in the order in which they are checked.
    pub const ALL: [Rule; 17] = [
        Rule::Description,
        Rule::Fresh,
        Rule::ReadBack,
        Rule::Parts,
        Rule::Bounds,
        Rule::Features,
        Rule::Depth,
        Rule::AsSubmitted,
        Rule::Tickets,
        Rule::Flush,
        Rule::Fua,
        Rule::Barrier,
        Rule::OrderedService,
        Rule::Discard,
        Rule::Share,
        Rule::Packed,
        Rule::Concurrency,
    ];

    async fn check(self, subject: &Subject) -> Checked {
        match self {
            Rule::Description => refusal::description(subject),
            Rule::Fresh => data::fresh(subject).await,
            Rule::ReadBack => data::read_back(subject).await,
            Rule::Parts => data::parts(subject).await,
            Rule::Bounds => refusal::bounds(subject).await,
            Rule::Features => refusal::features(subject).await,
            Rule::Depth => queue::depth(subject).await,
            Rule::AsSubmitted => data::as_submitted(subject).await,
            Rule::Tickets => queue::tickets(subject).await,
            Rule::Flush => queue::flush(subject).await,
            Rule::Fua => queue::fua(subject).await,
            Rule::Barrier => queue::barrier(subject).await,
            Rule::OrderedService => queue::ordered_service(subject).await,
            Rule::Discard => remap::discard(subject).await,
            Rule::Share => remap::share(subject).await,
            Rule::Packed => remap::packed(subject).await,
            Rule::Concurrency => data::concurrency(subject).await,
        }
    }
}

/// What the suite cannot learn from the capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expectations {
    /// A fresh storage reads zero everywhere. Default: true.
    pub fresh_reads_zero: bool,
    /// How long one check may take, in the runtime's time. Default: 60 seconds.
    pub patience: Duration,
}

impl Default for Expectations {
    fn default() -> Expectations {
        Expectations { fresh_reads_zero: true, patience: Duration::from_secs(60) }
    }
}

/// What was checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Rules that were checked and hold.
    pub passed: Vec<Rule>,
    /// Rules that do not apply, with the reason.
    pub skipped: Vec<(Rule, &'static str)>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} rules hold", self.passed.len())?;
        self.skipped.iter().try_for_each(|(rule, reason)| write!(f, "; {rule:?} skipped: {reason}"))
    }
}

/// The first rule that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("rule {rule:?} does not hold: {what}")]
pub struct Failure {
    /// Which rule.
    pub rule: Rule,
    /// What was seen.
    pub what: String,
}

/// How one check ended well.
enum Verdict {
    Holds,
    Skipped(&'static str),
}

/// The end of one check; the error says what was seen.
type Checked = Result<Verdict, String>;

/// Checks every rule, each on a storage of its own from `make`; the last one is gone by then.
///
/// ```
/// use std::rc::Rc;
/// use weir_runtime::{Runtime, Simulation};
/// use weir_storage::{AdversaryDisk, AdversaryOptions, Expectations, Storage, conformance};
///
/// let runtime = Runtime::simulated(Simulation::default());
/// let handle = runtime.handle();
/// let make = async || AdversaryDisk::new(&handle, AdversaryOptions::default()) as Rc<dyn Storage>;
/// let report = runtime.block_on(conformance(&handle, Expectations::default(), make));
/// assert!(report.is_ok_and(|report| report.is_ok()));
/// ```
///
/// # Errors
/// [`Failure`] names the first rule that does not hold, and what was seen.
pub async fn conformance(
    handle: &Handle,
    expectations: Expectations,
    make: impl AsyncFn() -> Rc<dyn Storage>,
) -> Result<Report, Failure> {
    let mut report = Report::default();
    for rule in Rule::ALL {
        let subject = Subject::new(handle, make().await, expectations.fresh_reads_zero);
        let checked = within(handle, expectations.patience, rule.check(&subject)).await;
        let late = || Err(format!("no answer within {:?}: a completion was lost", expectations.patience));
        match checked.unwrap_or_else(late).map_err(|what| Failure { rule, what })? {
            Verdict::Holds => report.passed.push(rule),
            Verdict::Skipped(reason) => report.skipped.push((rule, reason)),
        }
    }
    Ok(report)
}

/// The output of `check`, unless it takes longer than `patience`.
async fn within<T>(handle: &Handle, patience: Duration, check: impl Future<Output = T>) -> Option<T> {
    let mut check = pin!(check);
    let mut late = pin!(handle.sleep(patience));
    poll_fn(|context| match check.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => late.as_mut().poll(context).map(|_| None),
    })
    .await
}
