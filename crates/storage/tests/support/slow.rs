//! A disk whose reads take as long as they are told to, at any number, and are counted. Its flushes may take a set time, too.

#![allow(dead_code, reason = "each caller uses a part of it")]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use rand::RngExt;
use rand_pcg::Pcg64;
use weir_runtime::Handle;
use weir_storage::{
    AdversaryDisk, Command, Extent, Interposed, Rejected, Storage, StorageError, Ticket, flush, read,
};

pub struct Slow {
    clock: Handle,
    pub disk: Rc<AdversaryDisk>,
    /// The longest that a read takes.
    pub delay: Cell<Duration>,
    /// How long a flush takes.
    pub flush_delay: Cell<Duration>,
    /// Whether reads take any time up to that.
    pub random: RefCell<Option<Pcg64>>,
    /// Reads that have begun.
    pub reads: Cell<u64>,
    /// Reads that have ended.
    pub ended: Rc<Cell<u64>>,
    /// A read of this block fails.
    pub fails: Cell<Option<u64>>,
}

impl Slow {
    pub fn new(clock: &Handle, disk: Rc<AdversaryDisk>, delay: Duration) -> Rc<Slow> {
        Rc::new(Slow {
            clock: clock.clone(),
            disk,
            delay: Cell::new(delay),
            flush_delay: Cell::default(),
            random: RefCell::default(),
            reads: Cell::new(0),
            ended: Rc::default(),
            fails: Cell::new(None),
        })
    }

    fn read(&self, extent: Extent) -> Ticket {
        let delay = match &mut *self.random.borrow_mut() {
            Some(random) => self.delay.get().mul_f64(random.random_range(0.0..1.0)),
            None => self.delay.get(),
        };
        let fails = self.fails.get().is_some_and(|block| extent.iter().any(|lba| lba.0 == block));
        let (clock, disk, ended) = (self.clock.clone(), Rc::clone(&self.disk), Rc::clone(&self.ended));
        let (ticket, completer) = Ticket::pending();
        drop(self.clock.spawn(async move {
            clock.sleep(delay).await;
            ended.set(ended.get() + 1);
            let done = match read(&*disk, extent).await {
                Ok(_) if fails => Err(StorageError::Gone),
                Ok(found) => {
                    completer.data(found);
                    Ok(())
                }
                Err(_) => Err(StorageError::Gone),
            };
            completer.finish(done, done);
        }));
        ticket
    }

    fn flush(&self) -> Ticket {
        let (clock, disk, delay) = (self.clock.clone(), Rc::clone(&self.disk), self.flush_delay.get());
        let (ticket, completer) = Ticket::pending();
        drop(self.clock.spawn(async move {
            clock.sleep(delay).await;
            let done = flush(&*disk).await.map_err(|_| StorageError::Gone);
            completer.finish(done, done);
        }));
        ticket
    }
}

impl Interposed for Slow {
    fn below(&self) -> &dyn Storage {
        &*self.disk
    }

    fn take(&self, command: Command<'_>) -> Result<Ticket, Rejected> {
        match command {
            Command::Read { extent, .. } => {
                self.reads.set(self.reads.get() + 1);
                Ok(self.read(extent))
            }
            Command::Flush if !self.flush_delay.get().is_zero() => Ok(self.flush()),
            other => self.disk.submit(other),
        }
    }
}
