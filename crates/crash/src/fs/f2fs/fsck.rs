//! The judge that shares no code with us: fsck.f2fs, of an image that it does not change.

use std::process::Command;

use tempfile::TempDir;

use crate::fs::outside::write_sparsely;
use crate::system::system;

/// Signs of complaints in what it prints.
const SIGNS: [&str; 9] =
    ["[ASSERT", "[Fail", "[FIX", "Error", "error", "orrupt", "nvalid", "not match", "mismatch"];

fn command() -> Command {
    let mut command = system("fsck.f2fs");
    command.env("LC_ALL", "C");
    command
}

/// Whether it is installed.
pub(super) fn is_there() -> bool {
    command().arg("-V").output().is_ok()
}

/// Whether it finds an image clean; if not, what it says.
pub(super) fn judge(image: &[u8]) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("showing an image to fsck.f2fs: {error}");
    let place = TempDir::new().map_err(failed)?;
    let path = place.path().join("image");
    write_sparsely(&path, image).map_err(failed)?;
    let output = command().args(["-f", "--dry-run"]).arg(&path).output().map_err(failed)?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let is_fine = |line: &str| line.contains("[Ok..]") || line == "Info: Force to fix corruption";
    let complains = |line: &&str| !is_fine(line) && SIGNS.iter().any(|sign| line.contains(sign));
    if let Some(line) = text.lines().find(complains) {
        return Err(format!("fsck.f2fs says: {line}"));
    }
    // The check is not over before its last line.
    match output.status.success() && text.contains("Done:") {
        true => Ok(()),
        false => Err(format!("fsck.f2fs did not come to its end: {text}")),
    }
}
