//! Access control lists: in the form of ext4, in step with the mode, and handed down. libext2fs, which converts them
//! itself, and e2fsck judge what is stored.

use weir_format::{FileType, acl::ACCESS, acl::Acl, acl::AclEntry, acl::AclSubject, acl::DEFAULT};
use weir_vfs::{AclKind, AttributeChanges, Caller, Expect, FsError, InodeNumber, NewNode};

use crate::support::{BLOCKS, debugfs, load, new_image, on_image, run, store};
use weir_ext4::ROOT_INODE;
use weir_fs::BarrierFs;

fn acl(list: &[(AclSubject, u8)]) -> Acl {
    Acl::new(list.iter().map(|&(who, permissions)| AclEntry { who, permissions }).collect()).expect("a list")
}

/// Owner, user 1000, group, mask and others.
fn five([owner, user, group, mask, other]: [u8; 5]) -> Acl {
    acl(&[
        (AclSubject::Owner, owner),
        (AclSubject::User(1000), user),
        (AclSubject::OwningGroup, group),
        (AclSubject::Mask, mask),
        (AclSubject::Other, other),
    ])
}

/// One with so many users that it fits into no inode.
fn large() -> Acl {
    let users = (1000..1100).map(|id| (AclSubject::User(id), 5));
    let rest = [(AclSubject::OwningGroup, 5), (AclSubject::Mask, 7), (AclSubject::Other, 0)];
    acl(&[(AclSubject::Owner, 7)].into_iter().chain(users).chain(rest).collect::<Vec<_>>())
}

async fn make(fs: &BarrierFs, name: &[u8], kind: FileType, permissions: u16) -> InodeNumber {
    fs.create(ROOT_INODE, name, &NewNode::new(kind, permissions)).await.expect("made")
}

async fn permissions(fs: &BarrierFs, inode: InodeNumber) -> u16 {
    fs.attributes(inode).await.expect("there").permissions
}

async fn set(fs: &BarrierFs, inode: InodeNumber, kind: AclKind, acl: &Acl) {
    fs.set_acl(inode, kind, Some(acl), false).await.expect("set");
}

async fn chmod(fs: &BarrierFs, inode: InodeNumber, permissions: u16) {
    let changes = AttributeChanges { permissions: Some(permissions), ..AttributeChanges::default() };
    fs.set_attributes(inode, &changes).await.expect("changed");
}

#[test]
fn a_list_and_the_mode_say_the_same() {
    on_image(&new_image(BLOCKS), async |fs| {
        let file = make(fs, b"file", FileType::Regular, 0o2600).await;
        assert_eq!(fs.acl(file, AclKind::Access).await, Ok(None));
        set(fs, file, AclKind::Access, &five([7, 6, 5, 4, 1])).await;
        assert_eq!(permissions(fs, file).await, 0o2741, "owner, mask and others");
        chmod(fs, file, 0o2650).await;
        let changed = five([6, 6, 5, 5, 0]);
        assert_eq!(fs.acl(file, AclKind::Access).await, Ok(Some(changed.clone())));
        // A caller without the right to set-group-ID takes it away.
        fs.set_acl(file, AclKind::Access, Some(&changed), true).await.expect("set");
        assert_eq!(permissions(fs, file).await, 0o650);
        // As an attribute it is of the form of the kernel's interface, and listed.
        assert_eq!(fs.extended_attribute(file, ACCESS).await, Ok(changed.to_interface()));
        assert_eq!(fs.extended_attributes(file).await, Ok(vec![ACCESS.to_vec()]));
        // One that says no more than a mode is the mode.
        let plain = acl(&[(AclSubject::Owner, 6), (AclSubject::OwningGroup, 4), (AclSubject::Other, 4)]);
        fs.set_extended_attribute(file, ACCESS, &plain.to_interface(), Expect::Present).await.expect("set");
        assert_eq!(permissions(fs, file).await, 0o644);
        assert_eq!(fs.acl(file, AclKind::Access).await, Ok(None));
        assert_eq!(fs.remove_extended_attribute(file, ACCESS).await, Err(FsError::NoAttribute));
        // Removing one leaves the mode as it is.
        set(fs, file, AclKind::Access, &five([6, 6, 4, 6, 0])).await;
        fs.remove_extended_attribute(file, ACCESS).await.expect("removed");
        assert_eq!(permissions(fs, file).await, 0o660);
    });
}

#[test]
fn a_list_in_a_block_changes_with_the_mode_too() {
    on_image(&new_image(BLOCKS), async |fs| {
        let file = make(fs, b"file", FileType::Regular, 0o600).await;
        set(fs, file, AclKind::Access, &large()).await;
        assert_eq!(fs.attributes(file).await.expect("there").sectors, 8);
        chmod(fs, file, 0o710).await;
        let mut expected = large();
        expected.set_mode_bits(0o710);
        assert_eq!(fs.acl(file, AclKind::Access).await, Ok(Some(expected)));
        fs.unlink(ROOT_INODE, b"file").await.expect("removed");
    });
}

#[test]
fn what_is_no_list_is_refused_and_nothing_has_changed() {
    on_image(&new_image(BLOCKS), async |fs| {
        let file = make(fs, b"file", FileType::Regular, 0o640).await;
        let good = five([7, 7, 7, 7, 7]).to_interface();
        let cut = &good[..good.len() - 1];
        let stored = five([7, 7, 7, 7, 7]).to_stored();
        for value in [&b""[..], b"x", &good[..4], &good[..12], cut, &stored] {
            let set = fs.set_extended_attribute(file, ACCESS, value, Expect::Anything).await;
            assert!(matches!(set, Err(FsError::Invalid(_))), "{value:?}: {set:?}");
        }
        let default = fs.set_extended_attribute(file, DEFAULT, &good, Expect::Anything).await;
        assert!(matches!(default, Err(FsError::Invalid(_))), "{default:?}");
        assert_eq!(fs.remove_extended_attribute(file, DEFAULT).await, Err(FsError::NoAttribute));
        let link = fs.symlink(ROOT_INODE, b"link", b"x", (0, 0)).await.expect("made");
        let of_link = fs.set_extended_attribute(link, ACCESS, &good, Expect::Anything).await;
        assert!(matches!(of_link, Err(FsError::Unsupported(_))), "{of_link:?}");
        let many = (1000..1600).map(|id| (AclSubject::User(id), 7));
        let rest = [(AclSubject::OwningGroup, 5), (AclSubject::Mask, 7), (AclSubject::Other, 0)];
        let huge = acl(&[(AclSubject::Owner, 0)].into_iter().chain(many).chain(rest).collect::<Vec<_>>());
        assert_eq!(fs.set_acl(file, AclKind::Access, Some(&huge), false).await, Err(FsError::NoSpace));
        assert_eq!(permissions(fs, file).await, 0o640);
        assert_eq!(fs.extended_attributes(file).await, Ok(Vec::new()));
    });
}

#[test]
fn what_is_made_in_a_directory_begins_with_its_default_list() {
    on_image(&new_image(BLOCKS), async |fs| {
        let directory = make(fs, b"directory", FileType::Directory, 0o2755).await;
        let new = |kind, permissions| NewNode { umask: 0o077, ..NewNode::new(kind, permissions) };
        let made = fs.create(directory, b"before", &new(FileType::Regular, 0o4666)).await.expect("made");
        assert_eq!(permissions(fs, made).await, 0o4600, "the umask counts");
        for (round, default) in [five([7, 6, 5, 6, 4]), large()].into_iter().enumerate() {
            set(fs, directory, AclKind::Default, &default).await;
            assert_eq!(permissions(fs, directory).await, 0o2755, "that of what is made in it");
            let name = |what: &str| format!("{what} {round}").into_bytes();
            for (what, kind) in [("file", FileType::Regular), ("pipe", FileType::Fifo)] {
                let made = fs.create(directory, &name(what), &new(kind, 0o644)).await.expect("made");
                let expected = default.inherited(0o644);
                assert_eq!(fs.acl(made, AclKind::Access).await, Ok(Some(expected.clone())));
                assert_eq!(permissions(fs, made).await, expected.mode_bits(), "the umask does not count");
                assert_eq!(fs.acl(made, AclKind::Default).await, Ok(None));
            }
            let below = new(FileType::Directory, 0o755);
            let below = fs.mkdir(directory, &name("below"), &below).await.expect("made");
            let expected = default.inherited(0o755);
            assert_eq!(permissions(fs, below).await, 0o2000 | expected.mode_bits());
            assert_eq!(fs.acl(below, AclKind::Access).await, Ok(Some(expected)));
            assert_eq!(fs.acl(below, AclKind::Default).await, Ok(Some(default)));
            let link = fs.symlink(directory, &name("link"), b"x", (0, 0)).await.expect("made");
            assert_eq!(
                (permissions(fs, link).await, fs.extended_attributes(link).await),
                (0o777, Ok(vec![]))
            );
        }
        // One that is no more than a mode makes modes, whatever the umask says.
        let plain = acl(&[(AclSubject::Owner, 7), (AclSubject::OwningGroup, 7), (AclSubject::Other, 1)]);
        set(fs, directory, AclKind::Default, &plain).await;
        let made = fs.create(directory, b"plain", &new(FileType::Regular, 0o666)).await.expect("made");
        assert_eq!(permissions(fs, made).await, 0o660);
        assert_eq!(fs.extended_attributes(made).await, Ok(vec![]));
    });
}

#[test]
fn what_finds_no_space_for_its_lists_is_not_made() {
    on_image(&new_image(BLOCKS), async |fs| {
        let plain = fs.for_caller(Caller { uid: 1000, gid: 1000 });
        let directory = make(fs, b"directory", FileType::Directory, 0o755).await;
        set(fs, directory, AclKind::Default, &large()).await;
        let filler = make(fs, b"filler", FileType::Regular, 0o644).await;
        let bytes = vec![1; 1 << 20];
        let mut offset = 0;
        while let Ok(written) = plain.write(filler, offset, &bytes).await {
            offset += written as u64;
        }
        let before = fs.statfs().await;
        for kind in [FileType::Regular, FileType::Directory] {
            let made = plain.create(directory, b"new", &NewNode::new(kind, 0o644)).await;
            assert_eq!(made, Err(FsError::NoSpace));
            assert_eq!(fs.lookup(directory, b"new").await, Err(FsError::NotFound));
        }
        assert_eq!(fs.statfs().await.free_inodes, before.free_inodes);
    });
}

/// libext2fs has lists in the form of the interface, too, and converts them by itself.
#[test]
fn lists_are_stored_as_others_store_them() {
    let list = five([7, 6, 5, 4, 1]);
    let left = on_image(&new_image(BLOCKS), async |fs| {
        let file = make(fs, b"ours", FileType::Regular, 0o600).await;
        set(fs, file, AclKind::Access, &list).await;
        make(fs, b"theirs", FileType::Regular, 0o741).await;
        let large = large();
        let file = make(fs, b"large", FileType::Regular, 0o600).await;
        set(fs, file, AclKind::Access, &large).await;
    });
    let file = store(&left);
    let directory = tempfile::tempdir().expect("a directory");
    for (name, expected) in [("ours", list.clone()), ("large", large())] {
        let out = directory.path().join(name);
        let command = format!("ea_get -f {} {name} system.posix_acl_access", out.display());
        if debugfs(file.path(), &command).is_none() {
            return;
        }
        // It has another number where there is none.
        assert_eq!(Acl::of_interface(&std::fs::read(&out).expect("a value")), Ok(expected), "{name}");
    }
    let value = directory.path().join("value");
    std::fs::write(&value, list.to_interface()).expect("written");
    let command = format!("ea_set -f {} theirs system.posix_acl_access", value.display());
    debugfs(file.path(), &command).expect("it is there");
    assert!(
        run("e2fsck", &["-fn", file.path().to_str().expect("plain")]).is_some_and(|out| out.status.success())
    );
    on_image(&load(file.path()), async |fs| {
        let theirs = fs.resolve(b"theirs").await.expect("there");
        assert_eq!(fs.acl(theirs, AclKind::Access).await, Ok(Some(list.clone())));
        chmod(fs, theirs, 0o700).await;
        assert_eq!(fs.acl(theirs, AclKind::Access).await, Ok(Some(list.inherited(0o700))));
    });
}

#[test]
fn a_damaged_list_is_told_and_can_be_taken_away() {
    let left = on_image(&new_image(BLOCKS), async |fs| {
        make(fs, b"directory", FileType::Directory, 0o755).await;
    });
    let (file, value) = (store(&left), tempfile::NamedTempFile::new().expect("a file"));
    std::fs::write(value.path(), [9; 12]).expect("written");
    let command = format!("ea_set -r -f {} directory system.posix_acl_default", value.path().display());
    if debugfs(file.path(), &command).is_none() {
        return;
    }
    on_image(&load(file.path()), async |fs| {
        let directory = fs.resolve(b"directory").await.expect("there");
        let damaged = |error| matches!(error, Some(FsError::Format(_)));
        assert!(damaged(fs.acl(directory, AclKind::Default).await.err()));
        let new = NewNode::new(FileType::Regular, 0o644);
        assert!(damaged(fs.create(directory, b"new", &new).await.err()), "it may be to keep others out");
        assert_eq!(fs.lookup(directory, b"new").await, Err(FsError::NotFound));
        fs.remove_extended_attribute(directory, DEFAULT).await.expect("removed");
        fs.create(directory, b"new", &new).await.expect("made");
    });
}
