//! The keys of objects. Numbers have leading zeros, so that keys in order are objects in order.

/// The object that says which volume this is.
pub(crate) const DESCRIPTOR: &str = "volume";
/// Where epochs are.
pub(crate) const EPOCHS: &str = "epoch/";
/// Where the log is.
pub(crate) const LOG: &str = "log/";
/// Where checkpoints are.
pub(crate) const CHECKPOINTS: &str = "checkpoint/";
/// Where parts of maps are.
pub(crate) const MAPS: &str = "map/";

/// The place of an object in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogPlace {
    /// Its first request, or the one that would be next.
    pub first: u64,
    /// Objects that begin with the same request, before it.
    pub part: u32,
}

impl LogPlace {
    /// Its key.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{LOG}{:020}-{:08}", self.first, self.part)
    }

    /// The place that a key names.
    #[must_use]
    pub fn from_key(key: &str) -> Option<LogPlace> {
        let (first, part) = key.strip_prefix(LOG)?.split_once('-')?;
        let place = LogPlace { first: first.parse().ok()?, part: part.parse().ok()? };
        (place.key() == key).then_some(place)
    }
}

/// The key of an epoch.
pub(crate) fn epoch_key(epoch: u64) -> String {
    format!("{EPOCHS}{epoch:016}")
}

/// The epoch that a key names.
pub(crate) fn epoch_from_key(key: &str) -> Option<u64> {
    key.strip_prefix(EPOCHS)?.parse().ok().filter(|epoch| epoch_key(*epoch) == key)
}

/// The key of a checkpoint as of a request.
pub(crate) fn checkpoint_key(sequence: u64) -> String {
    format!("{CHECKPOINTS}{sequence:020}")
}

/// The request that the key of a checkpoint names.
pub(crate) fn checkpoint_from_key(key: &str) -> Option<u64> {
    key.strip_prefix(CHECKPOINTS)?.parse().ok().filter(|sequence| checkpoint_key(*sequence) == key)
}

/// The key of a part of a checkpoint's map, which the writer of an epoch made.
pub(crate) fn map_key(sequence: u64, epoch: u64, part: u32) -> String {
    format!("{MAPS}{sequence:020}-{epoch:016}-{part:08}")
}

/// The request that the key of a part of a map names.
pub(crate) fn map_from_key(key: &str) -> Option<u64> {
    key.strip_prefix(MAPS)?.split_once('-')?.0.parse().ok()
}
