//! S7: the parts of a packed write are made in turn, so that with FUA a power cut leaves the first of them.

use std::cell::RefCell;
use std::rc::Rc;

use weir_runtime::{Random, Runtime, Simulation};
use weir_storage::{
    AdversaryDisk, BLOCK_BYTES, Capabilities, Command, Image, Lba, Ordering, Part, Storage, StorageMutant,
    Write, WriteFlags,
};

use super::campaign::{able, disk};

/// The bytes of the first and the second part, of two blocks and of one.
const FIRST: u8 = 1;
const SECOND: u8 = 2;

/// What power cuts have left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Left {
    /// A part of the second write, while the first is not whole.
    out_of_turn: u64,
    /// The first write whole, and the second in part.
    second_torn: u64,
}

impl Left {
    fn look(&mut self, image: &Image) {
        let units = |block: u64, byte: u8| {
            let bytes = image.read(Lba(block));
            bytes.chunks(512).filter(|unit| unit.iter().all(|found| *found == byte)).count()
        };
        let (first, second) = (units(0, FIRST) + units(1, FIRST), units(2, SECOND));
        self.out_of_turn += u64::from(second > 0 && first < 16);
        self.second_torn += u64::from(first == 16 && (1..8).contains(&second));
    }

    fn look_at(&mut self, disk: &AdversaryDisk, random: &mut Random) {
        (0..8).for_each(|_| self.look(&disk.crash_states().sample(random)));
    }
}

/// Writes two adjacent FUA parts in one command, among other writes, on disks of several seeds.
fn left(capabilities: Capabilities, mutant: Option<StorageMutant>) -> Left {
    let all = Rc::new(RefCell::new(Left::default()));
    for seed in 0..200 {
        let runtime = Runtime::simulated(Simulation { seed, explore: true, cores: None });
        let handle = runtime.handle();
        let disk = AdversaryDisk::new(&handle, disk(capabilities, mutant));
        let (seen, random) = (Rc::clone(&all), RefCell::new(handle.random("crash states")));
        disk.observe(Box::new(move |disk| seen.borrow_mut().look_at(disk, &mut random.borrow_mut())));
        let (first, second) = ([FIRST; 2 * BLOCK_BYTES], [SECOND; BLOCK_BYTES]);
        let parts = [Part::bytes(Lba(0), &first), Part::bytes(Lba(2), &second), Part::bytes(Lba(5), &second)];
        let fua = WriteFlags { fua: true, ..WriteFlags::default() };
        let other = Command::Write(Write::new(&parts[2..]));
        let packed = [
            Write { flags: fua, ..Write::new(&parts[..1]) },
            Write { flags: fua, ..Write::new(&parts[1..2]) },
        ];
        let work = async {
            let tickets = [other, Command::Packed(&packed), other].map(|command| disk.submit(command));
            for ticket in tickets {
                ticket.expect("room").transferred().await.expect("it does not fail");
            }
        };
        runtime.block_on(work).expect("no stall");
    }
    *all.borrow()
}

#[test]
fn s7_fua_parts_of_a_packed_write_are_durable_in_turn() {
    for ordering in [Ordering::Legacy, Ordering::Barrier, Ordering::Prefix] {
        let left = left(able(ordering), None);
        assert_eq!(left.out_of_turn, 0, "{ordering:?}");
        // A prefix device keeps requests whole.
        assert_eq!(left.second_torn > 0, ordering != Ordering::Prefix, "{ordering:?}");
    }
    let lied = left(able(Ordering::Legacy), Some(StorageMutant::FuaLies));
    assert!(lied.out_of_turn > 0, "the mutant was not noticed");
}
