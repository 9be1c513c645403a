//! Reports to the order recorder: X at a write's completion, P at the flush that covers it.

use std::cell::RefCell;
use std::rc::Rc;

use crate::command::{Command, Tag};
use crate::recorder::Recorder;

/// The recorder, if there is one, and what it has seen transferred but not persisted.
#[derive(Default)]
pub(super) struct Orders {
    recorder: RefCell<Option<Rc<Recorder>>>,
    /// Bounded by the recorder: the requests it retains, and nothing once it has given up.
    unflushed: RefCell<Vec<Tag>>,
}

impl Orders {
    pub(super) fn set_recorder(&self, recorder: Rc<Recorder>) {
        *self.recorder.borrow_mut() = Some(recorder);
    }

    /// The tags to keep for a command in flight: none, and no memory, without a recorder.
    pub(super) fn tags(&self, command: &Command<'_>) -> Vec<Tag> {
        match command {
            Command::Write(write) if self.recorder.borrow().is_some() => write.tags.to_vec(),
            _ => Vec::new(),
        }
    }

    /// A command has ended: transferred, with FUA persisted too, or failed.
    pub(super) fn ended(&self, tags: &[Tag], fua: bool, succeeded: bool) {
        let recorder = self.recorder.borrow();
        let Some(recorder) = recorder.as_ref().filter(|_| !tags.is_empty()) else { return };
        if !succeeded {
            return recorder.failed(tags);
        }
        recorder.transferred(tags);
        if fua {
            recorder.persisted(tags);
        } else if recorder.check().is_ok() {
            self.unflushed.borrow_mut().extend_from_slice(tags);
        }
    }

    /// What a flush that starts now covers: everything transferred before (S2).
    pub(super) fn covered(&self) -> Vec<Tag> {
        self.unflushed.take()
    }

    /// A flush has made `tags` durable.
    pub(super) fn persisted(&self, tags: &[Tag]) {
        if let Some(recorder) = self.recorder.borrow().as_ref().filter(|_| !tags.is_empty()) {
            recorder.persisted(tags);
        }
    }
}
