//! Writes, discards and shares that are followed until they are committed: for the recorder, or to be answered then.

use std::rc::Rc;

use weir_storage::{Completer, Recorder, Tag};

use crate::cache::Owner;

struct Request {
    tags: Vec<Tag>,
    /// Blocks that are not committed yet.
    left: usize,
    /// A discard or a share, answered when it is committed.
    answer: Option<Completer>,
}

/// All that are followed.
pub(crate) struct Requests {
    recorder: Option<Rc<Recorder>>,
    /// What is transferred is durable: capacitors save it.
    protected: bool,
    requests: Vec<Request>,
    unused: Vec<u32>,
    /// Committed and not yet reported to the recorder.
    persisted: Vec<Tag>,
    answers: Vec<Completer>,
}

impl Requests {
    pub(crate) fn new(recorder: Option<Rc<Recorder>>, protected: bool) -> Requests {
        let (requests, unused, persisted, answers) = Default::default();
        Requests { recorder, protected, requests, unused, persisted, answers }
    }

    /// Whether somebody wants to know what becomes of every write.
    pub(crate) fn are_recorded(&self) -> bool {
        self.recorder.is_some()
    }

    /// Remembers a request of `left` blocks, where somebody wants to know what becomes of it.
    pub(crate) fn follow(&mut self, tags: Vec<Tag>, left: usize, answer: Option<Completer>) -> Owner {
        if tags.is_empty() && answer.is_none() {
            return None;
        }
        let request = Request { tags, left, answer };
        Some(match self.unused.pop() {
            Some(id) => {
                self.requests[id as usize] = request;
                id
            }
            None => {
                self.requests.push(request);
                (self.requests.len() - 1) as u32
            }
        })
    }

    pub(crate) fn transferred(&self, owner: Owner) {
        let (Some(recorder), Some(owner)) = (&self.recorder, owner) else { return };
        let tags = &self.requests[owner as usize].tags;
        recorder.transferred(tags);
        if self.protected {
            recorder.persisted(tags);
        }
    }

    /// One of a request's blocks is committed.
    pub(crate) fn block_committed(&mut self, id: u32) {
        let request = &mut self.requests[id as usize];
        request.left -= 1;
        if request.left == 0 {
            self.persisted.append(&mut request.tags);
            self.answers.extend(request.answer.take());
            self.unused.push(id);
        }
    }

    /// Tells the recorder which requests are committed since the last call, and returns those that are answered only then.
    pub(crate) fn committed(&mut self) -> Vec<Completer> {
        if let Some(recorder) = self.recorder.as_ref().filter(|_| !self.persisted.is_empty()) {
            recorder.persisted(&self.persisted);
        }
        self.persisted.clear();
        std::mem::take(&mut self.answers)
    }
}
