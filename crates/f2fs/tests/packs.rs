//! What other programs have made is read, and written again as it was.

use weir_f2fs::{Checkpoint, Feature, Layout, LogKind, Superblock, newest, pack_blocks};
use weir_format::{BLOCK_BYTES, FormatError};

use crate::support::{Memory, made, with_image};

fn pack(memory: &Memory, layout: &Layout, pack: u32) -> Result<(Vec<u8>, Checkpoint), FormatError> {
    let start = layout.pack_start(pack);
    let at = start as usize * BLOCK_BYTES;
    let blocks = pack_blocks(&memory.0[at..at + BLOCK_BYTES], start)? as usize;
    let bytes = memory.0[at..at + blocks * BLOCK_BYTES].to_vec();
    let checkpoint = Checkpoint::read(&bytes, start, layout)?;
    Ok((bytes, checkpoint))
}

#[test]
fn images_of_all_sizes_are_opened_and_their_packs_are_written_again() {
    for (mib, options) in [
        (64, &[][..]),
        (128, &["-l", "label"]),
        (1024, &["-O", "extra_attr,inode_checksum,inode_crtime,sb_checksum,lost_found"]),
        (40 << 10, &["-t", "0"]),
    ] {
        // Only the start of a large image is looked at.
        let directory = tempfile::tempdir().unwrap();
        let memory = match mib {
            ..2048 => made(mib, options, None),
            _ => start_of(&directory.path().join("image"), mib),
        };
        let superblock = Superblock::read(&memory.0[..BLOCK_BYTES], 0).unwrap();
        assert_eq!(Superblock::read(&memory.0[BLOCK_BYTES..2 * BLOCK_BYTES], 1).unwrap(), superblock);
        let mut block = [0; BLOCK_BYTES];
        superblock.clone().write(&mut block);
        assert_eq!(block[1024..], memory.0[1024..BLOCK_BYTES]);
        let layout = Layout::new(&superblock);
        let (first, second) = (pack(&memory, &layout, 0), pack(&memory, &layout, 1));
        let (nth, found) = newest(first.clone().map(|pack| pack.1), second.map(|pack| pack.1)).unwrap();
        assert_eq!((nth, found.valid_nodes >= 1, found.unmounted), (0, true, true));
        let root = superblock.features().has(Feature::LOST_FOUND);
        assert_eq!(found.valid_inodes, if root { 2 } else { 1 });
        let segments = LogKind::ALL.map(|kind| found.log(kind).segment);
        assert!(segments.iter().all(|segment| *segment < layout.main_segments()));
        let written: Vec<u8> =
            found.to_pack(&layout).unwrap().iter().flat_map(|block| block.to_vec()).collect();
        let again = Checkpoint::read(&written, layout.pack_start(0), &layout).unwrap();
        assert_eq!(again, found);
    }
}

/// The first 128 MiB of a sparse image.
fn start_of(path: &std::path::Path, mib: u64) -> Memory {
    use std::io::Read as _;
    std::fs::File::create(path).unwrap().set_len(mib << 20).unwrap();
    crate::support::run("mkfs.f2fs", &["-q", "-f", "-t", "0", path.to_str().unwrap()]);
    let mut bytes = vec![0; 128 << 20];
    std::fs::File::open(path).unwrap().read_exact(&mut bytes).unwrap();
    Memory(bytes)
}

#[test]
fn what_is_outside_the_subset_is_refused_by_name() {
    let refused =
        |options: &[&str]| with_image(&made(128, options, None), async |_| Ok(())).unwrap_err().to_string();
    for (options, name) in [
        (&["-O", "encrypt"][..], "encrypt"),
        (&["-O", "extra_attr,quota"], "quota"),
        (&["-O", "extra_attr,project_quota"], "project_quota"),
        (&["-O", "extra_attr,flexible_inline_xattr"], "flexible_inline_xattr"),
        (&["-O", "extra_attr,compression"], "compression"),
        (&["-O", "verity"], "verity"),
        (&["-s", "2"], "sections of several segments"),
        (&["-i"], "without -i"),
    ] {
        let message = refused(options);
        assert!(message.contains(name), "{options:?}: {message}");
    }
    let foreign = with_image(&Memory(vec![0; 1 << 20]), async |_| Ok(())).unwrap_err();
    assert_eq!(foreign, FormatError::Foreign { format: "F2FS" });
}

#[test]
fn half_a_pack_is_not_trusted() {
    let memory = made(128, &[], None);
    let layout = with_image(&memory, async |image| Ok(image.layout)).unwrap();
    let (bytes, checkpoint) = pack(&memory, &layout, 0).unwrap();
    let mut newer = checkpoint.clone();
    newer.version += 1;
    let written: Vec<u8> = newer.to_pack(&layout).unwrap().iter().flat_map(|block| block.to_vec()).collect();
    assert_eq!(written.len(), bytes.len() + 2 * BLOCK_BYTES, "whole summaries in place of compact ones");
    // The first block of the newer pack, and the rest of an older one.
    let mut half =
        checkpoint.to_pack(&layout).unwrap().iter().flat_map(|block| block.to_vec()).collect::<Vec<u8>>();
    half[..BLOCK_BYTES].copy_from_slice(&written[..BLOCK_BYTES]);
    Checkpoint::read(&half, layout.pack_start(0), &layout).expect_err("half a pack");
    let mut second = memory.0.clone();
    let at = layout.pack_start(1) as usize * BLOCK_BYTES;
    second[at..at + written.len()].copy_from_slice(&written);
    assert_eq!(with_image(&Memory(second.clone()), async |image| Ok(image.pack)), Ok(1));
    second[at + written.len() - 1] ^= 1;
    assert_eq!(with_image(&Memory(second), async |image| Ok(image.pack)), Ok(0));
}
