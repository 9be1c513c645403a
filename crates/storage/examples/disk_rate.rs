//! How fast a file disk is: raw 4 KiB random writes and reads at depth 1, 8 and 32, and 1 MiB sequential
//! writes at depth 8, with the CPU time of each operation.
//!
//! `disk_rate DIRECTORY` works on a temporary file of 1 GiB there and removes it.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use std::collections::VecDeque;
use std::error::Error;
use std::path::PathBuf;
use std::rc::Rc;

use weir_runtime::{Handle, Random, Runtime, Wall};
use weir_storage::{
    BLOCK_BYTES, Command, Data, Extent, FileDisk, FileDiskOptions, Lba, Part, Storage, Ticket, Write, flush,
    submit_when_free,
};

const FILE_BYTES: u64 = 1 << 30;
const FILE_BLOCKS: u64 = FILE_BYTES / BLOCK_BYTES as u64;
const LARGE_BYTES: usize = 1 << 20;
const SMALL_OPERATIONS: u64 = 60_000;

type Outcome = Result<(), Box<dyn Error>>;

fn main() -> Outcome {
    let directory = PathBuf::from(std::env::args().nth(1).ok_or("name a directory on the disk to measure")?);
    let directory = tempfile::tempdir_in(directory)?;
    let runtime = Runtime::wall(Wall::default())?;
    let handle = runtime.handle();
    let disk =
        FileDisk::create(&handle, &directory.path().join("disk"), FILE_BYTES, FileDiskOptions::default())?;
    println!("direct I/O: {}", disk.direct());
    runtime.block_on(async {
        let bench = Bench { handle: handle.clone(), disk };
        bench.large("1 MiB sequential writes, depth 8, first pass").await?;
        bench.large("1 MiB sequential writes, depth 8").await?;
        for depth in [1, 8, 32] {
            bench.small(&format!("4 KiB random writes, depth {depth}"), depth, Kind::Bytes).await?;
        }
        bench.small("4 KiB random writes, depth 32, shared", 32, Kind::Shared).await?;
        for depth in [1, 8, 32] {
            bench.small(&format!("4 KiB random reads, depth {depth}"), depth, Kind::Read).await?;
        }
        bench.flushes().await
    })?
}

#[derive(Clone, Copy)]
enum Kind {
    Bytes,
    Shared,
    Read,
}

struct Bench {
    handle: Handle,
    disk: Rc<FileDisk>,
}

impl Bench {
    /// Sequential writes of the whole file from frozen, registered buffers.
    async fn large(&self, name: &str) -> Outcome {
        let mut buffer = self.disk.allocate(LARGE_BYTES);
        buffer.fill(0x5a);
        let buffer = Rc::new(buffer);
        let operations = FILE_BYTES / LARGE_BYTES as u64;
        let (mut window, meter) = (Window::new(8), Meter::start(&self.handle));
        for i in 0..operations {
            let data = Data::Shared { buffer: &buffer, offset: 0, bytes: LARGE_BYTES };
            let parts = [Part { start: Lba(i * (LARGE_BYTES / BLOCK_BYTES) as u64), data }];
            window.put(submit_when_free(&*self.disk, Command::Write(Write::new(&parts))).await?).await?;
        }
        window.drain().await?;
        meter.print(name, operations, LARGE_BYTES);
        Ok(flush(&*self.disk).await?)
    }

    /// Single blocks anywhere in the file.
    async fn small(&self, name: &str, depth: usize, kind: Kind) -> Outcome {
        let mut random: Random = self.handle.random("disk_rate");
        let mut buffer = self.disk.allocate(BLOCK_BYTES);
        buffer.fill(0x5a);
        let (page, buffer) = (vec![0xa5; BLOCK_BYTES], Rc::new(buffer));
        let (mut window, meter) = (Window::new(depth), Meter::start(&self.handle));
        for _ in 0..SMALL_OPERATIONS {
            let start = Lba(random.below(FILE_BLOCKS));
            let data = match kind {
                Kind::Shared => Data::Shared { buffer: &buffer, offset: 0, bytes: BLOCK_BYTES },
                Kind::Bytes | Kind::Read => Data::Bytes(&page),
            };
            let parts = [Part { start, data }];
            let command = match kind {
                Kind::Read => Command::read(Extent::new(start, 1)),
                Kind::Bytes | Kind::Shared => Command::Write(Write::new(&parts)),
            };
            window.put(submit_when_free(&*self.disk, command).await?).await?;
        }
        window.drain().await?;
        meter.print(name, SMALL_OPERATIONS, BLOCK_BYTES);
        Ok(flush(&*self.disk).await?)
    }

    async fn flushes(&self) -> Outcome {
        let (page, operations) = (vec![0xa5; BLOCK_BYTES], 2_000);
        let meter = Meter::start(&self.handle);
        for i in 0..operations {
            let parts = [Part::bytes(Lba(i), &page)];
            submit_when_free(&*self.disk, Command::Write(Write::new(&parts))).await?.transferred().await?;
            flush(&*self.disk).await?;
        }
        meter.print("4 KiB write, then flush, each alone", operations, BLOCK_BYTES);
        Ok(())
    }
}

/// Tickets in flight, at most `depth`; the oldest is awaited first.
struct Window {
    tickets: VecDeque<Ticket>,
    depth: usize,
}

impl Window {
    fn new(depth: usize) -> Window {
        Window { tickets: VecDeque::new(), depth }
    }

    async fn put(&mut self, ticket: Ticket) -> Outcome {
        self.tickets.push_back(ticket);
        while self.tickets.len() >= self.depth {
            self.oldest().await?;
        }
        Ok(())
    }

    async fn oldest(&mut self) -> Outcome {
        match self.tickets.pop_front() {
            Some(ticket) => Ok(ticket.transferred().await?),
            None => Ok(()),
        }
    }

    async fn drain(&mut self) -> Outcome {
        while !self.tickets.is_empty() {
            self.oldest().await?;
        }
        Ok(())
    }
}

/// Wall and CPU time of one measurement.
struct Meter {
    handle: Handle,
    started: weir_runtime::Instant,
    cpu: weir_runtime::CpuTime,
}

impl Meter {
    fn start(handle: &Handle) -> Meter {
        Meter { handle: handle.clone(), started: handle.now(), cpu: handle.cpu_time() }
    }

    fn print(&self, name: &str, operations: u64, bytes: usize) {
        let seconds = self.handle.now().since(self.started).as_secs_f64();
        let after = self.handle.cpu_time();
        let cpu = (after.user + after.system).saturating_sub(self.cpu.user + self.cpu.system);
        let rate = operations as f64 / seconds;
        let cpu_us = cpu.as_secs_f64() * 1e6 / operations as f64;
        let gigabytes = rate * bytes as f64 / 1e9;
        println!("{name:48} {rate:9.0} /s {gigabytes:6.2} GB/s {cpu_us:7.2} us CPU/op");
    }
}
