//! What a guest can ask for, and what it gets.

use tempfile::tempdir;
use vhost::VhostBackend as _;
use vm_memory::{Bytes as _, GuestAddress};
use weir_vhost::VhostOptions;

use crate::support::{
    BLOCKS, DISCARD, Data, FAILED, FLUSH, GET_ID, Guest, IN, Kept, OK, OUT, Server, Shelf, UNSUPPORTED,
    WRITE_ZEROES, range, until,
};

const FLUSH_FEATURE: u64 = 1 << 9;
const EVENT_INDEX: u64 = 1 << 29;
const READ_ONLY: u64 = 1 << 5;
const SECTORS: u64 = BLOCKS * 8;

fn options() -> VhostOptions {
    VhostOptions { serial: "a-volume-with-a-long-name".to_owned(), ..VhostOptions::default() }
}

#[test]
fn requests_do_what_they_ask_for() {
    let (shelf, directory) = (Shelf::new(), tempdir().unwrap());
    let socket = directory.path().join("a");
    let server = Server::start(&shelf, &socket, false, options());
    let mut guest = Guest::new(&socket);
    let config = guest.config(60);
    assert_eq!(config[..8], SECTORS.to_le_bytes());
    assert_eq!(config[20..24], 512_u32.to_le_bytes());

    guest.writes(8, &[7; 8192]);
    assert_eq!(guest.reads(8, 8192), [7; 8192]);
    guest.writes(9, &[8; 512]);
    assert_eq!(guest.reads(8, 1024), [[7; 512], [8; 512]].concat());
    assert_eq!(shelf.with(|content| content.flushes), 0);
    assert_eq!(guest.does(FLUSH, 0, Data::Nothing), OK);
    assert_eq!(shelf.with(|content| content.flushes), 1);
    assert!(shelf.with(|content| content.writes.iter().all(|(_, fua)| !fua)));

    guest.writes(16, &[9; 16384]);
    assert_eq!(guest.does(DISCARD, 0, Data::Given(&range(16, 8, 0))), OK);
    assert_eq!(guest.does(WRITE_ZEROES, 0, Data::Given(&range(24, 2, 0))), OK);
    assert_eq!(guest.does(WRITE_ZEROES, 0, Data::Given(&range(32, 8, 1))), OK);
    let left = [vec![0; 4096], vec![0; 1024], vec![9; 3072], vec![0; 4096], vec![9; 4096]].concat();
    assert_eq!(guest.reads(16, 16384), left);

    assert_eq!(guest.does(GET_ID, 0, Data::Wanted(20)), OK);
    assert_eq!(guest.data(0, 20), b"a-volume-with-a-long");
    // The server has notified the guest of answers.
    assert!(until(|| guest.call.read().ok()).is_some());
    drop(guest);
    drop(server);
}

#[test]
fn what_cannot_be_asked_is_refused() {
    let (shelf, directory) = (Shelf::new(), tempdir().unwrap());
    let socket = directory.path().join("a");
    let _server = Server::start(&shelf, &socket, false, options());
    let mut guest = Guest::new(&socket);
    assert_eq!(guest.does(99, 0, Data::Nothing), UNSUPPORTED);
    for (kind, sector, data) in [
        (IN, SECTORS, Data::Wanted(512)),
        (IN, SECTORS - 1, Data::Wanted(1024)),
        (IN, u64::MAX, Data::Wanted(512)),
        (IN, 0, Data::Wanted(511)),
        (IN, 0, Data::Nothing),
        (OUT, 0, Data::Nothing),
        (OUT, 0, Data::Given(&[1; 100])),
        (OUT, 1 << 60, Data::Given(&[1; 512])),
        (DISCARD, 0, Data::Nothing),
        (DISCARD, 0, Data::Given(&range(SECTORS, 1, 0))),
        (DISCARD, 0, Data::Given(&range(u64::MAX, u32::MAX, 0))),
        (DISCARD, 0, Data::Given(&range(0, 8, 0)[..15])),
        (DISCARD, 0, Data::Given(&range(0, 8, 0).repeat(17))),
        (DISCARD, 0, Data::Given(&range(0, (1 << 21) + 1, 0))),
        (WRITE_ZEROES, 0, Data::Given(&range(0, 8, 0).repeat(2))),
        (WRITE_ZEROES, 0, Data::Given(&range(0, (1 << 15) + 1, 0))),
    ] {
        assert_eq!(guest.does(kind, sector, data), FAILED, "{kind} at {sector}");
    }
    assert_eq!(guest.does(DISCARD, 0, Data::Given(&range(0, 8, 1))), UNSUPPORTED);
    assert_eq!(guest.does(WRITE_ZEROES, 0, Data::Given(&range(0, 8, 2))), UNSUPPORTED);
    assert!(shelf.with(|content| content.writes.is_empty()));
}

#[test]
fn what_may_only_be_read_stays_as_it_is() {
    let (shelf, directory) = (Shelf::new(), tempdir().unwrap());
    let socket = directory.path().join("a");
    let _server = Server::start(&shelf, &socket, true, options());
    let mut guest = Guest::new(&socket);
    assert_eq!(guest.features & READ_ONLY, READ_ONLY);
    assert_eq!(guest.does(OUT, 0, Data::Given(&[1; 512])), FAILED);
    assert_eq!(guest.does(DISCARD, 0, Data::Given(&range(0, 8, 0))), FAILED);
    assert_eq!(guest.does(FLUSH, 0, Data::Nothing), OK);
    assert_eq!(guest.reads(0, 512), [0; 512]);
}

/// A guest that did not take FLUSH relies on each write.
#[test]
fn without_flush_each_write_is_durable() {
    let (shelf, directory) = (Shelf::new(), tempdir().unwrap());
    let socket = directory.path().join("a");
    let _server = Server::start(&shelf, &socket, false, options());
    let mut guest = Kept::new().connect(&socket, FLUSH_FEATURE | EVENT_INDEX);
    guest.writes(0, &[1; 4096]);
    assert!(shelf.with(|content| content.writes.iter().all(|(_, fua)| *fua)));
    assert_eq!(guest.does(DISCARD, 0, Data::Given(&range(16, 8, 0))), OK);
    assert_eq!(shelf.with(|content| content.flushes), 1);
}

/// A chain in a table of its own, with the header in two pieces.
#[test]
fn tables_of_descriptors_are_followed() {
    let (shelf, directory) = (Shelf::new(), tempdir().unwrap());
    let socket = directory.path().join("a");
    let _server = Server::start(&shelf, &socket, false, options());
    let mut guest = Guest::new(&socket);
    let table = 0x20_0000_u64;
    let header = [&OUT.to_le_bytes()[..], &[0; 4], &80_u64.to_le_bytes()].concat();
    guest.kept.memory.write_slice(&header, GuestAddress(0x30_0000)).unwrap();
    guest.kept.memory.write_slice(&[5; 1024], GuestAddress(0x31_0000)).unwrap();
    guest.kept.memory.write_obj(0xAA_u8, GuestAddress(0x32_0000)).unwrap();
    let pieces =
        [(0x30_0000, 7, 1), (0x30_0007, 9, 1), (0x31_0000, 1000, 1), (0x31_03E8, 24, 1), (0x32_0000, 1, 2)];
    for (nth, (address, bytes, flags)) in pieces.into_iter().enumerate() {
        let next = nth as u16 + 1;
        let piece = virtio_queue::desc::split::Descriptor::new(address, bytes, flags, next);
        guest.kept.memory.write_obj(piece, GuestAddress(table + 16 * nth as u64)).unwrap();
    }
    guest.describe(0, table, 16 * pieces.len() as u32, 4, 0);
    guest.offer(0);
    assert_eq!(guest.next_answer().unwrap().1, 1);
    assert_eq!(guest.kept.memory.read_obj::<u8>(GuestAddress(0x32_0000)).unwrap(), OK);
    assert_eq!(guest.reads(80, 1024), [5; 1024]);
}

/// A ring that the frontend ends says which request is the next, when all before are answered.
#[test]
fn a_ring_ends_behind_its_answers() {
    let (shelf, directory) = (Shelf::new(), tempdir().unwrap());
    let socket = directory.path().join("a");
    let _server = Server::start(&shelf, &socket, false, options());
    let mut guest = Guest::new(&socket);
    for slot in 0..20 {
        guest.ask(slot, OUT, 8 * u64::from(slot), Data::Given(&[slot as u8; 4096]));
    }
    let next = guest.frontend.get_vring_base(0).unwrap();
    let answers = std::iter::from_fn(|| guest.answer_now()).count();
    assert_eq!(answers as u32, next);
}
