//! E7: what writeback has submitted, and the disk has not taken yet, joins the epoch of the call that orders it. Seen
//! at the disk.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use weir_vfs::InodeNumber;

use crate::support::{BLOCKS, capabilities, new_image, simulated, write_file};
use weir_fs::{BarrierFs, CacheMutant, Conflicts, Engine, FsMutant, MountOptions};
use weir_runtime::Handle;
use weir_storage::{
    AdversaryDisk, AdversaryOptions, BLOCK_BYTES, Capabilities, Command, Interposed, Order, Recorder,
    Rejected, Rules, Storage, Ticket,
};

/// Blocks in a command of the disk, at most.
const TRANSFER_BLOCKS: u32 = 4;

/// A disk that takes no write as long as it is closed, and writes down which it takes.
struct Gate {
    disk: Rc<AdversaryDisk>,
    closed: Cell<bool>,
    /// The first byte of each part, and the order that the block layer's first tag names.
    told: RefCell<Vec<(u8, Order)>>,
}

impl Interposed for Gate {
    fn below(&self) -> &dyn Storage {
        &*self.disk
    }

    fn take(&self, command: Command<'_>) -> Result<Ticket, Rejected> {
        if let Command::Write(write) = &command {
            if self.closed.get() {
                return Err(Rejected::Busy);
            }
            let order = write.tags.first().map_or(Order::Orderless, |tag| tag.order);
            let parts = write.parts.iter().map(|part| (part.data.bytes()[0], order));
            self.told.borrow_mut().extend(parts);
        }
        self.disk.submit(command)
    }
}

impl Gate {
    /// The order of the last part that begins with `byte`.
    fn order_of(&self, byte: u8) -> Option<Order> {
        self.told.borrow().iter().rfind(|(first, _)| *first == byte).map(|(_, order)| *order)
    }
}

/// A file of some blocks that are durable, on a closed disk, with a filesystem that writes back whatever is dirty.
async fn on_a_closed_disk(
    clock: &Handle,
    mutant: Option<FsMutant>,
    blocks: usize,
) -> (Rc<Gate>, BarrierFs, InodeNumber) {
    let capabilities = Capabilities { max_transfer_blocks: TRANSFER_BLOCKS, ..capabilities(true) };
    let options = AdversaryOptions { capabilities, latency_ns_max: 100_000, ..AdversaryOptions::default() };
    let disk = AdversaryDisk::from_image(clock, options, &new_image(BLOCKS));
    let gate = Rc::new(Gate { disk, closed: Cell::new(false), told: RefCell::default() });
    let options = MountOptions {
        engine: Some(Engine::Dual { conflicts: Conflicts::Copy }),
        dirty_background_bytes: 0,
        rules: Rules::but(mutant),
        ..MountOptions::default()
    };
    // Where there is a recorder, commands tell which requests they carry.
    let recorder = Some(Recorder::new());
    let storage = Rc::clone(&gate) as Rc<dyn Storage>;
    let fs = BarrierFs::mount_recorded(clock, storage, recorder, options).await.expect("mounted");
    let file = write_file(&fs, b"a", &vec![1; blocks * BLOCK_BYTES]).await;
    fs.sync().await.expect("durable");
    gate.closed.set(true);
    gate.told.take();
    (gate, fs, file)
}

async fn write_block(fs: &BarrierFs, file: InodeNumber, block: u64, byte: u8) {
    fs.write(file, block * BLOCK_BYTES as u64, &[byte; BLOCK_BYTES]).await.expect("written");
}

async fn written_back(clock: &Handle, fs: &BarrierFs) {
    while fs.statistics().pages_dirty > 0 {
        clock.yield_now().await;
    }
}

/// Proves that `rule` holds, and that a filesystem that drops it is noticed.
fn prove(mutant: FsMutant, rule: impl Fn(Option<FsMutant>) -> Result<(), String>) {
    assert_eq!(rule(None), Ok(()));
    assert!(rule(Some(mutant)).is_err(), "{mutant:?} was not noticed");
}

/// The call writes something itself, which must not hide that something else is on its way.
#[test]
fn e7_what_is_on_its_way_joins_the_epoch_of_what_is_dirty() {
    prove(FsMutant::Cache(CacheMutant::PromotesOnlyIfClean), |mutant| {
        simulated(async |clock| {
            let (gate, fs, file) = on_a_closed_disk(&clock, mutant, 8).await;
            write_block(&fs, file, 0, 2).await;
            written_back(&clock, &fs).await;
            // No neighbour: the two are not merged.
            write_block(&fs, file, 5, 3).await;
            assert!(fs.statistics().pages_dirty > 0, "no other task has come between");
            fs.fdatabarrier(file).await.expect("ordered");
            gate.closed.set(false);
            clock.sleep(Duration::from_millis(20)).await;
            match (gate.order_of(2), gate.order_of(3)) {
                (Some(Order::Epoch(_, earlier)), Some(Order::Epoch(_, later))) if earlier <= later => Ok(()),
                orders => Err(format!("{orders:?}")),
            }
        })
    });
}

/// A run that is longer than a command is several writes, and all of them join.
#[test]
fn e7_all_writes_of_a_long_run_join_the_epoch() {
    prove(FsMutant::Cache(CacheMutant::PromotesFirstWriteOnly), |mutant| {
        simulated(async |clock| {
            const RUN: u64 = 2 * TRANSFER_BLOCKS as u64 + 2;
            let (gate, fs, file) = on_a_closed_disk(&clock, mutant, RUN as usize).await;
            for block in 0..RUN {
                write_block(&fs, file, block, 10 + block as u8).await;
            }
            written_back(&clock, &fs).await;
            fs.fdatabarrier(file).await.expect("ordered");
            gate.closed.set(false);
            clock.sleep(Duration::from_millis(20)).await;
            let orders: Vec<_> = (0..RUN).map(|block| gate.order_of(10 + block as u8)).collect();
            let ordered = |order: &Option<Order>| matches!(order, Some(Order::Epoch(..)));
            if orders.iter().all(ordered) { Ok(()) } else { Err(format!("{orders:?}")) }
        })
    });
}
