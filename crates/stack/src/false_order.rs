//! A storage that claims an order which it does not keep: what stands on it promises order, and a power cut shows that it lies. It
//! is the negative control of crash campaigns.

use std::rc::Rc;

use weir_storage::{
    Capabilities, Command, Interposed, Ordering, Priority, Rejected, Storage, Ticket, Write, WriteFlags,
};

/// Stands before a storage, claims an order, and ignores barriers.
pub struct FalseOrder {
    below: Rc<dyn Storage>,
    capabilities: Capabilities,
}

impl FalseOrder {
    /// Before `below`, claiming `ordering`.
    pub fn new(below: Rc<dyn Storage>, ordering: Ordering) -> Rc<FalseOrder> {
        // It claims no ordered service: a barrier is answered before what comes before it.
        let claims = below.capabilities();
        let capabilities = Capabilities { ordering, ordered_service: false, ..*claims };
        Rc::new(FalseOrder { below, capabilities })
    }
}

impl Interposed for FalseOrder {
    fn below(&self) -> &dyn Storage {
        &*self.below
    }

    fn claims(&self) -> &Capabilities {
        &self.capabilities
    }

    fn take(&self, command: Command<'_>) -> Result<Ticket, Rejected> {
        match command {
            Command::Barrier { .. } => Ok(Ticket::done()),
            Command::Write(write) => self.below.submit(Command::Write(without_barrier(&write))),
            Command::Packed(writes) => {
                let writes: Vec<Write<'_>> = writes.iter().map(without_barrier).collect();
                self.below.submit(Command::Packed(&writes))
            }
            command => self.below.submit(command),
        }
    }
}

fn without_barrier<'a>(write: &Write<'a>) -> Write<'a> {
    let flags = WriteFlags { barrier: false, ..write.flags };
    Write { flags, priority: Priority::Simple, ..*write }
}
