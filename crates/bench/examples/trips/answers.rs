//! What the server answers: a root directory with one file, of which every byte is the same.

use std::io;

use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use weir_runtime::FuseRequest;

/// Bytes of a write or a read, at most.
pub const TRANSFER_BYTES: usize = 1 << 20;
/// Bytes of the file.
pub const FILE_BYTES: u64 = 256 << 20;
/// Names of the file: read and written past the kernel's cache, or through it.
pub const DIRECT: &str = "direct";
pub const CACHED: &str = "cached";
/// The extended attribute that tells the server's processor time so far, in nanoseconds as a number of 8 bytes.
pub const TIME_ATTRIBUTE: &str = "user.time";

const HEADER_BYTES: usize = 40;

static CONTENT: [u8; TRANSFER_BYTES] = [7; TRANSFER_BYTES];

mod opcode {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const RELEASE: u32 = 18;
    pub const GETXATTR: u32 = 22;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const BATCH_FORGET: u32 = 42;
}

/// An answer: its header and what follows it.
pub struct Answer {
    pub header: [u8; 16],
    body: Vec<u8>,
    content: usize,
}

impl Answer {
    pub fn body(&self) -> &[u8] {
        if self.content > 0 { &CONTENT[..self.content] } else { &self.body }
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}

/// The bytes of integers, one after the other.
fn longs(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

/// A request that was read from the device, in the pieces in which a queue has it.
pub fn request(bytes: &[u8]) -> Option<FuseRequest<'_>> {
    let (header, body) = bytes.split_at_checked(HEADER_BYTES)?;
    let begin = match word(header, 4) {
        opcode::LOOKUP => 0,
        opcode::GETXATTR => 8,
        opcode::WRITE => 40,
        _ => body.len(),
    };
    let (operation, rest) = body.split_at_checked(begin)?;
    Some(FuseRequest { header, operation, rest })
}

/// The answer to a request; none where the kernel waits for none.
pub fn answer(request: FuseRequest<'_>, over_uring: bool) -> Option<Answer> {
    let FuseRequest { header, operation, rest } = request;
    let node = long(header, 16);
    let mut content = 0;
    let body = match word(header, 4) {
        opcode::FORGET | opcode::BATCH_FORGET => return None,
        opcode::INIT => Ok(agreed(over_uring)),
        opcode::LOOKUP => match rest.strip_suffix(&[0]).unwrap_or(rest).split(|byte| *byte == 0).next() {
            Some(name) if name == DIRECT.as_bytes() => Ok(entry(2)),
            Some(name) if name == CACHED.as_bytes() => Ok(entry(3)),
            _ => Err(Errno::NOENT),
        },
        opcode::GETATTR => Ok([longs(&[0, 0]), attributes(node)].concat()),
        // Direct, with writes side by side, for the one; with nothing kept from before, for the other.
        opcode::OPEN => Ok([longs(&[node]), words(&[if node == 2 { 1 | 1 << 6 } else { 0 }, 0])].concat()),
        opcode::READ => {
            content = (word(operation, 16) as usize).min(TRANSFER_BYTES);
            Ok(Vec::new())
        }
        opcode::WRITE => Ok(words(&[word(operation, 16), 0])),
        opcode::GETXATTR if rest.starts_with(TIME_ATTRIBUTE.as_bytes()) => {
            let time = clock_gettime(ClockId::ProcessCPUTime);
            Ok(longs(&[time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()]))
        }
        opcode::RELEASE | opcode::FLUSH => Ok(Vec::new()),
        _ => Err(Errno::NOSYS),
    };
    let (error, body) = body.map_or_else(|errno| (-errno.raw_os_error(), Vec::new()), |body| (0, body));
    let bytes = 16 + body.len().max(content);
    let mut header_out = [0; 16];
    header_out[..4].copy_from_slice(&(bytes as u32).to_ne_bytes());
    header_out[4..8].copy_from_slice(&i32::to_ne_bytes(error));
    header_out[8..].copy_from_slice(&header[8..16]);
    Some(Answer { header: header_out, body, content })
}

/// What INIT is answered: version 7.38, requests of 1 MiB, direct I/O without waiting; and FUSE over io_uring.
fn agreed(over_uring: bool) -> Vec<u8> {
    let (async_read, big_writes, async_direct, parallel_directories) = (1, 1 << 5, 1 << 15, 1 << 18);
    let (max_pages, more_flags) = (1 << 22, 1 << 30);
    let flags = async_read | big_writes | async_direct | parallel_directories | max_pages | more_flags;
    let transfer = TRANSFER_BYTES as u32;
    let head =
        words(&[7, 38, transfer, flags, 256 | 200 << 16, transfer, 1, 256, u32::from(over_uring) << 9]);
    [head, vec![0; 28]].concat()
}

/// The kernel asks for attributes each time.
fn entry(node: u64) -> Vec<u8> {
    [longs(&[node, 0, 3600, 0, 0]), attributes(node)].concat()
}

fn attributes(node: u64) -> Vec<u8> {
    let (mode, bytes) = if node == 1 { (0o40_755, 0) } else { (0o100_644, FILE_BYTES) };
    let times = [0; 3];
    [longs(&[node, bytes, bytes / 512]), longs(&times), words(&[0, 0, 0, mode, 1, 0, 0, 0, 4096, 0])].concat()
}

/// What a connection that has ended says.
pub fn has_ended(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NODEV | Errno::NOTCONN))
}
