//! Parts of the filesystem that know no format: another filesystem could have them as they are.

use super::code::{imports, product_code};
use super::tree::{Finding, Tree};

/// How the paths of such parts begin: the page cache with its writeback, what filesystems share, and the synchronisation
/// calls.
const PARTS: [&str; 3] = ["crates/cache/src/", "crates/vfs/src/", SYNC];
/// The one that is in a crate which knows a format.
const SYNC: &str = "crates/fs/src/sync";
/// What that may import of its own crate: nothing of this knows the format either.
const COMMON: [&str; 3] = ["crate::mutants", "crate::options", "crate::sync"];
/// The crates that are formats.
const FORMATS: [&str; 2] = ["weir_ext4", "weir_f2fs"];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let parts = tree.rust().filter(|file| {
        PARTS.iter().any(|part| file.path.starts_with(part)) && !file.path.ends_with("/tests.rs")
    });
    let mut findings = Vec::new();
    for file in parts {
        let in_crate_with_format = file.path.starts_with(SYNC);
        for (line, path) in imports(&product_code(file.text)) {
            let starts_with = |names: &[&str]| names.iter().any(|name| path.starts_with(name));
            let is_common = !in_crate_with_format || starts_with(&COMMON);
            if starts_with(&FORMATS) || path.starts_with("crate::") && !is_common {
                findings.push(Finding::new(file.path, line, format!("`{path}` may know the format")));
            }
        }
    }
    findings
}

#[test]
fn a_part_that_knows_the_format_is_found() {
    let tree = Tree::of(&[
        ("crates/cache/src/file.rs", "use crate::pages::Pages;\nuse weir_ext4::Inode;\n"),
        ("crates/cache/src/submit/tests.rs", "use weir_ext4::Mkfs;\n"),
        ("crates/cache/src/pages.rs", "#[cfg(test)]\nmod tests {\n    use weir_ext4::Mkfs;\n}\n"),
        (
            "crates/fs/src/sync.rs",
            "use weir_journal::Disk;\nuse crate::{options::MountOptions, inodes::Node};\n",
        ),
        ("crates/vfs/src/names.rs", "use weir_f2fs::Dentry;\n"),
        ("crates/fs/src/files.rs", "use weir_ext4::Extent;\n"),
    ]);
    let found: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "crates/cache/src/file.rs:2: `weir_ext4::Inode` may know the format",
            "crates/fs/src/sync.rs:2: `crate::inodes::Node` may know the format",
            "crates/vfs/src/names.rs:1: `weir_f2fs::Dentry` may know the format",
        ]
    );
}
