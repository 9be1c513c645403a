//! Power cuts under SQLite, and every call of it failing once: every journal mode, both promises. And that the
//! judges can fail: a sync that is dropped, and barriers that are ignored, are noticed.

use crate::passing::{ADVERSARY, LEGACY};
use weir_crash::{
    Campaign as _, FsGround, Plan, SqliteCampaign, SqliteFaults, SqliteJournal, SqliteSync, SqliteTotals,
};
use weir_flash::Mechanism;
use weir_fs::{Engine, FsMutant, JournalMutant, MountOptions};
use weir_sqlite_vfs::Mode;
use weir_storage::Rules;

/// One promise in every journal mode.
fn pass(mode: Mode, grounds: &[FsGround], states: u64) {
    for journal in SqliteJournal::ALL {
        for ground in grounds {
            let summary =
                SqliteCampaign::new(journal, mode, *ground, Plan::new(states, 20_261_121)).run_campaign();
            assert_eq!(summary.failure, None, "{journal:?}, {mode:?} on {}", ground.name());
            let SqliteTotals { states_distinct, states_deep, commits, lost_max, .. } = summary.totals;
            assert!(states_distinct >= states && states_deep > 0 && commits > 0, "{:?}", summary.totals);
            if mode == Mode::Durable {
                assert_eq!(lost_max, 0);
            }
        }
    }
}

#[test]
fn durable_transactions_are_not_lost() {
    pass(Mode::Durable, &[ADVERSARY, FsGround::Volume], 100);
}

#[test]
fn durable_transactions_are_not_lost_on_flash() {
    use Mechanism::{InOrderRecovery, InOrderWriteback, PowerLossProtection, TransactionalWriteback};
    let grounds = [InOrderRecovery, PowerLossProtection, InOrderWriteback, TransactionalWriteback];
    pass(Mode::Durable, &grounds.map(FsGround::Flash), 60);
}

#[test]
fn ordered_transactions_are_a_prefix() {
    pass(Mode::Order, &[ADVERSARY, FsGround::Volume], 100);
}

#[test]
fn ordered_transactions_are_a_prefix_on_flash() {
    use Mechanism::{InOrderRecovery, InOrderWriteback, PowerLossProtection, TransactionalWriteback};
    let grounds = [InOrderRecovery, PowerLossProtection, InOrderWriteback, TransactionalWriteback];
    pass(Mode::Order, &grounds.map(FsGround::Flash), 60);
}

#[test]
fn without_barriers_order_is_kept_by_waiting() {
    for mode in [Mode::Durable, Mode::Order, Mode::Off] {
        pass(mode, &[LEGACY], 20);
    }
    pass(Mode::Order, &[FsGround::Flash(Mechanism::None)], 20);
}

/// The OPTR paper's modes: a drive that keeps requests in order, and the journal's engine for it.
#[test]
fn transactions_are_kept_on_prefix_devices() {
    let grounds = [FsGround::PrefixDisk, FsGround::Flash(Mechanism::OrderPreservingRecovery)];
    let options = MountOptions { engine: Some(Engine::Prefix), ..MountOptions::default() };
    for (ground, mode) in
        grounds.into_iter().flat_map(|ground| [(ground, Mode::Durable), (ground, Mode::Off)])
    {
        let campaign = SqliteCampaign {
            extra: true,
            options,
            ..SqliteCampaign::new(SqliteJournal::Delete, mode, ground, Plan::new(200, 20_261_123))
        };
        let summary = campaign.run_campaign();
        assert_eq!(summary.failure, None, "{mode:?} on {}", ground.name());
        assert!(
            summary.totals.states_distinct >= 200 && summary.totals.lost_max == 0,
            "{:?}",
            summary.totals
        );
    }
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    let run = || {
        SqliteCampaign::new(SqliteJournal::Wal, Mode::Order, FsGround::Volume, Plan::new(1_000, 5))
            .run_campaign()
    };
    assert_eq!(run(), run());
}

#[test]
fn every_call_may_fail_once() {
    for journal in SqliteJournal::ALL {
        for mode in [Mode::Durable, Mode::Order] {
            let once = SqliteFaults { journal, mode, ground: ADVERSARY, seed: 11 };
            let totals = once.inject_all().unwrap_or_else(|what| panic!("{journal:?}, {mode:?}: {what}"));
            // A failure at the end of a connection, or of a question whose answer SQLite can do without, is not told.
            assert!(totals.runs > 300 && totals.reported > totals.runs / 2, "{totals:?}");
        }
    }
}

/// The first failure that a campaign of so many states finds.
fn failure(campaign: &SqliteCampaign) -> Option<String> {
    campaign.run_campaign().failure.map(|failure| failure.what)
}

#[test]
fn a_storage_that_ignores_barriers_is_found_out() {
    for ground in [LEGACY, FsGround::Flash(Mechanism::None)] {
        for journal in SqliteJournal::ALL {
            for mode in [Mode::Durable, Mode::Order] {
                let campaign = SqliteCampaign::new(journal, mode, ground, Plan::new(20_000, 3));
                let campaign = SqliteCampaign { ignores_barriers: true, ..campaign };
                assert_ne!(failure(&campaign), None, "{journal:?}, {mode:?} on {}", ground.name());
            }
        }
    }
}

/// Behind an ordering call, writeback keeps that order: no page of the database gets to the disk before the journal that
/// it waited for. Writeback overtakes where the device's queue is full, which is rare: it begins with a seed that shows it.
#[test]
fn writeback_that_overtakes_what_a_call_has_ordered_is_found_out() {
    let ground = FsGround::Flash(Mechanism::InOrderWriteback);
    for (journal, first) in [(SqliteJournal::Delete, 1222), (SqliteJournal::Wal, 1241)] {
        let campaign = |seed| SqliteCampaign::new(journal, Mode::Order, ground, Plan::new(600, seed));
        let options = MountOptions {
            rules: Rules::but(Some(FsMutant::Journal(JournalMutant::WritebackOvertakes))),
            ..MountOptions::default()
        };
        let drops = |seed| SqliteCampaign { options, ..campaign(seed) };
        assert_eq!(failure(&campaign(first)), None);
        assert!((first..first + 180).any(|seed| failure(&drops(seed)).is_some()), "{journal:?}");
    }
}

/// Without a journal, a transaction is whole because its update is.
#[test]
fn an_update_that_is_not_kept_back_is_found_out() {
    for mode in [Mode::Durable, Mode::Order] {
        let options =
            MountOptions { rules: Rules::but(Some(FsMutant::UpdateNotDeferred)), ..MountOptions::default() };
        let campaign = SqliteCampaign::new(SqliteJournal::BatchAtomic, mode, ADVERSARY, Plan::new(20_000, 4));
        assert_ne!(failure(&SqliteCampaign { options, ..campaign }), None, "{mode:?}");
    }
}

/// All syncs that a transaction needs. The others exist and are not needed: the journal's content, where the journal
/// is a new or empty file, because each page has a checksum and the header is not there before it; a journal's end in
/// mode `durable`, because what finishes the transaction is of the same file; and the end of a truncated journal in
/// mode `order`, because the next transaction's barrier commits it: without that one, the last transaction may be
/// undone, as may be any that is only in order.
#[test]
fn a_sync_that_is_dropped_is_found_out() {
    use Mode::{Durable, Off, Order};
    use SqliteJournal::{BatchAtomic, Delete, Persist, Truncate, Wal};
    use SqliteSync::{
        Batch, Checkpoint, Database, Finish, JournalContent, JournalEnd, JournalHeader, LogFrames, LogHeader,
    };
    let needed: [(_, _, &[SqliteSync]); 14] = [
        (Delete, Durable, &[JournalHeader, Database, Finish]),
        (Delete, Order, &[JournalHeader, Database]),
        (Delete, Off, &[JournalHeader, Database]),
        (Truncate, Durable, &[JournalHeader, Database, Finish]),
        (Truncate, Order, &[JournalHeader, Database]),
        (Truncate, Off, &[JournalHeader, Database, JournalEnd]),
        (Persist, Durable, &[JournalContent, JournalHeader, Database, Finish]),
        (Persist, Order, &[JournalContent, JournalHeader, Database, JournalEnd]),
        (Persist, Off, &[JournalHeader, Database, JournalEnd]),
        (Wal, Durable, &[LogHeader, LogFrames, Checkpoint]),
        (Wal, Order, &[LogHeader, LogFrames, Checkpoint]),
        (Wal, Off, &[LogHeader, LogFrames, Checkpoint]),
        (BatchAtomic, Durable, &[Batch]),
        (BatchAtomic, Off, &[Batch]),
    ];
    for (journal, mode, syncs) in needed {
        for sync in syncs {
            let campaign = SqliteCampaign::new(journal, mode, ADVERSARY, Plan::new(20_000, 1));
            let campaign = SqliteCampaign { dropped: Some(*sync), ..campaign };
            assert_ne!(failure(&campaign), None, "{journal:?}, {mode:?} without {sync:?}");
        }
    }
}
