//! A small SATA drive for tests.

use weir_flash::{
    Barrier, Cache, Flush, Ftl, GcPolicy, Host, InternalFlush, Layout, Mechanism, Nand, OrderedService,
    Profile, Replacement, ShareBy, SimpleService,
};

/// A drive of 64 MiB on 16 dies, with a queue of 32 commands.
pub fn drive(mechanism: Mechanism) -> Profile {
    Profile {
        name: "drive".to_owned(),
        title: "for tests".to_owned(),
        blocks: 16_384,
        host: Host {
            queue_depth: 32,
            max_transfer_blocks: 64,
            link_bytes_per_second: 550_000_000,
            full_duplex: false,
            command_ns: 11_000,
            latency_ns: 10_000,
            ordered_service: OrderedService::Pipelined,
            simple_service: SimpleService::Any,
            fua: true,
            packed_header_ns: None,
            packed_pages: false,
            reliable_extra_ns: None,
        },
        cache: Cache {
            bytes: 4 << 20,
            destage_share: 0.5,
            replacement: Replacement::Fifo,
            copy_bytes_per_second: None,
        },
        nand: Nand {
            channels: 8,
            ways: 4,
            planes: 2,
            multi_plane: true,
            blocks_per_plane: 16,
            pages_per_block: 16,
            page_bytes: 8192,
            read_ns: vec![50_000],
            program_ns: vec![300_000, 900_000],
            erase_ns: 3_000_000,
            channel_bytes_per_second: 333_000_000,
            torn_program: false,
        },
        ftl: Ftl {
            gc: GcPolicy::Greedy,
            gc_free_blocks: 3,
            checkpoint_share: 0.2,
            log_share: 0.0,
            share: 0,
            share_by: ShareBy::Page,
            layout: Layout::default(),
        },
        flush: Flush { fixed_ns: 500_000, journal_pages: 1 },
        barrier: Barrier { mechanism, penalty: 0.0, tag_ns: 0, internal: InternalFlush::default() },
    }
}
