//! What an attacker does to an image.

use std::path::Path;

use rand::seq::IndexedRandom as _;
use rand::{Rng, RngExt as _};
use rand_pcg::Pcg64;
use weir_ext4::{Kind, ROOT_INODE};
use weir_format::{BLOCK_BYTES, FileType};
use weir_storage::{Image, Lba};

use crate::Attack;
use crate::hostile::{Part, Seed};

/// Edits of one image at most.
const EDITS_MAX: usize = 6;
/// Of so many edits, one leaves its checksum as it was.
const UNSEALED: u32 = 8;
/// Attempts to hit a byte that is not zero, as most of a block are.
const AIMS: usize = 6;
/// Numbers of inodes that no file has, or that lead far away.
const ODD_INODES: [u32; 8] = [0, 1, 3, 7, 8, 10, 100_000, u32::MAX];
/// Modes: set-user-ID programs and files, sockets, devices, and types that are none.
const ODD_MODES: [u16; 8] =
    [0o104_755, 0o106_777, 0o140_777, 0o060_666, 0o020_666, 0o120_777, 0o000_644, 0o170_777];

/// A seed, and what edits need to know of it.
pub struct Victim {
    seed: Seed,
    places: Vec<u64>,
    directories: Vec<u32>,
    inodes: Vec<u32>,
    /// Names that lead out of the target, or nowhere.
    names: Vec<Vec<u8>>,
    /// Targets of symbolic links to the canary.
    targets: Vec<Vec<u8>>,
}

impl Victim {
    /// A seed for attacks on a canary in the directory `scratch`, beside the target of a copy.
    pub fn new(seed: Seed, scratch: &Path) -> Victim {
        let absolute = format!("{}/canary", scratch.display()).into_bytes();
        let names: [&[u8]; 9] = [
            b"../canary/file",
            b"../canary/new",
            b"..",
            b".",
            b"",
            b"a\0b",
            b"/",
            b"a/../../canary/x",
            b"file",
        ];
        let mut names: Vec<Vec<u8>> = names.map(<[u8]>::to_vec).into();
        names.push([&absolute[..], b"/file"].concat());
        let directory = |part| match part {
            Part::Whole(Kind::Directory { inode, .. }) => Some(inode),
            _ => None,
        };
        let mut directories: Vec<u32> = seed.parts.values().copied().filter_map(directory).collect();
        directories.dedup();
        let mut inodes: Vec<u32> = directories
            .iter()
            .flat_map(|directory| seed.records(&seed.image, *directory))
            .map(|record| record.3)
            .filter(|inode| *inode != 0)
            .collect();
        inodes.sort_unstable();
        inodes.dedup();
        Victim {
            places: seed.parts.keys().copied().collect(),
            directories,
            inodes,
            names,
            targets: vec![b"../canary".to_vec(), b"..".to_vec(), b"/".to_vec(), absolute],
            seed,
        }
    }

    /// Changes a number somewhere.
    fn field(&self, image: &mut Image, random: &mut impl Rng) {
        let Some(&block) = self.places.choose(random) else { return };
        let bytes = image.read(Lba(block));
        let mut at = random.random_range(0..BLOCK_BYTES);
        for _ in 0..AIMS {
            if bytes[at] == 0 {
                at = random.random_range(0..BLOCK_BYTES);
            }
        }
        let sealed = if random.random_range(0..UNSEALED) == 0 { 128 } else { 0 };
        let how = random.random_range(0..32) | sealed;
        self.seed.edit(image, &self.places, block, at, how, random.random_range(0..1 << 16));
    }

    /// A record of some directory: its directory, name and inode.
    fn record(&self, image: &Image, random: &mut impl Rng) -> Option<(u32, Vec<u8>, u32)> {
        let directory = *self.directories.choose(random)?;
        let records = self.seed.records(image, directory);
        let (_, _, _, inode, name) = records.choose(random)?;
        Some((directory, name.clone(), *inode))
    }

    /// Gives a name that no path can have, or one that is there already.
    fn name(&self, image: &mut Image, random: &mut impl Rng) {
        let Some((directory, old, inode)) = self.record(image, random) else { return };
        let Some(new) = self.names.choose(random) else { return };
        self.rename(image, directory, &old, new, inode);
    }

    /// Renames what has room for the name.
    fn rename(&self, image: &mut Image, directory: u32, old: &[u8], new: &[u8], inode: u32) {
        let records = self.seed.records(image, directory);
        if records.iter().find(|record| record.4 == old).is_some_and(|record| record.2 >= new.len() + 8) {
            self.seed.rename(image, directory, old, new, inode);
        }
    }

    /// Lets a name stand for another inode: a second name, a cycle, or nothing.
    fn target(&self, image: &mut Image, random: &mut impl Rng) {
        let Some((directory, name, _)) = self.record(image, random) else { return };
        let odd = random.random_range(0..4) == 0;
        let Some(&inode) = (if odd { &ODD_INODES[..] } else { &self.inodes[..] }).choose(random) else {
            return;
        };
        self.rename(image, directory, &name, &name, inode);
    }

    /// Makes an inode one of another kind.
    fn inode(&self, image: &mut Image, random: &mut impl Rng) {
        let (Some(&number), Some(&mode)) = (self.inodes.choose(random), ODD_MODES.choose(random)) else {
            return;
        };
        let Some(target) = self.targets.choose(random) else { return };
        self.seed.change_inode(image, number, |inode| {
            inode.mode = mode.into();
            if FileType::of_mode(mode) == Some(FileType::Symlink) {
                set_target(inode, target);
            }
        });
    }

    /// Puts one block over another.
    fn block(&self, image: &mut Image, random: &mut impl Rng) {
        let (Some(&from), Some(&to)) = (self.places.choose(random), self.places.choose(random)) else {
            return;
        };
        let bytes = image.read(Lba(from));
        self.seed.patch(image, to, 0, &bytes);
    }

    /// A link that leads out, and behind it a directory or file of the same name; or a name that leads out.
    fn trap(&self, image: &mut Image, random: &mut impl Rng) {
        let link = self.seed.target_of(ROOT_INODE, b"short link");
        let Some(target) = self.targets.choose(random) else { return };
        // The root of the host is no canary.
        let target = if target == b"/" { &self.targets[0] } else { target };
        match random.random_range(0..3) {
            0 => {
                let file = self.seed.target_of(ROOT_INODE, b"file");
                let name = [&b"../canary/file"[..], b"../canary/new"][random.random_range(0..2)];
                self.rename(image, ROOT_INODE, b"tree directory", name, file);
            }
            _ => {
                self.seed.change_inode(image, link, |inode| set_target(inode, target));
                let names = self.seed.target_of(ROOT_INODE, b"names");
                self.rename(image, ROOT_INODE, b"names", b"file", link);
                self.rename(image, ROOT_INODE, b"short link", b"file", names);
            }
        }
    }
}

impl Attack for Victim {
    fn attacked(&self, random: &mut Pcg64) -> Image {
        let mut image = self.seed.image.clone();
        for _ in 0..random.random_range(1..=EDITS_MAX) {
            match random.random_range(0..12) {
                0..5 => self.field(&mut image, random),
                5 | 6 => self.name(&mut image, random),
                7 | 8 => self.target(&mut image, random),
                9 => self.inode(&mut image, random),
                10 => self.block(&mut image, random),
                _ => self.trap(&mut image, random),
            }
        }
        image
    }

    fn trapped(&self, random: &mut Pcg64) -> Image {
        let mut image = self.seed.image.clone();
        self.trap(&mut image, random);
        image
    }
}

fn set_target(inode: &mut weir_ext4::Inode, target: &[u8]) {
    if weir_ext4::symlink::set_short_target(inode, target) {
        inode.links = 1.into();
    }
}
