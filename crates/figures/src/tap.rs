//! A *tap* sits between the block layer and the device, and measures how long commands take, each from its
//! dispatch to its answer; how long after JD a commit's JC is dispatched; and what is written while a synchronisation call
//! is under way, to the journal and elsewhere.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use weir_ext4::journal::BlockType;
use weir_flash::{FlashDevice, Stats};
use weir_runtime::Handle;
use weir_storage::{Capabilities, Command, Interposed, Part, Rejected, Storage, Ticket, Write};

/// Commands of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kind {
    pub(crate) commands: u64,
    /// The time of all of them together.
    pub(crate) nanoseconds: u64,
}

impl Kind {
    fn add(&mut self, nanoseconds: u64) {
        self.commands += 1;
        self.nanoseconds += nanoseconds;
    }

    /// What one of them takes, in microseconds.
    pub(crate) fn mean_us(&self) -> f64 {
        self.nanoseconds as f64 / 1e3 / self.commands.max(1) as f64
    }
}

/// Blocks written while a synchronisation call was under way, whatever for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Persisted {
    /// To the journal.
    pub(crate) journal_blocks: u64,
    /// Elsewhere.
    pub(crate) other_blocks: u64,
}

impl Persisted {
    /// Journal blocks over all blocks; nothing of none.
    pub(crate) fn journal_ratio(&self) -> f64 {
        let all = self.journal_blocks + self.other_blocks;
        self.journal_blocks as f64 / all.max(1) as f64
    }
}

/// What was measured.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Measured {
    /// Writes that are answered when they are transferred.
    pub(crate) writes: Kind,
    /// Writes that are answered when they are durable.
    pub(crate) durable_writes: Kind,
    pub(crate) flushes: Kind,
    /// Commit blocks of the journal, each with the time since the log's last command before it was dispatched.
    pub(crate) commit_blocks: Kind,
    pub(crate) persisted: Persisted,
}

/// See the head of this file.
pub(crate) struct Tap {
    handle: Handle,
    device: Rc<FlashDevice>,
    capabilities: Capabilities,
    open: Cell<bool>,
    called: Cell<bool>,
    journal: RefCell<Vec<Range<u64>>>,
    /// When the last command with blocks of the log, JD, was dispatched, if no JC came since; in nanoseconds.
    log_at: Cell<Option<u64>>,
    measured: Rc<RefCell<Measured>>,
}

/// What of the log a command begins with.
#[derive(Clone, Copy)]
enum Logged {
    /// JC.
    Commit,
    /// JD.
    Other,
}

/// Where a command counts.
type CounterOf = fn(&mut Measured) -> &mut Kind;

impl Tap {
    /// A tap on `device`. Without `fua`, the host does not use that: it flushes after a write instead.
    pub(crate) fn new(handle: &Handle, device: Rc<FlashDevice>, fua: bool) -> Rc<Tap> {
        let mut capabilities = *device.capabilities();
        capabilities.fua &= fua;
        Rc::new(Tap {
            handle: handle.clone(),
            device,
            capabilities,
            open: Cell::new(false),
            called: Cell::new(false),
            journal: RefCell::default(),
            log_at: Cell::default(),
            measured: Rc::default(),
        })
    }

    /// Commands count that are dispatched from now on; or no longer.
    pub(crate) fn open(&self, open: bool) {
        self.open.set(open);
    }

    /// A synchronisation call begins; or it is over.
    pub(crate) fn call(&self, begins: bool) {
        self.called.set(begins);
    }

    /// Where the journal lies.
    pub(crate) fn set_journal(&self, area: Vec<Range<u64>>) {
        *self.journal.borrow_mut() = area;
    }

    pub(crate) fn measured(&self) -> Measured {
        *self.measured.borrow()
    }

    /// What the device has counted.
    pub(crate) fn stats(&self) -> Stats {
        self.device.stats()
    }

    fn count(&self, command: &Command<'_>) {
        let writes = match command {
            Command::Write(write) => std::slice::from_ref(write),
            Command::Packed(writes) => writes,
            _ => &[],
        };
        writes.iter().flat_map(|write: &Write<'_>| write.parts).for_each(|part| self.count_part(part));
    }

    /// What a command writes to the log, behind the journal's superblock; if it does.
    fn logged(&self, command: &Command<'_>) -> Option<Logged> {
        let Command::Write(Write { parts: [part, ..], .. }) = command else { return None };
        let place = part.start.0;
        let superblock = self.journal.borrow().first().map(|area| area.start);
        let in_log = self.journal.borrow().iter().any(|area| area.contains(&place));
        if !in_log || superblock == Some(place) {
            return None;
        }
        let block = part.data.bytes().first_chunk()?;
        Some(match BlockType::from_block(block) {
            Some((BlockType::Commit, _)) => Logged::Commit,
            _ => Logged::Other,
        })
    }

    /// Measures from JD to JC; a command of one of them has been accepted.
    fn time_log(&self, logged: Logged) {
        let now = self.handle.now().as_nanos();
        match logged {
            Logged::Other => self.log_at.set(Some(now)),
            Logged::Commit => {
                if let Some(from) = self.log_at.take().filter(|_| self.open.get()) {
                    self.measured.borrow_mut().commit_blocks.add(now - from);
                }
            }
        }
    }

    fn count_part(&self, part: &Part<'_>) {
        let extent = part.extent();
        let (start, blocks) = (extent.start.0, u64::from(extent.blocks));
        let within = |area: &Range<u64>| area.end.min(start + blocks).saturating_sub(area.start.max(start));
        let in_journal: u64 = self.journal.borrow().iter().map(within).sum();
        let persisted = &mut self.measured.borrow_mut().persisted;
        persisted.journal_blocks += in_journal;
        persisted.other_blocks += blocks - in_journal;
    }

    fn watch(&self, ticket: &Ticket, place: CounterOf) {
        let (handle, measured, ticket) = (self.handle.clone(), Rc::clone(&self.measured), ticket.clone());
        let from = handle.now();
        let watch = async move {
            // A caller that submitted the command hears of its error.
            let _ = ticket.transferred().await;
            let took = handle.now().as_nanos() - from.as_nanos();
            place(&mut measured.borrow_mut()).add(took);
        };
        drop(self.handle.spawn(watch));
    }
}

impl Interposed for Tap {
    fn below(&self) -> &dyn Storage {
        &*self.device
    }

    fn claims(&self) -> &Capabilities {
        &self.capabilities
    }

    fn take(&self, command: Command<'_>) -> Result<Ticket, Rejected> {
        let place: Option<CounterOf> = match &command {
            Command::Write(write) if write.flags.fua => Some(|measured| &mut measured.durable_writes),
            Command::Write(_) => Some(|measured| &mut measured.writes),
            Command::Flush => Some(|measured| &mut measured.flushes),
            Command::Packed(_) => Some(|measured| &mut measured.durable_writes),
            _ => None,
        };
        if self.open.get() && self.called.get() {
            self.count(&command);
        }
        let logged = self.logged(&command);
        let ticket = self.device.submit(command)?;
        logged.into_iter().for_each(|logged| self.time_log(logged));
        if let Some(place) = place.filter(|_| self.open.get()) {
            self.watch(&ticket, place);
        }
        Ok(ticket)
    }
}
