//! An *ordered plug*: writes that leave as one packed command, in the order in which they were put in (E8).
//!
//! A caller starts a plug, adds writes, puts *bare barriers* between those whose order matters, and finishes it. These are the
//! three helpers of the paper on the eMMC data-persistence path (section V.B: start, insert barrier, finish). No
//! elevator sees what is in a plug, only the whole of it, and a device makes packed writes in turn (S7). Writes between
//! two bare barriers that continue each other become one, as in a queue; a bare barrier keeps apart what is to be left apart by a
//! power cut.
//!
//! What is more than a command takes is divided between two writes. The next command is submitted when the one before
//! is transferred, since nothing else puts two commands in order. So with FUA on every write a power cut leaves the
//! first of a plug's writes, however many commands there are.

use weir_storage::{Feature, Part, Rejected, StreamId, Ticket, Write, WriteFlags};

use crate::layer::BlockLayer;
use crate::mutants::BlockMutant;

/// A write in a plug: parts that continue each other.
struct Plugged<'a> {
    parts: Vec<Part<'a>>,
    flags: WriteFlags,
}

impl Plugged<'_> {
    fn blocks(&self) -> u64 {
        self.write().blocks()
    }

    fn write(&self) -> Write<'_> {
        Write { flags: self.flags, ..Write::new(&self.parts) }
    }

    /// Whether `next` may become a part of it. Reliable writes are kept whole one by one, so they stay as they came.
    fn takes(&self, next: &Plugged<'_>, most: u64) -> bool {
        let end = self.parts.last().map(|part| part.extent().end());
        let start = next.parts.first().map(|part| part.start);
        end == start
            && self.flags == next.flags
            && !self.flags.reliable
            && self.blocks() + next.blocks() <= most
    }
}

/// Writes that leave together and in order; see the head of this file. Dropped before it is finished, it does nothing.
#[must_use = "nothing is submitted before the plug is finished"]
pub struct OrderedPlug<'a> {
    layer: &'a BlockLayer,
    stream: StreamId,
    writes: Vec<Plugged<'a>>,
    /// A bare barrier is behind the last of them.
    has_barrier: bool,
}

impl<'a> OrderedPlug<'a> {
    /// An empty plug of `stream`.
    ///
    /// # Errors
    /// [`Rejected::Unsupported`] where the device has no packed writes.
    pub fn start(layer: &'a BlockLayer, stream: StreamId) -> Result<OrderedPlug<'a>, Rejected> {
        match layer.capabilities().packed {
            true => Ok(OrderedPlug { layer, stream, writes: Vec::new(), has_barrier: false }),
            false => Err(Rejected::Unsupported(Feature::Packed)),
        }
    }

    /// Adds a write, with FUA and reliable as `flags` has them. The data is as of [`finish`](Self::finish).
    pub fn write(&mut self, part: Part<'a>, flags: WriteFlags) {
        let new = Plugged { parts: vec![part], flags };
        let has_barrier =
            std::mem::take(&mut self.has_barrier) && !self.layer.drops(BlockMutant::PlugBarrierForgotten);
        let most = u64::from(self.layer.capabilities().max_transfer_blocks);
        match self.writes.last_mut().filter(|last| !has_barrier && last.takes(&new, most)) {
            Some(last) => last.parts.push(part),
            None => self.writes.push(new),
        }
    }

    /// What is added from now on stays apart from what was added before, and behind it.
    pub fn put_barrier(&mut self) {
        self.has_barrier = true;
    }

    /// Submits all of it, and gives back the ticket of the last command; one that is done, if the plug is empty. Waits for
    /// queue space, and for the transfer of all commands but the last; of these it spends the caller's processor time
    /// for the completion, and for the submission of the next.
    ///
    /// # Errors
    /// As [`BlockLayer::packed`], at the first command that is refused or fails. Those behind it are not submitted then.
    pub async fn finish(mut self) -> Result<Ticket, Rejected> {
        if self.layer.drops(BlockMutant::PlugReordered) {
            self.writes.reverse();
        }
        let most = u64::from(self.layer.capabilities().max_transfer_blocks);
        let mut ticket = Ticket::done();
        for (nth, command) in commands(&self.writes, most).enumerate() {
            if nth > 0 {
                self.follow(&ticket).await?;
            }
            let writes: Vec<Write<'_>> = command.iter().map(Plugged::write).collect();
            ticket = self.layer.when_space(|layer| layer.packed(self.stream, &writes)).await?;
        }
        Ok(ticket)
    }

    /// Waits until a command is transferred, so that the next one may follow.
    async fn follow(&self, ticket: &Ticket) -> Result<(), Rejected> {
        if !self.layer.drops(BlockMutant::PlugRunsAhead) {
            ticket.transferred().await?;
        }
        let clock = self.layer.clock();
        clock.spend_completion().await;
        clock.spend_dispatch().await;
        Ok(())
    }
}

/// The writes of one command after the other, each of at most `most` blocks; a write of more is alone, and refused.
fn commands<'w, 'a>(mut writes: &'w [Plugged<'a>], most: u64) -> impl Iterator<Item = &'w [Plugged<'a>]> {
    std::iter::from_fn(move || {
        let mut blocks = 0;
        let fits = |write: &&Plugged<'_>| {
            blocks += write.blocks();
            blocks <= most
        };
        let count = writes.iter().take_while(fits).count().max(1).min(writes.len());
        let (command, rest) = writes.split_at(count);
        writes = rest;
        (count > 0).then_some(command)
    })
}
