//! Images from an attacker: whatever they hold, a copy stays in its target, shows nothing before its time, and ends.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use weir_format::FileType;
use weir_vfs::NewNode;

use crate::hostile::{self, CopyOutcome, Part, Scratch, Seed, checked, made};
use weir_ext4::{Kind, ROOT_INODE};
use weir_fs::{FsMutant, MountOptions};
use weir_image::{GetOptions, ImageError, ImageMutant};
use weir_storage::{Image, Lba, Rules};

/// Fields of an inode: the lower half of its owner, and the nanoseconds of its last change of content.
const UID_AT: usize = 2;
const NANOSECONDS_AT: usize = 0x88;

fn copy(image: &Image, scratch: &Scratch) -> CopyOutcome {
    scratch.copy_unjudged(image, MountOptions::default(), GetOptions::default()).expect("mounted")
}

fn copy_by(mutant: ImageMutant, image: &Image, scratch: &Scratch) -> CopyOutcome {
    let trusting = MountOptions { rules: Rules::but(Some(FsMutant::TrustsNames)), ..MountOptions::default() };
    let options = GetOptions { rules: Rules::but(Some(mutant)), ..GetOptions::default() };
    scratch.copy_unjudged(image, trusting, options).expect("mounted")
}

/// An image with a symbolic link that leads to `target`, by the name "short link".
fn with_link(seed: &Seed, target: &[u8]) -> Image {
    let mut image = seed.image.clone();
    seed.change_inode(&mut image, seed.target_of(ROOT_INODE, b"short link"), |inode| {
        inode.block_area.fill(0);
        inode.block_area[..target.len()].copy_from_slice(target);
        inode.set_size(target.len() as u64);
    });
    image
}

#[test]
fn names_that_no_path_can_have_are_damage() {
    let seed = Seed::plain();
    let file = seed.target_of(ROOT_INODE, b"file");
    let scratch = Scratch::new();
    let absolute = format!("{}/canary/file", scratch.path().display()).into_bytes();
    // The last record of a block has room for any name.
    let last = seed.records(&seed.image, ROOT_INODE).pop().unwrap().4;
    let names = [&b"../canary/file"[..], b"../canary/new", &absolute, b"/", b"", b"a\0b", b"..", b"."];
    for name in names {
        let mut image = seed.image.clone();
        seed.rename(&mut image, ROOT_INODE, &last, name, file);
        let outcome = copy(&image, &scratch);
        assert_eq!(outcome.copied.as_ref().unwrap().failed, 1, "{name:?}: {outcome:?}");
        assert!(outcome.told[0].contains("a name that no path can have"), "{outcome:?}");
        assert!(scratch.is_untouched(), "{name:?}");
        scratch.clear();
        assert!(!checked(&image).unwrap().is_clean(), "{name:?}");
    }
    // Its first two names are "." and "..", and no others.
    let mut image = seed.image.clone();
    seed.rename(&mut image, seed.target_of(ROOT_INODE, b"bare"), b"..", b"ab", ROOT_INODE);
    let outcome = copy(&image, &scratch);
    assert!(outcome.told.len() == 1 && outcome.told[0].contains("first two names"), "{outcome:?}");
    scratch.clear();
    // A copy that trusts them writes outside of its target.
    for name in [&b"../canary/file"[..], b"../canary/new", &absolute] {
        let mut image = seed.image.clone();
        seed.rename(&mut image, ROOT_INODE, &last, name, file);
        let scratch = if *name == absolute { &scratch } else { &Scratch::new() };
        let _ = copy_by(ImageMutant::FollowsLinks, &image, scratch);
        assert!(!scratch.is_untouched(), "{name:?} stays in the target");
    }
}

#[test]
fn links_of_an_image_are_not_followed() {
    let seed = Seed::plain();
    // A link to the canary, and a directory of the same name behind it.
    let mut image = with_link(&seed, b"../canary");
    let of = |name: &[u8]| seed.target_of(ROOT_INODE, name);
    seed.rename(&mut image, ROOT_INODE, b"names", b"twice", of(b"short link"));
    seed.rename(&mut image, ROOT_INODE, b"short link", b"twice", of(b"names"));
    let scratch = Scratch::new();
    let outcome = copy(&image, &scratch);
    let Err(ImageError::Host { path, source, .. }) = &outcome.copied else { panic!("{outcome:?}") };
    assert!(path.ends_with("twice") && source.to_string().contains("something else"), "{outcome:?}");
    assert!(scratch.is_untouched());
    scratch.clear();
    let _ = copy_by(ImageMutant::FollowsLinks, &image, &scratch);
    assert!(!scratch.is_untouched(), "the canary would show it");
}

#[test]
fn links_that_lie_at_the_target_are_not_followed() {
    let seed = Seed::plain();
    for (mutant, untouched) in [(None, true), (Some(ImageMutant::FollowsLinks), false)] {
        let scratch = Scratch::new();
        fs::create_dir(scratch.target()).unwrap();
        symlink("../canary/inner", scratch.target().join("tree")).unwrap();
        let options = GetOptions { rules: Rules::but(mutant), ..GetOptions::default() };
        let outcome = scratch.copy_unjudged(&seed.image, MountOptions::default(), options).unwrap();
        assert_eq!(scratch.is_untouched(), untouched, "{outcome:?}");
        assert_eq!(outcome.copied.is_err(), untouched, "{outcome:?}");
    }
    // A link where a file comes to is replaced.
    let scratch = Scratch::new();
    fs::create_dir(scratch.target()).unwrap();
    symlink("../canary/file", scratch.target().join("file")).unwrap();
    symlink("../canary/file", scratch.target().join("fifo")).unwrap();
    let outcome = copy(&seed.image, &scratch);
    assert_eq!(outcome.copied.unwrap().failed, 0);
    assert!(scratch.is_untouched());
    assert_eq!(fs::symlink_metadata(scratch.target().join("file")).unwrap().size(), 100_000);
    // The caller's own path may be a link.
    scratch.clear();
    fs::create_dir(scratch.path().join("real")).unwrap();
    symlink("real", scratch.target()).unwrap();
    assert_eq!(copy(&seed.image, &scratch).copied.unwrap().failed, 0);
    assert!(scratch.path().join("real/tree/sub/sub/sub").is_dir());
}

/// Whoever owns a directory sees what comes into it, whatever its mode will be.
#[test]
fn a_directory_of_another_user_is_not_taken() {
    let seed = Seed::plain();
    let scratch = Scratch::new();
    fs::create_dir_all(scratch.target().join("tree")).unwrap();
    // Only the superuser can give it away.
    if std::os::unix::fs::chown(scratch.target().join("tree"), Some(4711), None).is_err() {
        eprintln!("skipped: this takes the superuser");
        return;
    }
    let error = copy(&seed.image, &scratch).copied.unwrap_err().to_string();
    assert!(error.contains("a directory of another user"), "{error}");
    assert_eq!(fs::read_dir(scratch.target().join("tree")).unwrap().count(), 0);
    assert!(copy_by(ImageMutant::TrustsOwners, &seed.image, &scratch).copied.is_ok());
}

/// Puts a directory of another user where one was made, with the number of its inode if that is given out again.
fn swap(directory: &Path) -> std::io::Result<bool> {
    let number = fs::symlink_metadata(directory)?.ino();
    fs::remove_dir(directory)?;
    for nth in 0..100 {
        fs::create_dir(directory)?;
        std::os::unix::fs::chown(directory, Some(4711), None)?;
        if fs::symlink_metadata(directory)?.ino() == number {
            return Ok(true);
        }
        fs::rename(directory, directory.with_extension(nth.to_string()))?;
    }
    fs::create_dir(directory).map(|()| false)
}

/// Copies an image with damage, and swaps a directory once that is told of: when it is made, and not filled. What came
/// of the copy and into the directory, or none where a number is not used again at once.
fn swapped_within_a_copy(mutant: Option<ImageMutant>) -> Option<(Result<(), ImageError>, usize)> {
    let seed = Seed::plain();
    let image = with_link(&seed, b"a\0b");
    let options = GetOptions { recursive: true, rules: Rules::but(mutant), ..GetOptions::default() };
    for _ in 0..20 {
        // On a disk, as in memory no number is used twice.
        let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let (target, mut swapped) = (place.path().join("out"), None);
        let copied = hostile::run(async |clock| {
            let (fs, _) = hostile::mount_with(&clock, &image, MountOptions::default()).await.unwrap();
            let mut tell = |_: &ImageError| {
                swapped.get_or_insert_with(|| swap(&target.join("tree")));
            };
            let copied = weir_image::get(&fs, b"/", &target, &options, &mut tell).await;
            fs.unmount().await.unwrap();
            copied.map(drop)
        });
        match swapped.expect("damage is told") {
            Ok(true) => return Some((copied, fs::read_dir(target.join("tree")).unwrap().count())),
            Ok(false) => {}
            Err(error) => {
                eprintln!("skipped: {error}");
                return None;
            }
        }
    }
    eprintln!("skipped: this filesystem does not use a number again at once");
    None
}

/// Whoever may write in the target removes what was made there, and gets its number for a directory of his own.
#[test]
fn a_directory_that_took_a_number_over_is_not_filled() {
    let Some((copied, names)) = swapped_within_a_copy(None) else { return };
    let error = copied.unwrap_err().to_string();
    assert!(error.contains("tree") && error.contains("another directory has taken its place"), "{error}");
    assert_eq!(names, 0);
    let (copied, names) = swapped_within_a_copy(Some(ImageMutant::TrustsOwners)).expect("again");
    assert!(copied.is_ok() && names > 0, "{copied:?}");
}

/// The top directory is the user's business, and stays as it is; those below are merged with what the image has.
#[test]
fn directories_that_are_there_are_merged() {
    let seed = Seed::plain();
    let scratch = Scratch::new();
    fs::create_dir_all(scratch.target().join("tree")).unwrap();
    for (directory, mode) in [(scratch.target(), 0o1777), (scratch.target().join("tree"), 0o777)] {
        fs::set_permissions(directory, fs::Permissions::from_mode(mode)).unwrap();
    }
    for _ in 0..2 {
        assert_eq!(copy(&seed.image, &scratch).copied.unwrap().failed, 0);
        assert_eq!(fs::metadata(scratch.target()).unwrap().mode() & 0o7777, 0o1777);
        assert_ne!(fs::metadata(scratch.target().join("tree")).unwrap().mode() & 0o7777, 0o777);
    }
}

#[test]
fn a_directory_is_entered_once() {
    let seed = Seed::plain();
    let tree = seed.target_of(ROOT_INODE, b"tree");
    let sub = seed.target_of(tree, b"sub");
    let mut image = seed.image.clone();
    seed.rename(&mut image, sub, b"sub", b"sub", tree);
    let scratch = Scratch::new();
    let outcome = copy(&image, &scratch);
    assert_eq!(outcome.copied.as_ref().unwrap().failed, 1, "{outcome:?}");
    assert!(outcome.told[0].contains("/tree/sub/sub: ") && outcome.told[0].contains("one more name"));
    assert!(!scratch.target().join("tree/sub/sub").exists());
    scratch.clear();
    let _ = copy_by(ImageMutant::EntersAgain, &image, &scratch);
    assert!(scratch.target().join("tree/sub/sub/sub").exists(), "it would be entered again");
    scratch.clear();
}

#[test]
fn nothing_is_shown_before_it_is_whole() {
    let seed = Seed::plain();
    let file = seed.target_of(ROOT_INODE, b"sparse");
    let mut image = seed.image.clone();
    seed.change_inode(&mut image, file, |inode| inode.mode = 0o104_755.into());
    // The last extent leads out of the filesystem, so the content ends in an error.
    let nodes = seed.blocks(|part| matches!(part, Part::Whole(Kind::Extents { inode, .. }) if inode == file));
    let bytes = image.read(Lba(nodes[0]));
    let last = usize::from(u16::from_le_bytes([bytes[2], bytes[3]])) * 12;
    seed.patch(&mut image, nodes[0], last + 8, &u32::MAX.to_le_bytes());
    for (mutant, shown) in [(None, 0o600), (Some(ImageMutant::ShowsEarly), 0o755)] {
        let scratch = Scratch::new();
        let options = GetOptions { rules: Rules::but(mutant), ..GetOptions::default() };
        let outcome = scratch.copy_unjudged(&image, MountOptions::default(), options).unwrap();
        assert_eq!(outcome.copied.as_ref().unwrap().failed, 1, "{outcome:?}");
        let mode = fs::symlink_metadata(scratch.target().join("sparse")).unwrap().mode();
        // What the umask takes is not the point.
        assert_eq!(mode & 0o077, shown & 0o077 & mode, "{mode:o}");
        assert_eq!(mode & 0o077 == 0, shown == 0o600, "{mode:o}");
        let whole = fs::symlink_metadata(scratch.target().join("file")).unwrap().mode();
        assert_eq!(whole & 0o7777, 0o644);
    }
    // A copy that ends with an error leaves its new directories private.
    let scratch = Scratch::new();
    fs::create_dir_all(scratch.target().join("file/full")).unwrap();
    let outcome = copy(&seed.image, &scratch);
    assert!(matches!(outcome.copied, Err(ImageError::Host { .. })), "{outcome:?}");
    for made in fs::read_dir(scratch.target()).unwrap().map(Result::unwrap) {
        let known = made.metadata().unwrap();
        assert!(!known.is_dir() || made.file_name() == "file" || known.mode() & 0o777 == 0o700);
    }
}

#[test]
fn an_image_gives_no_more_than_it_has_room_for() {
    let seed = Seed::plain();
    let (file, names) = (seed.target_of(ROOT_INODE, b"file"), seed.target_of(ROOT_INODE, b"names"));
    let mut image = seed.image.clone();
    // One file of 25 blocks has all names of a directory, and says that it has one.
    let live: Vec<_> = seed.records(&image, names).into_iter().filter(|record| record.3 != 0).collect();
    for (.., name) in &live {
        seed.rename(&mut image, names, name, name, file);
    }
    assert!(live.len() * 25 > 3072, "{} names", live.len());
    let scratch = Scratch::new();
    let outcome = copy(&image, &scratch);
    assert!(matches!(outcome.copied, Err(ImageError::Overfull { .. })), "{outcome:?}");
    assert!(used(&scratch.target()) <= 3072 * 4096, "{} bytes", used(&scratch.target()));
    scratch.clear();
    let _ = copy_by(ImageMutant::CopiesWithoutEnd, &image, &scratch);
    assert!(used(&scratch.target()) > 3072 * 4096, "{} bytes", used(&scratch.target()));
    scratch.clear();
}

/// What is read takes time, and what is looked for, whatever is in it. The copy would be all holes.
#[test]
fn an_image_has_no_more_read_of_it_than_it_has_room_for() {
    let seed = Seed::plain();
    let (file, names) = (seed.target_of(ROOT_INODE, b"file"), seed.target_of(ROOT_INODE, b"names"));
    let mut zeros = seed.image.clone();
    let (_, content) = seed.mapped(file, &seed.inode(file));
    for &block in &content {
        zeros.write(Lba(block), &[0; 4096]);
    }
    let mut unwritten = seed.image.clone();
    seed.change_inode(&mut unwritten, file, |inode| {
        // The length of its only extent, which says that nothing was written there.
        assert_eq!(u16::from_le_bytes([inode.block_area[2], inode.block_area[3]]), 1);
        let length = u16::from_le_bytes([inode.block_area[16], inode.block_area[17]]);
        inode.block_area[16..18].copy_from_slice(&(length + 0x8000).to_le_bytes());
    });
    let live: Vec<_> = seed.records(&seed.image, names).into_iter().filter(|record| record.3 != 0).collect();
    assert!(live.len() * content.len() > 3072, "{} names", live.len());
    for mut image in [zeros, unwritten] {
        for (.., name) in &live {
            seed.rename(&mut image, names, name, name, file);
        }
        let scratch = Scratch::new();
        let outcome = copy(&image, &scratch);
        assert!(matches!(outcome.copied, Err(ImageError::Overfull { .. })), "{outcome:?}");
        scratch.clear();
        let outcome = copy_by(ImageMutant::CopiesWithoutEnd, &image, &scratch);
        assert_eq!(outcome.copied.unwrap().failed, 0, "{:?}", outcome.told);
        scratch.clear();
    }
}

/// Bytes that all files below a directory take.
fn used(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|entry| match entry.metadata().unwrap() {
            known if known.is_dir() => used(&entry.path()),
            known => known.blocks() * 512,
        })
        .sum()
}

/// Its path is longer than a path of the host can be.
#[test]
fn a_deep_tree_is_copied_to_its_end() {
    const DEPTH: usize = 500;
    let image = made(3072, async |fs| {
        let mut directory = ROOT_INODE;
        for _ in 0..DEPTH {
            directory =
                fs.mkdir(directory, b"some directory", &NewNode::new(FileType::Directory, 0o755)).await?;
        }
        let file = fs.create(directory, b"file", &NewNode::new(FileType::Regular, 0o644)).await?;
        fs.write(file, 0, b"the end").await.map(drop)
    });
    let scratch = Scratch::new();
    let outcome = copy(&image, &scratch);
    assert_eq!(outcome.copied.unwrap().failed, 0, "{:?}", outcome.told);
    let mut at = fs::File::open(scratch.target()).unwrap();
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NOFOLLOW;
    for _ in 0..DEPTH {
        at = rustix::fs::openat(&at, "some directory", flags, rustix::fs::Mode::empty()).unwrap().into();
        assert_eq!(at.metadata().unwrap().mode() & 0o7777, 0o755);
    }
    let end = rustix::fs::openat(&at, "file", flags, rustix::fs::Mode::empty()).unwrap();
    assert_eq!(std::io::read_to_string(fs::File::from(end)).unwrap(), "the end");
    scratch.clear();
}

#[test]
fn targets_of_links_with_a_zero_byte_are_damage() {
    let seed = Seed::plain();
    let image = with_link(&seed, b"a\0b");
    let scratch = Scratch::new();
    let outcome = copy(&image, &scratch);
    assert_eq!(outcome.copied.as_ref().unwrap().failed, 1, "{outcome:?}");
    assert!(outcome.told[0].contains("a zero byte in the target"), "{outcome:?}");
    scratch.clear();
}

#[test]
fn devices_and_modes_are_copied_and_times_that_cannot_be_are_not() {
    let seed = Seed::plain();
    let mut image = seed.image.clone();
    let (file, empty) = (seed.target_of(ROOT_INODE, b"file"), seed.target_of(ROOT_INODE, b"empty"));
    seed.change_inode(&mut image, file, |inode| inode.mode = 0o104_755.into());
    for (inode, at, value) in
        [(file, UID_AT, &1000_u16.to_le_bytes()[..]), (empty, NANOSECONDS_AT, &[0xFF; 4])]
    {
        let (block, place) = seed.place(inode);
        seed.patch(&mut image, block, place.start + at, value);
    }
    let scratch = Scratch::new();
    let outcome = copy(&image, &scratch);
    assert_eq!(outcome.copied.as_ref().unwrap().failed, 0, "{outcome:?}");
    let known = fs::symlink_metadata(scratch.target().join("file")).unwrap();
    // A user who cannot give it away leaves out the bits that would let others run it as its owner.
    let expected = if known.uid() == 1000 { 0o4755 } else { 0o755 };
    assert_eq!(known.mode() & 0o7777, expected);
    scratch.clear();
}
