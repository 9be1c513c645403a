//! *Openers*: the processes that have a storage open for writing, by names that hold across hosts and restarts.

/// Bytes of a host's name that are kept.
pub const HOST_BYTES: usize = 64;

/// A process that has a storage open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opener {
    /// The boot of the system that it runs on: a random number, different at each start of each host. Where the system
    /// does not tell, it is different for each opener.
    pub boot: u128,
    /// The device that holds the storage's content, or is it.
    pub device: u64,
    /// The inode on that device; 0 for a device as a whole.
    pub inode: u64,
    /// The namespace that its process number belongs to.
    pub namespace: u64,
    /// Its process number.
    pub process: u32,
    /// When the process began, in clock ticks since the boot.
    pub began: u64,
    /// The host's name, for messages; zeros behind it.
    pub host: [u8; HOST_BYTES],
}

/// What is known of an opener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has ended, or has given the storage up.
    Ended,
    /// It runs on this host, and what it has open is at another place: a copy, or the same by another way.
    Running,
    /// Nothing: it is on another host, or was before this one was started, or the system does not show it.
    Unknown,
}

impl Opener {
    /// The name of its host, as text.
    #[must_use]
    pub fn host_name(&self) -> String {
        let end = self.host.iter().position(|byte| *byte == 0).unwrap_or(HOST_BYTES);
        String::from_utf8_lossy(&self.host[..end]).chars().filter(|char| !char.is_control()).collect()
    }
}
