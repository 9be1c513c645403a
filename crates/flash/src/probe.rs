//! A *probe* sees everything in a device that takes time, for timelines.

use weir_storage::CommandKind;

/// What a die or the link was busy with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Busy {
    /// The link carried a command's data.
    Link(CommandKind),
    /// The controller decoded a command.
    Controller(CommandKind),
    /// A channel carried a page.
    Channel {
        /// Which, from 0.
        channel: u32,
    },
    /// A die read a page.
    Read {
        /// Which, from 0.
        die: u32,
    },
    /// A die programmed a page of the host's data.
    Program {
        /// Which, from 0.
        die: u32,
    },
    /// A die moved a page, to clean an erase block.
    Move {
        /// Which, from 0.
        die: u32,
    },
    /// A die erased a block.
    Erase {
        /// Which, from 0.
        die: u32,
    },
    /// A die programmed a page of the system area: a checkpoint.
    System {
        /// Which, from 0.
        die: u32,
    },
    /// A flush, from its submission to its answer.
    Flush,
}

/// What takes time is about; as far as that is known where it takes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// The first logical block.
    pub block: Option<u64>,
    /// How many logical blocks; those of a page that a die programs, and of a discard, need not be neighbours.
    pub blocks: u32,
    /// The epoch that the command enters the cache in: how many barriers the device has serviced before.
    pub epoch: Option<u64>,
    /// Whether the command is a barrier.
    pub barrier: bool,
}

/// Receives everything that takes time, in virtual nanoseconds. An interval may be reported before it begins.
pub trait Probe {
    /// Something was, or will be, busy with `subject` in this interval.
    fn busy(&self, what: Busy, subject: Subject, from_ns: u64, to_ns: u64);

    /// Commands accepted and not answered, from now on.
    fn queue_depth(&self, at_ns: u64, commands: u32);

    /// Versions in the cache, from now on.
    fn cached(&self, at_ns: u64, blocks: u64);
}
