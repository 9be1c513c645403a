//! A *profile* describes a device: its link, queue, cache, flash, firmware and barrier mechanism. Profiles are
//! data, in TOML, with a source for every number.

mod builtin;
mod check;
mod document;
mod error;
mod unit;

pub use document::{Changes, Kind, Parameter};
pub use error::ProfileError;

/// Everything that a device model is made of. All times are nanoseconds, all sizes bytes unless a name says
/// otherwise.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The name it is chosen by.
    pub name: String,
    /// What it stands for, in a few words.
    pub title: String,
    /// Capacity as the host sees it, in 4 KiB blocks.
    pub blocks: u64,
    /// The link to the host, and the command queue.
    pub host: Host,
    /// The write-back cache.
    pub cache: Cache,
    /// The flash chips.
    pub nand: Nand,
    /// The translation layer.
    pub ftl: Ftl,
    /// What a flush costs beyond writing the cache back.
    pub flush: Flush,
    /// How the device keeps barriers.
    pub barrier: Barrier,
}

/// The link to the host, and the command queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Host {
    /// Commands in the queue at most.
    pub queue_depth: u32,
    /// Blocks in one command at most.
    pub max_transfer_blocks: u32,
    /// What the link carries, in bytes a second.
    pub link_bytes_per_second: u64,
    /// Both directions at once.
    pub full_duplex: bool,
    /// Controller time that each command occupies; commands behind it wait, transfers overlap it.
    pub command_ns: u64,
    /// Time on the way that occupies nothing, before and after: protocol, interrupt of the controller.
    pub latency_ns: u64,
    /// How ordered priority is honoured.
    pub ordered_service: OrderedService,
    /// Which of several simple commands is serviced first.
    pub simple_service: SimpleService,
    /// FUA writes.
    pub fua: bool,
    /// Keys `host.packed` and `host.packed_header`: packed writes, and the controller time that the header of one takes;
    /// none where the device has no such command.
    pub packed_header_ns: Option<u64>,
    /// Key `host.packed_pages`: writes of a packed command that have to be on flash are programmed together, as far as they
    /// fit a page of flash; otherwise one after the other. It takes reliable writes.
    pub packed_pages: bool,
    /// Keys `host.reliable` and `host.reliable_extra`: reliable writes, and the controller time of one on top of
    /// [`Host::command_ns`]; none where the device has none.
    pub reliable_extra_ns: Option<u64>,
}

/// How a device services commands of ordered priority (S1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderedService {
    /// Not at all: the interface has no such priority.
    None,
    /// One after the other: an ordered command starts when all before it are done, and none behind it starts
    /// before it is done.
    Serial,
    /// They enter the cache in order; decoding and transfer overlap.
    Pipelined,
}

/// Which of several simple commands is serviced first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimpleService {
    /// The first to come.
    Fifo,
    /// Any of them, by seeded chance.
    Any,
}

/// The write-back cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cache {
    /// How much it holds, 4 KiB and more. With 0 the cache is off: a write is answered when it is on flash, and there is
    /// room for the data of one command.
    pub bytes: u64,
    /// The share that is filled before writing back begins, 0 to 0.9; 0 writes back as soon as a page is full.
    pub destage_share: f64,
    /// Key `cache.replacement`: what is written back first.
    pub replacement: Replacement,
    /// Key `cache.copy`: bytes a second at which the controller copies a write's data from the link's buffer into the
    /// cache, and does nothing else meanwhile; none where the link carries it there.
    pub copy_bytes_per_second: Option<u64>,
}

/// What the cache writes back first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replacement {
    /// What was written first, also if it was overwritten since.
    #[default]
    Fifo,
    /// What was not written for longest. What is committed stays in the cache as long as there are places.
    Lru,
}

/// The flash chips. A page is what one program operation writes on one plane.
#[derive(Clone, Debug, PartialEq)]
pub struct Nand {
    /// Independent buses to the chips.
    pub channels: u32,
    /// Dies on each channel.
    pub ways: u32,
    /// Planes of each die.
    pub planes: u32,
    /// Whether all planes of a die program together; otherwise a die programs one plane at a time.
    pub multi_plane: bool,
    /// Erase blocks of each plane.
    pub blocks_per_plane: u32,
    /// Pages of each erase block.
    pub pages_per_block: u32,
    /// Bytes of each page, without the spare area.
    pub page_bytes: u32,
    /// From the command to the page register; page `n` of an erase block takes entry `n` modulo the length.
    pub read_ns: Vec<u64>,
    /// From the page register to the cells, by page as `read_ns`.
    pub program_ns: Vec<u64>,
    /// Erasing a block.
    pub erase_ns: u64,
    /// What a channel carries, in bytes a second.
    pub channel_bytes_per_second: u64,
    /// Key `nand.torn_program`: without a barrier mechanism the firmware takes a page for a good one whose program a power
    /// cut interrupted, if nothing in it is reliable (F12). A mechanism has to know its torn pages.
    pub torn_program: bool,
}

impl Profile {
    /// Whether a power cut leaves garbage where a page was being programmed (F12).
    #[must_use]
    pub fn tears_programs(&self) -> bool {
        self.nand.torn_program && self.barrier.mechanism == Mechanism::None
    }
}

impl Nand {
    /// Planes of a die that one program operation writes.
    pub(crate) fn planes_together(&self) -> u32 {
        if self.multi_plane { self.planes } else { 1 }
    }
}

/// The translation layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ftl {
    /// Which erase block is cleaned next.
    pub gc: GcPolicy,
    /// Cleaning goes on while a die has fewer free erase blocks, 3 and more.
    pub gc_free_blocks: u32,
    /// Pages programmed between two checkpoints of the map, as a share of all pages, above 0 to 0.5.
    pub checkpoint_share: f64,
    /// Pages that increments behind a full checkpoint may take together, as a share of its own, 0 to 16; with 0 every
    /// checkpoint is full. Order-preserving recovery takes 1 at least: its log has the coalescing records too.
    pub log_share: f64,
    /// Blocks that one share command remaps at most, 0 to 512; with 0 the device has no share.
    pub share: u32,
    /// Key `ftl.share_by`: how a share is made durable.
    pub share_by: ShareBy,
    /// Where logical pages go on flash.
    pub layout: Layout,
}

/// How a share is made durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShareBy {
    /// The cache is emptied, the record is programmed in a page of its own, and the share is answered then. Nothing else is
    /// serviced meanwhile.
    #[default]
    Page,
    /// Its record goes through the cache and the map's log as a write does: it is answered when it is in the cache, and durable
    /// behind a flush. Not with every mechanism: see [`Mechanism::can_log_shares`].
    Log,
}

impl ShareBy {
    /// Both.
    pub const ALL: [ShareBy; 2] = [ShareBy::Page, ShareBy::Log];

    /// Its name in profiles.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ShareBy::Page => "page",
            ShareBy::Log => "log",
        }
    }

    /// The way of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<ShareBy> {
        ShareBy::ALL.into_iter().find(|way| way.name() == name)
    }
}

/// Where logical pages go on flash, and how the firmware writes down where they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Key `ftl.logical_page`: blocks of 4 KiB in a *logical page*, the unit of the map: a divisor of those in a flash
    /// page of all planes that program together, 16 at most. A write of a part of it reads the rest and programs all.
    pub logical_page_blocks: u32,
    /// Key `ftl.allocation`: which die takes a logical page.
    pub allocation: Allocation,
    /// Key `ftl.summary_pages`: whether the last page of an erase block repeats what the spare areas of the others say, so
    /// that recovery reads one page of a full erase block.
    pub summary_pages: bool,
    /// Key `ftl.log_buffer`: a checkpoint is begun when so many bytes of changes of the map wait; 0 for no such buffer.
    pub log_buffer_bytes: u64,
}

impl Default for Layout {
    /// A page map of blocks, on any die.
    fn default() -> Layout {
        Layout {
            logical_page_blocks: 1,
            allocation: Allocation::Dynamic,
            summary_pages: false,
            log_buffer_bytes: 0,
        }
    }
}

/// Which die takes a logical page that is written back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// The one that has been idle longest.
    Dynamic,
    /// Always the same: its number modulo the number of dies. Only where a logical page is a whole flash page.
    Static,
}

/// Which erase block is cleaned next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GcPolicy {
    /// The one with the fewest valid blocks.
    Greedy,
    /// The best balance of free space and age.
    CostBenefit,
}

/// What a flush costs beyond writing the cache back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flush {
    /// Firmware time of each flush.
    pub fixed_ns: u64,
    /// Pages of map journal that a flush programs one after the other, when it had anything to write back.
    pub journal_pages: u32,
}

/// How the device keeps barriers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Barrier {
    /// By which mechanism.
    pub mechanism: Mechanism,
    /// What a barrier costs on top, as a share of the time that a write occupies the link or the controller:
    /// the penalty that the papers assume for their SATA drives.
    pub penalty: f64,
    /// When order-preserving recovery flushes by itself.
    pub internal: InternalFlush,
    /// Key `barrier.tag`: controller time in which order-preserving recovery notes the request of each logical page that
    /// enters the cache, and what it coalesces with.
    pub tag_ns: u64,
}

/// When order-preserving recovery flushes by itself, besides before each checkpoint (OPTR paper, sections 3.4 and 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InternalFlush {
    /// Key `barrier.flush_every`: so long after a write at the latest; 1 ms to 1 minute.
    pub every_ns: u64,
    /// Key `barrier.cleaning_batch`: before each batch of so many erase blocks that are cleaned, 1 and more.
    pub cleaning_batch: u32,
    /// Key `barrier.flush_stops_commands`: no command is serviced meanwhile, as before a checkpoint.
    pub stops_commands: bool,
}

impl Default for InternalFlush {
    /// What the paper says of its drive. It does not say whether commands go on.
    fn default() -> InternalFlush {
        InternalFlush { every_ns: 5_000_000_000, cleaning_batch: 16, stops_commands: false }
    }
}

/// Barrier mechanisms (FAST 2018 paper, section 3.2; OPTR paper, section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// A legacy device: barriers are not supported.
    None,
    /// Power-loss protection: the cache is durable, so order is what it was at the transfer.
    PowerLossProtection,
    /// The cache is written back epoch by epoch.
    InOrderWriteback,
    /// The cache is written back as one atomic unit, marked in the spare area.
    TransactionalWriteback,
    /// One log in the order of transfer; recovery stops at the first page that was not programmed.
    InOrderRecovery,
    /// Requests survive in order of receipt, each of them whole: their numbers and sizes are in the spare areas, what
    /// coalesced is recorded, and recovery keeps the longest prefix (OPTR paper).
    OrderPreservingRecovery,
}

impl Mechanism {
    /// All of them.
    pub const ALL: [Mechanism; 6] = [
        Mechanism::None,
        Mechanism::PowerLossProtection,
        Mechanism::InOrderWriteback,
        Mechanism::TransactionalWriteback,
        Mechanism::InOrderRecovery,
        Mechanism::OrderPreservingRecovery,
    ];

    /// Its name in profiles and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Mechanism::None => "none",
            Mechanism::PowerLossProtection => "plp",
            Mechanism::InOrderWriteback => "in-order-writeback",
            Mechanism::TransactionalWriteback => "transactional",
            Mechanism::InOrderRecovery => "in-order-recovery",
            Mechanism::OrderPreservingRecovery => "order-preserving-recovery",
        }
    }

    /// Whether a share may go through the map's log ([`ShareBy::Log`]): its record is in the order of the writes. Capacitors save
    /// no records, and where requests are kept in order of receipt a record has no number.
    #[must_use]
    pub fn can_log_shares(self) -> bool {
        !matches!(self, Mechanism::PowerLossProtection | Mechanism::OrderPreservingRecovery)
    }

    /// The mechanism of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Mechanism> {
        Mechanism::ALL.into_iter().find(|mechanism| mechanism.name() == name)
    }
}
