//! Parts of the filesystem that know no format: another filesystem could have them as they are.

use super::code::{imports, product_code};
use super::tree::{Finding, Tree};

/// How the paths of such parts begin: the page cache with its writeback, the synchronisation calls, the cache of
/// names, and what keeps aligned writes whole.
const PARTS: [&str; 4] =
    ["crates/fs/src/cache", "crates/fs/src/sync", "crates/fs/src/names/cache", "crates/fs/src/units"];
/// What they may import of their own crate: nothing of this knows the format either.
const COMMON: [&str; 5] = ["crate::cache", "crate::mutants", "crate::options", "crate::sync", "crate::units"];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let parts = tree.rust().filter(|file| {
        PARTS.iter().any(|part| file.path.starts_with(part)) && !file.path.ends_with("/tests.rs")
    });
    let mut findings = Vec::new();
    for file in parts {
        for (line, path) in imports(&product_code(file.text)) {
            let is_common = COMMON.iter().any(|common| path.starts_with(common));
            if path.starts_with("weir_ext4") || path.starts_with("crate::") && !is_common {
                findings.push(Finding::new(file.path, line, format!("`{path}` may know the format")));
            }
        }
    }
    findings
}

#[test]
fn a_part_that_knows_the_format_is_found() {
    let tree = Tree::of(&[
        ("crates/fs/src/sync.rs", "use weir_journal::Disk;\nuse weir_ext4::Inode;\n"),
        ("crates/fs/src/cache/file.rs", "use crate::{cache::PageCache, inodes::Node};\n"),
        ("crates/fs/src/cache/tests.rs", "use weir_ext4::Mkfs;\n"),
        ("crates/fs/src/cache.rs", "#[cfg(test)]\nmod tests {\n    use weir_ext4::Mkfs;\n}\n"),
        ("crates/fs/src/files.rs", "use weir_ext4::Extent;\n"),
    ]);
    let found: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "crates/fs/src/cache/file.rs:1: `crate::inodes::Node` may know the format",
            "crates/fs/src/sync.rs:2: `weir_ext4::Inode` may know the format",
        ]
    );
}
