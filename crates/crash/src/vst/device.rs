//! The device of virtual stress testing.

use weir_flash::{
    Allocation, Barrier, Cache, Flush, Ftl, GcPolicy, Host, InternalFlush, Layout, Mechanism, Nand,
    OrderedService, Profile, Replacement, ShareBy, SimpleService,
};

/// The device: 64 MiB on 8 dies, laid out as the paper's drive, and small enough that it is cleaned all the time.
pub(super) fn profile() -> Profile {
    Profile {
        name: "vst".to_owned(),
        title: "for virtual stress testing".to_owned(),
        blocks: 8192,
        host: Host {
            queue_depth: 32,
            max_transfer_blocks: 128,
            link_bytes_per_second: 500_000_000,
            full_duplex: false,
            command_ns: 10_000,
            latency_ns: 10_000,
            ordered_service: OrderedService::None,
            simple_service: SimpleService::Fifo,
            fua: true,
            packed_header_ns: None,
            packed_pages: false,
            reliable_extra_ns: None,
        },
        cache: Cache {
            bytes: 1 << 20,
            destage_share: 0.5,
            replacement: Replacement::Lru,
            copy_bytes_per_second: None,
        },
        nand: Nand {
            channels: 4,
            ways: 2,
            planes: 1,
            multi_plane: false,
            blocks_per_plane: 20,
            pages_per_block: 32,
            page_bytes: 16_384,
            read_ns: vec![60_000],
            program_ns: vec![500_000, 1_500_000],
            erase_ns: 3_000_000,
            channel_bytes_per_second: 200_000_000,
            torn_program: false,
        },
        ftl: Ftl {
            gc: GcPolicy::Greedy,
            gc_free_blocks: 7,
            checkpoint_share: 0.1,
            log_share: 1.0,
            share: 0,
            share_by: ShareBy::Page,
            layout: Layout {
                logical_page_blocks: 4,
                allocation: Allocation::Static,
                summary_pages: true,
                log_buffer_bytes: 16_384,
            },
        },
        flush: Flush { fixed_ns: 100_000, journal_pages: 0 },
        barrier: Barrier {
            mechanism: Mechanism::OrderPreservingRecovery,
            penalty: 0.0,
            tag_ns: 0,
            internal: InternalFlush { every_ns: 500_000_000, cleaning_batch: 8, stops_commands: false },
        },
    }
}
