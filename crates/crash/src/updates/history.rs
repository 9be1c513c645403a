//! What was written, committed and promised, and whether a state may be what a cut has left.

use std::collections::BTreeMap;
use std::ops::Range;

use weir_storage::BLOCK_BYTES;
use weir_vfs::{Filesystem, FsError};

use crate::content::mix;

/// Atomic files.
pub(super) const FILES: usize = 3;
/// Blocks of a unit.
pub(super) const UNIT_BLOCKS: usize = 4;
/// Units of the ordinary file whose units are judged.
pub(super) const UNITS: usize = 12;
/// Its name.
pub(super) const UNIT_FILE: &[u8] = b"units";

/// A file's blocks by the number of the write that made each. 0 is a hole.
pub(super) type Blocks = Vec<u64>;

/// The content of all atomic files after a commit.
pub(super) type Files = [Blocks; FILES];

/// The name of an atomic file.
pub(super) fn name_of(file: usize) -> Vec<u8> {
    format!("atomic-{file}").into_bytes()
}

/// The content of a block: it says which write made it, and where.
pub(super) fn block_of(write: u64, place: u64) -> Vec<u8> {
    if write == 0 {
        return vec![0; BLOCK_BYTES];
    }
    let mut block = Vec::with_capacity(BLOCK_BYTES);
    let mut word = mix(write, place);
    block.extend_from_slice(&write.to_le_bytes());
    while block.len() < BLOCK_BYTES {
        word = mix(word, write);
        block.extend_from_slice(&word.to_le_bytes());
    }
    block
}

/// The write that made a block, if all of it is that write's.
fn write_of(block: &[u8], place: u64) -> Option<u64> {
    let write = u64::from_le_bytes(block.get(..8)?.try_into().ok()?);
    (block == block_of(write, place)).then_some(write)
}

/// What a script has done.
#[derive(Clone, Default)]
pub(super) struct History {
    /// The content of the atomic files after each commit, the first as the round began.
    commits: Vec<Files>,
    /// The last commit of each file.
    last: [usize; FILES],
    /// The commit that is there at least.
    floor: usize,
    /// Ordinary files that were made durable and are not being deleted: their names, and the write of their blocks.
    settled: BTreeMap<Vec<u8>, (u64, usize)>,
    /// What was written to each unit, the oldest that may be there first.
    units: Vec<Vec<u64>>,
}

impl History {
    /// The history of a round that begins with these files. The content of the units is set when they are read.
    pub(super) fn from_files(files: Files) -> History {
        History { commits: vec![files], ..History::default() }
    }

    /// Updates of some files are being committed together. A file of their group that has not changed is none of them: it
    /// can be durable without them.
    pub(super) fn commit(&mut self, changed: &[usize], files: Files) {
        for file in changed {
            self.last[*file] = self.commits.len();
        }
        self.commits.push(files);
    }

    /// The newest content.
    pub(super) fn newest(&self) -> Files {
        self.commits.last().cloned().unwrap_or_default()
    }

    /// Files are durable, and with the last commit of each all that came before.
    pub(super) fn durable(&mut self, group: &[usize]) {
        let newest = group.iter().map(|file| self.last[*file]).max().unwrap_or(0);
        self.floor = self.floor.max(newest);
    }

    /// An ordinary file is durable.
    pub(super) fn settle(&mut self, name: Vec<u8>, write: u64, blocks: usize) {
        self.settled.insert(name, (write, blocks));
    }

    /// One of them is going to be deleted.
    pub(super) fn unsettle(&mut self, name: &[u8]) {
        self.settled.remove(name);
    }

    /// Ordinary files that are durable.
    pub(super) fn settled(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.settled.keys()
    }

    /// Sets the write that each unit of the ordinary file holds.
    pub(super) fn set_units(&mut self, writes: Vec<u64>) {
        self.units = writes.into_iter().map(|write| vec![write]).collect();
    }

    /// A write to units begins.
    pub(super) fn write_units(&mut self, units: Range<usize>, write: u64) {
        self.units[units].iter_mut().for_each(|unit| unit.push(write));
    }

    /// The units are durable.
    pub(super) fn units_durable(&mut self) {
        for unit in &mut self.units {
            unit.drain(..unit.len() - 1);
        }
    }

    /// Differs for different promises.
    pub(super) fn hash(&self) -> u64 {
        let units = self.units.iter().map(Vec::len).sum::<usize>();
        mix(mix(self.commits.len() as u64, self.floor as u64), mix(units as u64, self.settled.len() as u64))
    }

    /// Judges what was found.
    pub(super) fn judge(&self, found: &Found) -> Result<(), String> {
        let may_be = &self.commits[self.floor..];
        if !may_be.contains(&found.files) {
            let old = self.commits.contains(&found.files);
            let why = if old { "older than what was durable" } else { "what no commit has left" };
            return Err(format!("{why}: {:?}; the newest is {:?}", found.files, self.commits.last()));
        }
        for (name, (write, blocks)) in &self.settled {
            if found.settled.get(name) != Some(&vec![*write; *blocks]) {
                let name = String::from_utf8_lossy(name);
                return Err(format!(
                    "{name} was durable, and has other content or is missing: {:?}",
                    found.settled.get(name.as_bytes())
                ));
            }
        }
        for (nth, (unit, may_be)) in found.units.iter().zip(&self.units).enumerate() {
            match unit {
                Some(write) if may_be.contains(write) => {}
                other => return Err(format!("unit {nth} holds {other:?}, and may hold {may_be:?}")),
            }
        }
        Ok(())
    }
}

/// What is there after a cut.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) files: Files,
    settled: BTreeMap<Vec<u8>, Blocks>,
    /// The write of each unit, if it is one.
    pub(super) units: Vec<Option<u64>>,
}

impl Found {
    /// Reads what a filesystem has; units only where they are promised.
    pub(super) async fn read(fs: &Filesystem, history: &History, with_units: bool) -> Result<Found, String> {
        let mut files = Files::default();
        for (file, content) in files.iter_mut().enumerate() {
            *content = blocks_of(fs, &name_of(file)).await?;
        }
        let mut settled = BTreeMap::new();
        for name in history.settled() {
            // One that is missing is judged.
            if let Ok(blocks) = blocks_of(fs, name).await {
                settled.insert(name.clone(), blocks);
            }
        }
        let mut units = Vec::new();
        if with_units {
            for unit in blocks_of(fs, UNIT_FILE).await?.chunks(UNIT_BLOCKS) {
                units.push(unit.iter().all(|write| *write == unit[0]).then_some(unit[0]));
            }
        }
        Ok(Found { files, settled, units })
    }
}

/// The writes that made the blocks of a file; an error if a block is none's.
async fn blocks_of(fs: &Filesystem, name: &[u8]) -> Result<Blocks, String> {
    let shown = String::from_utf8_lossy(name);
    let failed = |error: FsError| format!("{shown}: {error}");
    let inode = fs.lookup(fs.root(), name).await.map_err(failed)?;
    let size = fs.attributes(inode).await.map_err(failed)?.size as usize;
    let mut bytes = vec![0; size];
    let mut read = 0;
    while read < size {
        read += fs.read(inode, read as u64, &mut bytes[read..]).await.map_err(failed)?;
    }
    if !size.is_multiple_of(BLOCK_BYTES) {
        return Err(format!("{shown} has {size} bytes, and was written in blocks"));
    }
    let mut blocks = Vec::new();
    for (place, block) in (0..).zip(bytes.chunks(BLOCK_BYTES)) {
        let write = write_of(block, place);
        blocks.push(write.ok_or_else(|| format!("block {place} of {shown} holds data that no write made"))?);
    }
    Ok(blocks)
}
