//! The device that power is cut on: small, so that cleaning and checkpoints come soon, and drawn anew for each
//! run.

use weir_flash::{
    Allocation, Barrier, Cache, Flush, Ftl, GcPolicy, Host, InternalFlush, Layout, Mechanism, Nand,
    OrderedService, Profile, Replacement, ShareBy, SimpleService,
};
use weir_runtime::Random;

use crate::options::pick;

/// A device with a few dies, a few hundred slots, and programming times that differ from page to page.
pub(crate) fn draw(mechanism: Mechanism, random: &mut Random) -> Profile {
    let multi_plane = random.below(2) == 0;
    let page_bytes = pick(random, &[4096, 8192]);
    let planes = if multi_plane { 2 } else { 1 };
    let (channels, ways) = pick(random, &[(1, 1), (1, 2), (2, 1), (2, 2)]);
    let pages_per_block = pick(random, &[4, 6]);
    let blocks_per_plane = pick(random, &[10, 12]);
    let dies = channels * ways;
    let page_blocks = page_bytes / 4096 * planes;
    let layout = layout(random, page_blocks);
    let data_pages = pages_per_block;
    let pages_per_block = data_pages + u32::from(layout.summary_pages);
    let slots = dies * blocks_per_plane * data_pages * page_blocks;
    let gc_free_blocks = pick(random, &[3, 4]);
    // The free blocks that cleaning needs, two that are being filled, and little to make it worth its while.
    let kept_blocks = gc_free_blocks + 2 + random.below(2) as u32;
    let reserve = dies * kept_blocks * data_pages * page_blocks;
    let capacity = slots - reserve;
    // As many logical pages for each die.
    let capacity = capacity - capacity % (page_blocks * dies);
    let slow = pick(random, &[1, 2, 5]);
    let internal = match mechanism {
        Mechanism::OrderPreservingRecovery => InternalFlush {
            every_ns: pick(random, &[1_000_000, 3_000_000, 1_000_000_000]),
            cleaning_batch: pick(random, &[1, 3, 16]),
            stops_commands: false,
        },
        _ => InternalFlush::default(),
    };
    Profile {
        name: "drawn".to_owned(),
        title: "for power cuts".to_owned(),
        blocks: u64::from(capacity),
        host: Host {
            queue_depth: pick(random, &[2, 8, 16]),
            max_transfer_blocks: 4,
            link_bytes_per_second: 500_000_000,
            full_duplex: false,
            command_ns: 5_000,
            latency_ns: pick(random, &[1_000, 30_000]),
            ordered_service: pick(
                random,
                &[OrderedService::None, OrderedService::Serial, OrderedService::Pipelined],
            ),
            simple_service: pick(random, &[SimpleService::Fifo, SimpleService::Any]),
            fua: true,
            packed_header_ns: None,
            packed_pages: false,
            reliable_extra_ns: None,
        },
        cache: Cache {
            bytes: pick(random, &[6, 16, 40]) * 4096 * u64::from(layout.logical_page_blocks),
            destage_share: pick(random, &[0.0, 0.5]),
            replacement: pick(random, &[Replacement::Fifo, Replacement::Lru]),
            copy_bytes_per_second: None,
        },
        nand: Nand {
            channels,
            ways,
            planes,
            multi_plane,
            blocks_per_plane,
            pages_per_block,
            page_bytes,
            read_ns: vec![40_000],
            program_ns: vec![100_000, 100_000 * slow],
            erase_ns: 400_000,
            channel_bytes_per_second: 200_000_000,
            torn_program: false,
        },
        ftl: Ftl {
            gc: pick(random, &[GcPolicy::Greedy, GcPolicy::CostBenefit]),
            gc_free_blocks,
            checkpoint_share: pick(random, &[0.01, 0.05, 0.4]),
            log_share: 1.0,
            share: 0,
            share_by: ShareBy::Page,
            layout,
        },
        flush: Flush { fixed_ns: 10_000, journal_pages: random.below(2) as u32 },
        barrier: Barrier { mechanism, penalty: 0.0, tag_ns: 0, internal },
    }
}

/// Half of the devices have a map of blocks; the others have logical pages of a flash page or of a part of one, and what
/// belongs to that.
fn layout(random: &mut Random, page_blocks: u32) -> Layout {
    if random.below(2) == 0 {
        return Layout::default();
    }
    let logical_page_blocks = pick(random, &[1, page_blocks / 2, page_blocks]).max(1);
    let whole = logical_page_blocks == page_blocks;
    Layout {
        logical_page_blocks,
        allocation: if whole {
            pick(random, &[Allocation::Dynamic, Allocation::Static])
        } else {
            Allocation::Dynamic
        },
        summary_pages: random.below(2) == 0,
        log_buffer_bytes: pick(random, &[0, 64, 400]),
    }
}

/// Packed writes, reliable ones, and programs that a cut tears: each in half of the devices that can have them.
pub(crate) fn draw_write_features(profile: &mut Profile, random: &mut Random) {
    let cost_ns = |random: &mut Random| (random.below(2) == 0).then(|| pick(random, &[0, 20_000]));
    profile.host.packed_header_ns = cost_ns(random);
    profile.host.reliable_extra_ns = cost_ns(random);
    let has_both = profile.host.packed_header_ns.is_some() && profile.host.reliable_extra_ns.is_some();
    profile.host.packed_pages = has_both && random.below(2) == 0;
    profile.nand.torn_program = random.below(2) == 0 && profile.ftl.layout.logical_page_blocks == 1;
}
