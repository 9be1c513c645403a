//! What a run may take at most: one that does not end is a failure with its replay command, not a campaign
//! that hangs. Virtual time is bounded, and so are commands, since a livelock can spin without time passing.
//! What a run remembers (its model, its promises, its states) grows with its steps, commands and states, so
//! that its memory is bounded as well.

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures_util::{FutureExt as _, select_biased};
use weir_runtime::{Buffer, Event, Handle, Runtime, Simulation};
use weir_storage::{Capabilities, Command, Rejected, Storage, StorageError, Ticket};

use crate::model::Verdict;

/// The virtual time of a round, far more than any needs.
const TIME_MAX: Duration = Duration::from_secs(600);
/// Commands of a round, to the volume and to the disk below, refused ones included: many times what any needs.
const COMMANDS_MAX: u64 = 1_000_000;

/// The commands that a round may still submit.
pub(crate) struct Bound {
    left: Cell<u64>,
    used_up: Event,
}

impl Bound {
    pub(crate) fn new() -> Rc<Bound> {
        Rc::new(Bound { left: Cell::new(COMMANDS_MAX), used_up: Event::new() })
    }

    /// A storage whose commands count.
    pub(crate) fn around<S>(self: &Rc<Bound>, inner: Rc<S>) -> Rc<Bounded<S>> {
        Rc::new(Bounded { inner, bound: Rc::clone(self) })
    }

    /// Whether one more command may be submitted.
    fn spend(&self) -> bool {
        match self.left.get() {
            0 => {
                self.used_up.notify(usize::MAX);
                false
            }
            left => {
                self.left.set(left - 1);
                true
            }
        }
    }

    /// Does `work`, or gives up when it takes too much.
    pub(crate) async fn within<T>(
        &self,
        handle: &Handle,
        work: impl Future<Output = Result<T, Verdict>>,
    ) -> Result<T, Verdict> {
        let mut work = pin!(work.fuse());
        let mut used_up = pin!(self.used_up.listen().fuse());
        let mut time_up = pin!(handle.sleep(TIME_MAX).fuse());
        let outcome = select_biased! {
            outcome = work => outcome,
            () = used_up => Err(Verdict::EndlessCommands(COMMANDS_MAX)),
            () = time_up => Err(Verdict::EndlessTime(TIME_MAX)),
        };
        // Without commands left the storage fails; the cause is the bound, not the storage.
        outcome.map_err(|verdict| match self.left.get() {
            0 => Verdict::EndlessCommands(COMMANDS_MAX),
            _ => verdict,
        })
    }
}

/// A storage whose commands count against a [`Bound`]; it is gone when they are used up, so that even a loop
/// which awaits nothing ends.
pub(crate) struct Bounded<S> {
    pub inner: Rc<S>,
    bound: Rc<Bound>,
}

impl<S: Storage> Storage for Bounded<S> {
    fn blocks(&self) -> u64 {
        self.inner.blocks()
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn submit(&self, command: Command<'_>) -> Result<Ticket, Rejected> {
        if self.bound.spend() { self.inner.submit(command) } else { Err(StorageError::Gone.into()) }
    }

    fn slots(&self) -> &Event {
        self.inner.slots()
    }

    fn allocate(&self, bytes: usize) -> Buffer {
        self.inner.allocate(bytes)
    }
}

/// Does `work` in a runtime of its own.
pub(crate) fn in_new_runtime<T, E: From<String>>(
    seed: u64,
    work: impl AsyncFnOnce(&Handle) -> Result<T, E>,
) -> Result<T, E> {
    let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
    let handle = runtime.handle();
    let bound = Bound::new();
    let work = bound.within(&handle, async { Ok::<_, Verdict>(work(&handle).await) });
    match runtime.block_on(work) {
        Ok(Ok(done)) => done,
        Ok(Err(verdict)) => Err(verdict.to_string().into()),
        Err(stalled) => Err(format!("a deadlock: {stalled}").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_runtime::{Runtime, Simulation};
    use weir_storage::{AdversaryDisk, AdversaryOptions};

    /// What becomes of `work`, which never ends.
    fn ends<F: Future<Output = Result<(), Verdict>>>(
        work: impl FnOnce(Handle, Rc<Bounded<AdversaryDisk>>) -> F,
    ) -> Verdict {
        let runtime = Runtime::simulated(Simulation::default());
        let handle = runtime.handle();
        let bound = Bound::new();
        let disk = AdversaryDisk::new(
            &handle,
            AdversaryOptions { latency_ns_max: 0, ..AdversaryOptions::default() },
        );
        let work = work(handle.clone(), bound.around(disk));
        let outcome = runtime.block_on(bound.within(&handle, work)).expect("time goes on");
        outcome.expect_err("it never ends")
    }

    #[test]
    fn time_that_passes_for_ever_ends() {
        let verdict = ends(async |handle, _| {
            loop {
                handle.sleep(Duration::from_secs(1)).await;
            }
        });
        assert_eq!(verdict, Verdict::EndlessTime(TIME_MAX));
    }

    #[test]
    fn a_wake_up_that_never_comes_ends() {
        assert_eq!(ends(async |_, _| std::future::pending().await), Verdict::EndlessTime(TIME_MAX));
    }

    #[test]
    fn tasks_that_spin_while_time_stands_still_end() {
        let verdict = ends(async |handle, disk| {
            handle.spawn({
                let handle = handle.clone();
                async move {
                    loop {
                        let _ = disk.submit(Command::Flush);
                        handle.yield_now().await;
                    }
                }
            });
            std::future::pending().await
        });
        assert_eq!(verdict, Verdict::EndlessCommands(COMMANDS_MAX));
    }

    #[test]
    fn a_loop_that_awaits_nothing_ends() {
        let verdict = ends(async |_, disk| {
            while disk.submit(Command::Flush).err() != Some(StorageError::Gone.into()) {}
            Err(Verdict::Foreign(0))
        });
        assert_eq!(verdict, Verdict::EndlessCommands(COMMANDS_MAX));
    }
}
