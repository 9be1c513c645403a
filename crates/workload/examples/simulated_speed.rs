//! tmp
use weir_flash::*;
use weir_runtime::{Runtime, Wall};
use weir_workload::{SimulatedOptions, simulate};
fn main() {
    let profile = Profile {
        name: "sata".into(), title: String::new(), blocks: 62_500_000,
        host: Host { queue_depth: 32, max_transfer_blocks: 128, link_bytes_per_second: 550_000_000, full_duplex: false, command_ns: 11_000, latency_ns: 9_000, ordered_service: OrderedService::Pipelined, simple_service: SimpleService::Fifo, fua: true },
        cache: Cache { bytes: 32 << 20, destage_share: 0.0 },
        nand: Nand { channels: 8, ways: 4, planes: 2, multi_plane: true, blocks_per_plane: 2200, pages_per_block: 256, page_bytes: 8192, read_ns: vec![49_000], program_ns: vec![600_000], erase_ns: 4_000_000, channel_bytes_per_second: 400_000_000 },
        ftl: Ftl { gc: GcPolicy::Greedy, gc_free_blocks: 4, checkpoint_share: 0.06 },
        flush: Flush { fixed_ns: 1_000_000, journal_pages: 1 },
        barrier: Barrier { mechanism: Mechanism::InOrderRecovery, penalty: 0.0 },
    };
    let clock = Runtime::wall(Wall::default()).unwrap().handle();
    for (barriers, recorder, pre) in [(false, false, false), (false, true, false), (true, true, false), (false, false, true)] {
        let o = SimulatedOptions { barriers, recorder, preconditioned: pre, span_blocks: if pre { u64::MAX } else { 1 << 18 }, ..SimulatedOptions::default() };
        println!("{barriers} {recorder} {:?}", simulate(&clock, &profile, &o).unwrap());
    }
}
