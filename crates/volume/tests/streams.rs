//! Streams of snapshots: whole and incremental, cut, and changed on the way.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::rc::Rc;

use weir_runtime::Handle;
use weir_storage::{AdversaryDisk, Command, Extent, Lba, Part, submit_when_free, write};
use weir_volume::{BranchStorage, Format, SnapshotError, StreamError, Volume, receive, send};

use crate::simulation::simulate;
use crate::snapshots::{Content, FORMAT, USED, content_of, disk_options, open, page};

/// Bytes of a stream's header.
const HEADER: usize = 176;

async fn new_volume(handle: &Handle) -> Rc<Volume> {
    let disk = AdversaryDisk::new(handle, disk_options());
    Volume::create(handle, &*disk, FORMAT).await.unwrap();
    open(handle, &disk, None).await
}

async fn content_at(volume: &Rc<Volume>, name: &str) -> Content {
    content_of(&BranchStorage::open(Rc::clone(volume), name).unwrap()).await
}

/// Writes and discards some blocks.
async fn change(handle: &Handle, volume: &Volume, turn: u64) {
    let mut random = handle.random(&format!("turn {turn}"));
    for step in 0..40 {
        let lba = USED.start + random.below(USED.end - USED.start);
        if random.below(4) == 0 {
            submit_when_free(volume, Command::Discard(&[Extent::new(Lba(lba), 1)])).await.unwrap();
        } else {
            write(volume, Part::bytes(Lba(lba), &page(turn * 1000 + step + 1))).await.unwrap();
        }
    }
}

/// A volume with snapshots `a`, `b` and `c`, and the streams of `a` and of what has changed from `a` to `c`.
async fn sent(handle: &Handle) -> (Rc<Volume>, Vec<u8>, Vec<u8>) {
    let volume = new_volume(handle).await;
    for (turn, name) in (0..).zip(["a", "b", "c"]) {
        change(handle, &volume, turn).await;
        volume.create_snapshot(name).await.unwrap();
    }
    change(handle, &volume, 9).await;
    let (mut whole, mut later) = (Vec::new(), Vec::new());
    send(&volume, "a", None, &mut whole).await.unwrap();
    send(&volume, "c", Some("a"), &mut later).await.unwrap();
    (volume, whole, later)
}

#[test]
fn what_is_received_is_what_was_sent() {
    for seed in 0..20 {
        simulate(seed, async |handle| {
            let (volume, whole, later) = sent(&handle).await;
            let other = new_volume(&handle).await;
            receive(&other, &mut &whole[..]).await.unwrap();
            // It goes back to the snapshot first.
            change(&handle, &other, 11).await;
            let report = receive(&other, &mut &later[..]).await.unwrap();
            assert_eq!((report.name.as_str(), report.from.as_deref()), ("c", Some("a")));
            for name in ["a", "c"] {
                assert_eq!(
                    content_at(&other, name).await,
                    content_at(&volume, name).await,
                    "seed {seed}, {name}"
                );
            }
            assert_eq!(content_of(&*other).await, content_at(&volume, "c").await);
        });
    }
}

#[test]
fn a_stream_that_is_cut_or_changed_makes_no_snapshot() {
    simulate(1, async |handle| {
        let (_, whole, later) = sent(&handle).await;
        let other = new_volume(&handle).await;
        receive(&other, &mut &whole[..]).await.unwrap();
        let mut random = handle.random("damage");
        for _ in 0..100 {
            let at = random.below(later.len() as u64) as usize;
            let mut damaged = later.clone();
            match random.below(2) {
                0 => damaged.truncate(at),
                _ => damaged[at] ^= 1 << random.below(8),
            }
            assert!(receive(&other, &mut &damaged[..]).await.is_err(), "byte {at}");
            assert_eq!(other.snapshots().len(), 1);
        }
        receive(&other, &mut &later[..]).await.unwrap();
    });
}

#[test]
fn records_of_another_stream_are_refused() {
    simulate(3, async |handle| {
        let (volume, _, later) = sent(&handle).await;
        let mut other = Vec::new();
        send(&volume, "b", Some("a"), &mut other).await.unwrap();
        let spliced = [&later[..HEADER], &other[HEADER..]].concat();
        let receiver = new_volume(&handle).await;
        let mut whole = Vec::new();
        send(&volume, "a", None, &mut whole).await.unwrap();
        receive(&receiver, &mut &whole[..]).await.unwrap();
        let outcome = receive(&receiver, &mut &spliced[..]).await;
        assert!(matches!(outcome, Err(StreamError::Damaged(0))), "{outcome:?}");
        assert_eq!(receiver.snapshots().len(), 1);
    });
}

#[test]
fn a_volume_without_room_for_the_snapshot_takes_nothing() {
    simulate(4, async |handle| {
        let (_, whole, _) = sent(&handle).await;
        let disk = AdversaryDisk::new(&handle, disk_options());
        Volume::create(&handle, &*disk, Format { slots: 0, ..FORMAT }).await.unwrap();
        let without = open(&handle, &disk, None).await;
        let outcome = receive(&without, &mut &whole[..]).await;
        assert!(matches!(outcome, Err(StreamError::Snapshot(SnapshotError::NoSlots))), "{outcome:?}");
        assert_eq!(content_of(&*without).await, Content::new());
    });
}

#[test]
fn streams_that_do_not_fit_are_refused() {
    simulate(2, async |handle| {
        let (volume, whole, later) = sent(&handle).await;
        let refused =
            async |volume: &Rc<Volume>, stream: &[u8]| receive(volume, &mut &stream[..]).await.unwrap_err();
        let exists = refused(&volume, &whole).await;
        assert!(matches!(exists, StreamError::Snapshot(SnapshotError::Exists(_))), "{exists}");
        let other = new_volume(&handle).await;
        let unknown = refused(&other, &later).await;
        assert!(matches!(unknown, StreamError::Snapshot(SnapshotError::Unknown(_))), "{unknown}");
        other.create_snapshot("a").await.unwrap();
        assert!(matches!(refused(&other, &later).await, StreamError::OtherBase(_)));
        change(&handle, &other, 3).await;
        other.delete_snapshot("a").await.unwrap();
        assert!(matches!(refused(&other, &whole).await, StreamError::NotEmpty));
        assert!(matches!(refused(&other, &[7; 300]).await, StreamError::Foreign));
        assert!(matches!(refused(&other, &[]).await, StreamError::Empty));
        let cut = refused(&new_volume(&handle).await, &whole[..HEADER]).await;
        assert!(matches!(cut, StreamError::Cut { record: 0, is_whole: true }), "{cut}");
        assert!(cut.to_string().contains("make it anew"), "{cut}");
        let backwards = send(&volume, "a", Some("b"), &mut Vec::new()).await.unwrap_err();
        assert!(matches!(backwards, StreamError::Snapshot(SnapshotError::NotEarlier(_))), "{backwards}");
    });
}
