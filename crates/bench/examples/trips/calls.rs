//! What clients call, and how often they can in a second.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};
use std::{io, thread};

use rustix::fs::{Advice, AtFlags, StatxFlags, fadvise, statx};

use crate::answers::{CACHED, DIRECT, FILE_BYTES};
use crate::served::Served;

const LONG: usize = 128 << 10;
const SHORT: usize = 4 << 10;

/// A call that is one trip, or in the end as many as it has requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Attributes,
    Write(usize),
    Read(usize),
    /// By way of the kernel's cache, which reads ahead.
    Stream,
}

impl Call {
    pub const ALL: [Call; 6] = [
        Call::Attributes,
        Call::Write(SHORT),
        Call::Read(SHORT),
        Call::Write(LONG),
        Call::Read(LONG),
        Call::Stream,
    ];

    pub fn title(self) -> String {
        match self {
            Call::Attributes => "attributes".to_owned(),
            Call::Write(bytes) => format!("write of {} KiB", bytes >> 10),
            Call::Read(bytes) => format!("read of {} KiB", bytes >> 10),
            Call::Stream => format!("sequential read, {} KiB", LONG >> 10),
        }
    }

    /// Runs so many clients for a time: calls a second, and the server's processor time a call, in microseconds.
    pub fn run(self, served: &Served, clients: usize, time: Duration) -> io::Result<(f64, f64)> {
        let (before, begin) = (served.time()?, Instant::now());
        let calls: io::Result<u64> = thread::scope(|scope| {
            let all: Vec<_> = (0..clients).map(|_| scope.spawn(|| self.repeat(served, time))).collect();
            all.into_iter()
                .map(|client| client.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into())))
                .sum()
        });
        let (calls, seconds) = (calls? as f64, begin.elapsed().as_secs_f64());
        let server = served.time()?.saturating_sub(before);
        Ok((calls / seconds, server.as_secs_f64() * 1e6 / calls))
    }

    fn repeat(self, served: &Served, time: Duration) -> io::Result<u64> {
        let name = if self == Call::Stream { CACHED } else { DIRECT };
        let file = File::options().read(true).write(true).open(served.path().join(name))?;
        let mut buffer = vec![1; LONG];
        let (begin, mut calls) = (Instant::now(), 0);
        while begin.elapsed() < time {
            for _ in 0..8 {
                match self {
                    Call::Attributes => {
                        statx(
                            &file,
                            "",
                            AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC,
                            StatxFlags::BASIC_STATS,
                        )?;
                    }
                    Call::Write(bytes) => file.write_all_at(&buffer[..bytes], 0)?,
                    Call::Read(bytes) => file.read_exact_at(&mut buffer[..bytes], 0)?,
                    Call::Stream => {
                        let at = calls * LONG as u64 % FILE_BYTES;
                        file.read_exact_at(&mut buffer, at)?;
                        if at + LONG as u64 == FILE_BYTES {
                            fadvise(&file, 0, None, Advice::DontNeed)?;
                        }
                    }
                }
                calls += 1;
            }
        }
        Ok(calls)
    }
}
