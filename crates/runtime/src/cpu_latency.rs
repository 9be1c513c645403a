//! Processors that do not sleep.
//!
//! To wake an idle processor up costs microseconds, and on a virtual machine, whose processors are given to others when
//! they are idle, tens of them: more than what most requests take that one process makes of another. The system takes a
//! bound on that from programs: see `Documentation/admin-guide/pm/cpuidle.rst` of the kernel.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

/// Where a bound is asked for: four bytes, microseconds. It holds as long as the file is open.
const BOUND: &str = "/dev/cpu_dma_latency";

/// Keeps all processors of the machine from sleeping until dropped. They draw power all the time, and a virtual machine
/// has all of its processors' time from its host.
#[derive(Debug)]
pub struct CpuLatencyGuard {
    _bound: File,
}

impl CpuLatencyGuard {
    /// Keeps the processors awake until the guard is dropped.
    ///
    /// # Errors
    ///
    /// The system's error: only the superuser may open the file, and some machines do not have it.
    pub fn new() -> io::Result<CpuLatencyGuard> {
        CpuLatencyGuard::open(Path::new(BOUND))
    }

    fn open(path: &Path) -> io::Result<CpuLatencyGuard> {
        let mut bound = File::options().write(true).open(path)?;
        bound.write_all(&0_i32.to_ne_bytes())?;
        Ok(CpuLatencyGuard { _bound: bound })
    }

    /// Whether any process keeps the processors awake now; false where the file cannot be read.
    #[must_use]
    pub fn is_kept() -> bool {
        let mut bound = [0xFF; 4];
        let read = File::open(BOUND).and_then(|mut file| file.read_exact(&mut bound));
        read.is_ok() && bound == [0; 4]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_kept_awake_until_it_is_dropped() {
        let Ok(awake) = CpuLatencyGuard::new() else {
            eprintln!("skipped: processors are kept awake by the superuser, where {BOUND} is");
            return;
        };
        assert!(CpuLatencyGuard::is_kept());
        drop(awake);
        // Another program may keep them awake, so nothing is said of what is the case now.
        let missing = CpuLatencyGuard::open(Path::new("/nowhere/at/all")).expect_err("there is nothing");
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}
