//! Waiting for an object store: what `fsync` does besides where it promises that ([`SyncMode::Remote`](crate::SyncMode::Remote)).

use std::fmt;
use std::rc::Rc;

use futures_util::future::LocalBoxFuture;

/// Waits until the object store has everything that was written before; whether it has.
#[derive(Clone)]
pub struct RemoteSync(Rc<dyn Fn() -> LocalBoxFuture<'static, bool>>);

impl RemoteSync {
    /// That of a store, for which `wait` waits: it makes everything durable here that was written before, and says whether the store
    /// has it, too.
    pub fn new(wait: impl AsyncFn() -> bool + Clone + 'static) -> RemoteSync {
        RemoteSync(Rc::new(move || {
            let wait = wait.clone();
            Box::pin(async move { wait().await })
        }))
    }

    pub(crate) async fn wait(&self) -> bool {
        (self.0)().await
    }
}

impl fmt::Debug for RemoteSync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RemoteSync")
    }
}
