//! The *golden disk* of virtual stress testing: what each sector held after each request.

use weir_flash::{FlashDevice, RecoveryPoint};
use weir_storage::{BLOCK_BYTES, Lba, Storage as _};

use super::{SECTOR_BYTES, SECTORS_PER_BLOCK, VstTotals};

/// What each sector held after each request that changed it.
pub(super) struct GoldenDisk {
    /// By sector: the requests, and the version that each left; 0 for a discard.
    history: Vec<Vec<(u64, u64)>>,
    /// Whether earlier versions of a sector are kept. Without power cuts they are not compared, and their number has no bound.
    keeps_past: bool,
    /// Requests submitted.
    pub(super) requests: u64,
    /// Of these, those that a flush covers.
    pub(super) flushed: u64,
}

impl GoldenDisk {
    pub(super) fn new(blocks: u64, keeps_past: bool) -> GoldenDisk {
        GoldenDisk {
            history: vec![Vec::new(); (blocks * SECTORS_PER_BLOCK) as usize],
            keeps_past,
            requests: 0,
            flushed: 0,
        }
    }

    /// The number of the next request.
    pub(super) fn begin_request(&mut self) -> u64 {
        self.requests += 1;
        self.requests
    }

    pub(super) fn write(&mut self, sector: u64, request: u64) {
        let history = &mut self.history[sector as usize];
        let version = history.iter().rev().map(|(_, version)| *version).find(|version| *version > 0);
        if !self.keeps_past {
            history.clear();
        }
        history.push((request, version.unwrap_or(0) + 1));
    }

    pub(super) fn discard(&mut self, sector: u64, request: u64) {
        let history = &mut self.history[sector as usize];
        if !self.keeps_past {
            // The next write needs the last version.
            history.retain(|(_, version)| *version > 0);
        }
        history.push((request, 0));
    }

    /// The version of a sector after so many requests; 0 where it reads zeroes.
    fn version(&self, sector: u64, requests: u64) -> u64 {
        let history = &self.history[sector as usize];
        let until = history.partition_point(|(request, _)| *request <= requests);
        history[..until].last().map_or(0, |(_, version)| *version)
    }

    /// What a sector holds after so many requests.
    fn fill(&self, sector: u64, requests: u64, bytes: &mut [u8]) {
        bytes.fill(0);
        let version = self.version(sector, requests);
        if version > 0 {
            bytes[..8].copy_from_slice(&(sector + 1).to_le_bytes());
            bytes[8..16].copy_from_slice(&version.to_le_bytes());
            bytes[SECTOR_BYTES - 8..].copy_from_slice(&version.to_le_bytes());
        }
    }

    /// What a block holds after so many requests.
    pub(super) fn block(&self, block: u64, requests: u64) -> [u8; BLOCK_BYTES] {
        let mut bytes = [0; BLOCK_BYTES];
        let first = block * SECTORS_PER_BLOCK;
        for (sector, bytes) in (first..).zip(bytes.chunks_exact_mut(SECTOR_BYTES)) {
            self.fill(sector, requests, bytes);
        }
        bytes
    }

    /// Judges a recovered device by the recovery point that it reports.
    pub(super) fn judge(&self, recovered: &FlashDevice, totals: &mut VstTotals) -> Result<(), String> {
        let point = recovered.recovery_point().unwrap_or(RecoveryPoint { kept: u64::MAX, found: 0 });
        let (kept, dropped) = (point.kept, point.found.saturating_sub(point.kept));
        totals.states_rolled_back += u64::from(dropped > 0);
        totals.dropped_max = totals.dropped_max.max(dropped);
        if kept < self.flushed {
            return Err(format!("{kept} requests are kept, and a flush covers {}", self.flushed));
        }
        if kept > self.requests {
            return Err(format!("{kept} requests are kept, and {} were submitted", self.requests));
        }
        self.compare_all(recovered, kept)
    }

    /// Compares all blocks of a device with what they hold after so many requests.
    pub(super) fn compare_all(&self, device: &FlashDevice, requests: u64) -> Result<(), String> {
        let mut found = [0; BLOCK_BYTES];
        (0..device.blocks()).try_for_each(|block| {
            device.peek(Lba(block), &mut found);
            self.compare(block, &found, requests)
        })
    }

    /// Compares what a block holds with what it holds after so many requests.
    pub(super) fn compare(&self, block: u64, found: &[u8], requests: u64) -> Result<(), String> {
        let golden = self.block(block, requests);
        if *found == golden {
            return Ok(());
        }
        let sectors = found.chunks_exact(SECTOR_BYTES).zip(golden.chunks_exact(SECTOR_BYTES));
        let at = sectors.take_while(|(found, golden)| found == golden).count();
        let sector = block * SECTORS_PER_BLOCK + at as u64;
        let held = found.get(at * SECTOR_BYTES..).unwrap_or_default();
        let number = |at: usize| held.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        let [number, version] = [number(0), number(8)].map(|bytes| bytes.map_or(0, u64::from_le_bytes));
        let right = self.version(sector, requests);
        Err(format!(
            "sector {sector} after {requests} requests: version {right} is right, found version {version} of sector {}",
            number.saturating_sub(1)
        ))
    }
}
