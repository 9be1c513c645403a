//! The requests that the kernel sends to a mount's server, counted by its tracepoint `fuse:fuse_request_send`.

use std::io::{self, BufRead as _, BufReader};
use std::os::linux::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Where the kernel's tracing is.
const TRACING: &str = "/sys/kernel/tracing";
/// The tracepoint, below that or an instance.
const EVENT: &str = "events/fuse/fuse_request_send";

/// A counter, of which the kernel has an instance until it is dropped.
pub(super) struct RequestCounter {
    instance: PathBuf,
}

impl RequestCounter {
    /// A counter of the requests of one mount; none for users who may not trace, and kernels without.
    pub(super) fn new(mountpoint: &Path) -> Option<RequestCounter> {
        let device = std::fs::metadata(mountpoint).ok()?.st_dev();
        let instance = PathBuf::from(TRACING).join(format!("instances/weir-bench-{}", std::process::id()));
        std::fs::create_dir(&instance).ok()?;
        let counter = RequestCounter { instance };
        // The kernel calls a connection by the minor number of its device.
        let filter = format!("connection == {}", rustix::fs::minor(device));
        counter.write(&format!("{EVENT}/filter"), &filter).ok()?;
        Some(counter)
    }

    fn write(&self, file: &str, value: &str) -> io::Result<()> {
        std::fs::write(self.instance.join(file), value)
    }

    /// Begins at 0.
    pub(super) fn start(&self) -> io::Result<()> {
        self.write("trace", "")?;
        self.write(&format!("{EVENT}/enable"), "1")
    }

    /// Requests since the start; those that have left the kernel's buffer count as well.
    pub(super) fn stop(&self) -> io::Result<u64> {
        self.write(&format!("{EVENT}/enable"), "0")?;
        let trace = BufReader::new(std::fs::File::open(self.instance.join("trace"))?);
        for line in trace.lines().take(4) {
            if let Some(count) = count_of(&line?) {
                return Ok(count);
            }
        }
        Err(io::ErrorKind::InvalidData.into())
    }
}

/// The events that were written, as the head of a trace tells: `# entries-in-buffer/entries-written: 12/12   #P:2`.
fn count_of(line: &str) -> Option<u64> {
    let counts = line.strip_prefix("# entries-in-buffer/entries-written:")?;
    counts.split_whitespace().next()?.split_once('/')?.1.parse().ok()
}

impl Drop for RequestCounter {
    fn drop(&mut self) {
        // What is left of it would only take memory of the kernel.
        let _ = std::fs::remove_dir(&self.instance);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_of_a_trace_has_the_count() {
        assert_eq!(count_of("# entries-in-buffer/entries-written: 12/4096   #P:2"), Some(4096));
        assert_eq!(["# tracer: nop", "", "# entries-in-buffer/entries-written: x"].map(count_of), [None; 3]);
    }
}
