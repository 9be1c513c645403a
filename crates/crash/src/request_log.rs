//! A *log of requests*: what was written to a storage and flushed, in the order of submission, as CrashMonkey's wrapper of a
//! block device logs it.
//!
//! A command of several blocks is as many requests, of which the last has the flags: the kernel's ext4 submits the blocks of
//! its metadata and its journal one by one, and only the layers below merge them. Discards and shares are not logged: no
//! ground of crash tests has them.

use std::cell::RefCell;
use std::io::{self, Read};
use std::rc::Rc;

use weir_storage::{BLOCK_BYTES, Command, Interposed, Lba, Rejected, Storage, Ticket, Write};

/// A request of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The block that is written, and its bytes; none for a flush or a bare barrier.
    pub block: Option<(Lba, Rc<[u8]>)>,
    /// A flush, a barrier or FUA: what is logged behind it belongs to the next epoch.
    pub ends_epoch: bool,
}

/// In a record, the number of a request's block that writes none.
const NO_BLOCK: u64 = u64::MAX;

impl Request {
    /// A flush, or a bare barrier.
    pub const END: Request = Request { block: None, ends_epoch: true };

    /// The requests that a command is.
    fn of_command(command: &Command<'_>) -> Vec<Request> {
        match command {
            Command::Flush | Command::Barrier { .. } => vec![Request::END],
            Command::Write(write) => Request::of_write(write),
            Command::Packed(writes) => writes.iter().flat_map(Request::of_write).collect(),
            Command::Read { .. } | Command::Discard(_) | Command::Share(_) => Vec::new(),
        }
    }

    fn of_write(write: &Write<'_>) -> Vec<Request> {
        let flags = write.flags;
        // The flush of a write with FUA, too, covers what was written before, and both end the epoch together. Without FUA the
        // write itself belongs to the next one.
        let mut requests = match flags.preflush && !flags.fua {
            true => vec![Request::END],
            false => Vec::new(),
        };
        for part in write.parts {
            let blocks = (0..).zip(part.data.bytes().chunks_exact(BLOCK_BYTES));
            let block = |(nth, bytes): (u64, &[u8])| (part.start.offset(nth), Rc::from(bytes));
            requests.extend(blocks.map(|each| Request { block: Some(block(each)), ends_epoch: false }));
        }
        if let Some(last) = requests.last_mut() {
            last.ends_epoch |= flags.barrier || flags.fua;
        }
        requests
    }

    /// Appends it as a record: the number of its block, whether it ends its epoch, and its bytes.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn write_to(&self, to: &mut impl io::Write) -> io::Result<()> {
        let block = self.block.as_ref().map_or(NO_BLOCK, |(block, _)| block.0);
        let bytes = self.block.as_ref().map_or(&[][..], |(_, bytes)| bytes);
        let head = [block, u64::from(self.ends_epoch)].map(u64::to_le_bytes).concat();
        to.write_all(&[&head, bytes].concat())
    }

    /// The bytes of its record.
    #[must_use]
    pub fn record_bytes(&self) -> u64 {
        16 + self.block.as_ref().map_or(0, |_| BLOCK_BYTES as u64)
    }

    /// The next record; none behind the last, or where it is not whole.
    ///
    /// # Errors
    /// Those of `from`.
    pub fn read_from(from: &mut impl Read) -> io::Result<Option<Request>> {
        let (mut head, mut bytes) = ([[0; 8]; 2], vec![0; BLOCK_BYTES]);
        if !is_read(from, head.as_flattened_mut())? {
            return Ok(None);
        }
        let [block, ends_epoch] = head.map(u64::from_le_bytes);
        if block != NO_BLOCK && !is_read(from, &mut bytes)? {
            return Ok(None);
        }
        let block = (block != NO_BLOCK).then(|| (Lba(block), Rc::from(bytes)));
        Ok(Some(Request { block, ends_epoch: ends_epoch != 0 }))
    }
}

/// Fills `bytes`; false if there are not as many.
fn is_read(from: &mut impl Read, bytes: &mut [u8]) -> io::Result<bool> {
    match from.read_exact(bytes) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// Where requests go.
type Sink = Box<dyn FnMut(Request)>;

/// Stands before a storage, and logs what it accepts.
pub struct LoggedStorage {
    below: Rc<dyn Storage>,
    sink: RefCell<Option<Sink>>,
}

impl LoggedStorage {
    /// Stands before `below`, and logs nothing yet.
    #[must_use]
    pub fn before(below: Rc<dyn Storage>) -> Rc<LoggedStorage> {
        Rc::new(LoggedStorage { below, sink: RefCell::default() })
    }

    /// From now on, requests go to `sink`.
    pub fn send_to(&self, sink: impl FnMut(Request) + 'static) {
        *self.sink.borrow_mut() = Some(Box::new(sink));
    }

    /// Logs no more.
    pub fn stop(&self) {
        *self.sink.borrow_mut() = None;
    }
}

impl Interposed for LoggedStorage {
    fn below(&self) -> &dyn Storage {
        &*self.below
    }

    fn take(&self, command: Command<'_>) -> Result<Ticket, Rejected> {
        let ticket = self.below.submit(command)?;
        if let Some(sink) = &mut *self.sink.borrow_mut() {
            Request::of_command(&command).into_iter().for_each(sink);
        }
        Ok(ticket)
    }
}
