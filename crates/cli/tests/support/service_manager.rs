//! A service manager that a server tells that it runs, as systemd is told: by datagrams.

use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::text;

pub struct ServiceManager {
    path: PathBuf,
    socket: UnixDatagram,
}

impl ServiceManager {
    /// Listens beside a volume. A server that sends nothing for `patience` fails the test.
    pub fn in_directory(directory: &Path, patience: Duration) -> ServiceManager {
        let path = directory.join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(patience)).unwrap();
        ServiceManager { path, socket }
    }

    /// What a server finds the socket by.
    pub fn variable(&self) -> (&'static str, String) {
        ("NOTIFY_SOCKET", self.path.display().to_string())
    }

    pub fn next_message(&self) -> String {
        let mut buffer = [0; 256];
        loop {
            match self.socket.recv(&mut buffer) {
                Ok(bytes) => return text(&buffer[..bytes]),
                // A call with a limit of time is not begun anew by the kernel, whatever interrupted it (signal(7)).
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("the server says that it runs: {error}"),
            }
        }
    }
}
