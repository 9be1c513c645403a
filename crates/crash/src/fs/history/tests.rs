//! What the history asks: of pages beside those that became zeros in place of a division of their extent, of those, and
//! of what others did while a call failed.

use std::collections::BTreeMap;
use std::rc::Rc;

use weir_ext4::ROOT_INODE;
use weir_fs::JournalMode;
use weir_storage::BLOCK_BYTES;

use super::{FileId, Guarantees, History, Illegal, InPlace, Page, Reach};
use crate::fs::tree::{Kind, Thing, Tree};
use crate::fs::visible::Visible;

const PAGES: u32 = 6;
/// Became zeros in place of a division.
const ZEROED: u32 = 2;
/// A hole.
const OTHER: u32 = 4;

fn page(fill: u8) -> Page {
    Rc::new([fill; BLOCK_BYTES])
}

/// Gives a name to something new in the root of a tree.
fn enter(tree: &mut Tree, name: &[u8], id: FileId, kind: Kind) {
    tree.things.insert(id, Thing { kind, permissions: 0o644, attribute: None });
    tree.names_mut(tree.root).expect("a root").insert(name.to_vec(), id);
}

/// A filesystem without faults, whose pages reach the disk by calls and commits only.
fn guarantees() -> Guarantees {
    let (mode, tear_bytes) = (JournalMode::Ordered, BLOCK_BYTES);
    Guarantees {
        mode,
        uncovers: false,
        faulty: false,
        tear_bytes,
        corrupts: false,
        watch: None,
        rolls_forward: None,
    }
}

/// A file of holes, one page of which is zeros by now.
fn history() -> (History, FileId) {
    let empty = Visible::of(Tree::new(ROOT_INODE, 0o755), BTreeMap::new());
    let mut history = History::from_visible(guarantees(), &empty, &[]).expect("a tree");
    let file = history.new_file(0);
    history.begin(0, &[file], |tree| enter(tree, b"file", file, Kind::File { size: 0 }));
    history.resize(file, u64::from(PAGES) * BLOCK_BYTES as u64);
    history.end(0);
    history.begin(0, &[], |_| {});
    history.zeros_written(file, ZEROED..ZEROED + 1);
    history.end(0);
    (history, file)
}

/// Writes to a page.
fn write(history: &mut History, file: FileId, at: u32) {
    history.resize(file, u64::from(PAGES) * BLOCK_BYTES as u64);
    history.write(file, at, page(7));
    history.end(0);
}

/// Makes something durable, as a call returns that reaches so far.
fn durable(history: &mut History, file: FileId, reach: Reach) {
    let call = history.call(0, file, reach);
    history.promise(call, true);
}

fn create(history: &mut History) -> FileId {
    let id = history.new_file(0);
    history.begin(0, &[id], |tree| enter(tree, b"later", id, Kind::File { size: 0 }));
    history.end(0);
    id
}

/// The file as a power cut left it, every page of it zeros, with the other one beside or not.
fn found(has_other: bool) -> Visible {
    let mut tree = Tree::new(ROOT_INODE, 0o755);
    let size = u64::from(PAGES) * BLOCK_BYTES as u64;
    enter(&mut tree, b"file", 12, Kind::File { size });
    if has_other {
        enter(&mut tree, b"later", 13, Kind::File { size: 0 });
    }
    Visible::of(tree, BTreeMap::from([(12, vec![0; size as usize])]))
}

/// J2: if the tree of a later operation is found, a page's place holds what was written there.
#[test]
fn data_goes_before_the_commit_that_gives_it_a_place_beside_zeros_too() {
    for (at, is_asked) in [(OTHER, true), (ZEROED, false)] {
        let (mut history, file) = history();
        write(&mut history, file, at);
        let other = create(&mut history);
        durable(&mut history, other, Reach::File);
        let judged = history.judge(&found(true));
        let too_old = matches!(judged, Err(Illegal::PageTooOld { page, .. }) if page == at);
        assert_eq!((too_old, judged.is_ok()), (is_asked, !is_asked), "page {at}: {judged:?}");
    }
}

/// J3: `fdatasync` makes durable what it takes to find the page, and so all that came before it.
#[test]
fn a_data_call_covers_the_place_of_a_page_beside_zeros_too() {
    for (at, is_asked) in [(OTHER, true), (ZEROED, false)] {
        let (mut history, file) = history();
        create(&mut history);
        write(&mut history, file, at);
        let call = history.call(0, file, Reach::Data);
        assert_eq!(call.promises.len(), 1);
        let covers_the_other_file = call.promises[0].tree == history.now() - 1;
        assert_eq!(covers_the_other_file, is_asked, "page {at}: {:?}", call.promises);
    }
}

/// What was freed since has no place any more; what a hole could not free has kept its own.
#[test]
fn a_place_that_was_given_up_is_given_anew() {
    for (stays_zeros, is_asked) in [(false, true), (true, false)] {
        let (mut history, file) = history();
        let before = history.before(file);
        history.resize(file, u64::from(PAGES) * BLOCK_BYTES as u64);
        history.unplace(file, ZEROED);
        if stays_zeros {
            history.zeros_written(file, ZEROED..ZEROED + 1);
        }
        history.freed(file, ZEROED..ZEROED + 1, before);
        history.end(0);
        write(&mut history, file, ZEROED);
        let other = create(&mut history);
        durable(&mut history, other, Reach::File);
        let judged = history.judge(&found(true));
        assert_eq!(judged.is_err(), is_asked, "{judged:?}");
    }
}

/// A write may find that it is its own neighbour: what it overwrites then need not come with the transaction.
#[test]
fn zeros_of_the_operation_itself_are_overwritten() {
    let (mut history, file) = history();
    history.resize(file, u64::from(PAGES) * BLOCK_BYTES as u64);
    history.write(file, OTHER, page(7));
    history.zeros_written(file, OTHER..OTHER + 1);
    history.end(0);
    let other = create(&mut history);
    durable(&mut history, other, Reach::File);
    assert_eq!(history.judge(&found(true)), Ok(()));
}

/// A write that fails for want of space has done its part before it returns: what others did meanwhile need not be
/// there with it, but what they did before it has to be. (The judge once asked for both.)
#[test]
fn what_a_failed_call_left_may_be_older_than_its_end() {
    for (others_first, is_asked) in [(false, false), (true, true)] {
        let (first, second) = (12, 13);
        let mut tree = Tree::new(ROOT_INODE, 0o755);
        enter(&mut tree, b"first", first, Kind::Directory(BTreeMap::new()));
        enter(&mut tree, b"second", second, Kind::Directory(BTreeMap::new()));
        let mut found = tree.clone();
        let mut history =
            History::from_visible(guarantees(), &Visible::of(tree, BTreeMap::new()), &[b"first", b"second"])
                .expect("a tree");
        let file = history.new_file(0);
        history.begin(0, &[file], |tree| enter(tree, b"file", file, Kind::File { size: 0 }));
        history.end(0);
        let by_others = |history: &mut History| {
            let other = history.new_file(1);
            history.begin(1, &[other], |tree| enter(tree, b"other", other, Kind::File { size: 0 }));
            history.end(1);
        };
        if others_first {
            by_others(&mut history);
        }
        let before = history.before(file);
        history.resize(file, 2 * BLOCK_BYTES as u64);
        if !others_first {
            by_others(&mut history);
        }
        history.resize(file, BLOCK_BYTES as u64);
        history.unchanged(file, before);
        history.end(0);
        let thing =
            Thing { kind: Kind::File { size: BLOCK_BYTES as u64 }, permissions: 0o644, attribute: None };
        found.things.insert(14, thing);
        found.names_mut(first).expect("a directory").insert(b"file".to_vec(), 14);
        let judged = history.judge(&Visible::of(found, BTreeMap::from([(14, vec![0; BLOCK_BYTES])])));
        assert_eq!(judged.is_err(), is_asked, "{judged:?}");
    }
}

/// What a page of the file holds when a power cut has left garbage in one of its sectors.
fn with_garbage(at: u32, fill: u8) -> Visible {
    let mut tree = Tree::new(ROOT_INODE, 0o755);
    let size = u64::from(PAGES) * BLOCK_BYTES as u64;
    enter(&mut tree, b"file", 12, Kind::File { size });
    let mut bytes = vec![0; size as usize];
    let page = at as usize * BLOCK_BYTES;
    bytes[page..page + BLOCK_BYTES].fill(fill);
    bytes[page + 512..page + 1024].fill(0xab);
    Visible::of(tree, BTreeMap::from([(12, bytes)]))
}

/// S4: garbage is left only where something was written that is not durable, and only by a storage that says so.
#[test]
fn garbage_is_allowed_in_what_was_being_written_and_nowhere_else() {
    let judged = |corrupts: bool, mode: JournalMode, calls: &[(u8, bool)]| {
        let (mut history, file) = history();
        history.guarantees = Guarantees { corrupts, mode, tear_bytes: 512, ..guarantees() };
        let mut last = 0;
        for &(fill, synced) in calls {
            history.resize(file, u64::from(PAGES) * BLOCK_BYTES as u64);
            history.write(file, ZEROED, page(fill));
            history.end(0);
            if synced {
                durable(&mut history, file, Reach::File);
            }
            last = fill;
        }
        history.judge(&with_garbage(ZEROED, last)).is_ok()
    };
    let ordered = JournalMode::Ordered;
    assert!(judged(true, ordered, &[(7, true), (8, false)]), "it was being written anew");
    assert!(!judged(false, ordered, &[(7, true), (8, false)]), "the storage does not say so");
    assert!(!judged(true, ordered, &[(7, true)]), "it is durable, and nobody wrote there");
    assert!(!judged(true, ordered, &[(7, false), (8, true)]), "it is durable");
    assert!(!judged(true, JournalMode::Data, &[(7, true), (8, false)]), "the log has it");
}

/// Zeros that are durable may be overwritten with zeros in their place, where an extent cannot be divided.
#[test]
fn garbage_is_allowed_in_zeros_that_were_overwritten_with_zeros() {
    for (corrupts, zeroed_again, is_allowed) in
        [(true, true, true), (true, false, false), (false, true, false)]
    {
        let (mut history, file) = history();
        history.guarantees = Guarantees { corrupts, tear_bytes: 512, ..guarantees() };
        durable(&mut history, file, Reach::File);
        if zeroed_again {
            history.resize(file, u64::from(PAGES) * BLOCK_BYTES as u64);
            history.zeros_written(file, ZEROED..ZEROED + 1);
            history.end(0);
        }
        assert_eq!(history.judge(&with_garbage(ZEROED, 0)).is_ok(), is_allowed);
    }
}

/// The last page of a file may have a place from before, and in it, behind the end, what was written there while a larger
/// size was not committed. Zeros take its place before the commit of a larger size, in mode ordered.
#[test]
fn what_is_behind_the_end_shows_when_the_file_grows_in_mode_writeback_alone() {
    const SIZE: usize = 632;
    for (mode, is_allowed) in [(JournalMode::Writeback, true), (JournalMode::Ordered, false)] {
        let tree_with = |size| {
            let mut tree = Tree::new(ROOT_INODE, 0o755);
            enter(&mut tree, b"file", 12, Kind::File { size });
            tree
        };
        let before = Visible::of(tree_with(SIZE as u64), BTreeMap::from([(12, vec![0; SIZE])]));
        let mut history =
            History::from_visible(Guarantees { mode, ..guarantees() }, &before, &[]).expect("a tree");
        history.resize(12, 2 * BLOCK_BYTES as u64);
        history.write(12, 1, page(7));
        history.end(0);
        let mut bytes = vec![0; BLOCK_BYTES];
        bytes[SIZE..].fill(5);
        bytes.extend(page(7).iter());
        let found = Visible::of(tree_with(bytes.len() as u64), BTreeMap::from([(12, bytes)]));
        let judged = history.judge(&found);
        assert_eq!(judged.is_ok(), is_allowed, "{mode:?}: {judged:?}");
        assert!(is_allowed || matches!(judged, Err(Illegal::Foreign { page: 0, .. })), "{judged:?}");
    }
}

/// A call for a directory brings a checkpoint, with all that came before, only if the directory has changed.
#[test]
fn a_call_for_a_directory_without_a_change_promises_nothing_of_files() {
    for changes in [false, true] {
        let rolls_forward = Some(InPlace::Never);
        let empty = Visible::of(Tree::new(ROOT_INODE, 0o755), BTreeMap::new());
        let guarantees = Guarantees { mode: JournalMode::Data, rolls_forward, ..guarantees() };
        let mut history = History::from_visible(guarantees, &empty, &[]).expect("a tree");
        let root = history.tree(0).root;
        let make = |history: &mut History, name: &[u8]| {
            let file = history.new_file(0);
            history.begin(0, &[file, root], |tree| enter(tree, name, file, Kind::File { size: 0 }));
            history.end(0);
            file
        };
        let file = make(&mut history, b"file");
        durable(&mut history, root, Reach::File);
        write(&mut history, file, 0);
        if changes {
            make(&mut history, b"later");
        }
        durable(&mut history, root, Reach::File);
        // What the first call has made durable alone.
        let mut tree = Tree::new(ROOT_INODE, 0o755);
        enter(&mut tree, b"file", 12, Kind::File { size: 0 });
        let judged = history.judge(&Visible::of(tree, BTreeMap::from([(12, Vec::new())])));
        assert_eq!(judged.is_ok(), !changes, "{judged:?}");
    }
}
