//! How little memory a device needs whose bytes lie in a file. Alone in its program: what is measured is the
//! whole process.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use weir_flash::{Backing, FlashDevice, FlashOptions, Keep, Profile};
use weir_runtime::{Runtime, Simulation};
use weir_storage::{BLOCK_BYTES, Command, Lba, Part, Storage, Write, submit_when_free};

const BLOCKS: u64 = 16 << 10;

/// Memory of this process now, in MiB (proc_pid_statm(5)).
fn resident_mib() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    (pages * 4096) >> 20
}

/// By how much this process is larger when 64 MiB were written to a device, in MiB.
fn grown_mib(keep: Keep) -> u64 {
    let runtime = Runtime::simulated(Simulation::default());
    let handle = runtime.handle();
    let profile = Profile::load("ufs20").unwrap().0.with_capacity(BLOCKS);
    let before = resident_mib();
    let write = async {
        let device = FlashDevice::new(&handle, &profile, FlashOptions { keep, ..FlashOptions::default() });
        let bytes = vec![1; 64 * BLOCK_BYTES];
        for first in (0..device.blocks()).step_by(64) {
            let parts = [Part::bytes(Lba(first), &bytes)];
            let ticket = submit_when_free(&*device, Command::Write(Write::new(&parts))).await.unwrap();
            ticket.transferred().await.unwrap();
        }
        resident_mib().saturating_sub(before)
    };
    runtime.block_on(write).unwrap()
}

#[test]
fn a_device_in_a_file_needs_little_memory() {
    let in_file = grown_mib(Keep::File(Backing::new(tempfile::tempfile().unwrap())));
    let in_memory = grown_mib(Keep::Bytes);
    assert!(in_file <= 8, "{in_file} MiB");
    assert!(in_memory >= 56, "the control: {in_memory} MiB");
}
