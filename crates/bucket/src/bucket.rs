//! A *bucket*: a store that other programs serve, asked by a thread with a tokio runtime.

use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use futures_util::future::BoxFuture;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions};
use weir_replica::{Creation, Reply, StoreError};
use weir_runtime::{Handle, Receiver, Sender, channel};

use crate::answer::store_error;
use crate::place::{Place, PlaceError};
use crate::root::Root;

/// Requests that wait for the thread at most; more wait for room.
const WAITING_MAX: usize = 64;

type Store = Arc<dyn ObjectStore>;
type Job = Box<dyn FnOnce(Store) -> BoxFuture<'static, ()> + Send>;

/// A store of objects elsewhere. Dropping it ends its thread.
pub struct Bucket {
    jobs: Sender<Job>,
    /// Objects are replaced, as the store knows no condition.
    unfenced: bool,
    /// That of a directory.
    root: Option<Arc<Root>>,
}

impl Bucket {
    /// Prepares requests to a place. With `unfenced`, objects that are there are replaced.
    ///
    /// # Errors
    /// [`PlaceError`] if there is no such directory, or the environment's settings are wrong. The store is not asked.
    pub fn open(handle: &Handle, place: &Place, unfenced: bool) -> Result<Bucket, PlaceError> {
        let (store, root) = place.open_store()?;
        let (jobs, received) = channel(WAITING_MAX);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|_| PlaceError::NoThread)?;
        // The thread ends when the last sender is gone.
        let thread = handle.blocking(move || runtime.block_on(serve(store, received)));
        drop(handle.spawn(async move { thread.await.is_ok() }));
        Ok(Bucket { jobs, unfenced, root })
    }

    /// Has the thread carry out a request. Of a directory the answer counts only if it is the same one before and after.
    fn request<T, F>(&self, request: impl FnOnce(Store) -> F + Send + 'static) -> Reply<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let (answer, answered) = channel(1);
        let root = self.root.clone();
        let require_same = move || root.as_ref().map_or(Ok(()), |root| root.require_same());
        let job: Job = Box::new(move |store| {
            Box::pin(async move {
                let outcome = async {
                    require_same()?;
                    let outcome = request(store).await;
                    require_same().and(outcome)
                };
                let outcome = outcome.await;
                // If the caller has gone, the answer is dropped.
                let _ = answer.try_send(outcome);
            })
        });
        let jobs = self.jobs.clone();
        let ended = || StoreError::Unreachable("the thread for requests has ended".to_owned());
        Box::pin(async move {
            jobs.send(job).await.map_err(|_| ended())?;
            answered.recv().await.map_err(|_| ended())?
        })
    }
}

/// The thread's work: all requests side by side.
async fn serve(store: Store, jobs: Receiver<Job>) {
    while let Ok(job) = jobs.recv().await {
        tokio::spawn(job(Arc::clone(&store)));
    }
}

impl weir_replica::ObjectStore for Bucket {
    fn create(&self, key: &str, bytes: Bytes) -> Reply<Creation> {
        let key = key.to_owned();
        let unfenced = self.unfenced;
        let mode = if unfenced { PutMode::Overwrite } else { PutMode::Create };
        let root = self.root.clone();
        self.request(move |store| async move {
            if let Some(root) = root {
                let unreachable = |error: &dyn std::fmt::Display| StoreError::Unreachable(error.to_string());
                let create = move || root.create_object(&key, &bytes, unfenced);
                let created =
                    tokio::task::spawn_blocking(create).await.map_err(|error| unreachable(&error))?;
                return created.map_err(|error| match error.kind() {
                    ErrorKind::StorageFull | ErrorKind::QuotaExceeded => StoreError::Full(error.to_string()),
                    _ => unreachable(&error),
                });
            }
            let options = PutOptions { mode, ..PutOptions::default() };
            match store.put_opts(&Path::from(key.as_str()), bytes.into(), options).await {
                Ok(_) => Ok(Creation::Created),
                Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(Creation::Exists),
                Err(error) => match store_error(&key, &error) {
                    // Of a put, it is the bucket.
                    StoreError::Missing(text) => Err(StoreError::NoPlace(text)),
                    error => Err(error),
                },
            }
        })
    }

    fn get(&self, key: &str) -> Reply<Bytes> {
        let key = key.to_owned();
        self.request(move |store| async move {
            let found = async { store.get(&Path::from(key.as_str())).await?.bytes().await };
            found.await.map_err(|error| store_error(&key, &error))
        })
    }

    fn get_range(&self, key: &str, range: Range<u64>) -> Reply<Bytes> {
        let key = key.to_owned();
        self.request(move |store| async move {
            let bytes = range.end.saturating_sub(range.start);
            let found = store.get_range(&Path::from(key.as_str()), range).await;
            let found = found.map_err(|error| store_error(&key, &error))?;
            if found.len() as u64 != bytes {
                return Err(StoreError::Refused(format!("{key} has not all of the bytes asked for")));
            }
            Ok(found)
        })
    }

    fn list(&self, prefix: &str, after: &str) -> Reply<Vec<String>> {
        let (prefix, after) = (prefix.to_owned(), after.to_owned());
        self.request(move |store| async move {
            // Prefixes of the crate end at a slash.
            let folder = prefix.rsplit_once('/').map_or("", |(folder, _)| folder);
            let folder = Path::from(folder);
            let listed = match after.as_str() {
                "" => store.list(Some(&folder)),
                after => store.list_with_offset(Some(&folder), &Path::from(after)),
            };
            let keys = listed.map_ok(|object| object.location.to_string()).try_collect::<Vec<String>>().await;
            let mut keys = keys.map_err(|error| store_error(&prefix, &error))?;
            keys.retain(|key| key.starts_with(&prefix) && *key > after);
            keys.sort_unstable();
            Ok(keys)
        })
    }

    fn delete(&self, key: &str) -> Reply<()> {
        let key = key.to_owned();
        self.request(move |store| async move {
            match store.delete(&Path::from(key.as_str())).await {
                Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
                Err(error) => Err(store_error(&key, &error)),
            }
        })
    }
}
