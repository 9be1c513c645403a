//! Judges that share no code with us: e2fsck, and the kernel's ext4. Each gets its own copy of the image.
//!
//! 1. What we recovered and unmounted is *clean*: `e2fsck -fn` finds nothing to mend.
//! 2. What we write home from the log is what e2fsck writes, byte for byte, superblock and journal apart
//!    (compared where no file waits for its deletion: e2fsck deletes it at once).
//! 3. e2fsck recovers what we recover from, and mends nothing but orphans and the superblock's totals, which are
//!    kept lazily; then it is clean.
//!    Where only we can replay the log, e2fsck refuses it by that feature's name, and 2 to 4 are about what our replay has left
//!    of it.
//! 4. The kernel mounts it, finds the tree that we found, with the same bytes, and leaves it clean. Needs root.
//!
//! Where a filesystem may be damaged, each says in what [`Condition`] it is: [`by_e2fsck`], [`by_kernel`].

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::rc::Rc;

use rustix::io::Errno;
use tempfile::TempDir;
use weir_ext4::journal::JournalSuperblock;
use weir_ext4::{Feature, ROOT_INODE, SUPERBLOCK_OFFSET, Superblock};

use crate::kernel_mount::{KernelMount, KernelMountError};

use super::judges::Condition;
use super::tree::{FileId, Kind, Thing, Tree};
use super::visible::{ATTRIBUTE, BALLAST, FILE_BYTES_MAX, LOST_AND_FOUND, Visible};
use super::workload::Found;

/// What an outside judge said.
#[derive(Debug, thiserror::Error)]
pub(super) enum Complaint {
    #[error("{0}: {1}")]
    Io(&'static str, #[source] io::Error),
    #[error("{judge} exits with {code:?} and says: {said}")]
    Unclean { judge: &'static str, code: Option<i32>, said: String },
    #[error("the replay of e2fsck leaves something else in block {0} than ours")]
    Replay(usize),
    #[error("the kernel finds another tree, or other bytes, than we do")]
    Kernel,
}

/// Whether e2fsck is installed.
pub(super) fn is_there() -> bool {
    Command::new("e2fsck").arg("-V").output().is_ok()
}

/// Shows the judges what a power cut left, what our recovery made of it, and what we found. Returns whether the kernel judged.
pub(super) fn judge(
    crashed: &[u8],
    recovered: &[u8],
    replayed: &[u8],
    found: &Visible,
) -> Result<bool, Complaint> {
    let place = TempDir::new().map_err(|error| Complaint::Io("a directory for images", error))?;
    let image = |name: &str, bytes: &[u8]| -> Result<PathBuf, Complaint> {
        let path = place.path().join(name);
        fs::write(&path, bytes).map_err(|error| Complaint::Io("writing an image", error))?;
        Ok(path)
    };
    is_clean("e2fsck -fn after our recovery", &image("recovered", recovered)?)?;
    // Only we can replay such a log: others have to refuse it, and judge what we made of it.
    let crashed = if let Some(feature) = refused_for(crashed) {
        is_refused(&image("refused", crashed)?, feature)?;
        replayed
    } else {
        crashed
    };
    let theirs = image("replayed", crashed)?;
    let output = run("e2fsck", &["-E", "journal_only", "-y"], &theirs)?;
    if !said(&output).contains("orphan") {
        same_blocks(&theirs, replayed)?;
    }
    let theirs = image("e2fsck", crashed)?;
    mends_little(&run("e2fsck", &["-fy"], &theirs)?)?;
    is_clean("e2fsck -fn after its own recovery", &theirs)?;
    let theirs = image("kernel", crashed)?;
    let is_judged = kernel(&theirs, place.path(), found)?;
    if is_judged {
        is_clean("e2fsck -fn after the kernel", &theirs)?;
    }
    Ok(is_judged)
}

/// Shows e2fsck what we made of what a power cut left, and nothing else.
pub(super) fn judge_recovered(recovered: &[u8]) -> Result<(), Complaint> {
    let place = TempDir::new().map_err(|error| Complaint::Io("a directory for images", error))?;
    let path = place.path().join("recovered");
    fs::write(&path, recovered).map_err(|error| Complaint::Io("writing an image", error))?;
    is_clean("e2fsck -fn after our recovery", &path)
}

/// What e2fsck makes of an image: it mends nothing but orphans and totals, or more, or it does not get it clean.
pub(super) fn by_e2fsck(image: &[u8]) -> Result<Condition, Complaint> {
    let place = TempDir::new().map_err(|error| Complaint::Io("a directory for images", error))?;
    mended(image, &place.path().join("image"))
}

/// The same, and with `check`, which has to be content with what is there then. debugfs reads the files: e2fsck may
/// leave files without extents, which our mount refuses.
pub(super) fn tested(
    image: &[u8],
    check: &dyn Fn(&Found) -> bool,
) -> Result<(Condition, Condition), Complaint> {
    let place = TempDir::new().map_err(|error| Complaint::Io("a directory for images", error))?;
    let path = place.path().join("image");
    let condition = mended(image, &path)?;
    if condition == Condition::Failed {
        return Ok((condition, condition));
    }
    let files = place.path().join("files");
    fs::create_dir(&files).map_err(|error| Complaint::Io("a directory for files", error))?;
    let dump = format!("rdump / {}", files.display());
    run("debugfs", &["-R", &dump], &path)?;
    let is_whole = walk(&files).is_ok_and(|tree| check(&Found(Rc::new(tree))));
    Ok((condition, if is_whole { condition } else { Condition::Failed }))
}

/// Writes an image, and lets e2fsck mend it.
fn mended(image: &[u8], path: &Path) -> Result<Condition, Complaint> {
    write_sparsely(path, image).map_err(|error| Complaint::Io("writing an image", error))?;
    let mended = run("e2fsck", &["-fy"], path)?;
    is_mended(path, mends_little(&mended).is_ok())
}

/// What the kernel makes of an image: it mounts it and shows what `is_allowed`, and leaves it clean or so that e2fsck can
/// mend it; or not.
pub(super) fn by_kernel(image: &[u8], is_allowed: &dyn Fn(&Found) -> bool) -> Result<Condition, Complaint> {
    let place = TempDir::new().map_err(|error| Complaint::Io("a directory for images", error))?;
    let path = place.path().join("image");
    write_sparsely(&path, image).map_err(|error| Complaint::Io("writing an image", error))?;
    let Mounted::Tree(Ok(tree)) = mounted(&path, place.path())? else { return Ok(Condition::Failed) };
    if !is_allowed(&Found(Rc::new(tree))) {
        return Ok(Condition::Failed);
    }
    let is_clean = is_clean("e2fsck", &path).is_ok();
    if !is_clean {
        run("e2fsck", &["-fy"], &path)?;
    }
    is_mended(&path, is_clean)
}

/// Whether this machine mounts images for us: this one, which is whole.
pub(super) fn kernel_mounts(image: &[u8]) -> Result<bool, Complaint> {
    let place = TempDir::new().map_err(|error| Complaint::Io("a directory for images", error))?;
    let path = place.path().join("image");
    write_sparsely(&path, image).map_err(|error| Complaint::Io("writing an image", error))?;
    Ok(matches!(mounted(&path, place.path())?, Mounted::Tree(Ok(_))))
}

/// In what condition an image is that e2fsck has been over.
fn is_mended(image: &Path, was_whole: bool) -> Result<Condition, Complaint> {
    match is_clean("e2fsck", image) {
        Ok(()) if was_whole => Ok(Condition::Clean),
        Ok(()) => Ok(Condition::Fixed),
        Err(Complaint::Unclean { .. }) => Ok(Condition::Failed),
        Err(other) => Err(other),
    }
}

/// Writes the blocks of an image that are not zeros.
pub(super) fn write_sparsely(path: &Path, image: &[u8]) -> io::Result<()> {
    let file = File::create(path)?;
    file.set_len(image.len() as u64)?;
    let blocks = (0..).zip(image.chunks(weir_storage::BLOCK_BYTES));
    for (number, block) in blocks.filter(|(_, block)| block.iter().any(|byte| *byte != 0)) {
        file.write_all_at(block, number * weir_storage::BLOCK_BYTES as u64)?;
    }
    Ok(())
}

fn run(program: &'static str, arguments: &[&str], image: &Path) -> Result<Output, Complaint> {
    let output = Command::new(program).args(arguments).arg(image).env("LC_ALL", "C").output();
    output.map_err(|error| Complaint::Io(program, error))
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

fn is_clean(judge: &'static str, image: &Path) -> Result<(), Complaint> {
    let output = run("e2fsck", &["-fn"], image)?;
    match output.status.code() {
        Some(0) => Ok(()),
        code => Err(Complaint::Unclean { judge, code, said: said(&output) }),
    }
}

/// How e2fsck names the features of an image that say that only we can replay its log: by their bits.
fn refused_for(image: &[u8]) -> Option<&'static str> {
    let superblock = Superblock::read(image.get(SUPERBLOCK_OFFSET..)?).ok()?;
    let names = [
        (Feature::JOURNAL_ASYNC_COMMIT, "FEATURE_I28"),
        (Feature::JOURNAL_COALITION, "FEATURE_I29"),
        (Feature::JOURNAL_DATA_CHECKSUMS, "FEATURE_I30"),
    ];
    names.iter().find(|(feature, _)| superblock.features().has(*feature)).map(|(_, name)| *name)
}

/// The exit code of e2fsck where it knows a feature not.
const REFUSED: i32 = 8;

fn is_refused(image: &Path, feature: &str) -> Result<(), Complaint> {
    let output = run("e2fsck", &["-fy"], image)?;
    let (code, said) = (output.status.code(), said(&output));
    match code == Some(REFUSED) && said.contains(feature) {
        true => Ok(()),
        false => Err(Complaint::Unclean { judge: "e2fsck, which cannot replay the log,", code, said }),
    }
}

/// Whether e2fsck mended nothing that a replayed journal should have.
fn mends_little(output: &Output) -> Result<(), Complaint> {
    const LAZY: [&str; 3] = ["orphan", "Free blocks count wrong (", "Free inodes count wrong ("];
    let said = said(output);
    let code = output.status.code();
    // What it mends it says with "Fix? yes" or in a sentence with "ing"; either ends up on a line of its own. Of a bitmap
    // it says what differs.
    let mends = ["? yes", "wrong", "Clearing", "differences:"];
    let mended = said.lines().filter(|line| mends.iter().any(|word| line.contains(word)));
    let ours = mended
        .filter(|line| !line.trim().eq("Fix? yes"))
        .any(|line| !LAZY.iter().any(|lazy| line.contains(lazy)));
    match code {
        Some(0 | 1) if !ours => Ok(()),
        code => Err(Complaint::Unclean { judge: "e2fsck -fy on what was left", code, said }),
    }
}

/// Compares what e2fsck made with our replay, the superblock and the journal apart.
fn same_blocks(theirs: &Path, ours: &[u8]) -> Result<(), Complaint> {
    let bytes = fs::read(theirs).map_err(|error| Complaint::Io("reading an image", error))?;
    let block = weir_storage::BLOCK_BYTES;
    let journal = journal_in(ours);
    let differs = (1..ours.len() / block).filter(|nth| !journal.contains(nth)).find(|nth| {
        let range = nth * block..(nth + 1) * block;
        bytes.get(range.clone()) != ours.get(range)
    });
    differs.map_or(Ok(()), |nth| Err(Complaint::Replay(nth)))
}

/// The blocks of the journal, which our own mkfs puts in one place.
fn journal_in(bytes: &[u8]) -> Range<usize> {
    let blocks = bytes.chunks(weir_storage::BLOCK_BYTES).enumerate();
    let mut journals =
        blocks.filter_map(|(start, block)| Some((start, JournalSuperblock::decode(block, u32::MAX).ok()?)));
    journals.next().map_or(0..0, |(start, journal)| start..start + journal.blocks() as usize)
}

/// What becomes of an image that the kernel is given.
enum Mounted {
    /// Why it is not mounted.
    Refused(String),
    /// What the kernel shows, if it can be read.
    Tree(io::Result<Visible>),
}

/// Lets the kernel recover an image, and reads everything.
fn mounted(image: &Path, place: &Path) -> Result<Mounted, Complaint> {
    let at = place.join("mounted");
    fs::create_dir(&at).map_err(|error| Complaint::Io("a mount point", error))?;
    let mount = match KernelMount::new(image, &at, "ext4", "") {
        Err(KernelMountError::Io(error)) => return Err(Complaint::Io("mount", error)),
        Err(KernelMountError::Refused(said)) => return Ok(Mounted::Refused(said)),
        Ok(mount) => mount,
    };
    let theirs = walk(&at);
    mount.unmount().map_err(|error| Complaint::Io("umount", error))?;
    Ok(Mounted::Tree(theirs))
}

/// Lets the kernel recover, and compares the tree; false if it does not mount here for anybody.
fn kernel(image: &Path, place: &Path, found: &Visible) -> Result<bool, Complaint> {
    match mounted(image, place)? {
        Mounted::Refused(said) => {
            match said.contains("wrong fs type") || said.contains("Structure needs cleaning") {
                true => Err(Complaint::Unclean { judge: "the kernel", code: None, said }),
                false => Ok(false),
            }
        }
        Mounted::Tree(Err(error)) => Err(Complaint::Io("reading what the kernel mounted", error)),
        Mounted::Tree(Ok(theirs)) if theirs == *found => Ok(true),
        Mounted::Tree(Ok(_)) => Err(Complaint::Kernel),
    }
}

/// Reads what the kernel shows.
fn walk(root: &Path) -> io::Result<Visible> {
    let mut tree = Tree::new(ROOT_INODE, (fs::metadata(root)?.permissions().mode() & 0o7777) as u16);
    let mut bytes = BTreeMap::new();
    let mut directories = vec![(ROOT_INODE, root.to_path_buf())];
    while let Some((directory, path)) = directories.pop() {
        for entry in fs::read_dir(&path)? {
            let entry = entry?;
            let (name, path) = (entry.file_name().into_vec(), entry.path());
            if [LOST_AND_FOUND, BALLAST].contains(&&name[..]) {
                continue;
            }
            let metadata = fs::symlink_metadata(&path)?;
            let inode = metadata.ino() as FileId;
            let kind = match metadata.file_type() {
                kind if kind.is_dir() => {
                    directories.push((inode, path.clone()));
                    Kind::Directory(BTreeMap::new())
                }
                kind if kind.is_symlink() => {
                    Kind::Symlink { target: fs::read_link(&path)?.as_os_str().as_bytes().to_vec() }
                }
                _ => {
                    let mut content = Vec::new();
                    File::open(&path)?.take(FILE_BYTES_MAX).read_to_end(&mut content)?;
                    content.resize(content.len().next_multiple_of(weir_storage::BLOCK_BYTES), 0);
                    bytes.insert(inode, content);
                    Kind::File { size: metadata.len() }
                }
            };
            let permissions = (metadata.permissions().mode() & 0o7777) as u16;
            let attribute = attribute(&path)?.filter(|_| !matches!(kind, Kind::Symlink { .. }));
            tree.things.entry(inode).or_insert(Thing { kind, permissions, attribute });
            if let Some(names) = tree.names_mut(directory) {
                names.insert(name, inode);
            }
        }
    }
    Ok(Visible::of(tree, bytes))
}

/// The value of the attribute that runs use.
fn attribute(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut value = vec![0; weir_storage::BLOCK_BYTES];
    match rustix::fs::lgetxattr(path, ATTRIBUTE, &mut value[..]) {
        Ok(length) => Ok(Some(value[..length].to_vec())),
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::PERM) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
