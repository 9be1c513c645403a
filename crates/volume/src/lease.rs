//! The *lease*: how long the owner of a volume may write and acknowledge, and the storage that keeps it to that (V8).
//!
//! A lease is valid for a time from the beginning of a read that found the own claim and no open challenge. While it is not valid,
//! as after a disk that did not answer for seconds, writes wait, and so does a caller that waits for durability; the
//! next read decides. It costs a read of two blocks each half second, and nothing for a flush.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use futures_util::future::select;
use futures_util::pin_mut;
use tracing::{debug, warn};
use weir_runtime::{Event, Handle, Instant, Semaphore, Task};
use weir_storage::{Command, Interposed, Rejected, Rules, Storage, StorageError, Ticket};

use crate::claim::{Claim, ClaimBlocks, ClaimState, LEASE, POLL, Register};
use crate::common::failure;
use crate::mutants::VolumeMutant;

/// What the owner of a volume knows of its claim.
pub(crate) struct Lease {
    handle: Handle,
    register: Register,
    claim: Cell<Claim>,
    /// When the read that confirmed the claim began, by the clock that goes on while the machine is suspended.
    confirmed: Cell<Instant>,
    /// It is over for good, and why.
    lost: Cell<Option<StorageError>>,
    /// It was renewed, or lost.
    changed: Event,
    /// A renewal is wanted now.
    wanted: Event,
    /// Held while the claim may be written.
    writing: Semaphore,
    /// Writes with the storage below, oldest first; no more than its queue is deep, and a few that have ended.
    writes: RefCell<Vec<Ticket>>,
    rules: Rules<VolumeMutant>,
}

impl Lease {
    pub(crate) fn new(
        handle: &Handle,
        register: Register,
        claim: Claim,
        rules: Rules<VolumeMutant>,
    ) -> Lease {
        Lease {
            handle: handle.clone(),
            register,
            claim: Cell::new(claim),
            confirmed: Cell::new(handle.now_with_suspensions()),
            lost: Cell::new(None),
            changed: Event::new(),
            wanted: Event::new(),
            writing: Semaphore::new(1),
            writes: RefCell::default(),
            rules,
        }
    }

    /// Whether the claim that was just written, and the challenge before it, are the newest: then the lease begins.
    pub(crate) async fn begin(&self, challenge: u64) -> Result<bool, Rejected> {
        let began = self.handle.now_with_suspensions();
        let look = self.register.read().await?;
        self.confirmed.set(began);
        Ok(look == ClaimBlocks { found: ClaimState::Held(self.claim.get()), challenge })
    }

    /// Whether the owner may write and acknowledge now.
    fn is_valid(&self) -> bool {
        if self.rules.drops(VolumeMutant::LeaseUnchecked) {
            return true;
        }
        let age = self.handle.now_with_suspensions().since(self.confirmed.get());
        self.lost.get().is_none() && age < LEASE
    }

    /// Waits until it is over for good; why.
    pub(crate) async fn until_lost(&self) -> StorageError {
        loop {
            let changed = self.changed.listen();
            if let Some(error) = self.lost.get() {
                return error;
            }
            changed.await;
        }
    }

    /// Waits until the lease is valid.
    ///
    /// # Errors
    /// Why it never will be.
    async fn until_valid(&self) -> Result<(), StorageError> {
        loop {
            let changed = self.changed.listen();
            if self.is_valid() {
                return Ok(());
            }
            if let Some(error) = self.lost.get() {
                return Err(error);
            }
            self.wanted.notify(1);
            changed.await;
        }
    }

    /// Renews the lease again and again; returns why it cannot any more.
    pub(crate) async fn keep(self: Rc<Lease>) -> Rejected {
        loop {
            let wanted = self.wanted.listen();
            let timer = self.handle.sleep(POLL);
            pin_mut!(timer);
            select(wanted, timer).await;
            let error = match self.renew().await {
                Ok(()) => continue,
                // A read may fail once; writes wait meanwhile.
                Err(Rejected::Failed(error)) if is_passing(error) && self.is_valid() => {
                    debug!(name: "claim_unreadable", %error, "the claim could not be read");
                    continue;
                }
                Err(error) => error,
            };
            self.lost.set(Some(failure(error)));
            self.notify_waiters();
            return error;
        }
    }

    /// Reads claim and challenge once, and answers the challenge if it is a new one.
    async fn renew(&self) -> Result<(), Rejected> {
        let _exclusive = self.writing.acquire(1).await;
        if let Some(error) = self.lost.get() {
            return Err(error.into());
        }
        let began = self.handle.now_with_suspensions();
        let look = self.register.read().await?;
        let claim = self.claim.get();
        if look.found != ClaimState::Held(claim) {
            return Err(StorageError::TakenOver.into());
        }
        if look.challenge != claim.answered {
            self.answer(Claim { answered: look.challenge, ..claim }).await?;
        }
        let lapsed = !self.is_valid();
        self.confirmed.set(began);
        if lapsed && self.is_valid() {
            warn!(
                name: "lease_expired",
                "the lease expired: the disk was slow, or this process was stopped; writes waited until it was renewed"
            );
        }
        self.notify_waiters();
        Ok(())
    }

    /// Tells an opener that the volume is in use. Once the lease is over, it may have gone on without the answer.
    async fn answer(&self, claim: Claim) -> Result<(), Rejected> {
        if self.is_valid() {
            self.register.write_claim(Some(claim)).await?;
            if self.is_valid() {
                debug!(name: "challenge_answered", "a challenge was answered");
                self.claim.set(claim);
                return Ok(());
            }
        }
        Err(StorageError::TakenOver.into())
    }

    fn notify_waiters(&self) {
        self.changed.notify(usize::MAX);
        self.register.disk.slots().notify(usize::MAX);
    }

    /// Gives the claim up, when every write has arrived below. The lease is over then.
    pub(crate) async fn release(&self) -> Result<(), Rejected> {
        let writes = self.writes.take();
        for write in writes {
            // The caller of a failed write has the error already.
            let _ = write.transferred().await;
        }
        while !self.release_exclusively().await? {
            self.renew().await?;
        }
        Ok(())
    }

    /// Gives the claim up if the lease is valid; whether it is.
    async fn release_exclusively(&self) -> Result<bool, Rejected> {
        let _exclusive = self.writing.acquire(1).await;
        if !self.is_valid() {
            return Ok(false);
        }
        self.lost.set(Some(StorageError::Gone));
        self.register.write_claim(None).await?;
        Ok(true)
    }
}

/// The task that renews a lease; it ends when this is dropped.
pub(crate) struct Keeper {
    pub(crate) lease: Rc<Lease>,
    task: Task<Rejected>,
}

impl Keeper {
    pub(crate) fn new(handle: &Handle, lease: &Rc<Lease>) -> Keeper {
        Keeper { lease: Rc::clone(lease), task: handle.spawn(Rc::clone(lease).keep()) }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.task.cancel();
    }
}

fn is_passing(error: StorageError) -> bool {
    !matches!(error, StorageError::TakenOver | StorageError::Gone)
}

/// The storage below an owned volume: it takes writes, and says what is durable, only while the lease is valid.
pub(crate) struct Leased {
    pub(crate) below: Rc<dyn Storage>,
    pub(crate) lease: Rc<Lease>,
}

impl Leased {
    /// A ticket that is transferred when that of the storage below is, and the lease valid then.
    fn when_valid(&self, below: Ticket) -> Ticket {
        let (ticket, completer) = Ticket::pending();
        let lease = Rc::clone(&self.lease);
        // Dropping a task lets it run on.
        drop(self.lease.handle.spawn(async move {
            let outcome = match below.transferred().await {
                Ok(()) => lease.until_valid().await,
                failed => failed,
            };
            let durable = match outcome {
                Ok(()) => below.durable().await,
                failed => failed,
            };
            completer.finish(outcome, durable);
        }));
        ticket
    }

    fn remember(&self, ticket: &Ticket) {
        let mut writes = self.lease.writes.borrow_mut();
        if writes.len() >= 2 * self.below.capabilities().queue_depth as usize {
            writes.retain(|write| write.poll_transferred().is_none());
        }
        writes.push(ticket.clone());
    }
}

impl Interposed for Leased {
    fn below(&self) -> &dyn Storage {
        &*self.below
    }

    fn take(&self, command: Command<'_>) -> Result<Ticket, Rejected> {
        if let Command::Read { .. } = command {
            return self.below.submit(command);
        }
        if let Some(error) = self.lease.lost.get() {
            return Err(Rejected::Failed(error));
        }
        let acknowledges = match &command {
            Command::Flush => true,
            _ if !self.lease.is_valid() => {
                self.lease.wanted.notify(1);
                return Err(Rejected::Busy);
            }
            Command::Write(write) => write.flags.fua,
            _ => false,
        };
        let ticket = self.below.submit(command)?;
        self.remember(&ticket);
        Ok(if acknowledges { self.when_valid(ticket) } else { ticket })
    }
}
