//! Connections of other programs, by sockets, in wall time.
//!
//! A socket is read and written at once where the kernel lets it, since a system call costs less than a trip through the
//! ring; the ring says when it is worth another try.

use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::set_tcp_nodelay;
use rustix::net::{Shutdown, SocketFlags, accept_with, shutdown};

use crate::polled::{PolledFile, RETRY};
use crate::{Handle, Instant};

/// How long to look for more bytes before sleeping: to be woken costs tens of microseconds, and a program that sends one
/// request after the other comes back sooner. Each look lets others run.
const WATCH: Duration = Duration::from_micros(50);

/// A socket on which other programs connect.
pub struct Listener {
    handle: Handle,
    polled: PolledFile,
}

impl Listener {
    /// Takes a socket that listens, and that does not wait (`SOCK_NONBLOCK`).
    ///
    /// # Errors
    /// Unsupported in virtual time.
    pub fn new(handle: &Handle, listening: OwnedFd) -> io::Result<Listener> {
        Ok(Listener { handle: handle.clone(), polled: PolledFile::new(handle, listening)? })
    }

    /// Waits for the next connection.
    ///
    /// # Errors
    /// What the system says of the socket. What it says of one connection, or for want of memory or descriptors, ends
    /// nothing.
    pub async fn accept(&self) -> io::Result<Socket> {
        Socket::new(&self.handle, self.accept_connection().await?)
    }

    /// Waits for the next connection, a socket that does not wait, for a caller that uses it in ways of its own.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    pub async fn accept_connection(&self) -> io::Result<OwnedFd> {
        loop {
            match accept_with(self.polled.file(), SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(connection) => return Ok(connection),
                Err(Errno::AGAIN) => self.polled.wait_readable().await,
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    self.handle.sleep(RETRY).await;
                }
                Err(error @ (Errno::BADF | Errno::INVAL | Errno::NOTSOCK | Errno::OPNOTSUPP)) => {
                    return Err(error.into());
                }
                // The other end is gone, or a signal came.
                Err(_) => self.handle.give_way().await,
            }
        }
    }
}

/// A connection: bytes come in and go out, in order. One task receives and one sends.
pub struct Socket {
    handle: Handle,
    polled: PolledFile,
    /// When something last came in or went out.
    active: Cell<Instant>,
}

impl Socket {
    /// Takes a connected socket that does not wait (`SOCK_NONBLOCK`).
    ///
    /// # Errors
    /// Unsupported in virtual time.
    pub fn new(handle: &Handle, connected: OwnedFd) -> io::Result<Socket> {
        // Sockets of the host itself have no such option, and need none.
        let _ = set_tcp_nodelay(&connected, true);
        Ok(Socket {
            handle: handle.clone(),
            polled: PolledFile::new(handle, connected)?,
            active: Cell::new(handle.now()),
        })
    }

    /// Waits for bytes, and puts as many as there are into `buffer`; their number, 0 where the other end sends no more.
    ///
    /// # Errors
    /// What the system says of the connection.
    pub async fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match rustix::io::read(self.polled.file(), &mut *buffer) {
                Ok(bytes) => {
                    self.active.set(self.handle.now());
                    return Ok(bytes);
                }
                Err(Errno::AGAIN) => self.stirred().await,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits until there may be something to receive: looks for a while, then sleeps.
    async fn stirred(&self) {
        if self.handle.now() < self.active.get() + WATCH && !self.handle.is_crowded() {
            return self.handle.give_way().await;
        }
        self.polled.wait_readable().await;
    }

    /// Sends all of `bytes`, and waits until the system has taken them.
    ///
    /// # Errors
    /// What the system says of the connection; then some of the bytes may have been sent.
    pub async fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let mut left = bytes;
        while !left.is_empty() {
            match rustix::io::write(self.polled.file(), left) {
                Ok(sent) => left = &left[sent..],
                Err(Errno::AGAIN) => self.polled.wait_writable().await,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.active.set(self.handle.now());
        Ok(())
    }

    /// Takes in nothing more: a receiver finds the end, behind what has come already.
    pub fn end_receiving(&self) {
        // It fails where the other end has gone, and then there is nothing to end.
        let _ = shutdown(self.polled.file(), Shutdown::Read);
    }

    /// Ends the connection in both directions.
    pub fn close(&self) {
        let _ = shutdown(self.polled.file(), Shutdown::Both);
    }
}

impl Drop for Socket {
    /// Also for others who have the file.
    fn drop(&mut self) {
        self.close();
    }
}
