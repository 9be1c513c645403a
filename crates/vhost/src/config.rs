//! What the disk offers, and the structure in which a guest reads its size and limits.

use weir_export::Export;
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Queues at most; each takes a place on the runtime's ring.
pub const QUEUES_MAX: u16 = 16;
/// Requests that a queue takes at most.
pub const QUEUE_SIZE_MAX: u16 = 1024;
/// The unit of places on the disk.
pub(crate) const SECTOR: u64 = 512;
/// Pieces of memory of one request, and bytes of each: together less than 32 MiB.
const SEGMENTS_MAX: u32 = 126;
const SEGMENT_BYTES: u32 = 256 << 10;
/// Ranges that one request discards or zeroes, and sectors of each: 1 GiB to discard, 16 MiB to zero, which may be written.
pub(crate) const RANGES_MAX: usize = 16;
pub(crate) const DISCARD_SECTORS: u32 = 1 << 21;
pub(crate) const ZEROES_SECTORS: u32 = 1 << 15;
/// Sectors of a block of the storage, by which it discards.
const BLOCK_SECTORS: u32 = 8;
/// Bytes of the structure that a frontend may ask for.
const CONFIG_BYTES: usize = 256;

/// Features of the device, by the number of their bit.
pub(crate) mod feature {
    pub(crate) const SIZE_MAX: u64 = 1 << 1;
    pub(crate) const SEG_MAX: u64 = 1 << 2;
    pub(crate) const RO: u64 = 1 << 5;
    pub(crate) const BLK_SIZE: u64 = 1 << 6;
    pub(crate) const FLUSH: u64 = 1 << 9;
    pub(crate) const TOPOLOGY: u64 = 1 << 10;
    pub(crate) const MQ: u64 = 1 << 12;
    pub(crate) const DISCARD: u64 = 1 << 13;
    pub(crate) const WRITE_ZEROES: u64 = 1 << 14;
    pub(crate) const INDIRECT_DESC: u64 = 1 << 28;
    pub(crate) const EVENT_IDX: u64 = 1 << 29;
    pub(crate) const PROTOCOL_FEATURES: u64 = 1 << 30;
    pub(crate) const VERSION_1: u64 = 1 << 32;
}

/// The features that are offered.
pub(crate) fn features(export: &Export) -> u64 {
    use feature as has;
    let always = has::SIZE_MAX | has::SEG_MAX | has::BLK_SIZE | has::FLUSH | has::TOPOLOGY | has::MQ;
    let rings = has::INDIRECT_DESC | has::EVENT_IDX | has::PROTOCOL_FEATURES | has::VERSION_1;
    let changes = if export.is_read_only() { has::RO } else { has::WRITE_ZEROES };
    always | rings | changes | if export.discards() { has::DISCARD } else { 0 }
}

/// The disk as a guest reads it.
#[derive(FromZeros, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Config {
    capacity: U64,
    size_max: U32,
    seg_max: U32,
    geometry: [u8; 4],
    blk_size: U32,
    physical_block_exp: u8,
    alignment_offset: u8,
    min_io_size: U16,
    opt_io_size: U32,
    writeback: u8,
    unused: u8,
    num_queues: U16,
    max_discard_sectors: U32,
    max_discard_seg: U32,
    discard_sector_alignment: U32,
    max_write_zeroes_sectors: U32,
    max_write_zeroes_seg: U32,
    write_zeroes_may_unmap: u8,
    unused_too: [u8; 3],
}

/// So many bytes of the structure from `offset` on; none if it has not so many. What the device does not know is 0.
pub(crate) fn read(export: &Export, offset: u32, bytes: u32) -> Option<Vec<u8>> {
    let mut config = Config::new_zeroed();
    config.capacity = (export.bytes() / SECTOR).into();
    config.size_max = SEGMENT_BYTES.into();
    config.seg_max = SEGMENTS_MAX.into();
    config.blk_size = (SECTOR as u32).into();
    config.physical_block_exp = BLOCK_SECTORS.trailing_zeros() as u8;
    config.min_io_size = (BLOCK_SECTORS as u16).into();
    config.num_queues = QUEUES_MAX.into();
    config.max_discard_sectors = DISCARD_SECTORS.into();
    config.max_discard_seg = (RANGES_MAX as u32).into();
    config.discard_sector_alignment = BLOCK_SECTORS.into();
    config.max_write_zeroes_sectors = ZEROES_SECTORS.into();
    config.max_write_zeroes_seg = 1.into();
    config.write_zeroes_may_unmap = export.discards().into();
    let mut whole = config.as_bytes().to_vec();
    whole.resize(CONFIG_BYTES, 0);
    let end = offset.checked_add(bytes)?;
    whole.get(offset as usize..end as usize).map(<[u8]>::to_vec)
}
