//! A frontend has limited requests and bytes under way (N3).

use tempfile::tempdir;
use weir_export::{ExportMutant, ExportOptions, REQUESTS_MAX};
use weir_storage::Rules;
use weir_vhost::VhostOptions;

use crate::support::{Asked, Data, Guest, OK, OUT, RING, Server, Shelf, WRITE_ZEROES, range, wait};

/// Requests that a guest gives at most.
const GIVEN_MAX: usize = REQUESTS_MAX as usize + 40;

/// The most requests that are under way of a guest that gives the same one again and again, as the ring has room, and waits
/// for no answer.
fn most_under_way(kind: u32, data: &[u8], mutant: Option<ExportMutant>) -> usize {
    let (shelf, directory) = (Shelf::new(), tempdir().unwrap());
    let socket = directory.path().join("a");
    let export = ExportOptions { rules: Rules::but(mutant), ..ExportOptions::default() };
    let _server = Server::start_export(&shelf, &socket, export, VhostOptions::default());
    let mut guest = Guest::new(&socket);
    shelf.with(|content| content.holds = true);
    let under_way = || shelf.with(|content| content.writes.len());
    let has_room = |given| {
        (0..100).any(|_| {
            let has_room = given < under_way() + usize::from(RING);
            if !has_room {
                wait(2);
            }
            has_room
        })
    };
    let Asked { head } = guest.ask(0, kind, 0, Data::Given(data));
    let mut given = 1;
    while given < GIVEN_MAX && has_room(given) {
        guest.offer(head);
        given += 1;
    }
    wait(100);
    let most = under_way();
    // The next are read when these are answered, down to the last.
    shelf.with(|content| content.holds = false);
    for _ in 0..given {
        guest.next_answer().unwrap();
    }
    assert_eq!((guest.status(0), under_way()), (OK, given));
    most
}

/// Zeros may have to be written, up to 16 MiB of them for one request.
#[test]
fn requests_and_bytes_under_way_have_limits() {
    assert_eq!(most_under_way(OUT, &[1; 4096], None), REQUESTS_MAX as usize);
    assert_eq!(most_under_way(WRITE_ZEROES, &range(0, 8, 0), None), 1);
}

#[test]
fn n3_requests_without_a_limit_are_noticed() {
    let mutant = Some(ExportMutant::LoadUnbounded);
    assert!(most_under_way(OUT, &[1; 4096], mutant) > REQUESTS_MAX as usize);
    assert!(most_under_way(WRITE_ZEROES, &range(0, 8, 0), mutant) > 1);
}
