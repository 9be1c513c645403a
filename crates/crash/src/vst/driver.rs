//! The *driver* of virtual stress testing: submits a trace's requests, and compares what it reads.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use thiserror::Error;
use weir_flash::FlashDevice;
use weir_storage::{
    BLOCK_BYTES, Command, Extent, Lba, Part, Rejected, Storage, Ticket, Write, submit_when_free,
};

use super::{Found, SECTOR_BYTES, SECTORS_PER_BLOCK, VstCampaign, VstRequest};

/// Where no power is cut, the whole device is compared when so many bytes more were written.
const COMPARE_BYTES: u64 = 4 << 30;

/// Submits the requests, as many at a time as the device takes and do not overlap (S6).
pub(super) struct Driver<'a> {
    campaign: &'a VstCampaign,
    pub(super) device: Rc<FlashDevice>,
    found: Rc<RefCell<Found>>,
    in_flight: VecDeque<(Ticket, Extent)>,
    /// Writes since the last flush.
    writes: u64,
    /// Bytes written by the trace, and how many of them when the whole device is compared next.
    bytes: u64,
    compared_at: u64,
}

/// Why no further request is submitted.
#[derive(Debug, Error)]
pub(super) enum Stopped {
    /// The device does not take a command, or fails it.
    #[error("a command was rejected: {0}")]
    Rejected(#[from] Rejected),
    /// The device holds what it should not.
    #[error("without a power cut, {0}")]
    Wrong(String),
}

impl<'a> Driver<'a> {
    pub(super) fn new(
        campaign: &'a VstCampaign,
        device: Rc<FlashDevice>,
        found: &Rc<RefCell<Found>>,
    ) -> Driver<'a> {
        let (found, in_flight) = (Rc::clone(found), VecDeque::new());
        Driver { campaign, device, found, in_flight, writes: 0, bytes: 0, compared_at: COMPARE_BYTES }
    }

    /// Whether there are enough crash states, or bytes.
    pub(super) fn is_over(&self) -> bool {
        self.campaign
            .uncut_bytes
            .map_or_else(|| self.found.borrow().cuts.is_over(), |most| self.bytes >= most)
    }

    /// Writes every sector once, so that cleaning comes soon.
    pub(super) async fn fill(&mut self) -> Result<(), Stopped> {
        const AT_ONCE: u64 = 512;
        for first in (0..self.device.blocks() * SECTORS_PER_BLOCK).step_by(AT_ONCE as usize) {
            self.write(first, AT_ONCE).await?;
        }
        Ok(())
    }

    pub(super) async fn submit_request(&mut self, request: VstRequest) -> Result<(), Stopped> {
        let all = self.device.blocks() * SECTORS_PER_BLOCK;
        match request {
            VstRequest::Read { sector, sectors } => {
                let end = (sector % all).saturating_add(sectors.max(1)).min(all);
                let last = end.div_ceil(SECTORS_PER_BLOCK);
                self.read(sector % all / SECTORS_PER_BLOCK, last).await?;
            }
            VstRequest::Write { sector, sectors } => {
                let first = sector % all;
                let mut sector = first;
                let end = first.saturating_add(sectors.max(1)).min(all);
                let most = u64::from(self.device.capabilities().max_transfer_blocks - 1) * SECTORS_PER_BLOCK;
                while sector < end {
                    let part = (end - sector).min(most);
                    self.write(sector, part).await?;
                    sector += part;
                }
                self.writes += 1;
                self.bytes += (end - first) * SECTOR_BYTES as u64;
            }
            VstRequest::Discard { sector, sectors } => {
                let first = (sector % all).div_ceil(SECTORS_PER_BLOCK);
                let end = (sector % all).saturating_add(sectors).min(all) / SECTORS_PER_BLOCK;
                if first < end {
                    self.discard(Extent::new(Lba(first), (end - first) as u32)).await?;
                }
            }
            VstRequest::Flush => self.flush().await?,
        }
        if self.campaign.flush_every.is_some_and(|every| self.writes >= every) {
            self.flush().await?;
        }
        if self.campaign.uncut_bytes.is_some() && self.bytes >= self.compared_at {
            self.compare_all().await?;
            self.compared_at += COMPARE_BYTES;
        }
        Ok(())
    }

    /// Reads blocks up to `end`, and compares them.
    async fn read(&mut self, first: u64, end: u64) -> Result<(), Stopped> {
        let most = u64::from(self.device.capabilities().max_transfer_blocks);
        let mut block = first;
        while block < end {
            let extent = Extent::new(Lba(block), most.min(end - block) as u32);
            self.wait_for(extent).await?;
            let ticket = submit_when_free(&*self.device, Command::read(extent)).await?;
            ticket.transferred().await.map_err(Rejected::from)?;
            let data = ticket.take_data().ok_or_else(|| Stopped::Wrong("a read has no data".to_owned()))?;
            let golden = &self.found.borrow().golden;
            for (block, found) in (block..).zip(data.chunks_exact(BLOCK_BYTES)) {
                golden.compare(block, found, golden.requests).map_err(Stopped::Wrong)?;
            }
            block += u64::from(extent.blocks);
        }
        self.found.borrow_mut().cuts.totals.reads += 1;
        Ok(())
    }

    /// Compares the whole device, when all that is in flight is transferred.
    pub(super) async fn compare_all(&mut self) -> Result<(), Stopped> {
        self.drain().await?;
        let found = &mut *self.found.borrow_mut();
        found.cuts.totals.comparisons += 1;
        found.cuts.totals.bytes_written = self.bytes;
        found.golden.compare_all(&self.device, found.golden.requests).map_err(Stopped::Wrong)
    }

    /// Waits for all that is in flight.
    async fn drain(&mut self) -> Result<(), Rejected> {
        while let Some((ticket, _)) = self.in_flight.pop_front() {
            ticket.transferred().await?;
        }
        Ok(())
    }

    /// One request: whole blocks, in which other sectors stay as they are.
    async fn write(&mut self, sector: u64, sectors: u64) -> Result<(), Rejected> {
        let first = sector / SECTORS_PER_BLOCK;
        let end = (sector + sectors).div_ceil(SECTORS_PER_BLOCK);
        let extent = Extent::new(Lba(first), (end - first) as u32);
        self.wait_for(extent).await?;
        let bytes: Vec<u8> = {
            let golden = &mut self.found.borrow_mut().golden;
            let request = golden.begin_request();
            (sector..sector + sectors).for_each(|sector| golden.write(sector, request));
            (first..end).flat_map(|block| golden.block(block, request)).collect()
        };
        let parts = [Part::bytes(Lba(first), &bytes)];
        let ticket = submit_when_free(&*self.device, Command::Write(Write::new(&parts))).await?;
        self.in_flight.push_back((ticket, extent));
        Ok(())
    }

    async fn discard(&mut self, extent: Extent) -> Result<(), Rejected> {
        self.wait_for(extent).await?;
        {
            let golden = &mut self.found.borrow_mut().golden;
            let request = golden.begin_request();
            for block in extent.iter() {
                let first = block.0 * SECTORS_PER_BLOCK;
                (first..first + SECTORS_PER_BLOCK).for_each(|sector| golden.discard(sector, request));
            }
        }
        let ticket = submit_when_free(&*self.device, Command::Discard(&[extent])).await?;
        self.in_flight.push_back((ticket, extent));
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), Rejected> {
        self.drain().await?;
        let covered = self.found.borrow().golden.requests;
        if !self.campaign.ignores_flushes {
            submit_when_free(&*self.device, Command::Flush).await?.transferred().await?;
        }
        let found = &mut *self.found.borrow_mut();
        found.golden.flushed = covered;
        found.cuts.totals.flushes += 1;
        self.writes = 0;
        Ok(())
    }

    /// Waits until nothing in flight overlaps an extent.
    async fn wait_for(&mut self, extent: Extent) -> Result<(), Rejected> {
        while self.in_flight.iter().any(|(_, theirs)| theirs.overlaps(extent)) {
            if let Some((ticket, _)) = self.in_flight.pop_front() {
                ticket.transferred().await?;
            }
        }
        self.in_flight.retain(|(ticket, _)| ticket.poll_transferred().is_none());
        Ok(())
    }
}
