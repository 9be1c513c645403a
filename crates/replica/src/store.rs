//! The contract of an *object store*: objects under keys, each made once and never changed.

use std::ops::Range;

use bytes::Bytes;
use futures_util::future::LocalBoxFuture;

/// The answer of a store, later.
pub type Reply<T> = LocalBoxFuture<'static, Result<T, StoreError>>;

/// What became of the request to create an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Creation {
    /// It is there now, and durable.
    Created,
    /// There is an object with this key already; it is unchanged.
    Exists,
}

/// A store of objects.
pub trait ObjectStore {
    /// Creates an object if there is none with this key. A reader never sees a part of it.
    fn create(&self, key: &str, bytes: Bytes) -> Reply<Creation>;

    /// Reads an object whole, unless it has more than [`OBJECT_BYTES_MAX`](crate::OBJECT_BYTES_MAX). What was created before is there.
    fn get(&self, key: &str) -> Reply<Bytes>;

    /// Reads the bytes of a range of an object. That it has not all of them is [`StoreError::Refused`].
    fn get_range(&self, key: &str, range: Range<u64>) -> Reply<Bytes>;

    /// Lists the keys that begin with `prefix` and come behind `after`, in order. Any of those that are young may be missing.
    fn list(&self, prefix: &str, after: &str) -> Reply<Vec<String>>;

    /// Lists the first of these keys, in order: `most` of them or more, if there are so many. All of them are as good an answer.
    fn list_page(&self, prefix: &str, after: &str, most: usize) -> Reply<Vec<String>> {
        let _ = most;
        self.list(prefix, after)
    }

    /// Deletes an object. That there is none is no error.
    fn delete(&self, key: &str) -> Reply<()>;
}

/// Why a store did not do what it was asked to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// No object has this key.
    #[error("the object {0} is missing")]
    Missing(String),
    /// The credentials are wrong, have expired, or do not allow it.
    #[error(
        "the store denied access: check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, and their rights: {0}"
    )]
    Denied(String),
    /// The bucket or the region is not there.
    #[error("there is no such place: check the bucket, AWS_REGION and AWS_ENDPOINT_URL: {0}")]
    NoPlace(String),
    /// It takes no more.
    #[error("the store is full, or a quota is used up: {0}")]
    Full(String),
    /// It does not know conditional creation.
    #[error(
        "the store cannot create an object only if it is absent (If-None-Match), so a second writer would go unnoticed"
    )]
    NoCondition,
    /// It did not answer, or asked to come again.
    #[error("the store does not answer: {0}")]
    Unreachable(String),
    /// The object has more bytes than any of a replica. It was not read.
    #[error(
        "the object {key} has {bytes} bytes, more than any of a replica: it is none of Weir's; delete it, or use another URL"
    )]
    Oversized {
        /// Its key.
        key: String,
        /// Its size.
        bytes: u64,
    },
    /// Another answer.
    #[error("the store refused: {0}")]
    Refused(String),
}

impl StoreError {
    /// Whether the same request may succeed later, without anybody doing anything.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, StoreError::Unreachable(_))
    }

    /// Whether the same request may succeed after a person has changed something: rights, room, a setting.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        use StoreError::{Denied, Full, NoPlace, Refused};
        matches!(self, Denied(_) | Full(_) | NoPlace(_) | Refused(_))
    }
}
