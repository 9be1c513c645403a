//! What files may hold after a power cut or a failure, and the judge of it.

use std::collections::BTreeMap;
use std::rc::Rc;

use weir_f2fs::NodeId;
use weir_lfs::{F2fs, F2fsOptions};
use weir_runtime::Handle;
use weir_storage::{AdversaryDisk, Image, Storage};
use weir_vfs::FsError;

use crate::support::{content, judge_disk, options};

const ROOT: u32 = NodeId::ROOT.0;

/// What a file may hold after a power cut: the version that was durable last, or any later one, in whole pages of it.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// For each page, its versions since the last that is durable, that one first. The page is absent as version 0.
    pub pages: BTreeMap<usize, Vec<u8>>,
    /// It had its name durably.
    pub is_named: bool,
    /// It was made in this run.
    pub is_made: bool,
}

impl History {
    /// A page of the file was written, or may have been.
    pub fn note_write(&mut self, index: usize, version: u8) {
        self.pages.entry(index).or_insert_with(|| vec![0]).push(version);
    }

    /// All of it is durable now.
    pub fn make_durable(&mut self) {
        self.is_named = true;
        self.pages.values_mut().for_each(|versions| _ = versions.drain(..versions.len() - 1));
    }
}

/// A page of this version.
pub fn version_page(version: u8) -> Vec<u8> {
    vec![version; 4096]
}

/// Judges one state: mounts it, compares, and checks.
pub async fn judge_histories(clock: &Handle, image: &Image, histories: &[History], mount: F2fsOptions) {
    let disk = AdversaryDisk::from_image(clock, options(image.blocks(), true), image);
    let fs = F2fs::mount(clock, Rc::clone(&disk) as Rc<dyn Storage>, mount).await.expect("mounted");
    for (nth, history) in histories.iter().enumerate() {
        let found = fs.lookup(ROOT, format!("file-{nth}").as_bytes()).await;
        let inode = match found {
            Err(FsError::NotFound) => {
                assert!(!history.is_named, "file {nth} has lost its name");
                continue;
            }
            found => found.expect("readable"),
        };
        assert!(history.is_made);
        let bytes = content(&fs, inode).await.expect("readable");
        for (index, versions) in &history.pages {
            let read = bytes.get(index * 4096..).unwrap_or_default();
            let read = &read[..read.len().min(4096)];
            let is_allowed = versions.iter().any(|version| match version {
                0 => read.iter().all(|byte| *byte == 0),
                version => read == version_page(*version),
            });
            assert!(is_allowed, "file {nth}, page {index}: {:?} of {versions:?}", read.first());
        }
    }
    fs.unmount().await.expect("unmounted");
    drop(fs);
    judge_disk(disk as Rc<dyn Storage>).await;
}
