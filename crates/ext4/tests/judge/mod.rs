//! The outside judges: e2fsprogs, as child processes. Where they are missing, a test says so and passes.

use std::fs::File;
use std::io::{Seek, Write};
use std::path::Path;
use std::process::Output;
use std::sync::atomic::{AtomicU32, Ordering};

#[path = "../../../crash/src/system.rs"]
mod system;
use system::system;

/// Runs a program of e2fsprogs with `input`. `None`, with a word on it, where it is not installed.
pub fn run(program: &str, arguments: &[&str], input: &[u8]) -> Option<Output> {
    let output = system(program)
        .args(arguments)
        .stdin(file_of(input))
        .env("DEBUGFS_PAGER", "cat")
        .env("LC_ALL", "C")
        .output();
    if output.is_err() {
        eprintln!("skipped: {program} is not installed");
    }
    output.ok()
}

/// A file without a name that holds `input`. A pipe would need a thread that fills it while the judge talks.
fn file_of(input: &[u8]) -> File {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let unique = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("weir-judge-{}-{unique}", std::process::id()));
    let mut file =
        File::options().read(true).write(true).create_new(true).open(&path).expect("a scratch file");
    std::fs::remove_file(&path).expect("its name is gone");
    file.write_all(input).expect("room in the temporary directory");
    file.rewind().expect("its start");
    file
}

/// What debugfs prints when it is given the lines of `script`, on an image opened for writing or on none.
pub fn debugfs_script(image: Option<&Path>, script: &[u8]) -> Option<String> {
    let image = image.map(|path| path.to_str().expect("a plain path"));
    let arguments: Vec<&str> = image.map_or(vec!["-f", "-"], |image| vec!["-w", "-f", "-", image]);
    let output = run("debugfs", &arguments, script)?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}
