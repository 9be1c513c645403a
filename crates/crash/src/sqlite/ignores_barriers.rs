//! A storage that takes barriers and ignores them: what a filesystem on it promises, it does not keep. For negative
//! controls.

use std::rc::Rc;

use weir_storage::{
    Capabilities, Command, Interposed, Ordering, Priority, Rejected, Storage, Ticket, Write, WriteFlags,
};

/// See the head of this file.
pub(super) struct IgnoresBarriers {
    below: Rc<dyn Storage>,
    capabilities: Capabilities,
}

impl IgnoresBarriers {
    pub(super) fn new(below: Rc<dyn Storage>) -> Rc<IgnoresBarriers> {
        let capabilities = Capabilities { ordering: Ordering::Barrier, ..*below.capabilities() };
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
            Command::Write(write) => self.below.submit(Command::Write(Write {
                flags: WriteFlags { barrier: false, ..write.flags },
                priority: Priority::Simple,
                ..write
            })),
            command => self.below.submit(command),
        }
    }
}
