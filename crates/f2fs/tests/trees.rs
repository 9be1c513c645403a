//! Trees that `sload.f2fs` has copied into an image are read as they were.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use weir_f2fs::{FileReader, Image, Inode, NodeId};
use weir_format::{BLOCK_BYTES, Cookie, FileType, FormatError};
use weir_runtime::{Runtime, Simulation};

use crate::image::{ImageFile, MEBIBYTE};

/// What is compared of a file: type and permissions, size, and its content or target.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    mode: u32,
    size: u64,
    content: Vec<u8>,
}

/// All names below a directory of the host.
fn host_tree(root: &Path) -> BTreeMap<String, Seen> {
    let mut tree = BTreeMap::new();
    let mut pending = vec![(String::new(), root.to_owned())];
    while let Some((inside, path)) = pending.pop() {
        let found = fs::symlink_metadata(&path).unwrap();
        let content = match found.file_type() {
            kind if kind.is_symlink() => fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes(),
            kind if kind.is_file() => fs::read(&path).unwrap(),
            _ => Vec::new(),
        };
        if found.is_dir() {
            for entry in fs::read_dir(&path).unwrap() {
                let entry = entry.unwrap();
                pending.push((format!("{inside}/{}", entry.file_name().to_str().unwrap()), entry.path()));
            }
        }
        if !inside.is_empty() {
            let size = if found.is_dir() { 0 } else { found.len() };
            tree.insert(inside, Seen { mode: found.mode(), size, content });
        }
    }
    tree
}

/// All names of an image.
async fn image_tree(image: &Image<&ImageFile>) -> Result<BTreeMap<String, Seen>, FormatError> {
    let mut tree = BTreeMap::new();
    let root = NodeId(image.superblock.root_inode.get());
    let mut pending = vec![(String::new(), root)];
    while let Some((inside, number)) = pending.pop() {
        let inode = image.inode(number).await?;
        let kind = inode.file_type();
        let content = match kind {
            Some(FileType::Symlink) => image.link_target(&inode).await?,
            Some(FileType::Regular) => content_of(image, &inode).await?,
            _ => Vec::new(),
        };
        if kind == Some(FileType::Directory) {
            let mut after = Cookie::START;
            loop {
                let names = image.read_names(&inode, after, 10).await?;
                let Some(last) = names.last() else { break };
                after = last.cookie;
                for entry in names {
                    let name = String::from_utf8(entry.name).unwrap();
                    assert_eq!(
                        image.find_name(&inode, name.as_bytes()).await?.map(|found| found.inode),
                        Some(NodeId(entry.target.inode))
                    );
                    if name != "." && name != ".." {
                        pending.push((format!("{inside}/{name}"), NodeId(entry.target.inode)));
                    }
                }
            }
            assert_eq!(image.find_name(&inode, b"not there").await?, None);
        }
        if !inside.is_empty() {
            let size = if kind == Some(FileType::Directory) { 0 } else { inode.size.get() };
            tree.insert(inside, Seen { mode: inode.mode.get().into(), size, content });
        }
    }
    Ok(tree)
}

async fn content_of(image: &Image<&ImageFile>, inode: &Inode) -> Result<Vec<u8>, FormatError> {
    let mut content = Vec::new();
    for page in 0..inode.size.get().div_ceil(BLOCK_BYTES as u64) {
        content.extend_from_slice(&image.page(inode, page).await?[..]);
    }
    content.truncate(inode.size.get() as usize);
    Ok(content)
}

/// A directory of the host with files of all kinds that `sload.f2fs` copies.
fn write_tree(root: &Path) {
    fs::write(root.join("empty"), b"").unwrap();
    fs::write(root.join("inline"), b"a few bytes").unwrap();
    for (name, blocks) in [("small", 1), ("inode", 900), ("direct", 1_900), ("indirect", 3_100)] {
        let bytes: Vec<u8> = (0..blocks * BLOCK_BYTES - 17).map(|at| (at / 7 % 251) as u8).collect();
        fs::write(root.join(name), bytes).unwrap();
    }
    let sparse = fs::File::create(root.join("sparse")).unwrap();
    sparse.set_len(5 << 20).unwrap();
    sparse.write_all_at(b"in the middle", 3 << 20).unwrap();
    fs::create_dir(root.join("names")).unwrap();
    for nth in 0..1_500 {
        let name = format!("{nth}-{}", "n".repeat(nth % 200));
        fs::write(root.join("names").join(name), nth.to_string()).unwrap();
    }
    fs::create_dir_all(root.join("deep/er/still")).unwrap();
    fs::write(root.join("deep/er/still/file"), b"below").unwrap();
    symlink("deep/er", root.join("short-link")).unwrap();
    symlink("x".repeat(3_000), root.join("long-link")).unwrap();
    fs::set_permissions(root.join("small"), fs::Permissions::from_mode(0o4640)).unwrap();
}

#[test]
fn a_tree_is_read_as_it_was_copied() {
    let host = tempfile::tempdir().unwrap();
    write_tree(host.path());
    let expected = host_tree(host.path());
    for options in [&[][..], &["-O", "extra_attr,inode_checksum,inode_crtime,sb_checksum"]] {
        let Some(file) = ImageFile::from_mkfs(160 * MEBIBYTE, options) else { return };
        if file.fill_from(host.path()).is_none() {
            return;
        }
        let runtime = Runtime::simulated(Simulation::default());
        let read = async { image_tree(&Image::open(&file).await?).await };
        let found = runtime.block_on(read).unwrap().unwrap();
        assert_eq!(found.len(), expected.len());
        for (name, seen) in &expected {
            let other = found.get(name).unwrap_or_else(|| panic!("{name} is missing"));
            assert_eq!((other.mode, other.size), (seen.mode, seen.size), "{name}");
            assert!(other.content == seen.content, "{name}: its content");
        }
    }
}
