//! What must be refused, and how.

use super::content::{Subject, content};
use super::{CONFORMANCE_BLOCKS_MIN, CONFORMANCE_SHARE_MIN, CONFORMANCE_TRANSFER_MIN, Checked, Verdict};
use crate::address::{BLOCK_BYTES, Extent, Lba};
use crate::capability::Discard;
use crate::command::{Command, Data, Part, Priority, SharePair, StreamId, Write, WriteFlags};
use crate::error::{Feature, Invalid, Rejected};

pub(super) fn description(subject: &Subject) -> Checked {
    let able = subject.able();
    let blocks = subject.blocks();
    if blocks < CONFORMANCE_BLOCKS_MIN {
        return Err(format!(
            "{blocks} blocks are too few to check; make it {CONFORMANCE_BLOCKS_MIN} or more"
        ));
    }
    if able.queue_depth == 0 {
        return Err("a queue depth of 0 takes no command at all".to_owned());
    }
    if able.max_transfer_blocks < CONFORMANCE_TRANSFER_MIN {
        let limit = able.max_transfer_blocks;
        return Err(format!(
            "{limit} blocks a command are too few; make it {CONFORMANCE_TRANSFER_MIN} or more"
        ));
    }
    if able.share && able.max_share_blocks < CONFORMANCE_SHARE_MIN {
        let limit = able.max_share_blocks;
        return Err(format!("{limit} blocks a share are too few; make it {CONFORMANCE_SHARE_MIN} or more"));
    }
    if ![512, 4096].contains(&able.tear_unit_bytes) {
        return Err(format!("a tear unit of {} bytes; it is 512 or 4096", able.tear_unit_bytes));
    }
    if able.atomic_blocks > able.max_transfer_blocks {
        return Err("writes larger than the largest transfer cannot be atomic".to_owned());
    }
    Ok(Verdict::Holds)
}

/// The command must be refused, with an error that `fits`.
fn refuse(
    subject: &Subject,
    name: &str,
    command: Command<'_>,
    fits: impl Fn(Invalid) -> bool,
) -> Result<(), String> {
    match subject.storage.submit(command) {
        Err(Rejected::Invalid(how)) if fits(how) => Ok(()),
        Err(other) => Err(format!("{name} was refused for another reason: {other}")),
        Ok(_) => Err(format!("{name} was accepted")),
    }
}

pub(super) async fn bounds(subject: &Subject) -> Checked {
    let last = Extent::new(Lba(subject.blocks() - 1), 1);
    subject.write(Extent::new(Lba(0), 2), 1).await?;
    subject.write(last, 1).await?;
    // More rounds than slots: a refused command that kept its slot would block the queue.
    for _ in 0..=subject.able().queue_depth {
        out_of_range(subject)?;
        not_whole_blocks(subject)?;
        malformed(subject)?;
    }
    too_large(subject)?;
    subject.expect(Extent::new(Lba(0), 2), 1).await?;
    subject.expect(last, 1).await?;
    Ok(Verdict::Holds)
}

fn out_of_range(subject: &Subject) -> Result<(), String> {
    let blocks = subject.blocks();
    let two = content(Extent::new(Lba(0), 2), 9);
    let one = &two[..BLOCK_BYTES];
    let outside = |how| matches!(how, Invalid::OutOfRange(_));
    for extent in [
        Extent::new(Lba(blocks), 1),
        Extent::new(Lba(blocks - 1), 2),
        Extent::new(Lba(u64::MAX), 1),
        Extent::new(Lba(u64::MAX / BLOCK_BYTES as u64 + 1), 1),
    ] {
        refuse(subject, &format!("a read of {extent}"), Command::read(extent), outside)?;
        let parts = [Part::bytes(Lba(0), one), Part::bytes(extent.start, &two[..extent.bytes()])];
        refuse(subject, &format!("a write of {extent}"), Command::Write(Write::new(&parts)), outside)?;
        if subject.able().discard != Discard::Unsupported {
            let extents = [Extent::new(Lba(0), 1), extent];
            refuse(subject, &format!("a discard of {extent}"), Command::Discard(&extents), outside)?;
        }
        if subject.able().share {
            let to = [SharePair { from: Extent::new(Lba(2), extent.blocks), to: extent.start }];
            refuse(subject, &format!("a share to {extent}"), Command::Share(&to), outside)?;
            let from = [SharePair { from: extent, to: Lba(0) }];
            refuse(subject, &format!("a share from {extent}"), Command::Share(&from), outside)?;
        }
    }
    Ok(())
}

fn not_whole_blocks(subject: &Subject) -> Result<(), String> {
    let two = content(Extent::new(Lba(0), 2), 9);
    let broken = |how| matches!(how, Invalid::NotWholeBlocks(_));
    refuse(subject, "a read of no blocks", Command::read(Extent::new(Lba(0), 0)), broken)?;
    refuse(subject, "a write of no parts", Command::Write(Write::new(&[])), broken)?;
    for bytes in [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES + 1] {
        let parts = [Part::bytes(Lba(1), &two[..BLOCK_BYTES]), Part::bytes(Lba(0), &two[..bytes])];
        refuse(subject, &format!("a part of {bytes} bytes"), Command::Write(Write::new(&parts)), broken)?;
    }
    let buffer = subject.storage.allocate(BLOCK_BYTES).into();
    for (offset, bytes) in [(BLOCK_BYTES, BLOCK_BYTES), (0, 2 * BLOCK_BYTES), (usize::MAX, BLOCK_BYTES)] {
        let part = Part { start: Lba(0), data: Data::Shared { buffer: &buffer, offset, bytes } };
        refuse(subject, "a part outside its buffer", Command::Write(Write::new(&[part])), broken)?;
    }
    Ok(())
}

fn malformed(subject: &Subject) -> Result<(), String> {
    let two = content(Extent::new(Lba(0), 2), 9);
    let twice = |how| matches!(how, Invalid::Overlap(_));
    let parts = [Part::bytes(Lba(0), &two), Part::bytes(Lba(1), &two[..BLOCK_BYTES])];
    refuse(subject, "a write with overlapping parts", Command::Write(Write::new(&parts)), twice)?;
    let urgent = Write { priority: Priority::HeadOfQueue, ..Write::new(&parts[..1]) };
    let unfit = |how| how == Invalid::HeadOfQueueWrite;
    refuse(subject, "a head-of-queue write", Command::Write(urgent), unfit)?;
    if subject.able().share {
        let onto_itself = [SharePair { from: Extent::new(Lba(0), 2), to: Lba(1) }];
        refuse(subject, "a share onto itself", Command::Share(&onto_itself), twice)?;
    }
    Ok(())
}

fn too_large(subject: &Subject) -> Result<(), String> {
    let limit = subject.able().max_transfer_blocks;
    if u64::from(limit) >= subject.blocks() {
        return Ok(());
    }
    let large = |how| matches!(how, Invalid::TooLarge { .. });
    if subject.able().share {
        let from = Extent::new(Lba(0), subject.able().max_share_blocks.saturating_add(1));
        let pairs = [SharePair { from, to: Lba(0) }];
        refuse(subject, "a share beyond the largest", Command::Share(&pairs), large)?;
    }
    let extent = Extent::new(Lba(0), limit + 1);
    refuse(subject, "a read beyond the largest transfer", Command::read(extent), large)?;
    let data = content(extent, 9);
    let (front, back) = data.split_at(BLOCK_BYTES);
    let parts = [Part::bytes(Lba(1), back), Part::bytes(Lba(0), front)];
    refuse(subject, "a write beyond the largest transfer", Command::Write(Write::new(&parts)), large)
}

pub(super) async fn features(subject: &Subject) -> Checked {
    let able = subject.able();
    let data = content(Extent::new(Lba(0), 1), 1);
    let parts = [Part::bytes(Lba(0), &data)];
    let plain = Write::new(&parts);
    let none = WriteFlags::default();
    let flagged = |flags| Command::Write(Write { flags, ..plain });
    let pairs = [SharePair { from: Extent::new(Lba(0), 1), to: Lba(1) }];
    for (feature, has, command) in [
        (Feature::Barrier, able.barriers(), flagged(WriteFlags { barrier: true, ..none })),
        (Feature::Barrier, able.barriers(), Command::Barrier { stream: StreamId(0) }),
        (Feature::Fua, able.fua, flagged(WriteFlags { fua: true, ..none })),
        (Feature::Preflush, able.preflush, flagged(WriteFlags { preflush: true, ..none })),
        (Feature::Reliable, able.reliable, flagged(WriteFlags { reliable: true, ..none })),
        (
            Feature::OrderedService,
            able.ordered_service,
            Command::Write(Write { priority: Priority::Ordered, ..plain }),
        ),
        (Feature::Discard, able.discard != Discard::Unsupported, Command::Discard(&[Extent::new(Lba(1), 1)])),
        (Feature::Share, able.share, Command::Share(&pairs)),
        (Feature::Packed, able.packed, Command::Packed(&[plain])),
    ] {
        if has {
            subject.carry_out(command).await.map_err(|e| format!("{feature}: {e}"))?;
            continue;
        }
        match subject.storage.submit(command) {
            Err(Rejected::Unsupported(named)) if named == feature => {}
            Err(other) => return Err(format!("{feature}: refused for another reason: {other}")),
            Ok(_) => return Err(format!("{feature}: accepted by a device that says it cannot")),
        }
    }
    let urgent = Command::Read { extent: Extent::new(Lba(0), 1), priority: Priority::HeadOfQueue };
    subject.carry_out(urgent).await?;
    Ok(Verdict::Holds)
}
