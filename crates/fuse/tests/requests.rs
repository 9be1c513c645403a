//! Requests that no kernel sends are answered, or refused; none panics or hangs, and the filesystem stays whole.

use weir_fuse::control::{STATUS_ATTRIBUTE, SYNC_ALL, VOLUME_ATTRIBUTE};
use weir_fuse::{FuseMutant, SnapshotCall, VolumeCall};
use weir_runtime::{Runtime, Simulation};
use weir_storage::Rules;

use crate::support::trial::{cases, play_corpus};
use crate::support::{Sessions, Told, request};

/// What the fuzz target has found worth keeping: each case a file of bytes that make up a session.
#[test]
fn cases_of_the_fuzz_target() {
    let sessions = Sessions::new();
    let mut all = Told::default();
    play_corpus("fuse_request", |case| {
        let told = sessions.play(case);
        all = Told { done: all.done + told.done, refused: all.refused + told.refused };
    });
    assert!(all.done > 100 && all.refused > 50, "{all:?}");
}

/// Sessions as the fuzz target begins with: without what it has learned from them. `WEIR_CASES` says how many; 300 if it
/// is not set.
#[test]
fn sessions_of_chance() {
    let runtime = Runtime::simulated(Simulation { seed: 14, ..Simulation::default() });
    let mut random = runtime.handle().random("requests");
    let sessions = Sessions::new();
    let mut all = Told::default();
    for _ in 0..cases(300) {
        let mut data = vec![random.below(4) as u8];
        for _ in 0..24 {
            let mut body: Vec<u8> = (0..8 * random.below(6)).map(|_| 0).collect();
            for _ in 0..random.below(6) {
                if !body.is_empty() {
                    let at = random.below(body.len() as u64) as usize;
                    let below = if random.below(2) == 0 { 8 } else { 256 };
                    body[at] = random.below(below) as u8;
                }
            }
            if random.below(2) == 0 {
                body.extend([b"fdslp"[random.below(5) as usize], 0]);
                body.extend([b'a' + random.below(3) as u8, 0]);
            }
            data.extend(request(random.below(128) as u8, random.below(256) as u8, &body));
        }
        let told = sessions.play(&data);
        all = Told { done: all.done + told.done, refused: all.refused + told.refused };
    }
    assert!(all.done > 500 && all.refused > 500, "{all:?}");
}

/// A session that makes sense does what it says: the bytes are those of requests.
#[test]
fn a_session_is_what_it_is_meant_to_be() {
    let new = |operation, node, body: &[u8]| request(operation, node, body);
    let create = [&0x8042_u32.to_ne_bytes()[..], &0o644_u32.to_ne_bytes(), &[0; 8], b"new\0"].concat();
    let write = [&1_u64.to_ne_bytes()[..], &0_u64.to_ne_bytes(), &5000_u32.to_ne_bytes(), &[0; 20]].concat();
    let release = [&1_u64.to_ne_bytes()[..], &[0; 16]].concat();
    let data = [
        vec![0],
        new(35, 0, &create),
        // The seventh of the nodes that were there is the last, so this is the new one.
        new(16, 7, &write),
        new(20, 7, &[0; 16]),
        new(10, 0, b"new\0"),
        new(18, 7, &release),
        new(10, 0, b"new\0"),
    ]
    .concat();
    assert_eq!(Sessions::new().play(&data), Told { done: 5, refused: 1 });
}

/// A snapshot makes everything durable, and is no end of the mount, before which writers wait for no store.
#[test]
fn only_what_is_asked_before_an_unmount_hands_over() {
    let sessions = Sessions::new();
    assert_eq!(sessions.handovers(STATUS_ATTRIBUTE, SYNC_ALL), 1);
    let call = VolumeCall::Snapshot(SnapshotCall::Create("a".to_owned()));
    assert_eq!(sessions.handovers(VOLUME_ATTRIBUTE, call.to_value().as_bytes()), 0);
}

/// What the kernel says to have forgotten is taken for no more than it was told of: a file that is open stays.
#[test]
fn more_is_forgotten_than_was_told() {
    let new = |operation, node, body: &[u8]| request(operation, node, body);
    let create = [&0x8042_u32.to_ne_bytes()[..], &0o644_u32.to_ne_bytes(), &[0; 8], b"new\0"].concat();
    let write = [&1_u64.to_ne_bytes()[..], &0_u64.to_ne_bytes(), &5000_u32.to_ne_bytes(), &[0; 20]].concat();
    let release = [&1_u64.to_ne_bytes()[..], &[0; 16]].concat();
    let batch = |count: u32, nodes: &[u64]| {
        let listed = nodes.iter().flat_map(|node| [node.to_ne_bytes(), u64::MAX.to_ne_bytes()].concat());
        [count.to_ne_bytes(), [0; 4]].concat().into_iter().chain(listed).collect::<Vec<u8>>()
    };
    let data = [
        vec![0],
        new(35, 0, &create),
        new(10, 0, b"new\0"),
        new(2, 7, &u64::MAX.to_ne_bytes()),
        new(2, 7, &1_u64.to_ne_bytes()),
        new(2, 0, &u64::MAX.to_ne_bytes()),
        // A count that is more, and less, than what follows; of nodes that are none.
        new(42, 0, &batch(u32::MAX, &[0, 1, 9, u64::MAX, 1 << 40])),
        new(42, 0, &batch(1, &[11, 12])),
        new(42, 0, &[1, 0, 0]),
        new(2, 3, &[7]),
        // It is open still.
        new(16, 7, &write),
        new(18, 7, &release),
        // The root is there, and the file is not.
        new(3, 0, &[0; 16]),
        new(3, 7, &[0; 16]),
    ]
    .concat();
    assert_eq!(Sessions::new().play(&data), Told { done: 5, refused: 1 });
}

/// How often the kernel is asked for a file's pages in a session that makes one, open with these flags, and gives it
/// names.
fn asked_for_pages(how: u8, flags: u32, mutant: Option<FuseMutant>) -> usize {
    let create = [&flags.to_ne_bytes()[..], &0o644_u32.to_ne_bytes(), &[0; 8], b"new\0"].concat();
    let data = [
        vec![how],
        request(35, 0, &create),
        // Directories and files get their names by the root's number, which the session puts in place of the zeros.
        request(12, 0, &[&[0; 8][..], b"new\0renamed\0"].concat()),
        [&[13, 0, 14, 7 << 1][..], &[0; 8], b"other\0"].concat(),
    ]
    .concat();
    let told = Sessions::new().notices(&data, Rules::but(mutant));
    // All pages from the first one on: the offset and the length.
    told.chunks(40).filter(|notice| notice[24..40] == [0; 16]).count()
}

/// K1: before a rename and a link, where a program may have pages with the kernel.
#[test]
fn a_file_gets_a_name_behind_what_the_kernel_keeps_of_it() {
    const WRITE_ONLY: u32 = 0x8041;
    const READ_WRITE: u32 = 0x8042;
    assert_eq!(asked_for_pages(0, READ_WRITE, None), 2, "it may be mapped");
    assert_eq!(asked_for_pages(0, WRITE_ONLY, None), 0);
    assert_eq!(asked_for_pages(2, WRITE_ONLY, None), 2, "the kernel has a writeback cache");
    assert_eq!(asked_for_pages(0, READ_WRITE, Some(FuseMutant::NamedBeforePages)), 0);
}
