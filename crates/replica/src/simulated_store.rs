//! A store in virtual time that does the worst that the contract allows: it is slow, carries requests out and loses the answers,
//! carries them out twice, lists what is not the newest, and refuses for an hour.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use weir_runtime::{Handle, Instant, Random};

use crate::store::{Creation, ObjectStore, Reply, StoreError};

/// The objects of a store by their keys.
pub type Objects = BTreeMap<String, Bytes>;

/// What a simulated store does wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreFaults {
    /// Longest time until a request is carried out, and until its answer comes.
    pub delay_max: Duration,
    /// Of 64 requests, so many are carried out, and their answers lost.
    pub lost_answers: u64,
    /// Of 64 requests, so many are not carried out.
    pub lost_requests: u64,
    /// Of 64 creations, so many are carried out again later.
    pub repeated: u64,
    /// A list may lack objects that are younger.
    pub list_age: Duration,
    /// It replaces objects that are there.
    pub ignores_condition: bool,
}

/// An object, and when it was made.
type Aged = (Bytes, Instant);

struct Inner {
    handle: Handle,
    faults: Cell<StoreFaults>,
    random: RefCell<Random>,
    objects: RefCell<BTreeMap<String, Aged>>,
    /// Objects that no list has.
    left_out: RefCell<BTreeSet<String>>,
    /// Until then nothing is answered.
    down_until: Cell<Instant>,
    /// Requests get no answer at all.
    is_silent: Cell<bool>,
    /// Called after each change of an object.
    observer: RefCell<Option<Box<dyn Fn()>>>,
}

/// A store in virtual time.
#[derive(Clone)]
pub struct SimulatedStore(Rc<Inner>);

impl SimulatedStore {
    /// An empty store.
    #[must_use]
    pub fn new(handle: &Handle, faults: StoreFaults) -> SimulatedStore {
        SimulatedStore::from_objects(handle, faults, &Objects::new())
    }

    /// A store with these objects.
    #[must_use]
    pub fn from_objects(handle: &Handle, faults: StoreFaults, objects: &Objects) -> SimulatedStore {
        let of_old = |(key, bytes): (&String, &Bytes)| (key.clone(), (bytes.clone(), Instant::ZERO));
        SimulatedStore(Rc::new(Inner {
            handle: handle.clone(),
            faults: Cell::new(faults),
            random: RefCell::new(handle.random("object store")),
            objects: RefCell::new(objects.iter().map(of_old).collect()),
            left_out: RefCell::default(),
            down_until: Cell::new(Instant::ZERO),
            is_silent: Cell::new(false),
            observer: RefCell::default(),
        }))
    }

    /// What it holds now.
    #[must_use]
    pub fn objects(&self) -> Objects {
        self.0.objects.borrow().iter().map(|(key, (bytes, _))| (key.clone(), bytes.clone())).collect()
    }

    /// Replaces or deletes an object, as damage does.
    pub fn damage(&self, key: &str, bytes: Option<&[u8]>) {
        let mut objects = self.0.objects.borrow_mut();
        match bytes {
            Some(bytes) => {
                drop(objects.insert(key.to_owned(), (Bytes::copy_from_slice(bytes), Instant::ZERO)))
            }
            None => drop(objects.remove(key)),
        }
    }

    /// Lists lack these objects, and no others that were left out before.
    pub fn leave_out(&self, keys: impl IntoIterator<Item = String>) {
        self.0.left_out.replace(keys.into_iter().collect());
    }

    /// It answers nothing for so long.
    pub fn go_down(&self, duration: Duration) {
        self.0.down_until.set(self.0.handle.now() + duration);
    }

    /// Requests that are made from here on get no answer, not even that it failed; or, with `false`, they do again.
    pub fn fall_silent(&self, is_silent: bool) {
        self.0.is_silent.set(is_silent);
    }

    /// Calls `observer` after each change of an object.
    pub fn observe(&self, observer: impl Fn() + 'static) {
        self.0.observer.replace(Some(Box::new(observer)));
    }

    /// Carries a request out in a task of its own, as it goes on if nobody waits for the answer.
    fn request<T: 'static>(
        &self,
        carry_out: impl FnOnce(&Inner) -> Result<T, StoreError> + 'static,
    ) -> Reply<T> {
        if self.0.is_silent.get() {
            return Box::pin(std::future::pending());
        }
        let inner = Rc::clone(&self.0);
        let task = self.0.handle.spawn(async move {
            let StoreFaults { lost_answers, lost_requests, .. } = inner.faults.get();
            inner.wait().await;
            if inner.chance(lost_requests) || inner.handle.now() < inner.down_until.get() {
                return Err(StoreError::Unreachable("the request was lost".to_owned()));
            }
            let answer = carry_out(&inner);
            inner.wait().await;
            if inner.chance(lost_answers) {
                return Err(StoreError::Unreachable("the answer was lost".to_owned()));
            }
            answer
        });
        let gone = |_| Err(StoreError::Unreachable("the store has ended".to_owned()));
        Box::pin(async move { task.await.unwrap_or_else(gone) })
    }
}

impl Inner {
    fn chance(&self, of_64: u64) -> bool {
        of_64 > 0 && self.random.borrow_mut().below(64) < of_64
    }

    async fn wait(&self) {
        let most = u64::try_from(self.faults.get().delay_max.as_nanos()).unwrap_or(u64::MAX);
        if most > 0 {
            let nanos = self.random.borrow_mut().below(most) + 1;
            self.handle.sleep(Duration::from_nanos(nanos)).await;
        }
    }

    fn create(&self, key: &str, bytes: &Bytes) -> Creation {
        let exists = self.objects.borrow().contains_key(key);
        if exists && !self.faults.get().ignores_condition {
            return Creation::Exists;
        }
        let now = self.handle.now();
        self.objects.borrow_mut().insert(key.to_owned(), (bytes.clone(), now));
        self.changed();
        Creation::Created
    }

    fn changed(&self) {
        if let Some(observer) = &*self.observer.borrow() {
            observer();
        }
    }
}

impl ObjectStore for SimulatedStore {
    fn create(&self, key: &str, bytes: Bytes) -> Reply<Creation> {
        let key = key.to_owned();
        if self.0.chance(self.0.faults.get().repeated) {
            let (inner, key, bytes) = (Rc::clone(&self.0), key.clone(), bytes.clone());
            self.0.handle.spawn(async move {
                inner.wait().await;
                inner.wait().await;
                inner.wait().await;
                inner.create(&key, &bytes);
            });
        }
        self.request(move |inner| Ok(inner.create(&key, &bytes)))
    }

    fn get(&self, key: &str) -> Reply<Bytes> {
        let key = key.to_owned();
        self.request(move |inner| {
            let objects = inner.objects.borrow();
            let found = objects.get(&key).map(|(bytes, _)| bytes.clone());
            found.ok_or(StoreError::Missing(key))
        })
    }

    fn get_range(&self, key: &str, range: Range<u64>) -> Reply<Bytes> {
        let key = key.to_owned();
        self.request(move |inner| {
            let objects = inner.objects.borrow();
            let Some((bytes, _)) = objects.get(&key) else { return Err(StoreError::Missing(key)) };
            let range = range.start as usize..range.end as usize;
            let found = (range.start <= range.end && range.end <= bytes.len()).then(|| bytes.slice(range));
            found.ok_or_else(|| StoreError::Refused(format!("{key} has no such bytes")))
        })
    }

    fn list(&self, prefix: &str, after: &str) -> Reply<Vec<String>> {
        let (prefix, after) = (prefix.to_owned(), after.to_owned());
        self.request(move |inner| {
            let age = inner.faults.get().list_age;
            let now = inner.handle.now();
            // One moment for the whole list: what is older is in it, and of what is younger nothing, or some with holes between.
            let nanos = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
            let random = &mut *inner.random.borrow_mut();
            let hidden = Duration::from_nanos(random.below(nanos + 1));
            let has_holes = nanos > 0 && random.below(2) == 0;
            let objects = inner.objects.borrow();
            let keys = objects.iter().filter(|(key, (_, made))| {
                let old = *made == Instant::ZERO || now.since(*made) >= hidden;
                let is_asked_for = key.starts_with(&prefix) && **key > after;
                let is_left_out = inner.left_out.borrow().contains(*key);
                is_asked_for && !is_left_out && (old || has_holes && random.below(2) == 0)
            });
            Ok(keys.map(|(key, _)| key.clone()).collect())
        })
    }

    fn list_page(&self, prefix: &str, after: &str, most: usize) -> Reply<Vec<String>> {
        let listed = self.list(prefix, after);
        Box::pin(async move {
            let mut keys = listed.await?;
            keys.truncate(most);
            Ok(keys)
        })
    }

    fn delete(&self, key: &str) -> Reply<()> {
        let key = key.to_owned();
        self.request(move |inner| {
            if inner.objects.borrow_mut().remove(&key).is_some() {
                inner.changed();
            }
            Ok(())
        })
    }
}
