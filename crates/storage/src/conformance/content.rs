//! The storage under test, and block contents that say which write they are of.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use weir_runtime::{Handle, Random};

use crate::address::{BLOCK_BYTES, Extent, Lba};
use crate::capability::Capabilities;
use crate::command::{Command, Part, Write};
use crate::contract::{self, Storage};
use crate::ticket::Ticket;

/// One storage under test.
pub(super) struct Subject {
    handle: Handle,
    pub(super) storage: Rc<dyn Storage>,
    pub(super) fresh_reads_zero: bool,
    random: RefCell<Random>,
}

impl Subject {
    pub(super) fn new(handle: &Handle, storage: Rc<dyn Storage>, fresh_reads_zero: bool) -> Subject {
        let random = RefCell::new(handle.random("conformance"));
        Subject { handle: handle.clone(), storage, fresh_reads_zero, random }
    }

    pub(super) fn blocks(&self) -> u64 {
        self.storage.blocks()
    }

    pub(super) fn able(&self) -> Capabilities {
        *self.storage.capabilities()
    }

    pub(super) fn below(&self, bound: u64) -> u64 {
        self.random.borrow_mut().below(bound)
    }

    pub(super) fn shuffle<T>(&self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }

    pub(super) async fn sleep(&self, duration: Duration) {
        self.handle.sleep(duration).await;
    }

    /// Submits what must be accepted, waiting for a slot if need be.
    pub(super) async fn submit(&self, command: Command<'_>) -> Result<Ticket, String> {
        let kind = command.kind();
        contract::submit_when_free(&*self.storage, command)
            .await
            .map_err(|e| format!("a valid {kind:?} was refused: {e}"))
    }

    /// Carries a command out up to its first phase.
    pub(super) async fn carry_out(&self, command: Command<'_>) -> Result<Ticket, String> {
        let ticket = self.submit(command).await?;
        transferred(&ticket, command).await?;
        Ok(ticket)
    }

    /// Writes `version` of every block of `extent`, in one command.
    pub(super) async fn write(&self, extent: Extent, version: u64) -> Result<(), String> {
        let data = content(extent, version);
        self.carry_out(Command::Write(Write::new(&[Part::bytes(extent.start, &data)]))).await.map(drop)
    }

    pub(super) async fn read(&self, extent: Extent) -> Result<Vec<u8>, String> {
        let ticket = self.carry_out(Command::read(extent)).await?;
        found(&ticket, extent)
    }

    /// Reads `extent`, in transfers that the device takes, and compares it with `version`.
    pub(super) async fn expect(&self, extent: Extent, version: u64) -> Result<(), String> {
        let mut start = extent.start;
        while start < extent.end() {
            let left = (extent.end().0 - start.0).min(u64::from(self.able().max_transfer_blocks));
            let piece = Extent::new(start, left as u32);
            holds(&self.read(piece).await?, piece, version)?;
            start = piece.end();
        }
        Ok(())
    }
}

/// Waits for the first phase of what must succeed.
pub(super) async fn transferred(ticket: &Ticket, command: Command<'_>) -> Result<(), String> {
    ticket.transferred().await.map_err(|e| format!("a valid {:?} failed: {e}", command.kind()))
}

/// The data of a finished read of `extent`.
pub(super) fn found(ticket: &Ticket, extent: Extent) -> Result<Vec<u8>, String> {
    let data = ticket.take_data().ok_or_else(|| format!("the read of {extent} brought no data"))?;
    if data.len() != extent.bytes() {
        return Err(format!("the read of {extent} brought {} bytes, not {}", data.len(), extent.bytes()));
    }
    Ok(data.to_vec())
}

/// Whether `bytes` are `version` of every block of `extent`; the error says what is there instead.
pub(super) fn holds(bytes: &[u8], extent: Extent, version: u64) -> Result<(), String> {
    for (block, bytes) in extent.iter().zip(bytes.chunks(BLOCK_BYTES)) {
        if bytes != content(Extent::new(block, 1), version) {
            return Err(format!("{block} should hold version {version}, but holds {}", described(bytes)));
        }
    }
    Ok(())
}

/// What the blocks of `extent` hold in `version`: address, version, and words that depend on both.
/// Version 0 is zeroes.
pub(super) fn content(extent: Extent, version: u64) -> Vec<u8> {
    if version == 0 {
        return vec![0; extent.bytes()];
    }
    extent.iter().flat_map(|block| words(block, version)).flat_map(u64::to_le_bytes).collect()
}

fn words(block: Lba, version: u64) -> impl Iterator<Item = u64> {
    // The odd constant is 2^64 over the golden ratio: it spreads neighbours far apart.
    let seed = (block.0 ^ version.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..BLOCK_BYTES as u64 / 8).map(move |i| match i {
        0 => block.0,
        1 => version,
        _ => (seed ^ i).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29),
    })
}

fn described(bytes: &[u8]) -> String {
    let word = |i: usize| bytes.iter().skip(8 * i).take(8).rev().fold(0, |word, &b| word << 8 | u64::from(b));
    let (block, version) = (Lba(word(0)), word(1));
    if bytes.iter().all(|&byte| byte == 0) {
        "zeroes".to_owned()
    } else if version != 0 && bytes == content(Extent::new(block, 1), version) {
        format!("version {version} of {block}")
    } else {
        "what was never written whole".to_owned()
    }
}
