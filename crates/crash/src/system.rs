//! Programs of the system that are not on the path of every user, such as `e2fsck`. Tests of other crates include this file.

use std::path::Path;
use std::process::Command;

/// Where they are.
const DIRECTORIES: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];

/// The command of a program, which finds others by these directories alone. It has its whole path: a process that starts a
/// program by its name, with another `PATH` than its own, is copied (`fork`), which takes long if its memory is large.
#[must_use]
pub fn system(program: &str) -> Command {
    let path =
        DIRECTORIES.iter().map(|directory| Path::new(directory).join(program)).find(|path| path.exists());
    let mut command = path.map_or_else(|| Command::new(program), Command::new);
    command.env("PATH", DIRECTORIES.join(":"));
    command
}
