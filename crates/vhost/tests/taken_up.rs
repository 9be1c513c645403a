//! A server is killed while requests are under way, and the next one takes them up (N5); nothing is answered before
//! the storage has it (N4).

use std::path::Path;

use tempfile::tempdir;
use weir_export::{ExportMutant, ExportOptions};
use weir_storage::Rules;
use weir_vhost::{VhostMutant, VhostOptions};

use crate::support::{Asked, Data, FAILED, FLUSH, Guest, Kept, OK, OUT, Server, Shelf, until, wait};

fn start(shelf: &Shelf, socket: &Path, mutant: Option<VhostMutant>) -> Server {
    // The shelf keeps what was written, whatever becomes of its server.
    let options =
        VhostOptions { answers_from_disk: true, rules: Rules::but(mutant), ..VhostOptions::default() };
    Server::start(shelf, socket, false, options)
}

/// The slots of requests that are under way when the first server is killed, in the order in which they are given.
const SLOTS: [u16; 4] = [9, 4, 13, 2];

/// What is wrong with servers of this kind, of which one is killed.
fn breach(mutant: Option<VhostMutant>) -> Option<String> {
    let (shelf, directory) = (Shelf::new(), tempdir().unwrap());
    let socket = directory.path().join("a");
    let server = start(&shelf, &socket, mutant);
    let mut guest = Guest::new(&socket);
    // The ring has been used before.
    for round in 0..70 {
        guest.writes(1024 + 8 * round, &[1; 4096]);
    }
    shelf.with(|content| {
        content.holds = true;
        content.writes.clear();
    });
    for slot in SLOTS {
        guest.ask(slot, OUT, 8 * u64::from(slot), Data::Given(&[slot as u8; 4096]));
    }
    until(|| shelf.with(|content| content.writes.len() == SLOTS.len()).then_some(()))?;
    wait(20);
    let early = guest.answer_now();
    server.kill();
    if early.is_some() {
        return Some("a write is answered that the storage has not".to_owned());
    }
    let kept = guest.disconnect();
    shelf.with(|content| {
        content.holds = false;
        content.writes.clear();
    });

    let _next = start(&shelf, &socket, mutant);
    let mut guest = kept.connect(&socket, 0);
    // What the guest gives from now on comes behind.
    guest.ask(0, OUT, 512, Data::Given(&[77; 4096]));
    guest.ask(1, FLUSH, 0, Data::Nothing);
    let mut answered: Vec<u16> = Vec::new();
    while answered.len() < SLOTS.len() + 2 {
        let Some(look) = (0..500).find_map(|_| {
            wait(1);
            guest.answer_now()
        }) else {
            break;
        };
        let (Asked { head }, _) = look;
        answered.push(head / 3);
    }
    let lost: Vec<u16> = SLOTS.into_iter().filter(|slot| !answered.contains(slot)).collect();
    if !lost.is_empty() {
        return Some(format!("requests {lost:?} are never answered"));
    }
    if let Some(slot) = SLOTS.into_iter().find(|slot| guest.status(*slot) != OK) {
        return Some(format!("request {slot} failed"));
    }
    let order: Vec<u64> = shelf.with(|content| content.writes.iter().map(|(lba, _)| *lba).collect());
    let given: Vec<u64> = SLOTS.into_iter().map(u64::from).chain([64]).collect();
    if order != given {
        return Some(format!("written in the order {order:?}, given in the order {given:?}"));
    }
    for slot in SLOTS {
        assert_eq!(guest.reads(8 * u64::from(slot), 4096), [slot as u8; 4096]);
    }
    None
}

/// How a flush ends of a guest that wrote, lost its server and went on, and of the next guest, which may keep no memory for
/// requests under way.
fn flushes(is_killed: bool, from_disk: bool, mutant: Option<ExportMutant>) -> [u8; 2] {
    flushes_before(Guest::new, is_killed, from_disk, mutant)
}

fn flushes_before(
    connect_next: fn(&Path) -> Guest,
    is_killed: bool,
    from_disk: bool,
    mutant: Option<ExportMutant>,
) -> [u8; 2] {
    let (shelf, directory) = (Shelf::new(), tempdir().unwrap());
    let socket = directory.path().join("a");
    let start = || {
        let export = ExportOptions { rules: Rules::but(mutant), ..ExportOptions::default() };
        let options = VhostOptions { answers_from_disk: from_disk, ..VhostOptions::default() };
        Server::start_export(&shelf, &socket, export, options)
    };
    let server = start();
    let mut guest = Guest::new(&socket);
    guest.writes(0, &[1; 4096]);
    if is_killed {
        server.kill()
    } else {
        drop(server)
    }
    let _next = start();
    let mut guest = guest.disconnect().connect(&socket, 0);
    let goes_on = guest.does(FLUSH, 0, Data::Nothing);
    drop(guest);
    [goes_on, connect_next(&socket).does(FLUSH, 0, Data::Nothing)]
}

/// N7: the volume's log may have lost what the server had answered.
#[test]
fn n7_no_flush_succeeds_behind_a_kill_that_may_have_lost_answered_writes() {
    assert_eq!(flushes(true, false, None), [FAILED, OK]);
    assert_eq!(flushes(true, true, None), [OK, OK]);
    assert_eq!(flushes(false, false, None), [OK, OK]);
    assert_eq!(flushes(true, false, Some(ExportMutant::LossIgnored)), [OK, OK]);
}

/// A frontend that keeps no memory for requests under way says that it is behind no server.
#[test]
fn flushes_of_a_new_client_succeed_behind_one_whose_flushes_failed() {
    let without_inflight = |socket: &Path| Kept::new().connect_without_inflight(socket);
    assert_eq!(flushes_before(without_inflight, true, false, None), [FAILED, OK]);
}

#[test]
fn requests_under_way_at_a_kill_are_taken_up_in_order() {
    assert_eq!(breach(None), None);
}

#[test]
fn n5_requests_that_are_forgotten_are_noticed() {
    assert!(breach(Some(VhostMutant::InflightForgotten)).unwrap().contains("never answered"));
}

#[test]
fn n5_requests_in_another_order_are_noticed() {
    assert!(breach(Some(VhostMutant::InflightByPlace)).unwrap().contains("given in the order"));
}

#[test]
fn n4_early_answers_are_noticed() {
    assert!(breach(Some(VhostMutant::AnsweredEarly)).unwrap().contains("that the storage has not"));
}
