//! Programs that use a block device: as long as one does, the device cannot go without loss. Before Linux 7.0 the
//! kernel does not say whether a device is open, so this looks where it says what each process and device has open.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, FileType, OFlags, StatxFlags, statx};
use rustix::io::Errno;
use weir_runtime::Handle;

/// When to look again.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Takes the device for this process alone, or tells who uses it when this time is over. What was written to it without
/// a filesystem is handed to the server. None where there is no device any more.
pub(crate) async fn claim_within(
    handle: &Handle,
    device: PathBuf,
    within: Duration,
) -> Result<Option<File>, String> {
    let began = handle.now();
    loop {
        let path = device.clone();
        let claimed = handle.blocking(move || claim(&path)).await;
        match claimed.unwrap_or_else(|_| Err("a program, perhaps: no thread can look".to_owned())) {
            Err(_) if handle.now().since(began) < within => handle.sleep(LOOK_AGAIN).await,
            claimed => return claimed,
        }
    }
}

/// It waits for requests that the server answers.
fn claim(device: &Path) -> Result<Option<File>, String> {
    let exclusive = OFlags::EXCL.bits().cast_signed();
    let search = || Search::of(device, Path::new("/proc"), Path::new("/sys/block"));
    let file = match File::options().read(true).custom_flags(exclusive).open(device) {
        Ok(file) => file,
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::NOENT | Errno::NXIO | Errno::NODEV) => return Ok(None),
            Some(Errno::BUSY) => return Err(search().user().unwrap_or_else(|| "the kernel".to_owned())),
            _ => return Err(error.to_string()),
        },
    };
    if let Some(user) = search().user() {
        return Err(user);
    }
    file.sync_all().map_err(|error| error.to_string())?;
    Ok(Some(file))
}

/// What still has a device open that is shown no more, or its server's side.
pub(crate) fn holder_of(number: u32) -> Option<String> {
    let (proc, blocks) = (Path::new("/proc"), Path::new("/sys/block"));
    [format!("/dev/ublkb{number}"), format!("/dev/ublkc{number}")]
        .iter()
        .find_map(|path| Search::of(Path::new(path), proc, blocks).user())
}

/// A node of a device, by the numbers that the kernel gave it; its name may be any.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Node {
    Block(String),
    Character(String),
}

impl Node {
    /// None where a file is no device. A server of files that does not answer is not waited for.
    fn of(path: &Path) -> Option<Node> {
        let found = statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE).ok()?;
        let number = format!("{}:{}", found.stx_rdev_major, found.stx_rdev_minor);
        match FileType::from_raw_mode(found.stx_mode.into()) {
            FileType::BlockDevice => Some(Node::Block(number)),
            FileType::CharacterDevice => Some(Node::Character(number)),
            _ => None,
        }
    }
}

/// A search for what uses a device or a partition of it, in a tree as that of `/proc` and one as that of `/sys/block`.
struct Search<'a> {
    device: &'a Path,
    proc: &'a Path,
    blocks: &'a Path,
    /// Of the device and its partitions.
    nodes: BTreeSet<Node>,
    /// The directories of these in the tree of block devices.
    directories: Vec<PathBuf>,
}

impl<'a> Search<'a> {
    fn of(device: &'a Path, proc: &'a Path, blocks: &'a Path) -> Search<'a> {
        let disk = device.file_name().map_or_else(PathBuf::new, |name| blocks.join(name));
        let mut directories: Vec<PathBuf> = entries(&disk)
            .filter(|part| {
                part.file_name().is_some_and(|name| is_part_of(&device.with_file_name(name), device))
            })
            .collect();
        directories.push(disk);
        let number = |directory: &PathBuf| fs::read_to_string(directory.join("dev")).ok();
        let numbers = directories.iter().filter_map(number);
        let mut nodes: BTreeSet<Node> =
            numbers.map(|number| Node::Block(number.trim_end().to_owned())).collect();
        nodes.extend(Node::of(device));
        Search { device, proc, blocks, nodes, directories }
    }

    /// What uses it, other than this process.
    fn user(&self) -> Option<String> {
        let mut processes: Vec<u32> =
            entries(self.proc).filter_map(|entry| entry.file_name()?.to_str()?.parse().ok()).collect();
        let own = std::process::id();
        // The mounts that people see come first, then those of other namespaces.
        processes.sort_by_key(|process| (*process != own, *process));
        let mount = processes.iter().find_map(|process| {
            let directory = self.mount_of(*process)?;
            Some(format!("the mount on {directory}"))
        });
        let process = || {
            let mut others = processes.iter().filter(|process| **process != own);
            others.find(|process| self.is_open_in(**process)).map(|process| format!("process {process}"))
        };
        mount.or_else(|| self.holder()).or_else(|| self.loop_device()).or_else(process)
    }

    /// The directory that a process sees it mounted on.
    fn mount_of(&self, process: u32) -> Option<String> {
        let mounts = fs::read_to_string(self.proc.join(format!("{process}/mountinfo"))).ok()?;
        mounts.lines().find_map(|mount| {
            // proc_pid_mountinfo(5): number, parent, device, root, directory, options; behind the dash type and source.
            let (before, behind) = mount.split_once(" - ")?;
            let mut fields = before.split(' ').skip(2);
            let (number, directory) = (fields.next()?, fields.nth(1)?);
            let source = behind.split(' ').nth(1)?;
            // A filesystem of several devices has a number of its own.
            let is_its = self.nodes.contains(&Node::Block(number.to_owned()));
            (is_its || is_part_of(Path::new(source), self.device)).then(|| directory.to_owned())
        })
    }

    /// A device of LVM, RAID or encryption above it.
    fn holder(&self) -> Option<String> {
        let mut holders = self.directories.iter().flat_map(|directory| entries(&directory.join("holders")));
        holders.find_map(|holder| Some(format!("the device {}", holder.file_name()?.to_str()?)))
    }

    /// A loop device whose file it is: that claims nothing.
    fn loop_device(&self) -> Option<String> {
        entries(self.blocks).find_map(|block| {
            let file = fs::read_to_string(block.join("loop/backing_file")).ok()?;
            let name = block.file_name()?.to_str()?;
            let file = Path::new(file.trim_end_matches('\n'));
            let is_node = || file.starts_with("/dev") && self.is_node(file);
            (is_part_of(file, self.device) || is_node()).then(|| format!("the device {name}"))
        })
    }

    /// Whether a process has it open or mapped. Its links in the tree lead to the files themselves, whatever their
    /// names are there.
    fn is_open_in(&self, process: u32) -> bool {
        ["fd", "map_files"].iter().any(|directory| {
            let mut links = entries(&self.proc.join(format!("{process}/{directory}")));
            links.any(|link| {
                let is_named = || fs::read_link(&link).is_ok_and(|name| is_part_of(&name, self.device));
                self.is_node(&link) || is_named()
            })
        })
    }

    fn is_node(&self, path: &Path) -> bool {
        Node::of(path).is_some_and(|node| self.nodes.contains(&node))
    }
}

/// What is in a directory; nothing in one that cannot be read.
fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// Whether a name is that of the device or of a partition of it. The kernel marks names that are gone.
fn is_part_of(name: &Path, device: &Path) -> bool {
    let names = name.to_str().zip(device.to_str());
    let rest =
        names.and_then(|(name, device)| name.strip_suffix(" (deleted)").unwrap_or(name).strip_prefix(device));
    let is_number = |text: &str| text.parse::<u32>().is_ok();
    rest.is_some_and(|rest| rest.is_empty() || rest.strip_prefix('p').is_some_and(is_number))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::process::{Child, Command};

    use weir_runtime::{Runtime, Wall};

    use super::*;

    #[test]
    fn partitions_are_parts_of_a_device() {
        let device = Path::new("/dev/ublkb1");
        for name in ["/dev/ublkb1", "/dev/ublkb1p1", "/dev/ublkb1p12", "/dev/ublkb1 (deleted)"] {
            assert!(is_part_of(Path::new(name), device), "{name}");
        }
        for name in
            ["/dev/ublkb", "/dev/ublkb12", "/dev/ublkb1p", "/dev/ublkb1px", "/dev/ublkc1", "/dev/ublkb1 "]
        {
            assert!(!is_part_of(Path::new(name), device), "{name}");
        }
    }

    /// Who uses /dev/ublkb1 (259:4, its partition 259:5), in trees with this file or link (what, where it leads).
    fn user_with(path: &str, content: &str) -> Option<String> {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            path
        };
        let own = std::process::id();
        for (path, content) in [
            ("sys/ublkb1/dev", "259:4\n"),
            ("sys/ublkb1/ublkb1p1/dev", "259:5\n"),
            ("sys/ublkb1/queue/dev", "259:6\n"),
            (&format!("proc/{own}/fd/3"), "/dev/ublkb1"),
            ("proc/8/fd/3", "/dev/ublkb12"),
        ] {
            fs::write(at(path), content).unwrap();
        }
        match content.starts_with("/dev") && !path.ends_with("backing_file") {
            true => symlink(content, at(path)).unwrap(),
            false => fs::write(at(path), content).unwrap(),
        }
        let (proc, sys) = (at("proc/version"), at("sys/version"));
        let (proc, sys) = (proc.parent().unwrap(), sys.parent().unwrap());
        let mut search = Search::of(Path::new("/dev/ublkb1"), proc, sys);
        // A node that every system has stands for one of the device with another name.
        search.nodes.insert(Node::Character("1:3".to_owned()));
        search.user()
    }

    #[test]
    fn users_of_each_kind_are_found() {
        let mount = |number: &str, source: &str| {
            format!("36 35 {number} / /mnt rw,noatime master:1 - ext3 {source} rw,errors=continue\n")
        };
        for (path, content, user) in [
            ("proc/9/fd/0", "/dev/ublkb1", "process 9"),
            ("proc/9/fd/0", "/dev/ublkb1p2 (deleted)", "process 9"),
            ("proc/9/fd/0", "/dev/null", "process 9"),
            ("proc/9/map_files/1000-2000", "/dev/null", "process 9"),
            ("proc/9/mountinfo", &mount("259:4", "/dev/root"), "the mount on /mnt"),
            ("proc/9/mountinfo", &mount("259:5", "/dev/root"), "the mount on /mnt"),
            ("proc/9/mountinfo", &mount("0:44", "/dev/ublkb1p1"), "the mount on /mnt"),
            ("sys/loop7/loop/backing_file", "/dev/ublkb1\n", "the device loop7"),
            ("sys/loop7/loop/backing_file", "/dev/null\n", "the device loop7"),
            ("sys/ublkb1/holders/dm-2", "", "the device dm-2"),
            ("sys/ublkb1/ublkb1p1/holders/md0", "", "the device md0"),
        ] {
            assert_eq!(user_with(path, content).as_deref(), Some(user), "{path} {content}");
        }
        for (path, content) in [
            ("proc/9/fd/0", "/dev/zero"),
            ("proc/9/mountinfo", &mount("259:6", "/dev/ublkb2")),
            ("proc/9/mountinfo", "259:4"),
            ("sys/loop7/loop/backing_file", "/dev/ublkb12\n"),
            ("sys/ublkb2/holders/dm-2", ""),
        ] {
            assert_eq!(user_with(path, content), None, "{path} {content}");
        }
    }

    /// A program that has a file open for so long.
    fn open_for(file: &Path, seconds: &str) -> Child {
        Command::new("sleep").arg(seconds).stdin(File::open(file).unwrap()).spawn().unwrap()
    }

    /// As when a device is stopped, within so many seconds.
    fn claimed(file: &Path, seconds: u64) -> Result<Option<File>, String> {
        let runtime = Runtime::wall(Wall::default()).unwrap();
        let handle = runtime.handle();
        runtime.block_on(claim_within(&handle, file.to_owned(), Duration::from_secs(seconds))).unwrap()
    }

    #[test]
    fn a_program_with_a_file_open_is_found() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut program = open_for(file.path(), "60");
        assert_eq!(claimed(file.path(), 0).unwrap_err(), format!("process {}", program.id()));
        program.kill().unwrap();
        program.wait().unwrap();
        assert!(claimed(file.path(), 0).unwrap().is_some(), "this process does not count");
        assert!(claimed(Path::new("/dev/ublkb-none"), 0).unwrap().is_none());
    }

    /// As udev reads a device that was just written.
    #[test]
    fn a_program_that_looks_at_a_file_for_a_moment_does_not_count() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut program = open_for(file.path(), "2");
        assert!(claimed(file.path(), 60).unwrap().is_some());
        program.wait().unwrap();
    }
}
