//! An image that the kernel's ext4 has mounted, until dropped.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{error_of, is_so_within, run, system};

/// How long a mount may stay in use: by children that other tests start, or in a copy of the mount namespace.
const UNMOUNTED_WITHIN: Duration = Duration::from_secs(30);

pub struct KernelMount {
    image: PathBuf,
    root: PathBuf,
}

impl KernelMount {
    /// Mounts an image on a directory, which is made. None, with the reason on standard error, where this machine does not mount
    /// images.
    pub fn new(image: &Path, root: &Path) -> Option<KernelMount> {
        KernelMount::with_options(image, root, "rw")
    }

    /// The same, with options of `mount`.
    #[track_caller]
    pub fn with_options(image: &Path, root: &Path, options: &str) -> Option<KernelMount> {
        fs::create_dir_all(root).unwrap();
        let mut mount = system("mount");
        let output = mount.arg("-o").arg(format!("loop,{options}")).args([image, root]).output().unwrap();
        if output.status.success() {
            return Some(KernelMount { image: image.to_owned(), root: root.to_owned() });
        }
        eprintln!("skipped: no loop mount: {}", error_of(&output));
        // As root, on a kernel with ext4 and loop devices, a refusal is about the image.
        let has_ext4 = fs::read_to_string("/proc/filesystems").is_ok_and(|known| known.contains("ext4"));
        let able = has_ext4 && rustix::process::geteuid().is_root() && Path::new("/dev/loop0").exists();
        assert!(!able, "the kernel refused the image");
        None
    }

    pub fn root(&self) -> &Path {
        &self.root
    }
}

impl Drop for KernelMount {
    fn drop(&mut self) {
        let unmounted = is_so_within(UNMOUNTED_WITHIN, || run("umount", &[self.root.as_os_str()]).0);
        if !unmounted {
            eprintln!("unmounted lazily: {:?}", run("umount", &["-l".as_ref(), self.root.as_os_str()]));
        }
        // A mount namespace that another test has made may hold a copy of the mount. Until that has gone, the kernel has the
        // filesystem mounted, with its journal in use.
        let is_detached = || {
            let (listed, devices) = run("losetup", &["-j".as_ref(), self.image.as_os_str()]);
            listed && devices.is_empty()
        };
        if !is_so_within(UNMOUNTED_WITHIN, is_detached) {
            eprintln!("{} is still attached to a loop device", self.image.display());
        }
    }
}
