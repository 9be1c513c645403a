//! The memory that the system grants a group of processes, such as a container.

use std::fs;
use std::path::{Path, PathBuf};

/// From so many bytes on, a limit is none: version 1 says it by the largest number of whole pages.
const NO_LIMIT: u64 = 1 << 62;

/// The least limit of this process's groups and of those above them, in bytes; none if there is no limit, or the system does
/// not tell.
pub(crate) fn memory_limit() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    limits(&groups, &mounts, |path| fs::read_to_string(path).ok()).into_iter().min()
}

/// The limits that the files of the groups state. A container may see its own group as the root of the mount.
fn limits(groups: &str, mounts: &str, read: impl Fn(&Path) -> Option<String>) -> Vec<u64> {
    let mut found = Vec::new();
    for (root, is_of_memory, file) in mounts.lines().filter_map(mount).map(|(root, version)| match version {
        Version::One => (root, of_memory as fn(&str) -> Option<&str>, "memory.limit_in_bytes"),
        Version::Two => (root, of_all as fn(&str) -> Option<&str>, "memory.max"),
    }) {
        let Some(group) = groups.lines().find_map(is_of_memory) else { continue };
        for above in Path::new(group).ancestors() {
            let inside = above.strip_prefix("/").unwrap_or(above);
            let stated = read(&root.join(inside).join(file));
            found.extend(stated.and_then(|stated| stated.trim().parse::<u64>().ok()));
        }
    }
    found.retain(|limit| *limit < NO_LIMIT);
    found
}

enum Version {
    One,
    Two,
}

/// Where the files of groups are mounted, by a line of mountinfo: the fifth word is the mountpoint; behind a dash come the
/// type, the source and the options.
fn mount(line: &str) -> Option<(PathBuf, Version)> {
    let (place, kind) = line.split_once(" - ")?;
    let root = PathBuf::from(place.split(' ').nth(4)?);
    let mut words = kind.split(' ');
    let (kind, options) = (words.next()?, words.nth(1)?);
    match kind {
        "cgroup2" => Some((root, Version::Two)),
        "cgroup" if options.split(',').any(|option| option == "memory") => Some((root, Version::One)),
        _ => None,
    }
}

/// The path of a group of version 1 that counts memory: `4:memory:/a/b`.
fn of_memory(line: &str) -> Option<&str> {
    let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
    controllers.split(',').any(|controller| controller == "memory").then_some(path)
}

/// The path of the group of version 2: `0::/a/b`.
fn of_all(line: &str) -> Option<&str> {
    line.strip_prefix("0::")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "30 20 0:27 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n";
    const TWO: &str = "31 20 0:28 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

    fn found(groups: &str, mounts: &str, files: &[(&str, &str)]) -> Vec<u64> {
        limits(groups, mounts, |path| {
            let file = files.iter().find(|(name, _)| Path::new(name) == path);
            file.map(|(_, stated)| (*stated).to_owned())
        })
    }

    #[test]
    fn the_limits_of_a_group_and_of_those_above_count() {
        let files = [
            ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("/sys/fs/cgroup/a/memory.max", "300\n"),
            ("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "200\n"),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ];
        assert_eq!(found("0::/a/b\n", TWO, &files), [300]);
        assert_eq!(found("5:cpu:/x\n4:memory:/a/b\n", ONE, &files), [200]);
        assert_eq!(found("4:cpu,memory:/a/b\n0::/a/b\n", &[ONE, TWO].concat(), &files), [200, 300]);
        // A container sees its group as the root.
        assert_eq!(
            found("0::/docker/1\n", TWO, &[("/sys/fs/cgroup/memory.max", "268435456\n")]),
            [268_435_456]
        );
        for (groups, mounts) in
            [("", TWO), ("0::/a\n", ""), ("nonsense", "nonsense - cgroup2"), ("0::/", ONE)]
        {
            assert!(found(groups, mounts, &files).is_empty());
        }
    }
}
