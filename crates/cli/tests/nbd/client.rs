//! A plain client of NBD, one request at a time.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

pub const READ: u16 = 0;
pub const WRITE: u16 = 1;
pub const FLUSH: u16 = 3;
pub const FUA: u16 = 1;

pub struct Client {
    stream: UnixStream,
    bytes: u64,
}

impl Client {
    /// Connects and asks for the default export, by its old name.
    pub fn connect(socket: &Path) -> io::Result<Client> {
        const EXPORT_NAME: u32 = 1;
        let mut stream = UnixStream::connect(socket)?;
        // A server that does not answer fails the test.
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        stream.read_exact(&mut [0; 18])?;
        let option = [b"IHAVEOPT", &EXPORT_NAME.to_be_bytes()[..], &0_u32.to_be_bytes()].concat();
        stream.write_all(&[&3_u32.to_be_bytes()[..], &option].concat())?;
        let mut answer = [0; 10];
        stream.read_exact(&mut answer)?;
        let (size, _) = answer.split_at(8);
        Ok(Client { stream, bytes: u64::from_be_bytes(size.try_into().unwrap()) })
    }

    /// The size of what is served, as the server said when the client connected.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Sends a request; the error number of its reply.
    pub fn ask(
        &mut self,
        command: u16,
        flags: u16,
        offset: u64,
        length: u32,
        data: &[u8],
    ) -> io::Result<u32> {
        let kind = [flags.to_be_bytes(), command.to_be_bytes()].concat();
        let place = [7_u64.to_be_bytes(), offset.to_be_bytes()].concat();
        let header = [&0x2560_9513_u32.to_be_bytes()[..], &kind, &place, &length.to_be_bytes()].concat();
        self.stream.write_all(&[&header[..], data].concat())?;
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply)?;
        assert_eq!(reply[8..], 7_u64.to_be_bytes());
        Ok(u32::from_be_bytes(reply[4..8].try_into().unwrap()))
    }

    pub fn write(&mut self, offset: u64, data: &[u8], flags: u16) -> io::Result<u32> {
        self.ask(WRITE, flags, offset, data.len() as u32, data)
    }

    pub fn read(&mut self, offset: u64, length: u32) -> io::Result<Vec<u8>> {
        assert_eq!(self.ask(READ, 0, offset, length, &[])?, 0);
        let mut data = vec![0; length as usize];
        self.stream.read_exact(&mut data)?;
        Ok(data)
    }

    pub fn flush(&mut self) -> io::Result<u32> {
        self.ask(FLUSH, 0, 0, 0, &[])
    }
}
