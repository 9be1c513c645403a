//! A flash device for tests of what stands on it: 32 MiB on eight dies, with programming times that differ from
//! page to page, so that pages finish in another order than they began.

use weir_flash::{
    Barrier, Cache, Flush, Ftl, GcPolicy, Host, InternalFlush, Layout, Mechanism, Nand, OrderedService,
    Profile, Replacement, ShareBy, SimpleService,
};

pub fn profile(mechanism: Mechanism) -> Profile {
    Profile {
        name: "drive".to_owned(),
        title: "for tests".to_owned(),
        blocks: 8192,
        host: Host {
            queue_depth: 32,
            max_transfer_blocks: 256,
            link_bytes_per_second: 600_000_000,
            full_duplex: false,
            command_ns: 5_000,
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
            destage_share: 0.0,
            replacement: Replacement::Fifo,
            copy_bytes_per_second: None,
        },
        nand: Nand {
            channels: 4,
            ways: 2,
            planes: 2,
            multi_plane: true,
            blocks_per_plane: 24,
            pages_per_block: 32,
            page_bytes: 4096,
            read_ns: vec![40_000],
            program_ns: vec![200_000, 900_000],
            erase_ns: 2_000_000,
            channel_bytes_per_second: 300_000_000,
            torn_program: false,
        },
        ftl: Ftl {
            gc: GcPolicy::Greedy,
            gc_free_blocks: 3,
            checkpoint_share: 0.1,
            log_share: 1.0,
            share: 0,
            share_by: ShareBy::Page,
            layout: Layout::default(),
        },
        flush: Flush { fixed_ns: 20_000, journal_pages: 1 },
        barrier: Barrier { mechanism, penalty: 0.0, tag_ns: 0, internal: InternalFlush::default() },
    }
}
