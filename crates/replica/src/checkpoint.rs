//! A *checkpoint* of a replica: its map as of a request, as objects, so that a reader needs the log behind it only. The parts of
//! the map come first; the checkpoint counts when the object that names them is there.

use std::collections::BTreeMap;
use std::pin::pin;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream;
use weir_storage::Rules;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::access::Access;
use crate::envelope::{Envelopes, Hash, ObjectKind, hash_at_end};
use crate::error::{Defect, ReplicaError};
use crate::key::{LogPlace, checkpoint_key, map_key};
use crate::log_object::ChainEnd;
use crate::map::{Content, ReplicaMap};
use crate::mutants::ReplicaMutant;
use crate::state::ReplicaState;

/// Blocks that a part of the map lists at most: 20 bytes each where no two lie behind one another.
const BLOCKS_PER_PART: usize = 1 << 17;
/// Parts that are read at one time.
const PARTS_AHEAD: usize = 4;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct CheckpointOnDisk {
    sequence: U64,
    generation: U64,
    map_epoch: U64,
    next_part: U32,
    parts: U32,
    objects: U32,
    reserved: U32,
    hash: Hash,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ObjectOnDisk {
    first: U64,
    part: U32,
}

/// Blocks that follow each other, in the volume and in an object.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RunOnDisk {
    lba: U32,
    blocks: U32,
    object: U32,
    block: U32,
}

const CHECKPOINT_BYTES: usize = size_of::<CheckpointOnDisk>();
const _: () =
    assert!(CHECKPOINT_BYTES == 72 && size_of::<ObjectOnDisk>() == 12 && size_of::<RunOnDisk>() == 16);

/// Writes a checkpoint, a part of its map after the other. One of the same request that is there already is as good.
pub(crate) async fn write_checkpoint(
    access: &Access,
    envelopes: &Envelopes,
    state: &ReplicaState,
    rules: Rules<ReplicaMutant>,
) -> Result<(), ReplicaError> {
    let sequence = state.end.last();
    let epoch = envelopes.epoch.get();
    let (table, numbers) = table_of(&state.map);
    let mut mapped = state.map.mapped(0, u64::MAX);
    let mut hashes = Vec::new();
    let mut last_part = None;
    loop {
        let blocks: Vec<(u32, Content)> = mapped.by_ref().take(BLOCKS_PER_PART).collect();
        if blocks.is_empty() {
            break;
        }
        create_part(access, last_part.take()).await?;
        let key = map_key(sequence, epoch, hashes.len() as u32);
        let bytes = envelopes.wrap(&key, ObjectKind::Map, &encode_part(&blocks, &numbers))?;
        hashes.push(hash_at_end(&bytes));
        last_part = Some((key, bytes));
    }
    if !rules.drops(ReplicaMutant::CheckpointTooEarly) {
        create_part(access, last_part.take()).await?;
    }
    let header = CheckpointOnDisk {
        sequence: sequence.into(),
        generation: state.generation.into(),
        map_epoch: epoch.into(),
        next_part: state.end.next.part.into(),
        parts: (hashes.len() as u32).into(),
        objects: (table.len() as u32).into(),
        reserved: 0.into(),
        hash: state.end.hash,
    };
    let mut body = header.as_bytes().to_vec();
    for place in &table {
        body.extend_from_slice(
            ObjectOnDisk { first: place.first.into(), part: place.part.into() }.as_bytes(),
        );
    }
    hashes.iter().for_each(|hash| body.extend_from_slice(hash));
    let key = checkpoint_key(sequence);
    let manifest = envelopes.wrap(&key, ObjectKind::Checkpoint, &body)?;
    access.create(&key, manifest).await?;
    create_part(access, last_part).await
}

async fn create_part(access: &Access, part: Option<(String, Bytes)>) -> Result<(), ReplicaError> {
    if let Some((key, bytes)) = part {
        access.create(&key, bytes).await?;
    }
    Ok(())
}

/// The objects that a map reads, in order, and their new numbers by their old ones.
fn table_of(map: &ReplicaMap) -> (Vec<LogPlace>, BTreeMap<u32, u32>) {
    let mut numbers = BTreeMap::new();
    let mut table = Vec::new();
    for (_, content) in map.mapped(0, u64::MAX) {
        numbers.entry(content.object).or_insert_with(|| {
            table.extend(map.object(content.object));
            table.len() as u32
        });
    }
    (table, numbers)
}

fn encode_part(blocks: &[(u32, Content)], numbers: &BTreeMap<u32, u32>) -> Vec<u8> {
    let follows = |a: &(u32, Content), b: &(u32, Content)| {
        a.0 + 1 == b.0 && a.1.object == b.1.object && a.1.block + 1 == b.1.block
    };
    let runs: Vec<RunOnDisk> = blocks
        .chunk_by(follows)
        .map(|run| RunOnDisk {
            lba: run[0].0.into(),
            blocks: (run.len() as u32).into(),
            object: numbers.get(&run[0].1.object).copied().unwrap_or(0).into(),
            block: run[0].1.block.into(),
        })
        .collect();
    let mut body = U32::new(runs.len() as u32).as_bytes().to_vec();
    body.extend_from_slice(runs.as_bytes());
    for (_, content) in blocks {
        body.extend_from_slice(&content.checksum.to_le_bytes());
    }
    body
}

/// Takes a part into a map; `None` if it contradicts itself.
fn decode_part(body: &[u8], map: &mut ReplicaMap) -> Option<()> {
    let (count, rest) = U32::read_from_prefix(body).ok()?;
    let bytes = (count.get() as usize).checked_mul(size_of::<RunOnDisk>())?;
    let (runs, sums) = rest.split_at_checked(bytes)?;
    let mut sums = sums.chunks_exact(4);
    for run in runs.chunks_exact(size_of::<RunOnDisk>()) {
        let run = RunOnDisk::read_from_bytes(run).ok()?;
        map.object(run.object.get())?;
        run.lba.get().checked_add(run.blocks.get())?;
        run.block.get().checked_add(run.blocks.get())?;
        for i in 0..run.blocks.get() {
            let checksum = u32::from_le_bytes(sums.next()?.try_into().ok()?);
            let (object, block) = (run.object.get(), run.block.get() + i);
            map.set(run.lba.get() + i, Content { object, block, checksum });
        }
    }
    (sums.next().is_none() && sums.remainder().is_empty()).then_some(())
}

/// A checkpoint without its map.
pub(crate) struct Manifest {
    header: CheckpointOnDisk,
    /// When it was made, in milliseconds of Unix time.
    pub created_ms: u64,
    /// The objects that its map names.
    pub objects: Vec<LogPlace>,
    parts: Vec<Hash>,
}

impl Manifest {
    /// Reads the checkpoint as of a request.
    pub(crate) async fn read(
        access: &Access,
        envelopes: &Envelopes,
        sequence: u64,
    ) -> Result<Manifest, ReplicaError> {
        let key = checkpoint_key(sequence);
        let bytes = access.get(&key).await?;
        let opened = envelopes.opener().open(&key, ObjectKind::Checkpoint, &bytes)?;
        let manifest = Manifest::from_body(&opened.body, opened.created_ms);
        let manifest = manifest.filter(|manifest| manifest.header.sequence.get() == sequence);
        manifest.ok_or(ReplicaError::Damaged { key, defect: Defect::Content })
    }

    fn from_body(body: &[u8], created_ms: u64) -> Option<Manifest> {
        let (header, rest) = CheckpointOnDisk::read_from_prefix(body).ok()?;
        let bytes = (header.objects.get() as usize).checked_mul(size_of::<ObjectOnDisk>())?;
        let (objects, parts) = rest.split_at_checked(bytes)?;
        let objects: Vec<LogPlace> = objects
            .chunks_exact(size_of::<ObjectOnDisk>())
            .filter_map(|bytes| ObjectOnDisk::read_from_bytes(bytes).ok())
            .map(|object| LogPlace { first: object.first.get(), part: object.part.get() })
            .collect();
        let parts: Vec<Hash> =
            parts.chunks_exact(size_of::<Hash>()).filter_map(|hash| hash.try_into().ok()).collect();
        (parts.len() == header.parts.get() as usize).then_some(Manifest {
            header,
            created_ms,
            objects,
            parts,
        })
    }

    /// Reads the map.
    pub(crate) async fn load(
        &self,
        access: &Access,
        envelopes: &Envelopes,
        rules: Rules<ReplicaMutant>,
    ) -> Result<ReplicaState, ReplicaError> {
        let header = &self.header;
        let mut map = ReplicaMap::new(rules);
        for place in &self.objects {
            map.add_object(*place);
        }
        let parts = self.parts.iter().enumerate().map(|(part, hash)| {
            let key = map_key(header.sequence.get(), header.map_epoch.get(), part as u32);
            async move { (access.get(&key).await, key, hash) }
        });
        let mut parts = pin!(stream::iter(parts).buffered(PARTS_AHEAD));
        while let Some((bytes, key, hash)) = parts.next().await {
            let bytes = bytes?;
            let opened = envelopes.opener().open(&key, ObjectKind::Map, &bytes)?;
            let damaged = |defect| ReplicaError::Damaged { key: key.clone(), defect };
            if opened.hash != *hash && !rules.drops(ReplicaMutant::MapPartUnchecked) {
                return Err(damaged(Defect::Names));
            }
            decode_part(&opened.body, &mut map).ok_or(damaged(Defect::Content))?;
        }
        let next = LogPlace { first: header.sequence.get().saturating_add(1), part: header.next_part.get() };
        let end = ChainEnd { next, hash: header.hash, open_group: None };
        Ok(ReplicaState::at(map, end, header.generation.get(), rules))
    }
}
