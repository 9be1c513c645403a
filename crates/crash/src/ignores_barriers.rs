//! A storage that takes barriers and ignores them: what is on it promises order, and does not keep it. For controls.

use std::rc::Rc;

use weir_storage::{
    Capabilities, Command, Interposed, Ordering, Priority, Rejected, Storage, Ticket, Write, WriteFlags,
};

/// See the head of this file.
pub(crate) struct IgnoresBarriers {
    below: Rc<dyn Storage>,
    capabilities: Capabilities,
}

impl IgnoresBarriers {
    pub(crate) fn new(below: Rc<dyn Storage>) -> Rc<IgnoresBarriers> {
        // It claims no ordered service: a mark is answered before what comes before it.
        let claims = below.capabilities();
        let capabilities = Capabilities { ordering: Ordering::Barrier, ordered_service: false, ..*claims };
        Rc::new(IgnoresBarriers { below, capabilities })
    }
}

impl Interposed for IgnoresBarriers {
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
