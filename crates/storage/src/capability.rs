//! What a device says it can do, and the check that every implementation runs on a command.

use crate::address::Extent;
use crate::command::{Command, Priority, Write};
use crate::error::{Feature, Invalid, Rejected};

/// What is left after a power loss, beyond whole tear units (S3, S4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ordering {
    /// Nothing is promised between writes that were not flushed.
    Legacy,
    /// Epochs survive in order (S3): the barrier-compliant device of the papers.
    Barrier,
    /// Requests survive in order of receipt, each of them whole: a prefix (OPTR, the volume).
    Prefix,
}

/// What discarded blocks read (S7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discard {
    /// The device has no discard.
    Unsupported,
    /// Zeroes.
    ReadsZero,
    /// Anything the block ever held, or zeroes.
    Undefined,
}

/// A device's answer to "what can you do?".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Commands in flight at most, 1 and more.
    pub queue_depth: u32,
    /// Blocks in one command at most.
    pub max_transfer_blocks: u32,
    /// A write of at most this many blocks survives whole or not at all; 0 where none does.
    pub atomic_blocks: u32,
    /// Bytes that are never torn: 512 or 4,096 (S4).
    pub tear_unit_bytes: u32,
    /// Order after power loss.
    pub ordering: Ordering,
    /// [`Priority::Ordered`] is honoured (S1).
    pub ordered_service: bool,
    /// A flush covers every write *submitted* before it, not only those transferred (S2).
    pub ordered_flush: bool,
    /// FUA writes.
    pub fua: bool,
    /// Pre-flush writes.
    pub preflush: bool,
    /// Reliable writes.
    pub reliable: bool,
    /// A power cut may leave a block that is being written, and is not durable yet, as neither version (S4): each of its
    /// sectors of 512 bytes is old, new or garbage. Not with the flag `reliable`, nor in writes of `atomic_blocks`.
    pub corrupts_when_cut: bool,
    /// Tickets have their second phase, *durable*.
    pub durable_tickets: bool,
    /// What discard leaves behind.
    pub discard: Discard,
    /// Extents in one discard at most.
    pub max_discard_extents: u32,
    /// Blocks of all extents of one discard at most.
    pub max_discard_blocks: u32,
    /// The share command.
    pub share: bool,
    /// Blocks that the pairs of one share remap at most. No data is transferred, so it is a limit of its own.
    pub max_share_blocks: u32,
    /// Packed writes.
    pub packed: bool,
}

impl Capabilities {
    /// A plain disk: a write-back cache, flush, and nothing else.
    #[must_use]
    pub fn legacy(queue_depth: u32, max_transfer_blocks: u32, tear_unit_bytes: u32) -> Capabilities {
        Capabilities {
            queue_depth,
            max_transfer_blocks,
            atomic_blocks: 0,
            tear_unit_bytes,
            ordering: Ordering::Legacy,
            ordered_service: false,
            ordered_flush: false,
            fua: false,
            preflush: false,
            reliable: false,
            corrupts_when_cut: false,
            durable_tickets: false,
            discard: Discard::Unsupported,
            max_discard_extents: 256,
            max_discard_blocks: u32::MAX,
            share: false,
            max_share_blocks: max_transfer_blocks,
            packed: false,
        }
    }

    /// Whether barriers mean something on this device.
    #[must_use]
    pub fn barriers(&self) -> bool {
        self.ordering != Ordering::Legacy
    }

    /// Extents to discard, in commands that the device takes: an extent that is too long for one is divided.
    #[must_use]
    pub fn split_discard(&self, extents: &[Extent]) -> Vec<Vec<Extent>> {
        let most = self.max_discard_blocks.max(1);
        let mut commands: Vec<Vec<Extent>> = Vec::new();
        let mut left = 0;
        for extent in extents {
            let mut rest = *extent;
            while rest.blocks > 0 {
                let is_full =
                    |command: &Vec<Extent>| command.len() >= self.max_discard_extents.max(1) as usize;
                if left == 0 || commands.last().is_none_or(is_full) {
                    commands.push(Vec::new());
                    left = most;
                }
                let blocks = rest.blocks.min(left);
                commands
                    .last_mut()
                    .into_iter()
                    .for_each(|command| command.push(Extent::new(rest.start, blocks)));
                left -= blocks;
                rest = Extent::new(rest.start.offset(u64::from(blocks)), rest.blocks - blocks);
            }
        }
        commands
    }

    /// Checks `command` against the capabilities and a capacity of `blocks` blocks.
    ///
    /// # Errors
    /// [`Rejected::Unsupported`] for what the device lacks, [`Rejected::Invalid`] for what breaks the contract.
    #[inline]
    pub fn check(&self, command: &Command<'_>, blocks: u64) -> Result<(), Rejected> {
        match command {
            Command::Read { extent, .. } => self.check_extent(*extent, blocks),
            Command::Write(write) => self.check_write(write, blocks),
            Command::Barrier { .. } => require(self.barriers(), Feature::Barrier),
            Command::Flush => Ok(()),
            Command::Discard(extents) => {
                require(self.discard != Discard::Unsupported, Feature::Discard)?;
                let (extents_in_all, limit) = (extents.len() as u64, self.max_discard_extents);
                let how = Invalid::TooManyExtents { extents: extents_in_all, limit };
                reject_if(!(1..=u64::from(limit)).contains(&extents_in_all), how)?;
                extents.iter().try_for_each(|extent| in_range(*extent, blocks))?;
                let blocks_in_all = extents.iter().map(|extent| u64::from(extent.blocks)).sum();
                check_limit(blocks_in_all, self.max_discard_blocks)
            }
            Command::Share(pairs) => {
                require(self.share, Feature::Share)?;
                let total = pairs.iter().map(|pair| u64::from(pair.from.blocks)).sum();
                check_limit(total, self.max_share_blocks)?;
                pairs.iter().try_for_each(|pair| {
                    let to = Extent::new(pair.to, pair.from.blocks);
                    in_range(pair.from, blocks)?;
                    in_range(to, blocks)?;
                    reject_if(pair.from.overlaps(to), Invalid::Overlap(to))
                })
            }
            Command::Packed(writes) => {
                require(self.packed, Feature::Packed)?;
                self.check_total(writes.iter().map(Write::blocks).sum())?;
                writes.iter().try_for_each(|write| self.check_write(write, blocks))
            }
        }
    }

    fn check_write(&self, write: &Write<'_>, blocks: u64) -> Result<(), Rejected> {
        let flags = write.flags;
        require(!flags.barrier || self.barriers(), Feature::Barrier)?;
        require(!flags.fua || self.fua, Feature::Fua)?;
        require(!flags.preflush || self.preflush, Feature::Preflush)?;
        require(!flags.reliable || self.reliable, Feature::Reliable)?;
        match write.priority {
            Priority::Simple => {}
            Priority::Ordered => require(self.ordered_service, Feature::OrderedService)?,
            Priority::HeadOfQueue => return Err(Rejected::Invalid(Invalid::HeadOfQueueWrite)),
        }
        let mut total = 0;
        for (i, part) in write.parts.iter().enumerate() {
            let extent = part.extent();
            let whole = !extent.bytes().eq(&0) && extent.bytes() == part.data.bytes().len();
            reject_if(!whole, Invalid::NotWholeBlocks(part.start))?;
            in_range(extent, blocks)?;
            let twice = write.parts[..i].iter().any(|earlier| earlier.extent().overlaps(extent));
            reject_if(twice, Invalid::Overlap(extent))?;
            total += u64::from(extent.blocks);
        }
        reject_if(total == 0, Invalid::NotWholeBlocks(crate::Lba(0)))?;
        self.check_total(total)
    }

    fn check_extent(&self, extent: Extent, blocks: u64) -> Result<(), Rejected> {
        in_range(extent, blocks)?;
        self.check_total(u64::from(extent.blocks))
    }

    fn check_total(&self, blocks: u64) -> Result<(), Rejected> {
        check_limit(blocks, self.max_transfer_blocks)
    }
}

fn check_limit(blocks: u64, limit: u32) -> Result<(), Rejected> {
    reject_if(blocks > u64::from(limit), Invalid::TooLarge { blocks, limit })
}

fn require(able: bool, feature: Feature) -> Result<(), Rejected> {
    if able { Ok(()) } else { Err(Rejected::Unsupported(feature)) }
}

fn reject_if(broken: bool, how: Invalid) -> Result<(), Rejected> {
    if broken { Err(Rejected::Invalid(how)) } else { Ok(()) }
}

fn in_range(extent: Extent, blocks: u64) -> Result<(), Rejected> {
    reject_if(extent.blocks == 0, Invalid::NotWholeBlocks(extent.start))?;
    reject_if(extent.end().0 > blocks || extent.start.0 >= blocks, Invalid::OutOfRange(extent))
}
