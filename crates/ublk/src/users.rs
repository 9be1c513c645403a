//! Programs that use a block device: as long as one does, the device cannot go without loss.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

/// Takes the device for this process alone, or tells who uses it. What was written to it without a filesystem is handed
/// to the server. It waits for requests that the server answers. None where there is no device any more.
pub(crate) fn claim(device: &Path) -> Result<Option<File>, String> {
    let exclusive = OFlags::EXCL.bits().cast_signed();
    let file = match File::options().read(true).custom_flags(exclusive).open(device) {
        Ok(file) => file,
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::NOENT | Errno::NXIO | Errno::NODEV) => return Ok(None),
            Some(Errno::BUSY) => return Err(mount_of(device).unwrap_or_else(|| "the kernel".to_owned())),
            _ => return Err(error.to_string()),
        },
    };
    if let Some(process) = process_with(device) {
        return Err(format!("process {process}"));
    }
    file.sync_all().map_err(|error| error.to_string())?;
    Ok(Some(file))
}

/// The directory that the device, or a partition of it, is mounted on.
fn mount_of(device: &Path) -> Option<String> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    mounts.lines().find_map(|mount| {
        let (source, rest) = mount.split_once(' ')?;
        let directory = rest.split(' ').next()?;
        is_part_of(source, device).then(|| format!("the mount on {directory}"))
    })
}

/// Whether a name is that of the device or of a partition of it.
fn is_part_of(name: &str, device: &Path) -> bool {
    let rest = device.to_str().and_then(|device| name.strip_prefix(device));
    let is_number = |text: &str| text.parse::<u32>().is_ok();
    rest.is_some_and(|rest| rest.is_empty() || rest.strip_prefix('p').is_some_and(is_number))
}

/// A process other than this one that has the device open.
fn process_with(device: &Path) -> Option<u32> {
    let own = std::process::id();
    let numbers = fs::read_dir("/proc").ok()?.flatten();
    let mut numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers.find(|process| *process != own && has_open(*process, device).unwrap_or(false))
}

fn has_open(process: u32, device: &Path) -> io::Result<bool> {
    let mut files = fs::read_dir(format!("/proc/{process}/fd"))?.flatten();
    Ok(files.any(|file| {
        let target = fs::read_link(file.path());
        target.is_ok_and(|target| target.to_str().is_some_and(|name| is_part_of(name, device)))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_parts_of_a_device() {
        let device = Path::new("/dev/ublkb1");
        for name in ["/dev/ublkb1", "/dev/ublkb1p1", "/dev/ublkb1p12"] {
            assert!(is_part_of(name, device), "{name}");
        }
        for name in
            ["/dev/ublkb", "/dev/ublkb12", "/dev/ublkb1p", "/dev/ublkb1px", "/dev/ublkc1", "/dev/ublkb1 "]
        {
            assert!(!is_part_of(name, device), "{name}");
        }
    }

    #[test]
    fn a_program_with_a_file_open_is_found() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(process_with(file.path()), None, "this process does not count");
        let input = File::open(file.path()).unwrap();
        let mut program = std::process::Command::new("sleep").arg("60").stdin(input).spawn().unwrap();
        assert_eq!(process_with(file.path()), Some(program.id()));
        assert_eq!(claim(file.path()).unwrap_err(), format!("process {}", program.id()));
        program.kill().unwrap();
        program.wait().unwrap();
        assert!(claim(file.path()).unwrap().is_some());
        assert!(claim(Path::new("/dev/ublkb-none")).unwrap().is_none());
    }
}
