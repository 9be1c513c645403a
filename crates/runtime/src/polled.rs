//! Files that other programs write into or read from: the ring says when it is worth a try.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::{Event, Handle, Outcome, Ring, RingFull};

/// When to look again where there is no room on the ring, or no memory for a connection.
pub(crate) const RETRY: Duration = Duration::from_millis(1);

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

/// A file whose other end is in another program: a socket, an eventfd. Its calls do not wait; these do.
pub struct PolledFile {
    handle: Handle,
    ring: Ring,
    file: Arc<File>,
    readable: Rc<Readiness>,
    writable: Rc<Readiness>,
}

impl PolledFile {
    /// Takes a file that does not wait (`O_NONBLOCK`).
    ///
    /// # Errors
    /// Unsupported in virtual time.
    pub fn new(handle: &Handle, file: OwnedFd) -> io::Result<PolledFile> {
        Ok(PolledFile {
            handle: handle.clone(),
            ring: handle.ring().ok_or(io::ErrorKind::Unsupported)?,
            file: Arc::new(File::from(file)),
            readable: Rc::default(),
            writable: Rc::default(),
        })
    }

    /// The file, to read and write it.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Waits until there may be something to read, or never will be again.
    pub async fn wait_readable(&self) {
        self.readable.wait(&self.handle, |done| self.ring.readable(&self.file, done)).await;
    }

    /// Waits until the file may take bytes, or never will again.
    pub async fn wait_writable(&self) {
        self.writable.wait(&self.handle, |done| self.ring.writable(&self.file, done)).await;
    }
}

impl Drop for PolledFile {
    /// The other end may never do anything again: without this, each file would keep its places on the ring.
    fn drop(&mut self) {
        if self.readable.watched.get() || self.writable.watched.get() {
            self.ring.cancel_waits(&self.file);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Future as _, poll_fn};
    use std::task::Poll;

    use rustix::event::{EventfdFlags, eventfd};

    use super::*;
    use crate::{Runtime, Wall};

    /// Otherwise programs that come and go would fill the ring.
    #[test]
    fn a_file_that_is_dropped_takes_no_place_on_the_ring() {
        let runtime = Runtime::wall(Wall::default()).unwrap();
        let handle = runtime.handle();
        let script = async {
            let ring = handle.ring().unwrap();
            let free = ring.room();
            for _ in 0..3 {
                let file = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
                let polled = PolledFile::new(&handle, file).unwrap();
                let mut waiting = Box::pin(polled.wait_readable());
                let waits = poll_fn(|context| Poll::Ready(waiting.as_mut().poll(context).is_pending())).await;
                assert!(waits && ring.room() == free - 1);
                drop(waiting);
                drop(polled);
                for _ in 0..1000 {
                    handle.give_way().await;
                }
                assert_eq!(ring.room(), free);
            }
        };
        runtime.block_on(script).unwrap();
    }
}
