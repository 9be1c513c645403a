//! Copies of hostile images to the host, and what they must not change.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use weir_image::{Copied, GetOptions, ImageError};
use weir_storage::Image;
use weir_vfs::{FilesystemCalls, FsError};

use super::{MountImage, run};

/// Directories that are listed at most, and bytes that are read of each file.
const LISTED_MAX: usize = 64;
const READ_MAX: usize = 1 << 20;

/// A directory of the host to copy images to, with a canary beside it that no image may touch.
pub struct Scratch {
    directory: tempfile::TempDir,
    canary: Vec<Feathers>,
}

/// What is known of a file of the canary: nothing of it changes without the time of its last change.
type Feathers = (PathBuf, u32, u32, u64, (i64, i64), (i64, i64), Vec<u8>);

impl Scratch {
    pub fn new() -> Scratch {
        // In memory, where there is such a place: an image is many small files.
        let place = Some(Path::new("/dev/shm")).filter(|place| place.is_dir());
        let directory = tempfile::tempdir_in(place.unwrap_or(&std::env::temp_dir())).expect("a directory");
        let canary = directory.path().join("canary");
        fs::create_dir_all(canary.join("inner")).expect("a directory");
        for name in ["file", "inner/file"] {
            fs::write(canary.join(name), "a canary").expect("a file");
            fs::set_permissions(canary.join(name), fs::Permissions::from_mode(0o640)).expect("a mode");
        }
        let known = feathers(&canary);
        Scratch { directory, canary: known }
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Where images are copied to.
    pub fn target(&self) -> PathBuf {
        self.path().join("out")
    }

    /// Whether the canary is as it was, and nothing new beside it.
    pub fn is_untouched(&self) -> bool {
        let beside =
            fs::read_dir(self.path()).expect("readable").map(|entry| entry.expect("one").file_name());
        beside.into_iter().all(|name| name == "canary" || name == "out")
            && feathers(&self.path().join("canary")) == self.canary
    }

    /// Removes what was copied.
    pub fn clear(&self) {
        let target = self.target();
        // The root of an image may be anything.
        match fs::symlink_metadata(&target) {
            Ok(known) if known.is_dir() => {
                if fs::remove_dir_all(&target).is_err() {
                    open_up(&target);
                    fs::remove_dir_all(&target).expect("removed");
                }
            }
            Ok(_) => fs::remove_file(&target).expect("removed"),
            Err(_) => {}
        }
    }

    /// Lists all of an image, reads its files, and copies it out, with nothing but the copy to show for it.
    ///
    /// # Panics
    /// If anything else has changed, or if it takes longer than it may, in virtual time.
    pub fn copy(&self, image: &Image, mount: impl MountImage, get: GetOptions) -> Option<CopyOutcome> {
        let outcome = self.copy_unjudged(image, mount, get);
        assert!(self.is_untouched(), "a copy has left its target");
        self.clear();
        outcome
    }

    /// The same without a judgement; the copy stays. `None` if the image cannot be mounted.
    pub fn copy_unjudged(
        &self,
        image: &Image,
        mount: impl MountImage,
        get: GetOptions,
    ) -> Option<CopyOutcome> {
        run(async |clock| {
            let (fs, _) = mount.mount_image(&clock, image, true).await.ok()?;
            list_everything(&*fs).await;
            let mut options = get;
            options.recursive = true;
            let mut told = Vec::new();
            let mut tell = |damage: &ImageError| told.push(damage.to_string());
            let copied = weir_image::get(&*fs, b"/", &self.target(), &options, &mut tell).await;
            let _ = fs.unmount().await;
            Some(CopyOutcome { copied, told })
        })
    }
}

/// How a copy ended.
#[derive(Debug)]
pub struct CopyOutcome {
    pub copied: Result<Copied, ImageError>,
    /// What it told of damage.
    pub told: Vec<String>,
}

/// All that is below a directory.
fn feathers(directory: &Path) -> Vec<Feathers> {
    let (mut found, mut pending) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(path) = pending.pop() {
        let known = fs::symlink_metadata(&path).expect("it is there");
        let mut content = Vec::new();
        if known.is_dir() {
            pending.extend(fs::read_dir(&path).expect("readable").map(|entry| entry.expect("one").path()));
        } else {
            content = fs::read(&path).expect("readable");
        }
        let (changed, modified) = ((known.ctime(), known.ctime_nsec()), (known.mtime(), known.mtime_nsec()));
        found.push((path, known.mode(), known.uid(), known.nlink(), changed, modified, content));
    }
    found.sort();
    found
}

/// Lets the user remove what is below a directory.
fn open_up(directory: &Path) {
    let _ = fs::set_permissions(directory, fs::Permissions::from_mode(0o700));
    for entry in fs::read_dir(directory).expect("readable") {
        let entry = entry.expect("one");
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_up(&entry.path());
        }
    }
}

/// As `ls -l` of every directory and `cat` of every file do it: by path.
async fn list_everything(fs: &dyn FilesystemCalls) {
    let mut pending = vec![Vec::from(b"/")];
    let mut listed = 0;
    while let Some(inside) = pending.pop().filter(|_| listed < LISTED_MAX) {
        listed += 1;
        let _ = weir_image::list(fs, &inside, true).await;
        for name in weir_image::list(fs, &inside, false).await.unwrap_or_default() {
            let path = [&inside[..], &name, b"/"].concat();
            let mut output = Limited(READ_MAX);
            match weir_image::cat(fs, &path[..path.len() - 1], &mut output).await {
                Err(ImageError::InImage { source: FsError::IsDirectory, .. }) => pending.push(path),
                done => drop(done),
            }
        }
    }
}

/// Takes so many bytes.
struct Limited(usize);

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
