//! What the system grants a group of processes, such as a container: memory, and time of processors.

use std::fs;
use std::path::{Path, PathBuf};

/// From so many bytes on, a limit is none: version 1 says it by the largest number of whole pages.
const NO_LIMIT: u64 = 1 << 62;

/// A controller of groups, and the files in which each version states its limit.
struct Controller {
    name: &'static str,
    one: &'static [&'static str],
    two: &'static [&'static str],
}

const MEMORY: Controller =
    Controller { name: "memory", one: &["memory.limit_in_bytes"], two: &["memory.max"] };
const PROCESSORS: Controller =
    Controller { name: "cpu", one: &["cpu.cfs_quota_us", "cpu.cfs_period_us"], two: &["cpu.max"] };

/// The least limit of this process's groups and of those above them, in bytes; none if there is no limit, or the system does
/// not tell.
pub(crate) fn memory_limit() -> Option<u64> {
    let stated = MEMORY.stated_here();
    stated.iter().filter_map(|stated| stated.parse().ok()).filter(|limit| *limit < NO_LIMIT).min()
}

/// Whether this process's groups, or those above them, have only so much time of the processors in each period.
pub(crate) fn has_processor_quota() -> bool {
    PROCESSORS.stated_here().iter().any(|stated| is_quota(stated))
}

/// A quota in microseconds, and behind it the period; `max` or -1 is none.
fn is_quota(stated: &str) -> bool {
    stated.split(' ').next().is_some_and(|quota| quota.parse::<u64>().is_ok())
}

impl Controller {
    /// What this process's groups state, and those above them.
    fn stated_here(&self) -> Vec<String> {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        self.stated(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"), |path| {
            fs::read_to_string(path).ok()
        })
    }

    /// What the files of the groups state. A container may see its own group as the root of the mount.
    fn stated(&self, groups: &str, mounts: &str, read: impl Fn(&Path) -> Option<String>) -> Vec<String> {
        let mut found = Vec::new();
        for (root, version) in mounts.lines().filter_map(|line| self.mount(line)) {
            let (files, group) = match version {
                Version::One => (self.one, groups.lines().find_map(|line| self.group(line))),
                Version::Two => (self.two, groups.lines().find_map(group_of_all)),
            };
            let Some(group) = group else { continue };
            for above in Path::new(group).ancestors() {
                let directory = root.join(above.strip_prefix("/").unwrap_or(above));
                let words: Option<Vec<String>> =
                    files.iter().map(|file| read(&directory.join(file))).collect();
                found.extend(words.map(|words| words.concat().trim().replace('\n', " ")));
            }
        }
        found
    }

    /// Where the files of groups are mounted, by a line of mountinfo: the fifth word is the mountpoint; behind a dash come the
    /// type, the source and the options.
    fn mount(&self, line: &str) -> Option<(PathBuf, Version)> {
        let (place, kind) = line.split_once(" - ")?;
        let root = PathBuf::from(place.split(' ').nth(4)?);
        let mut words = kind.split(' ');
        let (kind, options) = (words.next()?, words.nth(1)?);
        match kind {
            "cgroup2" => Some((root, Version::Two)),
            "cgroup" if options.split(',').any(|option| option == self.name) => Some((root, Version::One)),
            _ => None,
        }
    }

    /// The path of a group of version 1 of this controller: `4:memory:/a/b`.
    fn group<'a>(&self, line: &'a str) -> Option<&'a str> {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        controllers.split(',').any(|controller| controller == self.name).then_some(path)
    }
}

enum Version {
    One,
    Two,
}

/// The path of the group of version 2: `0::/a/b`.
fn group_of_all(line: &str) -> Option<&str> {
    line.strip_prefix("0::")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "30 20 0:27 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n";
    const TWO: &str = "31 20 0:28 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

    fn found(controller: &Controller, groups: &str, mounts: &str, files: &[(&str, &str)]) -> Vec<String> {
        controller.stated(groups, mounts, |path| {
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
        let found = |groups, mounts: &str, files| found(&MEMORY, groups, mounts, files);
        assert_eq!(found("0::/a/b\n", TWO, &files), ["max", "300"]);
        assert_eq!(found("5:cpu:/x\n4:memory:/a/b\n", ONE, &files), ["200", "9223372036854771712"]);
        assert_eq!(found("4:cpu,memory:/a/b\n0::/a/b\n", &[ONE, TWO].concat(), &files).len(), 4);
        // A container sees its group as the root.
        let root = [("/sys/fs/cgroup/memory.max", "268435456\n")];
        assert_eq!(found("0::/docker/1\n", TWO, &root), ["268435456"]);
        for (groups, mounts) in
            [("", TWO), ("0::/a\n", ""), ("nonsense", "nonsense - cgroup2"), ("0::/", ONE)]
        {
            assert!(found(groups, mounts, &files).is_empty());
        }
    }

    #[test]
    fn a_quota_of_processors_is_found() {
        let mounts = ONE.replace("memory", "cpu,cpuacct");
        let one = |quota| {
            let period = ("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n");
            let files = [("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", quota), period];
            found(&PROCESSORS, "4:cpu,cpuacct:/a\n", &mounts, &files)
        };
        let two = |told| found(&PROCESSORS, "0::/a\n", TWO, &[("/sys/fs/cgroup/a/cpu.max", told)]);
        for stated in [one("20000\n"), two("20000 100000\n")] {
            assert_eq!(stated, ["20000 100000"]);
            assert!(is_quota(&stated[0]));
        }
        for stated in [one("-1\n"), two("max 100000\n")] {
            assert!(stated.len() == 1 && !is_quota(&stated[0]), "{stated:?}");
        }
    }
}
