//! The outside judges: f2fs-tools, as child processes. Where they are missing, a test says so and passes.

use std::path::Path;

#[path = "../../../crash/src/system.rs"]
mod system;
use system::system;

/// Runs a program of f2fs-tools. What it prints, and whether it succeeds; `None`, with a word on it, where it is not
/// installed.
pub fn run(program: &str, arguments: &[&str], image: &Path) -> Option<(String, bool)> {
    let output = system(program).args(arguments).arg(image).env("LC_ALL", "C").output();
    let Ok(output) = output else {
        eprintln!("skipped: {program} is not installed");
        return None;
    };
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    Some((text, output.status.success()))
}

/// What fsck.f2fs complains about in the whole of an image, which it does not change. `None` where it is not installed.
pub fn find_complaints(image: &Path) -> Option<Vec<String>> {
    let (text, success) = run("fsck.f2fs", &["-f", "--dry-run"], image)?;
    let signs = ["[ASSERT", "[Fail", "[FIX", "Error", "error", "orrupt", "nvalid", "not match", "mismatch"];
    let is_fine = |line: &str| line.contains("[Ok..]") || line == "Info: Force to fix corruption";
    let is_complaint = |line: &&str| !is_fine(line) && signs.iter().any(|sign| line.contains(sign));
    let mut complaints: Vec<String> = text.lines().filter(is_complaint).map(str::to_owned).collect();
    // The check is not over before its last line.
    if !text.contains("Done:") || !text.contains("[FSCK] free segment_count matched") {
        complaints.push(format!("it did not come to its end: {text}"));
    }
    if !success {
        complaints.push("it failed".to_owned());
    }
    Some(complaints)
}
