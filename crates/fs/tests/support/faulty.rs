//! A disk of which commands fail when a test says so.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use weir_storage::{AdversaryDisk, Command, Interposed, Rejected, Storage, StorageError, Ticket};

/// What fails of a disk.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fails {
    Nothing,
    Flushes,
    Reads,
    /// Reads that touch this block.
    ReadsOf(u64),
    /// Writes whose first byte is this.
    Writes(u8),
    /// Of this kind, the one that comes after so many.
    Nth(Kind, u64),
}

/// Kinds of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Read,
    Write,
    Flush,
}

impl Kind {
    fn of(command: &Command<'_>) -> Option<Kind> {
        match command {
            Command::Read { .. } => Some(Kind::Read),
            Command::Write(_) => Some(Kind::Write),
            Command::Flush => Some(Kind::Flush),
            _ => None,
        }
    }
}

pub struct Faulty {
    pub disk: Rc<AdversaryDisk>,
    pub fails: Cell<Fails>,
    /// Blocks of the journal.
    journal: Range<u64>,
    /// One of [`Fails::Nth`] has failed, and it was a flush or touched the journal.
    pub failed: Cell<Option<bool>>,
}

impl Faulty {
    /// One of which nothing fails yet.
    pub fn new(disk: &Rc<AdversaryDisk>, journal: Range<u64>) -> Rc<Faulty> {
        Rc::new(Faulty {
            disk: Rc::clone(disk),
            fails: Cell::new(Fails::Nothing),
            journal,
            failed: Cell::new(None),
        })
    }

    /// Whether it is the turn of this command to fail.
    fn is_nth(&self, command: &Command<'_>, kind: Kind, left: u64) -> bool {
        if Kind::of(command) != Some(kind) {
            return false;
        }
        if left > 0 {
            self.fails.set(Fails::Nth(kind, left - 1));
            return false;
        }
        self.fails.set(Fails::Nothing);
        let journal = match command {
            Command::Write(write) => write.parts.iter().any(|part| self.journal.contains(&part.start.0)),
            _ => kind == Kind::Flush,
        };
        self.failed.set(Some(journal));
        true
    }
}

impl Interposed for Faulty {
    fn below(&self) -> &dyn Storage {
        &*self.disk
    }

    fn take(&self, command: Command<'_>) -> Result<Ticket, Rejected> {
        let fails = match (&command, self.fails.get()) {
            (Command::Flush, Fails::Flushes) | (Command::Read { .. }, Fails::Reads) => true,
            (Command::Read { extent, .. }, Fails::ReadsOf(block)) => {
                (extent.start.0..extent.end().0).contains(&block)
            }
            (Command::Write(write), Fails::Writes(first)) => {
                write.parts.iter().any(|part| part.data.bytes().first() == Some(&first))
            }
            (command, Fails::Nth(kind, left)) => self.is_nth(command, kind, left),
            _ => false,
        };
        if !fails {
            return self.disk.submit(command);
        }
        Ok(Ticket::failed(StorageError::NoSpace))
    }
}
