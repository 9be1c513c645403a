//! The storage as it is served: what requests do to it, and what FLUSH and FUA promise.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use weir_storage::{
    BLOCK_BYTES, ByteStorage, Command, Discard, Lba, Rejected, Rules, Storage, StreamId, WriteFlags,
    submit_when_free,
};

use crate::error::NoOrder;
use crate::mutants::NbdMutant;
use crate::protocol::{HOLE_READS_ZERO, export_flags};

/// Extents that one reply tells at most, and blocks that are looked at for it: the client asks for the rest.
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
    pub rules: Rules<NbdMutant>,
}

/// A storage that clients may use, under the empty name.
pub struct Export {
    bytes: ByteStorage,
    options: ExportOptions,
    under_way: Cell<u64>,
    under_way_max: Cell<u64>,
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

    pub(crate) fn begin_request(&self) {
        let now = self.under_way.get() + 1;
        self.under_way.set(now);
        self.under_way_max.set(self.under_way_max.get().max(now));
    }

    pub(crate) fn end_request(&self) {
        self.under_way.set(self.under_way.get() - 1);
    }

    pub(crate) fn rules(&self) -> Rules<NbdMutant> {
        self.options.rules
    }

    /// What clients may ask for.
    pub(crate) fn flags(&self) -> u16 {
        use export_flags as flags;
        let always =
            flags::HAS_FLAGS | flags::SEND_FLUSH | flags::SEND_FUA | flags::SEND_DF | flags::SEND_CACHE;
        if self.is_read_only() {
            return always | flags::CAN_MULTI_CONN | flags::READ_ONLY;
        }
        let discards = self.bytes.storage().capabilities().discard == Discard::ReadsZero;
        let zeros = if discards { flags::SEND_TRIM | flags::SEND_FAST_ZERO } else { 0 };
        always | flags::CAN_MULTI_CONN | flags::SEND_WRITE_ZEROES | zeros
    }

    /// Whether zeros need not be written.
    pub(crate) fn has_fast_zeros(&self) -> bool {
        self.flags() & export_flags::SEND_FAST_ZERO != 0
    }

    pub(crate) async fn read(&self, bytes: Range<u64>, found: &mut Vec<u8>) -> Result<(), Rejected> {
        self.bytes.read(bytes, found).await
    }

    pub(crate) async fn write(&self, offset: u64, new: &[u8], fua: bool) -> Result<(), Rejected> {
        let fua = fua && !self.rules().drops(NbdMutant::FuaEarly);
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

    pub(crate) async fn write_zeros(&self, bytes: Range<u64>, may_discard: bool) -> Result<(), Rejected> {
        self.bytes.write_zeros(bytes, may_discard).await
    }

    pub(crate) async fn discard(&self, bytes: Range<u64>) -> Result<(), Rejected> {
        self.bytes.discard(bytes).await
    }

    pub(crate) async fn flush(&self) -> Result<(), Rejected> {
        match self.options.flush {
            FlushMode::Durable if self.rules().drops(NbdMutant::FlushEarly) => Ok(()),
            FlushMode::Durable => self.bytes.flush().await,
            FlushMode::Order if self.rules().drops(NbdMutant::OrderSkipped) => Ok(()),
            FlushMode::Order => {
                let barrier = Command::Barrier { stream: StreamId::default() };
                Ok(submit_when_free(self.bytes.storage(), barrier).await?.transferred().await?)
            }
        }
    }

    /// Which of the bytes may hold something else than zeros: extents in turn, with the state of each, from the start of
    /// the bytes on, but not always to their end.
    pub(crate) fn extents(&self, bytes: Range<u64>, most: usize) -> Vec<(u32, u32)> {
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
            let (to, state) = if data > at {
                (data, HOLE_READS_ZERO)
            } else {
                let mut to = at;
                while to < looked_at && data_from(to) == to {
                    to = (to / BLOCK + 1) * BLOCK;
                }
                (to.min(end), 0)
            };
            extents.push(((to - at) as u32, state));
            at = to;
        }
        extents
    }
}
