//! A connection has limited requests and bytes under way (N3).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use weir_export::{BYTES_MAX, ExportMutant, ExportOptions, REQUESTS_MAX};
use weir_runtime::{Buffer, Event, Runtime, Simulation};
use weir_storage::{
    BLOCK_BYTES, Capabilities, Command, Completer, Rejected, Rules, Storage, StorageError, Ticket,
};

use crate::support::{Client, READ, export, request};

/// A storage that answers reads when it is told to, in any number of them.
struct Patient {
    capabilities: Capabilities,
    waiting: RefCell<Vec<(Completer, usize)>>,
    most: Cell<usize>,
    slots: Event,
}

impl Patient {
    fn answer_one(&self) {
        if let Some((completer, bytes)) = self.waiting.borrow_mut().pop() {
            completer.data(Buffer::new(bytes));
            completer.transferred(Ok(()));
        }
    }
}

impl Storage for Patient {
    fn blocks(&self) -> u64 {
        1 << 20
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn submit(&self, command: Command<'_>) -> Result<Ticket, Rejected> {
        let Command::Read { extent, .. } = command else { return Err(Rejected::Failed(StorageError::Gone)) };
        let (ticket, completer) = Ticket::pending();
        self.waiting.borrow_mut().push((completer, extent.blocks as usize * BLOCK_BYTES));
        self.most.set(self.most.get().max(self.waiting.borrow().len()));
        Ok(ticket)
    }

    fn slots(&self) -> &Event {
        &self.slots
    }
}

/// The most requests that are under way of a client that reads so many bytes each, without waiting for replies.
fn most_under_way(bytes: u32, mutant: Option<ExportMutant>) -> usize {
    const REQUESTS: usize = 500;
    let runtime = Runtime::simulated(Simulation::default());
    let handle = runtime.handle();
    let script = async {
        let patient = Rc::new(Patient {
            capabilities: Capabilities::legacy(u32::MAX, u32::MAX, 4096),
            waiting: RefCell::default(),
            most: Cell::new(0),
            slots: Event::new(),
        });
        let options = ExportOptions { rules: Rules::but(mutant), ..ExportOptions::default() };
        let client = Client::new(&handle, &export(Rc::clone(&patient) as _, options), false).await;
        let client = Rc::new(client);
        let asking = Rc::clone(&client);
        let asking = handle.spawn(async move {
            for cookie in 0..REQUESTS {
                asking.send(&request(READ, 0, cookie as u64, 0, bytes)).await;
            }
        });
        for _ in 0..REQUESTS {
            for _ in 0..REQUESTS {
                handle.yield_now().await;
            }
            patient.answer_one();
            assert_eq!(client.reply(bytes as usize).await.error, 0);
        }
        asking.await.unwrap();
        patient.most.get()
    };
    runtime.block_on(script).unwrap()
}

#[test]
fn requests_and_bytes_under_way_have_limits() {
    assert_eq!(most_under_way(4096, None), REQUESTS_MAX as usize);
    assert_eq!(most_under_way(1 << 20, None) as u64, BYTES_MAX >> 20);
}

#[test]
fn n3_requests_without_a_limit_are_noticed() {
    assert!(most_under_way(4096, Some(ExportMutant::LoadUnbounded)) > REQUESTS_MAX as usize);
}
