//! Mutants that no power cut shows: damage, failures, and the loss window.

use std::time::Duration;

use weir_runtime::Handle;
use weir_storage::{BLOCK_BYTES, Fault, Faults, Image, Lba, Rejected, Rules, StorageError, flush};
use weir_volume::{Damage, LossWindow, Volume, VolumeError, VolumeMutant, VolumeOptions};

use crate::bench::{disk_with, find_page, get, is_done, made, open, put, simulate, submit_page};

fn with(mutant: Option<VolumeMutant>) -> VolumeOptions {
    VolumeOptions { rules: Rules::but(mutant), ..VolumeOptions::default() }
}

/// Two requests, each flushed, and one bit of the first one's page inverted afterwards.
async fn damaged_page(handle: &Handle, close: bool) -> (Image, Lba) {
    let disk = made(handle).await;
    let volume = open(handle, &disk, &with(None)).await.expect("the volume is whole");
    for stamp in 1..=2 {
        put(&volume, 10 + stamp, stamp).await.expect("there is room");
        flush(&volume).await.expect("nothing fails");
    }
    if close {
        volume.close().await.expect("nothing fails");
    }
    let mut image = disk.image();
    let place = find_page(&image, 11, 1);
    image.flip_bit(place.0 * BLOCK_BYTES as u64 + 700, 3);
    (image, place)
}

/// Opens what is left of a volume that lost a durable record to damage.
fn open_with_hole(mutant: Option<VolumeMutant>) -> Result<(), VolumeError> {
    simulate(1, async |handle| {
        let (image, _) = damaged_page(&handle, false).await;
        let disk = disk_with(&handle, &image, Faults::default());
        open(&handle, &disk, &with(mutant)).await.map(drop)
    })
}

#[test]
fn v2_a_hole_that_goes_unnoticed() {
    let lost = |outcome| matches!(outcome, Err(VolumeError::Damaged { what: Damage::LostRecord, .. }));
    assert!(lost(open_with_hole(None)), "a durable record is gone: that is damage");
    assert!(!lost(open_with_hole(Some(VolumeMutant::HoleUnnoticed))));
}

fn read_damaged(mutant: Option<VolumeMutant>) -> Result<Option<u64>, Rejected> {
    simulate(2, async |handle| {
        let (image, _) = damaged_page(&handle, true).await;
        let disk = disk_with(&handle, &image, Faults::default());
        let volume = open(&handle, &disk, &with(mutant)).await.expect("the map is whole");
        assert_eq!(get(&volume, 12).await, Ok(Some(2)), "the other page is whole");
        get(&volume, 11).await
    })
}

#[test]
fn blocks_that_are_read_back_unchecked() {
    assert_eq!(read_damaged(None), Err(Rejected::Failed(StorageError::Damaged(Lba(11)))));
    assert_eq!(read_damaged(Some(VolumeMutant::ReadUnchecked)), Ok(None), "a page that was never written");
}

/// Whether anything is acknowledged as durable after a flush of the disk below has failed.
fn acknowledged_after_a_failure(mutant: Option<VolumeMutant>) -> bool {
    simulate(3, async |handle| {
        let image = made(&handle).await.image();
        // Opening flushes three times: before, within, and behind the checkpoint that ends recovery.
        let faults = Faults { flush_error: Fault::Nth(4), ..Faults::default() };
        let disk = disk_with(&handle, &image, faults);
        let volume = open(&handle, &disk, &with(mutant)).await.expect("opening does not fail");
        let ticket = submit_page(&volume, 1, 1).expect("there is room");
        let first = flush(&volume).await;
        let later = flush(&volume).await;
        first.is_ok() || later.is_ok() || is_done(ticket.durable()) == Some(Ok(()))
    })
}

#[test]
fn s5_durability_acknowledged_after_a_failure() {
    assert!(!acknowledged_after_a_failure(None));
    assert!(acknowledged_after_a_failure(Some(VolumeMutant::FailureForgotten)));
}

const WINDOW: LossWindow = LossWindow { time: Duration::from_millis(1), bytes: 8 * 8 * BLOCK_BYTES as u64 };

async fn windowed(handle: &Handle, mutant: Option<VolumeMutant>) -> Volume {
    let disk = made(handle).await;
    let options = VolumeOptions { loss_window: WINDOW, buffers: 64, ..with(mutant) };
    open(handle, &disk, &options).await.expect("the volume is whole")
}

/// Whether a write becomes durable within the loss window though no caller asks for it.
fn durable_in_time(mutant: Option<VolumeMutant>) -> bool {
    simulate(4, async |handle| {
        let volume = windowed(&handle, mutant).await;
        let ticket = submit_page(&volume, 1, 1).expect("there is room");
        handle.sleep(WINDOW.time).await;
        is_done(ticket.durable()) == Some(Ok(()))
    })
}

#[test]
fn v5_a_loss_window_without_a_bound_in_time() {
    assert!(durable_in_time(None));
    assert!(!durable_in_time(Some(VolumeMutant::NoLossBound)));
}

/// The most bytes that were volatile while a task wrote as fast as it was allowed.
fn bytes_at_stake(mutant: Option<VolumeMutant>) -> u64 {
    simulate(5, async |handle| {
        let volume = windowed(&handle, mutant).await;
        // No pause, so that no flush ends meanwhile: the volume has to refuse by itself.
        let accepted = (1..=80).take_while(|stamp| submit_page(&volume, stamp % 40, *stamp).is_ok()).count();
        assert!(accepted > 20, "{accepted} writes accepted");
        volume.stats().loss_window.bytes_max
    })
}

#[test]
fn v5_a_loss_window_without_a_bound_in_bytes() {
    assert!(bytes_at_stake(None) <= WINDOW.bytes);
    assert!(bytes_at_stake(Some(VolumeMutant::NoByteBound)) > WINDOW.bytes);
}

/// Whether a write is taken although an older one has been volatile for longer than the loss window, because
/// the disk takes its time.
fn accepted_when_overdue(mutant: Option<VolumeMutant>) -> bool {
    simulate(6, async |handle| {
        let image = made(&handle).await.image();
        let every = Fault::PerMillion(1_000_000);
        // Opening takes many commands, each of them slow, and only then the window counts.
        let slow = Faults { delay: every, delay_ns: 4 * WINDOW.time.as_nanos() as u64, ..Faults::default() };
        let disk = disk_with(&handle, &image, slow);
        let options = VolumeOptions { loss_window: WINDOW, buffers: 64, ..with(mutant) };
        let volume = open(&handle, &disk, &options).await.expect("the volume is whole");
        submit_page(&volume, 1, 1).expect("there is room");
        handle.sleep(WINDOW.time * 2).await;
        match submit_page(&volume, 2, 2) {
            Ok(_) => true,
            Err(refused) => {
                assert_eq!(refused, Rejected::Busy);
                // Refused, not stuck: the disk catches up, and there is room again.
                put(&volume, 2, 2).await.expect("there is room");
                flush(&volume).await.expect("nothing fails");
                false
            }
        }
    })
}

#[test]
fn v5_writes_taken_while_the_oldest_is_overdue() {
    assert!(!accepted_when_overdue(None));
    assert!(accepted_when_overdue(Some(VolumeMutant::NoTimeBound)));
}

/// Where a volume that was opened once has its newest checkpoint: making it filled the second place last.
const NEWEST: Lba = Lba(2);

/// Opens a volume whose newest checkpoint is damaged, after a request that was flushed behind it.
fn open_without_newest(mutant: Option<VolumeMutant>) -> Result<Option<u64>, VolumeError> {
    simulate(7, async |handle| {
        let disk = made(&handle).await;
        let volume = open(&handle, &disk, &with(None)).await.expect("the volume is whole");
        put(&volume, 11, 1).await.expect("there is room");
        flush(&volume).await.expect("nothing fails");
        let mut image = disk.image();
        // The checkpoint that opening took.
        image.flip_bit(NEWEST.0 * BLOCK_BYTES as u64 + 20, 4);
        let disk = disk_with(&handle, &image, Faults::default());
        let volume = open(&handle, &disk, &with(mutant)).await?;
        get(&volume, 11).await.map_err(VolumeError::Disk)
    })
}

#[test]
fn v1_a_newest_checkpoint_whose_loss_goes_unnoticed() {
    let damaged = Err(VolumeError::Damaged { what: Damage::NewestCheckpoint, at: NEWEST });
    assert_eq!(open_without_newest(None), damaged);
    let unnoticed = open_without_newest(Some(VolumeMutant::StaleCheckpointUnnoticed));
    assert_eq!(unnoticed, Ok(Some(0)), "what was acknowledged as durable is gone, and no caller was told");
}
