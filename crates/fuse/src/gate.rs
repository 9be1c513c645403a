//! The *gate*: whether requests of the kernel are taken in. It is closed while a mount is handed over, so that the kernel
//! keeps them for the next server.
//!
//! A request that is being answered may wait for the kernel: for dirty pages that it is to hand over, or for the lock of a page
//! that another request holds. As long as one does, requests are read all the same: those that bring or ask for pages are
//! answered, and the others are parked, for the next server.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use crate::connection::Request;
use crate::protocol::opcode;
use crate::serve::UNDER_WAY_MAX;

/// Whether requests are taken in, and those that were read and are not begun.
#[derive(Default)]
pub(crate) struct Gate {
    is_closed: Cell<bool>,
    parked: RefCell<VecDeque<Request>>,
}

impl Gate {
    /// An open one, with requests that the server before has read.
    pub(crate) fn with_parked(requests: impl IntoIterator<Item = Vec<u8>>) -> Gate {
        let parked = requests.into_iter().map(Request::Short).collect();
        Gate { is_closed: Cell::new(false), parked: RefCell::new(parked) }
    }

    pub(crate) fn close(&self) {
        self.is_closed.set(true);
    }

    pub(crate) fn open(&self) {
        self.is_closed.set(false);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.get()
    }

    /// Whether as many requests are parked as may be.
    pub(crate) fn is_full(&self) -> bool {
        self.parked.borrow().len() as u64 >= UNDER_WAY_MAX
    }

    /// Whether a request waits for the gate to be open. What is forgotten is always taken in.
    pub(crate) fn parks(&self, operation: u32) -> bool {
        self.is_closed() && !matches!(operation, opcode::READ | opcode::WRITE)
    }

    pub(crate) fn park(&self, request: Request) {
        self.parked.borrow_mut().push_back(request);
    }

    /// The next request that was parked, if the gate is open.
    pub(crate) fn next_parked(&self) -> Option<Request> {
        if self.is_closed() { None } else { self.parked.borrow_mut().pop_front() }
    }

    /// The bytes of all requests that are parked.
    pub(crate) fn list_parked(&self) -> Vec<Vec<u8>> {
        self.parked.borrow().iter().map(|request| request.to_vec()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_parked_comes_in_order_when_the_gate_opens() {
        let gate = Gate::with_parked([vec![1], vec![2]]);
        assert!(!gate.parks(opcode::FSYNC));
        gate.close();
        assert!(gate.parks(opcode::FSYNC) && !gate.parks(opcode::WRITE) && !gate.parks(opcode::READ));
        gate.park(Request::Short(vec![3]));
        assert!(gate.next_parked().is_none());
        assert_eq!(gate.list_parked(), [vec![1], vec![2], vec![3]]);
        gate.open();
        let next = || gate.next_parked().map(|request| request.to_vec());
        assert_eq!([next(), next(), next(), next()], [Some(vec![1]), Some(vec![2]), Some(vec![3]), None]);
    }

    #[test]
    fn the_bound_holds() {
        let gate = Gate::default();
        (1..UNDER_WAY_MAX).for_each(|_| gate.park(Request::Short(Vec::new())));
        assert!(!gate.is_full());
        gate.park(Request::Short(Vec::new()));
        assert!(gate.is_full());
    }
}
