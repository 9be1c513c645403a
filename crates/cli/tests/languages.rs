//! The packages for other languages by their example, a write-ahead log whose records are ordered before what they are about, and
//! databases with commits that only order by these packages.
//! On a mount its calls order, elsewhere they flush. The mount's server is killed under it, and what is left is checked. Where a
//! language or FUSE is not to be had, this says that it was skipped.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::lag::status_now;
use crate::support::overlay::Overlay;
use crate::support::{Place, Server, fails, is_there, mounts, of_project, runs, text, works};

/// Numbers that are durable before the server is killed.
const ACKNOWLEDGED: usize = 5;

/// An example: it makes the command, whose arguments come then.
type Example<'a> = &'a dyn Fn() -> Command;

fn in_directory(example: Example<'_>, directory: &Path, arguments: &[&str]) -> Command {
    let mut command = example();
    command.arg(arguments[0]).arg(directory).args(&arguments[1..]);
    command
}

/// Has the example write; what it says.
fn begin_writer(example: Example<'_>, directory: &Path) -> (Child, impl FnMut() -> String) {
    let mut command = in_directory(example, directory, &["write"]);
    let mut writer = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut told = BufReader::new(writer.stdout.take().unwrap()).lines();
    (writer, move || told.next().unwrap().unwrap())
}

fn kill(mut writer: Child) {
    writer.kill().unwrap();
    writer.wait().unwrap();
}

/// Has the example write in a directory of a mount, or of an overlay over it, and kills the mount's server under it as soon
/// as the last number is durable: which that is.
fn kill_under(place: &Place, mut server: Server, example: Example<'_>, directory: &Path) -> String {
    let (writer, mut line) = begin_writer(example, directory);
    assert_eq!(line(), "ordered", "on a mount");
    let number = (1..ACKNOWLEDGED).map(|_| line().parse::<u64>().unwrap()).last().unwrap();
    let status = status_now(&place.mountpoint()).unwrap();
    let durable = line();
    server.kill();
    kill(writer);
    // A server that is killed while the machine goes on keeps more order than was asked for: so the calls are counted.
    // Each number is ordered, but every hundredth one, which is durable.
    let ordered = status["calls_ordered"].as_u64().unwrap();
    assert!(ordered >= number - number / 100, "{ordered} calls that order for {number} numbers");
    durable
}

/// Runs the example on the host's filesystem and on a mount with these options, kills the mount's server, mounts again, and has the
/// example look at what is left. Returns the server, and what was durable last.
fn kill_and_check(place: &Place, options: &[&str], example: Example<'_>) -> (Server, String) {
    let beside = place.path().join("host");
    std::fs::create_dir_all(&beside).unwrap();
    let (writer, mut line) = begin_writer(example, &beside);
    assert_eq!(line(), "durable", "on the host's filesystem");
    kill(writer);

    let durable = kill_under(place, place.serve_as(options), example, &place.mountpoint());
    place.unmount();
    let server = place.serve();
    runs(&mut in_directory(example, &place.mountpoint(), &["check", &durable]));
    (server, durable)
}

/// On an overlay over a mount whose `fsync` only orders no call says more than what was done: a barrier for the tree
/// fails, and what is made durable is durable.
fn keep_order_above(example: Example<'_>) {
    let place = Place::with_volume("64M");
    let server = place.serve_as(&["--sync", "order"]);
    let (lower, merged) = (place.path().join("lower"), place.path().join("merged"));
    let Some(overlay) = Overlay::new(&lower, &place.mountpoint(), &merged) else { return };
    require_refusal(example, overlay.merged());
    let durable = kill_under(&place, server, example, overlay.merged());
    overlay.end();
    place.unmount();
    let _server = place.serve();
    runs(&mut in_directory(example, &place.mountpoint().join("upper"), &["check", &durable]));
}

/// Where nothing can order the tree, the example and the command fail.
fn require_refusal(example: Example<'_>, directory: &Path) {
    let output = in_directory(example, directory, &["tree"]).output().unwrap();
    let told = text(&output.stderr);
    assert!(
        !output.status.success() && told.contains("peration not supported"),
        "{told}{}",
        text(&output.stdout)
    );
    fails(&["barrier", directory.to_str().unwrap()], &["peration not supported", "name the directory"]);
}

/// The kernel does not pass `syncfs` on to a server of FUSE. One that does not know the call neither orders the tree nor makes it durable,
/// and nothing says that it did.
fn refuse_other_servers(place: &Place, example: Example<'_>) {
    place.umount();
    let root = place.mountpoint();
    let directory = root.to_str().unwrap();
    works(&["disk", directory, "--volume", place.volume().to_str().unwrap()]);
    require_refusal(example, &root);
    works(&["umount", directory]);
}

/// The same of an example with a log and a table, which also orders the tree.
fn keep_order(example: Example<'_>) {
    keep_durable(example);
    keep_order_above(example);
    let place = Place::with_volume("64M");
    let (server, durable) = kill_and_check(&place, &[], example);
    let epochs = || place.status()["epochs"].as_u64().unwrap();
    let before = epochs();
    for (directory, kept) in [(place.path().join("host"), "durable"), (place.mountpoint(), "ordered")] {
        assert_eq!(
            runs(&mut in_directory(example, &directory, &["tree"])).trim(),
            kept,
            "{}",
            directory.display()
        );
    }
    assert!(epochs() > before, "the tree was not ordered");
    drop(server);
    refuse_other_servers(&place, example);
    place.mount(&[]);
    // The example that looks would see a table that is ahead of its log, and one that has lost what was durable.
    let log = std::fs::File::options().write(true).open(place.mountpoint().join("log")).unwrap();
    log.set_len(512).unwrap();
    let output = in_directory(example, &place.mountpoint(), &["check", &durable]).output().unwrap();
    let told = text(&output.stderr);
    assert!(!output.status.success() && told.contains("the log has 1 records"), "{told}");
}

/// Where `fsync` only orders, what the example makes durable is durable.
fn keep_durable(example: Example<'_>) {
    let place = Place::with_volume("64M");
    for _ in 0..3 {
        let (server, _) = kill_and_check(&place, &["--sync", "order"], example);
        drop(server);
        place.unmount();
    }
}

/// The same of a database that has a commit a number.
fn keep_commits(example: Example<'_>) {
    let place = Place::with_volume("64M");
    let (_server, _) = kill_and_check(&place, &[], example);
    // The example sees what is missing.
    let output = in_directory(example, &place.mountpoint(), &["check", "1000000000"]).output().unwrap();
    let told = text(&output.stderr);
    assert!(!output.status.success() && told.contains("1000000000 were durable"), "{told}");
}

#[test]
fn python_keeps_order() {
    if mounts() && is_there("python3") {
        keep_order(&|| {
            let mut command = Command::new("python3");
            command.env("PYTHONDONTWRITEBYTECODE", "1").arg(of_project("languages/python/wal.py"));
            command
        });
    }
}

/// Elsewhere `fsync` and its structures are others.
#[test]
fn the_python_package_is_for_linux() {
    if is_there("python3") {
        let script = "import sys; sys.platform = 'darwin'; import weir_order";
        let mut python = Command::new("python3");
        python.args(["-B", "-c", script]).env("PYTHONPATH", of_project("languages/python"));
        let output = python.output().unwrap();
        let told = text(&output.stderr);
        assert!(!output.status.success() && told.contains("ImportError: weir_order is for Linux"), "{told}");
    }
}

#[test]
fn go_keeps_order() {
    if mounts() && has_go(0) {
        let built = tempfile::tempdir().unwrap();
        let program = built.path().join("wal");
        build_go("languages/go", "./examples/wal", &program);
        keep_order(&|| Command::new(&program));
    }
}

/// Whether Go 1.`minor` is there, or a newer one.
fn has_go(minor: u32) -> bool {
    let told = Command::new("go").args(["env", "GOVERSION"]).output();
    let told = told.map_or_else(|_| String::new(), |output| text(&output.stdout));
    let found = told.trim().strip_prefix("go1.").and_then(|rest| rest.split('.').next()?.parse().ok());
    let is_there = found.is_some_and(|found: u32| found >= minor);
    if !is_there {
        eprintln!("skipped: this takes go 1.{minor}");
    }
    is_there
}

/// Builds a package of a module of the project. What it needs comes from the registry.
fn build_go(module: &str, package: &str, program: &Path) {
    let mut build = Command::new("go");
    build
        .env("GOCACHE", program.with_extension("cache"))
        .env("CGO_ENABLED", "0")
        .env("GOTOOLCHAIN", "local")
        .current_dir(of_project(module));
    runs(build.args(["build", "-o"]).arg(program).arg(package));
}

/// It builds redb from the registry.
#[test]
fn redb_keeps_order() {
    if mounts() {
        let built = tempfile::tempdir().unwrap();
        let mut build = Command::new(env!("CARGO"));
        build.current_dir(of_project("examples/redb")).args(["build", "--quiet", "--locked", "--target-dir"]);
        runs(build.arg(built.path()));
        let example = || Command::new(built.path().join("debug/redb-ordered"));
        keep_durable(&example);
        keep_commits(&example);
    }
}

/// It builds SQLite in Go, from the registry.
#[test]
fn sqlite_in_go_keeps_order() {
    if mounts() && has_go(26) {
        let built = tempfile::tempdir().unwrap();
        let program = built.path().join("go-sqlite");
        build_go("examples/go-sqlite", ".", &program);
        keep_commits(&|| Command::new(&program));
    }
}

#[test]
fn rust_keeps_order() {
    if mounts() {
        let built = tempfile::tempdir().unwrap();
        let mut build = Command::new(env!("CARGO"));
        build.current_dir(of_project("languages/rust")).args([
            "build",
            "--quiet",
            "--offline",
            "--example",
            "wal",
        ]);
        runs(build.arg("--target-dir").arg(built.path()));
        keep_order(&|| Command::new(built.path().join("debug/examples/wal")));
    }
}
