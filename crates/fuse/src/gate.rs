//! The *gate*: whether requests of the kernel are taken in, and what is under way behind it. It is closed while a mount is handed over,
//! so that the kernel keeps requests for the next server.
//!
//! A handover waits until the mount is *at rest*: nothing is under way that changes what the kernel has been told, and no thread
//! is in a call that waits for the kernel, as no program could take this one's place before that call has returned. Each of these is an
//! [`Activity`]: a request that is being answered, what the kernel has forgotten and is being taken in, claims that are being closed,
//! and a thread that sends a notice to the kernel, which may go on when its request has been answered.
//!
//! An activity may wait for the kernel: for dirty pages that it is to hand over, or for the lock of a page that another
//! request holds. As long as one does, requests are read all the same: those that bring or ask for pages are
//! answered, and the others are parked, for the next server.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures_util::{FutureExt as _, select_biased};
use weir_runtime::Handle;

use crate::change_event::ChangeEvent;
use crate::connection::Request;
use crate::protocol::opcode;
use crate::serve::UNDER_WAY_MAX;

/// Whether requests are taken in, those that were read and are not begun, and how much is under way.
#[derive(Default)]
pub(crate) struct Gate {
    is_closed: Cell<bool>,
    parked: RefCell<VecDeque<Request>>,
    activities: Cell<u64>,
    /// Those of them that may wait for the kernel.
    at_kernel: Cell<u64>,
    /// Of all of this.
    changed: ChangeEvent,
}

impl Gate {
    /// Goes on with requests that the server before has read.
    pub(crate) fn restore_parked(&self, requests: impl IntoIterator<Item = Vec<u8>>) {
        self.parked.borrow_mut().extend(requests.into_iter().map(Request::Short));
    }

    pub(crate) fn close(&self) {
        self.is_closed.set(true);
        self.changed.note();
    }

    pub(crate) fn open(&self) {
        self.is_closed.set(false);
        self.changed.note();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.get()
    }

    /// Whether requests may be read: those that are not to be begun are parked.
    pub(crate) fn lets_read(&self) -> bool {
        !self.is_closed() || self.at_kernel.get() > 0 && !self.is_full()
    }

    /// Whether as many requests are parked as may be.
    fn is_full(&self) -> bool {
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

    /// Begins an activity, whether the gate is open or not.
    pub(crate) fn begin(self: &Rc<Gate>) -> Activity {
        Activity::new(self, false)
    }

    /// Begins an activity that may wait for the kernel, whether the gate is open or not.
    pub(crate) fn begin_at_kernel(self: &Rc<Gate>) -> Activity {
        Activity::new(self, true)
    }

    /// Begins an activity that is part of no other one, as soon as the gate is open.
    pub(crate) async fn begin_when_open(self: &Rc<Gate>) -> Activity {
        while self.is_closed() {
            self.changed().await;
        }
        self.begin()
    }

    /// Waits until the gate is opened or closed, or an activity begins or ends.
    pub(crate) async fn changed(&self) {
        self.changed.next().await;
    }

    /// Waits until nothing is under way: whether that is so, in this time.
    pub(crate) async fn at_rest(&self, handle: &Handle, within: Duration) -> bool {
        let mut late = pin!(handle.sleep(within).fuse());
        while self.activities.get() > 0 {
            select_biased! {
                () = self.changed().fuse() => {}
                () = late => return self.activities.get() == 0,
            }
        }
        true
    }
}

/// Something that is under way, until dropped.
pub(crate) struct Activity {
    gate: Rc<Gate>,
    is_at_kernel: bool,
}

impl Activity {
    fn new(gate: &Rc<Gate>, is_at_kernel: bool) -> Activity {
        gate.activities.set(gate.activities.get() + 1);
        gate.at_kernel.set(gate.at_kernel.get() + u64::from(is_at_kernel));
        gate.changed.note();
        Activity { gate: Rc::clone(gate), is_at_kernel }
    }
}

impl Drop for Activity {
    fn drop(&mut self) {
        let gate = &self.gate;
        gate.activities.set(gate.activities.get() - 1);
        gate.at_kernel.set(gate.at_kernel.get() - u64::from(self.is_at_kernel));
        gate.changed.note();
    }
}

#[cfg(test)]
mod tests {
    use weir_runtime::{Runtime, Simulation};

    use super::*;

    #[test]
    fn what_is_parked_comes_in_order_when_the_gate_opens() {
        let gate = Gate::default();
        gate.restore_parked([vec![1], vec![2]]);
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

    #[test]
    fn requests_are_read_behind_a_closed_gate_as_long_as_the_kernel_is_waited_for() {
        let gate = Rc::<Gate>::default();
        assert!(gate.lets_read());
        gate.close();
        let _request = gate.begin();
        assert!(!gate.lets_read());
        let thread = gate.begin_at_kernel();
        assert!(gate.lets_read());
        (0..UNDER_WAY_MAX).for_each(|_| gate.park(Request::Short(Vec::new())));
        assert!(!gate.lets_read());
        gate.parked.borrow_mut().clear();
        drop(thread);
        assert!(!gate.lets_read());
        gate.open();
        assert!(gate.lets_read());
    }

    #[test]
    fn what_is_part_of_nothing_else_begins_when_the_gate_is_open() {
        let runtime = Runtime::simulated(Simulation::default());
        let handle = runtime.handle();
        let script = async {
            let gate = Rc::<Gate>::default();
            let second = Duration::from_secs(1);
            gate.close();
            let later = Rc::clone(&gate);
            let beginning = handle.spawn(async move { later.begin_when_open().await });
            handle.give_way().await;
            assert!(gate.at_rest(&handle, second).await, "it has not begun");
            gate.open();
            let activity = beginning.await.unwrap();
            assert!(!gate.at_rest(&handle, second).await);
            let ends = handle.clone();
            let ending = handle.spawn(async move {
                ends.sleep(second / 2).await;
                drop(activity)
            });
            let began = handle.now();
            assert!(gate.at_rest(&handle, second).await);
            assert_eq!(handle.now().since(began), second / 2);
            ending.await.unwrap();
        };
        runtime.block_on(script).unwrap();
    }
}
