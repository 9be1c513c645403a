//! A *caller* is a program that writes through a block layer, in one of the papers' four ways.

use std::collections::VecDeque;
use std::rc::Rc;

use weir_block::{BlockLayer, BlockOptions, Class, Refused, Request};
use weir_runtime::Handle;
use weir_storage::{Lba, Part, Storage, StorageError, StreamId, Ticket};

use crate::content::Pages;
use crate::error::BenchError;
use crate::measure::{Goal, Measured, Meter};
use crate::writes::Writes;

/// How a program waits when it writes through Weir: the papers' four cases (FAST 2018 paper, figure 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WeirCalls {
    /// XnF: write, wait for the transfer, flush.
    Xnf,
    /// X: write, wait for the transfer.
    X,
    /// B: write with a barrier, wait for nothing but queue space.
    B,
    /// P: write orderless, wait for nothing but queue space.
    P,
}

/// Writes between two turns for the rest of the runtime, when nothing else makes the loop wait.
const WRITES_PER_TURN: u32 = 1024;

/// A program that writes through a block layer on some storage.
pub(crate) struct Caller {
    handle: Handle,
    block: Rc<BlockLayer>,
}

impl Caller {
    /// A caller of a new block layer on `storage`.
    pub(crate) fn new(
        handle: &Handle,
        storage: Rc<dyn Storage>,
        options: BlockOptions,
    ) -> Result<Caller, BenchError> {
        Ok(Caller { handle: handle.clone(), block: BlockLayer::new(handle, storage, options)? })
    }

    /// Flushes, and waits for it.
    pub(crate) async fn flush(&self) -> Result<(), BenchError> {
        let ticket = self.block.when_space(BlockLayer::flush).await?;
        Ok(ticket.transferred().await?)
    }

    /// Writes until `goal` is reached, then flushes once, all of it timed.
    ///
    /// # Errors
    /// The first request that fails.
    pub(crate) async fn run(
        &self,
        calls: WeirCalls,
        writes: &mut Writes,
        pages: &mut Pages,
        goal: &Goal,
    ) -> Result<Measured, BenchError> {
        let mut meter = Meter::start(&self.handle);
        self.write(calls, writes, pages, goal, &mut meter).await?;
        self.flush().await?;
        Ok(meter.stop())
    }

    /// Writes until `goal` is reached, and until what was written is transferred.
    ///
    /// # Errors
    /// The first request that fails.
    pub(crate) async fn write(
        &self,
        calls: WeirCalls,
        writes: &mut Writes,
        pages: &mut Pages,
        goal: &Goal,
        meter: &mut Meter,
    ) -> Result<(), BenchError> {
        match calls {
            WeirCalls::Xnf => self.waiting(true, writes, pages, goal, meter).await,
            WeirCalls::X => self.waiting(false, writes, pages, goal, meter).await,
            WeirCalls::B => self.streaming(Class::Barrier, writes, pages, goal, meter).await,
            WeirCalls::P => self.streaming(Class::Orderless, writes, pages, goal, meter).await,
        }
    }

    /// B and P: the loop of a program that never waits for the disk.
    async fn streaming(
        &self,
        class: Class,
        writes: &mut Writes,
        pages: &mut Pages,
        goal: &Goal,
        meter: &mut Meter,
    ) -> Result<(), BenchError> {
        let mut pending = Pending::default();
        while !meter.reached(goal) {
            for _ in 0..WRITES_PER_TURN {
                let stamp = writes.take();
                let parts = [Part::bytes(Lba(stamp.block), pages.page(stamp))];
                let request = Request::new(StreamId(0), class, &parts);
                loop {
                    match self.block.try_submit(&request) {
                        Ok(ticket) => break pending.add(ticket)?,
                        Err(Refused::Full) => self.block.space().listen().await,
                        Err(refused) => return Err(refused.into()),
                    }
                }
                meter.lap();
                if meter.reached(goal) {
                    break;
                }
            }
            self.handle.yield_now().await;
        }
        pending.settle().await
    }

    /// X and XnF: Wait-on-Transfer after each write, and a flush where it is asked for.
    async fn waiting(
        &self,
        flush: bool,
        writes: &mut Writes,
        pages: &mut Pages,
        goal: &Goal,
        meter: &mut Meter,
    ) -> Result<(), BenchError> {
        while !meter.reached(goal) {
            let stamp = writes.take();
            let parts = [Part::bytes(Lba(stamp.block), pages.page(stamp))];
            let ticket = self.block.submit(&Request::orderless(StreamId(0), &parts)).await?;
            ticket.transferred().await?;
            if flush {
                self.flush().await?;
            }
            meter.lap();
        }
        Ok(())
    }
}

/// Tickets of writes that still queue. A flush covers what was transferred before it (S2), so the last one
/// waits for them, and a write that failed must not go unnoticed.
#[derive(Default)]
struct Pending(VecDeque<Ticket>);

impl Pending {
    #[inline]
    fn add(&mut self, ticket: Ticket) -> Result<(), StorageError> {
        match ticket.poll_transferred() {
            Some(result) => result,
            None => {
                self.0.push_back(ticket);
                self.prune()
            }
        }
    }

    fn prune(&mut self) -> Result<(), StorageError> {
        while let Some(result) = self.0.front().and_then(Ticket::poll_transferred) {
            result?;
            self.0.pop_front();
        }
        Ok(())
    }

    async fn settle(self) -> Result<(), BenchError> {
        for ticket in self.0 {
            ticket.transferred().await?;
        }
        Ok(())
    }
}
