//! How much of one connection is under way (N3).

use std::cell::Cell;
use std::rc::Rc;

use weir_runtime::Event;
use weir_storage::Rules;

use crate::mutants::ExportMutant;

/// Requests of one connection under way at most.
pub const REQUESTS_MAX: u32 = 256;
/// From so many bytes on, of requests and of replies that the client has not taken, the next request of a connection is
/// not read. One request may go beyond it by what it has itself.
pub const BYTES_MAX: u64 = 16 << 20;

/// What is under way on a connection.
#[derive(Default)]
pub struct Load {
    requests: Cell<u32>,
    bytes: Cell<u64>,
    changed: Event,
    rules: Rules<ExportMutant>,
}

impl Load {
    /// Nothing is under way.
    #[must_use]
    pub fn new(rules: Rules<ExportMutant>) -> Load {
        Load { rules, ..Load::default() }
    }

    /// Waits until one more request may be under way.
    pub async fn has_room(&self) {
        while (self.requests.get() >= REQUESTS_MAX || self.bytes.get() >= BYTES_MAX)
            && !self.rules.drops(ExportMutant::LoadUnbounded)
        {
            self.changed.listen().await;
        }
    }

    /// Waits until no request is under way.
    pub async fn is_idle(&self) {
        while self.requests.get() > 0 {
            self.changed.listen().await;
        }
    }

    /// So many bytes of replies wait for the client.
    pub fn add_bytes(&self, bytes: usize) {
        self.bytes.set(self.bytes.get() + bytes as u64);
    }

    /// They wait no more.
    pub fn remove_bytes(&self, bytes: usize) {
        self.bytes.set(self.bytes.get() - bytes as u64);
        self.changed.notify(usize::MAX);
    }
}

/// A request under way, until dropped.
pub struct UnderWay {
    load: Rc<Load>,
    bytes: usize,
}

impl UnderWay {
    /// It takes so many bytes of memory.
    #[must_use]
    pub fn new(load: &Rc<Load>, bytes: usize) -> UnderWay {
        load.requests.set(load.requests.get() + 1);
        load.add_bytes(bytes);
        UnderWay { load: Rc::clone(load), bytes }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.load.requests.set(self.load.requests.get() - 1);
        self.load.remove_bytes(self.bytes);
    }
}
