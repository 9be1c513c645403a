//! Superblock, descriptors, their copies, and the blocks that groups need for themselves.

use std::collections::BTreeSet;

use weir_format::{BLOCK_BYTES, FormatError, ImageReader, Place, Structure};

use super::Problem;
use super::finding::Findings;
use super::known::Known;
use super::overlay::Overlay;
use super::subject::Subject;
use super::table::GroupState;
use crate::descriptor::{Descriptor, group_flags};
use crate::features::Feature;
use crate::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_COPIES, SUPERBLOCK_OFFSET, Superblock};

/// The magic number, and where it is in block 0.
const MAGIC: [u8; 2] = 0xEF53_u16.to_le_bytes();
const MAGIC_AT: usize = SUPERBLOCK_OFFSET + 0x38;

/// The superblock in block 0.
pub(super) async fn primary<R: ImageReader>(
    image: &Overlay<'_, R>,
) -> Result<Result<Superblock, FormatError>, R::Error> {
    Ok(Superblock::read(&image.block(0).await?[SUPERBLOCK_OFFSET..]))
}

/// The superblock, or a copy if it is damaged, with the block of the copy; `None` if there is none, which is a
/// finding, too.
pub(super) async fn read_superblock<R: ImageReader>(
    image: &Overlay<'_, R>,
    findings: &mut Findings,
) -> Result<Option<(Superblock, Option<u64>)>, R::Error> {
    let error = match primary(image).await? {
        Ok(superblock) => return Ok(Some((superblock, None))),
        Err(error) => error,
    };
    let mut copy = None;
    for block in SUPERBLOCK_COPIES.into_iter().filter(|block| *block < image.blocks()) {
        let read = Superblock::read(&image.block(block).await?[..SUPERBLOCK_BYTES]);
        copy = copy.or(read.ok().map(|superblock| (superblock, Some(block))));
    }
    // Without a copy to tell, what cannot be read may be whole, and of another kind.
    let damaged = matches!(error, FormatError::Checksum { .. } | FormatError::Corrupt { .. });
    let named = image.block(0).await?[MAGIC_AT..].starts_with(&MAGIC);
    if copy.is_none() && !(damaged && named) {
        return Err(error.into());
    }
    findings.format(&error);
    Ok(copy)
}

/// The groups of a filesystem.
struct Groups<'a, 's, R> {
    subject: &'a mut Subject<'s, R>,
    known: &'a mut Known,
}

/// Looks at all that lies in a fixed place, and claims it.
pub(super) async fn check<R: ImageReader>(
    subject: &mut Subject<'_, R>,
    known: &mut Known,
) -> Result<(), R::Error> {
    Groups { subject, known }.all().await
}

impl<R: ImageReader> Groups<'_, '_, R> {
    async fn all(&mut self) -> Result<(), R::Error> {
        self.superblock_fields();
        for group in 0..self.subject.layout.groups() {
            let base = u64::from(self.subject.layout.base_blocks(group));
            self.known.claim(Place::Group(group), self.subject.layout.first_block(group), base);
        }
        for group in 0..self.subject.layout.groups() {
            self.group(group).await?;
        }
        for group in 1..self.subject.layout.groups() {
            if self.subject.layout.has_superblock(group) {
                self.check_superblock_copy(group).await?;
            }
        }
        self.check_descriptor_copies().await
    }

    fn superblock_fields(&mut self) {
        let superblock = &self.subject.superblock;
        let features = superblock.features();
        let reserve = superblock.reserved_descriptor_blocks.get();
        let wrong = [
            (superblock.reserved_blocks() > superblock.blocks() / 2, "number of reserved blocks"),
            (self.subject.copy.is_none() && superblock.group.get() != 0, "number of its group"),
            (
                reserve > 0 && !features.has(Feature::RESIZE_INODE),
                "a reserve of descriptors without resize_inode",
            ),
            (usize::from(reserve) > BLOCK_BYTES / 4, "a larger reserve of descriptors than an inode holds"),
            (
                features.has(Feature::NEEDS_RECOVERY) && !features.has(Feature::HAS_JOURNAL),
                "it asks for the recovery of a journal that it has not",
            ),
        ];
        let (clean, errors) = (superblock.is_clean(), superblock.has_errors());
        for (_, what) in wrong.into_iter().filter(|(wrong, _)| *wrong) {
            self.known.findings.damaged(Place::Block(0), Structure::Superblock, what);
        }
        if errors {
            self.known.findings.push(Place::Block(0), Problem::ErrorsNoted);
        } else if !clean && !self.subject.replayed && self.subject.copy.is_none() {
            self.known.findings.push(Place::Block(0), Problem::NotClean);
        }
    }

    /// Reads the descriptor of a group, and claims its bitmaps and its inode table.
    async fn group(&mut self, group: u32) -> Result<(), R::Error> {
        let place = Place::Group(group);
        let read = match self.subject.layout.descriptor_place(group) {
            Ok((block, range)) => {
                Descriptor::read(&self.subject.image.block(block).await?[range], group, &self.subject.layout)
            }
            Err(error) => Err(error),
        };
        let descriptor = match read {
            Ok(descriptor) => descriptor,
            Err(error) => {
                self.known.findings.format_at(place, &error);
                self.lose_group(group);
                return Ok(());
            }
        };
        let table = u64::from(self.subject.layout.table_blocks());
        let bitmaps = self.known.claim(place, descriptor.block_bitmap(), 1)
            & self.known.claim(place, descriptor.inode_bitmap(), 1);
        // A table that is also something else would be read as nonsense, and as often as groups share it.
        if !self.known.claim(place, descriptor.inode_table(), table) || !bitmaps {
            self.lose_group(group);
            return Ok(());
        }
        let features = self.subject.superblock.features();
        let lazy = features.has(Feature::METADATA_CSUM) || features.has(Feature::UNINIT_BG);
        let known =
            group_flags::INODES_UNINITIALISED | group_flags::BLOCKS_UNINITIALISED | group_flags::TABLE_ZEROED;
        if descriptor.flags.get() & !known != 0 {
            self.known.findings.damaged(place, Structure::Descriptor, "unknown flags");
        }
        // Without checksums of descriptors, all bitmaps and tables are written.
        let mut descriptor = descriptor;
        if !lazy {
            descriptor.flags = 0.into();
            descriptor.set_unused_inodes(0);
        }
        self.subject.descriptors.push(Some(descriptor));
        Ok(())
    }

    fn lose_group(&mut self, group: u32) {
        self.subject.descriptors.push(None);
        self.known.table.set_group(group, GroupState::Unknown);
        self.known.blocks_unknown = true;
        self.known.names_unknown = true;
    }

    /// The copy at the start of a group. Counts and flags in copies are as old as the last change of the
    /// filesystem's size, so only what never changes is compared.
    async fn check_superblock_copy(&mut self, group: u32) -> Result<(), R::Error> {
        let first = self.subject.layout.first_block(group);
        let bytes = self.subject.image.block(first).await?;
        let same = |copy: Superblock| {
            let own = &self.subject.superblock;
            copy.blocks() == own.blocks()
                && copy.inodes == own.inodes
                && copy.inodes_per_group == own.inodes_per_group
                && copy.blocks_per_group == own.blocks_per_group
                && copy.uuid == own.uuid
                && u32::from(copy.group.get()) == group & 0xFFFF
        };
        if !Superblock::read(&bytes[..SUPERBLOCK_BYTES]).is_ok_and(same) {
            self.known.findings.push(Place::Group(group), Problem::CopyDiffers(Structure::Superblock));
        }
        Ok(())
    }

    /// The copies of the descriptors, of which the same is compared.
    async fn check_descriptor_copies(&mut self) -> Result<(), R::Error> {
        let layout = self.subject.layout;
        let size = layout.descriptor_bytes();
        let a_block = BLOCK_BYTES / size;
        let mut differ = BTreeSet::new();
        for index in 0..layout.descriptor_blocks() {
            for at in layout.descriptor_copies(index) {
                let bytes = self.subject.image.block(at).await?;
                let own = self.subject.descriptors.iter().enumerate().skip(index as usize * a_block);
                for (bytes, (of, own)) in bytes.chunks_exact(size).zip(own) {
                    let Some(own) = own else { continue };
                    let copy = Descriptor::read(bytes, of as u32, &layout);
                    let is_same = copy.is_ok_and(|copy| {
                        copy.block_bitmap() == own.block_bitmap()
                            && copy.inode_bitmap() == own.inode_bitmap()
                            && copy.inode_table() == own.inode_table()
                    });
                    differ.extend(layout.group_of(at).filter(|_| !is_same));
                }
            }
        }
        for group in differ {
            self.known.findings.push(Place::Group(group), Problem::CopyDiffers(Structure::Descriptor));
        }
        Ok(())
    }
}
