//! Opening a file or device that another process may be about to close.
//!
//! After a kill, the kernel first completes the commands that the process had in flight at the disk, and its lock lives
//! as long. So a command that finds a disk locked waits a little, and then names the process that has it.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use rustix::fs::{major, minor};
use weir_runtime::Handle;
use weir_storage::{FileDisk, FileDiskError, FileDiskOptions};

use crate::error::CliError;
use crate::mountpoint::mountpoint_of;

/// How long the lock of another process is waited for. The commands of a killed process take a busy disk up to half a
/// second.
const PATIENCE: Duration = Duration::from_secs(3);
/// From one attempt to the next.
const PAUSE: Duration = Duration::from_millis(20);

/// Opens what is at `path` as a disk, and waits some seconds for a process that has it open.
///
/// # Errors
/// [`CliError::Held`] if a process still has it then; [`CliError::Disk`] otherwise.
pub(crate) async fn open_disk(
    handle: &Handle,
    path: &Path,
    options: FileDiskOptions,
) -> Result<Rc<FileDisk>, CliError> {
    let began = handle.now();
    loop {
        match FileDisk::open(handle, path, options.clone()) {
            Err(FileDiskError::Locked { .. } | FileDiskError::Busy { .. })
                if handle.now().since(began) < PATIENCE =>
            {
                handle.sleep(PAUSE).await;
            }
            Err(FileDiskError::Locked { path }) => {
                let process = holder(&path);
                let served = process.and_then(|process| Some((process, served_address(process)?)));
                let (holder, mountpoint) = (process.map(process_text), mountpoint_of(&path));
                return Err(CliError::Held { holder, mountpoint, served, path });
            }
            opened => return Ok(opened?),
        }
    }
}

/// The process that has a lock on a file, if the kernel names it.
fn holder(path: &Path) -> Option<u32> {
    let file = path.metadata().ok()?;
    let device = file.dev();
    let place = format!("{:02x}:{:02x}:{}", major(device), minor(device), file.ino());
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    holder_of(&locks, &place)
}

/// A process that has a file, as `process 123 (weir)`.
fn process_text(process: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{process}/comm"));
    match name {
        Ok(name) => format!("process {process} ({})", name.trim_end()),
        Err(_) => format!("process {process}, which has ended: the kernel is still at its last writes"),
    }
}

/// Where a process serves a volume by a socket, as its arguments have it; none of another process.
fn served_address(process: u32) -> Option<String> {
    let line = std::fs::read(format!("/proc/{process}/cmdline")).ok()?;
    let arguments: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    let address = ["--nbd", "--vhost-user"].into_iter().find_map(|option| {
        let at = arguments.iter().position(|argument| argument.starts_with(option))?;
        let behind = arguments[at].strip_prefix(option)?.strip_prefix('=');
        behind.or_else(|| arguments.get(at + 1).map(|next| &**next))
    })?;
    arguments.iter().any(|argument| argument == "serve").then(|| address.to_owned())
}

/// The process that has a lock on the whole of a file, by the kernel's list: a line each, as
/// `1: FLOCK ADVISORY WRITE 123 fe:00:456 0 EOF`. The line of a process that waits for a lock has an arrow.
fn holder_of(locks: &str, place: &str) -> Option<u32> {
    let has = |line: &&str| {
        let mut words = line.split_whitespace().skip(1);
        words.next() == Some("FLOCK") && words.nth(3) == Some(place)
    };
    locks.lines().find(has)?.split_whitespace().nth(4)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::holder_of;

    #[test]
    fn the_holder_of_a_lock_is_found_in_the_kernels_list() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 fe:00:456 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 12 fe:00:457 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 13 fe:00:456 0 EOF\n\
                     3: -> FLOCK  ADVISORY  WRITE 14 fe:00:456 0 EOF\n\
                     4: FLOCK  ADVISORY  READ  -1 fe:00:458 0 EOF\n\
                     5:\n";
        assert_eq!(holder_of(locks, "fe:00:456"), Some(13));
        assert_eq!(holder_of(locks, "fe:00:458"), None);
        assert_eq!(holder_of(locks, "fe:00:459"), None);
    }
}
