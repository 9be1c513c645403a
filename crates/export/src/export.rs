//! The storage as it is served: what requests do to it, and what FLUSH and FUA promise.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use weir_storage::{
    BLOCK_BYTES, ByteStorage, Command, Discard, Lba, Rejected, Rules, Storage, StreamId, WriteFlags,
    submit_when_free,
};

use crate::error::{NoOrder, RequestError};
use crate::mutants::ExportMutant;

/// Extents that one answer has at most, and blocks that are looked at for it: the client asks for the rest.
const EXTENTS_MAX: usize = 1024;
const BLOCKS_LOOKED_AT: u64 = 1 << 16;

/// What FLUSH and FUA promise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlushMode {
    /// Durability (N1).
    #[default]
    Durable,
    /// Order, and no wait (N2).
    Order,
}

/// How a storage is served.
#[derive(Clone, Copy, Debug, Default)]
pub struct ExportOptions {
    /// Whether changes are refused.
    pub read_only: bool,
    /// What FLUSH and FUA promise.
    pub flush: FlushMode,
    /// The rules that the server keeps: all of them.
    pub rules: Rules<ExportMutant>,
}

/// A storage that clients may use, under the empty name.
pub struct Export {
    bytes: ByteStorage,
    options: ExportOptions,
    under_way: Cell<u64>,
    under_way_max: Cell<u64>,
    flushes_fail: Cell<bool>,
}

impl Export {
    /// Serves a storage.
    ///
    /// # Errors
    /// [`NoOrder`] if flushes are to order on a storage without barriers.
    pub fn new(storage: Rc<dyn Storage>, options: ExportOptions) -> Result<Export, NoOrder> {
        match options.flush == FlushMode::Order && !storage.capabilities().barriers() {
            true => Err(NoOrder),
            false => Ok(Export {
                bytes: ByteStorage::new(storage),
                options,
                under_way: Cell::default(),
                under_way_max: Cell::default(),
                flushes_fail: Cell::default(),
            }),
        }
    }

    /// Capacity in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.bytes()
    }

    /// Whether changes are refused.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.options.read_only
    }

    /// Requests of all clients that are being carried out now, and the most of them at one time so far.
    #[must_use]
    pub fn requests_under_way(&self) -> (u64, u64) {
        (self.under_way.get(), self.under_way_max.get())
    }

    /// Counts a request as one that is being carried out, until the result is dropped.
    pub fn begin_request(&self) -> RequestUnderWay<'_> {
        let now = self.under_way.get() + 1;
        self.under_way.set(now);
        self.under_way_max.set(self.under_way_max.get().max(now));
        RequestUnderWay(self)
    }

    /// Lets no flush succeed from now on, or each again: for a client that expects what an earlier server has answered and
    /// lost, until it begins anew (N7).
    pub fn fail_flushes(&self, fail: bool) {
        self.flushes_fail.set(fail && !self.rules().drops(ExportMutant::LossIgnored));
    }

    fn require_nothing_lost(&self) -> Result<(), RequestError> {
        if self.flushes_fail.get() { Err(RequestError::AnsweredLost) } else { Ok(()) }
    }

    /// The rules that are kept.
    #[must_use]
    pub fn rules(&self) -> Rules<ExportMutant> {
        self.options.rules
    }

    /// Whether what is discarded reads as zeros: only then a discard is offered, and zeros cost no more.
    #[must_use]
    pub fn discards(&self) -> bool {
        !self.is_read_only() && self.bytes.storage().capabilities().discard == Discard::ReadsZero
    }

    /// Refuses a change of what clients may only read.
    ///
    /// # Errors
    /// [`RequestError::ReadOnly`].
    pub fn require_writable(&self) -> Result<(), RequestError> {
        if self.is_read_only() { Err(RequestError::ReadOnly) } else { Ok(()) }
    }

    /// Refuses a request with more data than `most` bytes, which is what its protocol lets one have under way (N3).
    ///
    /// # Errors
    /// [`RequestError::Invalid`].
    pub fn require_data_within(&self, bytes: u64, most: u64) -> Result<(), RequestError> {
        match bytes > most && !self.rules().drops(ExportMutant::LoadUnbounded) {
            true => Err(RequestError::Invalid("more data than a request may have")),
            false => Ok(()),
        }
    }

    /// So many bytes from `offset` on, if all of them are there.
    ///
    /// # Errors
    /// [`RequestError::BeyondEnd`].
    pub fn range(&self, offset: u64, length: u64) -> Result<Range<u64>, RequestError> {
        let end = offset.checked_add(length).filter(|end| *end <= self.bytes());
        end.map(|end| offset..end).ok_or(RequestError::BeyondEnd)
    }

    /// Reads bytes, and appends them to `found`.
    ///
    /// # Errors
    /// [`RequestError`] where the storage failed.
    pub async fn read(&self, bytes: Range<u64>, found: &mut Vec<u8>) -> Result<(), RequestError> {
        Ok(self.bytes.read(bytes, found).await?)
    }

    /// Writes bytes; with `fua`, as durable or ordered as a flush right behind would make them.
    ///
    /// # Errors
    /// [`RequestError`] where the storage failed.
    pub async fn write(&self, offset: u64, new: &[u8], fua: bool) -> Result<(), RequestError> {
        if fua {
            self.require_nothing_lost()?;
        }
        let fua = fua && !self.rules().drops(ExportMutant::FuaEarly);
        let by_flag = self.bytes.storage().capabilities().fua;
        let flags = match self.options.flush {
            FlushMode::Durable => WriteFlags { fua: fua && by_flag, ..WriteFlags::default() },
            FlushMode::Order => WriteFlags { barrier: fua, ..WriteFlags::default() },
        };
        self.bytes.write(offset, new, flags).await?;
        match self.options.flush {
            FlushMode::Durable if fua && !by_flag => self.flush().await,
            _ => Ok(()),
        }
    }

    /// Makes bytes zeros; by discarding where that `may_discard` and reads zeros.
    ///
    /// # Errors
    /// [`RequestError`] where the storage failed.
    pub async fn write_zeros(&self, bytes: Range<u64>, may_discard: bool) -> Result<(), RequestError> {
        Ok(self.bytes.write_zeros(bytes, may_discard).await?)
    }

    /// Discards the whole blocks of these bytes.
    ///
    /// # Errors
    /// [`RequestError`] where the storage failed.
    pub async fn discard(&self, bytes: Range<u64>) -> Result<(), RequestError> {
        Ok(self.bytes.discard(bytes).await?)
    }

    /// Makes durable what was answered before (N1), or orders it before all that comes (N2).
    ///
    /// # Errors
    /// [`RequestError`] where the storage failed.
    pub async fn flush(&self) -> Result<(), RequestError> {
        self.require_nothing_lost()?;
        match self.options.flush {
            FlushMode::Durable if self.rules().drops(ExportMutant::FlushEarly) => Ok(()),
            FlushMode::Durable => Ok(self.bytes.flush().await?),
            FlushMode::Order if self.rules().drops(ExportMutant::OrderSkipped) => Ok(()),
            FlushMode::Order => {
                let barrier = Command::Barrier { stream: StreamId::default() };
                let barrier = submit_when_free(self.bytes.storage(), barrier).await?;
                Ok(barrier.transferred().await.map_err(Rejected::Failed)?)
            }
        }
    }

    /// Makes everything durable that was answered before, whatever flushes promise, if none of it may be lost (N7).
    ///
    /// # Errors
    /// [`RequestError::AnsweredLost`] where flushes fail; [`RequestError`] where the storage failed.
    pub async fn make_durable(&self) -> Result<(), RequestError> {
        self.require_nothing_lost()?;
        Ok(self.bytes.flush().await?)
    }

    /// Which of the bytes may hold something else than zeros: extents in turn, from the start of the bytes on, but not
    /// always to their end. At most `most` of them.
    #[must_use]
    pub fn extents(&self, bytes: Range<u64>, most: usize) -> Vec<Extent> {
        const BLOCK: u64 = BLOCK_BYTES as u64;
        let (mut at, end) = (bytes.start, bytes.end);
        let looked_at = end.min(at.saturating_add(BLOCKS_LOOKED_AT * BLOCK));
        let data_from = |at: u64| {
            let next = self.bytes.storage().next_data(Lba(at / BLOCK));
            next.map_or(end, |lba| (lba.0 * BLOCK).clamp(at, end))
        };
        let mut extents = Vec::new();
        while at < looked_at && extents.len() < most.min(EXTENTS_MAX) {
            let data = data_from(at);
            let mut to = data;
            if data == at {
                while to < looked_at && data_from(to) == to {
                    to = (to / BLOCK + 1) * BLOCK;
                }
                to = to.min(end);
            }
            extents.push(Extent { bytes: to - at, reads_zeros: data > at });
            at = to;
        }
        extents
    }
}

/// Bytes in a row that are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// How many; more than 0.
    pub bytes: u64,
    /// Whether all of them are known to be zeros, without a place of their own.
    pub reads_zeros: bool,
}

/// A request that is being carried out, until this is dropped.
pub struct RequestUnderWay<'a>(&'a Export);

impl Drop for RequestUnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way.set(self.0.under_way.get() - 1);
    }
}
