//! Names: every error that a call on them can give, and what they are good for at their limits.

use std::collections::BTreeSet;

use weir_format::{Cookie, FileTime, FileType};
use weir_vfs::{AttributeChanges, Device, Expect, FsError, NewNode, ReadOnlyReason, RenameFlags};

use crate::support::{BLOCKS, disk, judge, mount, new_image, on_image, simulated};
use weir_ext4::ROOT_INODE;
use weir_fs::{BarrierFs, FsMutant, MountOptions};
use weir_storage::{Image, Lba, Rules};

const FILE: NewNode = node(FileType::Regular, 0o644);
const DIRECTORY: NewNode = node(FileType::Directory, 0o755);
const REPLACE: RenameFlags = RenameFlags { no_replace: false, exchange: false, whiteout: false };
const KEEP: RenameFlags = RenameFlags { no_replace: true, exchange: false, whiteout: false };
const EXCHANGE: RenameFlags = RenameFlags { no_replace: false, exchange: true, whiteout: false };

const fn node(kind: FileType, permissions: u16) -> NewNode {
    NewNode { kind, permissions, umask: 0, uid: 0, gid: 0, device: Device { major: 0, minor: 0 } }
}

/// Runs `script` on a new filesystem, and has e2fsck judge what it leaves.
fn on_new(script: impl AsyncFnOnce(&BarrierFs)) -> Image {
    on_image(&new_image(BLOCKS), script)
}

/// All names of a directory, "." and ".." left out.
async fn names(fs: &BarrierFs, directory: u32) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    let mut cookie = Cookie::DOT_DOT;
    loop {
        let entries = fs.read_directory(directory, cookie).await.expect("readable");
        let Some(last) = entries.last() else { return names };
        cookie = last.cookie;
        names.extend(entries.into_iter().map(|entry| entry.name));
    }
}

fn invalid<T>(result: Result<T, FsError>) -> bool {
    matches!(result, Err(FsError::Invalid(_)))
}

#[test]
fn what_cannot_be_looked_up_or_made_says_why() {
    on_new(async |fs| {
        let file = fs.create(ROOT_INODE, b"file", &FILE).await.expect("made");
        assert_eq!(fs.lookup(ROOT_INODE, b"none").await, Err(FsError::NotFound));
        assert_eq!(fs.lookup(file, b"name").await, Err(FsError::NotDirectory));
        assert_eq!(fs.lookup(ROOT_INODE, b"").await, Err(FsError::NameLength));
        assert_eq!(fs.lookup(ROOT_INODE, &[b'x'; 256]).await, Err(FsError::NameLength));
        assert_eq!(fs.lookup(ROOT_INODE, b".").await, Ok(ROOT_INODE));
        assert_eq!(fs.lookup(ROOT_INODE, b"..").await, Ok(ROOT_INODE));
        assert_eq!(fs.create(ROOT_INODE, b"file", &FILE).await, Err(FsError::Exists));
        assert_eq!(fs.create(file, b"name", &FILE).await, Err(FsError::NotDirectory));
        assert_eq!(fs.create(ROOT_INODE, &[b'x'; 256], &FILE).await, Err(FsError::NameLength));
        for name in [b"a/b".as_slice(), b"a\0b", b".", b".."] {
            assert!(invalid(fs.create(ROOT_INODE, name, &FILE).await), "{name:?}");
        }
        assert!(invalid(fs.create(ROOT_INODE, b"l", &node(FileType::Symlink, 0o777)).await));
        let device =
            NewNode { device: Device { major: 4096, minor: 0 }, ..node(FileType::BlockDevice, 0o600) };
        assert!(invalid(fs.create(ROOT_INODE, b"d", &device).await));
        for target in [&[][..], &[b'x'; 4096], b"a\0b"] {
            assert!(invalid(fs.symlink(ROOT_INODE, b"l", target, (0, 0)).await));
        }
        assert!(invalid(fs.read_link(file).await));
        assert_eq!(names(fs, ROOT_INODE).await.len(), 2, "the file and lost+found");
    });
}

#[test]
fn what_cannot_be_removed_or_linked_says_why() {
    on_new(async |fs| {
        let file = fs.create(ROOT_INODE, b"file", &FILE).await.expect("made");
        let directory = fs.mkdir(ROOT_INODE, b"directory", &DIRECTORY).await.expect("made");
        fs.create(directory, b"inside", &FILE).await.expect("made");
        assert_eq!(fs.unlink(ROOT_INODE, b"none").await, Err(FsError::NotFound));
        assert_eq!(fs.unlink(ROOT_INODE, b"directory").await, Err(FsError::IsDirectory));
        assert_eq!(fs.unlink(file, b"name").await, Err(FsError::NotDirectory));
        assert_eq!(fs.rmdir(ROOT_INODE, b"file").await, Err(FsError::NotDirectory));
        assert_eq!(fs.rmdir(ROOT_INODE, b"directory").await, Err(FsError::NotEmpty));
        assert_eq!(fs.rmdir(ROOT_INODE, b"none").await, Err(FsError::NotFound));
        assert!(invalid(fs.rmdir(directory, b"..").await) && invalid(fs.rmdir(directory, b".").await));
        let linked = fs.link(directory, ROOT_INODE, b"second").await;
        assert!(matches!(linked, Err(FsError::NotPermitted(_))), "{linked:?}");
        assert_eq!(fs.link(file, ROOT_INODE, b"directory").await, Err(FsError::Exists));
        assert_eq!(fs.link(file, file, b"name").await, Err(FsError::NotDirectory));
        assert!(invalid(fs.release(file).await), "it is not open");
        // A directory that is gone takes no names, open or not.
        fs.open(directory).await.expect("opened");
        fs.unlink(directory, b"inside").await.expect("removed");
        fs.rmdir(ROOT_INODE, b"directory").await.expect("removed");
        assert_eq!(fs.create(directory, b"late", &FILE).await, Err(FsError::NotFound));
        assert_eq!(fs.lookup(directory, b".").await, Err(FsError::NotFound));
        assert_eq!(fs.read_directory(directory, Cookie::START).await, Ok(Vec::new()));
        fs.release(directory).await.expect("released");
        assert_eq!(fs.attributes(directory).await.map(|found| found.kind), Err(FsError::NotFound));
    });
}

#[test]
fn a_rename_that_cannot_be_says_why() {
    on_new(async |fs| {
        let file = fs.create(ROOT_INODE, b"file", &FILE).await.expect("made");
        let above = fs.mkdir(ROOT_INODE, b"above", &DIRECTORY).await.expect("made");
        let below = fs.mkdir(above, b"below", &DIRECTORY).await.expect("made");
        fs.mkdir(ROOT_INODE, b"empty", &DIRECTORY).await.expect("made");
        let root = ROOT_INODE;
        let rename = async |from: (u32, &[u8]), to: (u32, &[u8]), flags| fs.rename(from, to, flags).await;
        assert_eq!(rename((root, b"none"), (root, b"x"), REPLACE).await, Err(FsError::NotFound));
        assert_eq!(rename((root, b"file"), (root, b"x"), EXCHANGE).await, Err(FsError::NotFound));
        assert_eq!(rename((root, b"file"), (root, b"above"), KEEP).await, Err(FsError::Exists));
        assert_eq!(rename((root, b"file"), (root, b"file"), KEEP).await, Err(FsError::Exists));
        assert_eq!(rename((root, b"file"), (root, b"above"), REPLACE).await, Err(FsError::IsDirectory));
        assert_eq!(rename((root, b"above"), (root, b"file"), REPLACE).await, Err(FsError::NotDirectory));
        assert_eq!(rename((root, b"empty"), (root, b"above"), REPLACE).await, Err(FsError::NotEmpty));
        assert_eq!(rename((above, b"below"), (root, b"above"), REPLACE).await, Err(FsError::NotEmpty));
        assert_eq!(rename((root, b"file"), (file, b"x"), REPLACE).await, Err(FsError::NotDirectory));
        assert_eq!(rename((root, b"file"), (root, &[b'x'; 256]), REPLACE).await, Err(FsError::NameLength));
        assert!(invalid(rename((root, b"above"), (above, b"x"), REPLACE).await), "into itself");
        assert!(invalid(rename((root, b"above"), (below, b"x"), REPLACE).await), "below itself");
        assert!(invalid(rename((root, b"above"), (above, b"below"), EXCHANGE).await), "with what is below");
        assert!(invalid(rename((above, b"below"), (root, b"above"), EXCHANGE).await), "with what is above");
        assert!(invalid(rename((root, b"."), (root, b"x"), REPLACE).await));
        let both = RenameFlags { no_replace: true, exchange: true, whiteout: false };
        assert!(invalid(rename((root, b"file"), (root, b"x"), both).await));
        let both = RenameFlags { whiteout: true, ..EXCHANGE };
        assert!(invalid(rename((root, b"file"), (root, b"above"), both).await));
        fs.link(file, root, b"other").await.expect("linked");
        assert_eq!(rename((root, b"file"), (root, b"other"), REPLACE).await, Ok(()), "one inode: nothing");
        assert_eq!(fs.attributes(file).await.expect("there").links, 2);
    });
}

#[test]
fn a_directory_that_moves_knows_its_parent() {
    on_new(async |fs| {
        let one = fs.mkdir(ROOT_INODE, b"one", &DIRECTORY).await.expect("made");
        let two = fs.mkdir(ROOT_INODE, b"two", &DIRECTORY).await.expect("made");
        let moved = fs.mkdir(one, b"moved", &DIRECTORY).await.expect("made");
        let file = fs.create(two, b"file", &FILE).await.expect("made");
        let links = async |inode| fs.attributes(inode).await.expect("there").links;
        fs.rename((one, b"moved"), (two, b"there"), REPLACE).await.expect("moved");
        assert_eq!(fs.lookup(moved, b"..").await, Ok(two));
        assert_eq!((links(one).await, links(two).await), (2, 3));
        fs.rename((two, b"file"), (two, b"there"), EXCHANGE).await.expect("exchanged");
        assert_eq!(fs.lookup(two, b"there").await, Ok(file));
        assert_eq!(fs.lookup(two, b"file").await, Ok(moved));
        fs.create(one, b"plain", &FILE).await.expect("made");
        fs.rename((two, b"file"), (one, b"plain"), EXCHANGE).await.expect("exchanged");
        assert_eq!(fs.lookup(moved, b"..").await, Ok(one));
        assert_eq!((links(one).await, links(two).await), (3, 2));
        // Over an empty directory: the count of its parent stays.
        fs.mkdir(two, b"empty", &DIRECTORY).await.expect("made");
        fs.rename((one, b"plain"), (two, b"empty"), REPLACE).await.expect("moved");
        assert_eq!((links(one).await, links(two).await), (2, 3));
        assert_eq!(fs.lookup(two, b"empty").await, Ok(moved));
        assert_eq!(links(ROOT_INODE).await, 5);
    });
}

/// A whiteout is what an overlay takes for a deleted name: a character device 0/0 with all permissions off.
#[test]
fn a_rename_leaves_a_whiteout_where_that_is_wanted() {
    let whiteout = RenameFlags { whiteout: true, ..REPLACE };
    on_new(async |fs| {
        let free = fs.statfs().await.free_inodes;
        let one = fs.mkdir(ROOT_INODE, b"one", &NewNode { gid: 50, ..DIRECTORY }).await.expect("made");
        let two = fs.mkdir(ROOT_INODE, b"two", &DIRECTORY).await.expect("made");
        let moved = fs.mkdir(one, b"moved", &DIRECTORY).await.expect("made");
        let file = fs.create(one, b"file", &FILE).await.expect("made");
        fs.create(two, b"replaced", &FILE).await.expect("made");
        let caller = weir_vfs::Caller { uid: 5, gid: 6 };
        fs.for_caller(caller).rename((one, b"moved"), (two, b"there"), whiteout).await.expect("moved");
        fs.rename((one, b"file"), (two, b"replaced"), whiteout).await.expect("moved");
        fs.rename((two, b"replaced"), (two, b"again"), whiteout).await.expect("moved");
        assert_eq!((fs.lookup(two, b"there").await, fs.lookup(two, b"again").await), (Ok(moved), Ok(file)));
        let links = async |inode| fs.attributes(inode).await.expect("there").links;
        assert_eq!((links(one).await, links(two).await), (2, 3));
        for (directory, name, owner) in
            [(one, &b"moved"[..], (5, 6)), (one, b"file", (0, 0)), (two, b"replaced", (0, 0))]
        {
            let found = fs.attributes(fs.lookup(directory, name).await.expect("left")).await.expect("left");
            assert_eq!((found.kind, found.device), (FileType::CharacterDevice, Device::default()));
            assert_eq!((found.permissions, found.links, (found.uid, found.gid)), (0, 1, owner));
        }
        // Three whiteouts, two directories, one directory in them and one file: the one that gave way is gone.
        assert_eq!(fs.statfs().await.free_inodes, free - 7);
        fs.unlink(one, b"moved").await.expect("removed");
        fs.rmdir(ROOT_INODE, b"one").await.expect_err("a whiteout is a name");
    });
}

/// It is there with the rename or not at all.
#[test]
fn a_whiteout_that_finds_no_room_leaves_all_as_it_was() {
    on_new(async |fs| {
        let file = fs.create(ROOT_INODE, b"file", &FILE).await.expect("made");
        let mut nth = 0_u32;
        let full = loop {
            match fs.create(ROOT_INODE, format!("{nth}").as_bytes(), &FILE).await {
                Ok(_) => nth += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(full, FsError::NoSpace);
        let whiteout = RenameFlags { whiteout: true, ..REPLACE };
        let moved = fs.rename((ROOT_INODE, b"file"), (ROOT_INODE, b"moved"), whiteout).await;
        assert_eq!(moved, Err(FsError::NoSpace));
        assert_eq!(fs.lookup(ROOT_INODE, b"file").await, Ok(file));
        assert_eq!(fs.lookup(ROOT_INODE, b"moved").await, Err(FsError::NotFound));
        fs.unlink(ROOT_INODE, b"0").await.expect("removed");
        fs.rename((ROOT_INODE, b"file"), (ROOT_INODE, b"moved"), whiteout).await.expect("an inode is free");
    });
}

#[test]
fn a_file_without_a_name_gets_its_first_or_goes() {
    on_new(async |fs| {
        let free = fs.statfs().await;
        let shared = NewNode { gid: 50, ..node(FileType::Directory, 0o2775) };
        let directory = fs.mkdir(ROOT_INODE, b"directory", &shared).await.expect("made");
        let made = fs.create_unnamed(directory, &FILE).await.expect("made");
        let found = fs.attributes(made).await.expect("open");
        assert_eq!((found.links, found.gid, found.kind), (0, 50, FileType::Regular));
        assert_eq!(fs.write(made, 0, &[7; 100_000]).await, Ok(100_000));
        fs.fsync(made).await.expect("durable");
        assert_eq!(names(fs, directory).await.len(), 0);
        let other = fs.create_unnamed(directory, &FILE).await.expect("made");
        // In the middle of the list of orphans.
        let last = fs.create_unnamed(directory, &FILE).await.expect("made");
        fs.link(other, directory, b"named").await.expect("linked");
        fs.release(other).await.expect("released");
        assert_eq!(fs.attributes(other).await.expect("named").links, 1);
        assert_eq!(fs.lookup(directory, b"named").await, Ok(other));
        for inode in [made, last] {
            fs.release(inode).await.expect("released");
            assert_eq!(fs.attributes(inode).await.map(drop), Err(FsError::NotFound));
            assert_eq!(fs.link(inode, directory, b"late").await, Err(FsError::NotFound));
        }
        // With one name it is a file as any other: once that is lost there is no other.
        fs.open(other).await.expect("opened");
        fs.unlink(directory, b"named").await.expect("removed");
        assert_eq!(fs.link(other, directory, b"again").await, Err(FsError::NotFound));
        fs.release(other).await.expect("released");
        assert!(invalid(fs.create_unnamed(directory, &DIRECTORY).await));
        fs.open(directory).await.expect("opened");
        fs.rmdir(ROOT_INODE, b"directory").await.expect("removed");
        assert_eq!(fs.create_unnamed(directory, &FILE).await, Err(FsError::NotFound));
        fs.release(directory).await.expect("released");
        assert_eq!(fs.statfs().await, free, "all of it is free again");
    });
}

/// A truncation of many transactions leaves a file without a name on the list of orphans.
#[test]
fn what_is_cut_without_a_name_is_deleted_after_a_crash() {
    assert!(is_gone_after_a_crash(true, None));
    assert!(!is_gone_after_a_crash(true, Some(FsMutant::CutIsNoOrphan)), "the mutant was not noticed");
}

#[test]
fn what_was_made_without_a_name_is_deleted_after_a_crash() {
    assert!(is_gone_after_a_crash(false, None));
    assert!(!is_gone_after_a_crash(false, Some(FsMutant::UnnamedIsNoOrphan)), "the mutant was not noticed");
}

/// Whether a file that was made without a name, and maybe cut, is gone after a crash.
fn is_gone_after_a_crash(cut: bool, mutant: Option<FsMutant>) -> bool {
    let left = simulated(async |clock| {
        let disk = disk(&clock, &new_image(BLOCKS), true);
        let fs = mount(&clock, &disk, MountOptions { rules: Rules::but(mutant), ..MountOptions::default() })
            .await
            .expect("mounted");
        let file = fs.create_unnamed(ROOT_INODE, &FILE).await.expect("made");
        let beside = fs.create(ROOT_INODE, b"beside", &FILE).await.expect("made");
        for nth in 0..4000 {
            fs.write(file, nth * 8192, &[7; 4096]).await.expect("written");
            fs.write(beside, nth * 4096, &[7; 4096]).await.expect("written");
        }
        if cut {
            fs.truncate(file, 0).await.expect("cut");
        }
        fs.fsync(file).await.expect("durable");
        drop(fs);
        let fs = mount(&clock, &disk, MountOptions::default()).await.expect("mounted again");
        let found = fs.statfs().await;
        fs.unmount().await.expect("unmounted");
        (found.free_inodes == found.inodes - 12).then(|| disk.image())
    });
    left.inspect(|left| judge(left)).is_some()
}

#[test]
fn names_have_up_to_255_bytes_of_any_kind() {
    let long: Vec<u8> =
        (0..255_u32).map(|at| (at % 255 + 1) as u8).map(|b| if b == b'/' { b'\n' } else { b }).collect();
    let odd: [&[u8]; 6] = [&long, b"\xFF\xFE", b" ", b"a\nb", b"...", "n\u{e4}me".as_bytes()];
    let left = on_new(async |fs| {
        for name in odd {
            fs.create(ROOT_INODE, name, &FILE).await.expect("made");
        }
    });
    on_image(&left, async |fs| {
        let found: BTreeSet<_> = names(fs, ROOT_INODE).await.into_iter().collect();
        let expected = odd.into_iter().chain([b"lost+found".as_slice()]).map(<[u8]>::to_vec).collect();
        assert_eq!(found, expected);
        for name in odd {
            fs.unlink(ROOT_INODE, name).await.expect("removed");
        }
    });
}

#[test]
fn an_inode_has_up_to_65000_names() {
    on_new(async |fs| {
        let file = fs.create(ROOT_INODE, b"0", &FILE).await.expect("made");
        for nth in 1..65_000_u32 {
            fs.link(file, ROOT_INODE, nth.to_string().as_bytes()).await.expect("linked");
        }
        assert_eq!(fs.attributes(file).await.expect("there").links, 65_000);
        assert_eq!(fs.link(file, ROOT_INODE, b"one more").await, Err(FsError::TooManyLinks));
        assert_eq!(names(fs, ROOT_INODE).await.len(), 65_001);
        fs.unlink(ROOT_INODE, b"77").await.expect("removed");
        fs.link(file, ROOT_INODE, b"one more").await.expect("linked");
    });
}

#[test]
fn reading_a_directory_goes_on_where_it_was() {
    on_new(async |fs| {
        let name = |kind: &str, nth: u32| format!("{kind}{nth:05}").into_bytes();
        for nth in 0..5000 {
            fs.create(ROOT_INODE, &name("stays", nth), &FILE).await.expect("made");
            fs.create(ROOT_INODE, &name("goes", nth), &FILE).await.expect("made");
        }
        let mut read = Vec::new();
        let (mut cookie, mut changed) = (Cookie::START, 0);
        loop {
            let entries = fs.read_directory(ROOT_INODE, cookie).await.expect("readable");
            let Some(last) = entries.last() else { break };
            cookie = last.cookie;
            read.extend(
                entries.into_iter().map(|entry| entry.name).filter(|name| name.starts_with(b"stays")),
            );
            for nth in changed..(changed + 500).min(5000) {
                fs.unlink(ROOT_INODE, &name("goes", nth)).await.expect("removed");
                fs.create(ROOT_INODE, &name("comes", nth), &FILE).await.expect("made");
            }
            changed = (changed + 500).min(5000);
        }
        assert_eq!(read.len(), 5000, "each once");
        assert_eq!(read.into_iter().collect::<BTreeSet<_>>().len(), 5000);
    });
}

#[test]
fn what_is_open_outlives_its_name() {
    on_new(async |fs| {
        let free = fs.statfs().await;
        let file = fs.create(ROOT_INODE, b"file", &FILE).await.expect("made");
        let content = vec![7; 300_000];
        assert_eq!(fs.write(file, 0, &content).await, Ok(content.len()));
        fs.open(file).await.expect("opened");
        fs.open(file).await.expect("opened");
        fs.unlink(ROOT_INODE, b"file").await.expect("removed");
        assert_eq!(fs.attributes(file).await.expect("open").links, 0);
        fs.fsync(file).await.expect("durable");
        fs.release(file).await.expect("released");
        let mut read = vec![0; content.len()];
        assert_eq!(fs.read(file, 0, &mut read).await, Ok(content.len()));
        assert_eq!(read, content);
        assert_eq!(fs.link(file, ROOT_INODE, b"again").await, Err(FsError::NotFound));
        fs.release(file).await.expect("released");
        assert_eq!(fs.attributes(file).await.map(|found| found.links), Err(FsError::NotFound));
        assert_eq!(fs.statfs().await, free, "all of it is free again");
    });
}

#[test]
fn what_is_open_and_nameless_is_deleted_by_the_next_mount() {
    let left = simulated(async |clock| {
        let disk = disk(&clock, &new_image(BLOCKS), true);
        let fs = mount(&clock, &disk, MountOptions::default()).await.expect("mounted");
        for name in [b"one", b"two"] {
            let file = fs.create(ROOT_INODE, name, &FILE).await.expect("made");
            fs.write(file, 0, &[7; 100_000]).await.expect("written");
            fs.open(file).await.expect("opened");
            fs.unlink(ROOT_INODE, name).await.expect("removed");
            fs.fsync(file).await.expect("durable");
        }
        fs.unmount().await.expect("unmounted");
        disk.image()
    });
    on_image(&left, async |fs| {
        let (one, total) = (fs.statfs().await.free_inodes, fs.statfs().await.inodes);
        assert_eq!(one, total - 11, "lost+found and the reserved ones are what is left");
    });
}

#[test]
fn attributes_are_set_and_kept() {
    let earlier = FileTime { seconds: -5, nanoseconds: 123_456_789 };
    let later = FileTime { seconds: 5_000_000_000, nanoseconds: 999_999_999 };
    let device =
        NewNode { device: Device { major: 259, minor: 70_000 }, ..node(FileType::BlockDevice, 0o660) };
    let left = on_new(async |fs| {
        let file = fs.create(ROOT_INODE, b"file", &FILE).await.expect("made");
        let changes = AttributeChanges {
            permissions: Some(0o7751),
            uid: Some(70_000),
            gid: Some(80_000),
            size: Some(12_345),
            accessed: Some(earlier),
            modified: Some(later),
            changed: None,
        };
        fs.set_attributes(file, &changes).await.expect("set");
        fs.set_attributes(file, &AttributeChanges { uid: Some(70_001), ..Default::default() })
            .await
            .expect("set");
        fs.create(ROOT_INODE, b"device", &device).await.expect("made");
        fs.create(ROOT_INODE, b"pipe", &node(FileType::Fifo, 0o600)).await.expect("made");
        fs.create(ROOT_INODE, b"socket", &node(FileType::Socket, 0o600)).await.expect("made");
        // A directory with the set-group-ID bit hands its group down.
        let shared = NewNode { gid: 50, ..node(FileType::Directory, 0o2775) };
        let shared = fs.create(ROOT_INODE, b"shared", &shared).await.expect("made");
        let inner = fs.create(shared, b"inner", &DIRECTORY).await.expect("made");
        let found = fs.attributes(inner).await.expect("there");
        assert_eq!((found.gid, found.permissions), (50, 0o2755));
    });
    on_image(&left, async |fs| {
        let file = fs.resolve(b"/file").await.expect("there");
        let found = fs.attributes(file).await.expect("there");
        assert_eq!((found.permissions, found.uid, found.gid), (0o7751, 70_001, 80_000));
        assert_eq!((found.size, found.accessed, found.modified), (12_345, earlier, later));
        let found = fs.attributes(fs.resolve(b"device").await.expect("there")).await.expect("there");
        assert_eq!((found.kind, found.device), (FileType::BlockDevice, Device { major: 259, minor: 70_000 }));
        let kind = async |path: &[u8]| {
            fs.attributes(fs.resolve(path).await.expect("there")).await.expect("there").kind
        };
        assert_eq!((kind(b"pipe").await, kind(b"socket").await), (FileType::Fifo, FileType::Socket));
    });
}

#[test]
fn extended_attributes_lie_in_the_inode_or_in_a_block() {
    let small = (b"user.small".as_slice(), vec![1; 20]);
    let large = (b"security.large".as_slice(), vec![2; 3000]);
    let left = on_new(async |fs| {
        let free = fs.statfs().await.free_blocks;
        let file = fs.create(ROOT_INODE, b"file", &FILE).await.expect("made");
        let set = async |(name, value): &(&[u8], Vec<u8>), expect| {
            fs.set_extended_attribute(file, name, value, expect).await
        };
        assert_eq!(set(&small, Expect::Present).await, Err(FsError::NoAttribute));
        assert_eq!(set(&small, Expect::Absent).await, Ok(()));
        assert_eq!(set(&small, Expect::Absent).await, Err(FsError::Exists));
        assert_eq!(fs.attributes(file).await.expect("there").sectors, 0);
        assert_eq!(set(&large, Expect::Anything).await, Ok(()));
        assert_eq!(fs.attributes(file).await.expect("there").sectors, 8);
        assert_eq!(set(&(b"user.too", vec![3; 4000]), Expect::Anything).await, Err(FsError::NoSpace));
        assert_eq!(fs.remove_extended_attribute(file, b"user.none").await, Err(FsError::NoAttribute));
        let other = fs.set_extended_attribute(file, b"system.other", b"x", Expect::Anything).await;
        assert!(matches!(other, Err(FsError::Unsupported(_))), "{other:?}");
        let link = fs.symlink(ROOT_INODE, b"link", b"file", (0, 0)).await.expect("made");
        let user = fs.set_extended_attribute(link, b"user.a", b"x", Expect::Anything).await;
        assert!(matches!(user, Err(FsError::NotPermitted(_))), "{user:?}");
        fs.set_extended_attribute(link, b"trusted.a", b"x", Expect::Anything).await.expect("set");
        // The block goes with its last attribute, and with the file.
        let other = fs.create(ROOT_INODE, b"other", &FILE).await.expect("made");
        fs.set_extended_attribute(other, b"user.large", &[5; 3000], Expect::Anything).await.expect("set");
        fs.unlink(ROOT_INODE, b"other").await.expect("removed");
        assert_eq!(fs.statfs().await.free_blocks, free - 1);
    });
    on_image(&left, async |fs| {
        let file = fs.resolve(b"file").await.expect("there");
        for (name, value) in [&small, &large] {
            assert_eq!(fs.extended_attribute(file, name).await.as_ref(), Ok(value));
        }
        assert_eq!(fs.extended_attributes(file).await, Ok(vec![small.0.to_vec(), large.0.to_vec()]));
        fs.remove_extended_attribute(file, large.0).await.expect("removed");
        assert_eq!(fs.attributes(file).await.expect("there").sectors, 0);
        assert_eq!(fs.extended_attribute(file, large.0).await, Err(FsError::NoAttribute));
    });
}

#[test]
fn paths_lead_through_symbolic_links() {
    on_new(async |fs| {
        let directory = fs.mkdir(ROOT_INODE, b"directory", &DIRECTORY).await.expect("made");
        let file = fs.create(directory, b"file", &FILE).await.expect("made");
        let links: [(&[u8], &[u8]); 4] = [
            (b"there", b"directory"),
            (b"root", b"/"),
            (b"loop", b"loop/x"),
            (b"back", b"directory/../there"),
        ];
        for (name, target) in links {
            fs.symlink(ROOT_INODE, name, target, (0, 0)).await.expect("made");
        }
        let long = [b"./".repeat(1000).as_slice(), b"directory"].concat();
        let long_link = fs.symlink(ROOT_INODE, b"long", &long, (0, 0)).await.expect("made");
        assert_eq!(fs.read_link(long_link).await, Ok(long));
        for path in [
            b"/directory/file".as_slice(),
            b"there/file",
            b"root/root/there//file",
            b"back/file",
            b"long/file",
        ] {
            assert_eq!(fs.resolve(path).await, Ok(file), "{}", String::from_utf8_lossy(path));
        }
        assert_eq!(fs.resolve(b"").await, Ok(ROOT_INODE));
        assert_eq!(fs.resolve(b"there/").await, Ok(directory));
        assert_eq!(fs.resolve(b"long").await, Ok(long_link), "not followed at the end");
        assert_eq!(fs.resolve(b"loop/x").await, Err(FsError::LinkLoop));
        assert_eq!(fs.resolve(b"directory/file/x").await, Err(FsError::NotDirectory));
        assert_eq!(fs.resolve(b"directory/file/").await, Err(FsError::NotDirectory));
        assert!(invalid(fs.resolve(&[b'/'; 5000]).await));
        let parent = fs.resolve_parent(b"/there/new/").await.expect("there");
        assert_eq!((parent.directory, parent.name), (directory, b"new".as_slice()));
        assert_eq!(fs.resolve_parent(b"//").await, Err(FsError::Exists));
    });
}

#[test]
fn a_read_only_mount_changes_nothing() {
    let left = on_new(async |fs| {
        fs.create(ROOT_INODE, b"file", &FILE).await.expect("made");
    });
    simulated(async |clock| {
        let disk = disk(&clock, &left, true);
        let options = MountOptions { read_only: true, ..MountOptions::default() };
        let fs = mount(&clock, &disk, options).await.expect("mounted");
        let file = fs.resolve(b"file").await.expect("there");
        let refused = Err(FsError::ReadOnly(ReadOnlyReason::Mounted));
        assert_eq!(fs.create(ROOT_INODE, b"new", &FILE).await.map(drop), refused);
        assert_eq!(fs.symlink(ROOT_INODE, b"new", b"x", (0, 0)).await.map(drop), refused);
        assert_eq!(fs.link(file, ROOT_INODE, b"new").await, refused);
        assert_eq!(fs.unlink(ROOT_INODE, b"file").await, refused);
        assert_eq!(fs.rmdir(ROOT_INODE, b"lost+found").await, refused);
        assert_eq!(fs.rename((ROOT_INODE, b"file"), (ROOT_INODE, b"new"), REPLACE).await, refused);
        assert_eq!(fs.set_attributes(file, &AttributeChanges::default()).await, refused);
        assert_eq!(fs.set_extended_attribute(file, b"user.a", b"x", Expect::Anything).await, refused);
        assert_eq!(fs.remove_extended_attribute(file, b"user.a").await, refused);
        fs.unmount().await.expect("unmounted");
        let now = disk.image();
        assert!((0..BLOCKS).all(|block| now.read(Lba(block)) == left.read(Lba(block))), "not a byte");
    });
}
