//! The loss window that is reported is the one that a crash would cost.

use std::time::Duration;

use weir_storage::{AdversaryDisk, AdversaryOptions, BLOCK_BYTES, Fault, Faults};
use weir_volume::{Format, Volume, VolumeOptions};

use crate::bench::{disk_with, is_done, made, open, put, simulate, submit_page};

#[test]
fn the_window_in_bytes_has_the_open_chunk_in_it() {
    simulate(1, async |handle| {
        let options =
            AdversaryOptions { blocks: 8192, latency_ns_max: 1_000_000, ..AdversaryOptions::default() };
        let disk = AdversaryDisk::new(&handle, options);
        Volume::create(&handle, &*disk, Format::default()).await.expect("a volume fits");
        let volume = open(&handle, &disk, &VolumeOptions::default()).await.expect("the volume is whole");
        for block in 0..200 {
            put(&volume, block, 1 + block).await.expect("there is room");
        }
        let seen = volume.stats().loss_window.bytes_max;
        assert!(seen >= 200 * BLOCK_BYTES as u64, "200 blocks are volatile, and {seen} bytes are reported");
    });
}

/// Writes while command `nth` takes five seconds. The age of the oldest write that was taken and is not
/// durable, and the age that is reported.
fn ages(nth: u64, options: &VolumeOptions) -> (Duration, Duration, usize) {
    simulate(1, async |handle| {
        let image = made(&handle).await.image();
        let faults = Faults { delay: Fault::Nth(nth), delay_ns: 5_000_000_000, ..Faults::default() };
        let disk = disk_with(&handle, &image, faults);
        let volume = open(&handle, &disk, options).await.expect("the volume is whole");
        let mut taken = Vec::new();
        for i in 0..60 {
            if let Ok(ticket) = submit_page(&volume, i % 20, 1 + i) {
                taken.push((handle.now(), ticket));
            }
            handle.sleep(Duration::from_millis(30)).await;
        }
        let volatile = || taken.iter().filter(|(_, ticket)| is_done(ticket.durable()).is_none());
        let age = volatile().next().map(|(since, _)| handle.now().since(*since)).unwrap_or_default();
        (age, volume.stats().loss_window.time_max, volatile().count())
    })
}

#[test]
fn the_window_in_time_is_enforced_and_has_the_present_in_it() {
    let options = VolumeOptions::default();
    let mut late = 0;
    for nth in 5..40 {
        let (age, reported, volatile) = ages(nth, &options);
        assert!(reported >= age, "command {nth}: {age:?} old and not durable, {reported:?} reported");
        if age > options.loss_window.time * 3 {
            late += 1;
            // A write every 30 ms: those of the window, and what still went into the chunk that was open.
            assert!(volatile < 20, "command {nth}: {volatile} writes taken while the oldest was overdue");
        }
    }
    assert!(late > 0, "no command was on the way to durability");
}
