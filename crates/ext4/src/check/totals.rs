//! Bitmaps and counts, against what was claimed and found.

use weir_format::{BLOCK_BYTES, FileType, ImageReader, Place, Structure};

use super::Problem;
use super::known::Known;
use super::subject::Subject;
use super::table::InodeState;
use crate::bitmap;
use crate::descriptor::{Descriptor, group_flags};

const BITS: u32 = BLOCK_BYTES as u32 * 8;

/// What the groups say and have, together.
#[derive(Default)]
struct Totals {
    blocks: u64,
    inodes: u64,
    /// A group could not be read.
    unknown: bool,
}

/// Compares bitmaps and counts with what was claimed and found.
pub(super) async fn check<R: ImageReader>(
    subject: &Subject<'_, R>,
    known: &mut Known,
) -> Result<(), R::Error> {
    let mut free = Totals::default();
    for group in 0..subject.layout.groups() {
        match subject.descriptors[group as usize] {
            Some(descriptor) => {
                free.blocks += blocks_of(subject, known, group, &descriptor).await?;
                free.inodes += inodes_of(subject, known, group, &descriptor).await?;
            }
            None => free.unknown = true,
        }
    }
    if !free.unknown && !subject.replayed && subject.copy.is_none() {
        let (blocks, inodes) = (subject.superblock.free_blocks(), subject.superblock.free_inodes.get());
        known.findings.count(Place::Block(0), "free blocks in the filesystem", blocks, free.blocks);
        known.findings.count(Place::Block(0), "free inodes in the filesystem", inodes.into(), free.inodes);
    }
    Ok(())
}

/// The block bitmap of a group, and its free blocks, whose number is returned.
async fn blocks_of<R: ImageReader>(
    subject: &Subject<'_, R>,
    known: &mut Known,
    group: u32,
    descriptor: &Descriptor,
) -> Result<u64, R::Error> {
    let place = Place::Group(group);
    let mut bits = subject.image.block(descriptor.block_bitmap()).await?;
    if descriptor.has_flag(group_flags::BLOCKS_UNINITIALISED) {
        subject.layout.fresh_block_bitmap(group, descriptor, &mut bits[..]);
    } else if let Err(error) = descriptor.verify_block_bitmap(&bits[..], group, &subject.layout) {
        known.findings.format_at(place, &error);
    }
    let mut wanted = Box::new([0; BLOCK_BYTES]);
    known.claims.bitmap(group, &mut wanted[..]);
    if known.blocks_unknown {
        for (wanted, stored) in wanted.iter_mut().zip(bits.iter()) {
            *wanted |= stored;
        }
    }
    compare(known, Structure::BlockBitmap, group, subject.layout.first_block(group), &bits, &wanted);
    let free = u64::from(bitmap::count_clear(&wanted[..], 0..BITS));
    known.findings.count(place, "free blocks", descriptor.free_blocks().into(), free);
    Ok(free)
}

/// The inode bitmap of a group, its directories, and its free inodes, whose number is returned.
async fn inodes_of<R: ImageReader>(
    subject: &Subject<'_, R>,
    known: &mut Known,
    group: u32,
    descriptor: &Descriptor,
) -> Result<u64, R::Error> {
    let place = Place::Group(group);
    let mut bits = subject.image.block(descriptor.inode_bitmap()).await?;
    if descriptor.has_flag(group_flags::INODES_UNINITIALISED) {
        subject.layout.fresh_inode_bitmap(&mut bits[..]);
    } else if let Err(error) = descriptor.verify_inode_bitmap(&bits[..], group, &subject.layout) {
        known.findings.format_at(place, &error);
    }
    let mut wanted = Box::new([0; BLOCK_BYTES]);
    subject.layout.fresh_inode_bitmap(&mut wanted[..]);
    let mut directories = 0;
    let records = known.table.group(group).unwrap_or_default();
    for (index, record) in (0..).zip(records) {
        let reserved = subject.layout.inode_at(group, index) < subject.superblock.first_inode.get();
        let used = match record.state {
            InodeState::Used(kind) => {
                directories += u64::from(kind == FileType::Directory);
                true
            }
            InodeState::Unknown => bitmap::is_set(&bits[..], index),
            InodeState::Free => reserved,
        };
        if used {
            bitmap::set(&mut wanted[..], index..index + 1);
        }
    }
    let unknown = records.iter().any(|record| record.state == InodeState::Unknown);
    let first = u64::from(subject.layout.inode_at(group, 0));
    compare(known, Structure::InodeBitmap, group, first, &bits, &wanted);
    let free = u64::from(bitmap::count_clear(&wanted[..], 0..BITS));
    known.findings.count(place, "free inodes", descriptor.free_inodes().into(), free);
    if !unknown {
        known.findings.count(place, "directories", descriptor.directories().into(), directories);
    }
    Ok(free)
}

fn compare(
    known: &mut Known,
    structure: Structure,
    group: u32,
    first: u64,
    stored: &[u8; BLOCK_BYTES],
    wanted: &[u8; BLOCK_BYTES],
) {
    let mut too_many = [0; BLOCK_BYTES];
    let mut too_few = [0; BLOCK_BYTES];
    for at in 0..BLOCK_BYTES {
        too_many[at] = stored[at] & !wanted[at];
        too_few[at] = wanted[at] & !stored[at];
    }
    let count = |bits: &[u8]| BITS - bitmap::count_clear(bits, 0..BITS);
    let start = |bits: &[u8]| first + u64::from(bitmap::next_set(bits, 0..BITS).unwrap_or(0));
    let place = Place::Group(group);
    if count(&too_many) > 0 {
        let (first, count) = (start(&too_many), count(&too_many));
        known.findings.push(place, Problem::MarkedUsed { structure, first, count });
    }
    if count(&too_few) > 0 {
        let (first, count) = (start(&too_few), count(&too_few));
        known.findings.push(place, Problem::MarkedFree { structure, first, count });
    }
}
