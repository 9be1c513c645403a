//! Directories against a model: a map from names to targets.

use std::collections::{BTreeMap, BTreeSet};

use weir_format::{BLOCK_BYTES, Cookie, DirectoryEntry, FileType, FormatError, Target};

use crate::memory::{Memory, now};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use weir_ext4::{Blocks, HashVersion, Kind, NameHasher};
use weir_ext4::{directory::Directory, directory::DirectoryFile, directory::DirectoryFormat};

const INODE: u32 = 12;

fn format(version: HashVersion, sealed: bool) -> DirectoryFormat {
    let hasher = NameHasher { version, seed: [1, 2, 3, 4] };
    DirectoryFormat { inode: INODE, generation: 7, sealed, may_index: true, hasher, checks_names: true }
}

fn target(inode: u32) -> Target {
    Target { inode, kind: Some(FileType::Regular) }
}

fn name(number: u32) -> Vec<u8> {
    let mut name = format!("name-{number:x}-").into_bytes();
    name.extend((0..number % 37).map(|at| b'a' + (at % 26) as u8));
    name
}

/// Reads a whole directory in batches of about `limit`.
fn all(directory: &Directory<'_, Memory, Memory>, limit: usize) -> Vec<DirectoryEntry> {
    let mut entries: Vec<DirectoryEntry> = Vec::new();
    loop {
        let after = entries.last().map_or(Cookie::START, |entry| entry.cookie);
        let batch = now(directory.read(after, limit)).expect("a batch");
        if batch.is_empty() {
            return entries;
        }
        assert!(batch[0].cookie > after, "cookies grow");
        entries.extend(batch);
    }
}

fn check(directory: &Directory<'_, Memory, Memory>, model: &BTreeMap<Vec<u8>, Target>, limit: usize) {
    let read = all(directory, limit);
    assert_eq!(
        read.iter().take(2).map(|entry| entry.name.as_slice()).collect::<Vec<_>>(),
        [b".".as_slice(), b".."]
    );
    let found: BTreeMap<_, _> = read[2..].iter().map(|entry| (entry.name.clone(), entry.target)).collect();
    assert_eq!(found.len(), read.len() - 2, "no name comes twice");
    assert!(&found == model, "read {} names, expected {}", found.len(), model.len());
}

#[test]
fn random_changes_agree_with_a_model() {
    use HashVersion::{HalfMd4, Legacy, Tea};
    for (seed, version, sealed) in
        [(1, HalfMd4, true), (2, Tea, true), (3, Legacy, false), (4, HalfMd4, false)]
    {
        let memory = Memory::new(sealed);
        let directory = Directory::new(&memory, &memory, format(version, sealed));
        now(directory.create(2, true)).expect("a directory");
        let mut random = Pcg64::seed_from_u64(seed);
        let mut model = BTreeMap::new();
        assert!(now(directory.is_empty()).expect("readable"));
        for step in 0..30_000_u32 {
            let name = name(random.random_range(0..6000));
            let to = target(random.random_range(1..u32::MAX));
            let known = model.get(&name).copied();
            assert_eq!(now(directory.lookup(&name)), Ok(known));
            match random.random_range(0..10) {
                0..6 if known.is_none() => {
                    now(directory.insert(&name, to)).expect("room");
                    model.insert(name, to);
                }
                0..6 => {
                    now(directory.insert(&name, to)).expect_err("it is there");
                }
                6 => {
                    assert_eq!(now(directory.replace(&name, to)), Ok(known));
                    known.map(|_| model.insert(name, to));
                }
                _ => {
                    assert_eq!(now(directory.remove(&name)), Ok(known));
                    model.remove(&name);
                }
            }
            if step % 3000 == 0 {
                check(&directory, &model, 1 + step as usize % 97);
            }
        }
        assert!(memory.indexed(), "it was large enough for an index");
        for name in model.keys() {
            now(directory.remove(name)).expect("there").expect("there");
        }
        assert!(now(directory.is_empty()).expect("readable"));
        assert_eq!(now(directory.lookup(b"..")).expect("readable").map(|to| to.inode), Some(2));
        now(directory.set_parent(77)).expect("a first block");
        assert_eq!(
            (now(directory.parent()), now(directory.lookup(b"..")).map(|to| to.map(|to| to.inode))),
            (Ok(77), Ok(Some(77)))
        );
    }
}

#[test]
fn two_levels_hold_a_hundred_thousand_long_names() {
    let memory = Memory::new(true);
    let directory = Directory::new(&memory, &memory, format(HashVersion::HalfMd4, true));
    now(directory.create(2, true)).expect("a directory");
    let name = |number: u32| format!("{number:0200}").into_bytes();
    for number in 0..100_000 {
        now(directory.insert(&name(number), target(number + 11))).expect("room");
    }
    for number in 0..100_000 {
        assert_eq!(now(directory.lookup(&name(number))), Ok(Some(target(number + 11))));
    }
    // More leaves than one node has entries.
    assert!(memory.count() > 5000, "{} blocks", memory.count());
    assert_eq!(all(&directory, 500).len(), 100_002);
}

#[test]
fn reading_goes_on_where_it_was_while_names_come_and_go() {
    for start in [5, 200, 3000] {
        let memory = Memory::new(true);
        let directory = Directory::new(&memory, &memory, format(HashVersion::HalfMd4, true));
        now(directory.create(2, true)).expect("a directory");
        let stays: BTreeSet<Vec<u8>> = (0..start).map(|number| name(2 * number)).collect();
        for name in &stays {
            now(directory.insert(name, target(1))).expect("room");
        }
        let (mut seen, mut after, mut fresh) = (BTreeSet::new(), Cookie::START, 0);
        loop {
            let batch = now(directory.read(after, 10)).expect("a batch");
            let Some(last) = batch.last() else { break };
            after = last.cookie;
            for entry in batch {
                assert!(seen.insert(entry.name), "no name comes twice");
            }
            // Names come, so leaves split and the directory becomes hashed; others go.
            for _ in 0..if fresh < 2000 { 20 } else { 0 } {
                now(directory.insert(&name(2 * fresh + 1), target(3))).expect("room");
                if fresh % 3 == 0 {
                    now(directory.remove(&name(2 * fresh + 1))).expect("readable").expect("just made");
                }
                fresh += 1;
            }
        }
        assert!(stays.is_subset(&seen), "a name that stayed was not read");
    }
}

#[test]
fn names_with_one_hash_go_on_in_the_next_leaf() {
    let hasher = NameHasher { version: HashVersion::LegacyUnsigned, seed: [0; 4] };
    let names = collisions(40);
    let hashes: BTreeSet<u32> = names.iter().map(|name| hasher.hash(name).major).collect();
    assert_eq!((names.len(), hashes.len()), (40, 1), "several leaves' worth of names with one hash");
    let memory = Memory::new(true);
    let format = DirectoryFormat { hasher, ..format(HashVersion::Legacy, true) };
    let directory = Directory::new(&memory, &memory, format);
    now(directory.create(2, true)).expect("a directory");
    let mut model = BTreeMap::new();
    for (number, name) in names.iter().enumerate() {
        let to = target(number as u32 + 1);
        now(directory.insert(name, to)).expect("room");
        model.insert(name.clone(), to);
        let other = format!("other-{number}").into_bytes();
        now(directory.insert(&other, to)).expect("room");
        model.insert(other, to);
    }
    for (name, to) in &model {
        assert_eq!(now(directory.lookup(name)), Ok(Some(*to)));
    }
    check(&directory, &model, 7);
    for name in &names {
        assert_eq!(now(directory.remove(name)), Ok(model.remove(name)));
    }
    check(&directory, &model, 7);
}

/// Names of 255 bytes with one legacy hash. That function is weak: a step adds the last state but one to the
/// exclusive or of the last state and a multiple of the byte, so that the two last bytes can be solved for.
fn collisions(count: usize) -> Vec<Vec<u8>> {
    const FACTOR: u32 = 7_152_373;
    // The factor's inverse modulo 2^32, by Newton's method.
    let inverse = (0..5).fold(1_u32, |x, _| x.wrapping_mul(2_u32.wrapping_sub(FACTOR.wrapping_mul(x))));
    let fold = |x: u32| if x >> 31 == 0 { x } else { x.wrapping_sub(0x7fff_ffff) };
    let step = |(last, before): (u32, u32), byte: u8| {
        (fold(before.wrapping_add(last ^ u32::from(byte).wrapping_mul(FACTOR))), last)
    };
    // A state of 31 bits comes from itself, or from a sum with the highest bit that was folded.
    let unfold = |x: u32| [x, x.wrapping_add(0x7fff_ffff)].into_iter().filter(move |&y| fold(y) == x);
    let fixed = [b'a'; 249];
    let start = fixed.iter().fold((0x12a3_fe2d, 0x37ab_e8f9), |state, &byte| step(state, byte));
    let goal = 0x1234_5678;
    let mut names = Vec::new();
    for number in 0_u32.. {
        let middle = [0, 7, 14, 21].map(|shift| 0x80 | (number >> shift) as u8 & 0x7f);
        let (last, before) = middle.iter().fold(start, |state, &byte| step(state, byte));
        for second in 0x30..=0xff_u8 {
            for sum in unfold(goal) {
                let between = sum.wrapping_sub(last) ^ u32::from(second).wrapping_mul(FACTOR);
                for sum in unfold(between) {
                    let first = (sum.wrapping_sub(before) ^ last).wrapping_mul(inverse);
                    if (0x30..=0xff).contains(&first) {
                        names.push([&fixed[..], &middle, &[first as u8, second]].concat());
                    }
                }
            }
        }
        if names.len() >= count {
            break;
        }
    }
    names.truncate(count);
    names
}

#[test]
fn impossible_names_are_refused() {
    let memory = Memory::new(true);
    let directory = Directory::new(&memory, &memory, format(HashVersion::HalfMd4, true));
    now(directory.create(2, true)).expect("a directory");
    for name in [&b""[..], b".", b"..", b"a/b", b"a\0b", &[b'x'; 256]] {
        assert!(matches!(now(directory.insert(name, target(1))), Err(FormatError::Invalid { .. })));
        assert!(matches!(now(directory.remove(name)), Err(FormatError::Invalid { .. })));
        assert!(matches!(now(directory.replace(name, target(1))), Err(FormatError::Invalid { .. })));
    }
    now(directory.insert(&[b'x'; 255], target(1))).expect("the longest name");
    assert!(now(directory.lookup(&[b'x'; 255])).expect("readable").is_some());
}

#[test]
fn an_error_from_below_does_no_harm() {
    // Storage that has no block more, at every block of a growing directory.
    for limit in 1..60 {
        let memory = Memory::new(true);
        let directory = Directory::new(&memory, &memory, format(HashVersion::HalfMd4, true));
        now(directory.create(2, true)).expect("a directory");
        memory.allow(limit);
        let mut model = BTreeMap::new();
        for number in 0..10_000 {
            match now(directory.insert(&name(number), target(1))) {
                Ok(()) => model.insert(name(number), target(1)),
                Err(FormatError::Full { .. }) => break,
                Err(error) => panic!("{error}"),
            };
        }
        assert!(model.len() < 10_000, "it was full at some time");
        check(&directory, &model, 1000);
        memory.allow(1000);
        now(directory.insert(b"again", target(1))).expect("room");
    }
}

#[test]
fn hostile_blocks_give_errors() {
    let mut errors = 0;
    for seed in 0..400 {
        // With checksums, damage is sealed again, as an attacker would.
        let sealed = seed % 2 == 0;
        let memory = Memory::new(sealed);
        let directory = Directory::new(&memory, &memory, format(HashVersion::HalfMd4, sealed));
        now(directory.create(2, true)).expect("a directory");
        let mut random = Pcg64::seed_from_u64(seed);
        for number in 0..random.random_range(1..1500) {
            now(directory.insert(&name(number), target(1))).expect("room");
        }
        for _ in 0..random.random_range(1..10) {
            let block = if random.random() { 0 } else { random.random_range(0..memory.count()) };
            let at = if random.random() { random.random_range(0..64) } else { random.random_range(0..4096) };
            damage(&memory, block as u32, at, random.random());
        }
        // Anything may come out, but it comes out.
        for number in 0..50 {
            errors += u32::from(now(directory.lookup(&name(number))).is_err());
            errors += u32::from(now(directory.insert(&name(9000 + number), target(2))).is_err());
            errors += u32::from(now(directory.remove(&name(number))).is_err());
        }
        let mut after = Cookie::START;
        while let Ok(batch) = now(directory.read(after, 100)) {
            let Some(last) = batch.last() else { break };
            assert!(last.cookie > after, "reading goes on");
            after = last.cookie;
        }
    }
    assert!(errors > 1000, "damage is noticed: {errors}");
}

/// Changes a byte, and seals the block again. A block that has no place left for its checksum stays as it is.
fn damage(memory: &Memory, block: u32, at: usize, byte: u8) {
    let place = now(memory.place(block)).expect("a place");
    let (inode, generation) = (INODE, 7);
    let leaf = Kind::Directory { inode, generation };
    let node = Kind::DirectoryIndex { inode, generation };
    let kind = if now(memory.read(place, leaf, |_| Ok(()))).is_ok() { leaf } else { node };
    let _ = now(memory.modify(place, kind, 0..BLOCK_BYTES, |bytes| bytes[at] = byte));
}
