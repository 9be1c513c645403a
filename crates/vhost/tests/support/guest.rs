//! A guest: memory, one ring in it, and the frontend that shares them with the server.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::Ordering;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use vhost::vhost_user::message::{
    VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserInflight, VhostUserProtocolFeatures,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend as _};
use vhost::{VhostBackend as _, VhostUserMemoryRegionInfo, VringConfigData};
use virtio_queue::desc::split::Descriptor;
use vm_memory::{Bytes as _, FileOffset, GuestAddress, GuestMemoryMmap};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use super::until;

/// Where the frontend has the memory, and its bytes.
const USER: u64 = 0x7000_0000_0000;
const MEMORY: usize = 8 << 20;
/// Descriptors of the ring, its parts, and the memory of requests.
pub const RING: u16 = 64;
pub const TABLE: u64 = 0x1000;
const AVAILABLE: u64 = 0x2000;
const USED: u64 = 0x3000;
const REQUESTS: u64 = 0x10_0000;
const REQUEST: u64 = 0x1_0000;
const STATUS: u64 = 0x40;
const DATA: u64 = 0x1000;
/// A status that no server gives.
const NONE: u8 = 0xAA;

const NEXT: u16 = 1;
const WRITE: u16 = 2;

/// What a request gives or wants.
#[derive(Clone, Copy)]
pub enum Data<'a> {
    Nothing,
    Given(&'a [u8]),
    Wanted(u32),
}

/// A request that was put into the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    pub head: u16,
}

/// What stays of a guest while its server is away.
pub struct Kept {
    file: File,
    pub memory: GuestMemoryMmap,
    inflight: Option<(VhostUserInflight, File)>,
    available: u16,
    seen: u16,
}

impl Kept {
    pub fn new() -> Kept {
        let file = File::from(memfd_create("guest", MemfdFlags::CLOEXEC).unwrap());
        ftruncate(&file, MEMORY as u64).unwrap();
        let offset = FileOffset::new(file.try_clone().unwrap(), 0);
        let ranges = [(GuestAddress(0), MEMORY, Some(offset))];
        let memory = GuestMemoryMmap::from_ranges_with_files(ranges).unwrap();
        Kept { file, memory, inflight: None, available: 0, seen: 0 }
    }

    /// Connects to a server, with all features but those in `without`.
    pub fn connect(self, socket: &Path, without: u64) -> Guest {
        self.set_up(socket, without, true)
    }

    /// Connects to a server, and keeps no memory for requests under way.
    pub fn connect_without_inflight(self, socket: &Path) -> Guest {
        self.set_up(socket, 0, false)
    }

    fn set_up(mut self, socket: &Path, without: u64, with_inflight: bool) -> Guest {
        let stream = until(|| UnixStream::connect(socket).ok()).unwrap();
        let mut frontend = Frontend::from_stream(stream, 16);
        frontend.set_owner().unwrap();
        let features = frontend.get_features().unwrap();
        frontend.set_features(features & !without).unwrap();
        let protocol = frontend.get_protocol_features().unwrap();
        let wanted = VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD
            | VhostUserProtocolFeatures::REPLY_ACK;
        assert!(protocol.contains(wanted));
        frontend.set_protocol_features(wanted).unwrap();
        frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        assert_eq!(frontend.get_queue_num().unwrap(), 16);
        if with_inflight {
            let (shape, inflight) = self
                .inflight
                .take()
                .unwrap_or_else(|| frontend.get_inflight_fd(&VhostUserInflight::new(0, 0, 1, RING)).unwrap());
            frontend.set_inflight_fd(&shape, inflight.as_raw_fd()).unwrap();
            self.inflight = Some((shape, inflight));
        }
        let region = VhostUserMemoryRegionInfo {
            guest_phys_addr: 0,
            memory_size: MEMORY as u64,
            userspace_addr: USER,
            mmap_offset: 0,
            mmap_handle: self.file.as_raw_fd(),
        };
        frontend.set_mem_table(&[region]).unwrap();
        let (kick, call) = (EventFd::new(EFD_NONBLOCK).unwrap(), EventFd::new(EFD_NONBLOCK).unwrap());
        let mut guest = Guest { kept: self, frontend, kick, call, features };
        guest.set_up_ring();
        guest
    }
}

/// A guest with a server.
pub struct Guest {
    pub kept: Kept,
    pub frontend: Frontend,
    pub kick: EventFd,
    pub call: EventFd,
    pub features: u64,
}

impl Guest {
    pub fn new(socket: &Path) -> Guest {
        Kept::new().connect(socket, 0)
    }

    /// Lets go of the server.
    pub fn disconnect(self) -> Kept {
        self.kept
    }

    fn set_up_ring(&mut self) {
        let frontend = &mut self.frontend;
        frontend.set_vring_num(0, RING).unwrap();
        let ring = VringConfigData {
            queue_max_size: RING,
            queue_size: RING,
            flags: 0,
            desc_table_addr: USER + TABLE,
            used_ring_addr: USER + USED,
            avail_ring_addr: USER + AVAILABLE,
            log_addr: None,
        };
        frontend.set_vring_addr(0, &ring).unwrap();
        let answers: u16 = self.kept.memory.load(GuestAddress(USED + 2), Ordering::Acquire).unwrap();
        frontend.set_vring_base(0, answers).unwrap();
        frontend.set_vring_kick(0, &self.kick).unwrap();
        frontend.set_vring_call(0, &self.call).unwrap();
        frontend.set_vring_enable(0, true).unwrap();
        self.kick.write(1).unwrap();
    }

    /// The disk's configuration.
    pub fn config(&mut self, bytes: u32) -> Vec<u8> {
        let buffer = vec![0; bytes as usize];
        self.frontend.get_config(0, bytes, VhostUserConfigFlags::empty(), &buffer).unwrap().1
    }

    pub fn describe(&self, nth: u16, address: u64, bytes: u32, flags: u16, next: u16) {
        let at = GuestAddress(TABLE + 16 * u64::from(nth));
        self.kept.memory.write_obj(Descriptor::new(address, bytes, flags, next), at).unwrap();
    }

    /// Puts a chain into the ring.
    pub fn offer(&mut self, head: u16) {
        let at = AVAILABLE + 4 + 2 * u64::from(self.kept.available % RING);
        self.kept.memory.write_obj(head, GuestAddress(at)).unwrap();
        self.kept.available = self.kept.available.wrapping_add(1);
        let memory = &self.kept.memory;
        memory.store(self.kept.available, GuestAddress(AVAILABLE + 2), Ordering::Release).unwrap();
        // Told of each answer: the one after the last that was seen.
        memory
            .store(self.kept.seen, GuestAddress(AVAILABLE + 4 + 2 * u64::from(RING)), Ordering::SeqCst)
            .unwrap();
        self.kick.write(1).unwrap();
    }

    fn base(slot: u16) -> u64 {
        REQUESTS + REQUEST * u64::from(slot)
    }

    /// Puts a request into the ring, in one of 20 slots.
    pub fn ask(&mut self, slot: u16, kind: u32, sector: u64, data: Data<'_>) -> Asked {
        let (base, head) = (Self::base(slot), 3 * slot);
        let header = [&kind.to_le_bytes()[..], &[0; 4], &sector.to_le_bytes()].concat();
        self.kept.memory.write_slice(&header, GuestAddress(base)).unwrap();
        self.kept.memory.write_obj(NONE, GuestAddress(base + STATUS)).unwrap();
        let is_nothing = matches!(data, Data::Nothing);
        self.describe(head, base, 16, NEXT, if is_nothing { head + 2 } else { head + 1 });
        match data {
            Data::Nothing => {}
            Data::Given(bytes) => {
                self.kept.memory.write_slice(bytes, GuestAddress(base + DATA)).unwrap();
                self.describe(head + 1, base + DATA, bytes.len() as u32, NEXT, head + 2);
            }
            Data::Wanted(bytes) => self.describe(head + 1, base + DATA, bytes, NEXT | WRITE, head + 2),
        }
        self.describe(head + 2, base + STATUS, 1, WRITE, 0);
        self.offer(head);
        Asked { head }
    }

    /// The next answer, and the bytes that the server says it wrote; none if there is none for a while.
    pub fn next_answer(&mut self) -> Option<(Asked, u32)> {
        until(|| self.answer_now())
    }

    /// The next answer, if it is there.
    pub fn answer_now(&mut self) -> Option<(Asked, u32)> {
        let memory = &self.kept.memory;
        let answers: u16 = memory.load(GuestAddress(USED + 2), Ordering::Acquire).unwrap();
        if answers == self.kept.seen {
            return None;
        }
        let at = USED + 4 + 8 * u64::from(self.kept.seen % RING);
        let [head, bytes]: [u32; 2] = memory.read_obj(GuestAddress(at)).unwrap();
        self.kept.seen = self.kept.seen.wrapping_add(1);
        Some((Asked { head: head as u16 }, bytes))
    }

    /// The status of a slot.
    pub fn status(&self, slot: u16) -> u8 {
        self.kept.memory.read_obj(GuestAddress(Self::base(slot) + STATUS)).unwrap()
    }

    /// The data of a slot.
    pub fn data(&self, slot: u16, bytes: u32) -> Vec<u8> {
        let mut data = vec![0; bytes as usize];
        self.kept.memory.read_slice(&mut data, GuestAddress(Self::base(slot) + DATA)).unwrap();
        data
    }

    /// Asks, and waits for the answer; the status.
    pub fn does(&mut self, kind: u32, sector: u64, data: Data<'_>) -> u8 {
        let asked = self.ask(0, kind, sector, data);
        let (answered, bytes) = self.next_answer().unwrap();
        assert_eq!(answered, asked);
        let expected = match (self.status(0), data) {
            (0, Data::Wanted(bytes)) => bytes + 1,
            _ => 1,
        };
        assert!(bytes == expected || kind == super::GET_ID);
        self.status(0)
    }

    pub fn writes(&mut self, sector: u64, bytes: &[u8]) {
        assert_eq!(self.does(super::OUT, sector, Data::Given(bytes)), super::OK);
    }

    pub fn reads(&mut self, sector: u64, bytes: u32) -> Vec<u8> {
        assert_eq!(self.does(super::IN, sector, Data::Wanted(bytes)), super::OK);
        self.data(0, bytes)
    }
}
