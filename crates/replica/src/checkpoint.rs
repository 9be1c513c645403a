//! A *checkpoint* of a replica: its map as of a request, as objects, so that a reader needs the log behind it only. The parts of
//! the map, and of the table of objects that it names, come first; the checkpoint counts when the object that names them is there.

use std::cell::RefCell;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use futures_util::{StreamExt as _, TryStreamExt as _};
use weir_storage::Rules;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::access::Access;
use crate::envelope::{Envelopes, Hash, ObjectKind, VERSION_OF_TABLE_PARTS, hash_at_end};
use crate::error::{Defect, ReplicaError};
use crate::key::{LogPlace, checkpoint_key, map_key};
use crate::log_object::ChainEnd;
use crate::map::{Content, ReplicaMap};
use crate::mutants::ReplicaMutant;
use crate::options::ReplicaOptions;
use crate::state::ReplicaState;

/// Parts that are read, or written, at one time.
const PARTS_AT_ONCE: usize = 4;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct CheckpointOnDisk {
    sequence: U64,
    generation: U64,
    map_epoch: U64,
    next_part: U32,
    parts: U32,
    objects: U32,
    table_parts: U32,
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

/// The parts of a checkpoint, which are in the store. It does not count yet.
pub(crate) struct CheckpointParts {
    header: CheckpointOnDisk,
    /// The end of the table of objects, which no part has.
    objects: Vec<LogPlace>,
    hashes: Vec<Hash>,
    /// Numbers of objects in the map that it was made from which can be [freed](ReplicaMap::free_objects) there.
    pub unread: Vec<u32>,
    /// Of the mutant: what is sent later.
    held_back: Option<(String, Bytes)>,
}

/// What the parts of a checkpoint are made from, on any thread.
struct Packing {
    map: ReplicaMap,
    /// The objects that the map reads.
    table: Vec<LogPlace>,
    /// Their numbers in the table, from 1, by those in the map; 0 of what it does not read.
    numbers: Vec<u32>,
    unread: Vec<u32>,
    /// Objects of the table that are in parts, all of them full.
    in_parts: usize,
    part_entries: usize,
}

/// What a part begins with.
#[derive(Clone, Copy)]
enum PartStart {
    /// A place in the table of objects.
    Object(usize),
    /// A logical block.
    Block(u64),
}

impl Packing {
    fn new(map: ReplicaMap, part_entries: usize) -> Packing {
        let (table, numbers) = map.table();
        let in_parts = table.len().saturating_sub(1) / part_entries * part_entries;
        let unread = map.unread(&numbers);
        Packing { map, table, numbers, unread, in_parts, part_entries }
    }

    /// The body of the part that begins there, and where the next one does; `None` behind the last one.
    fn body(&self, start: PartStart) -> Option<(Vec<u8>, PartStart)> {
        match start {
            PartStart::Object(first) if first < self.in_parts => {
                let end = first + self.part_entries;
                Some((encode_table(&self.table[first..end]), PartStart::Object(end)))
            }
            PartStart::Object(_) => self.body(PartStart::Block(0)),
            PartStart::Block(first) => {
                let mapped = self.map.mapped(first, u64::MAX);
                let blocks: Vec<(u32, Content)> = mapped.take(self.part_entries).collect();
                let (last, _) = blocks.last()?;
                Some((encode_part(&blocks, &self.numbers), PartStart::Block(u64::from(*last) + 1)))
            }
        }
    }
}

/// Writes the parts of a checkpoint, some at one time, each packed on a thread of its own: programs on a mount would wait for that.
pub(crate) async fn write_parts(
    access: &Access,
    envelopes: &Envelopes,
    state: &ReplicaState,
    options: &ReplicaOptions,
) -> Result<CheckpointParts, ReplicaError> {
    let handle = envelopes.handle();
    let (sequence, epoch) = (state.end.last(), envelopes.epoch.get());
    let (map, part_entries) = (state.map.clone(), options.part_entries.max(1));
    let packing = handle.blocking(move || Arc::new(Packing::new(map, part_entries)));
    let packing = packing.await.map_err(|_| ReplicaError::NoThread)?;
    let parts = stream::try_unfold((PartStart::Object(0), 0), |(start, part)| {
        let (packing, maker) = (Arc::clone(&packing), envelopes.maker(ObjectKind::Map));
        let key = map_key(sequence, epoch, part);
        let packed = handle.blocking(move || {
            let Some((body, next)) = packing.body(start) else { return Ok(None) };
            let bytes = maker.wrap(&key, &body)?;
            Ok(Some(((part, key, bytes), (next, part + 1))))
        });
        async move { packed.await.map_err(|_| ReplicaError::NoThread)? }
    });
    let held_back = RefCell::new(None);
    let holds_back = options.rules.drops(ReplicaMutant::CheckpointTooEarly);
    let created = parts.map_ok(|(part, key, bytes)| {
        let held_back = &held_back;
        async move {
            let hash = hash_at_end(&bytes);
            if part == 0 && holds_back {
                held_back.replace(Some((key, bytes)));
            } else {
                access.create(&key, bytes).await?;
            }
            Ok::<Hash, ReplicaError>(hash)
        }
    });
    let hashes: Vec<Hash> = created.try_buffered(PARTS_AT_ONCE).try_collect().await?;
    let table_parts = packing.in_parts / packing.part_entries;
    let objects = packing.table[packing.in_parts..].to_vec();
    let header = CheckpointOnDisk {
        sequence: sequence.into(),
        generation: state.generation.into(),
        map_epoch: epoch.into(),
        next_part: state.end.next.part.into(),
        parts: ((hashes.len() - table_parts) as u32).into(),
        objects: (objects.len() as u32).into(),
        table_parts: (table_parts as u32).into(),
        hash: state.end.hash,
    };
    let (unread, held_back) = (packing.unread.clone(), held_back.into_inner());
    Ok(CheckpointParts { header, objects, hashes, unread, held_back })
}

impl CheckpointParts {
    /// Writes the object that names the parts. One of the same request that is there already is as good.
    pub(crate) async fn write_manifest(
        &mut self,
        access: &Access,
        envelopes: &Envelopes,
    ) -> Result<(), ReplicaError> {
        let mut body = self.header.as_bytes().to_vec();
        body.extend(encode_table(&self.objects));
        self.hashes.iter().for_each(|hash| body.extend_from_slice(hash));
        let key = checkpoint_key(self.header.sequence.get());
        let mut maker = envelopes.maker(ObjectKind::Checkpoint);
        if self.header.table_parts.get() > 0 {
            maker = maker.with_version(VERSION_OF_TABLE_PARTS);
        }
        access.create(&key, maker.wrap(&key, &body)?).await?;
        if let Some((key, bytes)) = self.held_back.take() {
            access.create(&key, bytes).await?;
        }
        Ok(())
    }
}

fn encode_table(objects: &[LogPlace]) -> Vec<u8> {
    let object = |place: &LogPlace| ObjectOnDisk { first: place.first.into(), part: place.part.into() };
    objects.iter().map(object).collect::<Vec<ObjectOnDisk>>().as_bytes().to_vec()
}

fn decode_table(body: &[u8]) -> Option<Vec<LogPlace>> {
    let place = |bytes: &[u8]| {
        let object = ObjectOnDisk::read_from_bytes(bytes).ok()?;
        Some(LogPlace { first: object.first.get(), part: object.part.get() })
    };
    body.chunks(size_of::<ObjectOnDisk>()).map(place).collect()
}

fn encode_part(blocks: &[(u32, Content)], numbers: &[u32]) -> Vec<u8> {
    let follows = |a: &(u32, Content), b: &(u32, Content)| {
        a.0 + 1 == b.0 && a.1.object == b.1.object && a.1.block + 1 == b.1.block
    };
    let runs: Vec<RunOnDisk> = blocks
        .chunk_by(follows)
        .map(|run| RunOnDisk {
            lba: run[0].0.into(),
            blocks: (run.len() as u32).into(),
            object: numbers.get(run[0].1.object as usize - 1).copied().unwrap_or(0).into(),
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
    /// The end of the table of objects.
    objects: Vec<LogPlace>,
    /// Of the parts of the table, and then of the map.
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
        let objects = decode_table(objects)?;
        let parts: Vec<Hash> =
            parts.chunks_exact(size_of::<Hash>()).filter_map(|hash| hash.try_into().ok()).collect();
        let counted = (header.table_parts.get() as usize).checked_add(header.parts.get() as usize);
        (counted == Some(parts.len())).then_some(Manifest { header, created_ms, objects, parts })
    }

    /// Where the log goes on behind it.
    pub(crate) fn end(&self) -> ChainEnd {
        let header = &self.header;
        let next = LogPlace { first: header.sequence.get().saturating_add(1), part: header.next_part.get() };
        ChainEnd { next, hash: header.hash, open_group: None }
    }

    /// Reads the objects that its map names.
    pub(crate) async fn read_table(
        &self,
        access: &Access,
        envelopes: &Envelopes,
        rules: Rules<ReplicaMutant>,
    ) -> Result<Vec<LogPlace>, ReplicaError> {
        let mut table = Vec::new();
        let in_table = 0..self.header.table_parts.get() as usize;
        let take = |body: &[u8]| decode_table(body).map(|part| table.extend(part));
        self.read_parts(in_table, access, envelopes, rules, take).await?;
        table.extend_from_slice(&self.objects);
        Ok(table)
    }

    /// Reads the map.
    pub(crate) async fn load(
        &self,
        access: &Access,
        envelopes: &Envelopes,
        rules: Rules<ReplicaMutant>,
    ) -> Result<ReplicaState, ReplicaError> {
        let mut map = ReplicaMap::new(rules);
        for place in self.read_table(access, envelopes, rules).await? {
            map.add_object(place);
        }
        let of_map = self.header.table_parts.get() as usize..self.parts.len();
        self.read_parts(of_map, access, envelopes, rules, |body| decode_part(body, &mut map)).await?;
        Ok(ReplicaState::at(map, self.end(), self.header.generation.get(), rules))
    }

    /// Reads parts, some ahead, and hands each over; `None` says that it contradicts itself.
    async fn read_parts(
        &self,
        range: Range<usize>,
        access: &Access,
        envelopes: &Envelopes,
        rules: Rules<ReplicaMutant>,
        mut take: impl FnMut(&[u8]) -> Option<()>,
    ) -> Result<(), ReplicaError> {
        let header = &self.header;
        let parts = range.map(|part| {
            let key = map_key(header.sequence.get(), header.map_epoch.get(), part as u32);
            async move { (access.get(&key).await, key, self.parts[part]) }
        });
        let mut parts = pin!(stream::iter(parts).buffered(PARTS_AT_ONCE));
        while let Some((bytes, key, hash)) = parts.next().await {
            let bytes = bytes?;
            let opened = envelopes.opener().open(&key, ObjectKind::Map, &bytes)?;
            let damaged = |defect| ReplicaError::Damaged { key: key.clone(), defect };
            if opened.hash != hash && !rules.drops(ReplicaMutant::MapPartUnchecked) {
                return Err(damaged(Defect::Names));
            }
            take(&opened.body).ok_or(damaged(Defect::Content))?;
        }
        Ok(())
    }
}
