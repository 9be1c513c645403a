//! The chips at work: what each die does, and when it is done. A die does one thing at a time; the dies of a
//! channel share its bus.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::rc::Rc;

use crate::geometry::{EraseBlock, Geometry, Page};
use crate::medium::{Content, Spare, Tag};
use crate::probe::{Busy, Probe, Subject};
use crate::profile::Nand;
use crate::recovery_point::Coalescing;
use crate::stock::Opening;

/// Reads in a row on a die that other work has to wait for. Reads go first because a caller waits for each; but
/// readers that leave no gap must not starve a flush (S2).
const READS_IN_A_ROW_MAX: u32 = 8;

/// A page on its way to the flash.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) page: Page,
    pub(crate) spare: Spare,
    pub(crate) contents: Vec<Content>,
    /// Pages to be read first: those that cleaning copies from, and those that complete logical pages, which are taken to
    /// lie on the same die.
    pub(crate) reads: u32,
    /// Something in it is reliable: a power cut leaves nothing of it that reads as good (F12).
    pub(crate) reliable: bool,
}

/// What a die is asked to do.
#[derive(Debug)]
pub(crate) enum Work {
    Program(Program),
    Read {
        page: Page,
        read: u32,
    },
    Erase(EraseBlock),
    /// A page of the system area.
    System,
    /// A page of coalescing records, with its number.
    Records(u64, Rc<Vec<Coalescing>>),
    /// A page of the log that names an erase block.
    Opening(Opening),
}

impl Work {
    /// The blocks that it programs.
    fn subject(&self, blocks_per_slot: u32) -> Subject {
        let Work::Program(program) = self else { return Subject::default() };
        Subject {
            block: program
                .contents
                .first()
                .map(|content| u64::from(content.lpn.wrapping_mul(blocks_per_slot))),
            blocks: program.contents.len() as u32 * blocks_per_slot,
            ..Subject::default()
        }
    }

    fn is_read(&self) -> bool {
        matches!(self, Work::Read { .. })
    }
}

/// Something that a die does now.
#[derive(Debug)]
pub(crate) struct Doing {
    pub(crate) work: Work,
    /// When the cells begin to change; before that a power cut leaves no trace.
    pub(crate) cells_from: u64,
}

#[derive(Debug, Default)]
struct Die {
    doing: Option<Doing>,
    /// Reads first.
    queue: VecDeque<Work>,
    /// Reads begun since it last programmed or erased.
    reads_in_a_row: u32,
    /// Pages of the system area to be programmed when there is nothing better to do.
    system_pages: u32,
    /// The last thing done was for the system area: now it is the others' turn.
    system_last: bool,
}

impl Die {
    /// Takes what is done next: reads first, until they have had their turn.
    fn next(&mut self) -> Option<Work> {
        let reads = self.queue.partition_point(Work::is_read);
        let others_turn = self.reads_in_a_row >= READS_IN_A_ROW_MAX && reads < self.queue.len();
        let work = self.queue.remove(if others_turn { reads } else { 0 })?;
        self.reads_in_a_row = if work.is_read() { self.reads_in_a_row.saturating_add(1) } else { 0 };
        Some(work)
    }
}

/// All dies and channels.
pub(crate) struct Array {
    geometry: Geometry,
    read_ns: Vec<u64>,
    program_ns: Vec<u64>,
    erase_ns: u64,
    /// To carry one page over a channel.
    carry_ns: u64,
    dies: Vec<Die>,
    channel_free: Vec<u64>,
    done: BinaryHeap<Reverse<(u64, u32)>>,
    /// Dies whose next page of the system area lets the host's data go first.
    deferred: Vec<u32>,
    probe: Option<Rc<dyn Probe>>,
}

impl Array {
    pub(crate) fn new(geometry: Geometry, nand: &Nand, probe: Option<Rc<dyn Probe>>) -> Array {
        let carry = u128::from(geometry.page_bytes()) * 1_000_000_000;
        Array {
            geometry,
            read_ns: nand.read_ns.clone(),
            program_ns: nand.program_ns.clone(),
            erase_ns: nand.erase_ns,
            carry_ns: (carry / u128::from(nand.channel_bytes_per_second.max(1))) as u64,
            dies: (0..geometry.dies).map(|_| Die::default()).collect(),
            channel_free: vec![0; geometry.channels as usize],
            done: BinaryHeap::new(),
            deferred: Vec::new(),
            probe,
        }
    }

    /// The longest time to program a page, with its way over the channel.
    pub(crate) fn page_ns(&self) -> u64 {
        self.carry_ns + self.program_ns.iter().max().copied().unwrap_or(0)
    }

    /// Whether a die has nothing to do, and nothing waits for it; or only reads, that have had their turn.
    pub(crate) fn is_idle(&self, die: u32) -> bool {
        let die = &self.dies[die as usize];
        let nothing = die.doing.is_none() && die.queue.is_empty();
        let only_reads = || {
            let doing = die.doing.as_ref().is_none_or(|doing| doing.work.is_read());
            doing && die.queue.back().is_none_or(Work::is_read)
        };
        nothing || (die.reads_in_a_row >= READS_IN_A_ROW_MAX && only_reads())
    }

    pub(crate) fn add(&mut self, die: u32, work: Work, now: u64) {
        let queue = &mut self.dies[die as usize].queue;
        // A read waits for what the die does now, and for nothing else unless reads have had their turn.
        if work.is_read() {
            queue.insert(queue.partition_point(Work::is_read), work);
        } else {
            queue.push_back(work);
        }
        self.start(die, now);
    }

    /// Adds `pages` of the system area to what a die has to program.
    pub(crate) fn add_system(&mut self, die: u32, pages: u32, now: u64) {
        self.dies[die as usize].system_pages += pages;
        self.start(die, now);
    }

    /// When the next die is done.
    pub(crate) fn next(&self) -> Option<u64> {
        self.done.peek().map(|Reverse((at, _))| *at)
    }

    /// A die that is done by `now`, and what it did. It starts nothing new before [`Array::start`].
    pub(crate) fn finished(&mut self, now: u64) -> Option<(u32, Work)> {
        let Reverse((at, die)) = *self.done.peek()?;
        if at > now {
            return None;
        }
        self.done.pop();
        let doing = self.dies[die as usize].doing.take()?;
        Some((die, doing.work))
    }

    /// Lets an idle die begin what waits for it.
    pub(crate) fn start(&mut self, die: u32, now: u64) {
        let waiting = &mut self.dies[die as usize];
        if waiting.doing.is_some() {
            return;
        }
        if waiting.queue.is_empty() && waiting.system_pages > 0 && waiting.system_last {
            waiting.system_last = false;
            return self.deferred.push(die);
        }
        let system = waiting.system_pages > 0 && !waiting.system_last;
        let work = if system {
            waiting.system_pages -= 1;
            Work::System
        } else {
            let Some(work) = waiting.next() else { return };
            work
        };
        waiting.system_last = system;
        let (cells_from, done) = self.times(die, &work, now);
        self.report_work(die, &work, cells_from, done);
        self.dies[die as usize].doing = Some(Doing { work, cells_from });
        self.done.push(Reverse((done, die)));
    }

    /// Lets dies go on with the system area, once the host's data had its turn.
    pub(crate) fn start_deferred(&mut self, now: u64) {
        while let Some(die) = self.deferred.pop() {
            self.start(die, now);
        }
    }

    /// When the cells begin to change, and when all is done.
    fn times(&mut self, die: u32, work: &Work, now: u64) -> (u64, u64) {
        let subject = work.subject(self.geometry.blocks_per_slot);
        match work {
            Work::Program(program) => {
                let nth = self.geometry.nth_page(program.page) as usize;
                let mut at = now;
                for _ in 0..program.reads {
                    at = self.carry(die, subject, at + self.read_ns[nth % self.read_ns.len()]);
                }
                let cells_from = self.carry(die, subject, at);
                (cells_from, cells_from + self.program_ns[nth % self.program_ns.len()])
            }
            Work::Read { page, .. } => {
                let nth = self.geometry.nth_page(*page) as usize;
                let done = self.carry(die, subject, now + self.read_ns[nth % self.read_ns.len()]);
                (done, done)
            }
            Work::Erase(_) => (now, now + self.erase_ns),
            Work::System | Work::Records(..) | Work::Opening(_) => {
                let cells_from = self.carry(die, subject, now);
                (cells_from, cells_from + self.program_ns.iter().max().copied().unwrap_or(0))
            }
        }
    }

    /// When a page that is ready at `from` has passed the die's channel.
    fn carry(&mut self, die: u32, subject: Subject, from: u64) -> u64 {
        let channel = self.geometry.channel_of(die);
        let free = &mut self.channel_free[channel as usize];
        let start = from.max(*free);
        *free = start + self.carry_ns;
        if let Some(probe) = &self.probe {
            probe.busy(Busy::Channel { channel }, subject, start, *free);
        }
        *free
    }

    fn report_work(&self, die: u32, work: &Work, cells_from: u64, done: u64) {
        let Some(probe) = &self.probe else { return };
        let what = match work {
            Work::Program(Program { spare: Spare { tag: Tag::Moved, .. }, .. }) => Busy::Move { die },
            Work::Program(_) => Busy::Program { die },
            Work::Read { .. } => Busy::Read { die },
            Work::Erase(_) => Busy::Erase { die },
            Work::System | Work::Records(..) | Work::Opening(_) => Busy::System { die },
        };
        probe.busy(what, work.subject(self.geometry.blocks_per_slot), cells_from, done);
    }

    /// What the dies do now.
    pub(crate) fn doing(&self) -> impl Iterator<Item = &Doing> {
        self.dies.iter().filter_map(|die| die.doing.as_ref())
    }
}
