//! What carries the bytes of a connection.

use std::future::Future;
use std::io;

use weir_runtime::Socket;

/// A stream of bytes in both directions.
pub trait Transport: 'static {
    /// Waits for bytes and puts them into the front of `buffer`; how many, 0 where no more will come.
    fn receive(&self, buffer: &mut [u8]) -> impl Future<Output = io::Result<usize>>;

    /// Sends all of `bytes`, in turn with those of earlier calls.
    fn send(&self, bytes: &[u8]) -> impl Future<Output = io::Result<()>>;

    /// Ends it in both directions: a receiver finds the end, and a sender an error.
    fn close(&self);
}

impl Transport for Socket {
    async fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Socket::receive(self, buffer).await
    }

    async fn send(&self, bytes: &[u8]) -> io::Result<()> {
        Socket::send(self, bytes).await
    }

    fn close(&self) {
        Socket::close(self);
    }
}
