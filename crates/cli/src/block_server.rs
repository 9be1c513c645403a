//! The servers of blocks by which `weir serve` offers a volume: one variant for each protocol.

use std::fmt;
use std::io;
use std::rc::Rc;

use clap::Args;
use weir_export::Export;
use weir_nbd::{CONNECTIONS_MAX, Connections, NbdServer};
use weir_runtime::{Handle, Listener};

use crate::error::CliError;
use crate::socket_address::{SocketAddress, SocketFile};

/// Arguments that say how clients get at the volume: one of them.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct ClientArguments {
    /// Where NBD clients connect: unix:PATH, a socket that only this user can use; or tcp:PORT on 127.0.0.1, which every
    /// user of this machine can use
    #[arg(long, value_name = "unix:PATH|tcp:PORT")]
    nbd: Option<SocketAddress>,
}

impl ClientArguments {
    /// The protocol, and where.
    pub(crate) fn access(&self) -> Result<Access, CliError> {
        let mut nbd = self.nbd.iter().map(|address| Access::Nbd(address.clone()));
        nbd.next_back().ok_or(CliError::Usage("say how clients get at the volume: --nbd unix:PATH"))
    }
}

/// A protocol, and where its clients find the server.
#[derive(Clone, Debug)]
pub(crate) enum Access {
    Nbd(SocketAddress),
}

impl fmt::Display for Access {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address().fmt(formatter)
    }
}

impl Access {
    /// The socket for clients.
    pub(crate) fn address(&self) -> &SocketAddress {
        match self {
            Access::Nbd(address) => address,
        }
    }

    /// What clients are given to connect.
    pub(crate) fn uri(&self) -> String {
        match self {
            Access::Nbd(address) => address.uri(),
        }
    }

    /// Clients that are served at one time.
    pub(crate) fn clients_max(&self) -> u64 {
        match self {
            Access::Nbd(_) => CONNECTIONS_MAX as u64,
        }
    }

    /// Listens there; clients wait until the server starts.
    pub(crate) fn listen(&self, handle: &Handle) -> Result<Listening, CliError> {
        match self {
            Access::Nbd(address) => {
                let (listener, file) = address.listen(handle)?;
                Ok(Listening::Nbd(listener, file))
            }
        }
    }
}

/// A socket on which a server can start.
pub(crate) enum Listening {
    Nbd(Listener, Option<SocketFile>),
}

impl Listening {
    /// Serves an export.
    pub(crate) fn start_server(self, handle: &Handle, export: &Rc<Export>) -> BlockServer {
        match self {
            Listening::Nbd(listener, socket_file) => {
                let server = NbdServer::start(handle, listener, Rc::clone(export));
                BlockServer::Nbd(server, socket_file)
            }
        }
    }
}

/// A server that runs, and its socket's file.
pub(crate) enum BlockServer {
    Nbd(NbdServer, Option<SocketFile>),
}

impl BlockServer {
    /// Its clients, for the status.
    pub(crate) fn clients(&self) -> Clients {
        match self {
            BlockServer::Nbd(server, _) => Clients::Nbd(server.connections()),
        }
    }

    /// Waits until no client can connect any more; why.
    pub(crate) async fn failed(&mut self) -> io::Error {
        match self {
            BlockServer::Nbd(server, _) => server.failed().await,
        }
    }

    /// Takes no more requests, answers those under way, and removes the socket's file.
    pub(crate) async fn stop(self) {
        match self {
            BlockServer::Nbd(server, _file) => server.stop().await,
        }
    }
}

/// The clients of a server.
pub(crate) enum Clients {
    Nbd(Rc<Connections>),
}

impl Clients {
    /// How many there are now.
    pub(crate) fn count(&self) -> u64 {
        match self {
            Clients::Nbd(connections) => connections.count() as u64,
        }
    }
}
