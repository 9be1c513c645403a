//! The *deadline* of a request to a store elsewhere: by its bytes, so that a slow link gets an object through, and one that is dead is
//! noticed.

use std::time::Duration;

use object_store::Error;

/// How long a request may take: a time, and so much more for its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    /// Without its bytes; `None`: as long as it takes.
    pub answered_within: Option<Duration>,
    /// The slowest link.
    pub bytes_per_second: u64,
}

impl Deadline {
    /// That of buckets: an object of 16 MiB may take 572 s.
    pub(crate) const OF_BUCKET: Deadline =
        Deadline { answered_within: Some(Duration::from_secs(60)), bytes_per_second: 32 << 10 };
    /// A directory has none: a request to it is a call in a thread, which no one can end.
    pub(crate) const OF_DIRECTORY: Deadline = Deadline { answered_within: None, ..Deadline::OF_BUCKET };

    /// The outcome of a request that carries so many bytes, or that it took too long.
    pub(crate) async fn apply<T>(
        self,
        bytes: u64,
        request: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let Some(answered_within) = self.answered_within else { return request.await };
        let most =
            answered_within + Duration::from_millis(bytes.saturating_mul(1000) / self.bytes_per_second);
        tokio::time::timeout(most, request).await.unwrap_or_else(|_| {
            let source = format!("no answer within {}s", most.as_secs()).into();
            Err(Error::Generic { store: "S3", source })
        })
    }
}
