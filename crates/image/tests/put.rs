//! Files of the host into an image: what is read of them, and what is kept.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::{self, File};
use std::future::poll_fn;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::pin::pin;
use std::process::Command;

use weir_format::FileType;
use weir_vfs::{FsError, NewNode};

use crate::hostile::made;
use futures_util::FutureExt as _;
use weir_ext4::ROOT_INODE;
use weir_fs::BarrierFs;

/// Bytes that this thread has asked the kernel to read so far, holes among them.
fn bytes_read() -> u64 {
    let known = fs::read_to_string("/proc/thread-self/io").unwrap();
    known.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
}

/// Whoever made the file took a moment for that, so a copy of it takes no hours.
#[test]
fn holes_of_a_file_are_not_read() {
    const SIZE: u64 = 32 << 30;
    const READ_MAX: u64 = 8 << 20;
    let host = tempfile::tempdir().unwrap();
    let sparse = host.path().join("sparse");
    let file = File::create(&sparse).unwrap();
    for at in [SIZE / 4, SIZE / 2 + 5000, SIZE / 2 + (10 << 20)] {
        file.write_all_at(b"data", at).unwrap();
    }
    file.set_len(SIZE + 1).unwrap();
    drop(made(3072, async |fs| {
        let before = bytes_read();
        assert_eq!(weir_image::put(fs, &sparse, b"/", false).await.unwrap(), 0);
        let read = bytes_read() - before;
        assert!(read < READ_MAX, "{read} bytes");
        let inode = fs.lookup(ROOT_INODE, b"sparse").await?;
        assert_eq!(fs.attributes(inode).await?.size, SIZE + 1);
        let mut found = Vec::new();
        let mut at = 0;
        while let Some(data) = fs.seek_data(inode, at).await? {
            at = fs.seek_hole(inode, data).await?.unwrap();
            let mut bytes = vec![0; (at - data) as usize];
            assert_eq!(fs.read(inode, data, &mut bytes).await?, bytes.len());
            let first = bytes.iter().position(|&byte| byte != 0).unwrap();
            assert_eq!(&bytes[first..first + 4], b"data");
            found.push((data, data + first as u64, at - data));
        }
        let expected = [SIZE / 4, SIZE / 2 + 5000, SIZE / 2 + (10 << 20)];
        assert_eq!(found, expected.map(|at| (at / 4096 * 4096, at, 4096)));
        Ok(())
    }));
}

/// They have content and no size, so what they say of their holes is not to be believed.
#[test]
fn files_that_the_kernel_makes_up_are_copied() {
    let version = std::path::Path::new("/proc/version");
    let content = fs::read(version).unwrap();
    assert!(!content.is_empty() && version.metadata().unwrap().len() == 0);
    drop(made(3072, async |fs| {
        assert_eq!(weir_image::put(fs, version, b"/", false).await.unwrap(), 0);
        let inode = fs.lookup(ROOT_INODE, b"version").await?;
        let mut bytes = vec![0; content.len() + 1];
        assert_eq!(fs.read(inode, 0, &mut bytes).await?, content.len());
        assert_eq!(bytes[..content.len()], content);
        Ok(())
    }));
}

/// What comes to be where a directory was found has other attributes, and its content may be for fewer to see.
#[test]
fn a_directory_that_was_swapped_is_not_copied() {
    let host = tempfile::tempdir().unwrap();
    let (tree, secret) = (host.path().join("tree"), host.path().join("secret"));
    fs::create_dir_all(tree.join("early")).unwrap();
    let late = vec![1; 6 << 20];
    fs::write(tree.join("late"), &late).unwrap();
    fs::create_dir(&secret).unwrap();
    fs::write(secret.join("file"), "a secret").unwrap();
    drop(made(3072, async |fs| {
        // What was deleted has most of the space, so the copy waits until that is free.
        fs.mkdir(ROOT_INODE, b"tree", &NewNode::new(FileType::Directory, 0o755)).await?;
        let old = fs.create(ROOT_INODE, b"old", &NewNode::new(FileType::Regular, 0o644)).await?;
        fs.write(old, 0, &late).await?;
        fs.fsync(old).await?;
        fs.unlink(ROOT_INODE, b"old").await?;
        let mut put = pin!(weir_image::put(fs, &tree, b"/tree", true));
        let mut swapped = false;
        let done = poll_fn(|context| {
            let done = put.as_mut().poll(context);
            let found = fs.resolve(b"/tree/early").now_or_never().is_some_and(|early| early.is_ok());
            if done.is_pending() && found && !swapped {
                swapped = true;
                fs::rename(tree.join("early"), host.path().join("moved")).unwrap();
                fs::rename(&secret, tree.join("early")).unwrap();
            }
            done
        })
        .await;
        assert!(swapped, "the copy never waited");
        let error = done.unwrap_err().to_string();
        assert!(
            error.contains("early") && error.contains("another directory has taken its place"),
            "{error}"
        );
        assert!(fs.resolve(b"/tree/early/file").await.is_err());
        Ok(())
    }));
}

/// A directory of the host that is shown in another place, until dropped.
struct Bound(PathBuf);

impl Drop for Bound {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn what_is_mounted_within_a_tree_is_copied() {
    let host = tempfile::tempdir().unwrap();
    let (tree, other) = (host.path().join("tree"), host.path().join("other"));
    for directory in [tree.join("plain/below"), tree.join("bound"), other.clone()] {
        fs::create_dir_all(directory).unwrap();
    }
    fs::write(tree.join("plain/below/file"), "plain").unwrap();
    fs::write(other.join("file"), "bound").unwrap();
    fs::set_permissions(&other, fs::Permissions::from_mode(0o751)).unwrap();
    let bind = Command::new("mount").arg("--bind").arg(&other).arg(tree.join("bound")).output();
    let is_bound = bind.is_ok_and(|output| output.status.success());
    let _bound = is_bound.then(|| Bound(tree.join("bound")));
    if !is_bound {
        eprintln!("skipped: this machine mounts nothing");
        fs::write(tree.join("bound/file"), "bound").unwrap();
    }
    drop(made(3072, async |fs| {
        assert_eq!(weir_image::put(fs, &tree, b"/tree", true).await.unwrap(), 0);
        for name in ["plain", "bound"] {
            let path = format!("/tree/{name}{}/file", if name == "plain" { "/below" } else { "" });
            let mut bytes = [0; 16];
            let read = fs.read(fs.resolve(path.as_bytes()).await?, 0, &mut bytes).await?;
            assert_eq!(&bytes[..read], name.as_bytes());
        }
        let bound = fs.attributes(fs.resolve(b"/tree/bound").await?).await?;
        assert!(bound.permissions == 0o751 || !is_bound, "{:o}", bound.permissions);
        Ok(())
    }));
}

/// What does not fit leaves no name behind that looks whole, and no space taken.
#[test]
fn a_file_that_does_not_fit_leaves_nothing() {
    let host = tempfile::tempdir().unwrap();
    let large = host.path().join("large");
    fs::write(&large, vec![7; 16 << 20]).unwrap();
    drop(made(3072, async |fs| {
        let free = fs.statfs().await.free_blocks;
        let error = weir_image::put(fs, &large, b"/", false).await.unwrap_err();
        assert!(error.to_string().contains("no space"), "{error}");
        assert_eq!(fs.lookup(ROOT_INODE, b"large").await, Err(FsError::NotFound));
        fs.sync().await?;
        assert_eq!(fs.statfs().await.free_blocks, free);
        Ok(())
    }));
}

/// The names in the root directory but "lost+found", and the content of each file.
async fn files(fs: &BarrierFs) -> Result<Vec<(String, Vec<u8>)>, FsError> {
    let mut files = Vec::new();
    for line in weir_image::list(fs, b"/", false).await.unwrap() {
        let name = String::from_utf8(line).unwrap();
        let inode = fs.lookup(ROOT_INODE, name.as_bytes()).await?;
        let found = fs.attributes(inode).await?;
        if found.kind == FileType::Regular {
            let mut bytes = vec![0; found.size as usize];
            assert_eq!(fs.read(inode, 0, &mut bytes).await?, bytes.len());
            files.push((name, bytes));
        }
    }
    Ok(files)
}

/// Whatever ends the copy of a new file, its name has the old file's content or the new one's.
#[test]
fn a_file_is_replaced_when_the_new_one_is_whole() {
    let host = tempfile::tempdir().unwrap();
    let file = host.path().join("file");
    drop(made(3072, async |fs| {
        // A user's own file, whose name is taken for that.
        let own = fs.create(ROOT_INODE, b".weir-put-0", &NewNode::new(FileType::Regular, 0o644)).await?;
        fs.write(own, 0, b"own").await?;
        fs::write(&file, "old").unwrap();
        weir_image::put(fs, &file, b"/", false).await.unwrap();
        let own = (".weir-put-0".to_owned(), b"own".to_vec());
        let old = [own.clone(), ("file".to_owned(), b"old".to_vec())];
        assert_eq!(files(fs).await?, old);
        fs::write(&file, vec![7; 16 << 20]).unwrap();
        let error = weir_image::put(fs, &file, b"/", false).await.unwrap_err();
        assert!(error.to_string().contains("no space"), "{error}");
        assert_eq!(files(fs).await?, old);
        fs::write(&file, "new").unwrap();
        fs::hard_link(&file, host.path().join("same")).unwrap();
        for _ in 0..2 {
            weir_image::put(fs, host.path(), b"/", true).await.unwrap();
            let new = ["file", "same"].map(|name| (name.to_owned(), b"new".to_vec()));
            assert_eq!(files(fs).await?, [std::slice::from_ref(&own), &new[..]].concat());
            assert_eq!(fs.lookup(ROOT_INODE, b"file").await?, fs.lookup(ROOT_INODE, b"same").await?);
        }
        Ok(())
    }));
}
