//! The servers of blocks by which `weir serve` offers a volume: one variant for each protocol.

use std::fmt;
use std::io;
use std::rc::Rc;

use clap::Args;
use tracing::Level;
use weir_export::Export;
use weir_nbd::{CONNECTIONS_MAX, Connections, NbdServer};
use weir_runtime::{Handle, Listener};
use weir_ublk::{Left, UblkServer, path_of};
use weir_vhost::{Frontends, VhostOptions, VhostServer};

use crate::error::CliError;
use crate::log_line::LogLine;
use crate::serve_status::socket_beside_device;
use crate::socket_address::{SocketAddress, SocketFile};

/// Devices that the kernel numbers.
const UBLK_NUMBERS: u32 = 1 << 20;

/// Arguments that say how clients get at the volume: one of them.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct ClientArguments {
    /// Where NBD clients connect: unix:PATH, a socket that only this user can use; or tcp:PORT on 127.0.0.1, which every
    /// user of this machine can use
    #[arg(long, value_name = "unix:PATH|tcp:PORT")]
    nbd: Option<SocketAddress>,
    /// Show the volume as the block device /dev/ublkbN of this machine; as root, where the kernel has ublk_drv (Linux 6.5
    /// or later)
    #[arg(long, value_name = "N", value_parser = device_number)]
    ublk: Option<u32>,
    /// Where a virtual machine monitor connects by vhost-user-blk, one at a time: a socket that only this user can use
    #[arg(long, value_name = "unix:PATH", value_parser = unix_address)]
    vhost_user: Option<SocketAddress>,
}

/// A socket that can carry files.
fn unix_address(text: &str) -> Result<SocketAddress, String> {
    match text.parse() {
        Ok(address @ SocketAddress::Unix(_)) => Ok(address),
        _ => Err("write unix:PATH: memory is shared by a socket of this machine".to_owned()),
    }
}

/// The number of a device.
fn device_number(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| *number < UBLK_NUMBERS);
    number.ok_or_else(|| format!("write the device's number, as 0 for /dev/ublkb0; less than {UBLK_NUMBERS}"))
}

impl ClientArguments {
    /// The protocol, and where.
    pub(crate) fn access(&self) -> Result<Access, CliError> {
        let nbd = self.nbd.iter().map(|address| Access::Nbd(address.clone()));
        let ublk = self.ublk.iter().map(|number| Access::Ublk(*number, socket_beside_device(*number)));
        let vhost_user = self.vhost_user.iter().map(|address| Access::VhostUser(address.clone()));
        let missing =
            "say how clients get at the volume: --nbd unix:PATH, --vhost-user unix:PATH, or --ublk N";
        nbd.chain(vhost_user).chain(ublk).next().ok_or(CliError::Usage(missing))
    }
}

/// A protocol, and where its clients find the server.
#[derive(Clone, Debug)]
pub(crate) enum Access {
    Nbd(SocketAddress),
    VhostUser(SocketAddress),
    /// The device's number, and the address beside which the socket for the status is.
    Ublk(u32, SocketAddress),
}

impl fmt::Display for Access {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Access::Nbd(address) | Access::VhostUser(address) => address.fmt(formatter),
            Access::Ublk(number, _) => path_of(*number).display().fmt(formatter),
        }
    }
}

impl Access {
    /// The socket for clients, or where it would be: that for the status is beside it.
    pub(crate) fn address(&self) -> &SocketAddress {
        match self {
            Access::Nbd(address) | Access::VhostUser(address) | Access::Ublk(_, address) => address,
        }
    }

    /// What clients are given to connect.
    pub(crate) fn uri(&self) -> String {
        match self {
            Access::Nbd(address) => address.uri(),
            Access::VhostUser(address) => address.to_string(),
            Access::Ublk(number, _) => path_of(*number).display().to_string(),
        }
    }

    /// For people: what clients do.
    pub(crate) fn invitation(&self) -> String {
        match self {
            Access::Nbd(_) | Access::VhostUser(_) => format!("clients connect to {}", self.uri()),
            Access::Ublk(..) => "programs use it as any disk".to_owned(),
        }
    }

    /// Clients that are served at one time.
    pub(crate) fn clients_max(&self) -> u64 {
        match self {
            Access::Nbd(_) => CONNECTIONS_MAX as u64,
            Access::VhostUser(_) | Access::Ublk(..) => 1,
        }
    }

    /// Listens there; clients wait until the server starts, of the volume with this identity.
    pub(crate) async fn listen(&self, handle: &Handle, volume: u64) -> Result<Listening, CliError> {
        match self {
            Access::Nbd(address) => {
                let (listener, file) = address.listen(handle)?;
                Ok(Listening::Nbd(listener, file))
            }
            Access::VhostUser(address) => {
                let (listener, file) = address.listen(handle)?;
                Ok(Listening::VhostUser(listener, file))
            }
            Access::Ublk(number, _) => {
                UblkServer::require_free(handle, *number, volume).await?;
                Ok(Listening::Ublk { number: *number, volume })
            }
        }
    }
}

/// Where a server can start.
pub(crate) enum Listening {
    Nbd(Listener, Option<SocketFile>),
    VhostUser(Listener, Option<SocketFile>),
    /// A device's number, and the identity of its volume.
    Ublk {
        number: u32,
        volume: u64,
    },
}

impl Listening {
    /// Serves an export, which a guest may tell by a name, and whose storage may answer from the disk. Where this waits for a server
    /// before, `is_ending` says when that is of no use any more.
    pub(crate) async fn start_server(
        self,
        handle: &Handle,
        export: &Rc<Export>,
        (name, answers_from_disk): (&str, bool),
        is_ending: impl FnMut() -> bool,
    ) -> Result<BlockServer, CliError> {
        match self {
            Listening::Nbd(listener, socket_file) => {
                let server = NbdServer::start(handle, listener, Rc::clone(export));
                Ok(BlockServer::Nbd(server, socket_file))
            }
            Listening::Ublk { number, volume } => {
                let device = (number, volume);
                let server = UblkServer::start(handle, device, export, answers_from_disk, is_ending).await?;
                Ok(BlockServer::Ublk(server, number))
            }
            Listening::VhostUser(listener, socket_file) => {
                let options =
                    VhostOptions { serial: name.to_owned(), answers_from_disk, ..VhostOptions::default() };
                let server = VhostServer::start(handle, listener, Rc::clone(export), options);
                Ok(BlockServer::VhostUser(server, socket_file))
            }
        }
    }
}

/// A server that runs, and its socket's file.
pub(crate) enum BlockServer {
    Nbd(NbdServer, Option<SocketFile>),
    VhostUser(VhostServer, Option<SocketFile>),
    Ublk(UblkServer, u32),
}

impl BlockServer {
    /// Its clients, for the status.
    pub(crate) fn clients(&self) -> Clients {
        match self {
            BlockServer::Nbd(server, _) => Clients::Nbd(server.connections()),
            BlockServer::VhostUser(server, _) => Clients::VhostUser(server.frontends()),
            BlockServer::Ublk(..) => Clients::Kernel,
        }
    }

    /// Waits until no client can connect any more; why.
    pub(crate) async fn failed(&mut self) -> io::Error {
        match self {
            BlockServer::Nbd(server, _) => server.failed().await,
            BlockServer::VhostUser(server, _) => server.failed().await,
            BlockServer::Ublk(server, _) => server.failed().await,
        }
    }

    /// Takes no more requests, answers those under way, and removes the socket's file or the device.
    pub(crate) async fn stop(self) -> Result<(), CliError> {
        match self {
            BlockServer::Nbd(server, _file) => server.stop().await,
            BlockServer::VhostUser(server, _file) => server.stop().await,
            BlockServer::Ublk(server, number) => {
                if let Left::Waiting(user) = server.stop().await? {
                    let device = path_of(number).display().to_string();
                    let message = format!(
                        "{device} is in use ({user}), so it stays, and what is asked of it waits: run the command again, then unmount it \
                         or end its user before the next SIGTERM"
                    );
                    LogLine::new(Level::WARN, "device_waits", message).with("device", device).print();
                }
            }
        }
        Ok(())
    }
}

/// The clients of a server.
pub(crate) enum Clients {
    Nbd(Rc<Connections>),
    VhostUser(Rc<Frontends>),
    Kernel,
}

impl Clients {
    /// How many there are now.
    pub(crate) fn count(&self) -> u64 {
        match self {
            Clients::Nbd(connections) => connections.count() as u64,
            Clients::VhostUser(frontends) => frontends.count() as u64,
            Clients::Kernel => 1,
        }
    }
}
