//! What ublk shares with us: commands to its control device, and the memory in which it describes requests. The layout
//! is that of `include/uapi/linux/ublk_cmd.h`, Linux 6.5.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use io_uring::squeue::{Entry, Entry128};
use io_uring::types::Fd;
use io_uring::{IoUring, cqueue, opcode};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::param::page_size;

const CONTROL: &str = "/dev/ublk-control";
/// Of a command that is not about a queue.
const NO_QUEUE: u16 = u16::MAX;
/// Bytes of the structures that commands take, as their numbers tell them.
const CONTROL_BYTES: u32 = 32;
const QUEUE_BYTES: u32 = 16;
/// Which way their data goes.
const READ: u32 = 2;
const BOTH: u32 = 3;

/// Bytes of a request's description.
pub const UBLK_DESCRIPTION_BYTES: usize = 24;

/// A command to the control device. `number` and `buffer` of [`control_ublk`] are what it takes and gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UblkControl {
    /// What a device is (`ublksrv_ctrl_dev_info`).
    GetInfo = 0x02,
    /// Makes a device (the same).
    Add = 0x04,
    /// Removes a device, and waits until no program has it open.
    Delete = 0x05,
    /// Shows a device, served by the process `data`; waits for its queue, which reads the partitions.
    Start = 0x06,
    /// Shows it no more: what is not answered fails.
    Stop = 0x07,
    /// What kind of disk it is to be (`ublk_params`).
    SetParameters = 0x08,
    /// What kind of disk it is (the same).
    GetParameters = 0x09,
    /// Takes up a device whose server is gone.
    StartRecovery = 0x10,
    /// Goes on, served by the process `data`; waits for its queue.
    EndRecovery = 0x11,
    /// What this kernel can do (8 bytes).
    GetFeatures = 0x13,
    /// As `Stop`, but a device that is open anywhere refuses it by EBUSY (Linux 7.0).
    TryStop = 0x17,
}

impl UblkControl {
    fn number(self) -> u32 {
        let direction = match self {
            UblkControl::GetInfo | UblkControl::GetParameters | UblkControl::GetFeatures => READ,
            _ => BOTH,
        };
        encode(direction, CONTROL_BYTES, self as u32)
    }
}

/// A command's number as `ioctl` has it.
fn encode(direction: u32, bytes: u32, number: u32) -> u32 {
    direction << 30 | bytes << 16 | u32::from(b'u') << 8 | number
}

/// Sends a command about the device `device` to the kernel, and waits for its answer: the buffer with what the kernel
/// has put into it. Some commands wait for requests to be answered: a thread that answers them must not call this.
///
/// # Errors
/// NotFound where the kernel has no ublk; else what the system answered, ENODEV for a device that is not there.
pub fn control_ublk(
    command: UblkControl,
    device: u32,
    data: u64,
    mut buffer: Vec<u8>,
) -> io::Result<Vec<u8>> {
    let control = File::options().read(true).write(true).open(CONTROL)?;
    let length = u16::try_from(buffer.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut ring: IoUring<Entry128, cqueue::Entry> = IoUring::builder().dontfork().build(1)?;
    let mut words = [0; 80];
    words[..4].copy_from_slice(&device.to_ne_bytes());
    words[4..6].copy_from_slice(&NO_QUEUE.to_ne_bytes());
    words[6..8].copy_from_slice(&length.to_ne_bytes());
    words[8..16].copy_from_slice(&(buffer.as_mut_ptr() as u64).to_ne_bytes());
    words[16..24].copy_from_slice(&data.to_ne_bytes());
    let entry = opcode::UringCmd80::new(Fd(control.as_raw_fd()), command.number()).cmd(words).build();
    // SAFETY: the entry names an open file and the buffer's memory with its length; none of these commands touches
    // other memory. Both outlive the completion, which is waited for below; what never completes is leaked.
    unsafe { ring.submission().push(&entry) }.map_err(io::Error::other)?;
    loop {
        match ring.submit_and_wait(1) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                std::mem::forget((control, buffer));
                return Err(error);
            }
            Ok(_) => {
                let Some(completion) = ring.completion().next() else { continue };
                return match completion.result() {
                    0.. => Ok(buffer),
                    code => Err(io::Error::from_raw_os_error(-code)),
                };
            }
        }
    }
}

/// Waits for the next request in a place of a queue, and before that answers the last one. The kernel touches no memory
/// for it: data goes by reads and writes of the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueCommand {
    pub(crate) tag: u16,
    pub(crate) answer: Option<i32>,
}

impl QueueCommand {
    pub(super) fn entry(self, device: Fd) -> Entry {
        const FETCH: u32 = 0x20;
        const COMMIT_AND_FETCH: u32 = 0x21;
        let number = if self.answer.is_some() { COMMIT_AND_FETCH } else { FETCH };
        // The first queue is number 0, and there is no address.
        let mut words = [0; QUEUE_BYTES as usize];
        words[2..4].copy_from_slice(&self.tag.to_ne_bytes());
        words[4..8].copy_from_slice(&self.answer.unwrap_or_default().to_ne_bytes());
        opcode::UringCmd16::new(device, encode(BOTH, QUEUE_BYTES, number)).cmd(words).build()
    }
}

/// The kernel's descriptions of the requests of a queue, one a place.
#[derive(Debug)]
pub(crate) struct Descriptions {
    start: *const [u8; UBLK_DESCRIPTION_BYTES],
    places: u16,
    mapped: usize,
}

impl Descriptions {
    /// Maps those of the first queue of a device, which has so many places.
    pub(crate) fn map(device: &File, places: u16) -> io::Result<Descriptions> {
        let mapped = (usize::from(places) * UBLK_DESCRIPTION_BYTES).next_multiple_of(page_size());
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: the kernel chooses where; no other memory is affected. It is unmapped when this is dropped.
        let start = unsafe { mmap(std::ptr::null_mut(), mapped, ProtFlags::READ, flags, device, 0) }?;
        Ok(Descriptions { start: start.cast_const().cast(), places, mapped })
    }

    /// The description in a place.
    pub(crate) fn read(&self, tag: u16) -> io::Result<[u8; UBLK_DESCRIPTION_BYTES]> {
        if tag >= self.places {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: so many descriptions are mapped as long as this lives. The kernel may write to them at any time, so
        // the bytes are copied once, and mean nothing before they are checked.
        Ok(unsafe { self.start.add(tag.into()).read_volatile() })
    }
}

impl Drop for Descriptions {
    fn drop(&mut self) {
        // SAFETY: it was mapped so, and nothing refers to it.
        let _ = unsafe { munmap(self.start.cast_mut().cast(), self.mapped) };
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;
    use std::sync::Arc;

    use rustix::event::{EventfdFlags, eventfd};

    use super::super::{Operation, Request, Uring};
    use super::*;

    /// Waits for requests take no room from the disk's operations. A file that is no ublk device refuses them.
    #[test]
    fn waits_for_requests_are_not_counted() {
        let event = Arc::new(File::from(eventfd(0, EventfdFlags::CLOEXEC).unwrap()));
        let mut uring = Uring::new(1, event).unwrap();
        let file = Arc::new(tempfile::tempfile().unwrap());
        let refused = Rc::new(Cell::new(0));
        for tag in 0..40 {
            let count = Rc::clone(&refused);
            let done = Box::new(move |outcome: crate::Outcome| {
                assert_eq!(outcome.result.unwrap_err().raw_os_error(), Some(libc::EOPNOTSUPP));
                count.set(count.get() + 1);
            });
            let request = Request::Ublk(QueueCommand { tag, answer: None });
            assert!(uring.queue(Operation { file: Arc::clone(&file), request, done }).is_ok());
            assert_eq!((uring.in_flight(), uring.room()), (0, 1));
        }
        while refused.get() < 40 {
            uring.park(None);
            uring.collect().into_iter().for_each(|(done, outcome)| done(outcome));
        }
        let request = Request::Ublk(QueueCommand { tag: 0, answer: Some(-5) });
        assert!(uring.queue(Operation { file, request, done: Box::new(|_| ()) }).is_ok());
        uring.close();
        assert!(!uring.has_operations());
    }

    /// As the C compiler makes them of `UBLK_U_CMD_ADD_DEV`, `UBLK_U_CMD_GET_FEATURES`, `UBLK_U_CMD_TRY_STOP_DEV` and
    /// `UBLK_U_IO_FETCH_REQ`.
    #[test]
    fn commands_have_the_numbers_of_the_header() {
        assert_eq!(UblkControl::Add.number(), 0xC020_7504);
        assert_eq!(UblkControl::GetFeatures.number(), 0x8020_7513);
        assert_eq!(UblkControl::TryStop.number(), 0xC020_7517);
        assert_eq!(encode(BOTH, QUEUE_BYTES, 0x20), 0xC010_7520);
    }

    /// A file that is no ublk device describes what is in it: places are bounded.
    #[test]
    fn a_place_beyond_the_last_is_refused() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(page_size() as u64).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[7; 24], 24).unwrap();
        let descriptions = Descriptions::map(&file, 2).unwrap();
        assert_eq!(descriptions.read(0).unwrap(), [0; 24]);
        assert_eq!(descriptions.read(1).unwrap(), [7; 24]);
        assert_eq!(descriptions.read(2).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
