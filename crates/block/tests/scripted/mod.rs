//! A device that does what the test says: it accepts or refuses, answers when told, and writes down what it
//! was given, in order.

#![allow(dead_code, reason = "each test has its own copy, and needs a part of it")]

use std::cell::{Cell, RefCell};
use std::io::ErrorKind;
use std::rc::Rc;
use std::time::Duration;

use event_listener::Event;
use weir_block::{BlockLayer, BlockMutant, BlockOptions, Elevator};
use weir_runtime::{Buffer, Handle, Runtime, Simulation};
use weir_storage::{
    BLOCK_BYTES, Capabilities, Command, CommandKind, Completer, Lba, Ordering, Part, Priority, Rejected,
    Rules, Storage, StorageError, StreamId, Ticket, Write,
};

/// The stream of tests that need only one.
pub const S0: StreamId = StreamId(0);
/// A second stream.
pub const S1: StreamId = StreamId(1);

/// A command that the device accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub kind: CommandKind,
    /// The first block; 0 for commands without one.
    pub lba: u64,
    /// How many blocks.
    pub blocks: u64,
    pub barrier: bool,
    pub ordered: bool,
    /// The first byte of the data.
    pub byte: u8,
    /// Virtual time in milliseconds.
    pub at_ms: u64,
    /// Of a packed command, what it writes.
    pub packed: Vec<PackedWrite>,
}

/// One write of a packed command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedWrite {
    pub lba: u64,
    pub blocks: u64,
    pub fua: bool,
    pub reliable: bool,
}

impl PackedWrite {
    fn of(write: &Write<'_>) -> PackedWrite {
        let (lba, blocks) = (write.parts[0].start.0, write.blocks());
        PackedWrite { lba, blocks, fua: write.flags.fua, reliable: write.flags.reliable }
    }
}

pub struct Scripted {
    capabilities: Capabilities,
    handle: Handle,
    seen: RefCell<Vec<Seen>>,
    open: RefCell<Vec<(u64, Completer)>>,
    /// Refuse everything.
    pub busy: Cell<bool>,
    /// Refuse writes that start here, this often.
    pub refuse: Cell<Option<(u64, u32)>>,
    /// Answer every command at once.
    pub instant: Cell<bool>,
    pub attempts: Cell<u64>,
    slots: Event,
}

/// A barrier device with ordered service.
pub fn ordered_device() -> Capabilities {
    let legacy = Capabilities::legacy(32, 64, 4096);
    Capabilities { ordering: Ordering::Barrier, ordered_service: true, ..legacy }
}

/// A barrier device that services commands as it likes.
pub fn unordered_device() -> Capabilities {
    Capabilities { ordered_service: false, ..ordered_device() }
}

impl Scripted {
    fn new(handle: &Handle, capabilities: Capabilities) -> Rc<Scripted> {
        Rc::new(Scripted {
            capabilities,
            handle: handle.clone(),
            seen: RefCell::default(),
            open: RefCell::default(),
            busy: Cell::new(false),
            refuse: Cell::new(None),
            instant: Cell::new(false),
            attempts: Cell::new(0),
            slots: Event::new(),
        })
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.borrow().clone()
    }

    /// Addresses of accepted writes, a barrier as negative number.
    pub fn order(&self) -> Vec<i64> {
        let writes = self.seen();
        let writes = writes.iter().filter(|seen| seen.kind == CommandKind::Write);
        writes.map(|seen| if seen.barrier { -(seen.lba as i64) } else { seen.lba as i64 }).collect()
    }

    pub fn kinds(&self) -> Vec<CommandKind> {
        self.seen().iter().map(|seen| seen.kind).collect()
    }

    /// Answers the command in flight that starts at `lba`.
    pub fn answer(&self, lba: u64, result: Result<(), StorageError>) {
        let mut open = self.open.borrow_mut();
        let place = open.iter().position(|(at, _)| *at == lba).expect("a command in flight");
        let (_, completer) = open.remove(place);
        completer.finish(result, result);
        self.slots.notify(usize::MAX);
    }

    /// Answers everything in flight.
    pub fn answer_all(&self) {
        for (_, completer) in self.open.take() {
            completer.data(Buffer::new(BLOCK_BYTES));
            completer.finish(Ok(()), Ok(()));
        }
        self.slots.notify(usize::MAX);
    }

    /// Becomes free, and says so.
    pub fn free(&self) {
        self.busy.set(false);
        self.slots.notify(usize::MAX);
    }

    fn refuses(&self, lba: u64) -> bool {
        if self.busy.get() {
            return true;
        }
        match self.refuse.get() {
            Some((at, times)) if at == lba && times > 0 => {
                self.refuse.set(Some((at, times - 1)));
                true
            }
            _ => false,
        }
    }
}

impl Storage for Scripted {
    fn blocks(&self) -> u64 {
        1 << 20
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn submit(&self, command: Command<'_>) -> Result<Ticket, Rejected> {
        self.capabilities.check(&command, self.blocks())?;
        self.attempts.set(self.attempts.get() + 1);
        let (mut lba, mut blocks, mut barrier, mut ordered, mut byte) = (0, 0, false, false, 0);
        let mut packed = Vec::new();
        match command {
            Command::Write(write) => {
                lba = write.parts[0].start.0;
                blocks = write.blocks();
                barrier = write.flags.barrier;
                ordered = write.priority == Priority::Ordered;
                byte = write.parts[0].data.bytes()[0];
            }
            Command::Read { extent, .. } => (lba, blocks) = (extent.start.0, u64::from(extent.blocks)),
            Command::Discard(extents) => lba = extents[0].start.0,
            Command::Packed(writes) => {
                packed = writes.iter().map(PackedWrite::of).collect();
                lba = packed[0].lba;
                blocks = packed.iter().map(|write| write.blocks).sum();
            }
            _ => {}
        }
        if self.refuses(lba) || self.open.borrow().len() >= self.capabilities.queue_depth as usize {
            return Err(Rejected::Busy);
        }
        let at_ms = self.handle.now().as_nanos() / 1_000_000;
        let seen = Seen { kind: command.kind(), lba, blocks, barrier, ordered, byte, at_ms, packed };
        self.seen.borrow_mut().push(seen);
        if self.instant.get() {
            return Ok(Ticket::done());
        }
        let (ticket, completer) = Ticket::pending();
        self.open.borrow_mut().push((lba, completer));
        Ok(ticket)
    }

    fn slots(&self) -> &Event {
        &self.slots
    }
}

/// A page of `byte`.
pub fn page(byte: u8) -> Vec<u8> {
    vec![byte; BLOCK_BYTES]
}

/// One block at `lba`.
pub fn at(lba: u64, page: &[u8]) -> [Part<'_>; 1] {
    [Part::bytes(Lba(lba), page)]
}

/// An I/O error.
pub fn io_error() -> StorageError {
    StorageError::Device { command: CommandKind::Write, at: Lba(0), cause: ErrorKind::Other }
}

/// What a test runs in.
pub struct Stage {
    pub handle: Handle,
    pub device: Rc<Scripted>,
    pub layer: Rc<BlockLayer>,
}

impl Stage {
    /// Lets every task run until nothing moves.
    pub async fn settle(&self) {
        for _ in 0..20 {
            self.handle.yield_now().await;
        }
    }

    pub async fn sleep_ms(&self, ms: u64) {
        self.handle.sleep(Duration::from_millis(ms)).await;
        self.settle().await;
    }
}

/// Runs `script` on a scripted device under a block layer with these options.
pub fn play<T>(
    capabilities: Capabilities,
    options: BlockOptions,
    elevator: Option<Box<dyn Elevator>>,
    script: impl AsyncFnOnce(Stage) -> T,
) -> T {
    let runtime = Runtime::simulated(Simulation::default());
    let handle = runtime.handle();
    let device = Scripted::new(&handle, capabilities);
    let storage = Rc::clone(&device) as Rc<dyn Storage>;
    let layer = match elevator {
        Some(elevator) => BlockLayer::with_elevator(&handle, storage, options, elevator, None),
        None => BlockLayer::new(&handle, storage, options),
    };
    let stage = Stage { handle: handle.clone(), device, layer: layer.expect("a device that fits") };
    runtime.block_on(script(stage)).expect("no stall")
}

/// Proves that `rule` holds, and that the check can fail: the layer that drops the rule does not pass it.
pub fn prove(mutants: &[BlockMutant], rule: impl Fn(BlockOptions) -> Result<(), String>) {
    assert_eq!(rule(BlockOptions::default()), Ok(()));
    for mutant in mutants {
        let options = BlockOptions { rules: Rules::but(Some(*mutant)), ..BlockOptions::default() };
        assert!(rule(options).is_err(), "{mutant:?} was not noticed");
    }
}

/// `Err` with both values unless they are equal.
pub fn same<T: PartialEq + std::fmt::Debug>(ours: T, expected: T) -> Result<(), String> {
    if ours == expected { Ok(()) } else { Err(format!("{ours:?} instead of {expected:?}")) }
}
