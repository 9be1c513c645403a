//! What was written is what is read: sizes, parts, submission, many at once.

use std::rc::Rc;

use super::content::{Subject, content, found, holds, transferred};
use super::{Checked, Verdict};
use crate::address::{BLOCK_BYTES, Extent, Lba};
use crate::command::{Command, Data, Part, Write};

/// Blocks that the concurrency check covers at most.
const WINDOW_BLOCKS: u64 = 1024;

pub(super) async fn fresh(subject: &Subject) -> Checked {
    if !subject.fresh_reads_zero {
        return Ok(Verdict::Skipped("a fresh storage may hold anything"));
    }
    let blocks = subject.blocks();
    for extent in
        [Extent::new(Lba(0), 1), Extent::new(Lba(blocks - 1), 1), largest(subject, Lba(0)), any(subject)]
    {
        subject.expect(extent, 0).await?;
    }
    // A write must not drag its neighbours along.
    subject.write(Extent::new(Lba(7), 1), 1).await?;
    subject.expect(Extent::new(Lba(6), 1), 0).await?;
    subject.expect(Extent::new(Lba(8), 1), 0).await?;
    Ok(Verdict::Holds)
}

pub(super) async fn read_back(subject: &Subject) -> Checked {
    let last = Lba(subject.blocks() - 1);
    for (version, extent) in (1..).zip([
        Extent::new(Lba(0), 1),
        Extent::new(last, 1),
        largest(subject, Lba(0)),
        largest(subject, Lba(last.0 + 1 - u64::from(largest(subject, Lba(0)).blocks))),
        any(subject),
        Extent::new(Lba(0), 1),
    ]) {
        subject.write(extent, version).await?;
        subject.expect(extent, version).await?;
        // The second look may come from somewhere else than the first.
        subject.expect(extent, version).await?;
    }
    Ok(Verdict::Holds)
}

pub(super) async fn parts(subject: &Subject) -> Checked {
    let most = u64::from(subject.able().max_transfer_blocks).min(subject.blocks());
    // Far apart and descending; adjacent; adjacent and descending. Each as long as the device takes.
    let far = (0..most.min(8)).rev().map(|i| Lba(i * (subject.blocks() / most.min(8)))).collect::<Vec<_>>();
    let adjacent = (0..most).map(Lba).collect::<Vec<_>>();
    let descending = adjacent.iter().rev().copied().collect::<Vec<_>>();
    for (version, blocks) in (1..).zip([far, adjacent, descending]) {
        let data = blocks.iter().map(|&block| content(Extent::new(block, 1), version)).collect::<Vec<_>>();
        let parts =
            blocks.iter().zip(&data).map(|(&block, data)| Part::bytes(block, data)).collect::<Vec<_>>();
        subject.carry_out(Command::Write(Write::new(&parts))).await?;
        for &block in &blocks {
            subject.expect(Extent::new(block, 1), version).await?;
        }
    }
    Ok(Verdict::Holds)
}

/// S6. One page is used again for every write, at once.
pub(super) async fn as_submitted(subject: &Subject) -> Checked {
    let count = subject.blocks().min(u64::from(subject.able().queue_depth)).min(32);
    let mut page = content(Extent::new(Lba(0), 1), 1);
    let mut tickets = Vec::new();
    for block in (0..count).map(Lba) {
        page.copy_from_slice(&content(Extent::new(block, 1), 1));
        let part = [Part::bytes(block, &page)];
        tickets.push(subject.submit(Command::Write(Write::new(&part))).await?);
        page.fill(0xa5);
    }
    for ticket in &tickets {
        transferred(ticket, Command::Write(Write::new(&[]))).await?;
    }
    subject.expect(Extent::new(Lba(0), count as u32), 1).await?;
    shared(subject).await
}

/// S6, with frozen buffers: the storage's share keeps them alive, whole and in pieces.
async fn shared(subject: &Subject) -> Checked {
    let four = Extent::new(Lba(8), 4);
    for (version, order) in (2..).zip([[0, 1, 2, 3], [3, 1, 0, 2]]) {
        let mut buffer = subject.storage.allocate(four.bytes());
        if buffer.len() != four.bytes() || buffer.iter().any(|&byte| byte != 0) {
            return Err("an allocated buffer is not zeroed memory of the length asked for".to_owned());
        }
        buffer.copy_from_slice(&content(four, version));
        let buffer = Rc::new(buffer);
        let parts = order.map(|i| Part {
            start: four.start.offset(i as u64),
            data: Data::Shared { buffer: &buffer, offset: i * BLOCK_BYTES, bytes: BLOCK_BYTES },
        });
        let ticket = subject.submit(Command::Write(Write::new(&parts))).await?;
        drop(buffer);
        transferred(&ticket, Command::Write(Write::new(&[]))).await?;
        subject.expect(four, version).await?;
    }
    Ok(Verdict::Holds)
}

pub(super) async fn concurrency(subject: &Subject) -> Checked {
    let window = subject.blocks().min(WINDOW_BLOCKS);
    let base = Lba(subject.blocks() - window);
    let mut extents = pieces(subject, base, window);
    subject.shuffle(&mut extents);
    write_all(subject, &extents, 1).await?;
    subject.shuffle(&mut extents);
    let (again, left) = extents.split_at(extents.len() / 2);
    let mut reads = Vec::new();
    for &extent in left {
        reads.push((extent, subject.submit(Command::read(extent)).await?));
    }
    write_all(subject, again, 2).await?;
    for (extent, ticket) in reads {
        transferred(&ticket, Command::read(extent)).await?;
        holds(&found(&ticket, extent)?, extent, 1)?;
    }
    for (version, extents) in [(1, left), (2, again)] {
        for &extent in extents {
            subject.expect(extent, version).await?;
        }
    }
    Ok(Verdict::Holds)
}

/// Writes all extents, none waiting for another, sometimes two in one command.
async fn write_all(subject: &Subject, extents: &[Extent], version: u64) -> Result<(), String> {
    let mut tickets = Vec::new();
    for pair in extents.chunks(2) {
        let data = pair.iter().map(|&extent| content(extent, version)).collect::<Vec<_>>();
        let parts =
            pair.iter().zip(&data).map(|(extent, data)| Part::bytes(extent.start, data)).collect::<Vec<_>>();
        let blocks = pair.iter().map(|extent| extent.blocks).sum::<u32>();
        let together = blocks <= subject.able().max_transfer_blocks && subject.below(2) == 0;
        for parts in parts.chunks(if together { 2 } else { 1 }) {
            tickets.push(subject.submit(Command::Write(Write::new(parts))).await?);
        }
    }
    for ticket in &tickets {
        transferred(ticket, Command::Write(Write::new(&[]))).await?;
    }
    Ok(())
}

/// The window, cut into pieces of 1 to 16 blocks.
fn pieces(subject: &Subject, base: Lba, window: u64) -> Vec<Extent> {
    let most = u64::from(subject.able().max_transfer_blocks).min(16);
    let mut extents = Vec::new();
    let mut at = 0;
    while at < window {
        let blocks = (1 + subject.below(most)).min(window - at);
        extents.push(Extent::new(base.offset(at), blocks as u32));
        at += blocks;
    }
    extents
}

/// The largest transfer that fits.
fn largest(subject: &Subject, start: Lba) -> Extent {
    Extent::new(start, u64::from(subject.able().max_transfer_blocks).min(subject.blocks()) as u32)
}

fn any(subject: &Subject) -> Extent {
    Extent::new(Lba(subject.below(subject.blocks() - 2)), 2)
}
