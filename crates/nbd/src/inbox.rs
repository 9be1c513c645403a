//! Bytes that a client sent, in the pieces in which they are wanted.

use std::rc::Rc;

use crate::error::NbdError;
use crate::transport::Transport;

/// Bytes that are taken in at one time: many small requests, by one system call.
const BUFFER_BYTES: usize = 256 << 10;

/// What has come in and was not taken yet.
pub(crate) struct Inbox<T> {
    transport: Rc<T>,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl<T: Transport> Inbox<T> {
    pub(crate) fn new(transport: &Rc<T>) -> Inbox<T> {
        let buffer = vec![0; BUFFER_BYTES].into_boxed_slice();
        Inbox { transport: Rc::clone(transport), buffer, start: 0, end: 0 }
    }

    /// Waits until so many bytes are there, [`BUFFER_BYTES`] at most; false if the end comes before the first of them.
    pub(crate) async fn fill(&mut self, bytes: usize) -> Result<bool, NbdError> {
        while self.end - self.start < bytes {
            if self.buffer.len() - self.start < bytes || self.start == self.end {
                self.buffer.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
            }
            match self.transport.receive(&mut self.buffer[self.end..]).await? {
                0 if self.start == self.end => return Ok(false),
                0 => return Err(NbdError::Ended),
                more => self.end += more,
            }
        }
        Ok(true)
    }

    /// Takes so many bytes, [`BUFFER_BYTES`] at most.
    pub(crate) async fn take(&mut self, bytes: usize) -> Result<&[u8], NbdError> {
        if !self.fill(bytes).await? {
            return Err(NbdError::Ended);
        }
        let taken = self.start..self.start + bytes;
        self.start = taken.end;
        Ok(&self.buffer[taken])
    }

    /// Takes so many bytes in memory of their own.
    pub(crate) async fn take_payload(&mut self, bytes: usize) -> Result<Vec<u8>, NbdError> {
        let there = bytes.min(self.end - self.start);
        let mut payload = Vec::with_capacity(bytes);
        payload.extend_from_slice(&self.buffer[self.start..self.start + there]);
        self.start += there;
        payload.resize(bytes, 0);
        let mut filled = there;
        while filled < bytes {
            match self.transport.receive(&mut payload[filled..]).await? {
                0 => return Err(NbdError::Ended),
                more => filled += more,
            }
        }
        Ok(payload)
    }
}
