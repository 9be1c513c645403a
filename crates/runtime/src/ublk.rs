//! The queue of a block device that the kernel shows and this process serves (ublk), in wall time.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::Duration;

use crate::uring::ublk::{Descriptions, QueueCommand};
use crate::{Handle, Ring, channel};

/// When to look again where there is no room on the ring.
const RETRY: Duration = Duration::from_millis(1);
/// Where the data of requests begins in the device's file, and how far the places are apart in it
/// (`UBLKSRV_IO_BUF_OFFSET`,
/// `UBLK_IO_BUF_BITS`).
const DATA_AT: u64 = 0x8000_0000;
const PLACE_BITS: u32 = 25;

/// The first queue of a device: places for requests, each of which holds one at a time.
#[derive(Debug)]
pub struct UblkQueue {
    handle: Handle,
    ring: Ring,
    device: Arc<File>,
    descriptions: Descriptions,
}

impl UblkQueue {
    /// Opens the queue of device `number`, which has so many places. One process can have it open.
    ///
    /// # Errors
    /// What the system answered; Unsupported in virtual time.
    pub fn open(handle: &Handle, number: u32, places: u16) -> io::Result<UblkQueue> {
        let ring = handle.ring().ok_or(io::ErrorKind::Unsupported)?;
        let device = File::options().read(true).write(true).open(format!("/dev/ublkc{number}"))?;
        let descriptions = Descriptions::map(&device, places)?;
        Ok(UblkQueue { handle: handle.clone(), ring, device: Arc::new(device), descriptions })
    }

    /// Answers the last request in a place, if `answer` says so, by its bytes or a negative error number; and waits for
    /// the next one: its description (`ublksrv_io_desc`). All calls come from the thread of the runtime.
    ///
    /// # Errors
    /// What the kernel answered: ENODEV when the device is shown no more.
    pub async fn next(
        &self,
        tag: u16,
        answer: Option<i32>,
    ) -> io::Result<[u8; crate::UBLK_DESCRIPTION_BYTES]> {
        let (sender, receiver) = channel(1);
        loop {
            let sender = sender.clone();
            let command = QueueCommand { tag, answer };
            // A task that waits no more wants no outcome.
            let done = move |outcome: crate::Outcome| drop(sender.try_send(outcome.result));
            match self.ring.ublk(&self.device, command, done) {
                Ok(()) => break,
                Err(_) => self.handle.sleep(RETRY).await,
            }
        }
        drop(sender);
        // There is no outcome where the ring was closed.
        receiver.recv().await.unwrap_or_else(|_| Err(io::ErrorKind::NotConnected.into()))?;
        self.descriptions.read(tag)
    }

    /// Copies the data of a write out of its request.
    ///
    /// # Errors
    /// What the kernel answered; UnexpectedEof for more than the request has.
    pub fn take_data(&self, tag: u16, data: &mut [u8]) -> io::Result<()> {
        self.device.read_exact_at(data, data_at(tag))
    }

    /// Copies data into the request of a read.
    ///
    /// # Errors
    /// What the kernel answered; WriteZero for more than the request takes.
    pub fn give_data(&self, tag: u16, data: &[u8]) -> io::Result<()> {
        self.device.write_all_at(data, data_at(tag))
    }
}

fn data_at(tag: u16) -> u64 {
    DATA_AT + (u64::from(tag) << PLACE_BITS)
}
