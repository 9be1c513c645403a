//! Replies that go out: one task sends them, many at a time.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use weir_export::Load;
use weir_runtime::Event;

use crate::transport::Transport;

/// Replies of less than this are sent together.
const SMALL: usize = 16 << 10;
/// As many as make so many bytes.
const TOGETHER: usize = 256 << 10;

/// Replies that wait for the client.
pub(crate) struct Outbox {
    load: Rc<Load>,
    pieces: RefCell<VecDeque<Vec<u8>>>,
    filled: Event,
    /// Nothing more will come.
    closed: Cell<bool>,
}

impl Outbox {
    pub(crate) fn new(load: &Rc<Load>) -> Outbox {
        let (pieces, filled, closed) = (RefCell::default(), Event::new(), Cell::new(false));
        Outbox { load: Rc::clone(load), pieces, filled, closed }
    }

    /// Sends a reply behind those that wait.
    pub(crate) fn push(&self, reply: Vec<u8>) {
        self.load.add_bytes(reply.len());
        let mut pieces = self.pieces.borrow_mut();
        match pieces.back_mut() {
            Some(last) if reply.len() < SMALL && last.len() + reply.len() <= TOGETHER => last.extend(reply),
            _ => pieces.push_back(reply),
        }
        self.filled.notify(1);
    }

    /// Says that nothing more will come.
    pub(crate) fn close(&self) {
        self.closed.set(true);
        self.filled.notify(1);
    }

    /// Sends replies until nothing more will come. After a failure they are dropped, and the connection is closed.
    pub(crate) async fn run(self: Rc<Self>, transport: Rc<impl Transport>) {
        loop {
            let next = self.pieces.borrow_mut().pop_front();
            match next {
                Some(piece) => {
                    if transport.send(&piece).await.is_err() {
                        transport.close();
                    }
                    self.load.remove_bytes(piece.len());
                }
                None if self.closed.get() => return,
                None => self.filled.listen().await,
            }
        }
    }
}
