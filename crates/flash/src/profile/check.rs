//! Whether a device is possible, and smaller ones like it.

use weir_storage::BLOCK_BYTES;

use super::error::ProfileError;
use super::unit::Quantity;
use super::{Allocation, InternalFlush, Layout, Mechanism, Profile, Replacement, ShareBy};
use crate::ftl::CLEANINGS_OWN;
use crate::geometry::{BlockSet, Geometry};
use crate::medium::Payload;

/// The longest time in a profile: a second, of which no flash comes near. Longer ones are mistakes.
const TIME_NS_MAX: u64 = 1_000_000_000;

/// Erase blocks of a device: the firmware keeps some 50 bytes for each.
const ERASE_BLOCKS_MAX: u64 = 1 << 22;

/// Places of 4 KiB on flash: 2 TiB. The firmware keeps 9 bytes for each in the map, 9 more once it is programmed.
const RAW_BLOCKS_MAX: u64 = 1 << 29;

/// Changes of the map that wait in memory: 256 MiB.
const LOG_BUFFER_BYTES_MAX: u64 = 1 << 28;

/// Logical pages of a cache whose order is searched: 1 GiB of 16 KiB each.
const SEARCHED_PLACES_MAX: u64 = 1 << 16;

/// Bytes of a block.
const BLOCK: u64 = BLOCK_BYTES as u64;

/// Blocks of 4 KiB in one command: 256 MiB.
const TRANSFER_BLOCKS_MAX: u64 = 1 << 16;

/// Blocks of 4 KiB in the cache: 64 GiB.
const CACHE_BLOCKS_MAX: u64 = 1 << 24;

fn within<T: PartialOrd + Copy + std::fmt::Display>(
    key: &str,
    value: T,
    least: T,
    most: T,
) -> Result<(), ProfileError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    let right = format!("from {least} to {most}");
    Err(ProfileError::Value { key: key.to_owned(), found: value.to_string(), right })
}

/// The same for what has a unit.
fn measures(quantity: Quantity, key: &str, value: u64, least: u64, most: u64) -> Result<(), ProfileError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    let right = format!("from {} to {}", quantity.text(least), quantity.text(most));
    Err(ProfileError::Value { key: key.to_owned(), found: quantity.text(value), right })
}

impl Profile {
    /// 4 KiB places on the flash, spare ones included, without summary pages.
    #[must_use]
    pub fn raw_blocks(&self) -> u64 {
        let Self { nand, .. } = self;
        let erase_blocks = [nand.channels, nand.ways, nand.planes, nand.blocks_per_plane];
        let pages = erase_blocks
            .iter()
            .fold(self.data_pages_per_block(), |product, factor| product.saturating_mul(u64::from(*factor)));
        pages.saturating_mul(u64::from(nand.page_bytes) / BLOCK_BYTES as u64)
    }

    /// Pages of an erase block without its summary page.
    fn data_pages_per_block(&self) -> u64 {
        u64::from(self.nand.pages_per_block.saturating_sub(u32::from(self.ftl.layout.summary_pages)))
    }

    /// Blocks of the free erase blocks, and of those being filled, that the firmware cannot do without.
    fn reserve_blocks(&self) -> u64 {
        let erase_block = self.data_pages_per_block() * u64::from(self.nand.page_bytes) / 4096;
        let together = u64::from(self.nand.planes_together());
        let dies = u64::from(self.nand.channels) * u64::from(self.nand.ways);
        dies * (u64::from(self.ftl.gc_free_blocks) + 2) * erase_block * together
    }

    /// Checks that the device is possible.
    ///
    /// # Errors
    /// The first key that is out of range, or what does not go together.
    pub fn check(&self) -> Result<(), ProfileError> {
        let Self { host, nand, ftl, cache, flush, .. } = self;
        within("host.queue_depth", host.queue_depth, 1, 65_536)?;
        let max_transfer = u64::from(host.max_transfer_blocks) * BLOCK;
        measures(Quantity::Size, "host.max_transfer", max_transfer, BLOCK, TRANSFER_BLOCKS_MAX * BLOCK)?;
        for (key, rate) in [
            ("host.link", Some(host.link_bytes_per_second)),
            ("nand.channel", Some(nand.channel_bytes_per_second)),
            ("cache.copy", cache.copy_bytes_per_second),
        ] {
            rate.map_or(Ok(()), |rate| measures(Quantity::Rate, key, rate, 1_000_000, 1_000_000_000_000))?;
        }
        for (key, time) in [
            ("host.command", host.command_ns),
            ("host.latency", host.latency_ns),
            ("host.packed_header", host.packed_header_ns.unwrap_or(0)),
            ("host.reliable_extra", host.reliable_extra_ns.unwrap_or(0)),
            ("nand.erase", nand.erase_ns),
            ("flush.fixed", flush.fixed_ns),
            ("barrier.tag", self.barrier.tag_ns),
        ] {
            measures(Quantity::Time, key, time, 0, TIME_NS_MAX)?;
        }
        for (key, times) in [("nand.read", &nand.read_ns), ("nand.program", &nand.program_ns)] {
            within(key, times.len(), 1, 65_536)?;
            times.iter().try_for_each(|time| measures(Quantity::Time, key, *time, 1, TIME_NS_MAX))?;
        }
        if host.packed_pages && (host.packed_header_ns.is_none() || host.reliable_extra_ns.is_none()) {
            let what = "host.packed_pages needs host.packed and host.reliable";
            return Err(ProfileError::Geometry(what.to_owned()));
        }
        within("flush.journal_pages", flush.journal_pages, 0, 1000)?;
        within("cache.destage_share", cache.destage_share, 0.0, 0.9)?;
        within("ftl.checkpoint_share", ftl.checkpoint_share, 1e-6, 0.5)?;
        within("ftl.log_share", ftl.log_share, 0.0, 16.0)?;
        within("ftl.share", u64::from(ftl.share), 0, Payload::SHARE_PAIRS_MAX)?;
        within("ftl.gc_free_blocks", ftl.gc_free_blocks, CLEANINGS_OWN as u32 + 1, 1000)?;
        within("barrier.penalty", self.barrier.penalty, 0.0, 1.0)?;
        let InternalFlush { every_ns, cleaning_batch, .. } = self.barrier.internal;
        measures(Quantity::Time, "barrier.flush_every", every_ns, 1_000_000, 60 * TIME_NS_MAX)?;
        within("barrier.cleaning_batch", cleaning_batch, 1, 1 << 16)?;
        self.check_geometry()
    }

    fn check_geometry(&self) -> Result<(), ProfileError> {
        let Self { nand, cache, .. } = self;
        for (key, count) in [
            ("nand.channels", nand.channels),
            ("nand.ways", nand.ways),
            ("nand.planes", nand.planes),
            ("nand.blocks_per_plane", nand.blocks_per_plane),
        ] {
            within(key, count, 1, 1 << 20)?;
        }
        within("nand.channels * nand.ways", u64::from(nand.channels) * u64::from(nand.ways), 1, 1024)?;
        within(
            "nand.pages_per_block",
            nand.pages_per_block,
            2 + u32::from(self.ftl.layout.summary_pages),
            65_535,
        )?;
        let impossible = |what: String| Err(ProfileError::Geometry(what));
        if nand.page_bytes == 0 || nand.page_bytes % BLOCK_BYTES as u32 != 0 {
            return impossible(format!("nand.page is {} bytes, not a multiple of 4 KiB", nand.page_bytes));
        }
        let page_blocks = u64::from(nand.page_bytes) / 4096 * u64::from(nand.planes_together());
        within("blocks in a page of all planes", page_blocks, 1, 255)?;
        self.check_layout(page_blocks)?;
        if self.blocks == 0 {
            return impossible("device.capacity is less than one block of 4 KiB".to_owned());
        }
        let (raw, reserve) = (self.raw_blocks(), self.reserve_blocks());
        within("places of 4 KiB on flash", raw, 1, RAW_BLOCKS_MAX)?;
        let counts = [nand.channels, nand.ways, nand.planes, nand.blocks_per_plane];
        let erase_blocks = counts.iter().map(|count| u64::from(*count)).fold(1, u64::saturating_mul);
        within(
            "erase blocks (channels * ways * planes * blocks_per_plane)",
            erase_blocks,
            1,
            ERASE_BLOCKS_MAX,
        )?;
        measures(Quantity::Size, "cache.size", cache.bytes, 0, CACHE_BLOCKS_MAX * BLOCK)?;
        if self.blocks.saturating_add(reserve) > raw {
            return impossible(format!(
                "device.capacity is {} blocks of 4 KiB, the firmware needs {reserve} more, and the flash has {raw}; \
                 enlarge nand.blocks_per_plane or lower the capacity",
                self.blocks
            ));
        }
        if cache.bytes > 0 && self.cache_places() < self.command_places() {
            let places = if self.ftl.layout.logical_page_blocks == 1 {
                String::new()
            } else {
                ", of which each block may need a logical page of its own".to_owned()
            };
            return impossible(format!("cache.size is less than host.max_transfer{places}"));
        }
        if self.barrier.mechanism == Mechanism::OrderPreservingRecovery {
            self.check_room()?;
        }
        Ok(())
    }

    /// Logical pages that the cache holds.
    pub(crate) fn cache_places(&self) -> u64 {
        self.cache.bytes / (u64::from(self.ftl.layout.logical_page_blocks) * BLOCK)
    }

    /// Logical pages that one command may change: each block of a write may lie in one of its own, and a discard may
    /// begin and end within one.
    pub(crate) fn command_places(&self) -> u64 {
        let least = if self.ftl.layout.logical_page_blocks == 1 { 1 } else { 3 };
        u64::from(self.host.max_transfer_blocks).max(least)
    }

    /// Logical pages of the device.
    pub(crate) fn logical_pages(&self) -> u64 {
        self.blocks / u64::from(self.ftl.layout.logical_page_blocks)
    }

    /// `page_blocks`: blocks in a page of all planes that program together.
    fn check_layout(&self, page_blocks: u64) -> Result<(), ProfileError> {
        let Layout { logical_page_blocks, allocation, log_buffer_bytes, .. } = self.ftl.layout;
        let impossible = |what: String| Err(ProfileError::Geometry(what));
        within("blocks in ftl.logical_page", logical_page_blocks, 1, BlockSet::BITS)?;
        measures(Quantity::Size, "ftl.log_buffer", log_buffer_bytes, 0, LOG_BUFFER_BYTES_MAX)?;
        let logical = u64::from(logical_page_blocks);
        if !page_blocks.is_multiple_of(logical) || !self.blocks.is_multiple_of(logical) {
            return impossible(format!(
                "ftl.logical_page is {logical} blocks of 4 KiB, and neither a page of all planes, {page_blocks} blocks, \
                 nor device.capacity may end within one"
            ));
        }
        let searched = allocation == Allocation::Static || self.cache.replacement == Replacement::Lru;
        if searched && self.cache_places() > SEARCHED_PLACES_MAX {
            return impossible(format!(
                "cache.size is {} logical pages, and with static allocation or LRU at most {SEARCHED_PLACES_MAX} go",
                self.cache_places()
            ));
        }
        if allocation == Allocation::Static && page_blocks != logical {
            return impossible(format!(
                "ftl.allocation is static, so ftl.logical_page must be a page of all planes, {page_blocks} blocks"
            ));
        }
        if !self.blocks.is_multiple_of(self.capacity_step()) {
            return impossible(
                "ftl.allocation is static, so each die must take as many logical pages".to_owned(),
            );
        }
        if logical > 1 && self.nand.torn_program {
            // It would garble blocks of the page that nobody writes.
            return impossible("nand.torn_program needs logical pages of one block".to_owned());
        }
        let mechanism = self.barrier.mechanism;
        if self.ftl.share_by == ShareBy::Log && !mechanism.can_log_shares() {
            return impossible(format!("ftl.share_by is log, which does not go with {}", mechanism.name()));
        }
        if logical > 1 && self.ftl.share > 0 {
            return impossible("ftl.share needs logical pages of one block".to_owned());
        }
        Ok(())
    }

    /// Order-preserving recovery takes a request only if all of it can be written before anything is cleaned: into the
    /// erase blocks that cleaning keeps free for the host. Valid content may leave room on one die alone.
    fn check_room(&self) -> Result<(), ProfileError> {
        let free = u64::from(self.ftl.gc_free_blocks) - CLEANINGS_OWN as u64;
        let geometry = Geometry::new(self);
        let pages = free * u64::from(geometry.data_pages_per_block);
        // Each write of a packed command may be flushed, and so take a page, by itself.
        let packed = self.host.packed_header_ns.is_some();
        let room = if packed { pages } else { pages * u64::from(geometry.slots_per_page) };
        if self.command_places() <= room {
            return Ok(());
        }
        Err(ProfileError::Geometry(format!(
            "host.max_transfer is {} blocks, and order-preserving recovery keeps room for {room} logical pages; enlarge \
             ftl.gc_free_blocks, or lower host.max_transfer",
            self.host.max_transfer_blocks
        )))
    }

    /// A capacity is a multiple of so many blocks: of a logical page, of one on each die where allocation is static.
    fn capacity_step(&self) -> u64 {
        let Layout { logical_page_blocks, allocation, .. } = self.ftl.layout;
        let dies = match allocation {
            Allocation::Dynamic => 1,
            Allocation::Static => u64::from(self.nand.channels) * u64::from(self.nand.ways),
        };
        u64::from(logical_page_blocks) * dies
    }

    /// The same device with a capacity of `blocks`, 256 and more, and fewer erase blocks; in the same proportion
    /// to spare ones as far as the firmware's reserve allows.
    #[must_use]
    pub fn with_capacity(&self, blocks: u64) -> Profile {
        let mut small = self.clone();
        small.blocks = blocks.max(256).next_multiple_of(self.capacity_step()).min(self.blocks);
        let share = small.blocks as f64 / self.blocks as f64;
        let wanted = (f64::from(self.nand.blocks_per_plane) * share).ceil() as u32;
        small.nand.blocks_per_plane = wanted.clamp(1, self.nand.blocks_per_plane);
        while small.check().is_err() && small.nand.blocks_per_plane < self.nand.blocks_per_plane {
            small.nand.blocks_per_plane += 1;
        }
        small
    }

    /// The same device with another barrier mechanism. Where that keeps no shares in the map's log, a share takes a page.
    #[must_use]
    pub fn with_mechanism(&self, mechanism: Mechanism) -> Profile {
        let mut other = self.clone();
        other.barrier.mechanism = mechanism;
        if !mechanism.can_log_shares() {
            other.ftl.share_by = ShareBy::Page;
        }
        other
    }
}
