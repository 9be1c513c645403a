//! The frontends of an export, one after the other.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use rustix::net::{Shutdown, shutdown};
use tracing::{info, warn};
use weir_export::Export;
use weir_runtime::{Event, Handle, Listener, PolledFile, Task};
use weir_storage::Rules;

use crate::error::VhostError;
use crate::frontend::Frontend;
use crate::mutants::VhostMutant;
use crate::requests::SERIAL_BYTES;

/// How a disk is offered.
#[derive(Clone, Debug, Default)]
pub struct VhostOptions {
    /// The disk's serial number, by which a guest tells its disks apart: its first 20 bytes count.
    pub serial: String,
    /// The storage answers from the disk, so that what was answered is there when the server was killed (N4).
    pub answers_from_disk: bool,
    /// The rules that the server keeps: all of them.
    pub rules: Rules<VhostMutant>,
}

impl VhostOptions {
    pub(crate) fn serial_bytes(&self) -> [u8; SERIAL_BYTES] {
        let mut serial = [0; SERIAL_BYTES];
        let bytes = self.serial.len().min(SERIAL_BYTES);
        serial[..bytes].copy_from_slice(&self.serial.as_bytes()[..bytes]);
        serial
    }
}

/// The frontend that is served now.
#[derive(Default)]
pub struct Frontends {
    served: RefCell<Option<Rc<PolledFile>>>,
    number: Cell<u64>,
    ended: Event,
}

impl Frontends {
    /// How many there are: one, or none.
    #[must_use]
    pub fn count(&self) -> usize {
        self.served.borrow().iter().count()
    }

    async fn serve(
        &self,
        handle: &Handle,
        connection: OwnedFd,
        export: &Rc<Export>,
        options: &VhostOptions,
    ) -> Result<(), VhostError> {
        let frontend = Frontend::new(handle, connection, export, options)?;
        *self.served.borrow_mut() = Some(Rc::clone(frontend.socket()));
        frontend.serve().await
    }
}

/// A server of one export. Its frontend is served as long as its runtime runs.
pub struct VhostServer {
    frontends: Rc<Frontends>,
    accepting: Task<io::Error>,
}

impl VhostServer {
    /// Serves the frontends that connect, one at a time.
    #[must_use]
    pub fn start(
        handle: &Handle,
        listener: Listener,
        export: Rc<Export>,
        options: VhostOptions,
    ) -> VhostServer {
        let frontends = Rc::<Frontends>::default();
        let accepting =
            handle.spawn(accept(handle.clone(), listener, export, options, Rc::clone(&frontends)));
        VhostServer { frontends, accepting }
    }

    /// Its frontends, for the status.
    #[must_use]
    pub fn frontends(&self) -> Rc<Frontends> {
        Rc::clone(&self.frontends)
    }

    /// Waits until no frontend can connect any more; why.
    pub async fn failed(&mut self) -> io::Error {
        (&mut self.accepting).await.unwrap_or_else(io::Error::other)
    }

    /// Takes in no more requests, and answers those that are under way. What the guest gives from now on stays in its
    /// rings, for the next server.
    pub async fn stop(self) {
        loop {
            let ended = self.frontends.ended.listen();
            let Some(socket) = self.frontends.served.borrow().clone() else { break };
            // It fails where the frontend has gone.
            let _ = shutdown(socket.file(), Shutdown::Both);
            ended.await;
        }
        self.accepting.cancel();
    }
}

async fn accept(
    handle: Handle,
    listener: Listener,
    export: Rc<Export>,
    options: VhostOptions,
    frontends: Rc<Frontends>,
) -> io::Error {
    loop {
        let connection = match listener.accept_connection().await {
            Ok(connection) => connection,
            Err(error) => return error,
        };
        let number = frontends.number.get();
        frontends.number.set(number + 1);
        info!(name: "client_connected", client = number, "connected");
        match frontends.serve(&handle, connection, &export, &options).await {
            Ok(()) => info!(name: "client_disconnected", client = number, "disconnected"),
            Err(error) => warn!(name: "client_dropped", client = number, %error, "dropped"),
        }
        *frontends.served.borrow_mut() = None;
        frontends.ended.notify(usize::MAX);
    }
}
