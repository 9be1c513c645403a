//! *Judge*: a state is written as a directory, and the check says whether it is right.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::{CWD, Mode, XattrFlags, lsetxattr, mknodat};
use rustix::process::geteuid;
use weir_format::FileType;
use weir_vfs::InodeNumber;

use crate::block_owners::BlockOwners;
use crate::disk_state::DiskState;
use crate::mount_points::remove_directory;
use crate::run_plan::RunDisk;
use crate::shell::{Shell, ShellEnd, end_processes_with, tag_of};
use crate::stop::StopCondition;
use crate::tree::{BLOCK_BYTES, Content, FileContent, Node, ROOT, Tree};

/// Directories within each other at most: no path is longer.
const DEPTH_MAX: usize = 2048;
/// The files of a state, and what is acknowledged, in a directory of its own.
pub(crate) const FILES: &str = "files";
const LINES: &str = "acknowledged";
/// What is written to a file at one time.
const RUN_BYTES: usize = 1 << 20;

/// What a check says of a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// It is right.
    pub is_right: bool,
    /// How the check ended.
    pub ending: String,
    /// There was no command to run, or it may not be run, as the shell says.
    pub is_not_run: bool,
    /// It is a disk whose filesystem was not mounted.
    pub is_refused: bool,
    /// What it printed, at most the last 64 KiB.
    pub output: Vec<u8>,
}

impl Judgement {
    /// Of a disk whose filesystem the kernel does not mount.
    fn of_no_mount(said: &str) -> Judgement {
        let ending = "the filesystem cannot be mounted".to_owned();
        Judgement {
            is_right: false,
            ending,
            is_not_run: false,
            is_refused: true,
            output: said.as_bytes().to_vec(),
        }
    }
}

/// Runs the check.
#[derive(Debug)]
pub struct Judge {
    scratch: PathBuf,
    check: String,
    limit: Duration,
    here: PathBuf,
    disk: Option<RunDisk>,
    states: AtomicU64,
}

impl Judge {
    /// States are written into a directory, and `check`, which finds `here` as `WEIR_HERE`, may take so long for each.
    #[must_use]
    pub fn new(scratch: &Path, here: &Path, check: &str, limit: Duration) -> Judge {
        let (scratch, here, check) = (scratch.to_owned(), here.to_owned(), check.to_owned());
        Judge { scratch, check, limit, here, disk: None, states: AtomicU64::new(0) }
    }

    /// Trees are those of a disk, which is mounted for the check.
    #[must_use]
    pub fn on_disk(mut self, disk: Option<RunDisk>) -> Judge {
        self.disk = disk;
        self
    }

    /// Which files have the blocks of the disk of a tree; none are known if the tree is no disk, or the disk is not mounted.
    pub(crate) fn find_owners(&self, tree: &Tree) -> io::Result<BlockOwners> {
        let Some(disk) = &self.disk else { return Ok(BlockOwners::default()) };
        self.in_place(|place| {
            let Ok(state) = DiskState::mount(disk, tree, place)? else { return Ok(BlockOwners::default()) };
            let owners = BlockOwners::find(&disk.ground, &place.join(FILES), state.image());
            state.unmount()?;
            Ok(owners)
        })
    }

    /// Does something in a directory of its own.
    fn in_place<T>(&self, does: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
        let nth = self.states.fetch_add(1, Ordering::Relaxed);
        let place = self.scratch.join(format!("state-{nth}"));
        fs::create_dir(&place)?;
        let done = does(&place);
        remove_directory(&place)?;
        done
    }

    /// Runs the check on a tree and what was acknowledged; none if `stop` was met before it has ended.
    ///
    /// # Errors
    /// What writing the state, or starting the check, fails by.
    pub fn judge(
        &self,
        tree: &Tree,
        acknowledged: &[Vec<u8>],
        stop: &StopCondition,
    ) -> io::Result<Option<Judgement>> {
        if stop.is_met() {
            return Ok(None);
        }
        self.in_place(|place| {
            write_lines(&place.join(LINES), acknowledged)?;
            let Some(disk) = &self.disk else {
                // The scratch directory belongs to this user alone.
                write_tree(tree, &place.join(FILES), Privileges::Kept)?;
                return self.run_check(place, stop);
            };
            let state = match DiskState::mount(disk, tree, place)? {
                Ok(state) => state,
                // A signal to end may have ended it.
                Err(_) if stop.is_interrupted() => return Ok(None),
                Err(said) => return Ok(Some(Judgement::of_no_mount(&said))),
            };
            let judgement = self.run_check(place, stop);
            // Whatever has left the check's group would keep the mount.
            end_processes_with(&tag_of("WEIR_DIR", &place.join(FILES)));
            state.unmount()?;
            judgement
        })
    }

    fn run_check(&self, place: &Path, stop: &StopCondition) -> io::Result<Option<Judgement>> {
        let [directory, lines] = [FILES, LINES].map(|name| place.join(name));
        let variables = [("WEIR_DIR", &*directory), ("WEIR_ACKED", &*lines), ("WEIR_HERE", &*self.here)];
        let shell = Shell::start(&self.check, &directory, &variables, false)?;
        let ShellEnd { status, output, .. } = shell.wait_within(stop, self.limit, |_| ())?;
        if status.is_none() && stop.is_met() {
            return Ok(None);
        }
        let ending = match status {
            Some(status) => describe_status(status),
            None => format!("not within {} s", self.limit.as_secs()),
        };
        let is_right = status.is_some_and(|status| status.success());
        let is_not_run = status.is_some_and(|status| matches!(status.code(), Some(126 | 127)));
        Ok(Some(Judgement { is_right, ending, is_not_run, is_refused: false, output }))
    }
}

/// How a command ended.
#[must_use]
pub fn describe_status(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("exit status {code}"),
        None => status.to_string(),
    }
}

/// Writes acknowledged lines to a file.
fn write_lines(path: &Path, lines: &[Vec<u8>]) -> io::Result<()> {
    let mut bytes = Vec::new();
    for line in lines {
        bytes.extend_from_slice(line);
        bytes.push(b'\n');
    }
    File::create_new(path)?.write_all(&bytes)
}

/// Whether files are written with what gives rights to those who run them: set-user-ID, set-group-ID, and attributes other
/// than `user.*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privileges {
    /// As they are in the tree.
    Kept,
    /// Not at all: the tree may come from anybody.
    Dropped,
}

/// Writes a tree as a new directory. Devices are left out, and owners where this process may not give files away.
///
/// # Errors
/// What the host's filesystem fails by.
pub fn write_tree(tree: &Tree, directory: &Path, privileges: Privileges) -> io::Result<()> {
    let mut writer = Writer { tree, written: BTreeMap::new(), owns: geteuid().is_root(), privileges };
    writer.write(ROOT, directory, DEPTH_MAX)
}

struct Writer<'a> {
    tree: &'a Tree,
    /// The path of each inode: its other names become links to that.
    written: BTreeMap<InodeNumber, PathBuf>,
    owns: bool,
    privileges: Privileges,
}

impl Writer<'_> {
    fn write(&mut self, inode: InodeNumber, path: &Path, depth: usize) -> io::Result<()> {
        let Some(node) = self.tree.node(inode) else { return Ok(()) };
        if let Some(first) = self.written.get(&inode) {
            return match node.kind() {
                // A directory has one name.
                FileType::Directory => Ok(()),
                _ => fs::hard_link(first, path),
            };
        }
        self.written.insert(inode, path.to_owned());
        match &node.content {
            Content::File(file) => write_file(file, path)?,
            Content::Symlink(target) => {
                symlink(OsStr::from_bytes(target), path)?;
                return if self.owns { lchown(path, Some(node.uid), Some(node.gid)) } else { Ok(()) };
            }
            Content::Special(FileType::Fifo, _) => {
                mknodat(CWD, path, rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
            }
            Content::Special(..) => return Ok(()),
            Content::Directory(names) => {
                fs::create_dir(path)?;
                for (name, inode) in names.iter().filter(|_| depth > 0) {
                    self.write(*inode, &path.join(OsStr::from_bytes(name)), depth - 1)?;
                }
            }
        }
        self.write_attributes(node, path)
    }

    fn write_attributes(&self, node: &Node, path: &Path) -> io::Result<()> {
        let drops = self.privileges == Privileges::Dropped;
        for (name, value) in node.extended.iter().filter(|(name, _)| !drops || name.starts_with(b"user.")) {
            // Some filesystems and users may have none.
            let _ = lsetxattr(path, name.as_slice(), value, XattrFlags::empty());
        }
        if self.owns {
            chown(path, Some(node.uid), Some(node.gid))?;
        }
        let dropped = if drops { 0o6000 } else { 0 };
        fs::set_permissions(path, Permissions::from_mode(u32::from(node.permissions) & !dropped))
    }
}

fn write_file(content: &FileContent, path: &Path) -> io::Result<()> {
    let file = File::create_new(path)?;
    let (mut start, mut run) = (0, Vec::new());
    for (offset, bytes) in content.data() {
        if offset != start + run.len() as u64 || run.len() >= RUN_BYTES {
            file.write_all_at(&run, start)?;
            run.clear();
            start = offset;
        }
        run.extend_from_slice(bytes);
    }
    file.write_all_at(&run, start)?;
    let is_hole_behind = start + (run.len() as u64) < content.size();
    if is_hole_behind || !content.size().is_multiple_of(BLOCK_BYTES as u64) && run.is_empty() {
        file.set_len(content.size())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn tree() -> Tree {
        let mut tree = Tree::new((geteuid().as_raw(), rustix::process::getegid().as_raw()));
        let owner = tree.node(ROOT).map(|node| (node.uid, node.gid)).unwrap();
        let mut file = FileContent::default();
        file.write(5000, b"content");
        file.grow(20_000);
        tree.insert(7, Node::new(Content::File(file), 0o640, owner));
        tree.insert(8, Node::new(Content::Directory(BTreeMap::new()), 0o500, owner));
        tree.insert(9, Node::new(Content::Symlink(b"sub/a".to_vec()), 0o777, owner));
        tree.set_name(ROOT, b"sub", Some(8));
        tree.set_name(8, b"a", Some(7));
        tree.set_name(ROOT, b"b", Some(7));
        tree.set_name(ROOT, b"l", Some(9));
        tree
    }

    #[test]
    fn privileges_are_dropped_where_the_tree_may_come_from_anybody() {
        let mut tree = tree();
        for inode in [7, 8] {
            tree.node_mut(inode).unwrap().permissions = 0o6755;
        }
        let scratch = tempfile::tempdir().unwrap();
        for (privileges, mode) in [(Privileges::Kept, 0o6755), (Privileges::Dropped, 0o755)] {
            let directory = scratch.path().join(format!("{privileges:?}"));
            write_tree(&tree, &directory, privileges).unwrap();
            for path in ["b", "sub"] {
                let written = fs::metadata(directory.join(path)).unwrap().permissions().mode();
                assert_eq!(written & 0o7777, mode, "{privileges:?} {path}");
            }
        }
    }

    #[test]
    fn a_check_finds_the_tree_and_the_lines() {
        let scratch = tempfile::tempdir().unwrap();
        let judge = |check: &str| {
            let judge = Judge::new(scratch.path(), scratch.path(), check, Duration::from_secs(20));
            let stop = StopCondition::from_flag(&Arc::default());
            judge.judge(&tree(), &[b"one".to_vec(), b"two".to_vec()], &stop).unwrap().unwrap()
        };
        let right = judge(
            "test sub/a -ef b && test $(stat -c %s-%a b) = 20000-640 && test $(readlink l) = sub/a && \
             test $(dd if=l bs=1 skip=5000 count=7 2>/dev/null) = content && test $(wc -l <$WEIR_ACKED) = 2 && \
             test $(stat -c %a sub) = 500 && test $PWD = $WEIR_DIR",
        );
        assert!(right.is_right, "{}: {}", right.ending, String::from_utf8_lossy(&right.output));
        let wrong = judge("echo lost; mkdir c && chmod 0 c; exit 4");
        let expected = (false, "exit status 4".to_owned(), b"lost\n".to_vec());
        assert_eq!((wrong.is_right, wrong.ending, wrong.output), expected);
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0, "nothing is left");
    }
}
