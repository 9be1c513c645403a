//! What a reader sees of a block while its discard is under way: the last version that was answered, and zeroes from
//! some moment on.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use crate::small;
use std::cell::RefCell;
use std::rc::Rc;

use weir_flash::{FlashDevice, FlashOptions, Mechanism};
use weir_runtime::{Handle, Runtime, Simulation};
use weir_storage::{BLOCK_BYTES, Command, Extent, Lba, Part, Ticket, Write, submit_when_free};

const BLOCK: Lba = Lba(5);

async fn write(device: &FlashDevice, block: Lba, content: u8) {
    let page = [content; BLOCK_BYTES];
    let parts = [Part::bytes(block, &page)];
    submit_when_free(device, Command::Write(Write::new(&parts))).await.unwrap().transferred().await.unwrap();
}

async fn submit(device: &FlashDevice, command: Command<'_>) -> Ticket {
    submit_when_free(device, command).await.unwrap()
}

fn content_now(device: &FlashDevice) -> u8 {
    let mut page = [0xff; BLOCK_BYTES];
    device.peek(BLOCK, &mut page);
    page[0]
}

/// Version 1 of a block goes to flash, version 2 is answered, and a discard is under way among `others` writes, before
/// and behind it. The contents of the block that are seen at each event, equal ones once.
async fn seen(handle: &Handle, mechanism: Mechanism, others: u64) -> Vec<u8> {
    let device = FlashDevice::new(handle, &small::profile(mechanism), FlashOptions::default());
    write(&device, BLOCK, 1).await;
    submit(&device, Command::Flush).await.transferred().await.unwrap();
    write(&device, BLOCK, 2).await;
    assert_eq!(content_now(&device), 2);
    let contents = Rc::new(RefCell::new(vec![2]));
    let (weak, list) = (Rc::downgrade(&device), Rc::clone(&contents));
    device.observe(move || {
        let Some(now) = weak.upgrade().map(|device| content_now(&device)) else { return };
        if list.borrow().last() != Some(&now) {
            list.borrow_mut().push(now);
        }
    });
    for other in 0..others {
        write(&device, Lba(20 + other), 9).await;
    }
    let discard = submit(&device, Command::Discard(&[Extent::new(Lba(0), 10)])).await;
    for other in 0..others {
        write(&device, Lba(40 + other), 9).await;
    }
    discard.transferred().await.unwrap();
    assert_eq!(content_now(&device), 0, "a discard was answered");
    submit(&device, Command::Flush).await.transferred().await.unwrap();
    contents.take()
}

#[test]
fn a_discard_shows_no_version_that_was_superseded() {
    for mechanism in Mechanism::ALL {
        for (seed, others) in [0, 1, 3, 7, 12].into_iter().enumerate() {
            let runtime = Runtime::simulated(Simulation { seed: seed as u64, ..Simulation::default() });
            let handle = runtime.handle();
            let contents = runtime.block_on(seen(&handle, mechanism, others)).unwrap();
            assert_eq!(contents, [2, 0], "{mechanism:?}, {others} others");
        }
    }
}
