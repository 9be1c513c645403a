//! Names: small and large directories, links, renames, and inodes without names.

use std::rc::Rc;

use weir_f2fs::{FileReader as _, Image, NodeId, inline_flags};
use weir_format::{BLOCK_BYTES, Cookie, FileType};
use weir_lfs::{F2fs, F2fsOptions};
use weir_storage::{AdversaryDisk, Lba, Storage};
use weir_vfs::{Device, Expect, FsError, NewNode, RenameFlags, StorageImage};

use crate::support::{BLOCKS, content, directory, mounted, options, play, regular, unmount_and_judge};

const ROOT: u32 = NodeId::ROOT.0;

#[test]
fn a_directory_grows_out_of_its_inode_and_over_levels() {
    play(1, async |clock| {
        let (disk, fs) = mounted(&clock, BLOCKS, F2fsOptions::default()).await;
        let parent = fs.mkdir(ROOT, b"parent", &directory()).await.unwrap();
        let name = |nth: u32| format!("a name that takes some slots {nth}").into_bytes();
        for nth in 0..3000 {
            fs.create(parent, &name(nth), &regular()).await.unwrap();
        }
        for nth in (0..3000).step_by(3) {
            fs.unlink(parent, &name(nth)).await.unwrap();
        }
        assert_eq!(fs.create(parent, &name(1), &regular()).await, Err(FsError::Exists));
        assert_eq!(fs.rmdir(ROOT, b"parent").await, Err(FsError::NotEmpty));
        unmount_and_judge(&disk, fs).await;
        let fs =
            F2fs::mount(&clock, Rc::clone(&disk) as Rc<dyn Storage>, F2fsOptions::default()).await.unwrap();
        let parent = fs.lookup(ROOT, b"parent").await.unwrap();
        for nth in 0..3000 {
            assert_eq!(fs.lookup(parent, &name(nth)).await.is_ok(), nth % 3 != 0, "{nth}");
        }
        for nth in (0..3000).filter(|nth| nth % 3 != 0) {
            fs.unlink(parent, &name(nth)).await.unwrap();
        }
        fs.rmdir(ROOT, b"parent").await.unwrap();
        assert_eq!(fs.statfs().await.free_inodes, fs.statfs().await.inodes - 1);
        unmount_and_judge(&disk, fs).await;
    });
}

#[test]
fn all_kinds_of_files_links_and_attributes_are_there_after_a_mount() {
    play(2, async |clock| {
        let (disk, fs) = mounted(&clock, BLOCKS, F2fsOptions::default()).await;
        let file = fs.create(ROOT, b"file", &regular()).await.unwrap();
        fs.link(file, ROOT, b"second").await.unwrap();
        fs.symlink(ROOT, b"short", b"second", (1, 2)).await.unwrap();
        let long = vec![b'x'; 4000];
        fs.symlink(ROOT, b"long", &long, (0, 0)).await.unwrap();
        let device = Device { major: 8, minor: 1000 };
        let new = NewNode { device, ..NewNode::new(FileType::BlockDevice, 0o600) };
        fs.create(ROOT, b"device", &new).await.unwrap();
        fs.create(ROOT, b"fifo", &NewNode::new(FileType::Fifo, 0o600)).await.unwrap();
        fs.set_extended_attribute(file, b"user.small", b"1", Expect::Anything).await.unwrap();
        fs.set_extended_attribute(file, b"user.large", &[5; 3000], Expect::Anything).await.unwrap();
        unmount_and_judge(&disk, fs).await;
        let fs =
            F2fs::mount(&clock, Rc::clone(&disk) as Rc<dyn Storage>, F2fsOptions::default()).await.unwrap();
        let file = fs.lookup(ROOT, b"second").await.unwrap();
        assert_eq!(fs.attributes(file).await.unwrap().links, 2);
        let find = async |name: &[u8]| fs.lookup(ROOT, name).await.unwrap();
        assert_eq!(fs.read_link(find(b"short").await).await.unwrap(), b"second");
        assert_eq!(fs.read_link(find(b"long").await).await.unwrap(), long);
        assert_eq!(fs.attributes(find(b"device").await).await.unwrap().device, device);
        assert_eq!(fs.extended_attribute(file, b"user.large").await.unwrap(), [5; 3000]);
        fs.remove_extended_attribute(file, b"user.large").await.unwrap();
        unmount_and_judge(&disk, fs).await;
    });
}

#[test]
fn names_move_and_are_exchanged() {
    play(3, async |clock| {
        let (disk, fs) = mounted(&clock, BLOCKS, F2fsOptions::default()).await;
        let one = fs.mkdir(ROOT, b"one", &directory()).await.unwrap();
        let two = fs.mkdir(ROOT, b"two", &directory()).await.unwrap();
        let below = fs.mkdir(one, b"below", &directory()).await.unwrap();
        let file = fs.create(one, b"file", &regular()).await.unwrap();
        fs.write(file, 0, b"moved").await.unwrap();
        let old = fs.create(two, b"file", &regular()).await.unwrap();
        let plain = RenameFlags::default();
        fs.rename((one, b"file"), (two, b"file"), plain).await.unwrap();
        assert_eq!(fs.attributes(old).await.map(drop), Err(FsError::NotFound));
        assert_eq!(content(&fs, fs.lookup(two, b"file").await.unwrap()).await.unwrap(), b"moved");
        fs.rename((one, b"below"), (two, b"below"), plain).await.unwrap();
        assert_eq!(fs.lookup(below, b"..").await.unwrap(), two);
        let into_itself = fs.rename((ROOT, b"two"), (below, b"two"), plain).await;
        assert!(matches!(into_itself, Err(FsError::Invalid(_))));
        let exchange = RenameFlags { exchange: true, ..plain };
        fs.rename((two, b"below"), (ROOT, b"one"), exchange).await.unwrap();
        assert_eq!(fs.lookup(below, b"..").await.unwrap(), ROOT);
        unmount_and_judge(&disk, fs).await;
    });
}

#[test]
fn an_open_file_without_a_name_lives_until_it_is_closed() {
    play(4, async |clock| {
        let (disk, fs) = mounted(&clock, BLOCKS, F2fsOptions::default()).await;
        let file = fs.create(ROOT, b"file", &regular()).await.unwrap();
        fs.open(file).await.unwrap();
        fs.unlink(ROOT, b"file").await.unwrap();
        fs.write(file, 0, &[7; 9000]).await.unwrap();
        fs.sync().await.unwrap();
        // A power cut here leaves an orphan, which the next mount deletes.
        let image = disk.image();
        assert_eq!(content(&fs, file).await.unwrap(), [7; 9000]);
        fs.release(file).await.unwrap();
        assert_eq!(fs.attributes(file).await.map(drop), Err(FsError::NotFound));
        unmount_and_judge(&disk, fs).await;
        let disk = AdversaryDisk::from_image(&clock, options(BLOCKS, true), &image);
        let fs =
            F2fs::mount(&clock, Rc::clone(&disk) as Rc<dyn Storage>, F2fsOptions::default()).await.unwrap();
        assert_eq!(fs.statfs().await.free_inodes, fs.statfs().await.inodes - 1);
        unmount_and_judge(&disk, fs).await;
    });
}

#[test]
fn a_directory_is_read_by_its_cookies_while_it_changes() {
    play(5, async |clock| {
        let (disk, fs) = mounted(&clock, BLOCKS, F2fsOptions::default()).await;
        let parent = fs.mkdir(ROOT, b"parent", &directory()).await.unwrap();
        let name = |nth: u32| format!("name {nth:>30}").into_bytes();
        for count in [0, 3, 40, 1000] {
            for nth in 0..count {
                let made = fs.create(parent, &name(nth), &regular()).await.map(drop);
                assert!(matches!(made, Ok(()) | Err(FsError::Exists)), "{made:?}");
            }
            let (mut after, mut seen) = (Cookie::START, Vec::new());
            loop {
                let entries = fs.read_directory(parent, after).await.unwrap();
                let Some(last) = entries.last() else { break };
                for entry in &entries {
                    assert!(entry.cookie > after && entry.cookie.0 < 1 << 63);
                    assert_eq!(entry.cookie.group() == 0, entry.name.starts_with(b"."));
                    after = entry.cookie;
                }
                // A server may go on behind all names of a group.
                let rest =
                    fs.read_directory(parent, Cookie::end_of_group(last.cookie.group())).await.unwrap();
                assert!(rest.iter().all(|entry| entry.cookie.group() > last.cookie.group()));
                seen.extend(entries.into_iter().map(|entry| entry.name));
                // What comes and goes meanwhile takes no other name away.
                fs.create(parent, b"new", &regular()).await.unwrap();
                fs.unlink(parent, b"new").await.unwrap();
            }
            seen.sort();
            let mut expected: Vec<_> = (0..count).map(name).chain([b".".to_vec(), b"..".to_vec()]).collect();
            expected.sort();
            assert_eq!(seen, expected);
        }
        unmount_and_judge(&disk, fs).await;
    });
}

/// The cookies of "." and ".." lead to the start of a directory: names that lie elsewhere would make a listing go on without end.
#[test]
fn the_first_two_names_of_a_directory_lie_nowhere_else() {
    play(9, async |clock| {
        let (disk, fs) = mounted(&clock, BLOCKS, F2fsOptions::default()).await;
        let parent = fs.mkdir(ROOT, b"parent", &directory()).await.unwrap();
        for nth in 0..1_000 {
            let name = format!("a name that takes some slots {nth}");
            fs.create(parent, name.as_bytes(), &regular()).await.unwrap();
        }
        fs.unmount().await.unwrap();
        let mut image = disk.image();
        let read = Image::open(StorageImage(Rc::clone(&disk) as Rc<dyn Storage>)).await.unwrap();
        let inode = read.inode(NodeId(parent)).await.unwrap();
        let first = read.page_address(&inode, 0).await.unwrap();
        let (_, second) = read.next_page(&inode, 1).await.unwrap().unwrap();
        image.write(Lba(second.0.into()), &image.read(Lba(first.0.into())));
        let disk = AdversaryDisk::from_image(&clock, options(BLOCKS, true), &image);
        let fs = F2fs::mount(&clock, disk as Rc<dyn Storage>, F2fsOptions::default()).await.unwrap();
        let mut cookie = Cookie::START;
        let error = loop {
            match fs.read_directory(parent, cookie).await {
                Ok(entries) => {
                    let last = entries.last().expect("the damage is not passed by").cookie;
                    assert!(last > cookie, "the way through a directory goes on");
                    cookie = last;
                }
                Err(error) => break error,
            }
        };
        assert!(error.to_string().contains("one of the first two names"), "{error}");
    });
}

/// Directories as Linux may make them: with another number of buckets, and without room for attributes in the inode.
#[test]
fn directories_of_linux_keep_their_names_and_attributes() {
    play(8, async |clock| {
        for (level, has_attributes) in [(2, true), (0, false)] {
            let (disk, fs) = mounted(&clock, BLOCKS, F2fsOptions::default()).await;
            let parent = fs.mkdir(ROOT, b"parent", &directory()).await.unwrap();
            fs.unmount().await.unwrap();
            drop(fs);
            let image = Image::open(StorageImage(Rc::clone(&disk) as Rc<dyn Storage>)).await.unwrap();
            let place = image.node_entry(NodeId(parent)).await.unwrap().address();
            let mut inode = image.inode(NodeId(parent)).await.unwrap();
            inode.directory_level = level;
            inode.set_inline(inline_flags::ATTRIBUTES, has_attributes);
            let mut all = disk.image();
            let mut block: Box<[u8; BLOCK_BYTES]> = all.read(Lba(place.0.into())).try_into().unwrap();
            inode.write(&mut block, None);
            all.write(Lba(place.0.into()), &block[..]);
            let disk = AdversaryDisk::from_image(&clock, options(BLOCKS, true), &all);
            let fs = F2fs::mount(&clock, Rc::clone(&disk) as Rc<dyn Storage>, F2fsOptions::default());
            let fs = fs.await.unwrap();
            fs.set_extended_attribute(parent, b"user.a", &[7; 100], Expect::Anything).await.unwrap();
            let name = |nth: u32| format!("{nth:0200}").into_bytes();
            for nth in 0..300 {
                fs.create(parent, &name(nth), &regular()).await.unwrap();
            }
            for nth in 0..300 {
                fs.lookup(parent, &name(nth)).await.unwrap();
            }
            assert_eq!(fs.extended_attribute(parent, b"user.a").await.unwrap(), [7; 100]);
            unmount_and_judge(&disk, fs).await;
        }
    });
}

/// A call for what the newest checkpoint has writes no other, and one for an attribute that is in the inode writes the inode.
#[test]
fn calls_that_need_no_checkpoint_write_none() {
    play(40, async |clock| {
        let (disk, fs) = mounted(&clock, BLOCKS, F2fsOptions::default()).await;
        let parent = fs.mkdir(ROOT, b"parent", &directory()).await.unwrap();
        let file = fs.create(parent, b"file", &regular()).await.unwrap();
        let linked = fs.create(parent, b"linked", &regular()).await.unwrap();
        fs.link(linked, parent, b"second name").await.unwrap();
        fs.sync().await.unwrap();
        let checkpoints = || fs.statistics().checkpoints;
        let before = checkpoints();
        for clean in [ROOT, parent, linked] {
            fs.fsync(clean).await.unwrap();
        }
        fs.set_extended_attribute(file, b"user.small", b"value", Expect::Anything).await.unwrap();
        fs.fsync(file).await.unwrap();
        assert_eq!(checkpoints(), before);
        disk.cut_power();
        let left = AdversaryDisk::from_image(
            &clock,
            options(BLOCKS, true),
            &disk.crash_states().sample(&mut clock.random("cut")),
        );
        let recovered =
            F2fs::mount(&clock, Rc::clone(&left) as Rc<dyn Storage>, F2fsOptions::default()).await.unwrap();
        assert_eq!(recovered.extended_attribute(file, b"user.small").await.unwrap(), b"value");
        // Control: one that takes a node, and a directory that has changed.
        recovered.set_extended_attribute(file, b"user.large", &[7; 3000], Expect::Anything).await.unwrap();
        let before = recovered.statistics().checkpoints;
        recovered.fsync(file).await.unwrap();
        recovered.create(parent, b"another", &regular()).await.unwrap();
        recovered.fsync(parent).await.unwrap();
        assert_eq!(recovered.statistics().checkpoints, before + 2);
        unmount_and_judge(&left, recovered).await;
    });
}
