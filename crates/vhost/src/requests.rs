//! One request: what it asks for is checked and done.

use std::ops::Range;

use tracing::{debug, warn};
use vm_memory::{Bytes as _, GuestAddress};
use weir_export::{Export, RequestError};
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::chain::{Chain, Malformed};
use crate::config::{DISCARD_SECTORS, RANGES_MAX, SECTOR, ZEROES_SECTORS};
use crate::memory::Mapped;

/// Bytes of memory that one request may be about, 32 MiB.
pub const PAYLOAD_MAX: usize = 32 << 20;
/// Bytes of a disk's serial number.
pub(crate) const SERIAL_BYTES: usize = 20;

/// Kinds of requests.
mod kind {
    pub(super) const IN: u32 = 0;
    pub(super) const OUT: u32 = 1;
    pub(super) const FLUSH: u32 = 4;
    pub(super) const GET_ID: u32 = 8;
    pub(super) const DISCARD: u32 = 11;
    pub(super) const WRITE_ZEROES: u32 = 13;
}

/// How a request ended, as the guest gets it.
mod status {
    pub(super) const OK: u8 = 0;
    pub(super) const FAILED: u8 = 1;
    pub(super) const UNSUPPORTED: u8 = 2;
}

/// What a request begins with.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Header {
    kind: U32,
    reserved: U32,
    sector: U64,
}

/// A range to discard or zero.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RangeToChange {
    sector: U64,
    sectors: U32,
    flags: U32,
}

/// That a range to zero may be discarded.
const UNMAP: u32 = 1;

/// How the guest uses the disk.
#[derive(Clone, Debug)]
pub(crate) struct Use {
    /// Each write is as with FUA: the guest does not flush.
    pub(crate) write_through: bool,
    pub(crate) serial: [u8; SERIAL_BYTES],
}

/// A request that is not carried out.
enum Refused {
    Failed(RequestError),
    Malformed(Malformed),
    Unsupported,
}

impl From<RequestError> for Refused {
    fn from(error: RequestError) -> Refused {
        Refused::Failed(error)
    }
}

impl From<Malformed> for Refused {
    fn from(malformed: Malformed) -> Refused {
        Refused::Malformed(malformed)
    }
}

/// A request whose chain was followed.
pub(crate) struct Request {
    chain: Chain,
    status: GuestAddress,
    given: Vec<u8>,
}

impl Request {
    /// Reads what the guest gives.
    ///
    /// # Errors
    /// [`Malformed`] if there is no place for a status, so that the guest can be told nothing.
    pub(crate) fn read(mut chain: Chain, memory: &Mapped) -> Result<Request, Malformed> {
        let status = chain.take_status().ok_or(Malformed("no byte for the status"))?;
        let given = chain.read(memory)?;
        Ok(Request { chain, status, given })
    }

    /// Bytes that it takes until it is answered: of memory, and of zeros that may have to be written.
    pub(crate) fn bytes(&self) -> usize {
        let zeros = match Header::read_from_prefix(&self.given) {
            Ok((header, _)) if header.kind.get() == kind::WRITE_ZEROES => u64::from(ZEROES_SECTORS) * SECTOR,
            _ => 0,
        };
        self.chain.bytes() + zeros as usize
    }

    /// Does what is asked, and says how it ended; bytes of the guest's memory that were written.
    pub(crate) async fn answer(self, export: &Export, how: &Use, memory: &Mapped) -> u32 {
        let _under_way = export.begin_request();
        let (status, written) = match self.perform(export, how, memory).await {
            Ok(written) => (status::OK, written),
            Err(Refused::Unsupported) => (status::UNSUPPORTED, 0),
            Err(Refused::Malformed(Malformed(cause))) => {
                debug!(name: "request_malformed", cause, "a request is malformed");
                (status::FAILED, 0)
            }
            Err(Refused::Failed(error)) => {
                match error.is_of_storage() {
                    true => warn!(name: "request_failed", %error, "a request failed"),
                    false => debug!(name: "request_refused", %error, "a request was refused"),
                }
                (status::FAILED, 0)
            }
        };
        match memory.write_obj(status, self.status) {
            Ok(()) => written + 1,
            Err(_) => 0,
        }
    }

    /// Bytes of the guest's memory that were written.
    async fn perform(&self, export: &Export, how: &Use, memory: &Mapped) -> Result<u32, Refused> {
        let (header, payload) =
            Header::read_from_prefix(&self.given).map_err(|_| Malformed("no header of 16 bytes"))?;
        let sector = header.sector.get();
        match header.kind.get() {
            kind::IN => {
                let bytes = sectors(export, sector, self.chain.wanted_bytes() as u64)?;
                let mut found = Vec::with_capacity((bytes.end - bytes.start) as usize);
                export.read(bytes, &mut found).await?;
                self.chain.write(memory, &found)?;
                return Ok(found.len() as u32);
            }
            kind::OUT => {
                export.require_writable()?;
                let bytes = sectors(export, sector, payload.len() as u64)?;
                export.write(bytes.start, payload, how.write_through).await?;
            }
            kind::FLUSH => export.flush().await?,
            kind::GET_ID => {
                self.chain.write(memory, &how.serial)?;
                return Ok(self.chain.wanted_bytes().min(SERIAL_BYTES) as u32);
            }
            kind::DISCARD if !export.is_read_only() && !export.discards() => {
                return Err(Refused::Unsupported);
            }
            kind @ (kind::DISCARD | kind::WRITE_ZEROES) => {
                export.require_writable()?;
                for (bytes, may_discard) in ranges(export, kind, payload)? {
                    match kind {
                        kind::DISCARD => export.discard(bytes).await?,
                        _ => export.write_zeros(bytes, may_discard).await?,
                    }
                }
                if how.write_through {
                    export.flush().await?;
                }
            }
            _ => return Err(Refused::Unsupported),
        }
        Ok(0)
    }
}

/// So many bytes from a sector on, which are whole sectors of the disk.
fn sectors(export: &Export, sector: u64, bytes: u64) -> Result<Range<u64>, Refused> {
    if bytes == 0 || !bytes.is_multiple_of(SECTOR) {
        return Err(Malformed("a part of a sector").into());
    }
    let start = sector.checked_mul(SECTOR).ok_or(RequestError::BeyondEnd)?;
    Ok(export.range(start, bytes)?)
}

/// The ranges that a request discards or zeroes, all of them checked; of each, whether it may be discarded.
fn ranges(export: &Export, kind: u32, payload: &[u8]) -> Result<Vec<(Range<u64>, bool)>, Refused> {
    let Ok(found) = <[RangeToChange]>::ref_from_bytes(payload) else {
        return Err(Malformed("a part of a range").into());
    };
    let (known, ranges_max, sectors_max) = match kind {
        kind::WRITE_ZEROES => (UNMAP, 1, ZEROES_SECTORS),
        _ => (0, RANGES_MAX, DISCARD_SECTORS),
    };
    if found.is_empty() || found.len() > ranges_max {
        return Err(Malformed("no range, or more than the disk offers").into());
    }
    let ranges = found.iter().map(|range| match range.flags.get() & !known {
        0 if range.sectors.get() > sectors_max => {
            Err(Malformed("a longer range than the disk offers").into())
        }
        0 => {
            let bytes = sectors(export, range.sector.get(), u64::from(range.sectors.get()) * SECTOR)?;
            Ok((bytes, range.flags.get() & UNMAP != 0))
        }
        _ => Err(Refused::Unsupported),
    });
    ranges.collect()
}
