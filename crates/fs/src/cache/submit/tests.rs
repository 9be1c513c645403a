//! How pages are submitted that no call asks for.

use std::rc::Rc;

use weir_ext4::{Mkfs, ROOT_INODE};
use weir_format::{BLOCK_BYTES, FileType};
use weir_journal::JournalMutant;
use weir_runtime::{Runtime, Simulation};
use weir_storage::{AdversaryDisk, AdversaryOptions, Capabilities, Ordering, Rules, Storage};
use weir_vfs::NewNode;

use crate::filesystem::BarrierFs;
use crate::mutants::FsMutant;
use crate::options::MountOptions;

const BLOCKS: u64 = 16_384;

/// Writeback waits for its turn at a file, while a call promises order for another one and a page of the file changes
/// behind that: whether the page is written without order.
fn overtakes(mutant: Option<FsMutant>) -> bool {
    let runtime = Runtime::simulated(Simulation::default());
    let clock = runtime.handle();
    let played = async {
        let legacy = Capabilities::legacy(32, 256, 4096);
        let capabilities = Capabilities { ordering: Ordering::Barrier, ordered_service: true, ..legacy };
        let options = AdversaryOptions { blocks: BLOCKS, capabilities, ..AdversaryOptions::default() };
        let disk = AdversaryDisk::new(&clock, options) as Rc<dyn Storage>;
        let plan = Mkfs { zeroed: true, ..Mkfs::new(BLOCKS, [1; 16], [2; 16], 1_700_000_000) };
        BarrierFs::make(&*disk, &plan).await.expect("made");
        let options = MountOptions { rules: Rules::but(mutant), ..MountOptions::default() };
        let fs = BarrierFs::mount(&clock, disk, options).await.expect("mounted");
        let new = NewNode::new(FileType::Regular, 0o644);
        let journal = fs.create(ROOT_INODE, b"journal", &new).await.expect("made");
        let table = fs.create(ROOT_INODE, b"table", &new).await.expect("made");
        fs.write(table, 0, &[1; BLOCK_BYTES]).await.expect("written");
        fs.sync().await.expect("durable");
        fs.write(table, 0, &[2; BLOCK_BYTES]).await.expect("written");
        let file = Rc::clone(&fs.0.files.node(table).await.expect("there").file);
        let turn = file.submitting.acquire(1).await;
        let waiting = Rc::clone(&file);
        let writeback = clock.spawn(async move { waiting.submit_unasked().await });
        clock.yield_now().await;
        fs.write(journal, 0, &[3; BLOCK_BYTES]).await.expect("written");
        fs.fdatabarrier(journal).await.expect("ordered");
        fs.write(table, 0, &[4; BLOCK_BYTES]).await.expect("written");
        drop(turn);
        assert_eq!(writeback.await.expect("not cancelled"), Ok(true));
        let in_flight = file.in_flight.borrow();
        in_flight.flights.back().expect("on its way").orderless
    };
    runtime.block_on(played).expect("no stall")
}

#[test]
fn j3_writeback_decides_with_its_turn_whether_it_keeps_order() {
    assert!(!overtakes(None));
    for mutant in [FsMutant::WritebackDecidesEarly, FsMutant::Journal(JournalMutant::WritebackOvertakes)] {
        assert!(overtakes(Some(mutant)), "{mutant:?} was not noticed");
    }
}
