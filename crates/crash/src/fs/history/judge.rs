//! The judge: whether a history explains what was found after a power cut.
//!
//! What a history promises only ever asks for newer operations, so the oldest that look right are raised until all is
//! explained, or one cannot be raised any more.

use std::ops::Range;

use weir_fs::JournalMode;
use weir_storage::BLOCK_BYTES;

use super::{History, Operation, Part, Placed, Promise, Step, Version, part_of};
use crate::fs::tree::{FileId, Shape, Tree, pages_of};
use crate::fs::visible::Visible;

/// Why what was found cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::fs) enum Illegal {
    #[error("no operation leaves such a tree; {0}")]
    Tree(String),
    #[error("a task's part of the tree is that after its operation {at}, but operation {needed} is promised")]
    TreeTooOld { at: Operation, needed: Operation },
    #[error(
        "page {page} of file {file} holds data that was never written there, but {whose}; it begins with {begins:x?}"
    )]
    Foreign { file: FileId, page: u32, whose: String, begins: [u8; 16] },
    #[error("page {page} of file {file} is older than operation {needed}, which is promised")]
    PageTooOld { file: FileId, page: u32, needed: Operation },
    #[error("no checkpoint and calls behind it leave this, up to call {needed} at least; {closest}")]
    Rolled { needed: Operation, closest: String },
}

/// A task's part of what was found, and the steps after which its own part is equal: at least one.
struct Alike {
    shape: Shape,
    steps: Vec<usize>,
}

/// Why a part cannot be that after the operation that was tried.
struct Refused {
    /// None for too old.
    why: Option<Illegal>,
    part: usize,
    /// It is that after this one, or a later one, if after any.
    from: Operation,
}

impl History {
    /// Whether a power cut may have left what was found.
    pub(in crate::fs) fn judge(&self, found: &Visible) -> Result<(), Illegal> {
        if let Some(in_place) = self.guarantees.rolls_forward {
            return self.judge_rolled(found, in_place);
        }
        let mut alike =
            self.parts.iter().map(|part| part.alike(&found.tree)).collect::<Result<Vec<_>, _>>()?;
        for promise in &self.durable {
            let needed = Refused { why: None, part: promise.part, from: promise.tree };
            self.raise(&mut alike, needed)?;
        }
        while let Err(refused) = self.explains(&alike, found) {
            self.raise(&mut alike, refused)?;
        }
        Ok(())
    }

    /// Removes the steps that are too old.
    fn raise(&self, alike: &mut [Alike], refused: Refused) -> Result<(), Illegal> {
        let Refused { why, part, from } = refused;
        let steps = &self.parts[part].steps;
        let alike = &mut alike[part];
        let at = steps[alike.steps[0]].operation;
        alike.steps.retain(|step| steps[*step].operation >= from);
        let why = why.unwrap_or(Illegal::TreeTooOld { at, needed: from });
        if alike.steps.is_empty() { Err(why) } else { Ok(()) }
    }

    /// Whether what was found may be left when each part is that after the oldest of the operations that leave
    /// one alike; if not, which of them is too old.
    fn explains(&self, alike: &[Alike], found: &Visible) -> Result<(), Refused> {
        let steps: Vec<&Step> =
            self.parts.iter().zip(alike).map(|(part, alike)| &part.steps[alike.steps[0]]).collect();
        let changes = || self.parts.iter().zip(&steps).map(|(part, step)| part.began(step.changed_at));
        let mut seen = changes().map(|change| change.operation).max().unwrap_or(0);
        let mut pages = Vec::new();
        for (part, (step, alike)) in steps.iter().zip(alike).enumerate() {
            for (file, inode) in step.shape.order.iter().zip(&alike.shape.order) {
                let (file, inode) = (*file, *inode);
                let Some(size) = found.tree.size(inode) else { continue };
                for (page, bytes) in (0..pages_of(size)).flat_map(|page| self.units(page, size)) {
                    let look =
                        self.match_versions(file, page, bytes.clone(), &found.page(inode, page)[bytes]);
                    let oldest = look.as_ref().map_or(0, |look| look.oldest);
                    let of = &self.parts[part];
                    seen = seen.max(of.began(of.until(oldest)).operation);
                    pages.push((part, file, inode, page, look));
                }
            }
        }
        let promised = |promise: &&Promise| promise.returned < seen;
        let promises = || self.barriers.iter().filter(promised).chain(&self.durable);
        for (part, step) in steps.iter().enumerate() {
            let of_part = promises().filter(|promise| promise.part == part).map(|promise| promise.tree);
            let needed = of_part.chain(changes().map(|change| change.after[part])).max().unwrap_or(0);
            if needed > step.operation {
                return Err(Refused { why: None, part, from: needed });
            }
        }
        for (part, file, inode, page, look) in pages {
            let covers = |promise: &&Promise| {
                promise.part == part && promise.file.is_none_or(|covered| covered == file)
            };
            let k = steps[part].operation;
            let promised = promises().filter(covers).map(|promise| promise.pages).max().unwrap_or(0);
            if self.guarantees.faulty && (promised == 0 || self.has_changed_since(file, promised)) {
                // What has failed may be its data, or the commit that freed blocks which others write already.
                continue;
            }
            let needed = match self.guarantees.mode {
                _ if self.guarantees.faulty => promised,
                JournalMode::Writeback => promised,
                JournalMode::Ordered => promised.max(self.placed_before(file, page, k, Placed::Yes)),
                JournalMode::Data => promised.max(k),
            };
            // That an extent counts as written shows in no tree.
            let until = if self.guarantees.uncovers { Operation::MAX } else { k };
            let why = match look {
                // In mode writeback a place may show what it held before, until it is synchronised.
                _ if self.guarantees.mode == JournalMode::Writeback
                    && self.placed_before(file, page, until, Placed::Perhaps) > promised =>
                {
                    continue;
                }
                None if self.may_be_garbage(file, page, needed) => continue,
                None => self.foreign(file, page, found.page(inode, page)),
                Some(look) if look.newest_from(self.version_at(file, page, needed)) => continue,
                Some(_) => Illegal::PageTooOld { file, page, needed },
            };
            return Err(Refused { why: Some(why), part, from: k + 1 });
        }
        Ok(())
    }

    /// Whether a power cut may have left garbage in place of something newer than what the page has to hold at least. In
    /// mode data what is written home is in the log.
    fn may_be_garbage(&self, file: FileId, page: u32, needed: Operation) -> bool {
        let newest = self.pages.get(&(file, page)).and_then(|versions| versions.last());
        let in_place = self.guarantees.corrupts && self.guarantees.mode != JournalMode::Data;
        in_place && newest.is_some_and(|newest| newest.since > needed)
    }

    fn foreign(&self, file: FileId, page: u32, bytes: &[u8]) -> Illegal {
        let written = |versions: &Vec<Version>| {
            versions.iter().find(|version| version.bytes[..] == *bytes).map(|v| v.since)
        };
        let writer = self.pages.iter().find_map(|(place, versions)| Some((place, written(versions)?)));
        let whose = writer
            .map_or("no operation wrote it elsewhere".to_owned(), |((file, page), operation)| {
                format!("operation {operation} did in page {page} of file {file}")
            });
        let begins = bytes.first_chunk().copied().unwrap_or_default();
        Illegal::Foreign { file, page, whose, begins }
    }

    /// Whether a file may have given blocks up since an operation.
    fn has_changed_since(&self, file: FileId, operation: Operation) -> bool {
        self.changed.get(&file).is_some_and(|changed| {
            changed.anything.iter().chain(&changed.size).any(|changed| *changed > operation)
        })
    }

    /// The version of a page in force after `operation`, as its place in the list; none for the first zeros.
    fn version_at(&self, file: FileId, page: u32, operation: Operation) -> Option<usize> {
        let versions = self.pages.get(&(file, page))?;
        versions.iter().rposition(|version| version.since <= operation)
    }

    /// The last operation up to `k` by which the page got its place, at least as surely as this.
    fn placed_before(&self, file: FileId, page: u32, k: Operation, surely: Placed) -> Operation {
        let versions = self.pages.get(&(file, page)).into_iter().flatten();
        let placed = |version: &&Version| {
            version.since <= k
                && (version.placed == Placed::Yes || (version.placed == surely && surely != Placed::No))
        };
        versions.filter(placed).map(|version| version.since).max().unwrap_or(0)
    }

    /// The parts of a page, cut at the end of the file, of which each holds one version.
    fn units(&self, page: u32, size: u64) -> impl Iterator<Item = (u32, Range<usize>)> + use<> {
        let end = (size - u64::from(page) * BLOCK_BYTES as u64).min(BLOCK_BYTES as u64) as usize;
        let unit = self.guarantees.tear_bytes;
        (0..end).step_by(unit).map(move |start| (page, start..end.min(start + unit)))
    }

    /// The versions of a part of a page that are equal to `bytes`; none if no operation wrote these.
    fn match_versions(&self, file: FileId, page: u32, part: Range<usize>, bytes: &[u8]) -> Option<Match> {
        let mut found: Option<Match> = None;
        if bytes.iter().all(|byte| *byte == 0) {
            found = Some(Match { oldest: 0, newest: None });
        }
        for (place, version) in self.pages.get(&(file, page)).into_iter().flatten().enumerate() {
            if version.bytes[part.clone()] == *bytes {
                let oldest = found.as_ref().map_or(version.since, |found| found.oldest);
                found = Some(Match { oldest, newest: Some(place) });
            }
        }
        found
    }
}

impl Part {
    /// The operations after which the part is as it was found.
    fn alike(&self, found: &Tree) -> Result<Alike, Illegal> {
        let shape = part_of(found, self.name)?.shape();
        let alike = |(at, step): (usize, &Step)| (*step.shape == shape).then_some(at);
        let steps: Vec<usize> = self.steps.iter().enumerate().filter_map(alike).collect();
        if steps.is_empty() {
            return Err(Illegal::Tree(self.last().shape.difference(&shape)));
        }
        Ok(Alike { shape, steps })
    }
}

/// The versions of a page that may have been found.
struct Match {
    /// The operation of the oldest.
    oldest: Operation,
    /// The newest, as its place in the list; none for the zeros before all.
    newest: Option<usize>,
}

impl Match {
    /// Whether it may be as new as the version at `place`.
    fn newest_from(&self, place: Option<usize>) -> bool {
        self.newest >= place
    }
}
