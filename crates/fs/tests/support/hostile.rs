//! Hostile images: a filesystem with something of every structure in it, edits of any of them under good
//! checksums, and what is done with what comes of that: a life on a mount, a check, and copies to the host.
//!
//! It needs nothing of its crate, so that the fuzz target (fuzz/) compiles it too.

#![allow(dead_code, reason = "each caller uses a part of it")]

#[path = "in_memory.rs"]
mod in_memory;
#[path = "hostile/life.rs"]
mod life;
#[path = "hostile/scratch.rs"]
mod scratch;
#[path = "../../../storage/tests/support/trial.rs"]
mod trial;

#[allow(unused_imports, reason = "each caller uses a part of it")]
pub use in_memory::{InMemory, disk_of, mount_with};
#[allow(unused_imports, reason = "each caller uses a part of it")]
pub use life::{MountImage, MountedImage, Outcome, live, live_a_little};
#[allow(unused_imports, reason = "each caller uses a part of it")]
pub use scratch::{CopyOutcome, Scratch};
#[allow(unused_imports, reason = "each caller uses a part of it")]
pub use trial::{play_corpus, run, within_memory};

use std::collections::BTreeMap;
use std::ops::Range;

use weir_ext4::check::{Report, check};
use weir_ext4::{
    Blocks, Descriptor, ExtentTree, INODE_BYTES, Inode, JOURNAL_INODE, Kind, Layout, Mkfs, ROOT_INODE,
    SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET, Superblock, inode_flags,
};
use weir_format::{BLOCK_BYTES, FileType, FormatError, acl::ACCESS, acl::DEFAULT};
use weir_fs::{BarrierFs, MountOptions};
use weir_image::GetOptions;
use weir_storage::{Image, Lba};
use weir_vfs::{Device, Expect, Fallocate, FilesystemCalls, FsError, NewNode};
use zerocopy::{FromBytes, IntoBytes};

use in_memory::{LIST, mount};

/// What every block of the journal but copies begins with, big-endian.
const JOURNAL_MAGIC: [u8; 4] = 0xC03B_3998_u32.to_be_bytes();
/// Where the blocks of a log have their checksums.
const LOG_TAIL: usize = BLOCK_BYTES - 4;
const COMMIT_SUM: usize = 16;
const JOURNAL_SUPERBLOCK_SUM: usize = 252;
/// Bytes of the checksum at the end of a block of names, and of the shortest record.
const RECORD_TAIL: usize = 12;
/// The capability to bind low ports, as Linux keeps it: its version, then 32 bits of four sets.
const CAPABILITY: [u8; 20] = [0, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// The longest list of edits.
const EDITS_MAX: usize = 16;
/// Bytes that encode one of them.
const EDIT_BYTES: usize = 7;

/// What a block is, and so how it is sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The superblock.
    Superblock,
    /// Descriptors, each with its own checksum.
    Descriptors,
    /// Bitmaps of a group, whose checksums are in its descriptor.
    BlockBitmap(u32),
    InodeBitmap(u32),
    /// Sixteen inodes from this number on.
    InodeTable(u32),
    /// Any other block that is sealed as a whole.
    Whole(Kind),
    /// The journal's own superblock.
    JournalSuperblock,
    /// A descriptor or revoke block of the log.
    Log,
    /// A commit block.
    Commit,
    /// The copy of block `home`, whose checksum is in the tag at byte `tag` of block `descriptor`.
    Copy {
        home: u64,
        descriptor: u64,
        tag: usize,
        sequence: u32,
    },
}

/// A sound image, and what each of its blocks is.
pub struct Seed {
    pub image: Image,
    pub parts: BTreeMap<u64, Part>,
    pub layout: Layout,
    log_seed: u32,
}

impl Seed {
    /// Names, files, links and attributes of every form; the journal is empty.
    pub fn plain() -> Seed {
        Seed::of(made(3072, async |fs| fill(fs).await))
    }

    /// The same after a crash: with transactions to replay, revocations among them, and orphans.
    pub fn crashed() -> Seed {
        let plain = Seed::plain();
        let image = changed(&plain.image, false, async |fs| {
            let names = fs.lookup(ROOT_INODE, b"names").await?;
            for name in [&b"sparse"[..], b"file", b"empty"] {
                let inode = fs.lookup(ROOT_INODE, name).await?;
                fs.open(inode).await?;
                fs.unlink(ROOT_INODE, name).await?;
            }
            fs.sync().await?;
            for number in 0..6 {
                fs.unlink(names, &name_of(number)).await?;
            }
            fs.rmdir(ROOT_INODE, b"bare").await?;
            fs.unlink(ROOT_INODE, b"long link").await?;
            fs.sync().await?;
            let new = fs.create(ROOT_INODE, b"late", &NewNode::new(FileType::Regular, 0o644)).await?;
            fs.write(new, 0, &[5; 9000]).await?;
            fs.fsync(new).await
        });
        let mut crashed = Seed { image, ..plain };
        crashed.find_log();
        crashed
    }

    /// A little of everything, so that many of them are tried in little time.
    pub fn small() -> Seed {
        Seed::of(made(2048, async |fs| fill_a_little(fs).await))
    }

    /// The same after a crash, with files that were unlinked while they were open.
    pub fn small_crashed() -> Seed {
        let plain = Seed::small();
        let image = changed(&plain.image, false, async |fs| {
            let sparse = fs.lookup(ROOT_INODE, b"sparse").await?;
            fs.open(sparse).await?;
            fs.unlink(ROOT_INODE, b"sparse").await?;
            fs.sync().await?;
            fs.unlink(ROOT_INODE, b"long link").await?;
            let new = fs.create(ROOT_INODE, b"late", &NewNode::new(FileType::Regular, 0o644)).await?;
            fs.write(new, 0, &[5; 9000]).await?;
            fs.fsync(new).await
        });
        let mut crashed = Seed { image, ..plain };
        crashed.find_log();
        crashed
    }

    /// A directory whose index has two levels, and a file whose extent tree has.
    pub fn deep() -> Seed {
        Seed::of(made(6144, async |fs| {
            let new = NewNode::new(FileType::Regular, 0o644);
            let deep = fs.mkdir(ROOT_INODE, b"deep", &NewNode::new(FileType::Directory, 0o755)).await?;
            let file = fs.create(deep, b"file", &new).await?;
            for number in 0..6500 {
                fs.link(file, deep, &name_of_bytes(number, 250)).await?;
            }
            scatter(fs).await
        }))
    }

    /// The same extent tree of two levels, beside a directory whose index has one node: to live with it, and to copy
    /// it, takes less time.
    pub fn scattered() -> Seed {
        Seed::of(made(6144, async |fs| {
            let names = fs.mkdir(ROOT_INODE, b"names", &NewNode::new(FileType::Directory, 0o755)).await?;
            for number in 0..150 {
                fs.create(names, &name_of(number), &NewNode::new(FileType::Regular, 0o644)).await?;
            }
            scatter(fs).await
        }))
    }

    fn of(image: Image) -> Seed {
        let superblock = Superblock::read(&image.read(Lba(0))[SUPERBLOCK_OFFSET..]).expect("a superblock");
        let layout = Layout::new(&superblock).expect("a layout");
        let mut seed = Seed { image, parts: BTreeMap::new(), layout, log_seed: 0 };
        seed.find_parts();
        seed
    }

    /// The blocks that are such a part.
    pub fn blocks(&self, wanted: impl Fn(Part) -> bool) -> Vec<u64> {
        self.parts.iter().filter(|(_, part)| wanted(**part)).map(|(block, _)| *block).collect()
    }

    /// Where inode `number` is.
    pub fn place(&self, number: u32) -> (u64, Range<usize>) {
        let (group, index) = self.layout.inode_group(number).expect("an inode");
        self.layout.inode_place(&self.descriptor(&self.image, group), index)
    }

    pub fn inode(&self, number: u32) -> Inode {
        let (block, range) = self.place(number);
        Inode::read(&self.image.read(Lba(block))[range], number, &self.layout.checksums()).expect("an inode")
    }

    fn descriptor(&self, image: &Image, group: u32) -> Descriptor {
        let (block, range) = self.layout.descriptor_place(group).expect("a group");
        Descriptor::read_from_bytes(&image.read(Lba(block))[range]).expect("64 bytes")
    }

    fn find_parts(&mut self) {
        self.parts.insert(0, Part::Superblock);
        for group in 0..self.layout.groups() {
            let (block, _) = self.layout.descriptor_place(group).expect("a group");
            self.parts.insert(block, Part::Descriptors);
            let descriptor = self.descriptor(&self.image, group);
            self.parts.insert(descriptor.block_bitmap(), Part::BlockBitmap(group));
            self.parts.insert(descriptor.inode_bitmap(), Part::InodeBitmap(group));
            for index in 0..self.layout.inodes_per_group() - descriptor.unused_inodes() {
                let number = self.layout.inode_at(group, index);
                let (block, range) = self.layout.inode_place(&descriptor, index);
                if range.start == 0 {
                    self.parts.insert(block, Part::InodeTable(number));
                }
                let inode = self.inode(number);
                if inode.links.get() > 0 {
                    self.find_parts_of(number, &inode);
                }
            }
        }
    }

    fn find_parts_of(&mut self, number: u32, inode: &Inode) {
        let generation = inode.generation.get();
        if inode.attribute_block() != 0 {
            self.parts.insert(inode.attribute_block(), Part::Whole(Kind::Attributes));
        }
        if !inode.has_flag(inode_flags::EXTENTS) {
            return;
        }
        let (nodes, mapped) = self.mapped(number, inode);
        let kind = Kind::Extents { inode: number, generation };
        self.parts.extend(nodes.into_iter().map(|block| (block, Part::Whole(kind))));
        if number == JOURNAL_INODE {
            let uuid = &self.image.read(Lba(mapped[0]))[48..64];
            self.log_seed = crc32c(!0, &[uuid]);
            self.parts.insert(mapped[0], Part::JournalSuperblock);
            return;
        }
        for (index, block) in mapped.into_iter().enumerate() {
            let bytes = self.image.read(Lba(block));
            let hidden = bytes[..6] == [0, 0, 0, 0, 0, 0x10];
            let kind = match inode.file_type() {
                Some(FileType::Directory)
                    if inode.has_flag(inode_flags::INDEXED) && (index == 0 || hidden) =>
                {
                    Kind::DirectoryIndex { inode: number, generation }
                }
                Some(FileType::Directory) => Kind::Directory { inode: number, generation },
                Some(FileType::Symlink) => Kind::SymlinkTarget,
                _ => return,
            };
            self.parts.insert(block, Part::Whole(kind));
        }
    }

    /// The blocks of an extent tree, and those that it maps.
    pub fn mapped(&self, number: u32, inode: &Inode) -> (Vec<u64>, Vec<u64>) {
        let (blocks, mut root) = (InMemory(&self.image), inode.block_area);
        let tree = ExtentTree::new(&blocks, &mut root, number, inode.generation.get(), self.layout.blocks());
        run(async |_| {
            let nodes = tree.node_blocks().await.expect("a tree");
            let (mut mapped, mut at) = (Vec::new(), 0);
            while let Some(extent) = tree.next(at).await.expect("a tree") {
                mapped.extend((0..u64::from(extent.length)).map(|block| extent.physical + block));
                at = extent.end();
            }
            (nodes, mapped)
        })
    }

    /// Finds what is in the log, from its start on.
    fn find_log(&mut self) {
        let (_, places) = self.mapped(JOURNAL_INODE, &self.inode(JOURNAL_INODE));
        let word = |bytes: &[u8], at: usize| {
            u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let mut at = word(&self.image.read(Lba(places[0])), 28) as usize;
        assert!(at > 0, "the log is not empty");
        while let Some(&block) = places.get(at) {
            at += 1;
            let bytes = self.image.read(Lba(block));
            if bytes[..4] != JOURNAL_MAGIC {
                return;
            }
            let sequence = word(&bytes, 8);
            match word(&bytes, 4) {
                1 => self.parts.insert(block, Part::Log),
                5 => {
                    self.parts.insert(block, Part::Log);
                    continue;
                }
                _ => {
                    self.parts.insert(block, Part::Commit);
                    continue;
                }
            };
            let mut tag = 12;
            loop {
                let home = u64::from(word(&bytes, tag)) | u64::from(word(&bytes, tag + 8)) << 32;
                let flags = word(&bytes, tag + 4);
                let Some(&copy) = places.get(at) else { return };
                self.parts.insert(copy, Part::Copy { home, descriptor: block, tag, sequence });
                at += 1;
                tag += if flags & 2 == 0 { 32 } else { 16 };
                if flags & 8 != 0 {
                    break;
                }
            }
        }
    }

    /// Seals a block, and what holds its checksum.
    pub fn seal(&self, image: &mut Image, block: u64) {
        let mut bytes = image.read(Lba(block));
        let Some(&part) = self.parts.get(&block) else { return };
        match part {
            Part::BlockBitmap(group) => {
                return self.seal_group(image, group, |of, layout| of.seal_block_bitmap(&bytes, layout));
            }
            Part::InodeBitmap(group) => {
                return self.seal_group(image, group, |of, layout| of.seal_inode_bitmap(&bytes, layout));
            }
            Part::Copy { home, descriptor, tag, sequence } => {
                if let Some(&part) = self.parts.get(&home) {
                    self.seal_alone(part, home, &mut bytes);
                }
                let sum = crc32c(self.log_seed, &[&sequence.to_be_bytes(), &bytes]);
                let mut tags = image.read(Lba(descriptor));
                tags[tag + 12..tag + 16].copy_from_slice(&sum.to_be_bytes());
                self.seal_alone(Part::Log, descriptor, &mut tags);
                image.write(Lba(descriptor), &tags);
            }
            _ => self.seal_alone(part, block, &mut bytes),
        }
        image.write(Lba(block), &bytes);
    }

    fn seal_group(&self, image: &mut Image, group: u32, seal: impl FnOnce(&mut Descriptor, &Layout)) {
        let (block, range) = self.layout.descriptor_place(group).expect("a group");
        let mut descriptor = self.descriptor(image, group);
        seal(&mut descriptor, &self.layout);
        let mut bytes = image.read(Lba(block));
        descriptor.write(&mut bytes[range], group, &self.layout);
        image.write(Lba(block), &bytes);
    }

    /// Seals a block that has all of its checksums in itself.
    fn seal_alone(&self, part: Part, block: u64, bytes: &mut [u8]) {
        let checksums = self.layout.checksums();
        match part {
            Part::Superblock => {
                let bytes = &mut bytes[SUPERBLOCK_OFFSET..SUPERBLOCK_OFFSET + SUPERBLOCK_BYTES];
                let mut superblock = Superblock::read_from_bytes(bytes).expect("the right length");
                superblock.update_checksum();
                bytes.copy_from_slice(superblock.as_bytes());
            }
            Part::Descriptors => {
                for group in 0..self.layout.groups() {
                    let (_, range) = self.layout.descriptor_place(group).expect("a group");
                    let mut descriptor =
                        Descriptor::read_from_bytes(&bytes[range.clone()]).expect("64 bytes");
                    descriptor.write(&mut bytes[range], group, &self.layout);
                }
            }
            Part::InodeTable(first) => {
                for (bytes, number) in bytes.chunks_exact_mut(INODE_BYTES).zip(first..) {
                    let mut inode = Inode::read_from_bytes(bytes).expect("the right length");
                    if inode.as_bytes() != [0; INODE_BYTES] {
                        inode.update_checksum(number, &checksums);
                        bytes.copy_from_slice(inode.as_bytes());
                    }
                }
            }
            // What has no place for a checksum any more stays without.
            Part::Whole(kind) => drop(checksums.update_checksum(kind, block, bytes)),
            Part::JournalSuperblock => seal_at(bytes, !0, JOURNAL_SUPERBLOCK_SUM, 1024),
            Part::Log => seal_at(bytes, self.log_seed, LOG_TAIL, BLOCK_BYTES),
            Part::Commit => seal_at(bytes, self.log_seed, COMMIT_SUM, BLOCK_BYTES),
            Part::BlockBitmap(_) | Part::InodeBitmap(_) | Part::Copy { .. } => {}
        }
    }

    /// The image with these bytes of a block changed, under good checksums; `None` if they are so already.
    pub fn with(&self, block: u64, at: usize, value: &[u8]) -> Option<Image> {
        let mut bytes = self.image.read(Lba(block));
        bytes[at..at + value.len()].copy_from_slice(value);
        let mut image = self.image.clone();
        image.write(Lba(block), &bytes);
        self.seal(&mut image, block);
        (image.hash() != self.image.hash()).then_some(image)
    }

    /// The records of a directory in an image: block, offset, length, inode and name.
    pub fn records(&self, image: &Image, directory: u32) -> Vec<(u64, usize, usize, u32, Vec<u8>)> {
        let wanted = |part| matches!(part, Part::Whole(Kind::Directory { inode, .. }) if inode == directory);
        let mut found = Vec::new();
        for block in self.blocks(wanted) {
            let bytes = image.read(Lba(block));
            let mut at = 0;
            while at < BLOCK_BYTES - RECORD_TAIL {
                let number = u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
                let length = usize::from(u16::from_le_bytes([bytes[at + 4], bytes[at + 5]]));
                if length < RECORD_TAIL || at + length > BLOCK_BYTES {
                    break;
                }
                let end = (at + 8 + usize::from(bytes[at + 6])).min(at + length);
                found.push((block, at, length, number, bytes[at + 8..end].to_vec()));
                at += length;
            }
        }
        found
    }

    /// The inode of a name in a directory.
    pub fn target_of(&self, directory: u32, name: &[u8]) -> u32 {
        let records = self.records(&self.image, directory);
        records.into_iter().find(|record| record.4 == name).expect("the name is there").3
    }

    /// Gives a record of a directory another name, which fits into it, and another inode.
    pub fn rename(&self, image: &mut Image, directory: u32, old: &[u8], new: &[u8], inode: u32) {
        let records = self.records(image, directory);
        let (block, at, length, ..) =
            *records.iter().find(|record| record.4 == old).expect("the name is there");
        assert!(new.len() + 8 <= length, "room for the name");
        let mut bytes = image.read(Lba(block));
        bytes[at..at + 4].copy_from_slice(&inode.to_le_bytes());
        bytes[at + 6] = new.len() as u8;
        bytes[at + 8..at + 8 + new.len()].copy_from_slice(new);
        image.write(Lba(block), &bytes);
        self.seal(image, block);
    }

    /// Changes bytes of a block in an image.
    pub fn patch(&self, image: &mut Image, block: u64, at: usize, value: &[u8]) {
        let mut bytes = image.read(Lba(block));
        bytes[at..at + value.len()].copy_from_slice(value);
        image.write(Lba(block), &bytes);
        self.seal(image, block);
    }

    /// Changes an inode in an image.
    pub fn change_inode(&self, image: &mut Image, number: u32, change: impl FnOnce(&mut Inode)) {
        let (block, range) = self.place(number);
        let mut bytes = image.read(Lba(block));
        let mut inode = Inode::read_from_bytes(&bytes[range.clone()]).expect("the right length");
        change(&mut inode);
        bytes[range].copy_from_slice(inode.as_bytes());
        image.write(Lba(block), &bytes);
        self.seal(image, block);
    }

    /// The image after the edits that `data` encodes, seven bytes each: which part (2, little-endian), which byte
    /// of it (2), how, and a value (2).
    pub fn edited(&self, data: &[u8]) -> Image {
        let places: Vec<u64> = self.parts.keys().copied().collect();
        let mut image = self.image.clone();
        for edit in data.chunks_exact(EDIT_BYTES).take(EDITS_MAX) {
            let word = |at: usize| usize::from(u16::from_le_bytes([edit[at], edit[at + 1]]));
            let at = word(2) % BLOCK_BYTES;
            self.edit(&mut image, &places, places[word(0) % places.len()], at, edit[4], word(5));
        }
        image
    }

    /// Edits the bytes from `at` on of a block of an image, one of `places`.
    pub fn edit(&self, image: &mut Image, places: &[u64], block: u64, at: usize, how: u8, value: usize) {
        let mut bytes = image.read(Lba(block));
        let end = (at + [1, 2, 4, 8][usize::from(how & 3)]).min(BLOCK_BYTES);
        let mut old = [0; 8];
        old[..end - at].copy_from_slice(&bytes[at..end]);
        let new = match how >> 2 & 3 {
            0 => i64::from(value as u16 as i16) as u64,
            1 => places[value % places.len()],
            2 => u64::from_le_bytes(old).wrapping_add_signed(i64::from(value as u16 as i16)),
            _ => u64::from_le_bytes(old) ^ 1 << (value % 64),
        };
        let new = if how & 16 == 0 { new.to_le_bytes() } else { new.swap_bytes().to_le_bytes() };
        let skipped = if how & 16 == 0 { 0 } else { 8 - (end - at) };
        bytes[at..end].copy_from_slice(&new[skipped..skipped + end - at]);
        image.write(Lba(block), &bytes);
        if how & 128 == 0 {
            self.seal(image, block);
        }
    }
}

/// The seeds of the fuzz target, and what it does with its bytes: the first chooses a seed, the others edit it.
pub struct Seeds(Vec<Seed>, Scratch);

impl Seeds {
    pub fn new() -> Seeds {
        Seeds(vec![Seed::plain(), Seed::crashed(), Seed::deep()], Scratch::new())
    }

    pub fn image(&self, data: &[u8]) -> Image {
        let (first, edits) = data.split_first().unwrap_or((&0, &[]));
        self.0[usize::from(*first) % self.0.len()].edited(edits)
    }

    /// One case of the fuzz target.
    pub fn play(&self, data: &[u8]) -> Outcome {
        let image = self.image(data);
        let outcome = live(&image);
        let _ = checked(&image);
        self.1.copy(&image, MountOptions::default(), GetOptions::default());
        within_memory();
        outcome
    }
}

/// What the check says of an image.
pub fn checked(image: &Image) -> Result<Report, FormatError> {
    run(async |_| check(&InMemory(image)).await)
}

/// Fills a new filesystem with something of everything.
async fn fill(fs: &BarrierFs) -> Result<(), FsError> {
    let (file, directory) =
        (NewNode::new(FileType::Regular, 0o644), NewNode::new(FileType::Directory, 0o755));
    let names = fs.mkdir(ROOT_INODE, b"names", &directory).await?;
    for number in 0..150 {
        fs.create(names, &name_of(number), &file).await?;
    }
    let mut tree = fs.mkdir(ROOT_INODE, b"tree", &directory).await?;
    let bare = fs.mkdir(ROOT_INODE, b"bare", &directory).await?;
    fs.set_extended_attribute(bare, DEFAULT, &LIST, Expect::Anything).await?;
    for _ in 0..3 {
        tree = fs.mkdir(tree, b"sub", &directory).await?;
    }
    let plain = fs.create(ROOT_INODE, b"file", &file).await?;
    fs.write(plain, 0, &[6; 100_000]).await?;
    for number in 0..20 {
        fs.set_extended_attribute(plain, format!("user.a{number}").as_bytes(), &[1; 80], Expect::Anything)
            .await?;
    }
    let empty = fs.create(ROOT_INODE, b"empty", &file).await?;
    fs.set_extended_attribute(empty, b"user.small", b"value", Expect::Anything).await?;
    let sparse = fs.create(ROOT_INODE, b"sparse", &file).await?;
    for block in 0..400 {
        fs.write(sparse, block * 2 * BLOCK_BYTES as u64, &[3; 10]).await?;
    }
    fs.fallocate(sparse, Fallocate::Allocate { keep_size: true }, 1 << 24, 1 << 16).await?;
    fs.set_extended_attribute(sparse, ACCESS, &LIST, Expect::Anything).await?;
    fs.symlink(ROOT_INODE, b"short link", b"tree/sub", (0, 0)).await?;
    fs.symlink(ROOT_INODE, b"long link", &[b'q'; 300], (0, 0)).await?;
    fs.create(ROOT_INODE, b"fifo", &NewNode::new(FileType::Fifo, 0o644)).await?;
    Ok(())
}

/// Fills a new filesystem with a little of everything.
pub async fn fill_a_little(fs: &dyn FilesystemCalls) -> Result<(), FsError> {
    let root = fs.root();
    let (file, directory) =
        (NewNode::new(FileType::Regular, 0o644), NewNode::new(FileType::Directory, 0o755));
    let names = fs.mkdir(root, b"names", &directory).await?;
    for number in 0..18 {
        fs.create(names, &name_of_bytes(number, 240), &file).await?;
    }
    let tree = fs.mkdir(root, b"tree directory", &directory).await?;
    let sub = fs.mkdir(tree, b"sub", &directory).await?;
    fs.mkdir(sub, b"sub", &directory).await?;
    let bare = fs.mkdir(root, b"bare", &directory).await?;
    fs.set_extended_attribute(bare, DEFAULT, &LIST, Expect::Anything).await?;
    let plain = fs.create(root, b"file", &file).await?;
    fs.write(plain, 0, &[6; 10_000]).await?;
    for number in 0..4 {
        fs.set_extended_attribute(plain, format!("user.a{number}").as_bytes(), &[1; 80], Expect::Anything)
            .await?;
    }
    fs.link(plain, sub, b"linked").await?;
    let program = fs.create(tree, b"program", &NewNode::new(FileType::Regular, 0o4755)).await?;
    fs.write(program, 0, b"#!/bin/false").await?;
    fs.set_extended_attribute(program, b"security.capability", &CAPABILITY, Expect::Anything).await?;
    let sparse = fs.create(root, b"sparse", &file).await?;
    for block in 0..7 {
        fs.write(sparse, block * 2 * BLOCK_BYTES as u64, &[3; 10]).await?;
    }
    fs.fallocate(sparse, Fallocate::Allocate { keep_size: true }, 1 << 20, 1 << 16).await?;
    fs.set_extended_attribute(sparse, ACCESS, &LIST, Expect::Anything).await?;
    fs.symlink(root, b"short link", b"tree directory/sub", (0, 0)).await?;
    fs.symlink(root, b"long link", &[b'q'; 300], (0, 0)).await?;
    fs.create(root, b"fifo", &NewNode::new(FileType::Fifo, 0o644)).await?;
    let null =
        NewNode { device: Device { major: 1, minor: 3 }, ..NewNode::new(FileType::CharacterDevice, 0o666) };
    fs.create(root, b"null device", &null).await?;
    Ok(())
}

/// Makes a file with an extent tree of two levels.
async fn scatter(fs: &BarrierFs) -> Result<(), FsError> {
    let sparse = fs.create(ROOT_INODE, b"sparse", &NewNode::new(FileType::Regular, 0o644)).await?;
    for block in 0..1500 {
        fs.write(sparse, block * 2 * BLOCK_BYTES as u64, &[3; 10]).await?;
    }
    Ok(())
}

fn name_of(number: u32) -> Vec<u8> {
    name_of_bytes(number, 48)
}

fn name_of_bytes(number: u32, bytes: usize) -> Vec<u8> {
    format!("name {number:0bytes$}", bytes = bytes - 5).into_bytes()
}

/// A new filesystem that `script` has changed, unmounted.
pub fn made(blocks: u64, script: impl AsyncFnOnce(&BarrierFs) -> Result<(), FsError>) -> Image {
    let plan = Mkfs { zeroed: true, ..Mkfs::new(blocks, [7; 16], [8; 16], 1_700_000_000) };
    let mut image = Image::zeroed(blocks, BLOCK_BYTES as u32);
    for (block, bytes) in plan.plan().expect("options in range").writes() {
        image.write(Lba(block), &bytes);
    }
    changed(&image, true, script)
}

/// An image after `script`, unmounted or as a crash leaves it.
fn changed(
    image: &Image,
    unmount: bool,
    script: impl AsyncFnOnce(&BarrierFs) -> Result<(), FsError>,
) -> Image {
    run(async |clock| {
        let (fs, disk) = mount(&clock, image).await.expect("mounted");
        script(&fs).await.expect("changed");
        if unmount {
            fs.unmount().await.expect("unmounted");
        }
        disk.image()
    })
}

impl Blocks for InMemory<'_> {
    type Error = FormatError;

    async fn read<T>(
        &self,
        block: u64,
        _: Kind,
        look: impl FnOnce(&[u8]) -> Result<T, FormatError>,
    ) -> Result<T, FormatError> {
        look(&self.0.read(Lba(block)))
    }

    async fn modify(
        &self,
        _: u64,
        _: Kind,
        _: Range<usize>,
        _: impl FnOnce(&mut [u8]),
    ) -> Result<(), FormatError> {
        Err(FormatError::Invalid { what: "only read" })
    }

    async fn allocate(&self, _: Kind, _: u64) -> Result<u64, FormatError> {
        Err(FormatError::Invalid { what: "only read" })
    }

    async fn free(&self, _: u64, _: Kind) -> Result<(), FormatError> {
        Err(FormatError::Invalid { what: "only read" })
    }
}

/// Puts the checksum of the first `length` bytes at byte `at` of them, big-endian, over zeros there.
fn seal_at(bytes: &mut [u8], seed: u32, at: usize, length: usize) {
    bytes[at..at + 4].fill(0);
    let sum = crc32c(seed, &[&bytes[..length]]);
    bytes[at..at + 4].copy_from_slice(&sum.to_be_bytes());
}

/// CRC-32C from a register to a register.
fn crc32c(seed: u32, parts: &[&[u8]]) -> u32 {
    parts.iter().flat_map(|part| part.iter()).fold(seed, |sum, byte| {
        (0..8).fold(
            sum ^ u32::from(*byte),
            |sum, _| if sum & 1 == 1 { sum >> 1 ^ 0x82F6_3B78 } else { sum >> 1 },
        )
    })
}
