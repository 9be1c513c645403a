//! Requests to a store, repeated while it does not answer, and counted.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, select};
use tracing::warn;
use weir_runtime::{Handle, Instant};

use crate::error::ReplicaError;
use crate::store::{Creation, ObjectStore, Reply, StoreError};

/// How long after a failure a request is repeated: twice as long each time, between these.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// How long an answer is waited for where a request is not repeated.
const ASKED_ONCE: Duration = Duration::from_secs(5);

/// Requests to a store so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// Objects that it was asked to create.
    pub creations: u64,
    /// Objects that it was asked for.
    pub reads: u64,
    /// Lists.
    pub lists: u64,
    /// Deletions.
    pub deletions: u64,
    /// Of all these, those that failed and were repeated.
    pub repeated: u64,
    /// Bytes of created objects.
    pub bytes_created: u64,
    /// Bytes that were read.
    pub bytes_read: u64,
}

/// What became of an object that was to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Placed {
    /// It is there, with these bytes.
    Ours,
    /// Another one is there.
    Taken(Bytes),
}

/// A store as the parts of a replica use it.
pub(crate) struct Access {
    handle: Handle,
    store: Rc<dyn ObjectStore>,
    /// How long a request is repeated; forever if that is not told.
    patience: Cell<Option<Duration>>,
    requests: Cell<Requests>,
    /// Why the newest request failed, until one succeeds.
    trouble: RefCell<Option<StoreError>>,
}

impl Access {
    pub(crate) fn new(handle: &Handle, store: Rc<dyn ObjectStore>, patience: Option<Duration>) -> Access {
        let (requests, trouble) = (Cell::default(), RefCell::default());
        Access { handle: handle.clone(), store, patience: Cell::new(patience), requests, trouble }
    }

    /// Sets how long later requests are repeated: zero is not at all, `None` is without end.
    pub(crate) fn set_patience(&self, patience: Option<Duration>) {
        self.patience.set(patience);
    }

    pub(crate) fn requests(&self) -> Requests {
        self.requests.get()
    }

    pub(crate) fn trouble(&self) -> Option<StoreError> {
        self.trouble.borrow().clone()
    }

    fn count(&self, count: impl FnOnce(&mut Requests)) {
        let mut requests = self.requests.get();
        count(&mut requests);
        self.requests.set(requests);
    }

    /// The answer to a request, or that none came.
    async fn answer<T>(&self, began: Instant, request: Reply<T>) -> Result<T, StoreError> {
        let Some(most) = self.patience.get() else { return request.await };
        let most = if most.is_zero() { ASKED_ONCE } else { most };
        let over = pin!(self.handle.sleep_until(began + most));
        match select(request, over).await {
            Either::Left((answer, _)) => answer,
            Either::Right(_) => Err(StoreError::Unreachable(format!(
                "a request has no answer after {} s",
                most.as_secs_f32()
            ))),
        }
    }

    /// Sends a request until the store answers, or patience is over. What it did not answer it may carry out later.
    async fn repeat<T>(&self, mut request: impl FnMut() -> Reply<T>) -> Result<T, StoreError> {
        let began = self.handle.now();
        let mut pause = PAUSE_MIN;
        loop {
            let error = match self.answer(began, request()).await {
                Ok(answer) => {
                    self.trouble.replace(None);
                    return Ok(answer);
                }
                Err(error) => error,
            };
            let spent = self.handle.now().since(began);
            let is_over = self.patience.get().is_some_and(|most| spent + pause >= most);
            if !error.is_transient() || is_over {
                return Err(error);
            }
            if self.trouble.replace(Some(error.clone())).is_none() {
                warn!(%error, "a request to the store failed, and is repeated");
            }
            self.count(|requests| requests.repeated += 1);
            self.handle.sleep(pause).await;
            pause = (2 * pause).min(PAUSE_MAX);
        }
    }

    /// Creates an object, once, however often the request is sent: an answer may be lost.
    pub(crate) async fn create(&self, key: &str, bytes: Bytes) -> Result<Placed, StoreError> {
        let size = bytes.len() as u64;
        let created = self.repeat(|| {
            self.count(|requests| {
                requests.creations += 1;
                requests.bytes_created += size;
            });
            self.store.create(key, bytes.clone())
        });
        if created.await? == Creation::Created {
            return Ok(Placed::Ours);
        }
        let found = self.get(key).await?;
        Ok(if found == bytes { Placed::Ours } else { Placed::Taken(found) })
    }

    /// Asks once for an object that is there already to be created. Whether the store refuses.
    pub(crate) async fn refuses_second(&self, key: &str, bytes: Bytes) -> Result<bool, StoreError> {
        let answer = self.repeat(|| {
            self.count(|requests| requests.creations += 1);
            self.store.create(key, bytes.clone())
        });
        Ok(answer.await? == Creation::Exists)
    }

    pub(crate) async fn get(&self, key: &str) -> Result<Bytes, StoreError> {
        let answer = self.repeat(|| {
            self.count(|requests| requests.reads += 1);
            self.store.get(key)
        });
        let bytes = answer.await?;
        self.count(|requests| requests.bytes_read += bytes.len() as u64);
        Ok(bytes)
    }

    /// Bytes of an object, as [`ObjectStore::get_range`] has it.
    pub(crate) async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        let answer = self.repeat(|| {
            self.count(|requests| requests.reads += 1);
            self.store.get_range(key, range.clone())
        });
        let bytes = answer.await?;
        self.count(|requests| requests.bytes_read += bytes.len() as u64);
        Ok(bytes)
    }

    /// The object, if there is one.
    pub(crate) async fn find(&self, key: &str) -> Result<Option<Bytes>, ReplicaError> {
        match self.get(key).await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(StoreError::Missing(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) async fn list(&self, prefix: &str, after: &str) -> Result<Vec<String>, StoreError> {
        let answer = self.repeat(|| {
            self.count(|requests| requests.lists += 1);
            self.store.list(prefix, after)
        });
        answer.await
    }

    pub(crate) async fn delete(&self, key: &str) -> Result<(), StoreError> {
        let answer = self.repeat(|| {
            self.count(|requests| requests.deletions += 1);
            self.store.delete(key)
        });
        answer.await
    }
}
