//! A life on a mount of a hostile image: all of it is looked at, much of it is changed.

use std::collections::BTreeSet;
use std::rc::Rc;

use weir_format::{Cookie, FileType};
use weir_fs::MountOptions;
use weir_runtime::Handle;
use weir_storage::{AdversaryDisk, Image};
use weir_vfs::{
    AttributeChanges, Expect, Fallocate, Filesystem, FilesystemCalls, FsError, InodeNumber, NewNode,
    RenameFlags,
};

use super::{mount_with, name_of, name_of_bytes, run};

/// A directory has no more names than this that a life looks up one by one.
const NAMES_LOOKED_UP: usize = 40;
/// Inodes that a life changes.
const INODES_CHANGED: usize = 16;
/// And one that changes a little.
const FILES_CHANGED: usize = 2;

/// A filesystem that is mounted, and its disk.
pub type MountedImage = (Filesystem, Rc<AdversaryDisk>);

/// Options by which a filesystem of some format is mounted.
pub trait MountImage {
    /// Mounts an image on a disk in memory.
    async fn mount_image(
        &self,
        clock: &Handle,
        image: &Image,
        read_only: bool,
    ) -> Result<MountedImage, FsError>;
}

impl MountImage for MountOptions {
    async fn mount_image(
        &self,
        clock: &Handle,
        image: &Image,
        read_only: bool,
    ) -> Result<MountedImage, FsError> {
        let (fs, disk) = mount_with(clock, image, MountOptions { read_only, ..*self }).await?;
        Ok((fs.into(), disk))
    }
}

/// How far a life got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The mount was refused.
    Refused(FsError),
    /// It ended read-only, or its unmount failed.
    Failed,
    /// It was unmounted.
    Unmounted,
}

/// Mounts an image, looks at all of it, changes much of it, and unmounts.
///
/// # Panics
/// If that takes longer than it may, in virtual time.
pub fn live(image: &Image) -> Outcome {
    live_with(image, &MountOptions::default(), async |fs, found| change(fs, found).await).0
}

/// The same, with fewer changes: of two files and a new one. Also what is left of the image, if it was mounted.
pub fn live_a_little(image: &Image, options: &impl MountImage) -> (Outcome, Option<Image>) {
    live_with(image, options, async |fs, found| {
        let root = fs.root();
        let regular = found.iter().filter(|(_, kind)| *kind == FileType::Regular);
        let mut files: Vec<u32> = regular.map(|(inode, _)| *inode).collect();
        files.truncate(FILES_CHANGED);
        files.extend(fs.create(root, b"new", &NewNode::new(FileType::Regular, 0o644)).await);
        for inode in files {
            let _ = fs.write(inode, 3000, &[4; 6000]).await;
            let _ = fs.fsync(inode).await;
            let _ = fs.truncate(inode, 100).await;
        }
        let _ = fs.rename((root, b"new"), (root, b"file"), RenameFlags::default()).await;
        let _ = fs.sync().await;
    })
}

fn live_with(
    image: &Image,
    options: &impl MountImage,
    change: impl AsyncFnOnce(&dyn FilesystemCalls, &[(InodeNumber, FileType)]),
) -> (Outcome, Option<Image>) {
    run(async |clock| {
        let (fs, disk) = match options.mount_image(&clock, image, false).await {
            Ok(mounted) => mounted,
            Err(error) => return (Outcome::Refused(error), None),
        };
        let found = walk(&*fs).await;
        change(&*fs, &found).await;
        let outcome = match fs.unmount().await {
            Ok(()) => Outcome::Unmounted,
            Err(_) => Outcome::Failed,
        };
        (outcome, Some(disk.image()))
    })
}

async fn walk(fs: &dyn FilesystemCalls) -> Vec<(InodeNumber, FileType)> {
    let root = fs.root();
    let mut found = Vec::new();
    let (mut seen, mut directories) = (BTreeSet::from([root]), vec![root]);
    let mut bytes = vec![0; 20_000];
    while let Some(directory) = directories.pop() {
        found.push((directory, FileType::Directory));
        let mut cookie = Cookie::START;
        let mut looked_up = 0;
        while let Ok(entries) = fs.read_directory(directory, cookie).await {
            let Some(last) = entries.last() else { break };
            assert!(last.cookie > cookie, "the way through a directory goes on");
            cookie = last.cookie;
            for entry in entries {
                looked_up += 1;
                if looked_up <= NAMES_LOOKED_UP {
                    let _ = fs.lookup(directory, &entry.name).await;
                }
                let inode = entry.target.inode;
                if !seen.insert(inode) {
                    continue;
                }
                let Ok(attributes) = fs.attributes(inode).await else { continue };
                for offset in [0, attributes.size.saturating_sub(100)] {
                    let _ = fs.read(inode, offset, &mut bytes).await;
                }
                let _ = fs.seek_data(inode, 4096).await;
                let _ = fs.seek_hole(inode, 0).await;
                let _ = fs.read_link(inode).await;
                for name in fs.extended_attributes(inode).await.unwrap_or_default() {
                    let _ = fs.extended_attribute(inode, &name).await;
                }
                match attributes.kind {
                    FileType::Directory => directories.push(inode),
                    kind => found.push((inode, kind)),
                }
            }
        }
    }
    found
}

async fn change(fs: &dyn FilesystemCalls, found: &[(InodeNumber, FileType)]) {
    let root = fs.root();
    let new = NewNode::new(FileType::Regular, 0o644);
    let step = found.len().div_ceil(INODES_CHANGED).max(1);
    let directories = found.iter().filter(|(_, kind)| *kind == FileType::Directory);
    let others = found.iter().filter(|(_, kind)| *kind != FileType::Directory).step_by(step);
    for (number, &(inode, _)) in directories.enumerate().take(INODES_CHANGED) {
        let name = name_of(1000 + number as u32);
        let _ = fs.create(inode, &name, &new).await;
        let _ = fs.mkdir(inode, b"sub", &NewNode::new(FileType::Directory, 0o755)).await;
        let _ = fs.rename((inode, b"sub"), (root, b"moved"), RenameFlags::default()).await;
        let exchange = RenameFlags { exchange: true, ..RenameFlags::default() };
        let _ = fs.rename((inode, &name), (root, b"moved"), exchange).await;
        for number in 0..8 {
            let _ = fs.unlink(inode, &name_of(number * 7)).await;
        }
        for number in 0..30 {
            let _ = fs.link(inode, inode, &name_of_bytes(number, 240)).await;
            let _ = fs.create(inode, &name_of_bytes(number, 250), &new).await;
        }
        let _ = fs.rename((root, b"tree"), (inode, b"below"), RenameFlags::default()).await;
        let _ = fs.set_extended_attribute(inode, b"user.a3", &[2; 90], Expect::Anything).await;
        let _ = fs.rmdir(root, b"moved").await;
    }
    for &(inode, _) in others {
        let _ = fs.open(inode).await;
        let _ = fs.write(inode, 5000, &[4; 30_000]).await;
        let _ = fs.set_extended_attribute(inode, b"user.z", &[1; 300], Expect::Anything).await;
        let _ = fs.remove_extended_attribute(inode, b"user.a1").await;
        let permissions = AttributeChanges { permissions: Some(0o751), ..AttributeChanges::default() };
        let _ = fs.set_attributes(inode, &permissions).await;
        let _ = fs.fallocate(inode, Fallocate::Allocate { keep_size: true }, 0, 70_000).await;
        let _ = fs.fsync(inode).await;
        let _ = fs.fallocate(inode, Fallocate::PunchHole, 9000, 50_000).await;
        let _ = fs.truncate(inode, 4_000).await;
        let _ = fs.truncate(inode, 1 << 33).await;
        let _ = fs.write(inode, 1 << 32, b"far").await;
    }
    for name in [&b"file"[..], b"sparse", b"long link", b"short link", b"late", b"fifo"] {
        let _ = fs.unlink(root, name).await;
    }
    fs.statfs().await;
    let _ = fs.sync().await;
}
