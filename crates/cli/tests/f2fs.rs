//! F2FS: made, checked and read by the program, judged by `fsck.f2fs`, and filled by `sload.f2fs`.

use std::fs;
use std::os::unix::fs::{FileExt as _, symlink};
use std::path::Path;
use std::process::Command;

use rustix::fs::{XattrFlags, setxattr, statvfs};
use weir_sqlite_vfs::rusqlite::Connection;

use crate::support::{Place, error_of, mounts, runs, system, text, weir, works};

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Runs a program of f2fs-tools, which succeeds; what it prints.
#[track_caller]
fn tool(program: &str, arguments: &[&str]) -> String {
    runs(system(program).args(arguments))
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
fn files_are_put_into_an_image_and_come_out_as_they_were() {
    let directory = directory();
    let image = directory.path().join("image");
    let image = image.to_str().unwrap();
    works(&["mkfs", "--type", "f2fs", "--size", "128M", image]);
    let tree = directory.path().join("tree");
    write_tree(&tree);
    works(&["put", "-r", image, tree.to_str().unwrap(), "/tree"]);
    assert!(
        tool("fsck.f2fs", &["--dry-run", image])
            .contains("other corrupted bugs                           [Ok..]")
    );
    let copy = directory.path().join("copy");
    works(&["get", "-r", image, "/tree", copy.to_str().unwrap()]);
    runs(Command::new("diff").args(["-r", "--no-dereference"]).args([&tree, &copy]));
}

/// A mount is used, its server killed, and what `fsync` made durable is there; before the next mount, too.
#[test]
fn what_is_synchronised_on_a_mount_outlives_its_server() {
    if !mounts() {
        return;
    }
    for volume in [&["--volume"][..], &[]] {
        let place = Place::new();
        let path = place.volume();
        let path = path.to_str().unwrap();
        works(&[&["mkfs", "--type", "f2fs", "--size", "256M", path], volume].concat());
        let mut server = place.serve();
        let root = place.mountpoint();
        write_tree(&root.join("tree"));
        let status = place.status();
        assert_eq!(status["f2fs"]["cleaner"], if volume.is_empty() { "copy" } else { "share" });
        let table = fs::read_to_string("/proc/self/mounts").unwrap();
        let line = table.lines().find(|line| line.contains(root.to_str().unwrap())).unwrap();
        assert!(line.contains("noatime"), "{line}");
        // A checkpoint: it holds for all that was made before.
        fs::File::open(&root).unwrap().sync_all().unwrap();
        let file = fs::File::create(root.join("last")).unwrap();
        file.write_all_at(b"durable", 0).unwrap();
        file.sync_all().unwrap();
        server.kill();
        works(&["umount", place.mountpoint().to_str().unwrap()]);
        // On a file, whose blocks may be torn, a call of fsync writes a checkpoint.
        let is_told =
            works(&["fsck", path]).contains("1 file is durable in a newer state than the checkpoint");
        assert_eq!(is_told, !volume.is_empty());
        if volume.is_empty() {
            assert_eq!(works(&["cat", path, "/last"]), "durable");
        }
        let root = place.mount(&[]);
        assert_eq!(fs::read(root.join("last")).unwrap(), b"durable");
        let expected = place.path().join("expected");
        write_tree(&expected);
        runs(Command::new("diff").args(["-r", "--no-dereference"]).args([&expected, &root.join("tree")]));
        fs::remove_dir_all(root.join("tree")).unwrap();
        place.umount();
        assert!(works(&["fsck", path]).starts_with("clean: 2 inodes in use"));
    }
}

/// SQLite, as it is built in, knows the atomic writes of Linux's F2FS: a transaction is one update of the database, without a journal. It
/// is there after the server was killed.
#[test]
fn sqlite_writes_its_transactions_without_a_journal() {
    if !mounts() {
        return;
    }
    let place = Place::new();
    let path = place.volume();
    works(&["mkfs", "--type", "f2fs", "--volume", "--size", "128M", path.to_str().unwrap()]);
    let mut server = place.serve();
    let database = place.mountpoint().join("database");
    let connection = Connection::open(&database).unwrap();
    connection.pragma_update(None, "journal_mode", "DELETE").unwrap();
    connection.execute_batch("CREATE TABLE t (number INTEGER, text TEXT)").unwrap();
    let checkpoints = || place.status()["f2fs"]["checkpoints"].as_u64().unwrap();
    let insert = |connection: &Connection, from: u32| {
        for number in from..from + 20 {
            connection.execute("INSERT INTO t VALUES (?1, hex(randomblob(3000)))", [number]).unwrap();
        }
    };
    let before = checkpoints();
    insert(&connection, 0);
    assert_eq!(checkpoints(), before, "a journal is made and deleted, and its directory synchronised");
    // Control: with a journal there are checkpoints.
    let journaled = place.mountpoint().join("journaled");
    let other = Connection::open(&journaled).unwrap();
    other.pragma_update(None, "journal_mode", "TRUNCATE").unwrap();
    other
        .execute_batch(
            "CREATE TABLE t (number INTEGER, text TEXT); PRAGMA cache_spill = 1; PRAGMA cache_size = 1",
        )
        .unwrap();
    insert(&other, 0);
    assert!(checkpoints() > before);
    server.kill();
    works(&["umount", place.mountpoint().to_str().unwrap()]);
    drop((connection, other));
    place.mount(&[]);
    for file in [&database, &journaled] {
        let connection = Connection::open(file).unwrap();
        let sound: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        let rows: u32 = connection.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap();
        assert_eq!((sound.as_str(), rows), ("ok", 20), "{}", file.display());
    }
    place.unmount();
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
    refused(&["mkfs", "--type", "f2fs", "--size", "32M", image], "use 52 MiB or more");
    refused(&["mkfs", "--type", "f2fs", "--volume", "--size", "32M", image], "use 60 MiB or more");
    works(&["mkfs", "--type", "f2fs", "--size", "128M", image]);
    refused(&["mkfs", "--type", "f2fs", "--size", "128M", "--journal-size", "4M", image], "--journal-size");
    refused(&["mkfs", "--type", "f2fs", "--force", "--no-checksums", image], "--no-checksums");
    refused(&["mount", "--engine", "dual", image, directory.path().to_str().unwrap()], "--engine");
    refused(&["mount", "--discard-below", image, directory.path().to_str().unwrap()], "--discard-below");
    refused(&["bench", "cleaning", "--f2fs", "--size", "1G"], "--size");
    // Damage: the second half of the root's inode.
    let mut bytes = fs::read(image).unwrap();
    let root = bytes.windows(8).rposition(|word| word == [3, 0, 0, 0, 3, 0, 0, 0]).unwrap();
    bytes[root - 4000] ^= 1;
    fs::write(image, &bytes).unwrap();
    let output = weir(&["fsck", image]).output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", text(&output.stdout));
    assert!(text(&output.stdout).contains("checksum"));
}

/// What `mkfs` refuses it has not begun: the volume that was there is as it was. The sizes that it names are the least that it makes.
#[test]
fn a_volume_stays_where_no_filesystem_can_be_made_in_it() {
    let directory = directory();
    let image = directory.path().join("image");
    let image = image.to_str().unwrap();
    let long = "x".repeat(600);
    let size_of_volume = ["--volume", "--size", "52M"];
    let refused = |format: &str, more: &[&str], words: &str| {
        let before = fs::read(image).unwrap();
        let output =
            weir(&[&["mkfs", "--force", "--type", format, image][..], more].concat()).output().unwrap();
        let error = error_of(&output);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(words), "{error}");
        assert!(fs::read(image).unwrap() == before, "{format} {more:?}: changed");
    };
    works(&[&["mkfs", image][..], &size_of_volume].concat());
    let file = directory.path().join("file");
    fs::write(&file, "content").unwrap();
    works(&["put", image, file.to_str().unwrap(), "/"]);
    refused("f2fs", &["--volume"], "takes 52 MiB at least: use --size 60 MiB or more");
    refused("ext4", &["--volume", "--label", &long], "a label of more than 16 bytes");
    assert_eq!(works(&["cat", image, "/file"]), "content");
    for (size, volume) in [("52M", &[][..]), ("60M", &["--volume"])] {
        fs::remove_file(image).unwrap();
        let told = works(&[&["mkfs", "--type", "f2fs", "--size", size, image], volume].concat());
        assert!(told.contains("with room for"), "{told}");
        assert_eq!(told.contains("each barrier waits and flushes"), volume.is_empty(), "{told}");
        refused("f2fs", &[volume, &["--label", &long]].concat(), "label of more than 512 units");
    }
    fs::File::options().write(true).open(image).unwrap().set_len(51 << 20).unwrap();
    refused("f2fs", &[], "51 MiB is too small for the filesystem, which takes 52 MiB at least");
}

/// The space is what users can write, as `df` shows it, and files that only order are counted.
#[test]
fn status_tells_what_can_be_written_and_which_files_only_order() {
    if !mounts() {
        return;
    }
    let place = Place::new();
    works(&["mkfs", "--type", "f2fs", "--size", "128M", place.volume().to_str().unwrap()]);
    let root = place.mount(&[]);
    fs::write(root.join("file"), vec![1; 8 << 20]).unwrap();
    fs::File::open(&root).unwrap().sync_all().unwrap();
    setxattr(root.join("file"), "user.weir.sync", b"order", XattrFlags::empty()).unwrap();
    let space = statvfs(&root).unwrap();
    let json = place.status();
    assert_eq!(json["blocks_available"], space.f_bavail);
    assert!(space.f_bavail < space.f_bfree);
    let told = works(&["status", root.to_str().unwrap()]);
    assert!(told.contains("order only for 1 file (user.weir.sync)"), "{told}");
    let line = told.lines().find(|line| line.starts_with("space")).unwrap();
    let available =
        line.split_once(", ").and_then(|(_, rest)| rest.strip_suffix(" MiB of it can be written"));
    let available: f64 = available.unwrap().parse().unwrap();
    assert!((available - space.f_bavail as f64 / 256.0).abs() < 0.01, "{line}");
    place.end();
}

/// The number that a checkpoint pack has as its version.
fn version_of_pack(image: &[u8], pack: usize) -> u64 {
    u64::from_le_bytes(image[pack_start(pack)..][..8].try_into().unwrap())
}

/// Where a checkpoint pack begins: each has a segment of its own, behind that of the superblocks.
fn pack_start(pack: usize) -> usize {
    (pack + 1) << 21
}

/// The newest checkpoint is damaged, and the one before it is used: the check says so, and so does the log of a mount.
#[test]
fn a_damaged_checkpoint_is_told() {
    let directory = directory();
    let image = directory.path().join("image");
    let image = image.to_str().unwrap();
    works(&["mkfs", "--type", "f2fs", "--size", "128M", image]);
    let file = directory.path().join("file");
    fs::write(&file, "content").unwrap();
    works(&["put", image, file.to_str().unwrap(), "/"]);
    assert!(!works(&["fsck", image]).contains("checkpoint"));
    let mut bytes = fs::read(image).unwrap();
    let newest = usize::from(version_of_pack(&bytes, 1) > version_of_pack(&bytes, 0));
    bytes[pack_start(newest) + 16] ^= 1;
    fs::write(image, &bytes).unwrap();
    let told = works(&["fsck", image]);
    let block = format!("block {}", pack_start(newest) / 4096);
    assert!(told.contains(&block) && told.contains("the other one was used"), "{told}");
    assert!(told.lines().last().unwrap().starts_with("clean"), "{told}");
    if mounts() {
        let root = directory.path().join("root");
        fs::create_dir(&root).unwrap();
        let (root, log) = (root.to_str().unwrap(), directory.path().join("log"));
        works(&["mount", "--log", log.to_str().unwrap(), image, root]);
        works(&["umount", root]);
        let log = fs::read_to_string(log).unwrap();
        assert!(log.contains("WARN") && log.contains(&block), "{log}");
        assert!(!works(&["fsck", image]).contains("checkpoint"));
    }
}

/// One of the superblocks is damaged, and the other is used: the check finds it, commands warn, and one that changes the image
/// writes it anew.
#[test]
fn a_damaged_superblock_is_told_and_written_anew() {
    let directory = directory();
    let (image, file) = (directory.path().join("image"), directory.path().join("file"));
    fs::write(&file, "content").unwrap();
    let (image, file) = (image.to_str().unwrap(), file.to_str().unwrap());
    works(&["mkfs", "--type", "f2fs", "--size", "128M", image]);
    for copy in [0, 1] {
        let mut bytes = fs::read(image).unwrap();
        let whole = bytes[..8192].to_vec();
        bytes[copy * 4096 + 1124] ^= 1;
        fs::write(image, &bytes).unwrap();
        let check = weir(&["fsck", image]).output().unwrap();
        assert_eq!(check.status.code(), Some(4));
        assert!(text(&check.stdout).starts_with(&format!("block {copy}: this copy of the superblock")));
        let read = weir(&["ls", image]).output().unwrap();
        let warning = error_of(&read);
        assert!(
            read.status.success() && warning.contains("WARN") && warning.contains("superblock"),
            "{warning}"
        );
        assert_eq!(fs::read(image).unwrap(), bytes, "nothing is written by a command that reads");
        works(&["put", image, file, &format!("/{copy}")]);
        assert!(works(&["fsck", image]).starts_with("clean"));
        assert_eq!(fs::read(image).unwrap()[..8192], whole);
    }
}
