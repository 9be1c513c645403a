//! Reading the log of a replica, object by object, some of them ahead. The list of a store may lack young objects, so what it lacks,
//! in the middle or at the end, is asked for by its key.

use std::collections::VecDeque;
use std::future::ready;

use futures_util::StreamExt as _;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::FuturesOrdered;
use weir_storage::Rules;

use crate::access::Access;
use crate::envelope::{Envelopes, Hash};
use crate::error::ReplicaError;
use crate::key::{LOG, LogPlace};
use crate::log_object::{ChainEnd, LogObject};
use crate::mutants::ReplicaMutant;
use crate::store::StoreError;

/// Objects that are read at one time.
const AHEAD: usize = 8;

/// An object that was read.
pub(crate) struct FoundObject {
    pub object: LogObject,
    pub hash: Hash,
    /// When it was made, in milliseconds of Unix time.
    pub created_ms: u64,
    /// Bytes in the store.
    pub bytes: u64,
}

/// The group that counts, of the objects that begin with one request.
#[derive(Clone, Copy)]
pub(crate) struct Group {
    /// Its first part.
    pub begin: u32,
    /// The state after this request.
    pub last: u64,
    /// When its last part was made, in milliseconds of Unix time.
    pub created_ms: u64,
}

type Fetch<'a> = LocalBoxFuture<'a, (LogPlace, Result<Option<FoundObject>, ReplicaError>)>;

/// Reads the log from an object on.
pub(crate) struct LogReader<'a> {
    access: &'a Access,
    envelopes: &'a Envelopes,
    listed: VecDeque<LogPlace>,
    ahead: FuturesOrdered<Fetch<'a>>,
}

impl<'a> LogReader<'a> {
    /// Lists the log from where it goes on behind `end`.
    pub(crate) async fn begin(
        access: &'a Access,
        envelopes: &'a Envelopes,
        end: &ChainEnd,
    ) -> Result<LogReader<'a>, ReplicaError> {
        let after = LogPlace { first: end.next.first.saturating_sub(1), part: u32::MAX };
        let keys = access.list(LOG, &after.key()).await?;
        let listed = keys.iter().filter_map(|key| LogPlace::from_key(key));
        let listed = listed.filter(|place| *place >= end.next).collect();
        Ok(LogReader { access, envelopes, listed, ahead: FuturesOrdered::new() })
    }

    /// Reads the objects of a list, of which each has to be there.
    pub(crate) fn of_places(
        access: &'a Access,
        envelopes: &'a Envelopes,
        places: impl IntoIterator<Item = LogPlace>,
    ) -> LogReader<'a> {
        let listed = places.into_iter().collect();
        LogReader { access, envelopes, listed, ahead: FuturesOrdered::new() }
    }

    /// Of the objects that begin with a request, the group that counts (R3): the one that the last of them ends.
    pub(crate) async fn find_group(
        &self,
        first: u64,
        rules: Rules<ReplicaMutant>,
    ) -> Result<Option<Group>, ReplicaError> {
        let mut part = self.last_part(first).await?.unwrap_or(0);
        let mut newest = None;
        // The list may lack the newest ones.
        while let Some(found) = self.read(LogPlace { first, part }).await? {
            part += 1;
            newest = Some(found);
        }
        let Some(FoundObject { object, created_ms, .. }) = newest else {
            return Err(StoreError::Missing(LogPlace { first, part }.key()).into());
        };
        let counts = object.ends || rules.drops(ReplicaMutant::PartialGroupCounts);
        Ok(counts.then_some(Group { begin: object.group, last: object.last, created_ms }))
    }

    /// The last part that is listed of those that begin with this request.
    async fn last_part(&self, first: u64) -> Result<Option<u32>, ReplicaError> {
        let prefix = LogPlace { first, part: 0 }.key();
        let prefix = prefix.trim_end_matches(|c| c != '-');
        let keys = self.access.list(prefix, "").await?;
        Ok(keys.iter().filter_map(|key| LogPlace::from_key(key)).map(|place| place.part).next_back())
    }

    /// Reads one object, if it is there.
    pub(crate) async fn read(&self, place: LogPlace) -> Result<Option<FoundObject>, ReplicaError> {
        read_object(self.access, self.envelopes, place).await
    }

    fn fetch_ahead(&mut self) {
        while self.ahead.len() < AHEAD
            && let Some(place) = self.listed.pop_front()
        {
            let (access, envelopes) = (self.access, self.envelopes);
            let read = async move { (place, read_object(access, envelopes, place).await) };
            self.ahead.push_back(Box::pin(read));
        }
    }

    /// The next object of the list.
    pub(crate) async fn next_listed(&mut self) -> Result<Option<FoundObject>, ReplicaError> {
        self.fetch_ahead();
        let Some((place, found)) = self.ahead.next().await else { return Ok(None) };
        Ok(Some(found?.ok_or_else(|| StoreError::Missing(place.key()))?))
    }

    /// The object that follows; `None` where the log ends.
    pub(crate) async fn next_behind(&mut self, end: &ChainEnd) -> Result<Option<FoundObject>, ReplicaError> {
        self.fetch_ahead();
        let Some((place, found)) = self.ahead.next().await else { return self.read(end.next).await };
        let next = if place == end.next {
            found?
        } else {
            // The list lacks the one that is wanted. What was read of the one behind it is wanted later, before all that is ahead.
            self.ahead.push_front(Box::pin(ready((place, found))));
            self.read(end.next).await?
        };
        // It is listed, or something comes behind it, so it was there.
        Ok(Some(next.ok_or_else(|| StoreError::Missing(end.next.key()))?))
    }
}

/// Reads the object at a place, if there is one.
async fn read_object(
    access: &Access,
    envelopes: &Envelopes,
    place: LogPlace,
) -> Result<Option<FoundObject>, ReplicaError> {
    let Some(bytes) = access.find(&place.key()).await? else { return Ok(None) };
    let size = bytes.len() as u64;
    let (object, opened) = LogObject::decode_in_thread(envelopes, place, bytes).await?;
    let (hash, created_ms) = (opened.hash, opened.created_ms);
    Ok(Some(FoundObject { object, hash, created_ms, bytes: size }))
}
