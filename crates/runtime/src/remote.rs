//! A runtime as other threads see it.

use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

use crate::ready::ReadyQueue;
use crate::{Handle, RemoteError};

/// A runtime as other threads see it.
#[derive(Clone, Debug)]
pub struct Remote(Arc<ReadyQueue>);

impl Remote {
    pub(crate) fn new(ready: Arc<ReadyQueue>) -> Self {
        Remote(ready)
    }

    /// Makes the runtime's loop go round once more, waking it if it is parked.
    pub fn wake(&self) {
        self.0.notify();
    }

    /// Has the runtime's thread call `start` and spawn the future it returns.
    ///
    /// # Errors
    ///
    /// [`RemoteError::Full`] when 1,024 such calls wait unread, [`RemoteError::Closed`] when the runtime is
    /// gone.
    pub fn spawn<F>(&self, start: impl FnOnce(&Handle) -> F + Send + 'static) -> Result<(), RemoteError>
    where
        F: Future<Output = ()> + 'static,
    {
        self.0.send(Box::new(move |executor| {
            let handle = Handle(Rc::clone(executor));
            let future = start(&handle);
            handle.spawn(future);
        }))
    }
}
