//! The player: numbered requests to a running volume, each told to the history before it is submitted.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use weir_runtime::{Handle, Random};
use weir_storage::{
    AdversaryDisk, BLOCK_BYTES, Command, Extent, Lba, Part, Rejected, SharePair, Storage, StorageError,
    StreamId, Ticket, Write, WriteFlags, submit_when_free,
};
use weir_volume::{Volume, inspect};

use crate::bound::Bounded;
use crate::content::{Stamp, content_of, push_page};
use crate::model::{Model, Verdict};
use crate::options::RunOptions;
use crate::request_history::{Phase, RequestHistory};
use crate::window::Window;

/// Which of the volume's blocks the model's blocks are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub blocks: u64,
    pub stride: u64,
}

impl Span {
    pub(crate) fn lba(self, block: u64) -> Lba {
        Lba(block * self.stride)
    }

    /// Reads everything.
    pub(crate) async fn read(self, volume: &dyn Storage) -> Result<Vec<Stamp>, Verdict> {
        let mut stamps = Vec::with_capacity(self.blocks as usize);
        let most = u64::from(volume.capabilities().max_transfer_blocks);
        let step = if self.stride == 1 { most } else { 1 };
        while (stamps.len() as u64) < self.blocks {
            let first = stamps.len() as u64;
            let count = step.min(self.blocks - first);
            let bytes = read(volume, Extent::new(self.lba(first), count as u32)).await?;
            for (page, block) in bytes.chunks_exact(BLOCK_BYTES).zip(first..) {
                stamps.push(content_of(page, block).ok_or(Verdict::Foreign(block))?);
            }
        }
        Ok(stamps)
    }

    /// Reads everything, and compares what the volume counts as live with it.
    pub(crate) async fn read_and_count(
        self,
        volume: &dyn Storage,
        live_blocks: impl Fn() -> u64,
    ) -> Result<Vec<Stamp>, Verdict> {
        let stamps = self.read(volume).await?;
        let (counted, read) = (live_blocks(), Model::contents(&stamps));
        if counted == read { Ok(stamps) } else { Err(Verdict::MiscountedLive { counted, read }) }
    }
}

/// Makes the disk and the volume of a run; and which blocks of the volume the run uses.
pub(crate) async fn make_volume(
    handle: &Handle,
    options: &RunOptions,
) -> Result<(Rc<AdversaryDisk>, Span), Verdict> {
    let disk = AdversaryDisk::new(handle, options.adversary());
    let made = Volume::create(handle, &*disk, options.format()).await;
    made.map_err(|error| failed("making the volume", &error))?;
    let info = inspect(&*disk).await.map_err(|error| failed("reading the volume's superblock", &error))?;
    let of_logical = info.logical_blocks / options.stride;
    let blocks = (info.usable_blocks * options.fill / 100).min(of_logical).max(8);
    Ok((disk, Span { blocks, stride: options.stride }))
}

async fn read(volume: &dyn Storage, extent: Extent) -> Result<weir_runtime::Buffer, Verdict> {
    weir_storage::read(volume, extent).await.map_err(|error| failed("a read", &error))
}

pub(crate) fn failed(during: &'static str, error: &dyn std::error::Error) -> Verdict {
    Verdict::Failed { during, error: error.to_string() }
}

/// What a step did to the player's volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Done,
    /// The process is to end here and to begin again.
    Restart,
}

/// One workload on one open volume.
pub(crate) struct Player<'a> {
    pub options: &'a RunOptions,
    pub handle: Handle,
    pub random: Random,
    pub range: Span,
    pub history: Rc<RefCell<RequestHistory>>,
    pub window: Rc<Window>,
}

impl Player<'_> {
    /// One step. A volume that is full may say so; nothing else may go wrong.
    pub(crate) async fn step(&mut self, volume: &Bounded<Volume>) -> Result<Step, Verdict> {
        let mix = self.options.mix;
        let weights = [
            mix.write,
            mix.discard,
            mix.flush,
            mix.barrier,
            mix.read,
            mix.pause,
            mix.checkpoint,
            mix.trim,
            mix.restart,
            mix.share,
            mix.packed,
        ];
        match self.weighted(&weights) {
            0 => self.write(volume).await?,
            1 => self.discard(volume).await?,
            2 => self.flush(volume).await?,
            3 => drop(submit(volume, Command::Barrier { stream: StreamId(0) }).await?),
            4 => self.read(volume).await?,
            5 => self.pause().await,
            6 => volume.inner.checkpoint().await.map_err(|error| failed("a checkpoint", &error))?,
            7 => drop(volume.inner.trim().await.map_err(|error| failed("a trim", &error))?),
            8 => return Ok(Step::Restart),
            9 => self.share(volume).await?,
            _ => self.packed(volume).await?,
        }
        Ok(Step::Done)
    }

    fn weighted(&mut self, weights: &[u64]) -> usize {
        let mut left = self.random.below(weights.iter().sum());
        let taken = |weight: &u64| match left.checked_sub(*weight) {
            Some(rest) => {
                left = rest;
                false
            }
            None => true,
        };
        weights.iter().position(taken).unwrap_or(0)
    }

    /// A few blocks behind one another.
    fn any_blocks(&mut self) -> (u64, u64) {
        let count = 1 + self.random.below(self.options.request_blocks.min(self.range.blocks));
        let hot = self.random.below(10) < self.options.hot;
        let starts = self.range.blocks - count + 1;
        let starts = if hot { (starts / 8).max(1) } else { starts };
        (self.random.below(starts), count)
    }

    fn any_flags(&mut self) -> WriteFlags {
        WriteFlags {
            barrier: self.random.below(4) == 0,
            fua: self.random.below(64) < self.options.fua,
            preflush: self.random.below(64) < self.options.fua,
            reliable: false,
        }
    }

    /// What a write of `count` blocks from `first` on writes.
    fn pages(first: u64, count: u64, stamp: Stamp) -> Vec<u8> {
        let mut bytes = Vec::new();
        (first..first + count).for_each(|block| push_page(&mut bytes, block, stamp));
        bytes
    }

    fn parts<'a>(&self, first: u64, pages: &'a [u8]) -> Vec<Part<'a>> {
        match self.range.stride {
            1 => vec![Part::bytes(self.range.lba(first), pages)],
            _ => {
                let pages = (first..).zip(pages.chunks_exact(BLOCK_BYTES));
                pages.map(|(block, page)| Part::bytes(self.range.lba(block), page)).collect()
            }
        }
    }

    async fn write(&mut self, volume: &Bounded<Volume>) -> Result<(), Verdict> {
        let (first, count) = self.any_blocks();
        let flags = self.any_flags();
        let pages = {
            let mut history = self.history.borrow_mut();
            let stamp = history.model.next_stamp();
            history.model.write((first..first + count).collect());
            Self::pages(first, count, stamp)
        };
        let parts = self.parts(first, &pages);
        let command = Command::Write(Write { flags, ..Write::new(&parts) });
        let phase = if flags.fua { Phase::Transferred } else { Phase::Durable };
        let ticket = self.submit_request(volume, command, phase).await?;
        self.sometimes_wait(ticket).await
    }

    /// A few writes in one command, often of the same blocks.
    async fn packed(&mut self, volume: &Bounded<Volume>) -> Result<(), Verdict> {
        let (mut extents, mut room) = (Vec::new(), u64::from(volume.capabilities().max_transfer_blocks));
        for _ in 0..2 + self.random.below(3) {
            let (first, count) = self.any_blocks();
            if count <= room {
                extents.push((first, count, self.any_flags()));
                room -= count;
            }
        }
        let pages: Vec<Vec<u8>> = {
            let mut history = self.history.borrow_mut();
            let stamps = history.model.next_stamp()..;
            let blocks = |(first, count, _): &(u64, u64, WriteFlags)| (*first..first + count).collect();
            history.model.packed(&extents.iter().map(blocks).collect::<Vec<Vec<u64>>>());
            extents
                .iter()
                .zip(stamps)
                .map(|((first, count, _), stamp)| Self::pages(*first, *count, stamp))
                .collect()
        };
        let parts: Vec<Vec<Part<'_>>> =
            extents.iter().zip(&pages).map(|((first, ..), pages)| self.parts(*first, pages)).collect();
        let made = parts.iter().zip(&extents);
        let writes: Vec<Write<'_>> =
            made.map(|(parts, (_, _, flags))| Write { flags: *flags, ..Write::new(parts) }).collect();
        let all_fua = writes.iter().all(|write| write.flags.fua);
        let phase = if all_fua { Phase::Transferred } else { Phase::Durable };
        let ticket = self.submit_request(volume, Command::Packed(&writes), phase).await?;
        self.sometimes_wait(ticket).await
    }

    async fn discard(&mut self, volume: &Bounded<Volume>) -> Result<(), Verdict> {
        let (first, count) = self.any_blocks();
        self.history.borrow_mut().model.discard((first..first + count).collect());
        let extents: Vec<Extent> = match self.range.stride {
            1 => vec![Extent::new(self.range.lba(first), count as u32)],
            _ => (first..first + count).map(|block| Extent::new(self.range.lba(block), 1)).collect(),
        };
        let ticket = self.submit_request(volume, Command::Discard(&extents), Phase::Durable).await?;
        self.sometimes_wait(ticket).await
    }

    /// A few pairs, among them often some whose source another pair changes, or two with one target.
    async fn share(&mut self, volume: &Bounded<Volume>) -> Result<(), Verdict> {
        let mut pairs = Vec::new();
        for _ in 0..1 + self.random.below(3) {
            let ((from, count), (to, most)) = (self.any_blocks(), self.any_blocks());
            let count = count.min(most);
            if from.abs_diff(to) >= count {
                pairs.extend((0..count).map(|i| (from + i, to + i)));
            }
        }
        if pairs.is_empty() {
            return Ok(());
        }
        self.history.borrow_mut().model.share(&pairs);
        let one = |(from, to): &(u64, u64)| SharePair {
            from: Extent::new(self.range.lba(*from), 1),
            to: self.range.lba(*to),
        };
        let pairs: Vec<SharePair> = pairs.iter().map(one).collect();
        let ticket = self.submit_request(volume, Command::Share(&pairs), Phase::Durable).await?;
        self.sometimes_wait(ticket).await
    }

    /// Submits the request that the history was told of last.
    async fn submit_request(
        &self,
        volume: &Bounded<Volume>,
        command: Command<'_>,
        phase: Phase,
    ) -> Result<Option<Ticket>, Verdict> {
        match submit_when_free(volume, command).await {
            Ok(ticket) => {
                let mut history = self.history.borrow_mut();
                history.accept();
                let number = history.accepted();
                history.expect(number, ticket.clone(), phase);
                Ok(Some(ticket))
            }
            Err(error) => {
                let (live, usable) = (self.history.borrow().model.live(), volume.inner.stats().usable_blocks);
                self.history.borrow_mut().model.withdraw();
                match error {
                    Rejected::Failed(StorageError::NoSpace) if live > usable => Ok(None),
                    Rejected::Failed(StorageError::NoSpace) => Err(Verdict::FalselyFull { live, usable }),
                    error => Err(failed("a request", &error)),
                }
            }
        }
    }

    async fn sometimes_wait(&mut self, ticket: Option<Ticket>) -> Result<(), Verdict> {
        match ticket {
            Some(ticket) if self.random.below(8) == 0 => {
                ticket.transferred().await.map_err(|error| failed("a request's transfer", &error))
            }
            _ => Ok(()),
        }
    }

    async fn flush(&mut self, volume: &Bounded<Volume>) -> Result<(), Verdict> {
        let through = self.history.borrow().model.requests();
        let ticket = submit(volume, Command::Flush).await?;
        self.history.borrow_mut().expect(through, ticket.clone(), Phase::Transferred);
        if self.random.below(2) == 0 {
            ticket.transferred().await.map_err(|error| failed("a flush", &error))?;
        }
        Ok(())
    }

    async fn read(&mut self, volume: &Bounded<Volume>) -> Result<(), Verdict> {
        let block = self.random.below(self.range.blocks);
        let expected = self.history.borrow().model.stamp(block);
        let _reading = self.window.user_reads();
        let bytes = read(volume, Extent::new(self.range.lba(block), 1)).await?;
        let found = content_of(&bytes, block);
        if found == Some(expected) { Ok(()) } else { Err(Verdict::Read { block, expected, found }) }
    }

    async fn pause(&mut self) {
        let nanos = self.random.below(self.options.pause_ns_max + 1);
        self.handle.sleep(Duration::from_nanos(nanos)).await;
    }
}

async fn submit(volume: &Bounded<Volume>, command: Command<'_>) -> Result<Ticket, Verdict> {
    submit_when_free(volume, command).await.map_err(|error| failed("a command", &error))
}
