//! The peer: the host's own filesystem, through the calls that programs use today.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt as _;

use rustix::io::ReadWriteFlags;
use weir_storage::BLOCK_BYTES;

use crate::content::Pages;
use crate::measure::{Goal, Meter};
use crate::writes::Writes;

/// How a program on the host makes its writes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HostCalls {
    /// `pwrite` over existing data, then `fdatasync`, for each write.
    Fdatasync,
    /// `pwrite` at the end of the file, then `fsync`, for each write.
    AppendFsync,
    /// `pwrite` at the end of the file, then `fdatasync`, for each write.
    AppendFdatasync,
    /// `pwrite` into the page cache, and one `fsync` at the end.
    FinalFsync,
    /// `pwritev2` with `RWF_DSYNC`.
    Dsync,
}

impl HostCalls {
    /// Whether the file grows by each write.
    #[must_use]
    pub fn appends(self) -> bool {
        matches!(self, HostCalls::AppendFsync | HostCalls::AppendFdatasync)
    }
}

/// Makes a file empty, and that durable.
///
/// # Errors
/// What the kernel answered.
pub fn begin_anew(file: &File) -> io::Result<()> {
    file.set_len(0)?;
    file.sync_all()
}

/// Writes `writes` to `file` until `goal` is reached; a final `fsync` belongs to it where the calls leave
/// something to make durable. Returns how many calls made data durable.
///
/// Every call blocks the thread, as it does in the programs that this stands for.
///
/// # Errors
/// What the kernel answered.
pub fn run(
    calls: HostCalls,
    file: &File,
    writes: &mut Writes,
    pages: &mut Pages,
    goal: &Goal,
    meter: &mut Meter,
) -> io::Result<u64> {
    let mut flushes = 0;
    while !meter.reached(goal) {
        let stamp = writes.take();
        let offset = stamp.block * BLOCK_BYTES as u64;
        let page = pages.page(stamp);
        match calls {
            HostCalls::Fdatasync => {
                file.write_all_at(page, offset)?;
                file.sync_data()?;
                flushes += 1;
            }
            HostCalls::AppendFsync | HostCalls::AppendFdatasync => {
                if offset == 0 && flushes > 0 {
                    // The span is used up, which takes a filesystem in memory: begin a new file.
                    file.set_len(0)?;
                }
                file.write_all_at(page, offset)?;
                if calls == HostCalls::AppendFsync { file.sync_all() } else { file.sync_data() }?;
                flushes += 1;
            }
            HostCalls::FinalFsync => file.write_all_at(page, offset)?,
            HostCalls::Dsync => {
                write_durably(file, page, offset)?;
                flushes += 1;
            }
        }
        meter.lap();
    }
    if calls == HostCalls::FinalFsync {
        file.sync_all()?;
        flushes += 1;
    }
    Ok(flushes)
}

fn write_durably(file: &File, mut page: &[u8], mut offset: u64) -> io::Result<()> {
    while !page.is_empty() {
        let written = rustix::io::pwritev2(file, &[IoSlice::new(page)], offset, ReadWriteFlags::DSYNC)?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        page = &page[written..];
        offset += written as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use weir_runtime::{Runtime, Simulation};

    use super::*;
    use crate::chooser::Distribution;
    use crate::writes::Span;

    #[test]
    fn every_call_writes_what_it_says() {
        let runtime = Runtime::simulated(Simulation::default());
        let handle = runtime.handle();
        for (calls, flushes) in [
            (HostCalls::Fdatasync, 20),
            (HostCalls::AppendFsync, 20),
            (HostCalls::AppendFdatasync, 20),
            (HostCalls::FinalFsync, 1),
            (HostCalls::Dsync, 20),
        ] {
            let file = tempfile::tempfile().unwrap();
            let mut pages = Pages::new(&mut handle.random("pages"));
            let mut writes =
                Writes::new(1, Span::pages(64), Distribution::Sequential, 0, 1, handle.random("host"));
            let mut again = writes.clone();
            let mut meter = Meter::start(&handle);
            let seen = run(calls, &file, &mut writes, &mut pages, &Goal::writes(20), &mut meter).unwrap();
            assert_eq!((seen, meter.stop().writes), (flushes, 20), "{calls:?}");
            for _ in 0..20 {
                let stamp = again.take();
                let mut page = [0; BLOCK_BYTES];
                file.read_exact_at(&mut page, stamp.block * BLOCK_BYTES as u64).unwrap();
                assert!(pages.is(&page, stamp), "{calls:?} {stamp:?}");
            }
        }
    }
}
