//! The program as scripts and people meet it: what it prints, where, and its exit codes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::support::{self, weir_program};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn weir(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(weir_program()).current_dir(directory).args(arguments).output().unwrap()
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The command ends with `code`, and with one line on standard error that holds all of `words`.
fn fails(directory: &Path, arguments: &[&str], code: i32, words: &[&str]) {
    let output = support::ends_with(support::weir(arguments).current_dir(directory), &[code], words);
    assert_eq!(output, "", "{arguments:?}");
}

fn works(directory: &Path, arguments: &[&str]) -> String {
    let output = weir(directory, arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Where no terminal says otherwise, there are 80 columns.
fn fits_a_terminal(output: &str) {
    for line in output.lines() {
        assert!(line.chars().count() <= 80, "{} columns: {line}", line.chars().count());
    }
}

#[test]
fn bench_prints_one_document() {
    let directory = directory();
    let output = weir(directory.path(), &["bench", "disk", "--tiny", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let told = text(&output.stderr);
    let stages: Vec<&str> = told.lines().filter_map(|line| line.rsplit(": ").next()).collect();
    assert_eq!(stages, ["preparing", "round 1 of 2", "round 2 of 2", "done"], "{told}");
    let output = text(&output.stdout);
    let document: serde_json::Value = serde_json::from_str(&output).unwrap();
    for ratio in [
        "ordered_vs_raw_random",
        "ordered_vs_host_fdatasync",
        "flushed_vs_host_fdatasync",
        "ordered_bandwidth_share",
        "cost_of_order",
        "steady_state_vs_raw_random",
    ] {
        assert!(document["ratios"][ratio].as_f64().unwrap() > 0.0, "{ratio}");
    }
    assert!(document["modes"].as_array().unwrap().len() >= 12);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "files were left behind");
}

#[test]
fn bench_prints_tables_with_meanings() {
    let directory = directory();
    let output = works(directory.path(), &["bench", "disk", "--tiny"]);
    let words = [
        "Weir: barrier each / orderless",
        "Weir B / host pwrite + fdatasync",
        "loss window",
        "this disk",
        "the machine was",
        "A ratio compares two rates",
        "bytes to the disk per byte of data",
        "A crash may take the last",
        "2 rounds",
    ];
    for words in words {
        assert!(output.contains(words), "no {words:?} in {output}");
    }
    fits_a_terminal(&output);
}

#[test]
fn bench_puts_filesystems_side_by_side() {
    let directory = directory();
    let output = works(directory.path(), &["bench", "fs", "--tiny", "--json"]);
    let document: serde_json::Value = serde_json::from_str(&output).unwrap();
    for ratio in ["fsync_vs_host", "f2fs_fsync_vs_barrierfs", "f2fs_fbarrier_vs_barrierfs"] {
        assert!(document["ratios"][ratio].as_f64().unwrap() > 0.0, "{ratio}: {output}");
    }
    for rate in ["fdatabarrier_per_second", "fbarrier_per_second", "fsync_per_second"] {
        assert!(document["rates"][rate].as_f64().unwrap() > 0.0, "{rate}");
    }
    let output = works(directory.path(), &["bench", "fs", "--tiny"]);
    for words in [
        "host fs, append + fsync",
        "F2FS, append + fsync",
        "overwrite + fdatabarrier",
        "durable",
        "ordered",
        "loss window",
        "clean",
    ] {
        assert!(output.contains(words), "no {words:?} in {output}");
    }
    fits_a_terminal(&output);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "files were left behind");
}

#[test]
fn bench_puts_mounts_side_by_side() {
    if !support::mounts() {
        return;
    }
    let directory = directory();
    let output = works(directory.path(), &["bench", "mount", "--tiny", "--json"]);
    let document: serde_json::Value = serde_json::from_str(&output).unwrap();
    for ratio in ["ordered_vs_host_fdatasync", "durable_vs_host_fdatasync", "kernel_ext4_vs_host_fsync"] {
        assert!(document["ratios"][ratio].as_f64().unwrap() > 0.0, "{output}");
    }
    let modes = document["modes"].as_array().unwrap();
    // What need not wait for the disk is answered as it comes, so only the durable ones are there at one time.
    let deep = modes.iter().find(|mode| mode["name"] == "mount_direct_durable_depth_32").unwrap();
    let requests = deep["requests_max"].as_u64().unwrap();
    assert!(requests > 16, "the queue does not reach the server: {deep}");
    let output = works(directory.path(), &["bench", "mount", "--tiny", "--rounds", "1"]);
    for words in ["host fs, pwrite + fdatasync", "direct overwrite + fdatabarrier", "loss window", "clean"] {
        assert!(output.contains(words), "no {words:?} in {output}");
    }
    fits_a_terminal(&output);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "files were left behind");
}

#[test]
fn bench_compares_everyday_work_and_counts_requests() {
    if !support::mounts() || !["tar", "diff", "find", "grep", "git"].into_iter().all(support::is_there) {
        return;
    }
    let directory = directory();
    let output = works(directory.path(), &["bench", "everyday", "--tiny", "--json"]);
    let document: serde_json::Value = serde_json::from_str(&output).unwrap();
    for job in ["unpack", "compare_warm", "copy", "git_clone", "git_commit", "small_files", "remove"] {
        assert!(document["ratios"][job].as_f64().unwrap() > 0.0, "{job}: {output}");
    }
    // What the kernel has in its cache takes no request, where they can be counted.
    if let Some(requests) = document["requests"]["compare_warm"].as_f64() {
        assert!(requests <= 4.1, "two opens and two closes: {requests}");
        assert!(document["requests"]["copy"].as_f64().unwrap() < 9.0, "{output}");
    }
    let options = ["--tiny", "--no-open-requests", "--picture", "everyday.svg"];
    let output = works(directory.path(), &[&["bench", "everyday"], &options[..]].concat());
    assert!(output.contains("diff -r, warm"), "{output}");
    fits_a_terminal(&output);
    let picture = fs::read_to_string(directory.path().join("everyday.svg")).unwrap();
    assert!(picture.contains("<svg ") && picture.contains("diff -r, warm"), "{picture}");
    fs::remove_file(directory.path().join("everyday.svg")).unwrap();
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "files were left behind");
}

#[test]
fn bench_puts_reads_of_doors_side_by_side() {
    if !support::mounts() {
        return;
    }
    let directory = directory();
    let output = works(directory.path(), &["bench", "reads", "--tiny", "--json"]);
    let document: serde_json::Value = serde_json::from_str(&output).unwrap();
    for ratio in
        ["mount_random_depth_1", "mount_random_depth_32", "disk_random_depth_1", "disk_random_depth_32"]
    {
        assert!(document["ratios"][ratio].as_f64().unwrap() > 0.0, "{ratio}: {output}");
    }
    let output = works(directory.path(), &["bench", "reads", "--tiny"]);
    assert!(output.contains("random, depth 32"), "{output}");
    fits_a_terminal(&output);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "files were left behind");
}

#[test]
fn bench_puts_sqlite_in_different_places() {
    let directory = directory();
    let output = works(directory.path(), &["bench", "sqlite", "--tiny", "--json"]);
    let document: serde_json::Value = serde_json::from_str(&output).unwrap();
    // A mount, and memory as a filesystem, are not to be had everywhere.
    for ratio in ["durable_vs_host", "order_in_process_vs_host"] {
        assert!(document["ratios"][ratio].as_f64().unwrap() > 0.0, "{output}");
    }
    let ways = document["ways"].as_array().unwrap();
    let way = |name: &str| ways.iter().find(|way| way["name"] == name).unwrap();
    assert!(way("in_process_wal_order")["loss_window"]["ms_max"].as_f64().is_some(), "{output}");
    assert!(
        way("host_persist_full")["durable"] == true && way("in_process_persist_order")["durable"] == false
    );
    let output = works(directory.path(), &["bench", "sqlite", "--tiny", "--rounds", "1"]);
    for words in ["in process", "PERSIST", "loss window", "durable: in process / host FULL: "] {
        assert!(output.contains(words), "no {words:?} in {output}");
    }
    fits_a_terminal(&output);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "files were left behind");
}

#[test]
fn one_round_has_no_spread() {
    let directory = directory();
    let output = works(directory.path(), &["bench", "disk", "--tiny", "--rounds", "1"]);
    assert!(output.contains("One round: spread unknown"), "{output}");
    assert!(!output.lines().any(|line| line.contains("..") && !line.contains("min..max")), "{output}");
}

#[test]
fn help_says_what_it_is_for() {
    let directory = directory();
    for words in ["Barriers on any disk", "bench", "volume", "Exit codes", "Examples"] {
        assert!(works(directory.path(), &["--help"]).contains(words), "{words}");
    }
}

#[test]
fn bench_measures_an_emulated_device() {
    let directory = directory();
    let tiny = ["bench", "device", "ufs20", "--tiny", "--rounds", "1"];
    let output = works(directory.path(), &tiny);
    for words in [
        "its own barrier",
        "Weir B, steady",
        "Weir B, steady / raw disk, depth 32",
        "ufs20",
        "in memory",
        "in-order-recovery",
        "left out",
    ] {
        assert!(output.contains(words), "{words}: {output}");
    }
    assert!(!output.contains("host fs") && !output.contains("host pwrite"), "{output}");
    let output = works(directory.path(), &[&tiny[..], &["--json", "--backing", "."]].concat());
    let document: serde_json::Value = serde_json::from_str(&output).unwrap();
    assert_eq!((&document["device"]["name"], &document["device"]["backing"]), (&"ufs20".into(), &".".into()));
    assert!(document["disk"].is_null() && document["ratios"]["own_barrier_vs_raw_random"].is_number());
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    fails(directory.path(), &[&tiny[..], &["--backing", "nowhere"]].concat(), 2, &["nowhere", "--backing"]);
    let refused = weir(directory.path(), &["bench", "disk", "--tiny", "--backing", "."]);
    assert!(text(&refused.stderr).contains("--backing"), "{refused:?}");
}

#[test]
fn bench_names_what_is_wrong() {
    let directory = directory();
    fails(directory.path(), &["bench", "--on", "nowhere"], 2, &["nowhere", "No such file"]);
    fails(directory.path(), &["bench", "--size", "1K"], 2, &["--size", "MiB"]);
    fails(directory.path(), &["bench", "--size", "900G"], 2, &["free", "--size"]);
    fs::write(directory.path().join("weir-bench-raw"), "a letter").unwrap();
    fails(directory.path(), &["bench", "disk", "--tiny", "--keep"], 2, &["weir-bench-raw", "delete", "--on"]);
    let refused = weir(directory.path(), &["bench", "cleaning", "--quick"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("unexpected argument"), "{}", text(&refused.stderr));
}

#[test]
fn a_volume_is_made_shown_and_checked() {
    let directory = directory();
    let made = works(directory.path(), &["volume", "create", "a.weir", "--size", "64M"]);
    assert!(made.contains("a.weir") && made.contains("MiB"), "{made}");
    assert_eq!(fs::metadata(directory.path().join("a.weir")).unwrap().len(), 64 << 20);
    let info = works(directory.path(), &["volume", "info", "a.weir"]);
    assert!(info.contains("format version    2") && info.contains("shares            yes"), "{info}");
    assert!(works(directory.path(), &["volume", "upgrade", "a.weir"]).contains("takes shares already"));
    assert!(works(directory.path(), &["volume", "check", "a.weir"]).starts_with("clean: 0 live blocks"));
    works(directory.path(), &["volume", "create", "c.weir", "--size", "64M"]);
    let identity = |info: &str| info.lines().find(|line| line.starts_with("volume ")).map(str::to_owned);
    let other = identity(&works(directory.path(), &["volume", "info", "c.weir"]));
    assert!(other.is_some() && other != identity(&info), "two volumes of one identity: {info}");
    let thin = works(directory.path(), &["volume", "create", "b.weir", "--size", "64M", "--logical", "1G"]);
    assert!(thin.contains("1 GiB"), "{thin}");
}

#[test]
fn an_empty_file_is_used() {
    let directory = directory();
    fs::write(directory.path().join("empty"), "").unwrap();
    fails(directory.path(), &["volume", "create", "empty"], 2, &["--size"]);
    works(directory.path(), &["volume", "create", "empty", "--size", "64M"]);
    works(directory.path(), &["volume", "check", "empty"]);
}

#[test]
fn nothing_is_overwritten_without_force() {
    let directory = directory();
    let file = directory.path().join("letters");
    let content = b"dear reader, ".repeat(1 << 20);
    fs::write(&file, &content).unwrap();
    fails(directory.path(), &["volume", "create", "letters"], 2, &["letters", "--force"]);
    fails(directory.path(), &["volume", "create", "letters", "--size", "64M"], 2, &["letters", "--size"]);
    assert!(fs::read(&file).unwrap() == content, "the file was changed");
    works(directory.path(), &["volume", "create", "letters", "--force"]);
    fails(directory.path(), &["volume", "create", "letters"], 2, &["a volume of Weir", "--force"]);
}

#[test]
fn what_is_no_volume_cannot_be_looked_at() {
    let directory = directory();
    fs::write(directory.path().join("foreign"), vec![7; 1 << 20]).unwrap();
    for command in ["info", "check"] {
        fails(
            directory.path(),
            &["volume", command, "foreign"],
            2,
            &["foreign", "nor a volume of Weir", "byte 0 is not zero"],
        );
        fails(directory.path(), &["volume", command, "missing"], 2, &["missing", "does not exist"]);
        fails(directory.path(), &["volume", command, "."], 2, &["directory"]);
    }
}

#[test]
fn a_damaged_volume_has_its_own_exit_code() {
    let directory = directory();
    works(directory.path(), &["volume", "create", "a.weir", "--size", "64M"]);
    damage_superblock(&directory.path().join("a.weir"), &[0, 1]);
    let output = weir(directory.path(), &["volume", "check", "a.weir"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let found = text(&output.stdout);
    assert!(found.starts_with("damaged:"), "{found}");
    assert_eq!(found.matches("damaged").count(), 1, "{found}");
}

/// Writes one bit of each copy of the superblock listed, behind the magic and the version.
fn damage_superblock(file: &Path, copies: &[usize]) {
    let mut content = fs::read(file).unwrap();
    for copy in copies {
        content[copy * 4096 + 40] ^= 1;
    }
    fs::write(file, content).unwrap();
}

#[test]
fn a_lost_copy_of_the_superblock_is_damage() {
    let directory = directory();
    for copy in [0, 1] {
        works(directory.path(), &["volume", "create", "a.weir", "--size", "64M"]);
        let file = directory.path().join("a.weir");
        damage_superblock(&file, &[copy]);
        let output = weir(directory.path(), &["volume", "check", "a.weir"]);
        let found = text(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{found}{}", text(&output.stderr));
        assert!(found.starts_with("damaged:") && found.contains("redundancy is lost: 1 of 2"), "{found}");
        works(directory.path(), &["volume", "info", "a.weir"]);
        fs::remove_file(file).unwrap();
    }
}

#[test]
fn a_truncated_volume_is_told_in_sizes() {
    let directory = directory();
    works(directory.path(), &["volume", "create", "a.weir", "--size", "64M"]);
    let file = fs::OpenOptions::new().write(true).open(directory.path().join("a.weir")).unwrap();
    file.set_len(32 << 20).unwrap();
    let output = weir(directory.path(), &["volume", "check", "a.weir"]);
    let found = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{found}");
    assert!(found.contains("64 MiB") && found.contains("32 MiB"), "{found}");
    fails(directory.path(), &["volume", "info", "a.weir"], 2, &["64 MiB", "32 MiB"]);
}

#[test]
fn a_volume_that_cannot_be_made_leaves_things_as_they_were() {
    let directory = directory();
    let create = |path: &str, arguments: &[&str], words: &[&str]| {
        fails(directory.path(), &[&["volume", "create", path], arguments].concat(), 2, words);
    };
    fs::write(directory.path().join("empty"), "").unwrap();
    for (arguments, words) in [
        (&["--size", "1M"][..], &["1 MiB", "at least", "--size"][..]),
        (&["--size", "100"], &["100"]),
        (&["--size", "64M", "--logical", "100"], &["--logical", "100 B", "less than", "4096"]),
        (&["--size", "64M", "--logical", "1T"], &["--logical", "1 TiB", "64 MiB"]),
        (&["--size", "64M", "--logical", "20T"], &["16 TiB"]),
        (&[], &["--size"]),
    ] {
        create("new.weir", arguments, words);
        assert!(!directory.path().join("new.weir").exists(), "{arguments:?}");
        create("empty", arguments, words);
        assert_eq!(fs::metadata(directory.path().join("empty")).unwrap().len(), 0, "{arguments:?}");
    }
    works(directory.path(), &["volume", "create", "empty", "--size", "64M"]);
}

/// What an error says is needed is enough.
#[test]
fn the_size_that_an_error_names_is_enough() {
    let directory = directory();
    for more in [&[][..], &["--logical", "64G"]] {
        let create = |size: &str| {
            weir(directory.path(), &[&["volume", "create", "a.weir", "--size", size], more].concat())
        };
        let error = text(&create("1M").stderr);
        let needed = error.split_once(" MiB at least").or(error.split_once(" MiB on disk at least")).unwrap();
        let needed = needed.0.rsplit(' ').next().unwrap();
        assert_eq!(create(&format!("{needed}M")).status.code(), Some(0), "{error}");
        fs::remove_file(directory.path().join("a.weir")).unwrap();
    }
}

#[test]
fn an_image_where_something_else_is_wanted_is_told_with_what_looks_at_it() {
    let directory = directory();
    works(directory.path(), &["mkfs", "a.img", "--size", "16M"]);
    for command in ["info", "check"] {
        let words = ["a.img", "it holds an ext4 filesystem", "`weir ls a.img`", "`weir fsck a.img`"];
        fails(directory.path(), &["volume", command, "a.img"], 2, &words);
    }
    for command in ["status", "umount"] {
        let words = ["a.img", "name the directory", "`weir volume info a.img`"];
        fails(directory.path(), &[command, "a.img"], 2, &words);
    }
}

#[test]
fn a_mount_that_is_refused_says_what_to_do() {
    let directory = directory();
    works(directory.path(), &["volume", "create", "a.weir", "--size", "16M"]);
    // One line: the warning of what fsync means comes with a mount only.
    let mount = ["mount", "--sync", "order", "a.weir", "none"];
    fails(directory.path(), &mount, 2, &["No such file", "mkdir -p none"]);
    fails(
        directory.path(),
        &["mount", ".", "a.weir"],
        2,
        &["a.weir", "Not a directory", "behind it a directory"],
    );
    for (options, words) in [
        ("ro,allow_other", "`--allow-other --read-only`"),
        ("defaults", "write nothing"),
        ("suid", "\"suid\" is no option"),
    ] {
        fails(directory.path(), &["mount", "-o", options, "a.weir", "none"], 2, &["mount -t weir", words]);
    }
}

#[test]
fn an_unknown_command_is_told_the_known_ones() {
    let directory = directory();
    for (arguments, words) in [
        (
            &["volume", "show", "a.weir"][..],
            "Commands of weir volume: create, info, check, repair, grow, shrink, upgrade",
        ),
        (&["unmount", "a"], "mkfs, mount, status, barrier, umount, restart"),
    ] {
        let output = weir(directory.path(), arguments);
        let error = text(&output.stderr);
        assert!(output.status.code() == Some(2) && error.contains(words), "{error}");
    }
}

/// Makes an ext4 filesystem by the outside program; false where it is not installed.
fn make_filesystem(path: &Path) -> bool {
    let arguments = ["-q", "-F", "-b", "4096", path.to_str().unwrap(), "64M"];
    let made = ["/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4"]
        .iter()
        .find_map(|program| Command::new(program).args(arguments).status().ok());
    if made.is_none() {
        eprintln!("skipped: mkfs.ext4 is not installed");
    }
    made.is_some_and(|status| status.success())
}

#[test]
fn fsck_ends_like_e2fsck() {
    let directory = directory();
    let image = directory.path().join("disk.img");
    if !make_filesystem(&image) {
        return;
    }
    let clean = works(directory.path(), &["fsck", "disk.img"]);
    assert!(clean.starts_with("clean: 2 inodes in use, 2 of them directories; "), "{clean}");
    let document: serde_json::Value =
        serde_json::from_str(&works(directory.path(), &["fsck", "disk.img", "--json"])).unwrap();
    assert_eq!((&document["clean"], &document["directories"]), (&true.into(), &2.into()));

    // One bit of the first descriptor.
    let mut bytes = fs::read(&image).unwrap();
    bytes[4096 + 12] ^= 1;
    fs::write(&image, &bytes).unwrap();
    let output = weir(directory.path(), &["fsck", "disk.img"]);
    assert_eq!(output.status.code(), Some(4));
    let said = text(&output.stdout);
    assert!(said.starts_with("group 0: the checksum of the group descriptor"), "{said}");
    let output = weir(directory.path(), &["fsck", "disk.img", "--json"]);
    assert_eq!(output.status.code(), Some(4));
    let document: serde_json::Value = serde_json::from_str(&text(&output.stdout)).unwrap();
    assert_eq!((&document["clean"], &document["findings"][0]["place"]), (&false.into(), &"group 0".into()));
    assert_eq!(fs::read(&image).unwrap(), bytes, "nothing is written");
}

#[test]
fn what_cannot_be_checked_ends_fsck_with_8() {
    let directory = directory();
    fs::write(directory.path().join("zeros"), vec![0; 1 << 20]).unwrap();
    fs::write(directory.path().join("nothing"), b"").unwrap();
    fails(directory.path(), &["fsck", "missing"], 8, &["missing"]);
    let words = ["zeros", "neither ext4, nor F2FS, nor a volume", "`weir mkfs --volume zeros`"];
    fails(directory.path(), &["fsck", "zeros"], 8, &words);
    fails(directory.path(), &["fsck", "nothing"], 8, &["nothing"]);
}
