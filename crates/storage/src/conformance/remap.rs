//! Commands that change what a block reads without writing it, and several writes in one (S7).

use super::content::{Subject, content};
use super::{Checked, Verdict};
use crate::address::{BLOCK_BYTES, Extent, Lba};
use crate::capability::Discard;
use crate::command::{Command, Part, SharePair, Write};
use crate::error::{Invalid, Rejected};

pub(super) async fn discard(subject: &Subject) -> Checked {
    if subject.able().discard == Discard::Unsupported {
        return Ok(Verdict::Skipped("the device has no discard"));
    }
    let all = Extent::new(Lba(8), 8);
    for block in all.iter() {
        subject.write(Extent::new(block, 1), 1).await?;
    }
    let holes = [Extent::new(Lba(13), 1), Extent::new(Lba(9), 2)];
    subject.carry_out(Command::Discard(&holes)).await?;
    for block in all.iter().map(|block| Extent::new(block, 1)) {
        if !holes.iter().any(|hole| hole.overlaps(block)) {
            subject.expect(block, 1).await?;
        } else if subject.able().discard == Discard::ReadsZero {
            subject.expect(block, 0).await?;
        } else {
            undefined(subject, block).await?;
        }
    }
    subject.write(Extent::new(Lba(9), 1), 2).await?;
    subject.expect(Extent::new(Lba(9), 1), 2).await?;
    Ok(Verdict::Holds)
}

/// Every tear unit reads what it ever held, or zeroes; the next read may see another choice.
async fn undefined(subject: &Subject, block: Extent) -> Result<(), String> {
    let bytes = subject.read(block).await?;
    let unit = subject.able().tear_unit_bytes as usize;
    let held = content(block, 1);
    let legal = bytes
        .chunks(unit)
        .zip(held.chunks(unit))
        .all(|(found, held)| found == held || found.iter().all(|&byte| byte == 0));
    if legal || !subject.fresh_reads_zero {
        return Ok(());
    }
    Err(format!("{block} were discarded and hold what was never there"))
}

pub(super) async fn share(subject: &Subject) -> Checked {
    if !subject.able().share {
        return Ok(Verdict::Skipped("the device has no share"));
    }
    let from = Extent::new(Lba(0), 2);
    subject.write(from, 1).await?;
    let data = content(from, 1);
    let near = pair(0, 20);
    let far = pair(1, subject.blocks() - 1);
    let pairs = [near, far];
    share_blocks(subject, &pairs).await?;
    // The source changes, the copies keep what they got.
    subject.write(from, 2).await?;
    subject.carry_out(Command::Flush).await?;
    for pair in &pairs {
        let at = pair.from.start.0 as usize * BLOCK_BYTES;
        reads(subject, pair.to, &data[at..at + BLOCK_BYTES]).await?;
    }
    subject.expect(from, 2).await?;
    chained_shares(subject).await?;
    Ok(Verdict::Holds)
}

fn pair(from: u64, to: u64) -> SharePair {
    SharePair { from: Extent::new(Lba(from), 1), to: Lba(to) }
}

async fn share_blocks(subject: &Subject, pairs: &[SharePair]) -> Result<(), String> {
    subject.carry_out(Command::Share(pairs)).await.map(drop)
}

async fn reads(subject: &Subject, block: Lba, data: &[u8]) -> Result<(), String> {
    if subject.read(Extent::new(block, 1)).await? == data {
        return Ok(());
    }
    Err(format!("{block} does not read what was shared to it"))
}

/// Blocks that are shared on, written, discarded and shared over, two that change places, and one with two sources.
async fn chained_shares(subject: &Subject) -> Result<(), String> {
    let [first, second] = [30, 31].map(|lba| Extent::new(Lba(lba), 1));
    let (ones, twos) = (content(first, 1), content(second, 2));
    subject.write(first, 1).await?;
    subject.write(second, 2).await?;
    share_blocks(subject, &[pair(30, 32)]).await?;
    share_blocks(subject, &[pair(32, 33), pair(31, 34)]).await?;
    // Over what is shared already, and from a block that loses what it gives.
    share_blocks(subject, &[pair(31, 32)]).await?;
    subject.write(second, 3).await?;
    for (block, data) in [(30, &ones), (32, &twos), (33, &ones), (34, &twos)] {
        reads(subject, Lba(block), data).await?;
    }
    subject.expect(second, 3).await?;
    share_blocks(subject, &[pair(30, 34), pair(34, 30)]).await?;
    reads(subject, Lba(30), &twos).await?;
    reads(subject, Lba(34), &ones).await?;
    // Of two pairs with one target, the last counts.
    share_blocks(subject, &[pair(30, 35), pair(34, 35)]).await?;
    reads(subject, Lba(35), &ones).await?;
    if subject.able().discard == Discard::ReadsZero {
        subject.carry_out(Command::Discard(&[Extent::new(Lba(33), 1)])).await?;
        share_blocks(subject, &[pair(33, 32)]).await?;
        subject.expect(Extent::new(Lba(32), 2), 0).await?;
    }
    Ok(())
}

pub(super) async fn packed(subject: &Subject) -> Checked {
    if !subject.able().packed {
        return Ok(Verdict::Skipped("the device has no packed writes"));
    }
    let blocks = (0..4).map(|i| Lba(3 * i));
    let extents = blocks.map(|block| Extent::new(block, 1)).collect::<Vec<_>>();
    let data = extents.iter().map(|&extent| content(extent, 1)).collect::<Vec<_>>();
    let parts = extents.iter().zip(&data).map(|(extent, data)| [Part::bytes(extent.start, data)]);
    let parts = parts.collect::<Vec<_>>();
    let writes = parts.iter().map(|parts| Write::new(parts)).collect::<Vec<_>>();
    subject.carry_out(Command::Packed(&writes)).await?;
    for &extent in &extents {
        subject.expect(extent, 1).await?;
    }
    let outside = [Part::bytes(Lba(subject.blocks()), &data[0])];
    match subject.storage.submit(Command::Packed(&[writes[0], Write::new(&outside)])) {
        Err(Rejected::Invalid(Invalid::OutOfRange(_) | Invalid::TooLarge { .. })) => Ok(Verdict::Holds),
        Err(other) => Err(format!("a packed write out of range was refused for another reason: {other}")),
        Ok(_) => Err("a packed write out of range was accepted".to_owned()),
    }
}
