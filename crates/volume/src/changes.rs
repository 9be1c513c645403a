//! What has *changed* between two snapshots: the blocks that the earlier one, or one between them, has of its own.

use weir_storage::Extent;

use crate::branches::{Branches, find_snapshot, find_source, pages_of_path};
use crate::error::SnapshotError;
use crate::snapshot_table::Table;

/// The slots that have what has changed up to a snapshot, and the path by which it is read.
fn slots_between(table: &Table, from: Option<&str>, to: &str) -> Result<(Vec<u32>, Vec<u32>), SnapshotError> {
    let to = find_snapshot(table, to)?.slot;
    let path = table.path(to);
    let Some(from) = from else { return Ok((path.clone(), path)) };
    let found = find_snapshot(table, from)?;
    let mut between = table.path(found.slot);
    let end = between.iter().position(|slot| *slot == to).filter(|end| *end > 0);
    between.truncate(end.ok_or_else(|| SnapshotError::NotEarlier(from.to_owned()))?);
    Ok((between, path))
}

impl Branches {
    /// The parts of the volume in which a snapshot may differ from an earlier one, or from nothing: a page of the map each.
    pub(crate) fn pages_changed(&self, from: Option<&str>, to: &str) -> Result<Vec<Extent>, SnapshotError> {
        let (slots, _) = slots_between(&self.table(), from, to)?;
        Ok(self.pages_of_slots(&slots))
    }

    /// The blocks of such a part that differ, in runs of `most` at most, and whether they are mapped: those that are not read zeros now.
    pub(crate) async fn runs_changed(
        &self,
        part: Extent,
        from: Option<&str>,
        to: &str,
        most: u32,
    ) -> Result<Vec<(Extent, bool)>, SnapshotError> {
        let (slots, path) = slots_between(&self.table(), from, to)?;
        let bases = |slots: &[u32]| slots.iter().map(|slot| self.base(*slot)).collect::<Vec<u32>>();
        let (changed, path) = (bases(&slots), bases(&path));
        let all = [&changed[..], &path].concat();
        self.load_pages(|| pages_of_path(&all, part).collect()).await?;
        let blocks = self.blocks();
        let mut runs: Vec<(Extent, bool)> = Vec::new();
        for lba in part.iter() {
            let is_at = |path: &[u32]| find_source(&blocks, path, lba.0 as u32).is_some();
            let is_mapped = is_at(&path);
            if !is_at(&changed) {
                continue;
            }
            match runs.last_mut() {
                Some((run, same)) if run.end() == lba && *same == is_mapped && run.blocks < most => {
                    run.blocks += 1;
                }
                _ => runs.push((Extent::new(lba, 1), is_mapped)),
            }
        }
        Ok(runs)
    }
}
