//! How far a prediction depends on what was assumed: the same device with one of its parameters moved, or with
//! another word that was as likely.

use weir_flash::{Mechanism, Profile, ShareBy};
use weir_storage::BLOCK_BYTES;

use crate::figure::service_named;
use crate::series::Series;

/// `device` with the parameter `key`, as its profile's file calls it, times `factor`. None where it is not a
/// number that can be moved alone, or the device would be impossible.
pub(crate) fn scaled(device: &Profile, key: &str, factor: f64) -> Option<Profile> {
    let mut device = device.clone();
    let time = |value: u64| (value as f64 * factor).round() as u64;
    let count = |value: u32| (f64::from(value) * factor).round() as u32;
    let Profile { host, cache, nand, ftl, flush, barrier, .. } = &mut device;
    match key {
        "host.queue_depth" => host.queue_depth = count(host.queue_depth),
        "host.link" => host.link_bytes_per_second = time(host.link_bytes_per_second),
        "host.command" => host.command_ns = time(host.command_ns),
        "host.latency" => host.latency_ns = time(host.latency_ns),
        "host.packed_header" => host.packed_header_ns = host.packed_header_ns.map(time),
        "host.reliable_extra" => host.reliable_extra_ns = host.reliable_extra_ns.map(time),
        "cache.size" => {
            // A cache holds the largest command; figures write single blocks.
            cache.bytes = time(cache.bytes);
            let blocks = u32::try_from(cache.bytes / BLOCK_BYTES as u64).unwrap_or(u32::MAX);
            host.max_transfer_blocks = host.max_transfer_blocks.min(blocks);
        }
        "cache.copy" => cache.copy_bytes_per_second = cache.copy_bytes_per_second.map(time),
        "cache.destage_share" => cache.destage_share *= factor,
        "nand.channels" | "nand.ways" => {
            // The capacity stays: fewer dies are larger ones. Each has a reserve for cleaning.
            let place = if key == "nand.ways" { &mut nand.ways } else { &mut nand.channels };
            let (before, after) = (*place, count(*place).max(1));
            *place = after;
            let blocks = (u64::from(nand.blocks_per_plane) * u64::from(before)).div_ceil(u64::from(after));
            let blocks = blocks + u64::from(ftl.gc_free_blocks) + 2;
            nand.blocks_per_plane = u32::try_from(blocks).unwrap_or(u32::MAX);
        }
        "nand.read" => nand.read_ns.iter_mut().for_each(|ns| *ns = time(*ns)),
        "nand.program" => nand.program_ns.iter_mut().for_each(|ns| *ns = time(*ns)),
        "nand.erase" => nand.erase_ns = time(nand.erase_ns),
        "nand.channel" => nand.channel_bytes_per_second = time(nand.channel_bytes_per_second),
        "ftl.gc_free_blocks" => {
            // The reserve comes on top of the capacity.
            let before = ftl.gc_free_blocks;
            ftl.gc_free_blocks = count(before).max(3);
            nand.blocks_per_plane += ftl.gc_free_blocks.saturating_sub(before);
        }
        "ftl.checkpoint_share" => ftl.checkpoint_share *= factor,
        "ftl.log_share" => ftl.log_share *= factor,
        "ftl.share" => ftl.share = count(ftl.share),
        "barrier.tag" => barrier.tag_ns = time(barrier.tag_ns),
        "flush.fixed" => flush.fixed_ns = time(flush.fixed_ns),
        "flush.journal_pages" => flush.journal_pages = count(flush.journal_pages),
        _ => return None,
    }
    device.check().ok().map(|()| device)
}

/// `device` with the word `word` for the parameter `key`. None where it is no word, or where `series` says its own.
pub(crate) fn worded(device: &Profile, series: &Series, key: &str, word: &str) -> Option<Profile> {
    let mut device = device.clone();
    match key {
        "host.ordered_service" if series.service.is_none() => {
            device.host.ordered_service = service_named(word)?;
        }
        "ftl.share_by" if !series.vary.contains_key(key) => {
            device.ftl.share_by = ShareBy::named(word)?;
        }
        "barrier.mechanism" if series.mechanism.is_none() && series.over_mechanism.is_none() => {
            device = device.with_mechanism(Mechanism::named(word)?);
        }
        _ => return None,
    }
    Some(device)
}

#[cfg(test)]
mod tests {
    use weir_flash::Kind;

    use super::*;

    /// Words, and numbers that cannot be moved alone, are zero, or a limit that single blocks never meet.
    const NOT_MOVED: [&str; 12] = [
        "barrier.mechanism",
        "barrier.penalty",
        "device.capacity",
        "ftl.gc",
        "ftl.share_by",
        "host.fua",
        "host.max_transfer",
        "host.ordered_service",
        "host.packed_pages",
        "host.simple_service",
        "nand.blocks_per_plane",
        "nand.multi_plane",
    ];

    #[test]
    fn every_assumed_number_is_moved() {
        let mut moved = 0;
        for name in Profile::NAMES {
            let (device, parameters) = Profile::load(name).unwrap();
            let device = device.with_capacity(1 << 20);
            let assumed = parameters.iter().filter(|parameter| parameter.kind == Kind::Assumed);
            for key in assumed.map(|parameter| parameter.key.as_str()) {
                let both = [0.8, 1.2].map(|factor| scaled(&device, key, factor));
                assert_eq!(both.iter().all(Option::is_some), !NOT_MOVED.contains(&key), "{name}: {key}");
                moved += both.iter().flatten().filter(|other| **other != device).count();
            }
        }
        assert!(moved > 50, "{moved}");
    }
}
