//! A *base*: the state of a volume elsewhere with which a volume begins, and which it does not hold, as a disk image has a
//! backing file (V12). What a volume says of it is here, how it is read in `base_storage.rs`.

/// Which state a volume with a base begins with. It is written when the volume is made, and never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Base {
    /// The state after this request; the volume's log begins with the next one.
    pub sequence: u64,
    /// The generation of the volume's log begins behind this one.
    pub generation: u64,
    /// The epoch of the writer of the replica that made the volume.
    pub epoch: u64,
    /// The random number by which that writer is told from others.
    pub token: u64,
}
