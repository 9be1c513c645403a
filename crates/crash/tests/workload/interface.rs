//! The interface in Rust: what is played, promised, cut and judged by hand.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use weir_crash::{FoundKind, JudgedBy, PlayError, Setup, SetupError, Workload};
use weir_ext4::ROOT_INODE;
use weir_format::FileType;
use weir_vfs::NewNode;

use super::bench;

#[test]
fn what_is_left_can_be_looked_at() {
    let looked = bench("legacy", "jbd2").play(async |session| {
        for line in
            ["mkdir /A", "create /A/foo", "append /A/foo 5", "link /A/foo /bar", "symlink x /s", "sync"]
        {
            session.perform(&line.parse().unwrap()).await.unwrap();
        }
        let cuts = session.cut_now();
        let found = cuts[0].recover().unwrap();
        let paths: Vec<_> = found.paths();
        let expected = [
            ("/A", FoundKind::Directory),
            ("/A/foo", FoundKind::File(5)),
            ("/bar", FoundKind::File(5)),
            ("/s", FoundKind::Symlink(b"x".to_vec())),
        ];
        assert_eq!(paths, expected.map(|(path, kind)| (path.to_owned(), kind)));
        assert!(found.are_links("/bar", "/A/foo") && !found.are_links("/bar", "/s"));
        assert_eq!(found.bytes("/bar").map(<[u8]>::len), Some(5));
        assert!(!found.is_there("/A/bar") && found.bytes("/A").is_none());
        assert!(cuts.iter().all(|cut| cut.judge().is_ok()));
        let images = cuts[0].images().unwrap();
        assert_eq!((images.crashed.len(), images.recovered.len()), (8 << 20, 8 << 20));
    });
    looked.unwrap();
}

/// The first file is there if the second one is, as a program promised that called the filesystem by itself.
#[test]
fn promises_of_ones_own_are_judged() {
    let judged = |ground: &str, engine: &str| -> BTreeSet<Option<JudgedBy>> {
        let verdicts = Rc::new(RefCell::new(BTreeSet::new()));
        let seen = Rc::clone(&verdicts);
        let played = bench(ground, engine).play(async |session| {
            let fs = session.filesystem();
            session.promise("b comes after a", |found| found.is_there("/a") || !found.is_there("/b"));
            session.at_every_cut(move |cut| {
                seen.borrow_mut().insert(cut.judge().err().map(|wrong| wrong.by));
            });
            let new = NewNode::new(FileType::Regular, 0o644);
            for name in [&b"a"[..], b"b"] {
                let file = fs.create(ROOT_INODE, name, &new).await.unwrap();
                fs.fbarrier(file).await.unwrap();
            }
            session.promise("both are there", |found| found.is_there("/a") && found.is_there("/b"));
            session.sleep(Duration::from_secs(6)).await;
        });
        played.unwrap();
        verdicts.take()
    };
    // An order is no promise that anything is durable.
    assert_eq!(judged("volume", "dual"), BTreeSet::from([None, Some(JudgedBy::Promise)]));
    assert_eq!(judged("legacy", "jbd2"), BTreeSet::from([None]), "the legacy path waits, and flushes");
}

#[test]
fn a_cut_is_judged_before_the_play_goes_on() {
    let late = bench("volume", "dual").play(async |session| {
        session.perform(&"create /a".parse().unwrap()).await.unwrap();
        let cut = session.cut_now().remove(0);
        assert_eq!(cut.judge(), Ok(()));
        session.perform(&"sync".parse().unwrap()).await.unwrap();
        cut.judge()
    });
    assert!(late.unwrap().unwrap_err().what.contains("before the play continues"));
}

#[test]
fn what_cannot_be_played_says_why() {
    let why = |text: &str| match bench("volume", "dual").sweep(&text.parse().unwrap()).unwrap_err() {
        PlayError::Impossible { why, .. } => why.to_string(),
        error => panic!("{error}"),
    };
    let cases = [
        ("create /a\ncreate /a", "/a already exists"),
        ("create /A/a", "/A does not exist"),
        ("create /a\ncreate /a/b", "/a is not a directory"),
        ("mkdir /A\nwrite /A 0 1", "/A is not a file"),
        ("mkdir /A\nunlink /A", "/A is a directory"),
        ("mkdir /A\ncreate /A/a\nrmdir /A", "/A is not empty"),
        ("mkdir /A\nmkdir /A/B\nrename /A /A/B/C", "/A cannot replace /A/B/C"),
        ("create /a\nremovexattr /a", "/a has no attribute"),
        ("symlink x /a\nfsync /a", "/a is not a file"),
        ("create /a\ntruncate /a 4M\nappend /a 1", "/a would have more than 4 MiB"),
    ];
    for (text, expected) in cases {
        assert_eq!(why(text), expected, "{text}");
    }
    // The root is refused when the text is read.
    for text in ["rmdir /", "unlink /"] {
        assert!(text.parse::<Workload>().is_err(), "{text}");
    }
}

#[test]
fn names_that_are_not_known_are_told_with_those_that_are() {
    assert_eq!(Setup::named("disk", "dual").unwrap_err(), SetupError::Ground("disk".to_owned()));
    let error = Setup::named("volume", "ext4").unwrap_err().to_string();
    assert!(error.contains("no engine is called \"ext4\": there are dual, dual-list, jbd2,"), "{error}");
}

/// Cuts by hand are no events that change what is played.
#[test]
fn a_cut_changes_nothing() {
    let bench = bench("adversary", "dual");
    let count = |cuts: bool| {
        let events = Rc::new(Cell::new(0));
        let seen = Rc::clone(&events);
        let played = bench.play(async |session| {
            session.at_every_cut(move |cut| seen.set(seen.get() ^ cut.hash()));
            for line in ["create /a", "write /a 0 20K", "fsync /a"] {
                if cuts {
                    drop(session.cut_now());
                }
                session.perform(&line.parse().unwrap()).await.unwrap();
            }
            session.filesystem().statistics().journal.commits
        });
        played.unwrap()
    };
    assert_eq!(count(false), count(true));
}
