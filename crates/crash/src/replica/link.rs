//! The way of one machine to the store: while it is cut, requests wait, and are made when it is mended.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use bytes::Bytes;
use weir_replica::{Creation, ObjectStore, Reply, SimulatedStore};
use weir_runtime::Event;

/// A store, seen through the link.
#[derive(Clone)]
pub(super) struct Link {
    store: SimulatedStore,
    state: Rc<(Cell<bool>, Event)>,
}

impl Link {
    pub(super) fn new(store: SimulatedStore) -> Link {
        Link { store, state: Rc::new((Cell::new(false), Event::new())) }
    }

    /// Cuts it, for requests that are made from here on.
    pub(super) fn cut(&self) {
        self.state.0.set(true);
    }

    /// Mends it.
    pub(super) fn mend(&self) {
        self.state.0.set(false);
        self.state.1.notify(usize::MAX);
    }

    /// Makes a request, when the link is not cut.
    fn request<T: 'static>(&self, make: impl FnOnce(&SimulatedStore) -> Reply<T> + 'static) -> Reply<T> {
        let link = self.clone();
        Box::pin(async move {
            let (is_cut, mended) = &*link.state;
            while is_cut.get() {
                mended.listen().await;
            }
            make(&link.store).await
        })
    }
}

impl ObjectStore for Link {
    fn create(&self, key: &str, bytes: Bytes) -> Reply<Creation> {
        let key = key.to_owned();
        self.request(move |store| store.create(&key, bytes))
    }

    fn get(&self, key: &str) -> Reply<Bytes> {
        let key = key.to_owned();
        self.request(move |store| store.get(&key))
    }

    fn get_range(&self, key: &str, range: Range<u64>) -> Reply<Bytes> {
        let key = key.to_owned();
        self.request(move |store| store.get_range(&key, range))
    }

    fn list(&self, prefix: &str, after: &str) -> Reply<Vec<String>> {
        let (prefix, after) = (prefix.to_owned(), after.to_owned());
        self.request(move |store| store.list(&prefix, &after))
    }

    fn delete(&self, key: &str) -> Reply<()> {
        let key = key.to_owned();
        self.request(move |store| store.delete(&key))
    }
}
