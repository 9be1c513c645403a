//! One frontend: its messages are handled one after the other, each when all of it is there.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt as _, select_biased};
use rustix::io::{Errno, ioctl_fionread};
use rustix::net::{RecvFlags, recv};
use vhost::vhost_user::message::{FrontendReq, MAX_MSG_SIZE};
use vhost::vhost_user::{BackendReqHandler, Error};
use weir_export::{Export, Load};
use weir_runtime::{Handle, PolledFile};

use crate::device::Device;
use crate::error::VhostError;
use crate::server::VhostOptions;
use crate::vring::Disk;

/// How long a frontend may take for its first message, for the rest of each, and for taking replies.
const PATIENCE: Duration = Duration::from_secs(10);
/// When to look again for the rest of a message.
const RETRY: Duration = Duration::from_millis(1);
/// Bytes that a message begins with: its kind, flags, and the bytes that follow.
const HEADER: usize = 12;

/// A frontend, and what it set up.
pub(crate) struct Frontend {
    handle: Handle,
    socket: Rc<PolledFile>,
    device: Arc<Device>,
    messages: BackendReqHandler<Device>,
}

impl Frontend {
    /// Takes a connection.
    ///
    /// # Errors
    /// [`VhostError::Connection`] where the system failed.
    pub(crate) fn new(
        handle: &Handle,
        connection: OwnedFd,
        export: &Rc<Export>,
        options: &VhostOptions,
    ) -> Result<Frontend, VhostError> {
        let stream = UnixStream::from(connection);
        let socket = Rc::new(PolledFile::new(handle, stream.try_clone()?.into())?);
        let disk = Disk {
            handle: handle.clone(),
            export: Rc::clone(export),
            load: Rc::new(Load::new(export.rules())),
            answers_from_disk: options.answers_from_disk,
            rules: options.rules,
        };
        #[expect(clippy::arc_with_non_send_sync, reason = "the crate asks for one, and all is on one thread")]
        let device = Arc::new(Device::new(disk, options.serial_bytes())?);
        let messages = BackendReqHandler::from_stream(stream, Arc::clone(&device));
        Ok(Frontend { handle: handle.clone(), socket, device, messages })
    }

    /// Its connection.
    pub(crate) fn socket(&self) -> &Rc<PolledFile> {
        &self.socket
    }

    /// Serves it until it disconnects, and answers what is under way then.
    ///
    /// # Errors
    /// [`VhostError`] where it does not keep to the protocol.
    pub(crate) async fn serve(mut self) -> Result<(), VhostError> {
        let ended = self.handle_messages().await;
        self.device.stop_rings().await;
        self.device.end().await;
        ended
    }

    async fn handle_messages(&mut self) -> Result<(), VhostError> {
        let mut patience = Some(PATIENCE);
        while let Some(kind) = self.next_message(patience.take()).await? {
            if changes_rings(kind) {
                self.device.stop_rings().await;
            }
            // A quarter of the socket's memory is more than any reply, so that the reply does not wait.
            select_biased! {
                () = self.socket.wait_writable().fuse() => {}
                () = self.handle.sleep(PATIENCE).fuse() => return Err(VhostError::Slow),
            }
            match self.messages.handle_request() {
                Ok(()) => {}
                Err(Error::Disconnected) => return Ok(()),
                Err(error) => return Err(VhostError::Protocol(error)),
            }
            self.device.start_rings()?;
        }
        Ok(())
    }

    /// Waits until all of a message is there; its kind, or none at the end of the connection.
    async fn next_message(&self, patience: Option<Duration>) -> Result<Option<u32>, VhostError> {
        let (mut header, mut short) = ([0; HEADER], 0);
        loop {
            match recv(self.socket.file(), &mut header, RecvFlags::PEEK | RecvFlags::DONTWAIT) {
                Ok((_, 0)) | Err(Errno::CONNRESET) => return Ok(None),
                Ok((_, HEADER)) => break,
                // A file that comes with the rest ends what one look finds, however long it is.
                Ok((_, length)) if length == short => {
                    return Err(VhostError::Protocol(Error::PartialMessage));
                }
                Ok((_, length)) => {
                    short = length;
                    self.wait_for(HEADER).await?;
                }
                Err(Errno::AGAIN) => match patience {
                    Some(patience) => select_biased! {
                        () = self.socket.wait_readable().fuse() => {}
                        () = self.handle.sleep(patience).fuse() => return Err(VhostError::Slow),
                    },
                    None => self.socket.wait_readable().await,
                },
                Err(Errno::INTR) => {}
                Err(errno) => return Err(VhostError::Connection(errno.into())),
            }
        }
        let word =
            |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let (kind, length) = (word(0), word(8) as usize);
        // One that is too long is refused when its header is read.
        if length <= MAX_MSG_SIZE {
            self.wait_for(HEADER + length).await?;
        }
        Ok(Some(kind))
    }

    /// Waits until so many bytes are there. The frontend sends a message in one call, so this seldom waits.
    async fn wait_for(&self, bytes: usize) -> Result<(), VhostError> {
        let deadline = self.handle.now() + PATIENCE;
        loop {
            let there =
                ioctl_fionread(self.socket.file()).map_err(|errno| VhostError::Connection(errno.into()))?;
            if there >= bytes as u64 {
                return Ok(());
            }
            if self.handle.now() >= deadline {
                return Err(VhostError::Slow);
            }
            self.handle.sleep(RETRY).await;
        }
    }
}

/// Whether a message may change a ring that is served, or the memory below it.
fn changes_rings(kind: u32) -> bool {
    use FrontendReq as kinds;
    let harmless = [
        kinds::GET_FEATURES,
        kinds::GET_PROTOCOL_FEATURES,
        kinds::GET_QUEUE_NUM,
        kinds::GET_CONFIG,
        kinds::GET_INFLIGHT_FD,
        kinds::SET_CONFIG,
        kinds::SET_VRING_CALL,
        kinds::SET_VRING_ERR,
    ];
    !harmless.into_iter().any(|harmless| u32::from(harmless) == kind)
}
