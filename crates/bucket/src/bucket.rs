//! A *bucket*: a store that other programs serve, asked by a thread with a tokio runtime.

use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use futures_util::future::BoxFuture;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions};
use weir_replica::{Creation, OBJECT_BYTES_MAX, Reply, StoreError};
use weir_runtime::{Handle, Receiver, Sender, channel};

use crate::answer::store_error;
use crate::deadline::Deadline;
use crate::place::{Opened, Place, PlaceError};
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
    deadline: Deadline,
}

impl Bucket {
    /// Prepares requests to a place. With `unfenced`, objects that are there are replaced.
    ///
    /// # Errors
    /// [`PlaceError`] if there is no such directory, or the environment's settings are wrong. The store is not asked.
    pub fn open(handle: &Handle, place: &Place, unfenced: bool) -> Result<Bucket, PlaceError> {
        let (store, root) = place.open_store()?;
        let deadline = if root.is_some() { Deadline::OF_DIRECTORY } else { Deadline::OF_BUCKET };
        Bucket::from_store(handle, (store, root), unfenced, deadline)
    }

    fn from_store(
        handle: &Handle,
        (store, root): Opened,
        unfenced: bool,
        deadline: Deadline,
    ) -> Result<Bucket, PlaceError> {
        let (jobs, received) = channel(WAITING_MAX);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|_| PlaceError::NoThread)?;
        // The thread ends when the last sender is gone.
        let thread = handle.blocking(move || runtime.block_on(serve(store, received)));
        drop(handle.spawn(async move { thread.await.is_ok() }));
        Ok(Bucket { jobs, unfenced, root, deadline })
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
        let (root, deadline) = (self.root.clone(), self.deadline);
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
            let (path, size) = (Path::from(key.as_str()), bytes.len() as u64);
            match deadline.apply(size, store.put_opts(&path, bytes.into(), options)).await {
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
        let (key, deadline) = (key.to_owned(), self.deadline);
        self.request(move |store| async move {
            let path = Path::from(key.as_str());
            let found =
                deadline.apply(0, store.get(&path)).await.map_err(|error| store_error(&key, &error))?;
            let bytes = found.meta.size;
            if bytes > OBJECT_BYTES_MAX {
                return Err(StoreError::Oversized { key, bytes });
            }
            deadline.apply(bytes, found.bytes()).await.map_err(|error| store_error(&key, &error))
        })
    }

    fn get_range(&self, key: &str, range: Range<u64>) -> Reply<Bytes> {
        let (key, deadline) = (key.to_owned(), self.deadline);
        self.request(move |store| async move {
            let bytes = range.end.saturating_sub(range.start);
            let path = Path::from(key.as_str());
            let found = deadline.apply(bytes, store.get_range(&path, range)).await;
            let found = found.map_err(|error| store_error(&key, &error))?;
            if found.len() as u64 != bytes {
                return Err(StoreError::Refused(format!("{key} has not all of the bytes asked for")));
            }
            Ok(found)
        })
    }

    fn list(&self, prefix: &str, after: &str) -> Reply<Vec<String>> {
        self.list_page(prefix, after, usize::MAX)
    }

    fn list_page(&self, prefix: &str, after: &str, most: usize) -> Reply<Vec<String>> {
        // A directory is in no order.
        let most = if self.root.is_some() { usize::MAX } else { most };
        let (prefix, after, deadline) = (prefix.to_owned(), after.to_owned(), self.deadline);
        self.request(move |store| async move {
            // Prefixes of the crate end at a slash.
            let folder = prefix.rsplit_once('/').map_or("", |(folder, _)| folder);
            let folder = Path::from(folder);
            let mut listed = match after.as_str() {
                "" => store.list(Some(&folder)),
                after => store.list_with_offset(Some(&folder), &Path::from(after)),
            };
            let mut keys = Vec::new();
            // Each page of the list is a request.
            while keys.len() < most {
                let object = deadline.apply(0, listed.try_next()).await;
                let Some(object) = object.map_err(|error| store_error(&prefix, &error))? else { break };
                keys.push(object.location.to_string());
            }
            keys.retain(|key| key.starts_with(&prefix) && *key > after);
            keys.sort_unstable();
            Ok(keys)
        })
    }

    fn delete(&self, key: &str) -> Reply<()> {
        let (key, deadline) = (key.to_owned(), self.deadline);
        self.request(move |store| async move {
            match deadline.apply(0, store.delete(&Path::from(key.as_str()))).await {
                Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
                Err(error) => Err(store_error(&key, &error)),
            }
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use object_store::aws::AmazonS3Builder;
    use object_store::{ClientOptions, RetryConfig};
    use weir_replica::ObjectStore as _;
    use weir_runtime::{Runtime, Wall};

    use super::*;

    const MIB: usize = 1 << 20;

    /// Waits for so long, or until the client has given up.
    fn pause_for(connection: &mut TcpStream, pause: Duration) {
        connection.set_read_timeout(Some(pause)).unwrap();
        let _ = connection.read(&mut [0]);
    }

    /// Serves one request after the other, each on a connection of its own, and each after `pause`.
    fn serve_slowly(listener: &TcpListener, pause: Duration, requests: usize) {
        for connection in listener.incoming().take(requests) {
            let mut connection = connection.unwrap();
            let (mut request, mut piece) = (Vec::new(), vec![0; MIB]);
            let length = loop {
                let count = connection.read(&mut piece).unwrap();
                request.extend_from_slice(&piece[..count]);
                let text = String::from_utf8_lossy(&request).to_lowercase();
                if let Some(end) = text.find("\r\n\r\n") {
                    let length = text[..end].split("content-length: ").nth(1);
                    let length = length.and_then(|rest| rest.lines().next()?.parse::<usize>().ok());
                    break end + 4 + length.unwrap_or(0);
                }
            };
            let is_get = request.starts_with(b"GET");
            let mut count = request.len();
            while count < length {
                count += connection.read(&mut piece).unwrap();
            }
            let bytes = if is_get { MIB } else { 0 };
            let head = format!(
                "HTTP/1.1 200 OK\r\nETag: \"a\"\r\nLast-Modified: Sun, 29 Nov 2026 00:00:00 GMT\r\n\
                 Connection: close\r\nContent-Length: {bytes}\r\n\r\n"
            );
            // A client that has given up has closed the connection.
            if is_get {
                let _ = connection.write_all(head.as_bytes());
                pause_for(&mut connection, pause);
                let _ = connection.write_all(&vec![0; bytes]);
            } else {
                pause_for(&mut connection, pause);
                let _ = connection.write_all(head.as_bytes());
            }
        }
    }

    /// The answers of a store that takes so long to a creation and a read of 1 MiB.
    fn ask_slow_store(pause: Duration) -> (Result<Creation, StoreError>, Result<usize, StoreError>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let client = ClientOptions::new().with_allow_http(true).with_timeout_disabled();
        let builder =
            AmazonS3Builder::new().with_bucket_name("a").with_endpoint(url).with_client_options(client);
        let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        let store = builder.with_skip_signature(true).with_retry(retry).build().unwrap();
        let deadline =
            Deadline { answered_within: Some(Duration::from_millis(200)), bytes_per_second: MIB as u64 };
        let runtime = Runtime::wall(Wall::default()).unwrap();
        let handle = runtime.handle();
        let answers = runtime.block_on(async {
            let server = handle.blocking(move || serve_slowly(&listener, pause, 2));
            let bucket = Bucket::from_store(&handle, (Arc::new(store), None), false, deadline).unwrap();
            let created = bucket.create("log/1", vec![1; MIB].into()).await;
            let read = bucket.get("log/1").await.map(|bytes| bytes.len());
            assert!(server.await.is_ok());
            (created, read)
        });
        answers.unwrap()
    }

    /// The deadline is 0.2 s, and 1 s more for the bytes.
    #[test]
    fn a_large_object_may_take_longer_and_no_request_takes_for_ever() {
        let (created, read) = ask_slow_store(Duration::from_millis(500));
        assert_eq!((created, read), (Ok(Creation::Created), Ok(MIB)));
        let (created, read) = ask_slow_store(Duration::from_secs(3));
        assert!(matches!(created, Err(StoreError::Unreachable(text)) if text.contains("no answer within")));
        assert!(matches!(read, Err(StoreError::Unreachable(_))), "{read:?}");
    }
}
