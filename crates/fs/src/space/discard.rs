//! Discarding what was freed, in the background: not before the transaction that freed it is durable (J7), and
//! only what nobody has allocated by then. While a discard is on its way its blocks count as taken, so that it
//! never meets a write.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use event_listener::Event;
use weir_storage::{Extent, Lba};

use crate::disk::Disk;
use crate::mutants::FsMutant;
use crate::space::Space;

/// Extents that may wait. What comes when there are more is not discarded: nobody relies on it.
const WAITING_MAX: usize = 1 << 16;

/// What is to be discarded.
#[derive(Default)]
pub(super) struct Discards {
    waiting: RefCell<Vec<Extent>>,
    wanted: Rc<Event>,
    started: Cell<bool>,
    /// Free blocks that are taken for a discard.
    under_way: Cell<u64>,
    ended: Event,
}

impl Discards {
    /// Free blocks that are taken for a discard.
    pub(super) fn under_way(&self) -> u64 {
        self.under_way.get()
    }

    /// Blocks were freed by transactions that are durable.
    pub(super) fn put(&self, freed: &[Extent]) {
        let mut waiting = self.waiting.borrow_mut();
        if self.started.get() && waiting.len() + freed.len() <= WAITING_MAX {
            waiting.extend(freed);
            self.wanted.notify(1);
        }
    }
}

impl Space {
    pub(super) fn start_discarding(self: &Rc<Space>, disk: &Rc<Disk>) {
        self.discards.started.set(true);
        drop(disk.handle.spawn(discard_task(Rc::downgrade(self), Rc::downgrade(disk))));
    }

    /// Whether blocks that are free are taken for a discard.
    pub(crate) fn is_discarding(&self) -> bool {
        self.discards.under_way() > 0
    }

    /// Waits until the discard that is under way, if there is one, has given its blocks back.
    pub(crate) async fn discarded(&self) {
        if self.is_discarding() {
            self.discards.ended.listen().await;
        }
    }

    /// Takes what of `freed` can be allocated, so that nobody else does.
    fn take_free(&self, freed: Vec<Extent>) -> Vec<Extent> {
        let mut taken = Vec::new();
        for extent in freed {
            for (group, bits) in self.parts(extent) {
                let mut groups = self.groups.borrow_mut();
                let known = &mut groups[group as usize];
                let reused = self.options.drops(FsMutant::DiscardsReused);
                let runs = if reused { vec![bits] } else { known.runs(bits) };
                for run in runs {
                    let start = self.layout.first_block(group) + u64::from(run.start);
                    taken.push(Extent::new(Lba(start), run.end - run.start));
                    known.take(run);
                }
            }
        }
        taken
    }
}

async fn discard_task(space: Weak<Space>, disk: Weak<Disk>) {
    loop {
        let (Some(now), Some(device)) = (space.upgrade(), disk.upgrade()) else { return };
        let wanted = now.discards.wanted.listen();
        let freed = now.discards.waiting.take();
        if !freed.is_empty() {
            let taken = now.take_free(freed);
            now.discards.under_way.set(taken.iter().map(|extent| u64::from(extent.blocks)).sum());
            let done = device.discard(&taken).await;
            taken.into_iter().for_each(|extent| now.release(extent));
            now.discards.under_way.set(0);
            now.discards.ended.notify(usize::MAX);
            if done.is_err() {
                // A storage that fails is told by the journal; nothing depends on a discard.
                return now.discards.started.set(false);
            }
            continue;
        }
        drop((now, device));
        wanted.await;
    }
}
