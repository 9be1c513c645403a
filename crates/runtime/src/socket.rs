//! Connections of other programs, by sockets, in wall time.
//!
//! A socket is read and written at once where the kernel lets it, since a system call costs less than a trip through the
//! ring; the ring says when it is worth another try.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::set_tcp_nodelay;
use rustix::net::{Shutdown, SocketFlags, accept_with, shutdown};

use crate::{Event, Handle, Instant, Outcome, Ring, RingFull};

/// How long to look for more bytes before sleeping: to be woken costs tens of microseconds, and a program that sends one
/// request after the other comes back sooner. Each look lets others run.
const WATCH: Duration = Duration::from_micros(50);
/// When to look again where there is no room on the ring, or no memory for a connection.
const RETRY: Duration = Duration::from_millis(1);

/// Whether a file can be read or written, as the ring says it.
#[derive(Default)]
struct Readiness {
    changed: Event,
    /// The ring watches.
    watched: Cell<bool>,
}

impl Readiness {
    /// Waits until the ring says so, which `watch` asks for.
    async fn wait(
        self: &Rc<Self>,
        handle: &Handle,
        watch: impl FnOnce(Box<dyn FnOnce(Outcome)>) -> Result<(), RingFull>,
    ) {
        let changed = self.changed.listen();
        if !self.watched.get() {
            let readiness = Rc::clone(self);
            let watching = watch(Box::new(move |_| {
                readiness.watched.set(false);
                readiness.changed.notify(usize::MAX);
            }));
            self.watched.set(watching.is_ok());
        }
        if self.watched.get() { changed.await } else { handle.sleep(RETRY).await }
    }
}

/// A socket on which other programs connect.
pub struct Listener {
    handle: Handle,
    ring: Ring,
    file: Arc<File>,
    readable: Rc<Readiness>,
}

impl Listener {
    /// Takes a socket that listens, and that does not wait (`SOCK_NONBLOCK`).
    ///
    /// # Errors
    /// Unsupported in virtual time.
    pub fn new(handle: &Handle, listening: OwnedFd) -> io::Result<Listener> {
        let ring = handle.ring().ok_or(io::ErrorKind::Unsupported)?;
        Ok(Listener {
            handle: handle.clone(),
            ring,
            file: Arc::new(File::from(listening)),
            readable: Rc::default(),
        })
    }

    /// Waits for the next connection.
    ///
    /// # Errors
    /// What the system says of the socket. What it says of one connection, or for want of memory or descriptors, ends
    /// nothing.
    pub async fn accept(&self) -> io::Result<Socket> {
        loop {
            match accept_with(&self.file, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(connection) => return Socket::new(&self.handle, connection),
                Err(Errno::AGAIN) => {
                    let watch = |done| self.ring.readable(&self.file, done);
                    self.readable.wait(&self.handle, watch).await;
                }
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
    ring: Ring,
    file: Arc<File>,
    /// When something last came in or went out.
    active: Cell<Instant>,
    readable: Rc<Readiness>,
    writable: Rc<Readiness>,
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
            ring: handle.ring().ok_or(io::ErrorKind::Unsupported)?,
            file: Arc::new(File::from(connected)),
            active: Cell::new(handle.now()),
            readable: Rc::default(),
            writable: Rc::default(),
        })
    }

    /// Waits for bytes, and puts as many as there are into `buffer`; their number, 0 where the other end sends no more.
    ///
    /// # Errors
    /// What the system says of the connection.
    pub async fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match rustix::io::read(&self.file, &mut *buffer) {
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
        self.readable.wait(&self.handle, |done| self.ring.readable(&self.file, done)).await;
    }

    /// Sends all of `bytes`, and waits until the system has taken them.
    ///
    /// # Errors
    /// What the system says of the connection; then some of the bytes may have been sent.
    pub async fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let mut left = bytes;
        while !left.is_empty() {
            match rustix::io::write(&self.file, left) {
                Ok(sent) => left = &left[sent..],
                Err(Errno::AGAIN) => {
                    self.writable.wait(&self.handle, |done| self.ring.writable(&self.file, done)).await;
                }
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
        let _ = shutdown(&self.file, Shutdown::Read);
    }

    /// Ends the connection in both directions.
    pub fn close(&self) {
        let _ = shutdown(&self.file, Shutdown::Both);
    }
}

impl Drop for Socket {
    /// The ring may still watch it, and keeps the file open until then.
    fn drop(&mut self) {
        self.close();
    }
}
