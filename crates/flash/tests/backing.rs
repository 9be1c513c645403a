//! A device whose bytes lie in a file: the same device, in little memory.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use crate::small;
use std::rc::Rc;

use weir_flash::{Backing, FlashDevice, FlashOptions, Keep, Mechanism};
use weir_runtime::{Handle, Runtime, Simulation};
use weir_storage::{
    BLOCK_BYTES, Command, Expectations, Lba, Part, Storage, Write, conformance, flush, submit_when_free,
};

fn in_file() -> FlashOptions {
    let backing = Backing::new(tempfile::tempfile().unwrap());
    FlashOptions { keep: Keep::File(backing), ..FlashOptions::default() }
}

fn simulated<T>(test: impl AsyncFnOnce(Handle) -> T) -> T {
    let runtime = Runtime::simulated(Simulation::default());
    runtime.block_on(test(runtime.handle())).unwrap()
}

/// Blocks in a write: what the small devices take.
const UNIT_BLOCKS: usize = 8;

/// Writes blocks `from` to `to`, each full of `byte`.
async fn write(device: &FlashDevice, from: u64, to: u64, byte: u8) {
    let bytes = vec![byte; UNIT_BLOCKS * BLOCK_BYTES];
    for first in (from..to).step_by(UNIT_BLOCKS) {
        let blocks = (to - first).min(UNIT_BLOCKS as u64) as usize;
        let parts = [Part::bytes(Lba(first), &bytes[..blocks * BLOCK_BYTES])];
        let ticket = submit_when_free(device, Command::Write(Write::new(&parts))).await.unwrap();
        ticket.transferred().await.unwrap();
    }
    flush(device).await.unwrap();
}

fn found(device: &FlashDevice, block: u64) -> u8 {
    let mut bytes = vec![0; BLOCK_BYTES];
    device.peek(Lba(block), &mut bytes);
    assert!(bytes.iter().all(|byte| *byte == bytes[0]), "block {block} is mixed");
    bytes[0]
}

#[test]
fn a_device_in_a_file_conforms() {
    for mechanism in Mechanism::ALL {
        let profile = small::profile(mechanism);
        let report = simulated(async |handle| {
            let make = async || FlashDevice::new(&handle, &profile, in_file()) as Rc<dyn Storage>;
            conformance(&handle, Expectations::default(), make).await
        });
        assert!(report.is_ok(), "{mechanism:?}: {report:?}");
    }
}

/// The device goes on, and overwrites and erases; what the cut left is in the same file, and stays.
#[test]
fn what_a_power_cut_leaves_shares_the_file_with_the_device_that_goes_on() {
    simulated(async |handle| {
        let profile = small::profile(Mechanism::InOrderRecovery);
        let options = in_file();
        let device = FlashDevice::new(&handle, &profile, options.clone());
        let blocks = device.blocks();
        write(&device, 0, blocks, 1).await;
        let left = device.after_cut(&mut handle.random("cut"));
        for byte in 2..10 {
            write(&device, 0, blocks, byte).await;
        }
        assert!(device.wear().2 > 1, "nothing was erased: {:?}", device.wear());
        let restarted = FlashDevice::restarted(&handle, &profile, options, left);
        flush(&*restarted).await.unwrap();
        for block in 0..blocks {
            assert_eq!((found(&device, block), found(&restarted, block)), (9, 1), "block {block}");
        }
    });
}

#[test]
fn a_file_that_fails_fails_the_command() {
    simulated(async |handle| {
        let zeroes = std::fs::File::options().read(true).open("/dev/zero").unwrap();
        let options = FlashOptions { keep: Keep::File(Backing::new(zeroes)), ..FlashOptions::default() };
        let device = FlashDevice::new(&handle, &small::profile(Mechanism::None), options);
        let bytes = vec![1; BLOCK_BYTES];
        let parts = [Part::bytes(Lba(7), &bytes)];
        let refused = device.submit(Command::Write(Write::new(&parts))).map(drop).unwrap_err().to_string();
        assert!(refused.contains("Write") && refused.contains('7'), "{refused}");
        flush(&*device).await.unwrap();
    });
}
