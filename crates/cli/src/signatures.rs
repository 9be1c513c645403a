//! *Signatures*: where formats of filesystems, volumes, partition tables and disk images say what they are.
//!
//! The places are those that the formats' own documentation gives. A name is all that they are for: what has data is not empty,
//! whether it is known or not (see [`occupant`](crate::occupant)).

/// From where a place is counted.
#[derive(Clone, Copy)]
enum Place {
    /// The first byte.
    Start(u64),
    /// Back from the end, which is cut down to a multiple of `unit` bytes first.
    EndOf { unit: u64, back: u64 },
}

use Place::{EndOf, Start};

/// A format, a place, and what stands there.
type Signature = (&'static str, Place, &'static [u8]);

/// What formats have at one place, or a few. The first that matches gives the name, so those that other formats carry as well,
/// such as a boot sector's, come last.
const SIGNATURES: &[Signature] = &[
    ("a volume of Weir", Start(0), b"WEIR-VOL"),
    ("a volume of Weir", Start(4096), b"WEIR-VOL"),
    ("LUKS encryption", Start(0), b"LUKS\xba\xbe"),
    ("the second header of LUKS encryption", Start(0x4000), b"SKUL\xba\xbe"),
    ("the second header of LUKS encryption", Start(0x8000), b"SKUL\xba\xbe"),
    ("the second header of LUKS encryption", Start(0x1_0000), b"SKUL\xba\xbe"),
    ("the second header of LUKS encryption", Start(0x2_0000), b"SKUL\xba\xbe"),
    ("the second header of LUKS encryption", Start(0x4_0000), b"SKUL\xba\xbe"),
    ("the second header of LUKS encryption", Start(0x8_0000), b"SKUL\xba\xbe"),
    ("the second header of LUKS encryption", Start(0x10_0000), b"SKUL\xba\xbe"),
    ("the second header of LUKS encryption", Start(0x20_0000), b"SKUL\xba\xbe"),
    ("BitLocker encryption", Start(3), b"-FVE-FS-"),
    ("an LVM physical volume", Start(0), b"LABELONE"),
    ("an LVM physical volume", Start(512), b"LABELONE"),
    ("an LVM physical volume", Start(1024), b"LABELONE"),
    ("an LVM physical volume", Start(1536), b"LABELONE"),
    ("a member of an md array", Start(0), b"\xfc\x4e\x2b\xa9"),
    ("a member of an md array", Start(4096), b"\xfc\x4e\x2b\xa9"),
    ("a member of an md array", EndOf { unit: 4096, back: 8192 }, b"\xfc\x4e\x2b\xa9"),
    ("a member of an md array", EndOf { unit: 4096, back: 12288 }, b"\xfc\x4e\x2b\xa9"),
    ("a member of an md array", EndOf { unit: 65536, back: 65536 }, b"\xfc\x4e\x2b\xa9"),
    ("a member of an md array", EndOf { unit: 65536, back: 65536 }, b"\xa9\x2b\x4e\xfc"),
    ("a member of an Intel RAID", EndOf { unit: 512, back: 1024 }, b"Intel Raid ISM Cfg Sig. "),
    ("a member of a DDF RAID", EndOf { unit: 512, back: 512 }, b"\xde\x11\xde\x11"),
    ("a member of a DDF RAID", EndOf { unit: 512, back: 512 }, b"\x11\xde\x11\xde"),
    ("a DRBD device", EndOf { unit: 4096, back: 4036 }, b"\x83\x74\x02\x6b"),
    ("a DRBD device", EndOf { unit: 4096, back: 4036 }, b"\x83\x74\x02\x67"),
    ("a Stratis pool's device", Start(516), b"!Stra0tis"),
    ("a bcache device", Start(0x1018), b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca"),
    ("a bcachefs filesystem", Start(0x1018), b"\xc6\x85\x73\xf6\x66\xce\x90\xa9"),
    ("a VDO device", Start(0), b"dmvdo001"),
    ("a dm-integrity device", Start(0), b"integrt\0"),
    ("a dm-verity device", Start(0), b"verity\0\0"),
    ("an Oracle ASM disk", Start(32), b"ORCLDISK"),
    ("a VMFS volume", Start(0x10_0000), b"\x0d\xd0\x01\xc0"),
    ("a VMFS filesystem", Start(0x20_0000), b"\x5e\xf1\xab\x2f"),
    ("a btrfs filesystem", Start(0x1_0040), b"_BHRfS_M"),
    ("an XFS filesystem", Start(0), b"XFSB"),
    ("an f2fs filesystem", Start(0x400), b"\x10\x20\xf5\xf2"),
    ("an ext2, ext3 or ext4 filesystem", Start(0x438), b"\x53\xef"),
    ("an erofs filesystem", Start(0x400), b"\xe2\xe1\xf5\xe0"),
    ("a squashfs filesystem", Start(0), b"hsqs"),
    ("a squashfs filesystem", Start(0), b"sqsh"),
    ("a cramfs filesystem", Start(0), b"\x45\x3d\xcd\x28"),
    ("a cramfs filesystem", Start(0), b"\x28\xcd\x3d\x45"),
    ("a romfs filesystem", Start(0), b"-rom1fs-"),
    ("a ReiserFS filesystem", Start(0x1_0034), b"ReIsEr"),
    ("a ReiserFS filesystem", Start(0x2034), b"ReIsEr"),
    ("a Reiser4 filesystem", Start(0x1_0000), b"ReIsEr4"),
    ("a JFS filesystem", Start(0x8000), b"JFS1"),
    ("a NILFS2 filesystem", Start(0x406), b"\x34\x34"),
    ("a NILFS2 filesystem", EndOf { unit: 4096, back: 4090 }, b"\x34\x34"),
    ("a GFS2 filesystem", Start(0x1_0000), b"\x01\x16\x19\x70"),
    ("an OCFS2 filesystem", Start(0x400), b"OCFSV2"),
    ("an OCFS2 filesystem", Start(0x800), b"OCFSV2"),
    ("an OCFS2 filesystem", Start(0x1000), b"OCFSV2"),
    ("an OCFS2 filesystem", Start(0x2000), b"OCFSV2"),
    ("an NTFS filesystem", Start(3), b"NTFS    "),
    ("an exFAT filesystem", Start(3), b"EXFAT   "),
    ("a ReFS filesystem", Start(3), b"ReFS\0\0\0\0"),
    ("a FAT filesystem", Start(82), b"FAT32   "),
    ("a FAT filesystem", Start(54), b"FAT16   "),
    ("a FAT filesystem", Start(54), b"FAT12   "),
    ("a FAT filesystem", Start(54), b"FAT     "),
    ("an APFS container", Start(32), b"NXSB"),
    ("an HFS+ filesystem", Start(0x400), b"H+\0\x04"),
    ("an HFS+ filesystem", Start(0x400), b"HX\0\x05"),
    ("an HFS filesystem", Start(0x400), b"BD"),
    ("an HPFS filesystem", Start(0x2000), b"\x49\xe8\x95\xf9"),
    ("a UFS filesystem", Start(0x255c), b"\x54\x19\x01\x00"),
    ("a UFS filesystem", Start(0x255c), b"\x00\x01\x19\x54"),
    ("a UFS filesystem", Start(0x1_055c), b"\x19\x01\x54\x19"),
    ("a UFS filesystem", Start(0x1_055c), b"\x19\x54\x01\x19"),
    ("a Minix filesystem", Start(0x410), b"\x7f\x13"),
    ("a Minix filesystem", Start(0x410), b"\x8f\x13"),
    ("a Minix filesystem", Start(0x410), b"\x68\x24"),
    ("a Minix filesystem", Start(0x410), b"\x78\x24"),
    ("a Minix filesystem", Start(0x418), b"\x5a\x4d"),
    ("a BFS filesystem", Start(0), b"\xce\xfa\xad\x1b"),
    ("a BeFS filesystem", Start(0x220), b"1SFB"),
    ("a VxFS filesystem", Start(0x400), b"\xf5\xfc\x01\xa5"),
    ("a UDF filesystem", Start(0x8001), b"BEA01"),
    ("a UDF filesystem", Start(0x8001), b"NSR0"),
    ("a UDF filesystem", Start(0x8801), b"NSR0"),
    ("an ISO 9660 filesystem", Start(0x8001), b"CD001"),
    ("a UBI volume", Start(0), b"UBI#"),
    ("a UBIFS filesystem", Start(0), b"\x31\x18\x10\x06"),
    ("a qcow2 image", Start(0), b"QFI\xfb"),
    ("a VMDK image", Start(0), b"KDMV"),
    ("a VHDX image", Start(0), b"vhdxfile"),
    ("a VHD image", EndOf { unit: 512, back: 512 }, b"conectix"),
    ("a GPT partition table", Start(512), b"EFI PART"),
    ("a GPT partition table", Start(4096), b"EFI PART"),
    ("the copy of a GPT partition table", EndOf { unit: 512, back: 512 }, b"EFI PART"),
    ("the copy of a GPT partition table", EndOf { unit: 4096, back: 4096 }, b"EFI PART"),
    ("a Sun disk label", Start(508), b"\xda\xbe"),
    ("an Apple partition map", Start(512), b"PM\0\0"),
    ("a BSD disk label", Start(512), b"\x57\x45\x56\x82"),
    ("a boot sector, or an MBR partition table", Start(510), b"\x55\xaa"),
];

/// Swap space has its signature at the end of the first page, whose size is the machine's.
const SWAP_PAGES: [u64; 5] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];
const SWAP_SIGNATURES: [&[u8]; 4] = [b"SWAPSPACE2", b"SWAP-SPACE", b"S1SUSPEND\0", b"S2SUSPEND\0"];

/// ZFS has four labels, two at each end, each with uberblocks in its second half. Which of them are written depends on the pool.
const ZFS_LABEL: u64 = 256 << 10;
const ZFS_UBERBLOCKS: u64 = 128;
const ZFS_UBERBLOCK: u64 = 1 << 10;
const ZFS_MAGIC: [&[u8]; 2] = [b"\x0c\xb1\xba\0\0\0\0\0", b"\0\0\0\0\0\xba\xb1\x0c"];

/// Bytes at each end in which all signatures are.
pub(crate) const END_BYTES: u64 = 4 << 20;

/// What a disk says that it is, and the byte where it says so. `read` gives the bytes from an offset on, as many as asked for;
/// none where the disk ends before.
pub(crate) fn find(bytes: u64, read: impl Fn(u64, usize) -> Option<Vec<u8>>) -> Option<(&'static str, u64)> {
    let is_there = |from: Place, magic: &[u8]| {
        let at = offset(from, bytes)?;
        (read(at, magic.len())? == magic).then_some(at)
    };
    all().find_map(|(name, from, magic)| is_there(from, magic).map(|at| (name, at)))
}

fn offset(from: Place, bytes: u64) -> Option<u64> {
    match from {
        Start(at) => Some(at),
        EndOf { unit, back } => (bytes / unit * unit).checked_sub(back),
    }
}

/// All signatures: those of the table before a boot sector's, those that are computed, and the rest.
fn all() -> impl Iterator<Item = Signature> {
    let swap = SWAP_PAGES.into_iter().flat_map(|page| {
        SWAP_SIGNATURES.map(|magic| ("swap space", Start(page - magic.len() as u64), magic))
    });
    let labels = [
        Start(0),
        Start(ZFS_LABEL),
        EndOf { unit: ZFS_LABEL, back: ZFS_LABEL },
        EndOf { unit: ZFS_LABEL, back: 2 * ZFS_LABEL },
    ];
    let zfs = labels.into_iter().flat_map(|label| {
        (0..ZFS_UBERBLOCKS).flat_map(move |nth| {
            let inside = ZFS_LABEL / 2 + nth * ZFS_UBERBLOCK;
            let from = match label {
                Start(at) => Start(at + inside),
                EndOf { unit, back } => EndOf { unit, back: back - inside },
            };
            ZFS_MAGIC.map(|magic| ("a member of a ZFS pool", from, magic))
        })
    });
    let (last, others) =
        SIGNATURES.split_last().map_or((None, &[][..]), |(last, others)| (Some(*last), others));
    others.iter().copied().chain(swap).chain(zfs).chain(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk of zeros with one signature is of that format, whatever its size.
    #[test]
    fn each_signature_alone_is_found() {
        for bytes in [16 << 20, (16 << 20) + 512, (16 << 20) + 65536 - 512_u64] {
            for (name, from, magic) in all() {
                let at = offset(from, bytes).unwrap();
                assert!(at + (magic.len() as u64) <= END_BYTES || at >= bytes - END_BYTES, "{name} at {at}");
                let read = |offset: u64, length: usize| {
                    let byte = |offset: u64| {
                        offset.checked_sub(at).and_then(|nth| magic.get(nth as usize)).copied().unwrap_or(0)
                    };
                    (offset + length as u64 <= bytes)
                        .then(|| (offset..offset + length as u64).map(byte).collect())
                };
                let found = find(bytes, read);
                assert!(found.is_some_and(|(_, found)| found == at), "{name} at {at}: {found:?}");
            }
        }
        assert_eq!(find(16 << 20, |_, length| Some(vec![0; length])), None);
        assert_eq!(find(0, |_, _| None), None);
    }
}
