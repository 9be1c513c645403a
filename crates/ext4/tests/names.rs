//! Directories and attributes on real images, with e2fsck, debugfs and the kernel as judges.

use weir_format::{AttributeName, Attributes, Cookie, FileType};

use crate::judge;
use std::collections::BTreeSet;

use crate::image::filesystem::{Filesystem, OpenDirectory};
use crate::image::{self, Image, now};
use weir_ext4::ROOT_INODE;
use weir_ext4::attribute::{read_attributes, store_attributes};

/// Asserts that e2fsck finds nothing to fix.
fn assert_clean(image: &Image) {
    let file = image.store("clean");
    let path = file.path().to_str().expect("a plain path");
    let verdict = judge::run("e2fsck", &["-fn", path], b"").expect("e2fsck is installed");
    let said = String::from_utf8_lossy(&verdict.stdout);
    assert_eq!(verdict.status.code(), Some(0), "{}", said.chars().take(3000).collect::<String>());
}

#[test]
fn directories_of_a_hundred_thousand_names_are_clean() {
    for options in [&["-N", "4096"][..], &["-N", "4096", "-O", "^metadata_csum"]] {
        let Some(image) = Image::make(options, "64M") else { return };
        let filesystem = Filesystem::new(image);
        let directory = filesystem.make_directory(b"many");
        let files: Vec<u32> = (0..4).map(|_| filesystem.create(FileType::Regular)).collect();
        let name = |number: u32| format!("name-{number}-{}", "x".repeat(number as usize % 60)).into_bytes();
        let open = OpenDirectory::new(&filesystem, directory);
        for number in 0..100_000 {
            let target =
                weir_format::Target { inode: files[number as usize % 4], kind: Some(FileType::Regular) };
            now(open.directory().insert(&name(number), target)).expect("room");
        }
        // Some go again, so that leaves have holes.
        let mut links = [25_000_u16; 4];
        for number in (0..100_000).step_by(7) {
            now(open.directory().remove(&name(number))).expect("readable").expect("there");
            links[number as usize % 4] -= 1;
        }
        open.close(|_| ());
        for (file, links) in files.iter().zip(links) {
            let mut inode = filesystem.inode(*file);
            inode.links = links.into();
            filesystem.set_inode(*file, inode);
        }
        let image = filesystem.finish();
        assert_clean(&image);
        let file = image.store("find");
        let script =
            format!("ncheck -c {}\nstat /many/{}\n", files[0], String::from_utf8_lossy(&name(99_999)));
        let said = judge::debugfs_script(Some(file.path()), script.as_bytes()).expect("debugfs is installed");
        assert!(said.contains(&format!("Inode: {}", files[99_999 % 4])), "debugfs finds the last name");
    }
}

#[test]
fn a_damaged_directory_is_not_clean() {
    // The control for the test above: e2fsck looks at what we wrote.
    let Some(image) = Image::make(&[], "64M") else { return };
    let filesystem = Filesystem::new(image);
    filesystem.make_directory(b"one");
    let open = OpenDirectory::new(&filesystem, ROOT_INODE);
    open.close(|inode| inode.links = 9.into());
    let file = filesystem.finish().store("unclean");
    let path = file.path().to_str().expect("a plain path");
    let verdict = judge::run("e2fsck", &["-fn", path], b"").expect("e2fsck is installed");
    assert_eq!(verdict.status.code(), Some(4));
}

#[test]
fn we_read_what_debugfs_makes() {
    for options in [&[][..], &["-O", "^metadata_csum,^64bit"], &["-O", "^dir_index"]] {
        let Some(image) = Image::make(options, "64M") else { return };
        let file = image.store("debugfs");
        let source = image::Scratch::new("source");
        std::fs::write(source.path(), b"contents").expect("room");
        let mut script = format!("mkdir /folder\nwrite {} /file\n", source.path().display()).into_bytes();
        for _ in 0..80 {
            script.extend(b"expand_dir /folder\n");
        }
        for number in 0..3000 {
            script.extend(format!("ln /file /folder/name-{number}-{}\n", "y".repeat(number % 90)).bytes());
        }
        script.extend(b"ea_set /file user.small 12345\n");
        script.extend(format!("ea_set /file user.large {}\n", "v".repeat(2000)).bytes());
        judge::debugfs_script(Some(file.path()), &script).expect("debugfs is installed");
        // debugfs makes no index; e2fsck does, of what it optimises.
        let path = file.path().to_str().expect("a plain path");
        judge::run("e2fsck", &["-fyD", path], b"").expect("e2fsck is installed");
        let filesystem = Filesystem::new(Image::load(file.path()));
        let root = OpenDirectory::new(&filesystem, ROOT_INODE);
        let find = |name: &[u8]| now(root.directory().lookup(name)).expect("readable").expect("there").inode;
        let (folder, inode) = (find(b"folder"), find(b"file"));
        let open = OpenDirectory::new(&filesystem, folder);
        let (mut names, mut after) = (BTreeSet::new(), Cookie::START);
        loop {
            let batch = now(open.directory().read(after, 50)).expect("a batch");
            let Some(last) = batch.last() else { break };
            after = last.cookie;
            names.extend(batch.into_iter().map(|entry| entry.name));
        }
        assert_eq!(names.len(), 3002, "all names and the two dots with {options:?}");
        for number in (0..3000).step_by(11) {
            let name = format!("name-{number}-{}", "y".repeat(number % 90));
            let target = now(open.directory().lookup(name.as_bytes())).expect("readable").expect("there");
            assert_eq!(target.inode, inode);
        }
        let record = filesystem.inode(inode);
        let block = record.attribute_block();
        let image = filesystem.image.borrow();
        let outside = (block != 0).then(|| (block, &image.block(block)[..]));
        let attributes = read_attributes(inode, record.attribute_area(), outside).expect("attributes");
        let value =
            |name: &[u8]| attributes.get(&AttributeName::parse(name).expect("a name")).map(<[u8]>::to_vec);
        assert_eq!(value(b"user.small"), Some(b"12345".to_vec()));
        assert_eq!(value(b"user.large"), Some(vec![b'v'; 2000]));
    }
}

#[test]
fn attributes_that_we_write_are_clean() {
    use weir_ext4::{Blocks, Kind};
    for options in [&[][..], &["-O", "^metadata_csum"]] {
        let Some(image) = Image::make(options, "64M") else { return };
        let filesystem = Filesystem::new(image);
        let number = filesystem.create(FileType::Regular);
        filesystem.link(ROOT_INODE, b"file", number, FileType::Regular);
        let mut attributes = Attributes::default();
        let names = ["user.a", "user.empty", "trusted.b", "security.c", "user.large", "user.\u{e9}"];
        for (index, name) in names.iter().enumerate() {
            let value = vec![b'0' + index as u8; [10, 0, 30, 3, 2500, 77][index]];
            attributes.set(AttributeName::parse(name.as_bytes()).expect("a name"), value);
        }
        let mut inode = filesystem.inode(number);
        let block =
            store_attributes(&attributes, inode.attribute_area_mut()).expect("room").expect("a block");
        let place = now(filesystem.allocate(Kind::Attributes, 0)).expect("room");
        let all = 0..weir_format::BLOCK_BYTES;
        now(filesystem.modify(place, Kind::Attributes, all, |bytes| bytes.copy_from_slice(&block[..])))
            .expect("sealed");
        inode.set_attribute_block(place);
        inode.set_sectors(8);
        filesystem.set_inode(number, inode);
        let image = filesystem.finish();
        assert_clean(&image);
        let file = image.store("list");
        let said = judge::debugfs_script(Some(file.path()), b"ea_list /file\nea_get /file user.large\n")
            .expect("debugfs is installed");
        assert!(said.contains(&"4".repeat(2500)), "debugfs reads the large value: {said}");
        assert!(said.contains("user.a (10) = \"0000000000\""), "and the small one: {said}");
    }
}
