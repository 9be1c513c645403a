//! What the tests share: a disk that outlives its server, a server on a thread of its own, and a guest, whose frontend
//! is that of the crate `vhost`.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use weir_export::{Export, ExportOptions};
use weir_runtime::{Buffer, Event, Listener, Runtime, Wall};
use weir_storage::{
    BLOCK_BYTES, Capabilities, Command, Completer, Discard, Extent, Rejected, Storage, StorageError, Ticket,
};
use weir_vhost::{VhostOptions, VhostServer};

mod guest;

pub use guest::{Asked, Data, Guest, Kept, RING, TABLE};

/// Kinds of requests.
pub const IN: u32 = 0;
pub const OUT: u32 = 1;
pub const FLUSH: u32 = 4;
pub const GET_ID: u32 = 8;
pub const DISCARD: u32 = 11;
pub const WRITE_ZEROES: u32 = 13;
/// How they end.
pub const OK: u8 = 0;
pub const FAILED: u8 = 1;
pub const UNSUPPORTED: u8 = 2;

/// Blocks of the disk.
pub const BLOCKS: u64 = 2048;

/// A range to discard or zero, as requests give it.
pub fn range(sector: u64, sectors: u32, flags: u32) -> Vec<u8> {
    [&sector.to_le_bytes()[..], &sectors.to_le_bytes(), &flags.to_le_bytes()].concat()
}

/// What is on a disk, and what was asked of it.
#[derive(Default)]
pub struct Content {
    pub bytes: Vec<u8>,
    /// The first block of each write that came, and with FUA or not.
    pub writes: Vec<(u64, bool)>,
    pub flushes: u64,
    /// Writes are neither done nor answered, until this ends.
    pub holds: bool,
}

/// A disk whose content outlives it.
#[derive(Clone)]
pub struct Shelf(Arc<Mutex<Content>>);

impl Shelf {
    pub fn new() -> Shelf {
        Shelf(Arc::new(Mutex::new(Content {
            bytes: vec![0; BLOCKS as usize * BLOCK_BYTES],
            ..Content::default()
        })))
    }

    pub fn with<T>(&self, act: impl FnOnce(&mut Content) -> T) -> T {
        act(&mut self.0.lock().unwrap())
    }
}

/// A write that was held, and what it writes.
struct Held {
    completer: Completer,
    parts: Vec<(Extent, Vec<u8>)>,
}

struct ShelfDisk {
    shelf: Shelf,
    capabilities: Capabilities,
    held: RefCell<Vec<Held>>,
    slots: Event,
}

impl ShelfDisk {
    /// Does the writes that were held, and answers them, if none are to be held any more.
    fn release(&self) {
        if self.shelf.with(|content| content.holds) {
            return;
        }
        let released = self.held.take();
        for Held { completer, parts } in released {
            self.shelf.with(|content| {
                parts.iter().for_each(|(extent, data)| content.bytes[place(*extent)].copy_from_slice(data));
            });
            completer.transferred(Ok(()));
        }
    }
}

fn place(extent: Extent) -> std::ops::Range<usize> {
    let start = extent.start.0 as usize * BLOCK_BYTES;
    start..start + extent.blocks as usize * BLOCK_BYTES
}

impl Storage for ShelfDisk {
    fn blocks(&self) -> u64 {
        BLOCKS
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn submit(&self, command: Command<'_>) -> Result<Ticket, Rejected> {
        self.shelf.with(|content| match command {
            Command::Read { extent, .. } => {
                let (ticket, completer) = Ticket::pending();
                completer.data(Buffer::copy_of(&content.bytes[place(extent)]));
                completer.transferred(Ok(()));
                Ok(ticket)
            }
            Command::Write(write) => {
                content.writes.push((write.parts[0].start.0, write.flags.fua));
                if content.holds {
                    let (ticket, completer) = Ticket::pending();
                    let parts = write.parts.iter().map(|part| (part.extent(), part.data.bytes().to_vec()));
                    self.held.borrow_mut().push(Held { completer, parts: parts.collect() });
                    return Ok(ticket);
                }
                for part in write.parts {
                    content.bytes[place(part.extent())].copy_from_slice(part.data.bytes());
                }
                Ok(Ticket::done())
            }
            Command::Flush => {
                content.flushes += 1;
                Ok(Ticket::done())
            }
            Command::Discard(extents) => {
                extents.iter().for_each(|extent| content.bytes[place(*extent)].fill(0));
                Ok(Ticket::done())
            }
            _ => Err(Rejected::Failed(StorageError::Gone)),
        })
    }

    fn slots(&self) -> &Event {
        &self.slots
    }
}

/// A server on a thread of its own.
pub struct Server {
    thread: Option<JoinHandle<()>>,
    ends: Arc<AtomicBool>,
    killed: Arc<AtomicBool>,
}

impl Server {
    pub fn start(shelf: &Shelf, socket: &Path, read_only: bool, options: VhostOptions) -> Server {
        Server::start_export(shelf, socket, ExportOptions { read_only, ..ExportOptions::default() }, options)
    }

    #[expect(clippy::disallowed_methods, reason = "the server is a process of its own elsewhere")]
    pub fn start_export(
        shelf: &Shelf,
        socket: &Path,
        export: ExportOptions,
        options: VhostOptions,
    ) -> Server {
        let _ = std::fs::remove_file(socket);
        let listening = std::os::unix::net::UnixListener::bind(socket).unwrap();
        listening.set_nonblocking(true).unwrap();
        let (ends, killed) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let (shelf, has_to_end, is_killed) = (shelf.clone(), Arc::clone(&ends), Arc::clone(&killed));
        let thread = std::thread::spawn(move || {
            let runtime = Runtime::wall(Wall::default()).unwrap();
            let handle = runtime.handle();
            let script = async {
                let mut capabilities = Capabilities::legacy(32, 64, 4096);
                capabilities.discard = Discard::ReadsZero;
                capabilities.fua = true;
                let disk = ShelfDisk { shelf, capabilities, held: RefCell::default(), slots: Event::new() };
                let disk = Rc::new(disk);
                let export = Rc::new(Export::new(Rc::clone(&disk) as _, export).unwrap());
                let listener = Listener::new(&handle, listening.into()).unwrap();
                let server = VhostServer::start(&handle, listener, export, options);
                while !has_to_end.load(Ordering::SeqCst) {
                    handle.sleep(Duration::from_millis(2)).await;
                    disk.release();
                }
                if !is_killed.load(Ordering::SeqCst) {
                    server.stop().await;
                }
            };
            runtime.block_on(script).unwrap();
        });
        Server { thread: Some(thread), ends, killed }
    }

    /// Ends it as a signal that kills would: nothing more is answered.
    pub fn kill(self) {
        self.killed.store(true, Ordering::SeqCst);
        drop(self);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
        self.thread.take().unwrap().join().unwrap();
    }
}

/// Looks again and again until `look` finds something, for some seconds.
#[expect(clippy::disallowed_methods, reason = "the server is on another thread")]
pub fn until<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    for _ in 0..5_000 {
        if let Some(found) = look() {
            return Some(found);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    None
}

/// Waits for so many milliseconds.
#[expect(clippy::disallowed_methods, reason = "the server is on another thread")]
pub fn wait(millis: u64) {
    std::thread::sleep(Duration::from_millis(millis));
}
