//! A semaphore: a number of permits, handed out first come, first served.
//!
//! Fair: a request waits behind every earlier one, also behind a larger one that does not fit yet, so none
//! starves. Safe under cancellation: dropping a waiting request, or one that was granted and never polled
//! again, loses no permit and lets the next one go. It reads no clock and draws no randomness.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Permits shared by the tasks of one runtime; clones share them.
#[derive(Clone, Debug)]
pub struct Semaphore(Rc<RefCell<SemaphoreState>>);

#[derive(Debug)]
struct SemaphoreState {
    available: usize,
    /// Requests in order of arrival.
    waiting: BTreeMap<u64, Waiting>,
    arrivals: u64,
}

#[derive(Debug)]
struct Waiting {
    permits: usize,
    granted: bool,
    waker: Waker,
}

impl Semaphore {
    /// A semaphore with `permits` free permits.
    pub fn new(permits: usize) -> Self {
        Semaphore(Rc::new(RefCell::new(SemaphoreState {
            available: permits,
            waiting: BTreeMap::new(),
            arrivals: 0,
        })))
    }

    /// Waits for `permits` permits. More than the semaphore ever has are waited for forever.
    pub fn acquire(&self, permits: usize) -> Acquire {
        Acquire { semaphore: self.clone(), permits, place: None }
    }

    /// Takes `permits` permits if they are free and no task waits for some.
    pub fn try_acquire(&self, permits: usize) -> Option<Permit> {
        let mut state = self.0.borrow_mut();
        if permits > state.available || state.waiting.values().any(|waiting| !waiting.granted) {
            return None;
        }
        state.available -= permits;
        Some(Permit { semaphore: self.clone(), permits })
    }

    /// Permits that are free now.
    pub fn available(&self) -> usize {
        self.0.borrow().available
    }

    /// Requests that wait now.
    pub fn waiting(&self) -> usize {
        self.0.borrow().waiting.values().filter(|waiting| !waiting.granted).count()
    }

    /// Adds `permits` permits: returned ones, or new ones to enlarge the semaphore.
    pub fn release(&self, permits: usize) {
        let mut woken = Vec::new();
        {
            let state = &mut *self.0.borrow_mut();
            state.available += permits;
            for waiting in state.waiting.values_mut().filter(|waiting| !waiting.granted) {
                if waiting.permits > state.available {
                    break;
                }
                state.available -= waiting.permits;
                waiting.granted = true;
                woken.push(waiting.waker.clone());
            }
        }
        // Woken after the borrow: a waker may own anything.
        woken.into_iter().for_each(Waker::wake);
    }
}

/// A request for permits, made when first polled. Dropping it withdraws it.
#[derive(Debug)]
#[must_use = "nothing is acquired unless awaited"]
pub struct Acquire {
    semaphore: Semaphore,
    permits: usize,
    place: Option<u64>,
}

impl Future for Acquire {
    type Output = Permit;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Permit> {
        let Some(place) = self.place else {
            if let Some(permit) = self.semaphore.try_acquire(self.permits) {
                return Poll::Ready(permit);
            }
            let place = {
                let mut state = self.semaphore.0.borrow_mut();
                let place = state.arrivals;
                state.arrivals += 1;
                let waiting =
                    Waiting { permits: self.permits, granted: false, waker: context.waker().clone() };
                state.waiting.insert(place, waiting);
                place
            };
            self.place = Some(place);
            return Poll::Pending;
        };
        let mut state = self.semaphore.0.borrow_mut();
        if let Some(waiting) = state.waiting.get_mut(&place).filter(|waiting| !waiting.granted) {
            waiting.waker.clone_from(context.waker());
            return Poll::Pending;
        }
        state.waiting.remove(&place);
        drop(state);
        self.place = None;
        Poll::Ready(Permit { semaphore: self.semaphore.clone(), permits: self.permits })
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        let Some(place) = self.place else { return };
        let withdrawn = self.semaphore.0.borrow_mut().waiting.remove(&place);
        let granted = withdrawn.is_some_and(|waiting| waiting.granted);
        // Also when nothing was granted: this request may have been what the next ones waited behind.
        self.semaphore.release(if granted { self.permits } else { 0 });
    }
}

/// Permits held; dropping it gives them back.
#[derive(Debug)]
#[must_use = "dropping a permit gives it back"]
pub struct Permit {
    semaphore: Semaphore,
    permits: usize,
}

impl Permit {
    /// How many permits it holds.
    pub fn permits(&self) -> usize {
        self.permits
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.semaphore.release(self.permits);
    }
}
