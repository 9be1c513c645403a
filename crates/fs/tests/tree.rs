//! Random operations on names, compared with a model of the tree after each, over remounts, and judged by e2fsck.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::discriminant;

use weir_format::{Cookie, FileType};
use weir_vfs::{AttributeChanges, Device, Expect, FsError, NewNode, RenameFlags};

use crate::support::{BLOCKS, disk, judge, mount, new_image, simulated_with};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use weir_ext4::ROOT_INODE;
use weir_fs::{BarrierFs, Conflicts, Engine, JournalMode, MountOptions};

/// Operations in a run.
const OPERATIONS: usize = 3000;
/// Operations between two remounts, about.
const REMOUNT_EVERY: u32 = 300;
/// Names that directories have: few, so that they meet.
const NAMES: usize = 14;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    File(Vec<u8>),
    Directory { entries: BTreeMap<Vec<u8>, usize>, parent: usize },
    Link(Vec<u8>),
    Whiteout,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Node {
    content: Content,
    links: u32,
    permissions: u16,
    attributes: BTreeMap<Vec<u8>, Vec<u8>>,
    /// What the filesystem calls it.
    inode: u32,
}

/// The tree as it should be.
struct Model(Vec<Option<Node>>);

const ROOT: usize = 0;

impl Model {
    fn new() -> Model {
        let content = Content::Directory { entries: BTreeMap::new(), parent: ROOT };
        let attributes = BTreeMap::new();
        Model(vec![Some(Node { content, links: 2, permissions: 0o755, attributes, inode: ROOT_INODE })])
    }

    fn node(&self, id: usize) -> &Node {
        self.0[id].as_ref().expect("it has a name")
    }

    fn node_mut(&mut self, id: usize) -> &mut Node {
        self.0[id].as_mut().expect("it has a name")
    }

    fn is_directory(&self, id: usize) -> bool {
        matches!(self.node(id).content, Content::Directory { .. })
    }

    fn entries(&mut self, id: usize) -> &mut BTreeMap<Vec<u8>, usize> {
        match &mut self.node_mut(id).content {
            Content::Directory { entries, .. } => entries,
            _ => panic!("a directory"),
        }
    }

    fn find(&self, directory: usize, name: &[u8]) -> Option<usize> {
        match &self.node(directory).content {
            Content::Directory { entries, .. } => entries.get(name).copied(),
            _ => panic!("a directory"),
        }
    }

    fn directories(&self) -> Vec<usize> {
        (0..self.0.len()).filter(|&id| self.0[id].is_some() && self.is_directory(id)).collect()
    }

    fn add(&mut self, directory: usize, name: &[u8], content: Content, permissions: u16, inode: u32) {
        let id = self.0.len();
        let is_directory = matches!(content, Content::Directory { .. });
        let links = if is_directory { 2 } else { 1 };
        self.0.push(Some(Node { content, links, permissions, attributes: BTreeMap::new(), inode }));
        self.entries(directory).insert(name.to_vec(), id);
        self.node_mut(directory).links += u32::from(is_directory);
    }

    /// A name is taken; what has none left is gone.
    fn lose(&mut self, directory: usize, id: usize) {
        if self.is_directory(id) {
            self.node_mut(directory).links -= 1;
            self.0[id] = None;
            return;
        }
        self.node_mut(id).links -= 1;
        if self.node(id).links == 0 {
            self.0[id] = None;
        }
    }

    /// Whether `id` is `above` or below it.
    fn is_below(&self, mut id: usize, above: usize) -> bool {
        loop {
            if id == above {
                return true;
            }
            match self.node(id).content {
                Content::Directory { parent, .. } if id != ROOT => id = parent,
                _ => return false,
            }
        }
    }

    fn adopt(&mut self, id: usize, from: usize, to: usize) {
        if let Content::Directory { parent, .. } = &mut self.node_mut(id).content {
            *parent = to;
            self.node_mut(from).links -= 1;
            self.node_mut(to).links += 1;
        }
    }

    fn rename(
        &mut self,
        (from, old): (usize, &[u8]),
        (to, new): (usize, &[u8]),
        flags: RenameFlags,
    ) -> Result<(), FsError> {
        let source = self.find(from, old).ok_or(FsError::NotFound)?;
        let target = self.find(to, new);
        match target {
            Some(_) if flags.no_replace => return Err(FsError::Exists),
            Some(target) if target == source => return Ok(()),
            None if flags.exchange => return Err(FsError::NotFound),
            _ => {}
        }
        let below = Err(FsError::Invalid("below itself"));
        if self.is_directory(source) && self.is_below(to, source) {
            return below;
        }
        match target {
            Some(target) if flags.exchange => {
                if self.is_directory(target) && self.is_below(from, target) {
                    return below;
                }
                self.entries(from).insert(old.to_vec(), target);
                self.entries(to).insert(new.to_vec(), source);
                self.adopt(target, to, from);
                self.adopt(source, from, to);
                return Ok(());
            }
            Some(target) => {
                match (self.is_directory(source), self.is_directory(target)) {
                    (true, false) => return Err(FsError::NotDirectory),
                    (false, true) => return Err(FsError::IsDirectory),
                    (true, true) if !self.entries(target).is_empty() => return Err(FsError::NotEmpty),
                    _ => {}
                }
                self.lose(to, target);
            }
            None => {}
        }
        self.entries(from).remove(old);
        self.entries(to).insert(new.to_vec(), source);
        self.adopt(source, from, to);
        Ok(())
    }
}

/// The filesystem agrees with the model about a whole tree.
async fn compare(fs: &BarrierFs, model: &Model) {
    let mut seen = BTreeMap::new();
    for (id, node) in model.0.iter().enumerate() {
        let Some(node) = node else { continue };
        assert_eq!(seen.insert(node.inode, id), None, "each is another inode");
        let found = fs.attributes(node.inode).await.expect("there");
        assert_eq!(found.permissions, node.permissions);
        let kept = fs.extended_attributes(node.inode).await.expect("readable");
        assert_eq!(kept.into_iter().collect::<BTreeSet<_>>(), node.attributes.keys().cloned().collect());
        for (name, value) in &node.attributes {
            assert_eq!(fs.extended_attribute(node.inode, name).await.as_ref(), Ok(value));
        }
        match &node.content {
            Content::File(content) => {
                assert_eq!(
                    (found.kind, found.links, found.size),
                    (FileType::Regular, node.links, content.len() as u64)
                );
                let mut read = vec![0; content.len()];
                assert_eq!(fs.read(node.inode, 0, &mut read).await, Ok(content.len()));
                assert!(read == *content, "the content of {id}");
            }
            Content::Link(target) => {
                assert_eq!((found.kind, found.links), (FileType::Symlink, node.links));
                assert_eq!(fs.read_link(node.inode).await.as_ref(), Ok(target));
            }
            Content::Whiteout => {
                assert_eq!((found.kind, found.links), (FileType::CharacterDevice, node.links));
                assert_eq!(found.device, Device::default());
            }
            Content::Directory { entries, parent } => {
                // The root has lost+found too, which the model does not know.
                let links = node.links + u32::from(id == ROOT);
                assert_eq!((found.kind, found.links), (FileType::Directory, links));
                assert_eq!(fs.lookup(node.inode, b"..").await, Ok(model.node(*parent).inode));
                let mut expected: BTreeMap<_, _> =
                    entries.iter().map(|(name, &id)| (name.clone(), model.node(id).inode)).collect();
                if id == ROOT {
                    expected.insert(b"lost+found".to_vec(), 11);
                }
                let read = fs.read_directory(node.inode, Cookie::DOT_DOT).await.expect("readable");
                assert_eq!(read.len(), expected.len());
                let found: BTreeMap<_, _> =
                    read.into_iter().map(|entry| (entry.name, entry.target.inode)).collect();
                assert_eq!(found, expected);
            }
        }
    }
}

/// One run: the model, the filesystem, and what decides.
struct Run<'a> {
    fs: &'a BarrierFs,
    model: &'a mut Model,
    random: &'a mut Pcg64,
}

impl Run<'_> {
    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.random.random_range(0..from.len())]
    }

    fn directory(&mut self) -> usize {
        let directories = self.model.directories();
        self.pick(&directories)
    }

    fn name(&mut self) -> Vec<u8> {
        let nth = self.random.random_range(0..NAMES);
        match nth {
            0 => vec![b'l'; 255],
            1 => b"odd \xFF\x01\n".to_vec(),
            nth => nth.to_string().into_bytes(),
        }
    }

    fn inode(&self, id: usize) -> u32 {
        self.model.node(id).inode
    }

    /// Something that is there and no directory, if the first try finds it.
    fn leaf(&mut self) -> Option<usize> {
        let id = self.random.random_range(0..self.model.0.len());
        (self.model.0[id].is_some() && !self.model.is_directory(id)).then_some(id)
    }

    async fn step(&mut self) {
        match self.random.random_range(0..20) {
            0..4 => self.create().await,
            4..6 => self.mkdir().await,
            6 => self.symlink().await,
            7..9 => self.link().await,
            9..11 => self.unlink().await,
            11 => self.rmdir().await,
            12..16 => self.rename().await,
            16..18 => self.write().await,
            18 => self.set_permissions().await,
            _ => self.change_attribute().await,
        }
    }

    async fn create(&mut self) {
        let (directory, name) = (self.directory(), self.name());
        let new = NewNode::new(FileType::Regular, 0o600);
        let made = self.fs.create(self.inode(directory), &name, &new).await;
        match self.model.find(directory, &name) {
            Some(_) => assert_eq!(made, Err(FsError::Exists)),
            None => self.model.add(directory, &name, Content::File(Vec::new()), 0o600, made.expect("made")),
        }
    }

    async fn mkdir(&mut self) {
        let (parent, name) = (self.directory(), self.name());
        let made = self.fs.mkdir(self.inode(parent), &name, &NewNode::new(FileType::Directory, 0o700)).await;
        let content = Content::Directory { entries: BTreeMap::new(), parent };
        match self.model.find(parent, &name) {
            Some(_) => assert_eq!(made, Err(FsError::Exists)),
            None => self.model.add(parent, &name, content, 0o700, made.expect("made")),
        }
    }

    async fn symlink(&mut self) {
        let (directory, name) = (self.directory(), self.name());
        let length = self.pick(&[1, 59, 60, 4095]);
        let target = vec![b't'; length];
        let made = self.fs.symlink(self.inode(directory), &name, &target, (0, 0)).await;
        match self.model.find(directory, &name) {
            Some(_) => assert_eq!(made, Err(FsError::Exists)),
            None => self.model.add(directory, &name, Content::Link(target), 0o777, made.expect("made")),
        }
    }

    async fn link(&mut self) {
        let (Some(id), directory, name) = (self.leaf(), self.directory(), self.name()) else { return };
        let linked = self.fs.link(self.inode(id), self.inode(directory), &name).await;
        if self.model.find(directory, &name).is_some() {
            return assert_eq!(linked, Err(FsError::Exists));
        }
        linked.expect("linked");
        self.model.entries(directory).insert(name, id);
        self.model.node_mut(id).links += 1;
    }

    async fn unlink(&mut self) {
        let (directory, name) = (self.directory(), self.name());
        let removed = self.fs.unlink(self.inode(directory), &name).await;
        match self.model.find(directory, &name) {
            None => assert_eq!(removed, Err(FsError::NotFound)),
            Some(id) if self.model.is_directory(id) => assert_eq!(removed, Err(FsError::IsDirectory)),
            Some(id) => {
                removed.expect("removed");
                self.model.entries(directory).remove(&name);
                self.model.lose(directory, id);
            }
        }
    }

    async fn rmdir(&mut self) {
        let (directory, name) = (self.directory(), self.name());
        let removed = self.fs.rmdir(self.inode(directory), &name).await;
        match self.model.find(directory, &name) {
            None => assert_eq!(removed, Err(FsError::NotFound)),
            Some(id) if !self.model.is_directory(id) => assert_eq!(removed, Err(FsError::NotDirectory)),
            Some(id) if !self.model.entries(id).is_empty() => assert_eq!(removed, Err(FsError::NotEmpty)),
            Some(id) => {
                removed.expect("removed");
                self.model.entries(directory).remove(&name);
                self.model.lose(directory, id);
            }
        }
    }

    async fn rename(&mut self) {
        let (from, old, to, new) = (self.directory(), self.name(), self.directory(), self.name());
        let flags = match self.random.random_range(0..6) {
            0 => RenameFlags { no_replace: true, ..RenameFlags::default() },
            1 => RenameFlags { exchange: true, ..RenameFlags::default() },
            2 => RenameFlags { whiteout: true, ..RenameFlags::default() },
            _ => RenameFlags::default(),
        };
        let ends = ((self.inode(from), old.as_slice()), (self.inode(to), new.as_slice()));
        let done = self.fs.rename(ends.0, ends.1, flags).await;
        let expected = self.model.rename((from, &old), (to, &new), flags);
        match (&done, &expected) {
            (Err(done), Err(expected)) => assert_eq!(discriminant(done), discriminant(expected), "{done}"),
            _ => assert_eq!(done, expected, "{old:?} {new:?} {flags:?}"),
        }
        if flags.whiteout && done.is_ok() && self.model.find(from, &old).is_none() {
            let whiteout = self.fs.lookup(self.inode(from), &old).await.expect("left");
            self.model.add(from, &old, Content::Whiteout, 0, whiteout);
        }
    }

    async fn write(&mut self) {
        let Some(id) = self.leaf() else { return };
        let (inode, offset) = (self.inode(id), self.random.random_range(0..20_000_usize));
        let bytes = vec![self.random.random(); self.random.random_range(1..9000)];
        let Content::File(content) = &mut self.model.node_mut(id).content else { return };
        assert_eq!(self.fs.write(inode, offset as u64, &bytes).await, Ok(bytes.len()));
        content.resize(content.len().max(offset + bytes.len()), 0);
        content[offset..offset + bytes.len()].copy_from_slice(&bytes);
    }

    async fn set_permissions(&mut self) {
        let Some(id) = self.leaf() else { return };
        let permissions = self.random.random_range(0..0o7777_u16);
        let size = self.random.random_range(0..20_000_usize);
        let node = self.model.node_mut(id);
        node.permissions = permissions;
        let mut changes = AttributeChanges { permissions: Some(permissions), ..AttributeChanges::default() };
        if let Content::File(content) = &mut node.content {
            content.resize(size, 0);
            changes.size = Some(size as u64);
        }
        self.fs.set_attributes(node.inode, &changes).await.expect("set");
    }

    async fn change_attribute(&mut self) {
        let Some(id) = self.leaf() else { return };
        let (name, length) =
            (self.pick(&[b"trusted.a".as_slice(), b"trusted.long name"]), self.pick(&[0, 30, 1500]));
        let node = self.model.node_mut(id);
        if self.random.random_bool(0.7) {
            let value = vec![7; length];
            self.fs.set_extended_attribute(node.inode, name, &value, Expect::Anything).await.expect("set");
            node.attributes.insert(name.to_vec(), value);
        } else {
            let removed = self.fs.remove_extended_attribute(node.inode, name).await;
            let expected = node.attributes.remove(name).map(drop).ok_or(FsError::NoAttribute);
            assert_eq!(removed, expected);
        }
    }
}

fn run(seed: u64, options: MountOptions) {
    let left = simulated_with(seed, async |clock| {
        let disk = disk(&clock, &new_image(BLOCKS), true);
        let mut random = Pcg64::seed_from_u64(seed);
        let mut model = Model::new();
        let mut fs = mount(&clock, &disk, options).await.expect("mounted");
        let empty = fs.statfs().await;
        for _ in 0..OPERATIONS {
            Run { fs: &fs, model: &mut model, random: &mut random }.step().await;
            if random.random_range(0..REMOUNT_EVERY) == 0 {
                fs.unmount().await.expect("unmounted");
                fs = mount(&clock, &disk, options).await.expect("mounted again");
                compare(&fs, &model).await;
            }
        }
        compare(&fs, &model).await;
        clear(&fs, &mut model).await;
        fs.unmount().await.expect("unmounted");
        let fs = mount(&clock, &disk, options).await.expect("mounted again");
        let now = fs.statfs().await;
        // The root may have grown a block or more, and keeps them.
        let grown = fs.attributes(ROOT_INODE).await.expect("there").sectors / 8 - 1;
        assert_eq!((now.free_blocks + grown, now.free_inodes), (empty.free_blocks, empty.free_inodes));
        fs.unmount().await.expect("unmounted");
        disk.image()
    });
    judge(&left);
}

/// Removes everything, so that what is not freed shows.
async fn clear(fs: &BarrierFs, model: &mut Model) {
    let mut pending = vec![ROOT];
    let mut emptied = Vec::new();
    while let Some(directory) = pending.pop() {
        let inode = model.node(directory).inode;
        for (name, id) in std::mem::take(model.entries(directory)) {
            if model.is_directory(id) {
                pending.push(id);
                emptied.push((inode, name));
            } else {
                fs.unlink(inode, &name).await.expect("removed");
            }
        }
    }
    for (parent, name) in emptied.into_iter().rev() {
        fs.rmdir(parent, &name).await.expect("removed");
    }
}

#[test]
fn dual_mode_keeps_the_tree() {
    for seed in 0..3 {
        run(seed, MountOptions::default());
    }
}

#[test]
fn dual_mode_with_a_conflict_list_keeps_the_tree() {
    let engine = Some(Engine::Dual { conflicts: Conflicts::List });
    run(10, MountOptions { engine, mode: JournalMode::Writeback, ..MountOptions::default() });
}

#[test]
fn the_legacy_path_keeps_the_tree() {
    for (seed, mode) in [(20, JournalMode::Ordered), (21, JournalMode::Data)] {
        let engine = Some(Engine::Jbd2 { barrier: true });
        run(seed, MountOptions { engine, mode, ..MountOptions::default() });
    }
}

#[test]
#[should_panic(expected = "the content of")]
fn a_wrong_byte_is_noticed() {
    simulated_with(30, async |clock| {
        let disk = disk(&clock, &new_image(BLOCKS), true);
        let fs = mount(&clock, &disk, MountOptions::default()).await.expect("mounted");
        let mut model = Model::new();
        let mut random = Pcg64::seed_from_u64(30);
        for _ in 0..300 {
            Run { fs: &fs, model: &mut model, random: &mut random }.step().await;
        }
        compare(&fs, &model).await;
        let contents = model.0.iter_mut().flatten().filter_map(|node| match &mut node.content {
            Content::File(content) => content.last_mut(),
            _ => None,
        });
        *contents.last().expect("a file with content") ^= 1;
        compare(&fs, &model).await;
    });
}
