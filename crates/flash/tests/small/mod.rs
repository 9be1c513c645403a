//! Small devices for tests: a few hundred blocks, so that cleaning and checkpoints come soon.

#![allow(dead_code, reason = "every test uses a part")]

use weir_flash::{
    Allocation, Barrier, Cache, Flush, Ftl, GcPolicy, Host, InternalFlush, Layout, Mechanism, Nand,
    OrderedService, Profile, Replacement, ShareBy, SimpleService,
};

/// All mechanisms that keep barriers.
pub const BARRIER_MECHANISMS: [Mechanism; 5] = [
    Mechanism::PowerLossProtection,
    Mechanism::InOrderWriteback,
    Mechanism::TransactionalWriteback,
    Mechanism::InOrderRecovery,
    Mechanism::OrderPreservingRecovery,
];

/// The same with logical pages of a whole flash page, two blocks, each on a die of its own, summary pages, and a cache
/// that writes back what was used least recently.
pub fn paged(mechanism: Mechanism) -> Profile {
    let mut paged = profile(mechanism);
    (paged.nand.pages_per_block, paged.ftl.gc_free_blocks, paged.ftl.share) = (9, 4, 0);
    (paged.cache.replacement, paged.cache.bytes) = (Replacement::Lru, 48 * 4096);
    paged.ftl.layout = Layout {
        logical_page_blocks: 2,
        allocation: Allocation::Static,
        summary_pages: true,
        log_buffer_bytes: 400,
    };
    paged
}

/// A device of 160 blocks on 4 dies with pages of two blocks each, and programming times that differ from page to page.
pub fn profile(mechanism: Mechanism) -> Profile {
    Profile {
        name: "small".to_owned(),
        title: "for tests".to_owned(),
        blocks: 160,
        host: Host {
            queue_depth: 8,
            max_transfer_blocks: 8,
            link_bytes_per_second: 500_000_000,
            full_duplex: false,
            command_ns: 5_000,
            latency_ns: 7_000,
            ordered_service: OrderedService::Pipelined,
            simple_service: SimpleService::Any,
            fua: true,
            packed_header_ns: None,
            packed_pages: false,
            reliable_extra_ns: None,
        },
        cache: Cache {
            bytes: 24 * 4096,
            destage_share: 0.0,
            replacement: Replacement::Fifo,
            copy_bytes_per_second: None,
        },
        nand: Nand {
            channels: 2,
            ways: 2,
            planes: 2,
            multi_plane: true,
            blocks_per_plane: 10,
            pages_per_block: 4,
            page_bytes: 4096,
            read_ns: vec![40_000, 60_000],
            program_ns: vec![200_000, 700_000],
            erase_ns: 2_000_000,
            channel_bytes_per_second: 200_000_000,
            torn_program: false,
        },
        ftl: Ftl {
            gc: GcPolicy::Greedy,
            gc_free_blocks: 3,
            checkpoint_share: 0.2,
            log_share: 1.0,
            share: 16,
            share_by: ShareBy::Page,
            layout: Layout::default(),
        },
        flush: Flush { fixed_ns: 20_000, journal_pages: 1 },
        barrier: Barrier { mechanism, penalty: 0.0, tag_ns: 0, internal: InternalFlush::default() },
    }
}
