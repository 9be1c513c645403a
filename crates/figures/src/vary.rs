//! How far a prediction depends on what was assumed: the same device with one of its parameters moved.

use weir_flash::Profile;

/// `device` with the parameter `key`, as its profile's file calls it, times `factor`. None where it is not a
/// number that can be moved alone, or the device would be impossible.
pub(crate) fn scaled(device: &Profile, key: &str, factor: f64) -> Option<Profile> {
    let mut device = device.clone();
    let time = |value: u64| (value as f64 * factor).round() as u64;
    let count = |value: u32| (f64::from(value) * factor).round() as u32;
    let Profile { host, cache, nand, ftl, flush, .. } = &mut device;
    match key {
        "host.queue_depth" => host.queue_depth = count(host.queue_depth),
        "host.link" => host.link_bytes_per_second = time(host.link_bytes_per_second),
        "host.command" => host.command_ns = time(host.command_ns),
        "host.latency" => host.latency_ns = time(host.latency_ns),
        "cache.size" => cache.bytes = time(cache.bytes),
        "cache.destage_share" => cache.destage_share *= factor,
        "nand.read" => nand.read_ns.iter_mut().for_each(|ns| *ns = time(*ns)),
        "nand.program" => nand.program_ns.iter_mut().for_each(|ns| *ns = time(*ns)),
        "nand.erase" => nand.erase_ns = time(nand.erase_ns),
        "nand.channel" => nand.channel_bytes_per_second = time(nand.channel_bytes_per_second),
        "ftl.gc_free_blocks" => ftl.gc_free_blocks = count(ftl.gc_free_blocks),
        "ftl.checkpoint_share" => ftl.checkpoint_share *= factor,
        "flush.fixed" => flush.fixed_ns = time(flush.fixed_ns),
        "flush.journal_pages" => flush.journal_pages = count(flush.journal_pages),
        _ => return None,
    }
    device.check().ok().map(|()| device)
}
