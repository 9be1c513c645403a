//! Where a server listens: a socket in a directory, or a port of this machine.

use std::fmt;
use std::fs::{self, Permissions};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use weir_fuse::absolute;
use weir_runtime::{Handle, Listener};

use crate::error::CliError;

/// Connections that wait to be taken.
const BACKLOG: i32 = 32;

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SocketAddress {
    Unix(PathBuf),
    /// On 127.0.0.1.
    Tcp(u16),
}

impl FromStr for SocketAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<SocketAddress, String> {
        let wrong = || "write unix:PATH, or tcp:PORT with a port from 1 to 65535".to_owned();
        match text.split_once(':') {
            Some(("unix", path)) if !path.is_empty() => Ok(SocketAddress::Unix(PathBuf::from(path))),
            Some(("tcp", port)) => match port.parse() {
                Ok(0) | Err(_) => Err(wrong()),
                Ok(port) => Ok(SocketAddress::Tcp(port)),
            },
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for SocketAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SocketAddress::Unix(path) => write!(formatter, "unix:{}", path.display()),
            SocketAddress::Tcp(port) => write!(formatter, "tcp:{port} (127.0.0.1)"),
        }
    }
}

/// A socket's file, which goes when this is dropped, if it is still the same.
pub(crate) struct SocketFile {
    path: PathBuf,
    device_and_inode: (u64, u64),
}

impl SocketFile {
    fn new(path: &Path) -> io::Result<SocketFile> {
        // The process may change its directory before it ends.
        let path = absolute(path);
        let found = fs::symlink_metadata(&path)?;
        Ok(SocketFile { path, device_and_inode: (found.dev(), found.ino()) })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_same = |found: fs::Metadata| (found.dev(), found.ino()) == self.device_and_inode;
        if fs::symlink_metadata(&self.path).is_ok_and(is_same) {
            // One that stays is replaced by the next server.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl SocketAddress {
    /// With a path that is in this directory, wherever the process is.
    pub(crate) fn within(self, directory: &Path) -> SocketAddress {
        match self {
            SocketAddress::Unix(path) => SocketAddress::Unix(directory.join(path)),
            SocketAddress::Tcp(port) => SocketAddress::Tcp(port),
        }
    }

    /// The path, if it has one.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            SocketAddress::Unix(path) => Some(path),
            SocketAddress::Tcp(_) => None,
        }
    }

    /// The address as NBD clients take it.
    pub(crate) fn uri(&self) -> String {
        match self {
            SocketAddress::Unix(path) => format!("nbd+unix:///?socket={}", absolute(path).display()),
            SocketAddress::Tcp(port) => format!("nbd://127.0.0.1:{port}"),
        }
    }

    /// Listens there. A socket's file is for this user alone; one that a killed server has left is replaced.
    pub(crate) fn listen(&self, handle: &Handle) -> Result<(Listener, Option<SocketFile>), CliError> {
        let failed = |source| CliError::File { doing: "listen on", path: self.to_string().into(), source };
        let (socket, file) = match self {
            SocketAddress::Unix(path) => {
                remove_stale(path)?;
                let (socket, file) = bind_unix(path).map_err(failed)?;
                (socket, Some(file))
            }
            SocketAddress::Tcp(port) => (bind_tcp(*port).map_err(failed)?, None),
        };
        listen(&socket, BACKLOG).map_err(|errno| failed(errno.into()))?;
        Ok((Listener::new(handle, socket).map_err(failed)?, file))
    }
}

/// Removes a socket on which no process listens.
fn remove_stale(path: &Path) -> Result<(), CliError> {
    match fs::symlink_metadata(path) {
        Err(_) => return Ok(()),
        Ok(found) if !found.file_type().is_socket() => return Err(CliError::NoSocket(path.to_owned())),
        Ok(_) => {}
    }
    let failed = |source| CliError::File { doing: "replace the socket", path: path.to_owned(), source };
    match UnixStream::connect(path) {
        Ok(_) => Err(CliError::ServedThere(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(failed)
        }
        Err(error) => Err(failed(error)),
    }
}

fn bind_unix(path: &Path) -> io::Result<(OwnedFd, SocketFile)> {
    let socket = open_socket(AddressFamily::UNIX)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    let file = SocketFile::new(path)?;
    // No client can connect before it listens.
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok((socket, file))
}

fn bind_tcp(port: u16) -> io::Result<OwnedFd> {
    let socket = open_socket(AddressFamily::INET)?;
    // So that a server that was killed can come back at once.
    set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?;
    Ok(socket)
}

fn open_socket(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(family, SocketType::STREAM, flags, None)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_path_or_a_port() {
        let unix = |path: &str| Ok(SocketAddress::Unix(path.into()));
        assert_eq!("unix:/run/a.sock".parse(), unix("/run/a.sock"));
        assert_eq!("unix:a:b".parse(), unix("a:b"));
        assert_eq!("tcp:10809".parse(), Ok(SocketAddress::Tcp(10809)));
        for wrong in ["", "unix:", "tcp:", "tcp:0", "tcp:65536", "tcp:host:1", "/run/a.sock", "udp:1"] {
            let told = wrong.parse::<SocketAddress>().unwrap_err();
            assert!(told.contains("unix:PATH"), "{wrong}: {told}");
        }
    }
}
