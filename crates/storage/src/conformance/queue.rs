//! The queue: its depth, tickets, flush, FUA, barriers, ordered service.

use std::time::Duration;

use super::content::{Subject, content, found, holds, transferred};
use super::{Checked, Verdict};
use crate::address::{Extent, Lba};
use crate::command::{Command, Part, Priority, StreamId, Write, WriteFlags};
use crate::error::{Rejected, StorageError};
use crate::ticket::Ticket;

pub(super) async fn depth(subject: &Subject) -> Checked {
    let depth = subject.able().queue_depth as usize;
    let blocks = subject.blocks().min(64);
    for block in 0..blocks {
        subject.write(Extent::new(Lba(block), 1), 1).await?;
    }
    let mut reads: Vec<(Extent, Ticket)> = Vec::new();
    for i in 0..4 * depth as u64 {
        let extent = Extent::new(Lba(i % blocks), 1);
        let ticket = loop {
            match subject.storage.submit(Command::read(extent)) {
                Ok(ticket) => break ticket,
                Err(Rejected::Busy) => subject.storage.slots().listen().await,
                Err(other) => return Err(format!("a valid read was refused: {other}")),
            }
        };
        reads.push((extent, ticket));
        let in_flight = reads.iter().filter(|(_, ticket)| ticket.poll_transferred().is_none()).count();
        if in_flight > depth {
            return Err(format!("{in_flight} commands in flight in a queue of {depth}"));
        }
    }
    for (extent, ticket) in reads {
        transferred(&ticket, Command::read(extent)).await?;
        holds(&found(&ticket, extent)?, extent, 1)?;
    }
    Ok(Verdict::Holds)
}

pub(super) async fn tickets(subject: &Subject) -> Checked {
    let extent = Extent::new(Lba(0), 1);
    let data = content(extent, 1);
    let parts = [Part::bytes(extent.start, &data)];
    let ticket = subject.carry_out(Command::Write(Write::new(&parts))).await?;
    if ticket.clone().poll_transferred() != Some(Ok(())) {
        return Err("a transferred ticket's clone does not say so".to_owned());
    }
    let read = subject.carry_out(Command::read(extent)).await?;
    holds(&found(&read, extent)?, extent, 1)?;
    if read.take_data().is_some() {
        return Err("the data of a read was handed out twice".to_owned());
    }
    dropped(subject).await
}

/// The tickets of these writes are dropped; they are carried out all the same.
async fn dropped(subject: &Subject) -> Checked {
    let extents = (0..16).map(|i| Extent::new(Lba(2 * i), 1)).collect::<Vec<_>>();
    for &extent in &extents {
        subject.write(extent, 1).await?;
    }
    for &extent in &extents {
        let data = content(extent, 2);
        drop(subject.submit(Command::Write(Write::new(&[Part::bytes(extent.start, &data)]))).await?);
        drop(subject.submit(Command::read(Extent::new(extent.end(), 1))).await?);
        drop(subject.submit(Command::Flush).await?);
    }
    for &extent in &extents {
        // Without its ticket only its effect tells when a write was serviced.
        while subject.expect(extent, 2).await.is_err() {
            subject.sleep(Duration::from_millis(1)).await;
        }
    }
    Ok(Verdict::Holds)
}

pub(super) async fn flush(subject: &Subject) -> Checked {
    subject.carry_out(Command::Flush).await?;
    let mut writes = Vec::new();
    for block in 0..8 {
        let extent = Extent::new(Lba(block), 1);
        let data = content(extent, 1);
        let part = [Part::bytes(extent.start, &data)];
        writes.push(subject.carry_out(Command::Write(Write::new(&part))).await?);
    }
    let mut flushes = Vec::new();
    for _ in 0..4 {
        flushes.push(subject.submit(Command::Flush).await?);
    }
    for ticket in &flushes {
        transferred(ticket, Command::Flush).await?;
    }
    for write in &writes {
        match write.durable().await {
            Ok(()) => {}
            Err(StorageError::DurabilityUnknown) if !subject.able().durable_tickets => {}
            Err(other) => return Err(format!("after a flush a write before it is not durable: {other}")),
        }
    }
    subject.expect(Extent::new(Lba(0), 1), 1).await?;
    Ok(Verdict::Holds)
}

pub(super) async fn fua(subject: &Subject) -> Checked {
    if !subject.able().fua {
        return Ok(Verdict::Skipped("the device has no FUA"));
    }
    let flags = WriteFlags { fua: true, ..WriteFlags::default() };
    for (version, blocks) in (1..).zip([1, 4]) {
        let extent = Extent::new(Lba(3), blocks);
        let data = content(extent, version);
        let parts = [Part::bytes(extent.start, &data)];
        let command = Command::Write(Write { flags, ..Write::new(&parts) });
        let ticket = subject.carry_out(command).await?;
        ticket.durable().await.map_err(|e| format!("a FUA write is complete and not durable: {e}"))?;
        subject.expect(extent, version).await?;
    }
    Ok(Verdict::Holds)
}

pub(super) async fn barrier(subject: &Subject) -> Checked {
    if !subject.able().barriers() {
        return Ok(Verdict::Skipped("the device has no barriers"));
    }
    let flags = WriteFlags { barrier: true, ..WriteFlags::default() };
    let barrier = Command::Barrier { stream: StreamId(0) };
    let mut tickets = vec![subject.submit(barrier).await?];
    for block in 0..8 {
        let extent = Extent::new(Lba(block), 1);
        let data = content(extent, 1);
        let parts = [Part::bytes(extent.start, &data)];
        let flags = if block % 2 == 0 { flags } else { WriteFlags::default() };
        tickets.push(subject.submit(Command::Write(Write { flags, ..Write::new(&parts) })).await?);
        if block % 3 == 0 {
            tickets.push(subject.submit(barrier).await?);
        }
    }
    for ticket in &tickets {
        transferred(ticket, barrier).await?;
    }
    for block in 0..8 {
        subject.expect(Extent::new(Lba(block), 1), 1).await?;
    }
    subject.carry_out(Command::Flush).await?;
    Ok(Verdict::Holds)
}

pub(super) async fn ordered_service(subject: &Subject) -> Checked {
    if !subject.able().ordered_service {
        return Ok(Verdict::Skipped("the device has no ordered service"));
    }
    let extent = Extent::new(Lba(5), 1);
    let last = 4 * u64::from(subject.able().queue_depth).min(16);
    let mut tickets = Vec::new();
    for version in 1..=last {
        let data = content(extent, version);
        let parts = [Part::bytes(extent.start, &data)];
        // Overlaps need an ordered command between them only: every other one may be simple.
        let priority = if version % 2 == 0 { Priority::Ordered } else { Priority::Simple };
        tickets.push(subject.submit(Command::Write(Write { priority, ..Write::new(&parts) })).await?);
    }
    for ticket in &tickets {
        transferred(ticket, Command::Flush).await?;
    }
    subject.expect(extent, last).await?;
    Ok(Verdict::Holds)
}
