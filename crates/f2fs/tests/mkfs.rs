//! New images: `fsck.f2fs` finds them clean, and their areas are where `mkfs.f2fs` puts them.

use std::os::unix::fs::FileExt as _;

use weir_f2fs::{Mkfs, Superblock};
use weir_format::{BLOCK_BYTES, Cookie};

use crate::support::{Memory, made, run, with_image};

fn image(mkfs: &Mkfs) -> Vec<(u64, Box<[u8; BLOCK_BYTES]>)> {
    let planned = mkfs.plan().unwrap();
    let superblocks = [0, 1].map(|block| (block, planned.superblock_block()));
    planned.writes().chain(superblocks).collect()
}

#[test]
fn new_images_are_clean() {
    let directory = tempfile::tempdir().unwrap();
    for (mib, checksums) in
        [(64, true), (65, false), (130, true), (700, true), (1 << 10, false), (64 << 10, true)]
    {
        let mut mkfs = Mkfs::new(mib * 256, [7; 16], 1_700_000_000);
        (mkfs.checksums, mkfs.zeroed, mkfs.label) = (checksums, mib > 1 << 10, "Wehr ÄÖ".to_owned());
        let path = directory.path().join(mib.to_string());
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(mib << 20).unwrap();
        for (block, bytes) in image(&mkfs) {
            file.write_all_at(&bytes[..], block * BLOCK_BYTES as u64).unwrap();
        }
        let said = run("fsck.f2fs", &["--dry-run", path.to_str().unwrap()]);
        let bad: Vec<&str> =
            said.lines().filter(|line| line.contains("Fail") || line.contains("ASSERT")).collect();
        assert!(
            bad.is_empty() && said.contains("other corrupted bugs                           [Ok..]"),
            "{mib} MiB: {said}"
        );
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn areas_are_where_other_programs_put_them() {
    for mib in [64, 128, 257, 512, 1024] {
        let theirs = made(mib, &[], None);
        let theirs = Superblock::read(&theirs.0[..BLOCK_BYTES], 0).unwrap();
        let mkfs = Mkfs { checksums: false, ..Mkfs::new(mib * 256, theirs.uuid, 0) };
        let ours = *mkfs.plan().unwrap().superblock();
        let sizes = |superblock: &Superblock| {
            [
                superblock.segments,
                superblock.checkpoint_segments,
                superblock.segment_table_segments,
                superblock.node_table_segments,
                superblock.summary_segments,
                superblock.main_segments,
                superblock.segment0,
                superblock.main_start,
            ]
            .map(|size| size.get())
        };
        assert_eq!(sizes(&ours), sizes(&theirs), "{mib} MiB");
    }
}

#[test]
fn free_space_is_what_other_programs_leave() {
    for mib in [64, 128, 1024] {
        let theirs = with_image(&made(mib, &[], None), async |image| Ok(image.checkpoint.clone())).unwrap();
        let mut bytes = vec![0; (mib << 20) as usize];
        for (block, written) in image(&Mkfs::new(mib * 256, [1; 16], 0)) {
            bytes[block as usize * BLOCK_BYTES..][..BLOCK_BYTES].copy_from_slice(&written[..]);
        }
        let ours = with_image(&Memory(bytes), async |image| {
            let root = image.inode(weir_f2fs::NodeId::FIRST).await?;
            assert_eq!(image.read_names(&root, Cookie::START, 10).await?.len(), 2);
            Ok(image.checkpoint.clone())
        });
        let ours = ours.unwrap();
        assert_eq!(ours.free_segments, theirs.free_segments);
        // The other program looks for the best share in floating point, and may find its neighbour.
        let near = |one: u32, other: u32| one.abs_diff(other) <= 1;
        assert!(near(ours.reserved_segments, theirs.reserved_segments), "{mib} MiB");
        assert!(near(ours.overprovision_segments, theirs.overprovision_segments), "{mib} MiB");
    }
}

#[test]
fn options_out_of_range_are_refused() {
    let refused = |mkfs: Mkfs| mkfs.plan().map(|_| ()).unwrap_err().to_string();
    assert!(refused(Mkfs::new(16_383, [0; 16], 0)).contains("64 MiB"));
    assert!(refused(Mkfs::new((1 << 30) + 1, [0; 16], 0)).contains("4 TiB"));
    let label = "l".repeat(512);
    assert!(refused(Mkfs { label, ..Mkfs::new(20_000, [0; 16], 0) }).contains("511"));
}
