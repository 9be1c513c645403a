//! Which states a power cut may leave: the promises one by one, each with what another set of promises allows there, and the
//! states that are chosen against all that there are.

use std::collections::{BTreeMap, BTreeSet};

use weir_program::{
    BLOCK_BYTES, Call, Candidates, Content, FileContent, Moments, NewInode, Place, ProgramMutant, Promises,
    ROOT, Record, StateName, Tree, Units,
};
use weir_runtime::{Runtime, Simulation};
use weir_storage::Rules;

/// The inode of the first file.
const FILE: u32 = 10;
const OTHER: u32 = 11;
const DIRECTORY: u32 = 12;

fn place(directory: u32, name: &str) -> Place {
    Place { directory, name: name.into() }
}

fn make(inode: u32, directory: u32, name: &str, mode: u16) -> Call {
    let new = NewInode { mode, uid: 0, gid: 0, target: Vec::new(), device: (0, 0) };
    Call::Make { inode, new, at: Some(place(directory, name)) }
}

fn create(inode: u32, name: &str) -> Call {
    make(inode, ROOT, name, 0o100_644)
}

fn rename(inode: u32, from: Place, to: Place, replaced: Option<u32>) -> Call {
    Call::Rename { inode, from, to, replaced, exchanged: false, is_directory: false }
}

fn sync(inode: u32) -> Call {
    Call::Sync { inode, data_only: false }
}

/// A run, whose setup is done by then.
struct Play {
    record: Record,
    sizes: BTreeMap<u32, u64>,
}

impl Play {
    fn new(setup: &[Call]) -> Play {
        let mut play = Play { record: Record::new((0, 0), 1 << 20), sizes: BTreeMap::new() };
        setup.iter().for_each(|call| play.call(call.clone()));
        play.record.setup = play.record.operations.len();
        play
    }

    /// With a file that has a block of the letter `o`.
    fn with_file() -> Play {
        let mut play = Play::new(&[create(FILE, "data")]);
        play.write(FILE, 0, &[b'o'; BLOCK_BYTES]);
        play.record.setup = play.record.operations.len();
        play
    }

    fn call(&mut self, call: Call) {
        if let Call::SetSize { inode, size, .. } = call {
            self.sizes.insert(inode, size);
        }
        self.record.push(0, call);
    }

    fn write(&mut self, inode: u32, offset: u64, bytes: &[u8]) {
        let size = self.sizes.entry(inode).or_default();
        let end = offset + bytes.len() as u64;
        let grown = (end > *size).then_some(end);
        *size = end.max(*size);
        let data = self.record.push_data(bytes).unwrap();
        self.call(Call::Write { inode, offset, data, grown });
    }

    fn acknowledge(&mut self) {
        self.record.acknowledge(0, b"line".to_vec());
    }

    /// All states that may be left under promises, in the words of [`tell`], and the most that was acknowledged with each.
    fn states(&self, promises: Promises) -> BTreeMap<String, usize> {
        self.states_by(promises, Rules::all())
    }

    fn states_by(&self, promises: Promises, rules: Rules<ProgramMutant>) -> BTreeMap<String, usize> {
        let units = Units::from_record(&self.record, promises, rules);
        let mut moments = Moments::new(&self.record, &units).unwrap();
        let mut states = BTreeMap::new();
        while let Some(moment) = moments.advance().unwrap() {
            let pending = moments.pending().to_vec();
            for bits in 0..1_u32 << pending.len() {
                let missing = pending.iter().enumerate().filter(|(nth, _)| bits & 1 << nth != 0);
                let missing = missing.map(|(_, unit)| *unit).collect();
                let name = StateName { moment, missing, torn: Vec::new() };
                if moments.allows(&name) {
                    let told = tell(&moments.tree(&name).unwrap());
                    let most = states.entry(told).or_insert(0);
                    *most = units.moments[moment].acknowledged.max(*most);
                }
            }
        }
        states
    }

    fn may_leave(&self, promises: Promises, state: &str) -> bool {
        self.states(promises).contains_key(state)
    }
}

/// A tree as text: of each file the first byte of each block, `.` for zero.
fn tell(tree: &Tree) -> String {
    fn below(tree: &Tree, inode: u32, path: &str, told: &mut Vec<String>) {
        for (name, inode) in tree.node(inode).unwrap().names().unwrap() {
            let path = format!("{path}{}", String::from_utf8_lossy(name));
            match &tree.node(*inode).unwrap().content {
                Content::Directory(_) => {
                    told.push(format!("{path}/"));
                    below(tree, *inode, &format!("{path}/"), told);
                }
                Content::File(file) => told.push(format!("{path}={}", blocks(file))),
                other => panic!("{other:?}"),
            }
        }
    }
    let mut told = Vec::new();
    below(tree, ROOT, "", &mut told);
    told.join(" ")
}

fn blocks(file: &FileContent) -> String {
    let first = |block: u64| {
        let mut byte = [0];
        file.read(block * BLOCK_BYTES as u64, &mut byte);
        if byte[0] == 0 { '.' } else { char::from(byte[0]) }
    };
    (0..file.size().div_ceil(BLOCK_BYTES as u64)).map(first).collect()
}

#[test]
fn a_name_is_durable_when_its_directory_was_synchronised() {
    let mut play = Play::new(&[]);
    play.call(create(FILE, "a"));
    play.write(FILE, 0, b"n");
    play.call(sync(FILE));
    play.acknowledge();
    for (promises, is_lost) in [
        (Promises::Posix, true),
        (Promises::Ext4Ordered, false),
        (Promises::Xfs, false),
        (Promises::Btrfs, false),
    ] {
        assert_eq!(play.states(promises).get("").is_some_and(|most| *most > 0), is_lost, "{promises:?}");
    }
    play.call(sync(ROOT));
    play.acknowledge();
    assert_eq!(play.states(Promises::Posix)["a=n"], 2);
    assert_eq!(play.states(Promises::Posix)[""], 1, "a cut before the last call has one acknowledged line");
}

#[test]
fn a_rename_overtakes_data_where_nothing_keeps_it_back() {
    let mut play = Play::with_file();
    play.call(create(OTHER, "tmp"));
    play.write(OTHER, 0, b"n");
    play.call(rename(OTHER, place(ROOT, "tmp"), place(ROOT, "data"), Some(FILE)));
    for (promises, empty, zeros) in [
        (Promises::Posix, true, true),
        (Promises::Ext4Ordered, false, false),
        (Promises::Ext4Writeback, true, true),
        (Promises::Xfs, true, false),
        (Promises::Btrfs, false, false),
    ] {
        assert_eq!(play.may_leave(promises, "data="), empty, "{promises:?}");
        assert_eq!(play.may_leave(promises, "data=."), zeros, "{promises:?}");
        for always in ["data=n", "data=o", "data=o tmp=n", "data=o tmp="] {
            assert!(play.may_leave(promises, always), "{promises:?}: {always}");
        }
        assert!(
            !play.states(promises).keys().any(|state| !state.contains("data=")),
            "{promises:?}: never neither"
        );
    }
}

#[test]
fn a_rename_to_another_directory_leaves_the_old_name_or_the_new_one() {
    let mut play = Play::new(&[create(FILE, "a"), make(DIRECTORY, ROOT, "d", 0o040_755)]);
    play.call(rename(FILE, place(ROOT, "a"), place(DIRECTORY, "a"), None));
    let told = |promises| play.states(promises).into_keys().collect::<Vec<_>>();
    assert_eq!(told(Promises::Posix), ["a= d/", "a= d/ d/a=", "d/ d/a="]);
    assert_eq!(told(Promises::Ext4Ordered), ["a= d/", "d/ d/a="]);
    // The directory that it leaves: the old name goes not before the new one is there.
    play.call(sync(ROOT));
    play.acknowledge();
    let states = play.states(Promises::Posix);
    assert_eq!(
        states.iter().filter(|(_, most)| **most > 0).map(|(state, _)| state).collect::<Vec<_>>(),
        ["d/ d/a="]
    );
}

#[test]
fn metadata_is_in_order_where_a_journal_keeps_it() {
    let mut play = Play::new(&[create(FILE, "a")]);
    play.call(Call::Remove { inode: FILE, at: place(ROOT, "a") });
    play.call(create(OTHER, "b"));
    assert!(play.may_leave(Promises::Posix, "a= b="));
    for promises in &Promises::ALL[1..] {
        assert!(!play.may_leave(*promises, "a= b="), "{promises:?}");
        assert!(play.may_leave(*promises, "") && play.may_leave(*promises, "b="), "{promises:?}");
    }
    // Btrfs makes a file durable before what was done earlier.
    play.call(sync(OTHER));
    play.acknowledge();
    assert_eq!(at_last(&play, Promises::Btrfs), ["a= b=", "b="]);
    assert_eq!(at_last(&play, Promises::Ext4Ordered), ["b="]);
    assert_eq!(at_last(&play, Promises::Posix), ["", "a=", "a= b=", "b="]);
}

#[test]
fn blocks_overtake_each_other_and_one_block_keeps_its_order() {
    let mut play = Play::with_file();
    play.write(FILE, BLOCK_BYTES as u64, b"1");
    play.write(FILE, 0, b"2");
    play.write(FILE, 0, b"3");
    let states: BTreeSet<String> = play.states(Promises::Posix).into_keys().collect();
    let expected =
        ["data=3", "data=31", "data=3.", "data=2", "data=21", "data=2.", "data=o", "data=o1", "data=o."];
    assert_eq!(states, expected.map(str::to_owned).into());
    let states: BTreeSet<String> = play.states(Promises::Ext4Ordered).into_keys().collect();
    assert!(!states.iter().any(|state| state.ends_with('.')) && states.contains("data=o1"), "{states:?}");
}

#[test]
fn what_was_cut_off_does_not_come_back_before_the_cut() {
    let mut play = Play::with_file();
    play.call(Call::SetSize { inode: FILE, size: 0, before: BLOCK_BYTES as u64 });
    play.write(FILE, 0, b"n");
    for promises in Promises::ALL {
        let zeros = matches!(promises, Promises::Posix | Promises::Ext4Writeback);
        assert_eq!(play.may_leave(promises, "data=."), zeros, "{promises:?}");
        for always in ["data=o", "data=", "data=n"] {
            assert!(play.may_leave(promises, always), "{promises:?}: {always}");
        }
    }
    // A block that is old but for its first byte: without the cut, only POSIX has that.
    let units = |promises| Units::from_record(&play.record, promises, Rules::all());
    assert!(units(Promises::Posix).all[1].needs.is_empty());
    assert_eq!(units(Promises::Xfs).all[1].needs, [0]);
}

#[test]
fn fdatasync_covers_data_and_size_and_no_attributes() {
    let mut play = Play::with_file();
    play.call(Call::SetAttributes { inode: FILE, permissions: 0o600, uid: 0, gid: 0 });
    play.write(FILE, BLOCK_BYTES as u64, b"1");
    let pending_behind = |call: Call| {
        let mut record = Play { record: Record::new((0, 0), 1 << 20), sizes: BTreeMap::new() };
        record.record.operations.clone_from(&play.record.operations);
        record.record.setup = play.record.setup;
        record.call(call);
        let units = Units::from_record(&record.record, Promises::Posix, Rules::all());
        units.all.len() - units.moments.iter().map(|moment| moment.durable.len()).sum::<usize>()
    };
    assert_eq!(pending_behind(Call::Sync { inode: FILE, data_only: true }), 1);
    assert_eq!(pending_behind(sync(FILE)), 0);
    assert_eq!(pending_behind(Call::SyncAll), 0);
    assert_eq!(pending_behind(sync(ROOT)), 3);
}

/// The states with something acknowledged.
fn at_last(play: &Play, promises: Promises) -> Vec<String> {
    let states = play.states(promises);
    states.into_iter().filter(|(_, most)| *most > 0).map(|(state, _)| state).collect()
}

#[test]
fn btrfs_makes_the_new_directories_of_a_file_durable_with_it() {
    let mut play = Play::new(&[]);
    play.call(create(OTHER, "other"));
    play.call(make(DIRECTORY, ROOT, "d", 0o040_755));
    play.call(make(13, DIRECTORY, "e", 0o040_755));
    play.call(make(FILE, 13, "a", 0o100_644));
    play.call(sync(FILE));
    play.acknowledge();
    assert_eq!(at_last(&play, Promises::Btrfs), ["d/ d/e/ d/e/a=", "d/ d/e/ d/e/a= other="]);
    // The control: without that promise the whole way may be gone.
    assert!(at_last(&play, Promises::Posix).contains(&String::new()));
}

#[test]
fn a_replacement_that_is_durable_has_its_data() {
    let mut play = Play::with_file();
    play.call(create(OTHER, "tmp"));
    play.write(OTHER, 0, b"n");
    play.call(rename(OTHER, place(ROOT, "tmp"), place(ROOT, "data"), Some(FILE)));
    play.call(sync(ROOT));
    play.acknowledge();
    for promises in [Promises::Btrfs, Promises::Ext4Ordered] {
        assert_eq!(at_last(&play, promises), ["data=n"], "{promises:?}");
    }
    assert!(at_last(&play, Promises::Posix).contains(&"data=".to_owned()));
}

#[test]
fn data_over_a_hole_comes_not_before_the_hole() {
    let mut play = Play::new(&[create(FILE, "data")]);
    play.write(FILE, 0, &[b'o'; 3 * BLOCK_BYTES]);
    play.record.setup = play.record.operations.len();
    play.call(Call::Zero { inode: FILE, offset: 0, length: 2 * BLOCK_BYTES as u64 });
    play.write(FILE, 0, b"1");
    play.write(FILE, 2 * BLOCK_BYTES as u64, b"2");
    for promises in Promises::ALL {
        let overtakes = promises == Promises::Posix;
        assert_eq!(play.may_leave(promises, "data=1oo"), overtakes, "{promises:?}");
        for always in ["data=ooo", "data=..o", "data=1.o", "data=oo2", "data=..2", "data=1.2"] {
            assert!(play.may_leave(promises, always), "{promises:?}: {always}");
        }
    }
}

#[test]
fn data_before_a_cut_is_overwritten_in_place() {
    let mut play = Play::new(&[create(FILE, "data")]);
    play.write(FILE, 0, &[b'o'; 3 * BLOCK_BYTES]);
    play.record.setup = play.record.operations.len();
    play.call(Call::SetSize { inode: FILE, size: 2 * BLOCK_BYTES as u64, before: 3 * BLOCK_BYTES as u64 });
    play.write(FILE, 0, b"1");
    play.write(FILE, 2 * BLOCK_BYTES as u64, b"2");
    for promises in Promises::ALL {
        assert!(play.may_leave(promises, "data=1oo"), "{promises:?}");
        let units = Units::from_record(&play.record, promises, Rules::all());
        let cut: &[usize] = if promises == Promises::Posix { &[] } else { &[0] };
        assert_eq!((&units.all[1].needs[..], &units.all[2].needs[..]), (&[][..], cut), "{promises:?}");
    }
}

#[test]
fn a_failed_synchronisation_loses_data_that_a_second_one_does_not_bring_back() {
    let mut play = Play::with_file();
    play.write(FILE, BLOCK_BYTES as u64, b"1");
    play.write(FILE, 0, b"2");
    play.call(Call::SyncFailed { inode: FILE });
    play.call(sync(FILE));
    play.acknowledge();
    for promises in Promises::ALL {
        // The size is there, and the blocks are or are not.
        assert_eq!(at_last(&play, promises), ["data=2.", "data=21", "data=o.", "data=o1"], "{promises:?}");
    }
    let covers = Rules::but(Some(ProgramMutant::FailedSyncCovers));
    assert_eq!(
        play.states_by(Promises::Posix, covers).get("data=o1").copied().unwrap_or(0),
        0,
        "the control"
    );
    // What writes a block again brings it back, with all of the block.
    play.write(FILE, 5, b"3");
    play.write(FILE, BLOCK_BYTES as u64 + 5, b"3");
    play.call(sync(FILE));
    play.acknowledge();
    let last: Vec<String> = play
        .states(Promises::Posix)
        .into_iter()
        .filter(|(_, most)| *most == 2)
        .map(|(state, _)| state)
        .collect();
    assert_eq!(last, ["data=21"]);
}

/// A run that tells a mutant from the rule: with the mutant, a state may be left that has something acknowledged.
fn telling_run(mutant: ProgramMutant) -> (Play, Promises, &'static str) {
    let mut play = Play::with_file();
    let (promises, state) = match mutant {
        ProgramMutant::AcknowledgesEarly => {
            play.call(create(OTHER, "other"));
            play.call(Call::SyncAll);
            (Promises::Posix, "data=o")
        }
        ProgramMutant::SyncIgnored => {
            play.write(FILE, 0, b"1");
            play.call(sync(FILE));
            (Promises::Posix, "data=o")
        }
        ProgramMutant::NamesOvertake => {
            play.call(rename(FILE, place(ROOT, "data"), place(ROOT, "old"), None));
            play.call(create(OTHER, "data"));
            (Promises::Posix, "data=")
        }
        ProgramMutant::MetadataOvertakes => {
            play.call(create(OTHER, "a"));
            play.call(create(DIRECTORY, "b"));
            (Promises::Xfs, "b= data=o")
        }
        ProgramMutant::SizeBeforeData => {
            play.write(FILE, BLOCK_BYTES as u64, b"1");
            (Promises::Ext4Ordered, "data=o.")
        }
        ProgramMutant::ReplacesEarly => {
            play.call(create(OTHER, "tmp"));
            play.write(OTHER, 0, b"n");
            play.call(rename(OTHER, place(ROOT, "tmp"), place(ROOT, "data"), Some(FILE)));
            (Promises::Btrfs, "data=")
        }
        ProgramMutant::CoversOneFile => {
            play.call(create(OTHER, "a"));
            play.call(sync(OTHER));
            (Promises::Ext4Ordered, "data=o")
        }
        ProgramMutant::ForgetsAncestors => {
            play.call(make(DIRECTORY, ROOT, "d", 0o040_755));
            play.call(make(OTHER, DIRECTORY, "a", 0o100_644));
            play.call(sync(OTHER));
            (Promises::Btrfs, "data=o")
        }
        ProgramMutant::DataOvertakesRemoval => {
            play.write(FILE, BLOCK_BYTES as u64, b"o");
            play.call(Call::SyncAll);
            play.call(Call::Zero { inode: FILE, offset: 0, length: 2 * BLOCK_BYTES as u64 });
            play.write(FILE, 0, b"1");
            (Promises::Ext4Writeback, "data=1o")
        }
        other => panic!("{other:?}"),
    };
    play.acknowledge();
    (play, promises, state)
}

#[test]
fn each_dropped_promise_leaves_a_state_that_is_not_legal() {
    for mutant in [
        ProgramMutant::AcknowledgesEarly,
        ProgramMutant::SyncIgnored,
        ProgramMutant::NamesOvertake,
        ProgramMutant::MetadataOvertakes,
        ProgramMutant::SizeBeforeData,
        ProgramMutant::ReplacesEarly,
        ProgramMutant::CoversOneFile,
        ProgramMutant::ForgetsAncestors,
        ProgramMutant::DataOvertakesRemoval,
    ] {
        let (play, promises, state) = telling_run(mutant);
        let is_left = |rules| play.states_by(promises, rules).get(state).is_some_and(|most| *most > 0);
        assert!(!is_left(Rules::all()), "{mutant:?}: {state}");
        assert!(is_left(Rules::but(Some(mutant))), "{mutant:?} lives");
    }
}

/// The bytes of `data` at these places in each state that is looked at, at any moment.
fn bytes_of_states(play: &Play, at: &[u64]) -> BTreeSet<String> {
    let units = Units::from_record(&play.record, Promises::Posix, Rules::all());
    let mut moments = Moments::new(&play.record, &units).unwrap();
    let mut told = BTreeSet::new();
    while let Some(moment) = moments.advance().unwrap() {
        let random = Runtime::simulated(Simulation::default()).handle().random("moment");
        for name in Candidates::new(&units, moment, moments.pending(), random) {
            assert!(moments.allows(&name), "{name}");
            let tree = moments.tree(&name).unwrap();
            let Content::File(file) = &tree.node(tree.lookup(ROOT, b"data").unwrap()).unwrap().content else {
                panic!("no file")
            };
            let byte = |at: &u64| {
                let mut byte = [0];
                file.read(*at, &mut byte);
                char::from(byte[0])
            };
            told.insert(at.iter().map(byte).collect());
        }
    }
    told
}

#[test]
fn a_torn_block_has_a_later_write_without_an_earlier_one() {
    let mut play = Play::with_file();
    play.write(FILE, 0, &[b'1'; 1000]);
    play.write(FILE, 2000, &[b'2'; 10]);
    play.write(FILE, 3584, b"3");
    play.call(sync(FILE));
    let told = bytes_of_states(&play, &[0, 600, 2000, 3584]);
    // Whole versions; halves of the first write; the last without all, and without the second; the second without the first.
    for state in ["oooo", "11oo", "112o", "1123", "1ooo", "o1oo", "ooo3", "11o3", "oo2o"] {
        assert!(told.contains(state), "{state} of {told:?}");
    }
    // The control: a sector is whole, so what overlaps within one keeps its order.
    let mut play = Play::with_file();
    play.write(FILE, 0, &[b'1'; 10]);
    play.write(FILE, 500, b"2");
    play.call(sync(FILE));
    assert_eq!(bytes_of_states(&play, &[0, 500]), ["oo", "1o", "12"].map(str::to_owned).into());
}

#[test]
fn a_tear_keeps_what_data_needs() {
    let mut play = Play::with_file();
    play.write(FILE, 0, b"1");
    play.call(Call::SetSize { inode: FILE, size: 1, before: BLOCK_BYTES as u64 });
    play.write(FILE, 3584, b"3");
    let units = Units::from_record(&play.record, Promises::Ext4Ordered, Rules::all());
    let mut moments = Moments::new(&play.record, &units).unwrap();
    let moment = moments.advance().unwrap().unwrap();
    let torn = |missing, torn, sectors| StateName { moment, missing, torn: vec![(torn, sectors)] };
    assert!(moments.allows(&torn(vec![0, 2, 3], 2, 0x80)), "the cut is there");
    assert!(!moments.allows(&torn(vec![0, 1, 2, 3], 2, 0x80)), "it is not");
    assert!(!moments.allows(&torn(vec![0, 2, 3], 2, 0x02)), "nothing was written to that sector");
    assert!(!moments.allows(&torn(vec![2, 3], 2, 0x01)), "the first write is there");
    assert!(!moments.allows(&torn(vec![0, 2, 3], 3, 0x80)), "a size is not torn");
    let rules = Rules::but(Some(ProgramMutant::TearsAtWill));
    let units = Units::from_record(&play.record, Promises::Ext4Ordered, rules);
    let mut moments = Moments::new(&play.record, &units).unwrap();
    moments.advance().unwrap();
    assert!(moments.allows(&torn(vec![0, 2, 3], 2, 0x02)), "the control");
}

/// A run with more states than are looked at one by one, and one with few.
fn many(files: u32) -> Play {
    let mut play = Play::new(&[]);
    for nth in 0..files {
        play.call(create(FILE + nth, &format!("f{nth}")));
        play.write(FILE + nth, 0, &[b'n'; 2 * BLOCK_BYTES]);
    }
    play
}

fn candidates(play: &Play, seed: u64, count: usize) -> (Vec<StateName>, usize) {
    let units = Units::from_record(&play.record, Promises::Posix, Rules::all());
    let mut moments = Moments::new(&play.record, &units).unwrap();
    let moment = moments.advance().unwrap().unwrap();
    let random = Runtime::simulated(Simulation { seed, ..Simulation::default() }).handle().random("moment");
    let chosen: Vec<StateName> =
        Candidates::new(&units, moment, moments.pending(), random).take(count).collect();
    assert!(chosen.iter().all(|name| moments.allows(name)), "only what can be is looked at");
    let hashes: BTreeSet<u64> = chosen.iter().map(|name| moments.tree(name).unwrap().hash()).collect();
    (chosen, hashes.len())
}

#[test]
fn all_states_are_looked_at_where_they_are_few() {
    let play = many(1);
    let (chosen, distinct) = candidates(&play, 1, usize::MAX);
    let whole = chosen.iter().filter(|name| name.torn.is_empty()).count();
    // A name, two blocks and a size, in any combination.
    assert_eq!(whole, 16);
    assert!(distinct > play.states(Promises::Posix).len(), "tears are more than that");
}

#[test]
fn a_seed_gives_the_same_states_and_another_one_others() {
    let play = many(12);
    let (chosen, distinct) = candidates(&play, 1, 3000);
    assert_eq!(chosen, candidates(&play, 1, 3000).0);
    assert_ne!(chosen, candidates(&play, 2, 3000).0);
    assert!(distinct > 1000, "{distinct}");
    assert!(chosen[0].missing.is_empty(), "whole comes first");
    for name in &chosen[..20] {
        assert_eq!(name.to_string().parse::<StateName>().as_ref(), Ok(name));
    }
}
