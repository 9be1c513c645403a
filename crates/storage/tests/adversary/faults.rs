//! Power cuts, refusals and errors of the adversary disk, as its callers meet them.

use std::io::ErrorKind;
use std::rc::Rc;

use weir_runtime::{Runtime, Simulation};
use weir_storage::{
    AdversaryDisk, AdversaryOptions, BLOCK_BYTES, Command, Extent, Fault, Faults, Lba, Ordering, Part,
    Priority, Rejected, Storage, StorageError, Ticket, Write, flush, read, write,
};

use super::campaign::{able, disk};

fn with(faults: Faults) -> (Runtime, Rc<AdversaryDisk>) {
    let runtime = Runtime::simulated(Simulation::default());
    let disk =
        AdversaryDisk::new(&runtime.handle(), AdversaryOptions { faults, ..AdversaryOptions::default() });
    (runtime, disk)
}

fn cause(answer: Result<(), Rejected>) -> Option<ErrorKind> {
    match answer {
        Err(Rejected::Failed(StorageError::Device { cause, .. })) => Some(cause),
        _ => None,
    }
}

#[test]
fn a_power_cut_fails_what_is_in_flight_and_refuses_the_rest() {
    let (runtime, disk) = with(Faults::default());
    let content = [1; BLOCK_BYTES];
    let ticket = disk.submit(Command::Write(Write::new(&[Part::bytes(Lba(3), &content)]))).unwrap();
    let before: Vec<u64> = disk.crash_states().all().map(|image| image.hash()).collect();
    disk.cut_power();
    let answers = runtime.block_on(async { (ticket.transferred().await, flush(&*disk).await) }).unwrap();
    assert_eq!(answers, (Err(StorageError::Gone), Err(Rejected::Failed(StorageError::Gone))));
    let after: Vec<u64> = disk.crash_states().all().map(|image| image.hash()).collect();
    assert_eq!((before.len(), &before), (256, &after));
}

#[test]
fn a_flushed_image_starts_the_next_disk() {
    let (runtime, disk) = with(Faults::default());
    let found = runtime.block_on(async {
        write(&*disk, Part::bytes(Lba(9), &[7; BLOCK_BYTES])).await.unwrap();
        flush(&*disk).await.unwrap();
        let states = disk.crash_states();
        assert_eq!(states.count(), 1);
        let image = states.all().next().unwrap();
        let next = AdversaryDisk::from_image(&runtime.handle(), AdversaryOptions::default(), &image);
        read(&*next, Extent::new(Lba(8), 2)).await.unwrap().to_vec()
    });
    assert_eq!(found.unwrap(), [[0; BLOCK_BYTES], [7; BLOCK_BYTES]].concat());
}

#[test]
fn nth_read_write_and_flush_fail_and_the_others_do_not() {
    let nth = Fault::Nth(2);
    let (runtime, disk) =
        with(Faults { read_error: nth, write_error: nth, flush_error: nth, ..Faults::default() });
    runtime
        .block_on(async {
            for turn in 1..=3 {
                let expected = (turn == 2).then_some(ErrorKind::Other);
                assert_eq!(cause(write(&*disk, Part::bytes(Lba(turn), &[5; BLOCK_BYTES])).await), expected);
                assert_eq!(cause(flush(&*disk).await), expected);
                assert_eq!(cause(read(&*disk, Extent::new(Lba(1), 1)).await.map(drop)), expected);
            }
        })
        .unwrap();
}

#[test]
fn a_failed_write_leaves_some_mixture_and_a_failed_flush_may_lose_data() {
    let (mut mixtures, mut losses) = (0, 0);
    for seed in 0..20 {
        let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
        let faults = Faults { write_error: Fault::Nth(2), flush_error: Fault::Nth(1), ..Faults::default() };
        let options = AdversaryOptions { faults, ..AdversaryOptions::default() };
        let disk = AdversaryDisk::new(&runtime.handle(), options);
        runtime
            .block_on(async {
                write(&*disk, Part::bytes(Lba(0), &[1; BLOCK_BYTES])).await.unwrap();
                write(&*disk, Part::bytes(Lba(1), &[2; BLOCK_BYTES])).await.unwrap_err();
                let torn = disk.image().read(Lba(1));
                mixtures += u32::from(torn.contains(&0) && torn.contains(&2));
                flush(&*disk).await.unwrap_err();
                losses += u32::from(disk.image().read(Lba(0)).contains(&0));
            })
            .unwrap();
    }
    assert!(mixtures > 10 && losses > 10, "{mixtures} {losses}");
}

#[test]
fn busy_with_free_slots_read_only_and_flipped_reads() {
    let (_runtime, disk) = with(Faults { busy: Fault::Nth(1), ..Faults::default() });
    assert!(matches!(disk.submit(Command::Flush), Err(Rejected::Busy)));
    assert!(disk.submit(Command::Flush).is_ok());

    let (runtime, disk) = with(Faults { read_only_after: Some(1), ..Faults::default() });
    let (first, second) = runtime
        .block_on(async {
            let part = Part::bytes(Lba(0), &[1; BLOCK_BYTES]);
            (write(&*disk, part).await, write(&*disk, part).await)
        })
        .unwrap();
    assert_eq!((first, cause(second)), (Ok(()), Some(ErrorKind::ReadOnlyFilesystem)));

    let (runtime, disk) = with(Faults { flip_on_read: Fault::Nth(1), ..Faults::default() });
    let ones = runtime.block_on(async {
        read(&*disk, Extent::new(Lba(0), 1)).await.unwrap().iter().map(|b| b.count_ones()).sum::<u32>()
    });
    assert_eq!(ones, Ok(1));
}

#[test]
fn a_full_queue_is_busy_and_announces_its_slots() {
    for ordering in [Ordering::Legacy, Ordering::Barrier, Ordering::Prefix] {
        let runtime = Runtime::simulated(Simulation::default());
        let disk = AdversaryDisk::new(&runtime.handle(), disk(able(ordering), None));
        let depth = disk.capabilities().queue_depth;
        (0..depth).for_each(|_| drop(disk.submit(Command::Flush).unwrap()));
        assert!(matches!(disk.submit(Command::Flush), Err(Rejected::Busy)));
        runtime.block_on(async { flush(&*disk).await.unwrap() }).unwrap();
    }
}

#[test]
fn a_head_of_queue_read_is_serviced_first() {
    let runtime = Runtime::simulated(Simulation::default());
    let disk = AdversaryDisk::new(&runtime.handle(), AdversaryOptions::default());
    let others: Vec<Ticket> = (0..20).map(|_| disk.submit(Command::Flush).unwrap()).collect();
    let extent = Extent::new(Lba(0), 1);
    let head = disk.submit(Command::Read { extent, priority: Priority::HeadOfQueue }).unwrap();
    runtime.block_on(async { head.transferred().await.unwrap() }).unwrap();
    assert!(others.iter().filter(|other| other.poll_transferred().is_some()).count() <= 1);
}

#[test]
fn a_delayed_command_takes_longer() {
    let (runtime, disk) = with(Faults { delay: Fault::Nth(2), delay_ns: 5_000_000, ..Faults::default() });
    let now = || runtime.handle().now().as_nanos();
    runtime
        .block_on(async {
            flush(&*disk).await.unwrap();
            assert_eq!(now(), 0);
            flush(&*disk).await.unwrap();
            assert_eq!(now(), 5_000_000);
        })
        .unwrap();
}

#[test]
fn a_cache_that_is_never_flushed_stays_bounded() {
    let (runtime, disk) = with(Faults::default());
    let work = async {
        for i in 0..10_000u64 {
            write(&*disk, Part::bytes(Lba(0), &i.to_le_bytes().repeat(BLOCK_BYTES / 8))).await.unwrap();
        }
    };
    runtime.block_on(work).unwrap();
    // Eight units with at most 4,096 versions each, and the durable one.
    assert!(disk.crash_states().count() <= 4097u128.pow(8));
}
