//! A *change event*: it wakes tasks that wait for a change. While no task waits, to note a change costs a comparison.

use std::cell::Cell;

use weir_runtime::Event;

/// Something that changes, and the tasks that wait for that.
#[derive(Default)]
pub(crate) struct ChangeEvent {
    waiting: Cell<u32>,
    event: Event,
}

impl ChangeEvent {
    /// Something has changed.
    pub(crate) fn note(&self) {
        if self.waiting.get() > 0 {
            self.event.notify(usize::MAX);
        }
    }

    /// Waits for the next change.
    pub(crate) async fn next(&self) {
        let _waiting = Waiting::new(&self.waiting);
        self.event.listen().await;
    }
}

/// Counts a caller that waits, until dropped.
struct Waiting<'a>(&'a Cell<u32>);

impl Waiting<'_> {
    fn new(count: &Cell<u32>) -> Waiting<'_> {
        count.set(count.get() + 1);
        Waiting(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}
