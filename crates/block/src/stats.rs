//! What a block layer counted.

/// Counts since the layer was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Writes that went straight through: nothing queued, nothing copied.
    pub direct: u64,
    /// Requests that had to be queued.
    pub queued: u64,
    /// Requests that left as part of another.
    pub merged: u64,
    /// Barrier writes accepted by the device.
    pub barrier_writes: u64,
    /// Barriers reassigned: barrier writes whose flag came from another request (E4).
    pub reassigned: u64,
    /// Bare barrier commands accepted by the device.
    pub bare_barriers: u64,
    /// Flush commands accepted by the device, emulated pre-flush and FUA included.
    pub flushes: u64,
    /// Submissions that the device refused as busy.
    pub busy: u64,
    /// Epochs whose order the host kept by waiting for a transfer. Zero where the device keeps order (E5).
    pub transfer_waits: u64,
    /// Orderless requests that became order-preserving while queued (E7).
    pub promoted: u64,
    /// Order-preserving requests that failed because an earlier one of their stream did (S5).
    pub aborted: u64,
}
