//! What the tests share: a client of a served storage, by a stream of bytes without a socket, in virtual time.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use weir_export::{Export, ExportOptions};
use weir_nbd::{NbdError, Transport, serve_connection};
use weir_runtime::{Handle, Receiver, Sender, Task, channel};
use weir_storage::{AdversaryDisk, AdversaryOptions, Capabilities, Storage};
use weir_volume::{Format, LossWindow, Volume, VolumeOptions};

/// One end of a stream of bytes.
pub struct End {
    sender: Sender<Vec<u8>>,
    receiver: Receiver<Vec<u8>>,
    rest: RefCell<Vec<u8>>,
}

impl Transport for End {
    async fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.rest.borrow().is_empty() {
            let Ok(next) = self.receiver.recv().await else { return Ok(0) };
            *self.rest.borrow_mut() = next;
        }
        let mut rest = self.rest.borrow_mut();
        let bytes = rest.len().min(buffer.len());
        buffer[..bytes].copy_from_slice(&rest[..bytes]);
        rest.drain(..bytes);
        Ok(bytes)
    }

    async fn send(&self, bytes: &[u8]) -> io::Result<()> {
        self.sender.send(bytes.to_vec()).await.map_err(io::Error::other)
    }

    fn close(&self) {
        self.sender.close();
        self.receiver.close();
    }
}

impl End {
    /// Sends nothing more; what the other end sends still comes.
    pub fn end_sending(&self) {
        self.sender.close();
    }
}

/// Two ends; so many pieces are on their way in each direction at most.
pub fn stream(pieces: usize) -> (End, End) {
    let (to_server, from_client) = channel(pieces);
    let (to_client, from_server) = channel(pieces);
    let end = |sender, receiver| End { sender, receiver, rest: RefCell::default() };
    (end(to_server, from_server), end(to_client, from_client))
}

/// Commands.
pub const READ: u16 = 0;
pub const WRITE: u16 = 1;
pub const DISCONNECT: u16 = 2;
pub const FLUSH: u16 = 3;
pub const TRIM: u16 = 4;
pub const CACHE: u16 = 5;
pub const WRITE_ZEROES: u16 = 6;
pub const BLOCK_STATUS: u16 = 7;
/// Their flags.
pub const FUA: u16 = 1;
pub const NO_HOLE: u16 = 2;
pub const ONE_EXTENT: u16 = 8;
pub const FAST_ZERO: u16 = 16;

/// Options.
pub const GO: u32 = 7;
pub const STRUCTURED_REPLY: u32 = 8;
pub const SET_META_CONTEXT: u32 = 10;
/// A reply to one.
pub const ACK: u32 = 1;

pub fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u32).to_be_bytes();
    [b"IHAVEOPT", &number.to_be_bytes()[..], &length, data].concat()
}

pub fn request(command: u16, flags: u16, cookie: u64, offset: u64, length: u32) -> Vec<u8> {
    let header = [
        0x2560_9513_u32.to_be_bytes(),
        [flags.to_be_bytes(), command.to_be_bytes()].concat().try_into().unwrap(),
    ];
    let place = [cookie.to_be_bytes(), offset.to_be_bytes()].concat();
    [&header.concat()[..], &place, &length.to_be_bytes()].concat()
}

/// A reply: which request it answers, its error, the kind of its chunk (none of a simple reply), and what follows.
#[derive(Debug, PartialEq, Eq)]
pub struct Reply {
    pub cookie: u64,
    pub error: u32,
    pub chunk: Option<u16>,
    pub data: Vec<u8>,
}

/// A client, and the server's end of its connection.
pub struct Client {
    pub end: End,
    pub served: Task<Result<(), NbdError>>,
    pub structured: bool,
}

impl Client {
    /// Connects, and agrees on nothing.
    pub fn connect(handle: &Handle, export: &Rc<Export>) -> Client {
        let (end, server) = stream(64);
        let (handle_of_server, export) = (handle.clone(), Rc::clone(export));
        let served =
            handle.spawn(async move { serve_connection(&handle_of_server, &export, &Rc::new(server)).await });
        Client { end, served, structured: false }
    }

    /// Connects and negotiates, with structured replies and `base:allocation` or without.
    pub async fn new(handle: &Handle, export: &Rc<Export>, structured: bool) -> Client {
        let mut client = Client::connect(handle, export);
        client.greet().await;
        if structured {
            client.structured = true;
            assert_eq!(client.ask(STRUCTURED_REPLY, &[]).await, [(ACK, vec![])]);
            let allocation = b"base:allocation";
            let chosen = [&[0; 4][..], &1_u32.to_be_bytes(), &15_u32.to_be_bytes(), allocation].concat();
            assert_eq!(client.ask(SET_META_CONTEXT, &chosen).await.len(), 2);
        }
        assert_eq!(client.ask(GO, &[0; 6]).await.last().unwrap().0, ACK);
        client
    }

    /// Takes the greeting and answers it.
    pub async fn greet(&self) {
        let greeting = self.take(18).await.unwrap();
        assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
        self.send(&3_u32.to_be_bytes()).await;
    }

    pub async fn send(&self, bytes: &[u8]) {
        // A server that has dropped the client takes nothing.
        let _ = self.end.send(bytes).await;
    }

    /// So many bytes; none where the server sends no more.
    pub async fn take(&self, bytes: usize) -> Option<Vec<u8>> {
        let mut taken = vec![0; bytes];
        let mut filled = 0;
        while filled < bytes {
            match self.end.receive(&mut taken[filled..]).await.unwrap() {
                0 => return None,
                more => filled += more,
            }
        }
        Some(taken)
    }

    async fn number(&self) -> u32 {
        u32::from_be_bytes(self.take(4).await.unwrap().try_into().unwrap())
    }

    async fn long_number(&self) -> u64 {
        u64::from_be_bytes(self.take(8).await.unwrap().try_into().unwrap())
    }

    /// Sends an option; the replies to it, kind and data.
    pub async fn ask(&self, number: u32, data: &[u8]) -> Vec<(u32, Vec<u8>)> {
        self.send(&option(number, data)).await;
        let mut replies = Vec::new();
        loop {
            assert_eq!(self.long_number().await, 0x0003_e889_0455_65a9);
            assert_eq!(self.number().await, number);
            let (kind, length) = (self.number().await, self.number().await);
            replies.push((kind, self.take(length as usize).await.unwrap()));
            if kind == ACK || kind >= 1 << 31 {
                return replies;
            }
        }
    }

    /// The next reply, with so many bytes of data if it is a simple one without an error.
    pub async fn reply(&self, simple_bytes: usize) -> Reply {
        let magic = self.number().await;
        if magic == 0x6744_6698 {
            let (error, cookie) = (self.number().await, self.long_number().await);
            let bytes = if error == 0 { simple_bytes } else { 0 };
            return Reply { cookie, error, chunk: None, data: self.take(bytes).await.unwrap() };
        }
        assert_eq!(magic, 0x668e_33ef);
        let word = self.number().await;
        assert_eq!(word >> 16, 1, "it is the last chunk");
        let (cookie, length) = (self.long_number().await, self.number().await);
        let (chunk, mut data) = (word as u16, self.take(length as usize).await.unwrap());
        let mut error = 0;
        if chunk & 1 << 15 != 0 {
            error = u32::from_be_bytes(data[..4].try_into().unwrap());
            data.drain(..6);
        }
        Reply { cookie, error, chunk: Some(chunk), data }
    }

    /// Sends a request and what it writes; its reply.
    pub async fn does(&self, command: u16, flags: u16, offset: u64, length: u32, payload: &[u8]) -> Reply {
        self.send(&[&request(command, flags, 77, offset, length)[..], payload].concat()).await;
        let is_simple_read = command == READ && !self.structured;
        let reply = self.reply(if is_simple_read { length as usize } else { 0 }).await;
        assert_eq!(reply.cookie, 77);
        reply
    }

    /// The error of a request.
    pub async fn error(&self, command: u16, flags: u16, offset: u64, length: u32) -> u32 {
        let payload = vec![1; if command == WRITE { length as usize } else { 0 }];
        self.does(command, flags, offset, length, &payload).await.error
    }

    pub async fn writes(&self, offset: u64, bytes: &[u8], flags: u16) {
        assert_eq!(self.does(WRITE, flags, offset, bytes.len() as u32, bytes).await.error, 0);
    }

    pub async fn reads(&self, offset: u64, length: u32) -> Vec<u8> {
        let Reply { error, chunk, mut data, .. } = self.does(READ, 0, offset, length, &[]).await;
        assert_eq!(error, 0);
        if chunk.is_some() {
            assert_eq!(data[..8], offset.to_be_bytes());
            data.drain(..8);
        }
        assert_eq!(data.len(), length as usize);
        data
    }
}

/// A disk in memory that keeps what was flushed, and of the rest what it likes.
pub fn worst_disk(handle: &Handle, blocks: u64, capabilities: Capabilities) -> Rc<AdversaryDisk> {
    AdversaryDisk::new(handle, AdversaryOptions { blocks, capabilities, ..AdversaryOptions::default() })
}

/// A volume on such a disk, and the disk.
pub async fn worst_volume(handle: &Handle, blocks: u64) -> (Rc<Volume>, Rc<AdversaryDisk>) {
    worst_volume_with(handle, blocks, VolumeOptions::default()).await
}

/// The same with some options.
pub async fn worst_volume_with(
    handle: &Handle,
    blocks: u64,
    options: VolumeOptions,
) -> (Rc<Volume>, Rc<AdversaryDisk>) {
    let disk = worst_disk(handle, blocks, Capabilities::legacy(32, 64, 512));
    let format = Format { segment_blocks: 16, ..Format::default() };
    Volume::create(handle, &*disk, format).await.unwrap();
    let below = Rc::clone(&disk) as Rc<dyn Storage>;
    // It flushes by itself all the time, so that there are cuts although nobody asks for a flush.
    let loss_window = LossWindow { time: Duration::from_millis(1), ..LossWindow::default() };
    let options = VolumeOptions { loss_window, ..options };
    let volume = Volume::open(handle, below, options).await.unwrap();
    (Rc::new(volume), disk)
}

pub fn export(storage: Rc<dyn Storage>, options: ExportOptions) -> Rc<Export> {
    Rc::new(Export::new(storage, options).unwrap())
}
