//! Requests to a store, repeated while it does not answer, and counted.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::pending;
use std::mem::discriminant;
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, select};
use tracing::warn;
use weir_runtime::{Event, Handle, Instant};

use crate::error::ReplicaError;
use crate::store::{Creation, ObjectStore, Reply, StoreError};

/// How long after a failure a request is repeated: twice as long each time, between these.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// How long an answer is waited for where a request is not repeated.
const ASKED_ONCE: Duration = Duration::from_secs(5);

/// A request that has no answer for so long is told of, though it has not failed.
const SILENT_AFTER: Duration = Duration::from_secs(5);

/// Keys that a store lists by one request.
const LISTED_AT_ONCE: usize = 1000;

/// Requests to a store so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// Objects that it was asked to create.
    pub creations: u64,
    /// Objects that it was asked for.
    pub reads: u64,
    /// Lists: one for each 1,000 keys that were listed.
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
    /// What the store refuses is repeated as well.
    repeats_refusals: Cell<bool>,
    requests: Cell<Requests>,
    /// Why the newest request failed, until one succeeds.
    trouble: RefCell<Option<StoreError>>,
    /// When the requests that are under way began, by their numbers.
    under_way: RefCell<BTreeMap<u64, Instant>>,
    last_number: Cell<u64>,
    /// The requests that are under way are to look at the patience anew.
    patience_changed: Event,
}

/// A request, from when it is sent first until it is answered.
struct UnderWay<'a> {
    access: &'a Access,
    number: u64,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.access.under_way.borrow_mut().remove(&self.number);
    }
}

impl Access {
    pub(crate) fn new(handle: &Handle, store: Rc<dyn ObjectStore>, patience: Option<Duration>) -> Access {
        Access {
            handle: handle.clone(),
            store,
            patience: Cell::new(patience),
            repeats_refusals: Cell::default(),
            requests: Cell::default(),
            trouble: RefCell::default(),
            under_way: RefCell::default(),
            last_number: Cell::default(),
            patience_changed: Event::new(),
        }
    }

    /// Sets how long later requests are repeated: zero is not at all, `None` is without end.
    pub(crate) fn set_patience(&self, patience: Option<Duration>) {
        self.patience.set(patience);
    }

    /// Has later requests repeated, too, that the store refuses.
    pub(crate) fn repeat_refusals(&self) {
        self.repeats_refusals.set(true);
    }

    /// The same, also of requests that are under way.
    pub(crate) fn reset_patience(&self, patience: Option<Duration>) {
        self.set_patience(patience);
        self.patience_changed.notify(usize::MAX);
    }

    pub(crate) fn requests(&self) -> Requests {
        self.requests.get()
    }

    /// Why the store is asked again, or for how long it has not answered.
    pub(crate) fn trouble(&self) -> Option<StoreError> {
        let waits = self.longest_wait();
        let silent = || StoreError::Unreachable(format!("a request has no answer for {} s", waits.as_secs()));
        self.trouble.borrow().clone().or_else(|| (waits >= SILENT_AFTER).then(silent))
    }

    /// How long the oldest request has been waiting for its answer, however often it was sent.
    pub(crate) fn longest_wait(&self) -> Duration {
        let oldest = self.under_way.borrow().values().next().copied();
        oldest.map_or(Duration::ZERO, |began| self.handle.now().since(began))
    }

    fn note_request(&self) -> (Instant, UnderWay<'_>) {
        let (number, began) = (self.last_number.get() + 1, self.handle.now());
        self.last_number.set(number);
        self.under_way.borrow_mut().insert(number, began);
        (began, UnderWay { access: self, number })
    }

    fn count(&self, count: impl FnOnce(&mut Requests)) {
        let mut requests = self.requests.get();
        count(&mut requests);
        self.requests.set(requests);
    }

    /// The answer to a request, or that none came while there was patience.
    async fn answer<T>(
        &self,
        began: Instant,
        request: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let mut request = pin!(request);
        loop {
            let changed = self.patience_changed.listen();
            let most = self.patience.get().map(|most| if most.is_zero() { ASKED_ONCE } else { most });
            let over = async {
                match most {
                    Some(most) => self.handle.sleep_until(began + most).await,
                    None => pending().await,
                }
            };
            match select(request.as_mut(), select(pin!(over), changed)).await {
                Either::Left((answer, _)) => return answer,
                Either::Right((Either::Right(_), _)) => {}
                Either::Right((Either::Left(_), _)) => {
                    let waited = self.handle.now().since(began).as_secs_f32();
                    let what = format!("a request has no answer after {waited} s");
                    return Err(StoreError::Unreachable(what));
                }
            }
        }
    }

    /// Sends a request until the store answers, or patience is over. What it did not answer it may carry out later.
    async fn repeat<T, F>(&self, request: impl FnMut() -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let is_repeated =
            |error: &StoreError| error.is_transient() || self.repeats_refusals.get() && error.is_refusal();
        self.repeat_if(is_repeated, request).await
    }

    /// The same, after these errors.
    async fn repeat_if<T, F>(
        &self,
        is_repeated: impl Fn(&StoreError) -> bool,
        mut request: impl FnMut() -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let (began, _under_way) = self.note_request();
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
            let left = self.patience.get().map(|most| most.saturating_sub(spent));
            let is_over = left.is_some_and(|left| left <= PAUSE_MIN);
            if !is_repeated(&error) || is_over {
                return Err(error);
            }
            let before = self.trouble.replace(Some(error.clone()));
            if before.is_none_or(|before| discriminant(&before) != discriminant(&error)) {
                warn!(
                    name: "store_request_repeated",
                    %error, "a request to the store failed, and is repeated"
                );
            }
            self.count(|requests| requests.repeated += 1);
            // Pauses become short towards the end: a store that comes back before it is seen.
            let pause_max = left.map_or(PAUSE_MAX, |left| (left / 2).max(PAUSE_MIN));
            self.handle.sleep(pause.min(pause_max)).await;
            pause = (2 * pause).min(PAUSE_MAX);
        }
    }

    /// Creates an object, once, however often the request is sent: an answer may be lost.
    pub(crate) async fn create(&self, key: &str, bytes: Bytes) -> Result<Placed, StoreError> {
        self.repeat(|| self.create_once(key, &bytes)).await
    }

    async fn create_once(&self, key: &str, bytes: &Bytes) -> Result<Placed, StoreError> {
        self.count(|requests| {
            requests.creations += 1;
            requests.bytes_created += bytes.len() as u64;
        });
        if self.store.create(key, bytes.clone()).await? == Creation::Created {
            return Ok(Placed::Ours);
        }
        self.count(|requests| requests.reads += 1);
        match self.store.get(key).await {
            Ok(found) => {
                self.count(|requests| requests.bytes_read += found.len() as u64);
                Ok(if found == *bytes { Placed::Ours } else { Placed::Taken(found) })
            }
            // S3 answers so (409) to two creations at one time, of which one may fail.
            Err(StoreError::Missing(_)) => {
                Err(StoreError::Unreachable(format!("it has no object {key}, and says that there is one")))
            }
            Err(error) => Err(error),
        }
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
        self.list_by(|| self.store.list(prefix, after)).await
    }

    /// Lists the first of these keys: those of one request to a bucket, or all.
    pub(crate) async fn list_page(&self, prefix: &str, after: &str) -> Result<Vec<String>, StoreError> {
        self.list_by(|| self.store.list_page(prefix, after, LISTED_AT_ONCE)).await
    }

    async fn list_by(&self, list: impl Fn() -> Reply<Vec<String>>) -> Result<Vec<String>, StoreError> {
        let answer = self.repeat(|| {
            self.count(|requests| requests.lists += 1);
            list()
        });
        let keys = answer.await?;
        // The first page was counted, and one that is empty is not asked for.
        let more = keys.len().saturating_sub(1) / LISTED_AT_ONCE;
        self.count(|requests| requests.lists += more as u64);
        Ok(keys)
    }

    /// Deletes an object. That is not repeated if the store refuses: nothing waits for the room.
    pub(crate) async fn delete(&self, key: &str) -> Result<(), StoreError> {
        let answer = self.repeat_if(StoreError::is_transient, || {
            self.count(|requests| requests.deletions += 1);
            self.store.delete(key)
        });
        answer.await
    }
}
