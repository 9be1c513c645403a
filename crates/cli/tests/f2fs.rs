//! F2FS: made, checked and read by the program, judged by `fsck.f2fs`, and filled by `sload.f2fs`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::support::{error_of, runs, text, weir, works};

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Runs a program of f2fs-tools, which succeeds; what it prints.
#[track_caller]
fn tool(program: &str, arguments: &[&str]) -> String {
    runs(Command::new(program).args(arguments).env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin"))
}

fn write_tree(root: &Path) {
    fs::create_dir_all(root.join("directory/below")).unwrap();
    fs::write(root.join("small"), b"a few bytes\n").unwrap();
    fs::write(root.join("directory/large"), vec![7; 5 << 20]).unwrap();
    for nth in 0..300 {
        fs::write(root.join(format!("directory/below/{nth}")), vec![nth as u8; nth]).unwrap();
    }
    symlink("directory/large", root.join("link")).unwrap();
}

#[test]
fn an_image_is_made_filled_checked_and_read() {
    let directory = directory();
    let image = directory.path().join("image");
    let image = image.to_str().unwrap();
    assert!(works(&["mkfs", "--type", "f2fs", "--size", "128M", "--label", "Wehr", image]).contains("F2FS"));
    assert!(works(&["fsck", image]).starts_with("clean: 1 inode in use"));
    let tree = directory.path().join("tree");
    write_tree(&tree);
    tool("sload.f2fs", &["-f", tree.to_str().unwrap(), image]);
    assert!(
        tool("fsck.f2fs", &["--dry-run", image])
            .contains("other corrupted bugs                           [Ok..]")
    );
    assert!(works(&["fsck", image]).starts_with("clean: 306 inodes in use"));
    assert_eq!(works(&["ls", image]), "directory\nlink\nsmall\n");
    assert_eq!(works(&["cat", image, "/small"]), "a few bytes\n");
    assert_eq!(works(&["cat", image, "/directory/below/9"]).len(), 9);
    let copy = directory.path().join("copy");
    works(&["get", "-r", image, "/", copy.to_str().unwrap()]);
    runs(Command::new("diff").args(["-r", "--no-dereference"]).args([&tree, &copy]));
}

#[test]
fn an_image_in_a_volume_is_read_as_well() {
    let directory = directory();
    let volume = directory.path().join("volume");
    let volume = volume.to_str().unwrap();
    works(&["mkfs", "--type", "f2fs", "--volume", "--size", "256M", volume]);
    assert!(works(&["fsck", volume]).starts_with("clean"));
    assert_eq!(works(&["ls", volume]), "");
}

#[test]
fn what_cannot_be_done_is_refused_and_says_why() {
    let directory = directory();
    let image = directory.path().join("image");
    let image = image.to_str().unwrap();
    let refused = |arguments: &[&str], word: &str| {
        let output = weir(arguments).output().unwrap();
        let error = error_of(&output);
        assert!(!output.status.success() && error.contains(word), "{arguments:?}: {error}");
    };
    refused(&["mkfs", "--type", "f2fs", "--size", "32M", image], "cleaner");
    works(&["mkfs", "--type", "f2fs", "--size", "128M", image]);
    fs::write(directory.path().join("file"), b"new").unwrap();
    let file = directory.path().join("file");
    refused(&["put", image, file.to_str().unwrap(), "/"], "F2FS");
    refused(&["mount", image, directory.path().to_str().unwrap()], "f2fs");
    // Damage: the second half of the root's inode.
    let mut bytes = fs::read(image).unwrap();
    let root = bytes.windows(8).rposition(|word| word == [3, 0, 0, 0, 3, 0, 0, 0]).unwrap();
    bytes[root - 4000] ^= 1;
    fs::write(image, &bytes).unwrap();
    let output = weir(&["fsck", image]).output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", text(&output.stdout));
    assert!(text(&output.stdout).contains("checksum"));
}
