//! The libraries that other languages and programs as they are use Weir by, from outside: the examples in C and Python,
//! and the preloaded one under programs that know nothing of it. Where FUSE or a program is not to be had, these tests
//! say that they were skipped.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{Place, is_there, library, mounts, of_project, runs};

/// Runs a program: how many calls it made durable on a mount, and how many it only put in order.
fn calls_of(place: &Place, program: &mut Command) -> [u64; 2] {
    let calls = || {
        let status = place.status();
        ["calls_durable", "calls_ordered"].map(|name| status[name].as_u64().unwrap())
    };
    let before = calls();
    runs(program);
    let after = calls();
    [after[0] - before[0], after[1] - before[1]]
}

#[test]
fn a_program_in_c_orders_on_a_mount_and_synchronises_elsewhere() {
    if !mounts() || !is_there("cc") {
        return;
    }
    let place = Place::with_volume("256M");
    let built = library("libweir.so").parent().unwrap().to_owned();
    for (source, program) in [("examples/barrier.c", "barrier"), ("languages/measure.c", "measure")] {
        let mut compile = Command::new("cc");
        compile.args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"]);
        compile.arg(of_project("crates/capi/include")).arg(of_project(source)).arg("-L").arg(&built);
        runs(compile.args(["-lweir", "-o"]).arg(place.path().join(program)));
    }
    let program = place.path().join("barrier");
    let barrier = |directory: &Path| {
        let mut command = Command::new(&program);
        command.arg(directory).env("LD_LIBRARY_PATH", &built);
        command
    };
    let root = place.mount(&[]);
    assert_eq!(calls_of(&place, &mut barrier(&root)), [1, 1]);
    assert_eq!(runs(&mut barrier(&root)), "one barrier, one flush\n");
    assert_eq!(runs(&mut barrier(place.path())), "two flushes\n");
    assert_eq!(fs::read(root.join("log")).unwrap(), fs::read(place.path().join("log")).unwrap());
    let mut measure = Command::new(place.path().join("measure"));
    measure.arg("measure").arg(&root).env("LD_LIBRARY_PATH", &built);
    assert_eq!(calls_of(&place, &mut measure)[0], 0, "the measured calls only order");
    place.umount();
}

/// `dd` that makes what it wrote durable by one call.
fn dd(how: &str, to: &Path) -> Command {
    let mut command = Command::new("dd");
    command.args(["if=/dev/zero", "bs=4096", "count=3", "status=none", &format!("conv={how}")]);
    command.arg(format!("of={}", to.display()));
    command
}

fn preloaded(mut command: Command) -> Command {
    command.env("LD_PRELOAD", library("libweir_preload.so"));
    command
}

#[test]
fn a_program_as_it_is_only_orders_where_the_library_is_preloaded() {
    if !mounts() {
        return;
    }
    let place = Place::with_volume("256M");
    let root = place.mount(&[]);
    for how in ["fsync", "fdatasync"] {
        let file = root.join(how);
        assert_eq!(calls_of(&place, &mut dd(how, &file)), [1, 0], "{how}, without the library");
        assert_eq!(calls_of(&place, &mut preloaded(dd(how, &file))), [0, 1], "{how}");
    }
    place.umount();
}

/// On other filesystems the preloaded library passes the call on, with its error: strace sees it, and makes it fail.
#[test]
fn elsewhere_the_preloaded_library_does_what_it_stands_in_for() {
    if !is_there("strace") {
        return;
    }
    let place = Place::new();
    for how in ["fsync", "fdatasync"] {
        let traced = |more: &[&str]| {
            let mut command = Command::new("strace");
            let log = place.path().join("log");
            command.arg("-o").arg(&log).args(["-f", "-e", &format!("trace={how}")]).args(more);
            let library = library("libweir_preload.so");
            command.arg("-E").arg(format!("LD_PRELOAD={}", library.display()));
            let dd = dd(how, &place.path().join("file"));
            command.arg(dd.get_program()).args(dd.get_args());
            let worked = command.output().unwrap().status.success();
            (worked, fs::read_to_string(log).unwrap().matches(&format!("{how}(")).count())
        };
        assert_eq!(traced(&[]), (true, 1), "{how}");
        assert_eq!(traced(&["-e", &format!("inject={how}:error=EIO")]), (false, 1), "{how}");
    }
}
