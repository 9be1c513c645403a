//! Hostile traces: calls that no kernel makes, in a trace with a good checksum, and what is done with one: it is read, its states
//! are made, named, explained and written.
//!
//! It needs nothing of its crate, so that the fuzz target (fuzz/) compiles it too.

#![allow(dead_code, reason = "each caller uses a part of it")]

#[path = "../../../storage/tests/support/trial.rs"]
mod trial;

#[allow(unused_imports, reason = "each caller uses a part of it")]
pub use trial::{cases, play_corpus, within_memory};

use std::io::{Seek as _, SeekFrom};

use weir_program::{
    Call, Candidates, Moments, NewInode, Operation, Place, Privileges, Promises, ROOT, Record, StateName,
    TraceHeader, Units, explain, read_trace, write_trace, write_tree,
};
use weir_runtime::{Runtime, Simulation};
use weir_storage::Rules;

/// Bytes that encode one call.
pub const CALL_BYTES: usize = 6;
/// The most calls.
const CALLS_MAX: usize = 48;
/// States that are made of each moment.
const STATES: usize = 6;
/// States that are written to the host.
const WRITTEN: usize = 2;

/// What became of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was not taken.
    Refused,
    /// All was done with it.
    Played,
}

/// A place in a file: near a block's edge, or far out.
fn offset(byte: u8) -> u64 {
    match byte {
        0..=199 => u64::from(byte) * 512,
        200..=229 => 4096 * u64::from(byte) - 1,
        230..=249 => 1 << (byte - 190),
        _ => u64::MAX - u64::from(255 - byte),
    }
}

fn name(byte: u8) -> Vec<u8> {
    match byte % 16 {
        13 => b"..".to_vec(),
        14 => b"a/b".to_vec(),
        15 => Vec::new(),
        other => vec![b'a' + other],
    }
}

/// The call that some bytes stand for: its inodes are few, so that calls meet, and may be none that there is.
fn call(record: &mut Record, [kind, first, second, third, fourth, _]: [u8; CALL_BYTES]) -> Option<Call> {
    let inode = |byte: u8| ROOT + u32::from(byte % 8);
    let place = |directory: u8, byte: u8| Place { directory: inode(directory), name: name(byte) };
    Some(match kind % 12 {
        0 | 1 => {
            let types = [0o100_644, 0o040_755, 0o120_777, 0o010_644, 0o060_600, 0];
            let mode = types[usize::from(second) % types.len()];
            let new = NewInode { mode, uid: 0, gid: 0, target: name(third), device: (1, 2) };
            Call::Make { inode: inode(first), new, at: (fourth < 250).then(|| place(fourth, third)) }
        }
        2 => Call::Link { inode: inode(first), at: place(second, third) },
        3 => Call::Remove { inode: inode(first), at: place(second, third) },
        4 => Call::Rename {
            inode: inode(first),
            from: place(second, third),
            to: place(third, fourth),
            replaced: (second & 64 != 0).then(|| inode(fourth)),
            exchanged: second & 128 != 0,
            is_directory: first & 128 != 0,
        },
        5 | 6 => {
            let data = record.push_data(&vec![kind; 1 + 40 * usize::from(third)])?;
            let grown = (fourth < 128).then(|| offset(fourth));
            Call::Write { inode: inode(first), offset: offset(second), data, grown }
        }
        7 => Call::SetSize { inode: inode(first), size: offset(second), before: offset(third) },
        8 => Call::Zero { inode: inode(first), offset: offset(second), length: offset(third) },
        9 => match fourth % 3 {
            0 => Call::SetAttributes {
                inode: inode(first),
                permissions: u16::from(second) << 8,
                uid: 0,
                gid: 0,
            },
            1 => Call::SetExtended { inode: inode(first), name: name(second), value: Some(vec![third]) },
            _ => Call::SetExtended { inode: inode(first), name: name(second), value: None },
        },
        10 if fourth >= 250 => Call::SyncAll,
        10 if fourth >= 220 => Call::SyncFailed { inode: inode(first) },
        10 => Call::Sync { inode: inode(first), data_only: second & 1 != 0 },
        _ => {
            record.acknowledge(0, vec![first]);
            return None;
        }
    })
}

/// The trace that bytes stand for is read and played: the first byte says how many of its calls are the setup.
///
/// # Panics
/// If a state that is looked at cannot be, or a failure of the host's filesystem is none of space or limits.
pub fn play(bytes: &[u8]) -> Outcome {
    let (setup, bytes) = bytes.split_first().map_or((0, bytes), |(first, rest)| (usize::from(*first), rest));
    let mut record = Record::new((0, 0), 1 << 20);
    for bytes in bytes.as_chunks::<CALL_BYTES>().0.iter().take(CALLS_MAX) {
        if let Some(call) = call(&mut record, *bytes) {
            record.operations.push(Operation { process: usize::from(bytes[5] == 255), call });
        }
    }
    record.setup = setup;
    let mut file = tempfile::tempfile().expect("a file");
    write_trace(&mut file, &TraceHeader::default(), &record).expect("a trace");
    file.seek(SeekFrom::Start(0)).expect("its beginning");
    let Ok((_, record)) = read_trace(&mut file) else { return Outcome::Refused };
    for promises in Promises::ALL {
        play_states(&record, promises);
    }
    Outcome::Played
}

fn play_states(record: &Record, promises: Promises) {
    let units = Units::from_record(record, promises, Rules::all());
    let mut moments = Moments::new(record, &units).expect("the record");
    let mut written = 0;
    while let Some(moment) = moments.advance().expect("the record") {
        let random = Runtime::simulated(Simulation::default()).handle().random("moment");
        for name in Candidates::new(&units, moment, moments.pending(), random).take(STATES) {
            assert!(moments.allows(&name), "{name} under {promises:?}");
            assert_eq!(name.to_string().parse::<StateName>().as_ref(), Ok(&name));
            let tree = moments.tree(&name).expect("the record");
            let _ = tree.hash();
            let _ = explain(record, &units, promises, &name);
            if promises == Promises::Posix && written < WRITTEN {
                written += 1;
                let scratch = tempfile::tempdir().expect("a directory");
                // Names and sizes may be more than the host takes.
                let _ = write_tree(&tree, &scratch.path().join("state"), Privileges::Dropped);
            }
        }
    }
}
