//! A write of a part of a logical page behind a discard of the whole: nothing waits between the two, and the rest of the
//! page still reads as zeros.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use weir_flash::{FlashDevice, FlashOptions, Mechanism, Profile};
use weir_runtime::{Runtime, Simulation};
use weir_storage::{BLOCK_BYTES, Command, Extent, Lba, Part, Storage, Ticket, Write};

/// What the second block of the logical page reads.
fn left(mechanism: Mechanism) -> u8 {
    let runtime = Runtime::simulated(Simulation::default());
    let profile = Profile::builtin("openssd").unwrap().with_capacity(4096).with_mechanism(mechanism);
    let device = FlashDevice::new(&runtime.handle(), &profile, FlashOptions::default());
    let write = |blocks: usize| {
        let bytes = vec![7; blocks * BLOCK_BYTES];
        device.submit(Command::Write(Write::new(&[Part::bytes(Lba(0), &bytes)]))).unwrap()
    };
    let end = async |ticket: Ticket| ticket.transferred().await.unwrap();
    runtime
        .block_on(async {
            end(write(4)).await;
            end(device.submit(Command::Flush).unwrap()).await;
            let discard = device.submit(Command::Discard(&[Extent::new(Lba(0), 4)])).unwrap();
            let part = write(1);
            end(discard).await;
            end(part).await;
            end(device.submit(Command::Flush).unwrap()).await;
        })
        .unwrap();
    let mut bytes = [0; BLOCK_BYTES];
    device.peek(Lba(1), &mut bytes);
    bytes[0]
}

#[test]
fn a_part_written_behind_a_discard_leaves_zeros() {
    for mechanism in [Mechanism::None, Mechanism::OrderPreservingRecovery] {
        assert_eq!(left(mechanism), 0, "{}", mechanism.name());
    }
}
