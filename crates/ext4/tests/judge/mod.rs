//! The outside judges: e2fsprogs, as child processes. Where they are missing, a test says so and passes.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs a program of e2fsprogs with `input`. `None`, with a word on it, where it is not installed.
pub fn run(program: &str, arguments: &[&str], input: &[u8]) -> Option<Output> {
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .env("DEBUGFS_PAGER", "cat")
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .spawn();
    let Ok(mut child) = child else {
        eprintln!("skipped: {program} is not installed");
        return None;
    };
    let mut pipe = child.stdin.take().expect("a pipe");
    let input = input.to_vec();
    let writer = std::thread::spawn(move || pipe.write_all(&input));
    let output = child.wait_with_output().expect("the judge ends");
    // A judge that stops early does not read all of its input.
    let _ = writer.join().expect("the writer ends");
    Some(output)
}

/// What debugfs prints when it is given the lines of `script`, on an image opened for writing or on none.
pub fn debugfs_script(image: Option<&Path>, script: &[u8]) -> Option<String> {
    let image = image.map(|path| path.to_str().expect("a plain path"));
    let arguments: Vec<&str> = image.map_or(vec!["-f", "-"], |image| vec!["-w", "-f", "-", image]);
    let output = run("debugfs", &arguments, script)?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}
