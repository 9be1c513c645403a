//! Frontends and guests that give nonsense: they get errors, or are dropped, and the next is served.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop_oneof};
use proptest::test_runner::TestRunner;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tempfile::tempdir;
use vm_memory::{Bytes as _, GuestAddress};
use weir_vhost::VhostOptions;

use crate::support::{Guest, Kept, Server, Shelf, wait};

/// Another guest is served.
fn is_served(socket: &Path) {
    let mut guest = Guest::new(socket);
    guest.writes(64, &[3; 4096]);
    assert_eq!(guest.reads(64, 4096), [3; 4096]);
}

fn message(kind: u32, flags: u32, length: u32, body: &[u8]) -> Vec<u8> {
    [&kind.to_ne_bytes()[..], &flags.to_ne_bytes(), &length.to_ne_bytes(), body].concat()
}

/// Whether the server drops a frontend that sends this.
fn is_dropped(socket: &Path, sent: &[u8]) -> bool {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.write_all(sent).unwrap();
    stream.set_read_timeout(Some(std::time::Duration::from_secs(30))).unwrap();
    let mut taken = Vec::new();
    match stream.read_to_end(&mut taken) {
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

#[test]
fn messages_of_no_protocol_end_the_connection() {
    let (shelf, directory) = (Shelf::new(), tempdir().unwrap());
    let socket = directory.path().join("a");
    let _server = Server::start(&shelf, &socket, false, VhostOptions::default());
    for sent in [
        b"GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n".to_vec(),
        message(0, 1, 0, &[]),
        message(99, 1, 0, &[]),
        message(1, 1, 5000, &[0; 5000]),
        // A file is wanted, a ring is none, memory is none, features are none.
        message(12, 1, 8, &0_u64.to_ne_bytes()),
        message(8, 1, 8, &[&99_u32.to_ne_bytes()[..], &64_u32.to_ne_bytes()].concat()),
        message(8, 1, 8, &[&0_u32.to_ne_bytes()[..], &63_u32.to_ne_bytes()].concat()),
        message(9, 1, 40, &[0; 40]),
        message(5, 1, 8, &[0; 8]),
        message(2, 1, 8, &u64::MAX.to_ne_bytes()),
        message(5, 1, 8, &[0xFF; 8]),
    ] {
        assert!(is_dropped(&socket, &sent), "{sent:?}");
    }
    is_served(&socket);
    // No message at all.
    drop(UnixStream::connect(&socket).unwrap());
    is_served(&socket);
}

/// Half a message does not keep the next frontend waiting for long.
#[test]
fn a_message_without_its_end_ends_the_connection_in_time() {
    let (shelf, directory) = (Shelf::new(), tempdir().unwrap());
    let socket = directory.path().join("a");
    let _server = Server::start(&shelf, &socket, false, VhostOptions::default());
    assert!(is_dropped(&socket, &message(2, 1, 8, &[0; 3])));
    is_served(&socket);
}

/// The kernel ends what one call receives where a file begins: so a header can come in parts, of which one look sees the first.
#[test]
fn a_header_in_parts_with_files_ends_the_connection() {
    let (shelf, directory) = (Shelf::new(), tempdir().unwrap());
    let socket = directory.path().join("a");
    let _server = Server::start(&shelf, &socket, false, VhostOptions::default());
    let mut stream = UnixStream::connect(&socket).unwrap();
    for part in message(1, 1, 0, &[]).chunks(6) {
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut files = SendAncillaryBuffer::new(&mut space);
        let file = [stream.as_fd()];
        assert!(files.push(SendAncillaryMessage::ScmRights(&file)));
        sendmsg(&stream, &[std::io::IoSlice::new(part)], &mut files, SendFlags::empty()).unwrap();
    }
    stream.set_read_timeout(Some(std::time::Duration::from_secs(30))).unwrap();
    let end = stream.read(&mut [0; 64]);
    assert!(
        end.as_ref().map_or_else(|error| error.kind() == ErrorKind::ConnectionReset, |bytes| *bytes == 0),
        "{end:?}"
    );
    is_served(&socket);
}

/// A descriptor: address, bytes, flags, next.
type Wild = (u64, u32, u16, u16);

fn descriptor() -> impl Strategy<Value = Wild> {
    let addresses = prop_oneof![
        0x10_0000..0x20_0000_u64,
        Just(0),
        Just(crate::support::TABLE),
        (8_u64 << 20) - 100..(8 << 20) + 100,
        any::<u64>(),
        u64::MAX - 5000..u64::MAX,
    ];
    let bytes = prop_oneof![Just(0), Just(1), Just(16), Just(512), 0..70_000_u32, any::<u32>()];
    let flags = prop_oneof![Just(0), Just(1), Just(2), Just(3), Just(4), Just(5), any::<u16>()];
    (addresses, bytes, flags, prop_oneof![0..8_u16, any::<u16>()])
}

/// Whatever is in the table, and wherever the ring says that requests are, the server goes on.
#[test]
fn whatever_a_guest_gives_the_server_goes_on() {
    let (shelf, directory) = (Shelf::new(), tempdir().unwrap());
    let socket = directory.path().join("a");
    let _server = Server::start(&shelf, &socket, false, VhostOptions::default());
    let mut runner = TestRunner::new(ProptestConfig {
        cases: 150,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let cases = (
        vec(descriptor(), 1..8),
        vec(any::<u32>(), 4),
        vec(prop_oneof![0..8_u16, any::<u16>()], 1..6),
        any::<bool>(),
    );
    let run = runner.run(&cases, |(table, words, heads, by_index)| {
        let mut guest = Kept::new().connect(&socket, if by_index { 0 } else { 1 << 29 });
        for (nth, (address, bytes, flags, next)) in table.into_iter().enumerate() {
            guest.describe(nth as u16, address, bytes, flags, next);
        }
        // Headers, or what is taken for some.
        for (nth, word) in words.iter().enumerate() {
            let header = [word % 16, 0, word >> 8 & 0xFF, 0];
            guest.kept.memory.write_obj(header, GuestAddress(0x10_0000 + 64 * nth as u64)).unwrap();
        }
        for head in heads {
            guest.offer(head);
        }
        if words[0] % 4 == 0 {
            // So many requests do not fit the ring.
            guest.kept.memory.write_obj(words[1] as u16, GuestAddress(0x2002)).unwrap();
            guest.kick.write(1).unwrap();
        }
        wait(2);
        drop(guest);
        is_served(&socket);
        Ok(())
    });
    run.unwrap();
}
