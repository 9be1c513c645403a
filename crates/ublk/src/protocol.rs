//! Numbers and structures of the kernel's interface (`include/uapi/linux/ublk_cmd.h`), in the machine's own byte order.

use weir_export::Export;
use weir_runtime::UBLK_DESCRIPTION_BYTES;
use weir_storage::Rules;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, transmute};

use crate::mutants::UblkMutant;

/// Bytes of a sector, in which the kernel counts.
pub(crate) const SECTOR_BYTES: u64 = 512;
/// Requests that a device has under way at most; with their data, 16 MiB (N3).
pub(crate) const PLACES: u16 = 64;
/// Bytes that one request reads or writes at most: what one record of a volume takes, so each write of whole blocks is
/// atomic.
pub const DATA_BYTES_MAX: u32 = 256 << 10;
/// Sectors that one request discards, or makes zeros, at most: others wait behind these.
const DISCARD_SECTORS_MAX: u32 = 1 << 21;
const ZEROS_SECTORS_MAX: u32 = 1 << 15;

/// What the kernel has to be able to do, and a device is made with.
pub(crate) mod features {
    const USER_RECOVERY: u64 = 1 << 3;
    /// What a killed server had not answered comes again (N6).
    pub(crate) const REISSUE: u64 = 1 << 4;
    const IOCTL_ENCODE: u64 = 1 << 6;
    /// Data goes by reads and writes of the device, and the kernel touches no memory of the server.
    const USER_COPY: u64 = 1 << 7;
    pub(crate) const NEEDED: u64 = USER_RECOVERY | REISSUE | IOCTL_ENCODE | USER_COPY;
    /// It can stop a device only if nothing has it open (Linux 7.0).
    pub(crate) const SAFE_STOP: u64 = 1 << 17;
}

/// What state a device is in.
pub(crate) mod state {
    /// It is not shown yet, or no more.
    pub(crate) const DEAD: u16 = 0;
    /// Its server runs, or has ended just now.
    pub(crate) const LIVE: u16 = 1;
    /// Its server is gone, and its requests wait for the next.
    pub(crate) const QUIESCED: u16 = 2;
}

/// Operations of requests, and their flags.
pub(crate) mod operation {
    pub(crate) const READ: u8 = 0;
    pub(crate) const WRITE: u8 = 1;
    pub(crate) const FLUSH: u8 = 2;
    pub(crate) const DISCARD: u8 = 3;
    pub(crate) const WRITE_ZEROES: u8 = 5;
    pub(crate) const FUA: u32 = 1 << 13;
    pub(crate) const NO_UNMAP: u32 = 1 << 15;
}

/// What a device is (`ublksrv_ctrl_dev_info`).
#[derive(Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct DeviceInfo {
    pub(crate) queues: u16,
    pub(crate) places: u16,
    pub(crate) state: u16,
    padding: u16,
    pub(crate) data_bytes_max: u32,
    pub(crate) number: u32,
    pub(crate) process: i32,
    more_padding: u32,
    pub(crate) features: u64,
    /// The server's own, which the kernel keeps: the identity of the volume.
    pub(crate) volume: u64,
    owner: [u32; 2],
    reserved: [u64; 2],
}

impl DeviceInfo {
    pub(crate) fn new(number: u32, volume: u64, rules: Rules<UblkMutant>) -> DeviceInfo {
        let dropped = if rules.drops(UblkMutant::UnansweredFail) { features::REISSUE } else { 0 };
        DeviceInfo {
            queues: 1,
            places: PLACES,
            data_bytes_max: DATA_BYTES_MAX,
            number,
            features: features::NEEDED & !dropped,
            volume,
            ..DeviceInfo::default()
        }
    }
}

/// What kind of disk a device is (`ublk_params`, up to the limits of discards).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct Parameters {
    length: u32,
    kinds: u32,
    attributes: u32,
    logical_block_shift: u8,
    physical_block_shift: u8,
    best_size_shift: u8,
    least_size_shift: u8,
    sectors_max: u32,
    chunk_sectors: u32,
    sectors: u64,
    boundary: u64,
    discard_alignment: u32,
    discard_granularity: u32,
    discard_sectors_max: u32,
    zeros_sectors_max: u32,
    discard_pieces_max: u16,
    reserved: u16,
    /// The kernel's structure has more fields behind, which are not used here.
    end: u32,
}

impl Parameters {
    const BASIC: u32 = 1;
    const DISCARD: u32 = 2;
    const READ_ONLY: u32 = 1;
    const VOLATILE_CACHE: u32 = 1 << 2;
    const FUA: u32 = 1 << 3;
    const BLOCK_SHIFT: u8 = 12;

    /// Those of an export. Its blocks are of 512 bytes, as NBD's clients see them: a partition table or a database that
    /// was written there reads the same here. The physical ones of 4,096 make filesystems use whole blocks of the
    /// volume.
    pub(crate) fn of(export: &Export) -> Parameters {
        let read_only = if export.is_read_only() { Parameters::READ_ONLY } else { 0 };
        let basic = Parameters {
            length: size_of::<Parameters>() as u32,
            kinds: Parameters::BASIC,
            attributes: Parameters::VOLATILE_CACHE | Parameters::FUA | read_only,
            logical_block_shift: SECTOR_BYTES.trailing_zeros() as u8,
            physical_block_shift: Parameters::BLOCK_SHIFT,
            best_size_shift: DATA_BYTES_MAX.trailing_zeros() as u8,
            least_size_shift: Parameters::BLOCK_SHIFT,
            sectors_max: DATA_BYTES_MAX / SECTOR_BYTES as u32,
            sectors: export.bytes() / SECTOR_BYTES,
            ..Parameters::default()
        };
        if !export.discards() {
            return basic;
        }
        Parameters {
            kinds: basic.kinds | Parameters::DISCARD,
            discard_granularity: 1 << Parameters::BLOCK_SHIFT,
            discard_sectors_max: DISCARD_SECTORS_MAX,
            zeros_sectors_max: ZEROS_SECTORS_MAX,
            discard_pieces_max: 1,
            ..basic
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.sectors.saturating_mul(SECTOR_BYTES)
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.attributes & Parameters::READ_ONLY != 0
    }
}

/// A request, as the kernel describes it (`ublksrv_io_desc`).
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Description {
    operation_and_flags: u32,
    sectors: u32,
    first_sector: u64,
    address: u64,
}

/// A request, with bytes counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) operation: u8,
    pub(crate) flags: u32,
    pub(crate) length: u64,
    /// None where 64 bits do not count so far.
    pub(crate) offset: Option<u64>,
}

impl Request {
    pub(crate) fn decode(description: [u8; UBLK_DESCRIPTION_BYTES]) -> Request {
        let Description { operation_and_flags, sectors, first_sector, address: _ } = transmute!(description);
        Request {
            operation: operation_and_flags as u8,
            flags: operation_and_flags & !0xFF,
            length: u64::from(sectors) * SECTOR_BYTES,
            offset: first_sector.checked_mul(SECTOR_BYTES),
        }
    }

    pub(crate) fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }
}
