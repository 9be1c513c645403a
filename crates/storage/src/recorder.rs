//! The *order recorder* writes down the four orders of a run and checks that they agree.
//!
//! A request is **issued** (I: it enters the block layer), **dispatched** (D: its command is handed to
//! the device), **transferred** (X: its data is in the device's cache) and **persisted** (P: it is on
//! the medium). The papers' Eq. 1 says that storage order is preserved, `I = P`, when each layer keeps
//! it: `I = D`, `D = X` and `X = P` (FAST 2018 paper, section 3.1). These are partial orders: requests
//! of one epoch may change places, requests of different streams too, and orderless requests always may.
//!
//! So order is kept as edges, not as sequences: an order-preserving request of epoch `e` may pass a
//! layer only when every request of its stream that was issued in an epoch before `e` has passed it.
//! The check is made as each request passes, and only what is on its way is remembered.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use thiserror::Error;

use crate::command::{Epoch, Order, RequestId, StreamId, Tag};

/// Requests that may be on their way between issue and persist before the recorder gives up.
const RETAINED_DEFAULT: usize = 1 << 20;

/// A layer that requests pass, after they were issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layer {
    /// The command was handed to the device (D).
    Dispatch,
    /// The data reached the device's cache (X).
    Transfer,
    /// The data reached the medium (P).
    Persist,
}

impl Layer {
    const ALL: [Layer; 3] = [Layer::Dispatch, Layer::Transfer, Layer::Persist];

    /// The part of Eq. 1 that a request breaks when it passes this layer out of order.
    #[must_use]
    pub fn equation(self) -> &'static str {
        match self {
            Layer::Dispatch => "I = D",
            Layer::Transfer => "D = X",
            Layer::Persist => "X = P",
        }
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Layer::Dispatch => "dispatch",
            Layer::Transfer => "transfer",
            Layer::Persist => "persist",
        })
    }
}

/// The first breach of order that a recorder saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Violation {
    /// A request passed a layer before one of an earlier epoch of its stream.
    #[error(
        "{} is broken at {layer}: request {} of epoch {} passed before request {} of epoch {} (stream {})",
        layer.equation(), later.0, later_epoch.0, earlier.0, earlier_epoch.0, stream.0
    )]
    Overtaken {
        /// The layer that let it pass.
        layer: Layer,
        /// The stream that both belong to.
        stream: StreamId,
        /// The request that should have passed first.
        earlier: RequestId,
        /// Its epoch.
        earlier_epoch: Epoch,
        /// The request that passed.
        later: RequestId,
        /// Its epoch.
        later_epoch: Epoch,
    },
    /// A request was issued into an epoch that had been closed: a later one was in use already.
    #[error("request {} was issued in epoch {} of stream {} after epoch {}", request.0, epoch.0, stream.0, current.0)]
    EpochClosed {
        /// The request.
        request: RequestId,
        /// Its stream.
        stream: StreamId,
        /// Its epoch.
        epoch: Epoch,
        /// The latest epoch of the stream.
        current: Epoch,
    },
    /// A prefix device persisted a request before one that it had received earlier.
    #[error("request {} persisted before request {}, which the prefix device received earlier", later.0, earlier.0)]
    NotAPrefix {
        /// The request that was received first.
        earlier: RequestId,
        /// The request that persisted first.
        later: RequestId,
    },
    /// A request passed a layer, but was never issued.
    #[error("request {} passed {layer} but was never issued", request.0)]
    NeverIssued {
        /// The layer.
        layer: Layer,
        /// The request.
        request: RequestId,
    },
    /// More requests are on their way than the recorder keeps: order can no longer be checked.
    #[error(
        "more than {limit} requests are neither persisted nor failed; flush more often or raise the limit"
    )]
    TooMany {
        /// The recorder's bound.
        limit: usize,
    },
}

/// How many requests passed each layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests issued (I).
    pub issued: u64,
    /// Requests dispatched (D).
    pub dispatched: u64,
    /// Requests transferred (X).
    pub transferred: u64,
    /// Requests persisted (P).
    pub persisted: u64,
    /// Requests that ended in an error.
    pub failed: u64,
    /// Edges looked at: order-preserving passes checked.
    pub checked: u64,
}

/// Writes down I, D, X and P and checks Eq. 1 as the requests pass.
pub struct Recorder {
    next: Cell<u64>,
    state: RefCell<RecorderState>,
}

impl Recorder {
    /// A recorder for devices of any kind: edges between epochs of a stream.
    #[must_use]
    pub fn new() -> Rc<Recorder> {
        Recorder::with(false, RETAINED_DEFAULT)
    }

    /// A recorder for a prefix device: no request may persist before one that was dispatched earlier,
    /// whatever its class (S3: order by receipt). What persists follows the order of receipt there, not
    /// of transfer, so Eq. 1 reads `I = D` and `D = P`: transfers are counted and not checked.
    #[must_use]
    pub fn prefix() -> Rc<Recorder> {
        Recorder::with(true, RETAINED_DEFAULT)
    }

    /// A recorder that gives up, with [`Violation::TooMany`], when more than `limit` requests are on
    /// their way; `prefix` as in [`Recorder::prefix`].
    #[must_use]
    pub fn with(prefix: bool, limit: usize) -> Rc<Recorder> {
        let state = RecorderState { prefix, limit, ..RecorderState::default() };
        Rc::new(Recorder { next: Cell::new(0), state: RefCell::new(state) })
    }

    /// A fresh request number, in issue order.
    pub fn next_request(&self) -> RequestId {
        let number = self.next.get();
        self.next.set(number + 1);
        RequestId(number)
    }

    /// I: a request entered the block layer. Called again for a request that is on its way, it adds an
    /// edge: the promotion of an orderless request, or a second stream.
    pub fn issued(&self, tag: Tag) {
        self.state.borrow_mut().issue(tag);
    }

    /// D: a command with these requests was accepted by the device.
    pub fn dispatched(&self, tags: &[Tag]) {
        self.state.borrow_mut().pass(Layer::Dispatch, tags);
    }

    /// X: the data of a command with these requests is in the device's cache. A device may say so
    /// before `submit` returns, so X includes D.
    pub fn transferred(&self, tags: &[Tag]) {
        self.state.borrow_mut().pass(Layer::Transfer, tags);
    }

    /// P: these requests, or later versions of all that they wrote, are on the medium. Includes D and X.
    pub fn persisted(&self, tags: &[Tag]) {
        self.state.borrow_mut().pass(Layer::Persist, tags);
    }

    /// These requests ended in an error: no task waits for them any more (S5 is the block layer's).
    pub fn failed(&self, tags: &[Tag]) {
        self.state.borrow_mut().fail(tags);
    }

    /// The counts, if order was kept so far.
    ///
    /// # Errors
    /// The first violation.
    pub fn check(&self) -> Result<Counts, Violation> {
        let state = self.state.borrow();
        state.violation.map_or(Ok(state.counts), Err)
    }

    /// How many requests passed each layer, whether in order or not.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.state.borrow().counts
    }

    /// How many requests are on their way: issued, and neither persisted nor failed.
    #[must_use]
    pub fn retained(&self) -> usize {
        self.state.borrow().requests.len()
    }
}

/// A request on its way.
#[derive(Default)]
struct Passing {
    /// How many layers it has passed.
    passed: usize,
    /// How many of them were checked.
    verified: usize,
    /// The epochs that it belongs to; none while it is orderless.
    edges: Vec<(StreamId, Epoch)>,
    /// Its place in the order of receipt, once dispatched.
    receipt: u64,
}

#[derive(Default)]
struct RecorderState {
    prefix: bool,
    limit: usize,
    requests: BTreeMap<RequestId, Passing>,
    /// For each layer, how many requests of an epoch have yet to pass it.
    outstanding: [BTreeMap<(StreamId, Epoch), usize>; 3],
    current: BTreeMap<StreamId, Epoch>,
    /// Dispatched and not persisted, in order of receipt; kept for prefix devices only.
    received: BTreeMap<u64, RequestId>,
    receipts: u64,
    /// One more than the highest request number issued.
    issued_end: u64,
    counts: Counts,
    violation: Option<Violation>,
}

impl RecorderState {
    fn issue(&mut self, tag: Tag) {
        if !self.requests.contains_key(&tag.request) {
            if self.requests.len() >= self.limit {
                return self.report(Violation::TooMany { limit: self.limit });
            }
            self.counts.issued += 1;
        }
        self.issued_end = self.issued_end.max(tag.request.0 + 1);
        let passing = self.requests.entry(tag.request).or_default();
        let Order::Epoch(stream, epoch) = tag.order else { return };
        if passing.edges.contains(&(stream, epoch)) {
            return;
        }
        passing.edges.push((stream, epoch));
        for layer in &mut self.outstanding[passing.passed..] {
            *layer.entry((stream, epoch)).or_default() += 1;
        }
        let current = *self.current.entry(stream).and_modify(|e| *e = epoch.max(*e)).or_insert(epoch);
        if epoch < current {
            self.report(Violation::EpochClosed { request: tag.request, stream, epoch, current });
        }
    }

    /// The requests of one command pass a layer together, so all leave before any is checked.
    fn pass(&mut self, layer: Layer, tags: &[Tag]) {
        for each in Layer::ALL.into_iter().take_while(|each| *each <= layer) {
            for tag in tags {
                self.leave(each, tag.request);
            }
            for tag in tags {
                self.verify(each, tag.request);
            }
        }
        if layer == Layer::Persist {
            for tag in tags {
                self.requests.remove(&tag.request);
            }
        }
    }

    fn leave(&mut self, layer: Layer, request: RequestId) {
        let Some(passing) = self.requests.get_mut(&request) else {
            // Numbers below the end were issued and have finished: a late report says nothing new.
            if request.0 >= self.issued_end {
                self.report(Violation::NeverIssued { layer, request });
            }
            return;
        };
        if passing.passed > layer as usize {
            return;
        }
        passing.passed = layer as usize + 1;
        for edge in &passing.edges {
            release(&mut self.outstanding[layer as usize], *edge);
        }
        match layer {
            Layer::Dispatch => {
                self.counts.dispatched += 1;
                self.receipts += 1;
                passing.receipt = self.receipts;
                if self.prefix {
                    self.received.insert(self.receipts, request);
                }
            }
            Layer::Transfer => self.counts.transferred += 1,
            Layer::Persist => {
                self.counts.persisted += 1;
                self.received.remove(&passing.receipt);
            }
        }
    }

    /// Checks the edges of a request that has just passed `layer`.
    fn verify(&mut self, layer: Layer, request: RequestId) {
        let Some(passing) = self.requests.get_mut(&request) else { return };
        if passing.verified > layer as usize {
            return;
        }
        passing.verified = layer as usize + 1;
        if self.prefix && layer == Layer::Transfer {
            return;
        }
        self.counts.checked += passing.edges.len() as u64;
        let overtaken = passing.edges.iter().find_map(|&(stream, epoch)| {
            let earlier = self.outstanding[layer as usize].range((stream, Epoch(0))..(stream, epoch)).next();
            earlier.map(|(&(_, earlier), _)| (stream, earlier, epoch))
        });
        let receipt = passing.receipt;
        if let Some((stream, earlier_epoch, later_epoch)) = overtaken {
            let earlier = self.waiting(layer, (stream, earlier_epoch)).unwrap_or(request);
            self.report(Violation::Overtaken {
                layer,
                stream,
                earlier,
                earlier_epoch,
                later: request,
                later_epoch,
            });
        }
        if layer == Layer::Persist
            && let Some((_, &earlier)) = self.received.range(..receipt).next()
        {
            self.report(Violation::NotAPrefix { earlier, later: request });
        }
    }

    /// The first request of an epoch that has not passed `layer`: looked up only to name it.
    fn waiting(&self, layer: Layer, edge: (StreamId, Epoch)) -> Option<RequestId> {
        let waits = |passing: &Passing| passing.passed <= layer as usize && passing.edges.contains(&edge);
        self.requests.iter().find(|(_, passing)| waits(passing)).map(|(request, _)| *request)
    }

    fn fail(&mut self, tags: &[Tag]) {
        for tag in tags {
            let Some(passing) = self.requests.remove(&tag.request) else { continue };
            self.counts.failed += 1;
            self.received.remove(&passing.receipt);
            for edge in &passing.edges {
                for layer in &mut self.outstanding[passing.passed..] {
                    release(layer, *edge);
                }
            }
        }
    }

    fn report(&mut self, violation: Violation) {
        self.violation.get_or_insert(violation);
    }
}

/// One request of an epoch fewer has yet to pass.
fn release(outstanding: &mut BTreeMap<(StreamId, Epoch), usize>, edge: (StreamId, Epoch)) {
    if let Some(count) = outstanding.get_mut(&edge) {
        *count -= 1;
        if *count == 0 {
            outstanding.remove(&edge);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: StreamId = StreamId(0);

    fn issue(recorder: &Recorder, order: Order) -> Tag {
        let tag = Tag { request: recorder.next_request(), order };
        recorder.issued(tag);
        tag
    }

    fn in_epoch(recorder: &Recorder, epoch: u64) -> Tag {
        issue(recorder, Order::Epoch(STREAM, Epoch(epoch)))
    }

    fn broken_layer(recorder: &Recorder) -> Option<Layer> {
        match recorder.check() {
            Err(Violation::Overtaken { layer, .. }) => Some(layer),
            _ => None,
        }
    }

    #[test]
    fn epochs_in_order_pass_and_are_forgotten() {
        let recorder = Recorder::new();
        let (a, b, c) = (in_epoch(&recorder, 1), in_epoch(&recorder, 1), in_epoch(&recorder, 2));
        let free = issue(&recorder, Order::Orderless);
        recorder.persisted(&[free]);
        for pass in [Recorder::dispatched, Recorder::transferred, Recorder::persisted] {
            pass(&recorder, &[b]);
            pass(&recorder, &[a]);
            pass(&recorder, &[c]);
        }
        let counts = recorder.check().unwrap();
        let four = Counts { issued: 4, dispatched: 4, transferred: 4, persisted: 4, failed: 0, checked: 9 };
        assert_eq!(counts, four);
        assert_eq!(recorder.retained(), 0);
    }

    #[test]
    fn i_equals_d_is_checked() {
        let recorder = Recorder::new();
        let (first, second) = (in_epoch(&recorder, 1), in_epoch(&recorder, 2));
        recorder.dispatched(&[second]);
        let expected = Violation::Overtaken {
            layer: Layer::Dispatch,
            stream: STREAM,
            earlier: first.request,
            earlier_epoch: Epoch(1),
            later: second.request,
            later_epoch: Epoch(2),
        };
        assert_eq!(recorder.check(), Err(expected));
        let text =
            "I = D is broken at dispatch: request 1 of epoch 2 passed before request 0 of epoch 1 (stream 0)";
        assert_eq!(expected.to_string(), text);
    }

    #[test]
    fn d_equals_x_is_checked() {
        let recorder = Recorder::new();
        let (first, second) = (in_epoch(&recorder, 1), in_epoch(&recorder, 2));
        recorder.dispatched(&[first]);
        recorder.dispatched(&[second]);
        recorder.check().unwrap();
        recorder.transferred(&[second]);
        assert_eq!(broken_layer(&recorder), Some(Layer::Transfer));
    }

    #[test]
    fn x_equals_p_is_checked() {
        let recorder = Recorder::new();
        let (first, second) = (in_epoch(&recorder, 1), in_epoch(&recorder, 2));
        recorder.transferred(&[first]);
        recorder.transferred(&[second]);
        recorder.check().unwrap();
        recorder.persisted(&[second]);
        assert_eq!(broken_layer(&recorder), Some(Layer::Persist));
    }

    #[test]
    fn streams_have_no_order_between_them_and_merged_requests_pass_together() {
        let recorder = Recorder::new();
        let first = in_epoch(&recorder, 1);
        let other = issue(&recorder, Order::Epoch(StreamId(9), Epoch(5)));
        recorder.persisted(&[other]);
        let second = in_epoch(&recorder, 2);
        recorder.persisted(&[second, first]);
        recorder.check().unwrap();
    }

    #[test]
    fn a_failed_request_holds_nothing_back() {
        let recorder = Recorder::new();
        let (first, second) = (in_epoch(&recorder, 1), in_epoch(&recorder, 2));
        recorder.dispatched(&[first]);
        recorder.failed(&[first]);
        recorder.persisted(&[second]);
        assert_eq!(recorder.check().unwrap().failed, 1);
    }

    #[test]
    fn a_promoted_request_gains_an_edge() {
        let recorder = Recorder::new();
        let free = issue(&recorder, Order::Orderless);
        let promoted = Tag { order: Order::Epoch(STREAM, Epoch(1)), ..free };
        recorder.dispatched(&[free]);
        recorder.issued(promoted);
        let second = in_epoch(&recorder, 2);
        recorder.dispatched(&[second]);
        recorder.check().unwrap();
        recorder.transferred(&[second]);
        assert_eq!(broken_layer(&recorder), Some(Layer::Transfer));
    }

    #[test]
    fn a_closed_epoch_takes_no_request() {
        let recorder = Recorder::new();
        in_epoch(&recorder, 2);
        in_epoch(&recorder, 1);
        assert!(matches!(recorder.check(), Err(Violation::EpochClosed { .. })));
    }

    #[test]
    fn a_prefix_device_keeps_the_order_of_receipt() {
        for (prefix, legal) in [(false, true), (true, false)] {
            let recorder = Recorder::with(prefix, 10);
            let (first, second) = (in_epoch(&recorder, 1), in_epoch(&recorder, 2));
            recorder.dispatched(&[first]);
            recorder.transferred(&[second]);
            assert_eq!(recorder.check().is_ok(), prefix);
            recorder.persisted(&[first]);
            recorder.persisted(&[second]);
            assert_eq!(recorder.check().is_ok(), prefix);

            let recorder = Recorder::with(prefix, 10);
            let (a, b) = (issue(&recorder, Order::Orderless), issue(&recorder, Order::Orderless));
            recorder.dispatched(&[a]);
            recorder.dispatched(&[b]);
            recorder.persisted(&[b]);
            assert_eq!(recorder.check().is_ok(), legal);
        }
    }

    #[test]
    fn strangers_and_floods_are_reported() {
        let recorder = Recorder::with(false, 1);
        let tag = Tag { request: RequestId(7), order: Order::Orderless };
        recorder.dispatched(&[tag]);
        assert!(matches!(recorder.check(), Err(Violation::NeverIssued { .. })));

        let recorder = Recorder::with(false, 1);
        issue(&recorder, Order::Orderless);
        issue(&recorder, Order::Orderless);
        assert_eq!(recorder.check(), Err(Violation::TooMany { limit: 1 }));
    }
}
