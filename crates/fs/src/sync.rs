//! The synchronisation calls.
//!
//! What each writes, and what it waits for, with the engine `dual` (FAST 2018 paper, section 4.3). D is the dirty
//! data of the file, JD and JC are those of the transaction that changed its inode last. `{..}` is an epoch; `->`
//! is a barrier between two; *wait* is a wait for the transfer (Wait-on-Transfer).
//!
//! | call | inode changed, not committed | nothing changed but data | nothing dirty at all |
//! |---|---|---|---|
//! | `fsync` | `{D, JD} -> {JC} ->` wait, flush | as `fdatasync` | as `fdatasync` |
//! | `fbarrier` | `{D, JD} -> {JC} ->` | as `fdatabarrier` | as `fdatabarrier` |
//! | `fdatasync` | as `fsync` if size, allocation or what is written has changed (J3), else only D: `{D} ->` wait, flush | `{D} ->` wait, flush | wait for what is on its way, flush |
//! | `fdatabarrier` | as `fbarrier` if one of these has changed (J3), else only D: `{D} ->` | `{D} ->` | `->`: a bare barrier mark |
//! | `sync` | all D, JD and JC there are, wait, flush | the same | flush |
//! | `order_all` | all D, `{D, JD} -> {JC} ->` | the same | `{JC} ->` |
//!
//! With [`MountOptions::forces_commits`] calls that find nothing dirty commit the running transaction, as the paper has it
//! (*forced commit*): `{JD} -> {JC} ->` in place of the bare barrier and before the flush, and JC alone if nothing has changed.
//!
//! `fbarrier` and `fdatabarrier` return when all of that is dispatched: they wait for queue space only. With the
//! data of the file goes that of every other file that the transaction refers to (J2). Data that the writeback
//! task has submitted without order joins the epoch if it is still on its way (E7). So, with `<` for "is durable
//! no later than", for any two calls of which one returned before the other began: all that the first wrote `<`
//! all that the second writes, whatever file it is of.
//!
//! How the engines do that, and what the calls are on the others, is in their files (`weir_journal`, `engines`). Engines that
//! keep order by waiting know no call that only orders: there `fbarrier` is `fsync`, and `fdatabarrier` is `fdatasync`.
//!
//! A directory's data are its names: where one was added or removed, `fdatasync` is `fsync`.
//!
//! In journal mode data, D is among the log blocks, so a file's data is never dirty, and a durable call whose transaction is
//! durable already does nothing: of several files that changed in one transaction the first pays. In writeback mode only the D
//! of the calling file is written.

mod last_changes;

use std::cell::Cell;
use std::rc::Rc;

use weir_cache::CachedFile;
use weir_journal::{Journal, JournalError, Promise, SyncRequest, SyncedInode};
use weir_storage::Rules;
use weir_vfs::SyncCall;

use crate::mutants::FsMutant;
use crate::options::{JournalMode, MountOptions};
pub(crate) use last_changes::LastChanges;

/// Synchronisation calls on files that were answered without an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// `fsync` and `fdatasync`, where the engine flushes.
    pub durable: u64,
    /// `fbarrier` and `fdatabarrier`, whatever it took to keep their promise; the others, too, on an engine that does
    /// not flush.
    pub ordered: u64,
}

/// Keeps the promises of the synchronisation calls.
pub(crate) struct Synchronisation {
    /// What a file holds is in the log with the transaction that changed it last, and nowhere else.
    in_log: bool,
    /// A call that finds nothing dirty commits the running transaction (J3).
    forces_commits: bool,
    rules: Rules<FsMutant>,
    answered: Cell<Answered>,
}

impl Synchronisation {
    pub(crate) fn new(options: MountOptions) -> Synchronisation {
        let rules = options.rules;
        let in_log = options.mode == JournalMode::Data && !rules.drops(FsMutant::FlushesJournaled);
        let forces_commits = options.forces_commits && !rules.drops(FsMutant::NothingForced);
        Synchronisation { in_log, forces_commits, rules, answered: Cell::default() }
    }

    /// The calls that were answered.
    pub(crate) fn answered(&self) -> Answered {
        self.answered.get()
    }

    /// Does what a call promises for a file, or for its data only, with what of its inode is needed to find it (J3).
    ///
    /// # Errors
    /// Those of the journal, and of every write of the file. They abort the journal.
    pub(crate) async fn synchronise(
        &self,
        journal: &Rc<Journal>,
        (file, last_changes): (&CachedFile, &LastChanges),
        inode: SyncedInode,
        call: SyncCall,
    ) -> Result<(), JournalError> {
        let forgets =
            call == SyncCall::Fdatabarrier && self.rules.drops(FsMutant::DataBarrierForgetsMetadata);
        let changed_in = last_changes.last(call.is_data_only()).filter(|_| !forgets);
        let &Synchronisation { in_log, forces_commits, .. } = self;
        let request = SyncRequest { journal, file, inode, changed_in, in_log, forces_commits };
        request.keep_promise(call.promise()).await?;
        self.note_answered(journal, call.promise());
        Ok(())
    }

    /// A call has kept its promise.
    pub(crate) fn note_answered(&self, journal: &Journal, promise: Promise) {
        let mut answered = self.answered.get();
        match promise {
            Promise::Durable if journal.engine().facts().flushes => answered.durable += 1,
            Promise::Durable | Promise::Ordered => answered.ordered += 1,
        }
        self.answered.set(answered);
    }
}
