//! Flush sharing: many callers want durability, and few flushes give it to them.
//!
//! What a flush makes durable is a prefix of what was written. So a *position* says what a caller waits for: a
//! sequence number, a transaction, or just the caller's own number. Positions grow.
//!
//! # Rules
//!
//! - A flush covers what was transferred when it *began*. A caller that comes while one is under way shares the next
//!   flush, never that one (S2).
//! - One flush answers all callers whose positions it covers.
//! - After a failed flush nothing more is acknowledged as durable (S5).
//!
//! A caller that uses this says when a flush begins, and when it has ended; nothing here talks to a storage.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use event_listener::Event;

use crate::error::StorageError;

/// Which positions are wanted durable, which a flush under way covers, and which are durable.
#[derive(Default)]
pub struct FlushSharing {
    /// Positions that callers wait for, and that are not durable.
    wanted: RefCell<BTreeSet<u64>>,
    /// The newest number given to a caller.
    asked: Cell<u64>,
    begun_to: Cell<u64>,
    durable_to: Cell<u64>,
    under_way: Cell<u32>,
    failed: Cell<Option<StorageError>>,
    changed: Event,
}

/// A flush, from its beginning to its end: [`FlushRound::end`], or dropped, where the result is told by
/// [`FlushSharing::settle`] or the caller has given up.
#[must_use = "the flush is over when this is dropped"]
pub struct FlushRound {
    sharing: Rc<FlushSharing>,
    /// It covers the positions up to this one.
    covers: u64,
}

impl FlushSharing {
    /// Nothing is wanted, and everything up to `position` is durable.
    pub fn durable_to(position: u64) -> Rc<FlushSharing> {
        Rc::new(FlushSharing {
            begun_to: Cell::new(position),
            durable_to: Cell::new(position),
            ..FlushSharing::default()
        })
    }

    /// A caller wants durable what is transferred now, where positions are the callers' own numbers: its number.
    pub fn ask(&self) -> u64 {
        self.asked.set(self.asked.get() + 1);
        self.want(self.asked.get());
        self.asked.get()
    }

    /// The newest number given to a caller: what a flush covers that begins now.
    #[must_use]
    pub fn asked(&self) -> u64 {
        self.asked.get()
    }

    /// A caller wants a position durable.
    pub fn want(&self, position: u64) {
        if position > self.durable_to.get() && self.failed.get().is_none() {
            self.wanted.borrow_mut().insert(position);
        }
    }

    /// Whether a flush that covers the positions up to `position` would answer a caller.
    #[must_use]
    pub fn is_wanted(&self, position: u64) -> bool {
        self.failed.get().is_none() && self.wanted.borrow().first().is_some_and(|first| *first <= position)
    }

    /// The newest position that a caller waits for; none after a failed flush.
    #[must_use]
    pub fn last_wanted(&self) -> Option<u64> {
        self.wanted.borrow().last().filter(|_| self.failed.get().is_none()).copied()
    }

    /// Positions that callers wait for.
    #[must_use]
    pub fn positions_wanted(&self) -> usize {
        self.wanted.borrow().len()
    }

    /// Whether a flush has begun that has not ended.
    #[must_use]
    pub fn is_under_way(&self) -> bool {
        self.under_way.get() > 0
    }

    /// A flush begins; [`FlushRound::will_cover`] says what it covers.
    pub fn begin(self: &Rc<FlushSharing>) -> FlushRound {
        self.under_way.set(self.under_way.get() + 1);
        FlushRound { sharing: Rc::clone(self), covers: self.durable_to.get() }
    }

    /// The newest position that a flush covers which has begun.
    #[must_use]
    pub fn begun_to(&self) -> u64 {
        self.begun_to.get()
    }

    /// Whether a position is durable.
    #[must_use]
    pub fn is_durable(&self, position: u64) -> bool {
        position <= self.durable_to.get()
    }

    /// The positions up to one are durable, however that came.
    pub fn settle(&self, position: u64) {
        if position > self.durable_to.get() && self.failed.get().is_none() {
            self.durable_to.set(position);
            let later = self.wanted.borrow_mut().split_off(&(position + 1));
            self.wanted.replace(later);
            self.begun_to.set(self.begun_to.get().max(position));
        }
        self.changed.notify(usize::MAX);
    }

    /// Nothing more becomes durable.
    pub fn fail(&self, error: StorageError) {
        self.failed.set(self.failed.get().or(Some(error)));
        self.wanted.borrow_mut().clear();
        self.changed.notify(usize::MAX);
    }

    /// The result so far for a caller that waits for a position.
    #[must_use]
    pub fn answer(&self, position: u64) -> Option<Result<(), StorageError>> {
        match self.is_durable(position) {
            true => Some(Ok(())),
            false => self.failed.get().map(Err),
        }
    }

    /// Waits until a position is durable.
    ///
    /// # Errors
    /// That of the flush that failed.
    pub async fn until(&self, position: u64) -> Result<(), StorageError> {
        loop {
            match self.answer(position) {
                Some(answer) => return answer,
                None => self.changed.listen().await,
            }
        }
    }

    /// Makes everything durable that is transferred now, where positions are the callers' own numbers: one flush at a
    /// time, each for all callers that came before it was submitted. The first caller leads; if it gives up, the next
    /// one does. `submit` submits a flush, and `wait` waits for it.
    ///
    /// # Errors
    /// That of the flush that failed, for this and all later callers; of `submit`, for the caller that leads.
    pub async fn flush<T, E: From<StorageError>>(
        self: &Rc<FlushSharing>,
        submit: impl AsyncFn() -> Result<T, E>,
        wait: impl AsyncFn(T) -> Result<(), StorageError>,
    ) -> Result<(), E> {
        let mine = self.ask();
        loop {
            if let Some(answer) = self.answer(mine) {
                return Ok(answer?);
            }
            if self.is_under_way() {
                self.changed.listen().await;
                continue;
            }
            let mut round = self.begin();
            let flush = submit().await?;
            round.will_cover(self.asked());
            round.end(wait(flush).await);
        }
    }
}

impl FlushRound {
    /// The flush covers the positions up to `covers`. Said at the latest when it is submitted, and what they stand for is
    /// transferred by then: a caller whose position is covered needs no flush of its own.
    pub fn will_cover(&mut self, covers: u64) {
        self.covers = covers;
        self.sharing.begun_to.set(self.sharing.begun_to.get().max(covers));
    }

    /// The newest position that it covers.
    #[must_use]
    pub fn covers(&self) -> u64 {
        self.covers
    }

    /// The flush has ended.
    pub fn end(self, result: Result<(), StorageError>) {
        match result {
            Ok(()) => self.sharing.settle(self.covers),
            Err(error) => self.sharing.fail(error),
        }
    }
}

impl Drop for FlushRound {
    fn drop(&mut self) {
        self.sharing.under_way.set(self.sharing.under_way.get() - 1);
        self.sharing.changed.notify(usize::MAX);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use weir_runtime::{Runtime, Simulation};

    use super::*;

    /// Callers that come at random, on a device whose flushes take random times and may fail. A write is transferred
    /// when its caller asks. What is durable is what was transferred when a flush was submitted that has ended well.
    /// Returns the flushes that it took, or what was told wrongly.
    fn play(seed: u64, callers: u64, fails: bool, joins: bool) -> Result<u64, String> {
        let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
        let handle = runtime.handle();
        let sharing = Rc::new(FlushSharing::default());
        let (transferred, durable, flushes) =
            (Rc::new(Cell::new(0_u64)), Rc::new(Cell::new(0_u64)), Rc::new(Cell::new(0_u64)));
        let told = Rc::new(RefCell::new(Ok(())));
        let tasks: Vec<_> = (0..callers)
            .map(|caller| {
                let (sharing, clock) = (Rc::clone(&sharing), handle.clone());
                let (transferred, durable, flushes, told) =
                    (Rc::clone(&transferred), Rc::clone(&durable), Rc::clone(&flushes), Rc::clone(&told));
                let mut random = handle.random("caller");
                handle.spawn(async move {
                    clock.sleep(Duration::from_nanos(random.below(300))).await;
                    transferred.set(transferred.get() + 1);
                    let mine = transferred.get();
                    let takes = Duration::from_nanos(random.below(50));
                    let breaks = fails && caller % 7 == 3;
                    let submit = async || {
                        clock.sleep(takes).await;
                        flushes.set(flushes.get() + 1);
                        Ok::<u64, StorageError>(transferred.get())
                    };
                    let wait = async |covers: u64| {
                        clock.sleep(takes).await;
                        if breaks {
                            return Err(StorageError::Gone);
                        }
                        durable.set(durable.get().max(covers));
                        Ok(())
                    };
                    // The mutant: a caller takes the flush that is under way for its own.
                    let done = match joins && sharing.is_under_way() {
                        true => sharing.until(sharing.begun_to()).await,
                        false => sharing.flush(submit, wait).await,
                    };
                    if done.is_ok() && durable.get() < mine {
                        *told.borrow_mut() = Err(format!("caller {caller}, seed {seed}"));
                    }
                })
            })
            .collect();
        runtime
            .block_on(async {
                for task in tasks {
                    task.await.expect("it ends");
                }
            })
            .map_err(|stall| format!("{stall:?}"))?;
        let told = told.borrow().clone();
        told.map(|()| flushes.get())
    }

    #[test]
    fn a_caller_is_told_what_a_flush_covers_and_no_more() {
        for seed in 0..400 {
            let flushes = play(seed, 40, seed % 2 == 1, false).expect("told rightly");
            assert!(flushes < 40, "nothing is shared: {flushes} flushes for 40 callers");
        }
        assert!((0..400).any(|seed| play(seed, 40, false, true).is_err()), "the mutant was not noticed");
    }

    #[test]
    fn positions_are_wanted_until_they_are_durable() {
        let sharing = FlushSharing::durable_to(4);
        sharing.want(3);
        assert!(!sharing.is_wanted(u64::MAX), "it is durable already");
        sharing.want(7);
        sharing.want(9);
        assert!(!sharing.is_wanted(6) && sharing.is_wanted(7));
        let mut round = sharing.begin();
        round.will_cover(8);
        assert!(sharing.begun_to() == 8 && !sharing.is_durable(7));
        round.end(Ok(()));
        assert!(sharing.is_durable(8) && !sharing.is_durable(9) && sharing.is_wanted(9));
        let mut round = sharing.begin();
        round.will_cover(9);
        drop(round);
        assert!(!sharing.is_durable(9) && !sharing.is_under_way(), "given up, it makes nothing durable");
        sharing.fail(StorageError::Gone);
        sharing.settle(9);
        assert_eq!((sharing.answer(8), sharing.answer(9)), (Some(Ok(())), Some(Err(StorageError::Gone))));
    }
}
