//! An overlay that the kernel mounts, until dropped.

use std::fs;
use std::path::{Path, PathBuf};

use super::{error_of, runs, system};

/// Whether the kernel has overlays; says so if not.
pub fn has_overlays() -> bool {
    let is_known =
        || fs::read_to_string("/proc/filesystems").is_ok_and(|known| known.contains("\toverlay\n"));
    let found = is_known() || system("modprobe").arg("overlay").output().is_ok() && is_known();
    if !found {
        eprintln!("skipped: the kernel has no overlays");
    }
    found
}

pub struct Overlay {
    merged: PathBuf,
}

impl Overlay {
    /// An overlay over `lower`, which goes to the directories `upper` and `work` below `root`. What is missing of these
    /// directories is made. None, with a word on it, where the kernel has no overlays.
    #[track_caller]
    pub fn new(lower: &Path, root: &Path, merged: &Path) -> Option<Overlay> {
        let [upper, work] = ["upper", "work"].map(|name| root.join(name));
        for directory in [lower, &upper, &work, merged] {
            fs::create_dir_all(directory).unwrap();
        }
        if !has_overlays() {
            return None;
        }
        let options =
            format!("lowerdir={},upperdir={},workdir={}", lower.display(), upper.display(), work.display());
        let mut mount = system("mount");
        let output = mount.args(["-t", "overlay", "overlay", "-o", &options]).arg(merged).output().unwrap();
        assert!(output.status.success(), "{}", error_of(&output));
        Some(Overlay { merged: merged.to_owned() })
    }

    pub fn merged(&self) -> &Path {
        &self.merged
    }

    pub fn end(self) {
        runs(system("umount").arg(&self.merged));
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        let _ = system("umount").arg("-l").arg(&self.merged).output();
    }
}
