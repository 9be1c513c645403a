//! Where a replica is: a URL.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::prefix::PrefixStore;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};

use crate::answer::told;
use crate::root::Root;
use crate::settings;

/// How long a connection may take.
const CONNECTED_WITHIN: Duration = Duration::from_secs(5);

/// Where a replica is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A bucket, and the prefix of the keys in it.
    S3 {
        /// Its name.
        bucket: String,
        /// May be empty.
        prefix: String,
    },
    /// A directory.
    Directory(PathBuf),
}

/// Why a URL names no place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// Another kind of URL.
    #[error(
        "{0}: not a place for a replica: write s3://BUCKET[/PREFIX], or file:// and the whole path of a directory, as file://$PWD/store"
    )]
    Unknown(String),
    /// The directory is not there.
    #[error("{}: {error}: make or mount the directory first", path.display())]
    NoDirectory {
        /// Which.
        path: PathBuf,
        /// The system's answer.
        error: String,
    },
    /// What the environment says of the store is wrong.
    #[error(
        "the store cannot be asked: {0}: check AWS_REGION, AWS_ENDPOINT_URL and the other variables AWS_..."
    )]
    Settings(String),
    /// A variable that is to name a server does not.
    #[error("{0} is no URL of a server: write it as http://HOST:PORT or https://HOST")]
    Endpoint(&'static str),
    /// A variable has characters in it that no request can hold.
    #[error("{0} has a space, a line break or another character that is none of a key: set it anew")]
    Characters(&'static str),
    /// There are no credentials.
    #[error(
        "no credentials for the store: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; or, on a machine in the cloud that has a \
         role, AWS_METADATA_ENDPOINT=http://169.254.169.254"
    )]
    NoCredentials,
    /// The system has no thread left.
    #[error("the system has no thread left for requests to the store")]
    NoThread,
}

impl FromStr for Place {
    type Err = PlaceError;

    fn from_str(url: &str) -> Result<Place, PlaceError> {
        let unknown = || PlaceError::Unknown(without_credentials(url));
        if let Some(path) = url.strip_prefix("file://") {
            return if path.starts_with('/') { Ok(Place::Directory(path.into())) } else { Err(unknown()) };
        }
        let name = url.strip_prefix("s3://").ok_or_else(unknown)?;
        let (bucket, prefix) = name.split_once('/').unwrap_or((name, ""));
        // What stands before an @ would be a password.
        if bucket.is_empty()
            || !bucket.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_'))
        {
            return Err(unknown());
        }
        Ok(Place::S3 { bucket: bucket.to_owned(), prefix: prefix.trim_matches('/').to_owned() })
    }
}

/// A URL as a message may show it: of the name of a server or bucket nothing is shown that may be a key or its secret.
fn without_credentials(url: &str) -> String {
    let is_scheme = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric());
    let (scheme, rest) = match url.split_once("://") {
        Some((scheme, rest)) if is_scheme(scheme) => (&url[..scheme.len() + 3], rest),
        _ => ("", url),
    };
    if rest.contains(['@', ':']) { format!("{scheme}...") } else { url.to_owned() }
}

/// A store, and its root if it is a directory.
pub(crate) type Opened = (Arc<dyn ObjectStore>, Option<Arc<Root>>);

impl Place {
    /// The store at this place. What the environment says of it is checked; the store is not asked.
    pub(crate) fn open_store(&self) -> Result<Opened, PlaceError> {
        match self {
            Place::Directory(path) => {
                let no_directory = |error: String| PlaceError::NoDirectory { path: path.clone(), error };
                let root = Root::open(path).map_err(|error| no_directory(error.to_string()))?;
                let store = LocalFileSystem::new_with_prefix(path);
                Ok((Arc::new(store.map_err(|error| no_directory(told(&error)))?), Some(Arc::new(root))))
            }
            Place::S3 { bucket, prefix } => {
                settings::check(|name| std::env::var(name).ok())?;
                let client = ClientOptions::new()
                    .with_connect_timeout(CONNECTED_WITHIN)
                    // Requests have a deadline by their bytes.
                    .with_timeout_disabled()
                    .with_allow_http(has_plain_endpoint());
                // A request that fails is repeated by the replica, which says so.
                let retry = RetryConfig {
                    max_retries: 0,
                    retry_timeout: Duration::ZERO,
                    backoff: BackoffConfig::default(),
                };
                let store = AmazonS3Builder::from_env()
                    .with_bucket_name(bucket)
                    .with_client_options(client)
                    .with_retry(retry)
                    .build()
                    .map_err(|error| PlaceError::Settings(told(&error)))?;
                let store: Arc<dyn ObjectStore> = match prefix.as_str() {
                    "" => Arc::new(store),
                    prefix => Arc::new(PrefixStore::new(store, prefix)),
                };
                Ok((store, None))
            }
        }
    }
}

/// Whether the endpoint that the environment names is one without TLS, such as a store on this machine.
fn has_plain_endpoint() -> bool {
    let mut urls = settings::ENDPOINTS.into_iter().filter_map(|name| std::env::var(name).ok());
    urls.any(|url| url.starts_with("http://"))
}
