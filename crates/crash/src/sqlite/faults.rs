//! Fault injection: a short program is repeated, and in each repetition another call of SQLite to the VFS fails: with an
//! I/O error, without space, or after half of a write. The program gets the error. After that, with and without a power
//! cut, the database is whole and holds what was committed. A COMMIT that failed may have been done or not.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use serde::Serialize;
use weir_fs::MountOptions;
use weir_runtime::{Random, Runtime, Simulation};
use weir_sqlite_vfs::{Call, Connection, Fault, Mode};

use super::run::{PATH, find, start};
use super::script::{Content, End, Past, Script, Settings, read};
use super::{SqliteCampaign, SqliteJournal};
use crate::FsGround;
use crate::campaign::Plan;
use crate::content::mix;
use crate::fs::ground::{Blocks, new_image};
use crate::fs::ground::{DiskTraits, Ground, Left};

/// Transactions of the program.
const TRANSACTIONS: u64 = 8;
/// Power cuts after each failure.
const CUTS: u32 = 3;

const FAULTS: [Fault; 3] = [Fault::Io, Fault::NoSpace, Fault::Short];

/// A program in one journal mode, with one promise, on one ground.
#[derive(Clone, Copy, Debug)]
pub struct SqliteFaults {
    /// SQLite's journal mode.
    pub journal: SqliteJournal,
    /// What COMMIT promises.
    pub mode: Mode,
    /// What the filesystem stands on.
    pub ground: FsGround,
    /// Determines everything.
    pub seed: u64,
}

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SqliteFaultTotals {
    /// Programs run, in each of which one call failed.
    pub runs: u64,
    /// Of these, those in which the program got an error.
    pub reported: u64,
    /// Power cuts.
    pub cuts: u64,
}

/// What a program has got from its database.
#[derive(Clone, Copy, Debug, Default)]
struct Answers {
    /// The transaction whose COMMIT has returned last.
    committed: u64,
    /// A call has failed, perhaps that COMMIT.
    failed: bool,
}

impl SqliteFaults {
    /// Lets every call fail, one in each run and in every way.
    ///
    /// # Errors
    /// The first run in which something was not as promised: which call, how it failed, and what was wrong.
    pub fn inject_all(&self) -> Result<SqliteFaultTotals, String> {
        let image = new_image(true)?;
        let mut totals = SqliteFaultTotals::default();
        for fault in FAULTS {
            for nth in 0.. {
                let wrong = |what| format!("{fault:?} at call {nth}: {what}");
                let Some(told) = self.run(&image, nth, fault, &mut totals.cuts).map_err(wrong)? else {
                    break;
                };
                totals.runs += 1;
                totals.reported += u64::from(told.failed);
            }
        }
        Ok(totals)
    }

    /// One run; `None` if the program makes fewer calls.
    fn run(&self, image: &Blocks, nth: u64, fault: Fault, cuts: &mut u64) -> Result<Option<Answers>, String> {
        let campaign = SqliteCampaign::new(self.journal, self.mode, self.ground, Plan::new(0, self.seed));
        let options = MountOptions::default();
        let runtime = Rc::new(Runtime::simulated(Simulation { seed: self.seed, ..Simulation::default() }));
        let handle = runtime.handle();
        let mut random = handle.random("ground");
        let ground = Ground::new(self.ground, &handle, &mut random, image, None, DiskTraits::PLAIN);
        let ground = runtime.block_on(ground).map_err(|error| error.to_string())?;
        let ground = ground.map_err(|error| error.to_string())?;
        let (_filesystem, vfs) = start(&runtime, &ground, &campaign, options)?;
        let calls = Rc::new(Cell::new(0));
        let counted = Rc::clone(&calls);
        vfs.intercept(move |call: Call| {
            if !call.can_fail() {
                return None;
            }
            let this = counted.replace(counted.get() + 1);
            (this == nth).then_some(fault)
        });
        let settings = Settings::draw(&mut handle.random("options"));
        let past = Rc::default();
        let mut told = Answers::default();
        if let Ok(connection) = vfs.open(PATH, self.mode) {
            let mut script = Script::new(handle.random("script"), &past);
            self.program(&connection, &mut script, settings, &mut told);
        } else {
            told.failed = true;
        }
        if calls.get() <= nth {
            return if told.failed { Err("the program fails without a fault".to_owned()) } else { Ok(None) };
        }
        // The next program, without a failure and without a power cut.
        let connection = vfs.open(PATH, self.mode).map_err(|error| format!("opening again: {error}"))?;
        let content = read(&connection)?;
        self.judge(content, &past.borrow(), told, told.committed)?;
        drop(connection);
        let floor = if campaign.promises_durability() { told.committed } else { 0 };
        for left in draw_states(&ground, &mut random) {
            *cuts += 1;
            let content = find(&left, &campaign, options, mix(left.hash(), nth))?;
            self.judge(content, &past.borrow(), told, floor)
                .map_err(|what| format!("after a cut: {what}"))?;
        }
        Ok(Some(told))
    }

    /// Commits until something fails.
    fn program(&self, connection: &Connection, script: &mut Script, settings: Settings, told: &mut Answers) {
        if Script::set_up(connection, self.journal, false, settings).is_err() {
            told.failed = true;
            return;
        }
        for _ in 0..TRANSACTIONS {
            match script.step(connection) {
                Ok(End::Committed) => told.committed += 1,
                Ok(End::RolledBack) => {}
                Err(_) => {
                    told.failed = true;
                    return;
                }
            }
        }
    }

    fn judge(&self, content: Content, past: &Past, told: Answers, floor: u64) -> Result<(), String> {
        let number = content.number;
        let expected = past.content(number);
        if expected != Some(content) {
            return Err(format!("no COMMIT has left this content: {content:?}: {expected:?}"));
        }
        if number < floor || number > told.committed && !told.failed {
            return Err(format!("transaction {number} is the last, and {told:?}"));
        }
        Ok(())
    }
}

/// Draws some states that a power cut now may leave.
fn draw_states(ground: &Ground, random: &mut Random) -> Vec<Left> {
    let drawn = Rc::new(RefCell::new(Vec::new()));
    let (into, from) = (Rc::clone(&drawn), RefCell::new(random.clone()));
    ground.observe(move |draw| {
        let lefts = (0..CUTS).map(|_| draw(&mut from.borrow_mut()));
        *into.borrow_mut() = lefts.collect();
    });
    ground.visit_now();
    ground.rest();
    drawn.take()
}
