//! The status socket of `weir serve`, beside the one for clients: a program that connects gets the status, or the answer to a change of
//! the volume that it has asked for.

use std::fs::{canonicalize, read_link, symlink_metadata};
use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use futures_util::{FutureExt as _, select_biased};
use serde::{Deserialize, Serialize};
use weir_runtime::{Handle, Listener, Socket};

use crate::error::CliError;
use crate::size::Size;
use crate::socket_address::SocketAddress;

/// What the socket is called, behind the name of the other one.
const SUFFIX: &str = ".status";
/// Bytes of the path of a socket at most.
const SOCKET_PATH_MAX: usize = 107;
/// How long whoever asks may take for the answer: others wait.
const TAKEN_WITHIN: Duration = Duration::from_secs(1);
/// How long they may take to ask for more than the status, by words before the end of what they send.
const ASKED_WITHIN: Duration = Duration::from_millis(200);
/// Bytes of such a request at most, and of the answer to it.
const REQUEST_MAX: usize = 128;
pub(crate) const ANSWER_MAX: usize = 4096;
/// What the answer to one begins with that was done.
pub(crate) const DONE: &str = "done: ";

/// What FLUSH and `fsync` promise that wait for an object store, too.
pub(crate) const DURABLE_IN_STORE: &str = "durability, here and in the object store";

/// What a status says of what is served.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct ServedStatus {
    /// Where clients connect.
    pub(crate) address: String,
    pub(crate) bytes: u64,
    /// What FLUSH and FUA promise: `durable`, `order` or `remote`.
    pub(crate) sync: String,
    /// When a change is answered: `placed` or `disk`.
    pub(crate) answer: String,
    pub(crate) read_only: bool,
    pub(crate) clients: u64,
    pub(crate) clients_max: u64,
}

impl ServedStatus {
    /// For people.
    pub(crate) fn lines(&self) -> Vec<(&'static str, String)> {
        let ServedStatus { address, bytes, sync, answer, read_only, clients, clients_max } = self;
        let promise = match sync.as_str() {
            "order" => "order only (--sync order)",
            "remote" => DURABLE_IN_STORE,
            _ => "durability",
        };
        let answered = if answer == "disk" {
            "when the disk has it"
        } else {
            "when it is in memory (a kill of the server loses it)"
        };
        vec![
            ("served", format!("{} on {address}", Size(*bytes))),
            ("FLUSH promises", promise.to_owned()),
            ("a change is answered", answered.to_owned()),
            ("read only", if *read_only { "yes" } else { "no" }.to_owned()),
            ("clients", format!("{clients}, at most {clients_max}")),
        ]
    }
}

/// The address of the socket for the status of a server on `address`; none for a port.
pub(crate) fn status_address(address: &SocketAddress) -> Option<SocketAddress> {
    match address {
        SocketAddress::Unix(path) => Some(SocketAddress::Unix(status_path(path))),
        SocketAddress::Tcp(_) => None,
    }
}

/// Refuses the path of a socket beside which there is no room for that of the status: the kernel takes names of 107 bytes.
pub(crate) fn require_room_for_status(address: &SocketAddress) -> Result<(), CliError> {
    match address {
        SocketAddress::Unix(path) if status_path(path).as_os_str().len() > SOCKET_PATH_MAX => {
            let (bytes, most) = (path.as_os_str().len(), SOCKET_PATH_MAX - SUFFIX.len());
            Err(CliError::SocketPath { path: path.clone(), bytes, most })
        }
        _ => Ok(()),
    }
}

fn status_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(SUFFIX);
    name.into()
}

/// Where the socket for clients of a block device would be; only root can make one there.
pub(crate) fn socket_beside_device(number: u32) -> SocketAddress {
    SocketAddress::Unix(format!("/run/weir-ublk{number}").into())
}

/// The socket of a server that is to be asked: as `unix:PATH`, by its path alone, or as `/dev/ublkbN`. None for what names no
/// server.
///
/// # Errors
/// [`CliError::NoStatusByPort`] for what begins with `tcp:`; [`CliError::Usage`] for `unix:` without a path.
pub(crate) fn socket_of(asked: &Path) -> Result<Option<PathBuf>, CliError> {
    let text = asked.to_str().unwrap_or_default();
    let device = text.strip_prefix("/dev/ublkb").and_then(|number| number.parse().ok());
    match device.map(socket_beside_device).or_else(|| text.parse().ok()) {
        Some(SocketAddress::Unix(path)) => Ok(Some(socket_for_clients(&path))),
        _ if text.starts_with("tcp:") => Err(CliError::NoStatusByPort(text.to_owned())),
        _ if text == "unix:" => {
            Err(CliError::Usage("unix: lacks the path of the server's socket: write unix:PATH"))
        }
        _ => {
            // What is beside a mountpoint is looked at first, without a slash at the end: the mount's server may not answer.
            let path = socket_for_clients(asked.components().as_path());
            let is_served = path.file_name().is_some() && is_socket(&status_path(&path)) && is_socket(&path);
            Ok(is_served.then_some(path))
        }
    }
}

/// The socket for clients, where a path names a link to it or the socket for the status; otherwise the path.
fn socket_for_clients(path: &Path) -> PathBuf {
    if is_socket(&status_path(path)) {
        return path.to_owned();
    }
    // The kernel says of a mountpoint that it is no link, without asking the mount's server.
    if read_link(path).is_ok() {
        return canonicalize(path).unwrap_or_else(|_| path.to_owned());
    }
    let clients = path.to_str().and_then(|text| text.strip_suffix(SUFFIX)).map(PathBuf::from);
    clients.filter(|path| is_socket(path)).unwrap_or_else(|| path.to_owned())
}

fn is_socket(path: &Path) -> bool {
    symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
}

/// Answers all programs that connect, one after the other. Ends when no program can connect any more, or at `stop`: what was asked
/// before is done then.
pub(crate) async fn answer_all(
    handle: &Handle,
    listener: Listener,
    answer: impl AsyncFn(&str) -> String,
    stop: impl Future<Output = ()>,
) {
    let mut stop = pin!(stop.fuse());
    loop {
        let accepted = select_biased! {
            () = stop => return,
            accepted = listener.accept().fuse() => accepted,
        };
        let Ok(socket) = accepted else { return };
        let request = select_biased! {
            request = receive_request(&socket).fuse() => request,
            () = handle.sleep(ASKED_WITHIN).fuse() => String::new(),
        };
        let document = answer(&request).await;
        select_biased! {
            // A caller that has gone does not want it.
            _ = socket.send(document.as_bytes()).fuse() => {}
            () = handle.sleep(TAKEN_WITHIN).fuse() => {}
        }
    }
}

/// What a client sends up to its end; nothing of one that sends too much.
async fn receive_request(socket: &Socket) -> String {
    let mut request = [0; REQUEST_MAX];
    let mut length = 0;
    loop {
        match socket.receive(&mut request[length..]).await {
            Ok(0) => return String::from_utf8_lossy(&request[..length]).into_owned(),
            Ok(received) if length + received < REQUEST_MAX => length += received,
            _ => return String::new(),
        }
    }
}

/// Asks the server of a socket, for its status if the request is empty, and for `most` bytes at most.
pub(crate) fn ask_server(socket: &Path, request: &str, most: usize) -> io::Result<Vec<u8>> {
    let mut answer = Vec::new();
    let mut stream = UnixStream::connect(status_path(socket))?;
    stream.write_all(request.as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    stream.take(most as u64).read_to_end(&mut answer)?;
    Ok(answer)
}
