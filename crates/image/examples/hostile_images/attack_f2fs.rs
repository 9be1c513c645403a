//! What an attacker does to an image of F2FS.

use std::rc::Rc;

use rand::seq::IndexedRandom as _;
use rand::{Rng, RngExt as _};
use rand_pcg::Pcg64;
use weir_f2fs::check::check;
use weir_f2fs::{BLOCK_BYTES, Mkfs, crc32, hash_name};
use weir_format::FileType;
use weir_lfs::{F2fs, F2fsOptions};
use weir_runtime::Handle;
use weir_storage::{Image, Lba, Storage};
use weir_vfs::{Filesystem, FilesystemCalls, FsError, NewNode};

use crate::Attack;
use crate::hostile::{InMemory, MountImage, MountedImage, disk_of, fill_a_little, run};

/// Blocks of an image: about the smallest that F2FS can be.
const BLOCKS: u64 = 16_384;
/// Edits of one image at most.
const EDITS_MAX: usize = 6;
/// Of so many edits of a checkpoint's header, one leaves its checksum as it was.
const UNSEALED: u32 = 8;
/// Attempts to hit a byte that is not zero, as most of a block are.
const AIMS: usize = 6;
/// What checksums start from.
const MAGIC: u32 = 0xF2F5_2010;
/// Where a header has its checksum.
const CHECKSUM_AT: usize = BLOCK_BYTES - 4;
/// The first blocks of the two checkpoint packs, and blocks that a pack has at most here.
const PACKS: [u64; 2] = [512, 1024];
const PACK_BLOCKS: u64 = 16;
/// A link to the canary, and a directory that an attacker gives the link's name.
const TRAP: (&[u8], &[u8]) = (b"trap a", b"trap b");
/// A name, and others of its length that lead out or nowhere.
const NAME: &[u8] = b"tree directory";
const NAMES: [&[u8]; 4] = [b"../canary/file", b"../canary/new.", b"a/../../canary", b"..\0.canary/fil"];

/// A sound image, and the blocks of it that are not zero.
pub struct F2fsVictim {
    image: Image,
    places: Vec<u64>,
}

impl MountImage for F2fsOptions {
    async fn mount_image(
        &self,
        clock: &Handle,
        image: &Image,
        read_only: bool,
    ) -> Result<MountedImage, FsError> {
        let disk = disk_of(clock, image);
        let options = F2fsOptions { read_only, ..*self };
        let fs = F2fs::mount(clock, Rc::clone(&disk) as Rc<dyn Storage>, options).await?;
        Ok((fs.into(), disk))
    }
}

/// Whether the check finds nothing.
pub fn is_clean(image: &Image) -> bool {
    run(async |_| check(&InMemory(image)).await).is_ok_and(|report| report.is_clean())
}

impl F2fsVictim {
    /// An image that was unmounted; or one that was not, with calls to roll forward and a deleted file that is open.
    pub fn new(crashed: bool) -> F2fsVictim {
        let image = run(async |clock| {
            let disk = disk_of(&clock, &Image::zeroed(BLOCKS, BLOCK_BYTES as u32));
            let mkfs = Mkfs { zeroed: true, ..Mkfs::new(BLOCKS, [7; 16], 1, 1_700_000_000) };
            F2fs::make(&*disk, &mkfs).await.expect("made");
            let device = Rc::clone(&disk) as Rc<dyn Storage>;
            let fs =
                Filesystem::from(F2fs::mount(&clock, device, F2fsOptions::default()).await.expect("mounted"));
            fill(&*fs).await.expect("filled");
            match crashed {
                true => leave(&*fs).await.expect("changed"),
                false => fs.unmount().await.expect("unmounted"),
            }
            disk.image()
        });
        let is_used = |block: &u64| image.read(Lba(*block)).iter().any(|byte| *byte != 0);
        let places = (0..image.blocks()).filter(is_used).collect();
        F2fsVictim { image, places }
    }

    /// Changes a number somewhere.
    fn change_field(&self, image: &mut Image, random: &mut Pcg64) {
        let Some(&block) = self.places.choose(random) else { return };
        let mut bytes = image.read(Lba(block));
        let mut at = random.random_range(0..BLOCK_BYTES);
        for _ in 0..AIMS {
            if bytes[at] == 0 {
                at = random.random_range(0..BLOCK_BYTES);
            }
        }
        let wide = [1, 2, 4, 8][random.random_range(0..4)];
        let at = at / wide * wide;
        let mut value = [0; 8];
        value[..wide].copy_from_slice(&bytes[at..at + wide]);
        let before = u64::from_le_bytes(value);
        let place = self.places.choose(random).copied().unwrap_or(0);
        let after = match random.random_range(0..9) {
            0 => 0,
            1 => u64::MAX,
            2 => before.wrapping_add(1),
            3 => before.wrapping_sub(1),
            4 => before ^ (1 << random.random_range(0..64)),
            5 | 6 => place,
            7 => u64::from(random.random_range(0..40_u32)),
            _ => random.random(),
        };
        bytes[at..at + wide].copy_from_slice(&after.to_le_bytes()[..wide]);
        write_block(image, block, &bytes, random);
    }

    /// Puts one block over another.
    fn copy_block(&self, image: &mut Image, random: &mut Pcg64) {
        let (Some(&from), Some(&to)) = (self.places.choose(random), self.places.choose(random)) else {
            return;
        };
        let bytes = image.read(Lba(from));
        write_block(image, to, &bytes, random);
    }

    /// Replaces a name by another of its length, with its hash, wherever it is.
    fn rename(&self, image: &mut Image, from: &[u8], to: &[u8]) {
        let (hash, new_hash) = (hash_name(from).to_le_bytes(), hash_name(to).to_le_bytes());
        for block in &self.places {
            let mut bytes = image.read(Lba(*block));
            if find(&bytes, from).is_none() {
                continue;
            }
            for (old, new) in [(from, to), (&hash[..], &new_hash[..])] {
                if let Some(at) = find(&bytes, old) {
                    bytes[at..at + new.len()].copy_from_slice(new);
                }
            }
            image.write(Lba(*block), &bytes);
        }
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    // The first byte alone tells most of them apart, without a call.
    bytes.windows(wanted.len()).position(|window| window[0] == wanted[0] && window == wanted)
}

impl Attack for F2fsVictim {
    fn attacked(&self, random: &mut Pcg64) -> Image {
        let mut image = self.image.clone();
        for _ in 0..random.random_range(1..=EDITS_MAX) {
            match random.random_range(0..12) {
                0..8 => self.change_field(&mut image, random),
                8 | 9 => self.copy_block(&mut image, random),
                10 => self.rename(&mut image, NAME, NAMES[random.random_range(0..NAMES.len())]),
                _ => image = self.trapped(random),
            }
        }
        image
    }

    /// A link that leads to the canary, and behind it a directory of the same name.
    fn trapped(&self, _: &mut Pcg64) -> Image {
        let mut image = self.image.clone();
        self.rename(&mut image, TRAP.1, TRAP.0);
        image
    }
}

/// Writes a block; one that is a header or footer of a checkpoint pack gets its checksum, and the other of the two is the same.
fn write_block(image: &mut Image, block: u64, bytes: &[u8], random: &mut impl Rng) {
    image.write(Lba(block), bytes);
    let Some(start) = PACKS.into_iter().find(|start| (*start..start + PACK_BLOCKS).contains(&block)) else {
        return;
    };
    let header = image.read(Lba(start));
    let footers =
        (start + 1..start + PACK_BLOCKS).filter(|footer| image.read(Lba(*footer))[..8] == header[..8]);
    let both: Vec<u64> = [start].into_iter().chain(footers).collect();
    if !both.contains(&block) || random.random_range(0..UNSEALED) == 0 {
        return;
    }
    let mut sealed = bytes.to_vec();
    let sum = crc32(MAGIC, &sealed[..CHECKSUM_AT]);
    sealed[CHECKSUM_AT..].copy_from_slice(&sum.to_le_bytes());
    both.into_iter().for_each(|block| image.write(Lba(block), &sealed));
}

/// A little of everything, and a trap that is not set.
async fn fill(fs: &dyn FilesystemCalls) -> Result<(), FsError> {
    let (link, other) = TRAP;
    fs.symlink(fs.root(), link, b"../canary", (0, 0)).await?;
    let directory = fs.mkdir(fs.root(), other, &NewNode::new(FileType::Directory, 0o755)).await?;
    fs.create(directory, b"new", &NewNode::new(FileType::Regular, 0o644)).await?;
    fill_a_little(fs).await?;
    // Pages that nodes of every kind lead to.
    let deep = fs.create(fs.root(), b"deep", &NewNode::new(FileType::Regular, 0o644)).await?;
    for page in [0, 1_000, 2_000, 4_000, 3_000_000] {
        fs.write(deep, page * BLOCK_BYTES as u64, &[9; 5_000]).await?;
    }
    Ok(())
}

/// What a power cut finds.
async fn leave(fs: &dyn FilesystemCalls) -> Result<(), FsError> {
    let root = fs.root();
    let sparse = fs.lookup(root, b"sparse").await?;
    fs.open(sparse).await?;
    fs.unlink(root, b"sparse").await?;
    fs.sync().await?;
    let new = fs.create(root, b"late", &NewNode::new(FileType::Regular, 0o644)).await?;
    fs.write(new, 0, &[5; 9000]).await?;
    fs.fsync(new).await?;
    let deep = fs.lookup(root, b"deep").await?;
    fs.write(deep, 2_000 * BLOCK_BYTES as u64, &[6; 9000]).await?;
    fs.fsync(deep).await
}
