//! *Restoring*: writing a state of a replica to an empty storage. Everything is verified while it is read: each object by its
//! hash and by the object before it, each block by its checksum.

use weir_storage::{
    BLOCK_BYTES, Command, Extent, Lba, Part, SharePair, Storage, Ticket, Write, flush, read, submit_when_free,
};
use weir_volume::{Change, LogEntry, content_checksum};

use crate::check::Fault;
use crate::error::{Defect, ReplicaError};
use crate::history::{History, Reached};
use crate::kept_state::WantedState;
use crate::log_object::LogObject;
use crate::log_reader::LogReader;
use crate::map::Content;
use crate::mutants::ReplicaMutant;
use crate::reader::Replica;
use crate::state::ReplicaState;

/// What was restored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// The state after this request; 0 if nothing was shipped whole, and the target is left empty.
    pub sequence: u64,
    /// When the object was made that it ends with, or the checkpoint, in milliseconds of Unix time.
    pub created_ms: u64,
    /// The log was read to its end: the replica has nothing newer.
    pub is_newest: bool,
    /// Objects of the log that were read.
    pub objects: u64,
    /// Their bytes in the store.
    pub bytes: u64,
    /// Blocks that were written.
    pub blocks: u64,
    /// What is wrong with newer checkpoints that could not be read: the log from an older one on took their place.
    pub passed_over: Vec<Fault>,
}

/// A restore that is under way.
struct Restore<'a> {
    replica: &'a Replica,
    target: &'a dyn Storage,
    restored: Restored,
    under_way: Vec<Ticket>,
}

impl Replica {
    /// Restores a state to a storage that reads zeros, and makes it durable there.
    ///
    /// # Errors
    /// [`ReplicaError`]: what is missing or damaged, or what the target answered. The target holds a part then.
    /// [`ReplicaError::OutOfRange`] if no state is kept that is as old, or has this number. For a time behind the newest object
    /// the newest state is restored: nothing was shipped between.
    pub async fn restore(&self, wanted: WantedState, target: &dyn Storage) -> Result<Restored, ReplicaError> {
        let (restored, under_way) = Default::default();
        let mut restore = Restore { replica: self, target, restored, under_way };
        let mut history = History::new(self, wanted);
        let begin = history.choose_checkpoint().await?;
        restore.write_base(&begin).await?;
        history.follow(begin.end, async |object, to| restore.write_object(object, to).await).await?;
        restore.wait().await?;
        flush(target).await?;
        let Reached { sequence, created_ms, is_newest, objects, bytes, passed_over } = history.reached;
        let Restored { blocks, .. } = restore.restored;
        let (objects, bytes) = (objects + restore.restored.objects, bytes + restore.restored.bytes);
        Ok(Restored { sequence, created_ms, is_newest, objects, bytes, blocks, passed_over })
    }
}

impl Restore<'_> {
    fn drops(&self, mutant: ReplicaMutant) -> bool {
        self.replica.options.rules.drops(mutant)
    }

    /// Writes what a checkpoint says.
    async fn write_base(&mut self, state: &ReplicaState) -> Result<(), ReplicaError> {
        let Replica { access, envelopes, .. } = self.replica;
        let by_object = state.map.by_object();
        let mut reader = LogReader::of_places(access, envelopes, by_object.keys().copied());
        while let Some(found) = reader.next_listed().await? {
            self.restored.objects += 1;
            self.restored.bytes += found.bytes;
            let blocks = by_object.get(&found.object.place).map_or(&[][..], Vec::as_slice);
            let follows =
                |a: &(u32, Content), b: &(u32, Content)| a.0 + 1 == b.0 && a.1.block + 1 == b.1.block;
            for run in blocks.chunk_by(follows) {
                let checksums: Vec<u32> = run.iter().map(|(_, content)| content.checksum).collect();
                self.write_run(&found.object, run[0].0, run[0].1.block as usize, &checksums, Defect::Names)
                    .await?;
            }
        }
        Ok(())
    }

    /// Carries out the requests of an object, up to number `to`.
    async fn write_object(&mut self, object: &LogObject, to: u64) -> Result<(), ReplicaError> {
        for (entries, first_block) in object.requests(to) {
            let entries = match self.drops(ReplicaMutant::RequestTorn) {
                true => &entries[..entries.len().div_ceil(2)],
                false => entries,
            };
            self.write_request(object, entries, first_block).await?;
        }
        Ok(())
    }

    async fn write_request(
        &mut self,
        object: &LogObject,
        entries: &[LogEntry],
        first_block: usize,
    ) -> Result<(), ReplicaError> {
        let mut block = first_block;
        let mut at = 0;
        let mut shares = Vec::new();
        while let Some(entry) = entries.get(at) {
            match entry.change {
                Change::Write(_) => {
                    let checksums = checksums_of_run(&entries[at..]);
                    self.write_run(object, entry.lba, block, &checksums, Defect::Content).await?;
                    block += checksums.len();
                    at += checksums.len() - 1;
                }
                Change::Discard(blocks) => self.discard(object, entry.lba, blocks).await?,
                Change::Share(from) => shares.push((entry.lba, from)),
                Change::Nothing => {}
            }
            at += 1;
        }
        self.share(object, &shares).await
    }

    /// Writes blocks of an object that follow each other.
    async fn write_run(
        &mut self,
        object: &LogObject,
        lba: u32,
        first_block: usize,
        checksums: &[u32],
        defect: Defect,
    ) -> Result<(), ReplicaError> {
        let damaged = |defect| ReplicaError::Damaged { key: object.place.key(), defect };
        let most = self.target.capabilities().max_transfer_blocks.max(1) as usize;
        let bytes = checksums.len() * BLOCK_BYTES;
        let data =
            first_block.checked_mul(BLOCK_BYTES).and_then(|at| object.data.get(at..at.checked_add(bytes)?));
        let data = data.ok_or(damaged(defect))?;
        for (block, checksum) in data.chunks_exact(BLOCK_BYTES).zip(checksums) {
            if content_checksum(block) != *checksum && !self.drops(ReplicaMutant::ObjectUnchecked) {
                return Err(damaged(defect));
            }
        }
        self.require_inside(object, lba, checksums.len() as u64)?;
        let mut start = Lba(u64::from(lba));
        for piece in data.chunks(most * BLOCK_BYTES) {
            let parts = [Part::bytes(start, piece)];
            self.submit(Command::Write(Write::new(&parts))).await?;
            start = start.offset((piece.len() / BLOCK_BYTES) as u64);
        }
        self.restored.blocks += checksums.len() as u64;
        Ok(())
    }

    fn require_inside(&self, object: &LogObject, lba: u32, blocks: u64) -> Result<(), ReplicaError> {
        if u64::from(lba) + blocks <= self.target.blocks() {
            return Ok(());
        }
        Err(ReplicaError::Damaged { key: object.place.key(), defect: Defect::Content })
    }

    async fn discard(&mut self, object: &LogObject, lba: u32, blocks: u32) -> Result<(), ReplicaError> {
        self.require_inside(object, lba, u64::from(blocks))?;
        let most = self.target.capabilities().max_discard_blocks.max(1);
        let mut done = 0;
        while done < blocks {
            let piece = most.min(blocks - done);
            let extent = Extent::new(Lba(u64::from(lba) + u64::from(done)), piece);
            self.submit(Command::Discard(&[extent])).await?;
            done += piece;
        }
        Ok(())
    }

    /// Carries out the shares of a request: all sources are looked up before a target changes.
    async fn share(&mut self, object: &LogObject, shares: &[(u32, u32)]) -> Result<(), ReplicaError> {
        for (to, from) in shares {
            self.require_inside(object, *to, 1)?;
            self.require_inside(object, *from, 1)?;
        }
        let pairs: Vec<SharePair> = shares
            .iter()
            .map(|(to, from)| SharePair {
                from: Extent::new(Lba(u64::from(*from)), 1),
                to: Lba(u64::from(*to)),
            })
            .collect();
        let capabilities = self.target.capabilities();
        if shares.is_empty() {
            Ok(())
        } else if self.drops(ReplicaMutant::SharesInTurn) {
            for pair in &pairs {
                self.copy(std::slice::from_ref(pair)).await?;
            }
            Ok(())
        } else if capabilities.share && pairs.len() <= capabilities.max_share_blocks as usize {
            self.submit(Command::Share(&pairs)).await
        } else {
            self.copy(&pairs).await
        }
    }

    /// A share on a target that has none.
    async fn copy(&mut self, pairs: &[SharePair]) -> Result<(), ReplicaError> {
        self.wait().await?;
        let mut blocks = Vec::new();
        for pair in pairs {
            blocks.push(read(self.target, pair.from).await?);
        }
        for (pair, block) in pairs.iter().zip(&blocks) {
            let parts = [Part::bytes(pair.to, block)];
            self.submit(Command::Write(Write::new(&parts))).await?;
            self.wait().await?;
        }
        Ok(())
    }

    /// Submits a command. Blocks that others overlap are waited for, unless the target keeps the order of receipt.
    async fn submit(&mut self, command: Command<'_>) -> Result<(), ReplicaError> {
        let ticket = submit_when_free(self.target, command).await?;
        self.under_way.push(ticket);
        let in_order = self.target.capabilities().ordered_service;
        if !in_order || self.under_way.len() >= 256 {
            self.wait().await?;
        }
        Ok(())
    }

    async fn wait(&mut self) -> Result<(), ReplicaError> {
        for ticket in std::mem::take(&mut self.under_way) {
            ticket.transferred().await.map_err(weir_storage::Rejected::Failed)?;
        }
        Ok(())
    }
}

/// The checksums of the writes that begin here and follow each other.
fn checksums_of_run(entries: &[LogEntry]) -> Vec<u32> {
    let mut checksums = Vec::new();
    for (entry, i) in entries.iter().zip(0..) {
        match entry.change {
            Change::Write(checksum) if entries[0].lba.checked_add(i) == Some(entry.lba) => {
                checksums.push(checksum)
            }
            _ => break,
        }
    }
    checksums
}
