//! Figure 3 of the OPTR paper: four sectors, four writes and a flush. An ordinary drive may leave 36 states, one that
//! preserves order 3. The states are enumerated, on the worst disk that the contract allows and on emulated flash.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use crate::small;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use weir_flash::{FlashDevice, FlashOptions, Mechanism};
use weir_runtime::{Handle, Runtime, Simulation};
use weir_storage::{
    AdversaryDisk, AdversaryOptions, BLOCK_BYTES, Capabilities, Command, Lba, Ordering, Part, Storage, Write,
};

const SECTORS: u64 = 4;

/// Which version each sector holds.
type State = [u8; SECTORS as usize];

/// Each write raises the versions of its sectors by one; all are durable after the flush but the last two.
async fn four_writes(storage: &dyn Storage) {
    let mut versions = [0; SECTORS as usize];
    for (number, (first, end)) in [(0, 2), (2, 4), (0, 4), (2, 4)].into_iter().enumerate() {
        versions[first..end].iter_mut().for_each(|version| *version += 1);
        let bytes: Vec<u8> =
            versions[first..end].iter().flat_map(|version| [*version; BLOCK_BYTES]).collect();
        let parts = [Part::bytes(Lba(first as u64), &bytes)];
        storage.submit(Command::Write(Write::new(&parts))).unwrap().transferred().await.unwrap();
        if number == 1 {
            storage.submit(Command::Flush).unwrap().transferred().await.unwrap();
        }
    }
}

/// The states that the worst disk with this order may leave.
fn worst(ordering: Ordering) -> BTreeSet<State> {
    let runtime = Runtime::simulated(Simulation::default());
    let capabilities = Capabilities { ordering, ..Capabilities::legacy(8, 8, BLOCK_BYTES as u32) };
    let options = AdversaryOptions { blocks: SECTORS, capabilities, ..AdversaryOptions::default() };
    let disk = AdversaryDisk::new(&runtime.handle(), options);
    runtime.block_on(four_writes(&*disk)).unwrap();
    let states = disk.crash_states();
    states.all().map(|image| std::array::from_fn(|sector| image.read(Lba(sector as u64))[0])).collect()
}

/// What a reader finds on a device.
fn state_of(device: &FlashDevice) -> State {
    std::array::from_fn(|sector| {
        let mut bytes = [0; BLOCK_BYTES];
        device.peek(Lba(sector as u64), &mut bytes);
        bytes[0]
    })
}

/// The states that emulated flash leaves after the last write, cut again and again until all is written back.
async fn left(handle: &Handle, mechanism: Mechanism) -> BTreeSet<State> {
    let profile = small::profile(mechanism);
    let device = FlashDevice::new(handle, &profile, FlashOptions::default());
    four_writes(&*device).await;
    let found: Rc<RefCell<BTreeSet<State>>> = Rc::default();
    let look = {
        let (found, weak, handle) = (Rc::clone(&found), Rc::downgrade(&device), handle.clone());
        let random = RefCell::new(handle.random("cuts"));
        move || {
            let Some(device) = weak.upgrade() else { return };
            for _ in 0..50 {
                let medium = device.after_cut(&mut random.borrow_mut());
                let again = FlashDevice::restarted(&handle, &profile, FlashOptions::default(), medium);
                found.borrow_mut().insert(state_of(&again));
            }
        }
    };
    look();
    device.observe(look);
    device.submit(Command::Flush).unwrap().transferred().await.unwrap();
    handle.sleep(Duration::from_millis(50)).await;
    found.take()
}

fn on_flash(mechanism: Mechanism) -> BTreeSet<State> {
    let runtime = Runtime::simulated(Simulation::default());
    runtime.block_on(left(&runtime.handle(), mechanism)).unwrap()
}

#[test]
fn an_ordinary_drive_may_leave_36_states_and_one_that_preserves_order_3() {
    assert_eq!(worst(Ordering::Legacy).len(), 36);
    let three = BTreeSet::from([[1, 1, 1, 1], [2, 2, 2, 2], [2, 2, 3, 3]]);
    assert_eq!(worst(Ordering::Prefix), three);
    assert!(worst(Ordering::Legacy).is_superset(&three));
}

#[test]
fn emulated_flash_leaves_what_it_may() {
    let ordered = on_flash(Mechanism::OrderPreservingRecovery);
    assert!(ordered.is_subset(&worst(Ordering::Prefix)) && ordered.len() > 1, "{ordered:?}");
    // The negative control: without the mechanism some state is no prefix.
    let ordinary = on_flash(Mechanism::None);
    assert!(ordinary.is_subset(&worst(Ordering::Legacy)), "{ordinary:?}");
    assert!(!ordinary.is_subset(&worst(Ordering::Prefix)), "{ordinary:?}");
}
